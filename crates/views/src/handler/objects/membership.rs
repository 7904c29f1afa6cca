//! Which views each object of one container is in, at one moment.
//!
//! Owns a cache over the container's [`Matcher`]: the classes of keys, and the sets of views by signature. Invariant: a set in the cache is
//! valid for `time_cuts`.

use super::matcher::{KeyClass, KeyClassId, Matcher, Needs, TimeCuts, ViewSet, ViewSetId};
use crate::object_record::LiveObject;
use hashbrown::HashMap;
use std::sync::Arc;
use store::Timestamp;

/// A cache of the answers of a matcher.
#[derive(Debug)]
pub(super) struct Membership {
    matcher: Arc<Matcher>,
    time_cuts: Arc<TimeCuts>,
    classes: HashMap<KeyClassId, Arc<KeyClass>>,
    /// Sets by signature, which begins with the class.
    sets: HashMap<Box<[u32]>, ViewSetId>,
    /// Scratch space for a signature, or for the numbers of rules on keys.
    signature: Vec<u32>,
}

/// Approximate memory of a set in the cache, in bytes.
const SET_BYTES: usize = 96;

impl Membership {
    pub(super) fn new(matcher: Arc<Matcher>, time_cuts: Arc<TimeCuts>) -> Self {
        Self { matcher, time_cuts, classes: HashMap::new(), sets: HashMap::new(), signature: Vec::new() }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.sets.len() * SET_BYTES
    }

    pub(super) fn matcher(&self) -> &Arc<Matcher> {
        &self.matcher
    }

    pub(super) fn time_cuts(&self) -> &Arc<TimeCuts> {
        &self.time_cuts
    }

    /// Returns whether the passing of time alone can change an object's set.
    pub(super) fn has_ages(&self) -> bool {
        self.matcher.has_ages()
    }

    pub(super) fn views(&self, set: ViewSetId) -> ViewSet {
        self.matcher.set(set)
    }

    /// Returns the class of a key, whether or not its object is known; `None` if no view wants the key.
    pub(super) fn class_of(&mut self, key: &[u8]) -> Option<KeyClassId> {
        self.matcher.class_of(key, &mut self.signature)
    }

    /// Returns the metadata that views need of the objects of a class.
    pub(super) fn needs(&mut self, class: KeyClassId) -> Needs {
        self.class(class).needs
    }

    /// Returns the set of views that an object is in.
    pub(super) fn set_of(&mut self, class: KeyClassId, live: &LiveObject<'_>) -> ViewSetId {
        let rules = Arc::clone(self.class(class));
        self.signature.clear();
        self.signature.push(class.0);
        rules.append_signature(live, &self.time_cuts, &mut self.signature);
        if let Some(set) = self.sets.get(self.signature.as_slice()) {
            return *set;
        }
        let set = self.matcher.match_rules(&rules, live, self.time_cuts.now);
        self.sets.insert(self.signature.as_slice().into(), set);
        set
    }

    fn class(&mut self, class: KeyClassId) -> &Arc<KeyClass> {
        self.classes.entry(class).or_insert_with(|| self.matcher.class(class))
    }

    /// Moves to another moment. Returns the ranges of `modified` and of `accessed` times for which the sets of objects
    /// may differ from before.
    pub(super) fn move_to(&mut self, time_cuts: &Arc<TimeCuts>) -> [Vec<(Timestamp, Timestamp)>; 2] {
        let changed = self.time_cuts.changed_ranges(time_cuts);
        if !self.time_cuts.has_same_order(time_cuts) {
            self.sets.clear();
        }
        self.time_cuts = Arc::clone(time_cuts);
        changed
    }
}
