//! Conflicts: an object changed in the bucket while a file with the same name was written here.
//!
//! Owns the policy, which decides whose bytes keep the name, the record of each conflict until it is resolved, and the
//! resolution. Does not detect conflicts: the code that stores and moves objects does (`content::write::conflict`, the
//! write-back log, and the mover).
//!
//! Invariants: the bytes of both sides are stored before the record that refers to them. A record is durable before the
//! bucket's side loses the name. There are at most [`CONFLICTS_MAX`] records.

mod background;
mod copy_name;
mod policy;
mod record;
pub(crate) mod resolve;

pub use policy::ConflictPolicy;
pub use record::{Conflict, Side};
pub use resolve::Keep;

use meta::{FsError, Ino, Name, Namespace, Op, Origin, XattrHow};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{ObjectKey, Timestamp};

use crate::base::Base;
use crate::content::Content;
use crate::layout::object_key;
use crate::mount::Mount;
use crate::names::Names;
use crate::{Error, Result};

/// The records of unresolved conflicts, in memory and in the metadata.
#[derive(Debug)]
pub struct ConflictRecords {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) records: Conflicts,
}

impl ConflictRecords {
    pub(crate) fn new(base: &Base, records: Conflicts) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            records,
        })
    }

    /// Returns the unresolved conflicts.
    pub(crate) fn records(&self) -> &Conflicts {
        &self.records
    }
}

/// Prefix of the root's extended attributes that hold conflict records.
const PREFIX: &[u8] = b"tenon.conflict.";
/// Maximum conflict records. The oldest ones are dropped; their bytes stay in the bucket.
const CONFLICTS_MAX: usize = 1000;

/// The unresolved conflicts in memory, by id.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// The conflicts by id.
    known: Mutex<BTreeMap<String, Conflict>>,
    /// Number of conflicts that block writes to their path.
    blocking: AtomicUsize,
}

impl Conflicts {
    /// Loads the conflict records from the metadata. Leaves out those that cannot be decoded.
    pub(crate) fn load(names: &Namespace) -> Result<Self> {
        let conflicts = Self::default();
        for name in names.xattrs(Ino::ROOT)? {
            let Some(id) = name.strip_prefix(PREFIX).and_then(|id| std::str::from_utf8(id).ok()) else {
                continue;
            };
            match Conflict::decode(id, &names.xattr(Ino::ROOT, &name)?) {
                Ok(conflict) => drop(conflicts.lock().insert(id.to_owned(), conflict)),
                Err(error) => {
                    tracing::warn!(id, %error, "the record of a conflict cannot be decoded and stays in the metadata; the conflict is not shown and blocks no writes")
                }
            }
        }
        conflicts.update_blocking();
        Ok(conflicts)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Recounts the conflicts that block writes.
    fn update_blocking(&self) {
        let blocking = self.lock().values().filter(|conflict| conflict.blocks()).count();
        self.blocking.store(blocking, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Conflict>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConflictRecords {
    /// Returns the unresolved conflicts, oldest first.
    pub fn list(&self) -> Vec<Conflict> {
        let mut found: Vec<_> = self.records.lock().values().cloned().collect();
        found.sort_by(|one, other| (one.at, &one.id).cmp(&(other.at, &other.id)));
        found
    }

    /// Returns the policy of this volume.
    pub fn policy(&self) -> ConflictPolicy {
        self.mount.config.conflicts
    }

    /// Returns the unresolved conflict with this id.
    pub fn get(&self, id: &str) -> Option<Conflict> {
        self.records.lock().get(id).cloned()
    }

    /// Writes or updates the record of a conflict, and drops the oldest one if there are too many. The record is
    /// durable when this returns; with write-back it becomes durable together with the log.
    pub(crate) async fn record_conflict(&self, conflict: &Conflict) -> Result<()> {
        let surplus = (self.records.len() + 1).saturating_sub(CONFLICTS_MAX);
        for oldest in self.list().into_iter().filter(|old| old.id != conflict.id).take(surplus) {
            tracing::warn!(id = oldest.id, key = %oldest.key, "too many conflicts: the record of the oldest is dropped, the objects that it names stay in the bucket");
            self.forget_conflict(&oldest.id)?;
        }
        let (name, value) = (name_of(&conflict.id), conflict.encode().into());
        let op = Op::SetXattr { ino: Ino::ROOT, name, value, how: XattrHow::Set };
        self.names.commit(Origin::Bookkeeping, &op)?;
        self.records.lock().insert(conflict.id.clone(), conflict.clone());
        self.records.update_blocking();
        self.names.sync_names_unless_write_back().await
    }

    /// Removes the record of a conflict.
    pub(crate) fn forget_conflict(&self, id: &str) -> Result<()> {
        match self.names.commit(Origin::Bookkeeping, &Op::RemoveXattr { ino: Ino::ROOT, name: name_of(id) }) {
            Ok(_) | Err(FsError::NoData) => {}
            Err(error) => return Err(error.into()),
        }
        self.records.lock().remove(id);
        self.records.update_blocking();
        Ok(())
    }

    /// Returns the key of a new file in the same directory, for the side of a conflict that loses the name.
    pub(crate) fn conflict_copy_key(&self, key: &ObjectKey, at: Timestamp) -> Result<ObjectKey> {
        copy_name::conflict_copy_key(key, at, self.mount.entropy.next_u64())
            .map_err(|error| Error::Name(error.into()))
    }

    /// Returns an error if the policy `fail` blocks writes to a file.
    pub(crate) fn check_not_in_conflict(&self, ino: Ino) -> Result<()> {
        if self.records.blocking.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        // The file may have lost its name to the bucket's object.
        let lost_in = self.content.files().get(ino).and_then(|file| self.get(&file.conflict()?));
        if let Some(conflict) = lost_in.filter(Conflict::blocks) {
            return self.check_key_not_in_conflict(&conflict.key);
        }
        match self.names.path_key(&self.names.tables().inode(ino)?) {
            Ok(Some(key)) => self.check_key_not_in_conflict(&key),
            _ => Ok(()),
        }
    }

    /// Like `check_not_in_conflict`, for a name that does not exist yet.
    pub(crate) fn check_not_in_conflict_at(&self, dir: Ino, name: &Name) -> Result<()> {
        if self.records.blocking.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        match object_key(&self.mount.layout.directory(self.names.tables(), dir)?, name.as_bytes()) {
            Ok(key) => self.check_key_not_in_conflict(&key),
            Err(_) => Ok(()),
        }
    }

    /// Fails with ESTALE while a conflict blocks writes to a key.
    fn check_key_not_in_conflict(&self, key: &ObjectKey) -> Result<()> {
        match self.records.lock().values().find(|conflict| conflict.blocks() && conflict.key == *key) {
            None => Ok(()),
            Some(Conflict { id, .. }) => Err(Error::Stale(format!(
                "'{key}' takes no writes until its conflict is resolved: tenon conflicts resolve {id} --keep bucket|file|both"
            ))),
        }
    }
}

/// Returns the name of the extended attribute that holds the record of a conflict.
fn name_of(id: &str) -> Box<[u8]> {
    [PREFIX, id.as_bytes()].concat().into()
}
