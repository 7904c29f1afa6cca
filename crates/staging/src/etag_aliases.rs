//! Etags that a store in front of a bucket issued to its callers, and the etags that the bucket has for the same
//! bytes.
//!
//! A write that is not in the bucket yet, or an object that is copied to its new key later, gets another etag from
//! the bucket than callers were given.

use std::collections::{BTreeSet, HashMap, VecDeque};
use store::{ETag, ObjectKey, ObjectRef, Precondition};

/// Maximum keys to remember.
const KEYS_MAX: usize = 1 << 16;

/// The issued etags and the bucket's etags of the newest keys.
#[derive(Debug, Default)]
pub(crate) struct EtagAliases {
    by_key: HashMap<ObjectKey, Alias>,
    /// The keys, the oldest first.
    order: VecDeque<ObjectKey>,
}

/// The etags of the object at one key.
#[derive(Debug, Clone)]
struct Alias {
    /// Etags that callers know. There is more than one if the object came to its key twice, from different keys.
    issued: Vec<ETag>,
    /// How many of the issued etags were reported to the callers' namespace, together with the bucket's etag that
    /// replaces them.
    reported: usize,
    /// Etag that the object has in the bucket.
    bucket: ETag,
    /// Whether the object is about to leave the key, and is shown by the etag of its copy.
    is_leaving: bool,
}

impl Alias {
    fn has_issued(&self, etag: &ETag) -> bool {
        self.issued.contains(etag)
    }

    fn has_reported(&self, etag: &ETag) -> bool {
        self.issued[..self.reported].contains(etag)
    }
}

