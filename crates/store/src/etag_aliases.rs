//! Tags that a store in front of a bucket gave its callers, and those that the bucket has for the same bytes.

use crate::{ETag, ObjectKey, ObjectRef, Precondition};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// So many tags are remembered.
const ALIASES_MAX: usize = 1 << 16;

/// What is remembered, the newest.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    by_key: HashMap<ObjectKey, Alias>,
    order: VecDeque<ObjectKey>,
}

#[derive(Debug, Clone)]
struct Alias {
    /// More than one if the object came to its key twice, from different places.
    given: Vec<ETag>,
    /// To how many of them it was said which tag the object has now.
    told: usize,
    there: ETag,
}

impl Alias {
    fn was_given(&self, etag: &ETag) -> bool {
        self.given.contains(etag)
    }

    fn is_known(&self, etag: &ETag) -> bool {
        self.given[..self.told].contains(etag)
    }
}

impl Aliases {
    /// What was `given` for a key has the tag `there` in the bucket.
    pub(crate) fn remember(&mut self, key: &ObjectKey, given: ETag, there: ETag) {
        if let Some(alias) = self.by_key.get_mut(key).filter(|alias| alias.there == there) {
            if !alias.was_given(&given) {
                alias.given.push(given);
            }
            return;
        }
        if self.by_key.insert(key.clone(), Alias { given: vec![given], told: 0, there }).is_none() {
            self.order.push_back(key.clone());
        }
        while self.order.len() > ALIASES_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.by_key.remove(&oldest);
            }
        }
    }

    /// Tells whoever was given other tags of those in the bucket, by which it knows the objects from then on: of one key, or
    /// of all that begin so, where that ends in `/`.
    pub(crate) fn tell(&mut self, place: &[u8], tell: impl Fn(&ObjectKey, &ETag, &ETag)) {
        let keys: BTreeSet<ObjectKey> = match place.ends_with(b"/") {
            true => self.by_key.keys().filter(|key| key.as_bytes().starts_with(place)).cloned().collect(),
            false => self.by_key.get_key_value(place).map(|(key, _)| key.clone()).into_iter().collect(),
        };
        for key in keys {
            if let Some(alias) = self.by_key.get_mut(&key) {
                alias.given[alias.told..].iter().for_each(|given| tell(&key, given, &alias.there));
                alias.told = alias.given.len();
            }
        }
    }

    /// The bucket's tag for one that was given.
    pub(crate) fn there(&self, key: &ObjectKey, given: &ETag) -> ETag {
        let alias = self.by_key.get(key).filter(|alias| alias.was_given(given));
        alias.map_or_else(|| given.clone(), |alias| alias.there.clone())
    }

    /// The tag by which whoever was given one knows the object now.
    pub(crate) fn known(&self, key: &ObjectKey, given: &ETag) -> ETag {
        let alias = self.by_key.get(key).filter(|alias| alias.is_known(given));
        alias.map_or_else(|| given.clone(), |alias| alias.there.clone())
    }

    /// A condition in the bucket's words.
    pub(crate) fn condition_there(&self, key: &ObjectKey, asked: &Precondition) -> Precondition {
        match asked {
            Precondition::Matches(etag) => Precondition::Matches(self.there(key, etag)),
            other => other.clone(),
        }
    }

    /// An object of the bucket with the tag that was given for it.
    pub(crate) fn as_given(&self, mut object: ObjectRef) -> ObjectRef {
        let alias = self.by_key.get(&object.key);
        if let Some(alias) = alias.filter(|alias| alias.there == object.etag && alias.told == 0) {
            object.etag = alias.given[0].clone();
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rename that was given the first of two tags was refused as if others had changed the object (world of files
    /// 3202281).
    #[test]
    fn what_came_to_a_key_twice_is_known_by_both_tags() {
        let key = ObjectKey::try_from("key").unwrap();
        let tag = |text: &str| ETag::new(text);
        let mut aliases = Aliases::default();
        aliases.remember(&key, tag("one"), tag("there"));
        aliases.tell(b"key", |_, _, _| {});
        aliases.remember(&key, tag("two"), tag("there"));
        assert_eq!(aliases.known(&key, &tag("two")), tag("two"), "whoever has it was not told");
        aliases.tell(b"key", |_, given, _| assert_eq!(*given, tag("two")));
        for given in ["one", "two"] {
            assert_eq!(aliases.there(&key, &tag(given)), tag("there"));
            assert_eq!(aliases.known(&key, &tag(given)), tag("there"));
        }
        assert_eq!(aliases.as_given(ObjectRef::new(key.clone(), tag("there"))).etag, tag("there"));
        aliases.remember(&key, tag("three"), tag("elsewhere"));
        assert_eq!(aliases.there(&key, &tag("one")), tag("one"));
    }
}
