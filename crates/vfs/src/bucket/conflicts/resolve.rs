//! Resolves conflicts: keeps one side, or both.

use std::sync::{Arc, Weak};
use store::{CopyOptions, ObjectKey, Precondition, StoreError};

use super::{Conflict, Side};
use crate::base::Base;
use crate::bucket::conflicts::ConflictRecords;
use crate::bucket::discovery::Discovery;
use crate::bucket::known_state::KnownState;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::mount::Mount;
use crate::{Error, Result};

/// Decides conflicts by the policy of the volume, or as an operator says.
#[derive(Debug)]
pub struct ConflictResolver {
    pub(in crate::bucket) me: Weak<Self>,
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) known: Arc<KnownState>,
    pub(in crate::bucket) locks: Arc<ChangeLocks>,
    pub(in crate::bucket) conflicts: Arc<ConflictRecords>,
    pub(in crate::bucket) discovery: Arc<Discovery>,
}

impl ConflictResolver {
    pub(crate) fn new(base: &Base, parts: &BucketParts, discovery: &Arc<Discovery>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount: base.mount.clone(),
            known: parts.known.clone(),
            locks: parts.locks.clone(),
            conflicts: parts.conflicts.clone(),
            discovery: discovery.clone(),
        })
    }
}

/// The error of keeping the file's side when nothing is left of its bytes.
const FILE_BYTES_LOST: Error = Error::new(
    libc::ENOENT,
    "the file's bytes are lost, as its object was replaced before it moved: use --keep bucket or --keep both",
);

/// The sides of a conflict to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The bucket's side, which may be a deletion.
    Bucket,
    /// The side written here.
    File,
    /// Both sides. The side that lost the name becomes another file in the same directory.
    Both,
}

impl ConflictResolver {
    /// Resolves a conflict and removes its record.
    ///
    /// # Errors
    /// ENOENT if there is no such conflict, or the file's bytes are to be kept and lost; EROFS on a read-only mount; ESTALE if
    /// the object to replace or delete belongs to neither side any more; otherwise the error of a request. The record then stays.
    pub async fn resolve(&self, id: &str, keep: Keep) -> Result<()> {
        self.mount.check_writable()?;
        let mut conflict =
            self.conflicts.get(id).ok_or(Error::new(libc::ENOENT, "there is no such conflict"))?;
        let changed_keys = {
            let sides = [conflict.bucket.as_ref(), conflict.file.as_ref()].into_iter().flatten();
            let keys: Vec<_> = sides.map(|side| side.key.clone()).chain([conflict.key.clone()]).collect();
            let _paths = self.locks.lock_keys(&keys.iter().collect::<Vec<_>>()).await?;
            let _key_lock = self.locks.key_locks().lock(&conflict.key).await;
            if conflict.is_gone() && keep == Keep::File {
                return Err(FILE_BYTES_LOST);
            }
            if conflict.file.is_none() && !conflict.is_gone() {
                // The answer to the upload was lost, so read what is at the key.
                conflict.file =
                    self.mount.store.find(&conflict.key).await?.map(|found| Side::of(&found.object));
            }
            self.apply_resolution(&conflict, keep).await.map_err(|error| stale_error(&conflict, error))?
        };
        self.conflicts.forget_conflict(id)?;
        for key in changed_keys {
            self.discovery.reconcile_key(&key).await?;
        }
        Ok(())
    }

    /// Stores and deletes objects as `keep` requires. Returns the keys that changed.
    async fn apply_resolution(&self, conflict: &Conflict, keep: Keep) -> Result<Vec<ObjectKey>> {
        let side_at_key = conflict.side_at_key();
        let (kept, other) = match keep {
            Keep::Bucket => (conflict.bucket.as_ref(), conflict.file.as_ref()),
            Keep::File => (conflict.file.as_ref(), conflict.bucket.as_ref()),
            Keep::Both => return self.keep_both(conflict).await,
        };
        if kept == side_at_key {
            // Leave the object that has the name as it is, even if it has changed since.
            return self.delete_side(other).await;
        }
        let precondition = match side_at_key {
            Some(side) => self.unchanged_precondition(side).await?,
            None => Precondition::Absent,
        };
        match kept {
            Some(side) => {
                self.copy_side(side, &conflict.key, precondition).await?;
                let changed_keys = self.delete_side(Some(side)).await?;
                // Delete the other side's object only if it is at another key: otherwise it was replaced just now.
                let to_delete = other.filter(|other| other.key != conflict.key);
                Ok([vec![conflict.key.clone()], changed_keys, self.delete_side(to_delete).await?].concat())
            }
            None => {
                self.mount.store.delete(&conflict.key, precondition).await?;
                Ok(vec![conflict.key.clone()])
            }
        }
    }

    /// Moves the side under `lost+found` to a new file in the same directory as the other. Does nothing if no side is
    /// there.
    async fn keep_both(&self, conflict: &Conflict) -> Result<Vec<ObjectKey>> {
        let sides = [&conflict.file, &conflict.bucket];
        let is_lost = |side: &&Side| self.mount.layout.is_lost(&side.key) && side.key != conflict.key;
        let Some(side) = sides.into_iter().flatten().find(is_lost) else { return Ok(Vec::new()) };
        let copy_key = self.conflicts.conflict_copy_key(&conflict.key, conflict.at)?;
        self.copy_side(side, &copy_key, Precondition::Absent).await?;
        Ok([vec![copy_key], self.delete_side(Some(side)).await?].concat())
    }

    /// Copies a side's object to another key. The copy is made under `precondition`, which is about that key.
    async fn copy_side(&self, side: &Side, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let found = self.mount.store.head(&side.key).await?;
        let options =
            CopyOptions { precondition, size_bytes: Some(found.size_bytes), ..CopyOptions::default() };
        self.mount.store.copy(&found.object, to, options).await?;
        Ok(())
    }

    /// Deletes a side's object, and returns its key; nothing without a side. Fails if the object has changed since; a
    /// missing object is no error.
    async fn delete_side(&self, side: Option<&Side>) -> Result<Vec<ObjectKey>> {
        let Some(side) = side else { return Ok(Vec::new()) };
        match self.unchanged_precondition(side).await {
            Ok(unchanged) => self.mount.store.delete(&side.key, unchanged).await?,
            Err(Error::Store(StoreError::NotFound(_))) => {}
            Err(error) => return Err(error),
        }
        Ok(vec![side.key.clone()])
    }

    /// Returns the precondition that a side's object is unchanged. An object that waited in the write-back log when the
    /// conflict was recorded has another etag by now, so its present etag counts.
    async fn unchanged_precondition(&self, side: &Side) -> Result<Precondition> {
        let etag = match side.etag.is_provisional() {
            true => self.mount.store.head(&side.key).await?.object.etag,
            false => side.etag.clone(),
        };
        Ok(Precondition::Matches(etag))
    }
}

/// Returns the error of a resolution, with an explanation if an object has changed since.
fn stale_error(conflict: &Conflict, error: Error) -> Error {
    match error {
        Error::Store(StoreError::PreconditionFailed(key) | StoreError::NotFound(key)) => {
            Error::Stale(format!(
                "'{key}' has changed since the conflict on '{}' was found: compare both sides; --keep both keeps them",
                conflict.key
            ))
        }
        error => error,
    }
}