impl EtagAliases {
    /// Remembers that the object with the etag `issued` has the etag `bucket` in the bucket.
    pub(crate) fn remember(&mut self, key: &ObjectKey, issued: ETag, bucket: ETag) {
        if let Some(alias) = self.by_key.get_mut(key).filter(|alias| alias.bucket == bucket) {
            if !alias.has_issued(&issued) {
                alias.issued.push(issued);
            }
            return;
        }
        let alias = Alias { issued: vec![issued], reported: 0, bucket, is_leaving: false };
        if self.by_key.insert(key.clone(), alias).is_none() {
            self.order.push_back(key.clone());
        }
        while self.order.len() > KEYS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.by_key.remove(&oldest);
            }
        }
    }

    /// Shows the object at a key, which it is about to leave, by the etag `issued` from now on, instead of etags that were issued or reported
    /// before. `bucket` is the etag that the object has in the bucket.
    pub(crate) fn show_as(&mut self, key: &ObjectKey, issued: ETag, bucket: ETag) {
        self.remember(key, issued.clone(), bucket);
        if let Some(alias) = self.by_key.get_mut(key) {
            (alias.reported, alias.is_leaving) = (0, true);
            alias.issued.retain(|known| *known != issued);
            alias.issued.insert(0, issued);
        }
    }

    /// Notes that callers know the object at a key by the etag `newer` from now on, in place of `issued`, which stays valid. Does nothing if
    /// `issued` was not issued for it, or the bucket's etag was reported.
    pub(crate) fn renew(&mut self, key: &ObjectKey, issued: &ETag, newer: &ETag) {
        if let Some(alias) = self.by_key.get_mut(key)
            && alias.reported == 0
            && alias.has_issued(issued)
        {
            alias.issued.retain(|known| known != newer);
            alias.issued.insert(0, newer.clone());
        }
    }

    /// Notes that the object at a key, which had the etag `before` in the bucket, has the etag `now` there. Callers still know it by the issued
    /// one. Does nothing if the bucket's etag was reported.
    pub(crate) fn renew_bucket_tag(&mut self, key: &ObjectKey, before: &ETag, now: &ETag) {
        if let Some(alias) = self.by_key.get_mut(key)
            && alias.reported == 0
            && alias.bucket == *before
        {
            alias.bucket = now.clone();
        }
    }

    /// Forgets the objects that were about to leave a key, or all keys below a prefix that ends in `/`: they have left. Another object that comes
    /// there may have the etag by which one was shown.
    pub(crate) fn forget_left(&mut self, key_or_prefix: &[u8]) {
        let mut left = self.keys_at(key_or_prefix);
        left.retain(|key| self.by_key.get(key).is_some_and(|alias| alias.is_leaving));
        if left.is_empty() {
            return;
        }
        self.by_key.retain(|key, _| !left.contains(key));
        self.order.retain(|key| !left.contains(key));
    }

    /// Reports every issued etag that was not reported yet, together with the bucket's etag: for a key, or for all
    /// keys below a prefix that ends in `/`. See [`EtagAliases::report_key`].
    pub(crate) fn report_changes(
        &mut self,
        key_or_prefix: &[u8],
        report: impl Fn(&ObjectKey, &ETag, &ETag) -> bool,
    ) {
        for key in self.keys_at(key_or_prefix) {
            self.report_key(&key, &report);
        }
    }

    /// Returns a key if it is remembered, or all remembered keys below a prefix that ends in `/`.
    fn keys_at(&self, key_or_prefix: &[u8]) -> BTreeSet<ObjectKey> {
        match key_or_prefix.ends_with(b"/") {
            true => {
                self.by_key.keys().filter(|key| key.as_bytes().starts_with(key_or_prefix)).cloned().collect()
            }
            false => {
                self.by_key.get_key_value(key_or_prefix).map(|(key, _)| key.clone()).into_iter().collect()
            }
        }
    }

    /// Reports the issued etags of a key that were not reported yet. `report` gets the key, the issued etag and the
    /// bucket's etag. If it returns true, callers use the bucket's etag from then on; if it returns false, they still
    /// use the issued one, and the key's later etags are not reported yet either.
    pub(crate) fn report_key(&mut self, key: &ObjectKey, report: impl Fn(&ObjectKey, &ETag, &ETag) -> bool) {
        if let Some(alias) = self.by_key.get_mut(key) {
            let unreported = alias.issued[alias.reported..].iter();
            alias.reported += unreported.take_while(|issued| report(key, issued, &alias.bucket)).count();
        }
    }

    /// Returns whether no key is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns the keys, the oldest first.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.order.iter().cloned().collect()
    }

    /// Returns the keys of which no etag was reported, each with the bucket's etag.
    pub(crate) fn unreported(&self) -> Vec<(ObjectKey, ETag)> {
        let known = self.order.iter().filter_map(|key| self.by_key.get_key_value(key));
        let unreported = known.filter(|(_, alias)| alias.reported == 0);
        unreported.map(|(key, alias)| (key.clone(), alias.bucket.clone())).collect()
    }

    /// Returns the bucket's etag for an issued one, or the issued one if the bucket's is not remembered.
    pub(crate) fn bucket_tag(&self, key: &ObjectKey, issued: &ETag) -> ETag {
        let alias = self.by_key.get(key).filter(|alias| alias.has_issued(issued));
        alias.map_or_else(|| issued.clone(), |alias| alias.bucket.clone())
    }

    /// Returns the etag by which callers know the object now: the bucket's if it was reported, or else the issued
    /// one.
    pub(crate) fn reported_tag(&self, key: &ObjectKey, issued: &ETag) -> ETag {
        let alias = self.by_key.get(key).filter(|alias| alias.has_reported(issued));
        alias.map_or_else(|| issued.clone(), |alias| alias.bucket.clone())
    }

    /// Returns the first etag that was issued for the object at a key, and the bucket's, which was reported in its place; `None` if none was
    /// reported.
    pub(crate) fn replaced_tag(&self, key: &ObjectKey) -> Option<(ETag, ETag)> {
        let alias = self.by_key.get(key).filter(|alias| alias.reported > 0)?;
        Some((alias.issued[0].clone(), alias.bucket.clone()))
    }

    /// Returns a condition with the bucket's etag instead of an issued one.
    pub(crate) fn bucket_condition(&self, key: &ObjectKey, condition: &Precondition) -> Precondition {
        match condition {
            Precondition::Matches(etag) => Precondition::Matches(self.bucket_tag(key, etag)),
            other => other.clone(),
        }
    }

    /// Returns an object of the bucket with the first etag that was issued for it, unless the bucket's was reported.
    pub(crate) fn with_issued_tag(&self, mut object: ObjectRef) -> ObjectRef {
        let alias = self.by_key.get(&object.key);
        if let Some(alias) = alias.filter(|alias| alias.bucket == object.etag && alias.reported == 0) {
            object.etag = alias.issued[0].clone();
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After an upload had renewed the etag of an object that was moved, a listing showed the former one, as if another client had changed
    /// the object (world of files 30089746).
    #[test]
    fn a_renewed_etag_is_shown_and_the_former_one_stays_valid() {
        let key = ObjectKey::try_from("key").unwrap();
        let tag = |text: &str| ETag::new(text);
        let mut aliases = EtagAliases::default();
        aliases.remember(&key, tag("moved"), tag("bucket"));
        aliases.renew(&key, &tag("moved"), &tag("uploaded"));
        aliases.renew(&key, &tag("other"), &tag("unrelated"));
        let found = ObjectRef::new(key.clone(), tag("bucket"));
        assert_eq!(aliases.with_issued_tag(found).etag, tag("uploaded"));
        for known in ["moved", "uploaded"] {
            assert_eq!(aliases.bucket_tag(&key, &tag(known)), tag("bucket"));
        }
    }

    /// An object was half moved when its mount was killed, and its upload changed the etag at its old key. The object was then shown by the
    /// new etag, as if another client had stored it (world of files 55,115,470).
    #[test]
    fn an_object_keeps_its_issued_etag_when_the_one_in_the_bucket_changes() {
        let key = ObjectKey::try_from("key").unwrap();
        let tag = |text: &str| ETag::new(text);
        let mut aliases = EtagAliases::default();
        aliases.show_as(&key, tag("reported"), tag("waiting"));
        aliases.renew_bucket_tag(&key, &tag("other"), &tag("unrelated"));
        aliases.renew_bucket_tag(&key, &tag("waiting"), &tag("uploaded"));
        let found = ObjectRef::new(key.clone(), tag("uploaded"));
        assert_eq!(aliases.with_issued_tag(found).etag, tag("reported"));
        assert_eq!(aliases.bucket_tag(&key, &tag("reported")), tag("uploaded"));
    }

    /// An object was shown by the etag of its copy at a key that it then left. A rename that came from there later was given the etag that the
    /// object had had, and the file's mode was not exported (world of files 65138549).
    #[test]
    fn an_object_that_has_left_a_key_gives_no_etag_to_the_next_one() {
        let (left, stays) =
            (ObjectKey::try_from("dir/left").unwrap(), ObjectKey::try_from("dir/stays").unwrap());
        let tag = |text: &str| ETag::new(text);
        for place in ["dir/left", "dir/"] {
            let mut aliases = EtagAliases::default();
            aliases.show_as(&left, tag("copy"), tag("before"));
            aliases.remember(&stays, tag("issued"), tag("bucket"));
            aliases.forget_left(place.as_bytes());
            aliases.report_changes(place.as_bytes(), |_, _, _| true);
            assert_eq!(aliases.bucket_tag(&left, &tag("copy")), tag("copy"));
            assert_eq!(aliases.reported_tag(&left, &tag("copy")), tag("copy"));
            assert_eq!(aliases.bucket_tag(&stays, &tag("issued")), tag("bucket"));
            assert_eq!(aliases.keys(), std::slice::from_ref(&stays));
        }
    }

    /// A rename that was given the first of two etags was refused as if another client had changed the object (world
    /// of files 3202281).
    #[test]
    fn both_tags_of_an_object_that_came_to_a_key_twice_are_translated() {
        let key = ObjectKey::try_from("key").unwrap();
        let tag = |text: &str| ETag::new(text);
        let mut aliases = EtagAliases::default();
        aliases.remember(&key, tag("one"), tag("there"));
        aliases.report_changes(b"key", |_, _, _| true);
        aliases.remember(&key, tag("two"), tag("there"));
        assert_eq!(
            aliases.reported_tag(&key, &tag("two")),
            tag("two"),
            "the second etag is not reported yet"
        );
        aliases.report_changes(b"key", |_, issued, _| *issued != tag("two"));
        assert_eq!(aliases.reported_tag(&key, &tag("two")), tag("two"), "nobody took the report");
        aliases.report_changes(b"key", |_, issued, _| *issued == tag("two"));
        for issued in ["one", "two"] {
            assert_eq!(aliases.bucket_tag(&key, &tag(issued)), tag("there"));
            assert_eq!(aliases.reported_tag(&key, &tag(issued)), tag("there"));
        }
        assert_eq!(aliases.with_issued_tag(ObjectRef::new(key.clone(), tag("there"))).etag, tag("there"));
        aliases.remember(&key, tag("three"), tag("elsewhere"));
        assert_eq!(aliases.bucket_tag(&key, &tag("one")), tag("one"));
    }
}
