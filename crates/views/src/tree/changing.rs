//! Changes of objects that are in progress. A state that the handler reports meanwhile may be from before the change
//! or after it.

use super::branch::Branch;
use super::naming::EntryName;
use crate::ObjectName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Guard for a change of an object by this client, which lasts until the guard is dropped. States of the object that
/// the handler reports meanwhile are not lost when the tree is notified of the change.
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
