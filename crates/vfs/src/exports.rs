//! Attributes on their way to object headers.
//!
//! An attribute changed after its file was stored is exported by copying the object onto itself with new headers:
//! not in the caller's way, many changes of one file as one copy.

use meta::{Ino, Kind};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{CopyOptions, Precondition, StoreError, Timestamp};

use crate::headers;
use crate::{Filesystem, Result};

/// A file's attributes are exported when they have been left alone for this long.
const QUIET: Duration = Duration::from_millis(500);

/// Inodes whose headers are older than their attributes, and when they were last changed.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    waiting: Mutex<HashMap<Ino, Timestamp>>,
}

impl Exports {
    /// Notes a change; true if the inode was not waiting before.
    fn insert(&self, ino: Ino, now: Timestamp) -> bool {
        self.lock().insert(ino, now).is_none()
    }

    pub(crate) fn remove(&self, ino: Ino) -> bool {
        self.lock().remove(&ino).is_some()
    }

    fn changed_at(&self, ino: Ino) -> Option<Timestamp> {
        self.lock().get(&ino).copied()
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.lock().contains_key(&ino)
    }

    pub(crate) fn all(&self) -> Vec<Ino> {
        self.lock().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Timestamp>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem {
    /// Exports an inode's attributes once they have been left alone for a while.
    pub(crate) fn export_later(&self, ino: Ino) -> Result<()> {
        let is_stored =
            self.names.inode(ino)?.object().is_some() || self.names.inode(ino)?.kind == Kind::Directory;
        if !is_stored
            || ino == Ino::ROOT
            || self.has_unpublished_writes(ino)
            || !self.exports.insert(ino, self.now())
        {
            return Ok(());
        }
        let Some(me) = self.me.upgrade() else { return Ok(()) };
        tokio::spawn(async move {
            while let Some(changed_at) = me.exports.changed_at(ino) {
                tokio::time::sleep(QUIET).await;
                if me.exports.changed_at(ino) == Some(changed_at)
                    && let Err(error) = me.export_now(ino).await
                {
                    tracing::warn!(%ino, %error, "attributes could not be exported; they are tried again at the next change or sync");
                    return;
                }
            }
        });
        Ok(())
    }

    /// Exports an inode's attributes now, if they wait.
    pub(crate) async fn export_now(&self, ino: Ino) -> Result<()> {
        if !self.exports.remove(ino) {
            return Ok(());
        }
        let outcome = self.export(ino).await;
        if outcome.is_err() {
            self.exports.insert(ino, self.now());
        }
        outcome
    }

    async fn export(&self, ino: Ino) -> Result<()> {
        let Ok(inode) = self.names.inode(ino) else { return Ok(()) };
        if inode.kind == Kind::Directory {
            return self.store_new(&inode, bytes::Bytes::new(), Precondition::None).await;
        }
        let file = self.open_file(ino)?;
        let outcome = {
            let work = file.work.lock().await;
            if work.is_clean() { self.copy_onto_itself(&file).await } else { Ok(()) }
        };
        self.close_file(&file).await?;
        outcome
    }

    async fn copy_onto_itself(&self, file: &crate::open_file::OpenFile) -> Result<()> {
        let _moves = self.moves.read().await;
        let inode = self.names.inode(file.ino)?;
        let Some(pin) = self.pin(&inode)?.filter(|_| inode.home.is_some()) else { return Ok(()) };
        self.ensure_volume_record().await?;
        let described = match self.store.head(&pin.key).await {
            Ok(meta) if meta.object.etag == pin.etag => meta,
            Ok(_) | Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let attributes = headers::with_posix(described.attributes, &inode);
        let options = CopyOptions { attributes: Some(attributes), precondition: Precondition::None };
        match self.store.copy(&pin.object(), &pin.key, options).await {
            Ok(object) => {
                self.publish(&inode, &object, inode.size_bytes, None)?;
                file.repin(self.pin(&self.names.inode(inode.ino)?)?);
                Ok(())
            }
            // Somebody stored other bytes meanwhile; their headers are theirs.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
