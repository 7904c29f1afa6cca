//! Batches: several changes in one commit, which happens as a whole or not at all.

use super::{Error, Group, Result, StoreMode, StoreOptions, key_of};
use crate::engine::Prepared;
use crate::frontend::{Drive, Frontend, KeyGuard, Stored};
use crate::policy::Purpose;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{ObjectKey, Payload};

/// Changes of keys in one or several groups of the same drive, each key at most once. [`Drive::execute`] applies them.
///
/// The log part of a batch may have 4 MiB, or half a zone where that is less. It consists of the keys, about 60 bytes per key, and
/// the values that are stored in the log (see [`Lifetime`]). Values stored in runs may have any length.
#[derive(Debug, Default)]
pub struct Batch(Vec<Change>);

/// A change of one key in a batch.
#[derive(Debug)]
struct Change {
    group: Group,
    key: Vec<u8>,
    kind: Kind,
}

/// The kind of a change.
#[derive(Debug)]
enum Kind {
    Store(Payload, StoreOptions),
    Delete,
}

impl Batch {
    /// Adds a pair to store.
    pub fn store(&mut self, group: &Group, key: &[u8], value: Payload, options: StoreOptions) {
        self.push(group, key, Kind::Store(value, options));
    }

    /// Adds a key to delete. A missing key is no error.
    pub fn delete(&mut self, group: &Group, key: &[u8]) {
        self.push(group, key, Kind::Delete);
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, group: &Group, key: &[u8], kind: Kind) {
        self.0.push(Change { group: group.clone(), key: key.to_vec(), kind });
    }
}

/// A change whose value is written to runs, or ready to go into the frame of the commit.
struct Written {
    group: Group,
    key: ObjectKey,
    mode: StoreMode,
    /// The value; `None` for a deletion.
    stored: Option<Stored>,
}

impl Drive {
    /// Applies all changes of a batch or none, also if the power fails. When this returns, they are durable.
    pub async fn execute(&self, batch: Batch) -> Result<()> {
        let mut keys = BTreeSet::new();
        for Change { group, key, .. } in &batch.0 {
            if !Arc::ptr_eq(&group.0.frontend, &self.0) {
                return Err(Error::AnotherDrive);
            }
            if !keys.insert((group.0.id, key)) {
                return Err(Error::KeyTwice(key.escape_ascii().to_string()));
            }
        }
        self.0.check_length(&batch)?;
        let mut written = Vec::with_capacity(batch.len());
        for change in batch.0 {
            written.push(self.0.write_change(change).await?);
        }
        self.0.commit_all(written).await
    }
}

impl Frontend {
    /// Checks the length before anything is written. Only values that go into the log count here; the whole frame is checked
    /// before the commit.
    fn check_length(&self, batch: &Batch) -> Result<()> {
        let in_log = |change: &Change| match &change.kind {
            Kind::Store(value, options)
                if value.len() <= options.lifetime.inline_bytes_max(self.engine.policy) =>
            {
                value.len()
            }
            Kind::Store(..) | Kind::Delete => 0,
        };
        self.check_frame(batch.0.iter().map(in_log).sum())
    }

    /// Fails if a batch is too long for one frame of the log.
    fn check_frame(&self, frame_bytes: u64) -> Result<()> {
        let frame_bytes_max = self.engine.policy.frame_bytes_max();
        match frame_bytes <= frame_bytes_max {
            true => Ok(()),
            false => Err(Error::BatchTooLong { frame_bytes, frame_bytes_max }),
        }
    }

    /// Writes the value of a change, unless it goes into the frame of the commit, without making it visible.
    async fn write_change(self: &Arc<Self>, change: Change) -> Result<Written> {
        let Change { group, key, kind } = change;
        let key = key_of(&key)?;
        let (mode, stored) = match kind {
            Kind::Delete => (StoreMode::Post, None),
            Kind::Store(value, StoreOptions { mode, lifetime }) => {
                let inline_bytes_max = lifetime.inline_bytes_max(self.engine.policy);
                (mode, Some(self.store_as(value, inline_bytes_max).await?))
            }
        };
        Ok(Written { group, key, mode, stored })
    }

    /// Makes all changes of a batch visible at once, if the modes of all allow it.
    async fn commit_all(&self, written: Vec<Written>) -> Result<()> {
        let keys = written.iter().map(|change| (change.group.0.id, change.key.as_bytes()));
        let locks = self.lock_keys(keys).await;
        let mut all = Prepared { purpose: Purpose::Frees, ..Prepared::default() };
        for Written { group, key, mode, stored } in written {
            let mut edit = group.0.edit(&key, KeyGuard::default()).await?;
            let shown = || key.as_bytes().escape_ascii().to_string();
            match (mode, &edit.current) {
                (StoreMode::UpdateOnly, None) => return Err(Error::KeyNotExist(shown())),
                (StoreMode::NoOverwrite, Some(_)) => return Err(Error::KeyExists(shown())),
                _ => {}
            }
            match stored {
                Some(stored) => drop(edit.set_current(stored, Default::default()).await?),
                None => drop(edit.delete_current().await?),
            }
            all.extend(edit.into_prepared());
        }
        if all.is_empty() {
            return Ok(());
        }
        self.check_frame(all.frame_bytes())?;
        Ok(self.commit(all, locks).await?)
    }
}
