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
    given: ETag,
    there: ETag,
    /// Whoever was given the one knows the other by now.
    is_known: bool,
}

impl Aliases {
    /// What was `given` for a key has the tag `there` in the bucket.
    pub(crate) fn remember(&mut self, key: &ObjectKey, given: ETag, there: ETag) {
        if self.by_key.insert(key.clone(), Alias { given, there, is_known: false }).is_none() {
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
    pub(crate) fn tell(&mut self, place: &[u8], told: impl Fn(&ObjectKey, &ETag, &ETag)) {
        let keys: BTreeSet<ObjectKey> = match place.ends_with(b"/") {
            true => self.by_key.keys().filter(|key| key.as_bytes().starts_with(place)).cloned().collect(),
            false => self.by_key.get_key_value(place).map(|(key, _)| key.clone()).into_iter().collect(),
        };
        for key in keys {
            if let Some(alias) = self.by_key.get_mut(&key).filter(|alias| !alias.is_known) {
                told(&key, &alias.given, &alias.there);
                alias.is_known = true;
            }
        }
    }

    /// The bucket's tag for one that was given.
    pub(crate) fn there(&self, key: &ObjectKey, given: &ETag) -> ETag {
        let alias = self.by_key.get(key).filter(|alias| alias.given == *given);
        alias.map_or_else(|| given.clone(), |alias| alias.there.clone())
    }

    /// The tag by which whoever was given one knows the object now.
    pub(crate) fn known(&self, key: &ObjectKey, given: &ETag) -> ETag {
        let alias = self.by_key.get(key).filter(|alias| alias.given == *given && alias.is_known);
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
        if let Some(alias) =
            self.by_key.get(&object.key).filter(|alias| alias.there == object.etag && !alias.is_known)
        {
            object.etag = alias.given.clone();
        }
        object
    }
}
