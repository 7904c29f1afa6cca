//! Changes of objects that are under way: what the handler says meanwhile may be of before them or of after.

use super::branch::Branch;
use super::naming::EntryName;
use crate::ObjectName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change of an object by this client, until it is dropped. What the handler says of the object while this exists is not lost
/// when the tree is told what came of the change.
#[derive(Debug)]
#[must_use = "a change ends when this is dropped"]
pub struct Changing {
    branches: Arc<BTreeMap<EntryName, Arc<Branch>>>,
    object: ObjectName,
}

impl Changing {
    pub(super) fn begin(branches: &Arc<BTreeMap<EntryName, Arc<Branch>>>, object: &ObjectName) -> Self {
        branches.values().for_each(|branch| branch.begin_change(object));
        Self { branches: Arc::clone(branches), object: object.clone() }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.branches.values().for_each(|branch| branch.end_change(&self.object));
    }
}
