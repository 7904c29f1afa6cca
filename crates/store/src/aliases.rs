//! Tags that a store in front of a bucket gave its callers, and those that the bucket has for the same bytes.

use crate::{ETag, ObjectKey, ObjectRef, Precondition};
use std::collections::{HashMap, VecDeque};

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
}

impl Aliases {
    /// What was `given` for a key has the tag `there` in the bucket.
    pub(crate) fn remember(&mut self, key: &ObjectKey, given: ETag, there: ETag) {
        if self.by_key.insert(key.clone(), Alias { given, there }).is_none() {
            self.order.push_back(key.clone());
        }
        while self.order.len() > ALIASES_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.by_key.remove(&oldest);
            }
        }
    }

    /// The bucket's tag for one that was given.
    pub(crate) fn there(&self, key: &ObjectKey, given: &ETag) -> ETag {
        let alias = self.by_key.get(key).filter(|alias| alias.given == *given);
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
        if let Some(alias) = self.by_key.get(&object.key).filter(|alias| alias.there == object.etag) {
            object.etag = alias.given.clone();
        }
        object
    }
}
