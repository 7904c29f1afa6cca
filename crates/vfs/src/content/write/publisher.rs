//! Publishing: unpublished writes become objects, and objects become the content of files.

use bytes::Bytes;
use meta::{FsError, Ino, Inode, Kind};
use std::sync::{Arc, Weak};
use store::{Payload, Precondition, PutOptions, StoreError};
use tokio::sync::OnceCell;

use crate::base::Base;
use crate::bucket::conflicts::ConflictRecords;
use crate::bucket::discovery::Discovery;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::headers;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::Described;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::content::Content;
use crate::content::open_file::OpenFile;
use crate::content::write::uploader::Uploader;
use crate::content::write::{When, WriteState};
use crate::fail_fast::FailFastSemaphore;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::inodes::publish_outdated;
use crate::volume::VolumeRecord;
use crate::{Error, Result};

/// Stores unpublished writes and names what is stored.
#[derive(Debug)]
pub struct Publisher {
    pub(in crate::content) me: Weak<Self>,
    pub(in crate::content) mount: Arc<Mount>,
    pub(in crate::content) names: Arc<Names>,
    pub(in crate::content) content: Arc<Content>,
    pub(in crate::content) uploader: Arc<Uploader>,
    pub(in crate::content) known: Arc<KnownState>,
    pub(in crate::content) metadata: Arc<Metadata>,
    pub(in crate::content) exports: Arc<ExportQueue>,
    pub(in crate::content) locks: Arc<ChangeLocks>,
    pub(in crate::content) conflicts: Arc<ConflictRecords>,
    pub(in crate::content) discovery: Arc<Discovery>,
    /// The writer of the volume record, which is stored before the first content.
    pub(super) record: RecordWriter,
}

impl Publisher {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        uploader: &Arc<Uploader>,
        discovery: &Arc<Discovery>,
        record: Option<VolumeRecord>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            uploader: uploader.clone(),
            known: parts.known.clone(),
            metadata: parts.metadata.clone(),
            exports: parts.exports.clone(),
            locks: parts.locks.clone(),
            conflicts: parts.conflicts.clone(),
            discovery: discovery.clone(),
            record: RecordWriter::new(record),
        })
    }
}

impl Publisher {
    /// Stores a marker for a directory without one if its last entry is about to leave. Does nothing for the root.
    pub(crate) async fn ensure_marker(&self, dir: Ino) -> Result<()> {
        if dir == Ino::ROOT {
            return Ok(());
        }
        let inode = self.names.tables().inode(dir)?;
        if inode.object().is_some() || self.names.tables().entries(dir, None, 2)?.len() > 1 {
            return Ok(());
        }
        match self.store_new(&inode, Bytes::new(), Precondition::Absent).await {
            // Another client stored the marker.
            Err(Error::Store(StoreError::PreconditionFailed(_))) => Ok(()),
            // A server that cannot store this marker (MinIO adds to the name on its disk), or does not let this user, must not
            // prevent the removal of the entry. The directory then disappears with its last entry, as it does for every S3
            // client; a bucket that is shown as a directory stays.
            Err(Error::Store(error @ (StoreError::InvalidKey { .. } | StoreError::Denied(_)))) => {
                tracing::info!(
                    %error,
                    "a directory may disappear with its last entry: the server does not store its marker"
                );
                Ok(())
            }
            stored => stored,
        }
    }

    /// Stores the object of an inode that has no unpublished writes: a directory's marker, a symbolic link, a special
    /// or an empty file. Does nothing if the inode's path is no key.
    pub(crate) async fn store_new(
        &self,
        inode: &Inode,
        body: Bytes,
        precondition: Precondition,
    ) -> Result<()> {
        let _path = self.locks.lock_path(inode.ino).await?;
        // Read under the lock: the inode may have been renamed before.
        match self.names.tables().inode(inode.ino) {
            Ok(now) => self.store_new_locked(&now, body, precondition).await,
            Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Like `store_new`, for a caller that has locked the path.
    pub(crate) async fn store_new_locked(
        &self,
        inode: &Inode,
        body: Bytes,
        precondition: Precondition,
    ) -> Result<()> {
        if !self.names.has_path_key(inode)? {
            return Ok(());
        }
        self.ensure_volume_record().await?;
        let key = match self.mount.layout.path_key(self.names.tables(), inode) {
            Ok(key) => key,
            // The key of a directory with a continued (overlong) name exists only as a part of the keys inside it.
            Err(_) if inode.kind == Kind::Directory => return Ok(()),
            Err(error) => return Err(error),
        };
        let _key_lock = self.locks.key_locks().lock(&key).await;
        // While this call waited for another one, the attributes may have changed, and that one may have stored them.
        let now = self.names.tables().inode(inode.ino).ok();
        let Some(inode) = &now.filter(|now| now.home == inode.home) else {
            // The inode was removed or renamed before it was stored.
            return Ok(());
        };
        let had = match self.names.object(inode)? {
            Some(there) => self.mount.store.find(&there.key).await?,
            None => None,
        };
        let had = match &had {
            Some(meta) => self.metadata.read_description(meta).await?,
            None => headers::new(inode).into(),
        };
        let described = self.metadata.updated_description(inode, had)?;
        let Described { attributes, tags } = described.clone();
        let options =
            PutOptions { precondition, attributes: attributes.clone(), tags, ..PutOptions::default() };
        let size_bytes = body.len() as u64;
        let object = match self.mount.store.put(&key, Payload::from(body), options).await {
            Err(StoreError::PreconditionFailed(key)) => {
                let ours = self.mount.already_stored(&key, &attributes, size_bytes).await?;
                ours.ok_or(StoreError::PreconditionFailed(key))?
            }
            stored => stored?,
        };
        let now = self.names.tables().inode(inode.ino)?;
        // With an object, a change of attributes has recorded that they must be exported.
        let is_outdated = now.object().is_none()
            && self.mount.rules.exports_attributes
            && self.metadata.updated_description(&now, described.clone())? != described;
        match is_outdated {
            true => publish_outdated(&self.names, inode.ino, &object, size_bytes, None)?,
            false => self.names.publish(inode, &object, size_bytes, None)?,
        };
        self.metadata.cache().insert_stored(inode.ino, &object.etag, described.clone(), self.mount.moment());
        if self.metadata.clear_stored_pending(inode.ino, &described)? || is_outdated {
            self.exports.export_later(inode.ino)
        } else {
            Ok(())
        }
    }

    /// Completes a stream and assembles deltas before the file's object moves: the parts of a stream belong to the old
    /// key, which another file may need next, and a crash must not leave older content there than was synced.
    pub(crate) async fn complete_object(&self, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        if matches!(state, WriteState::Stream(_)) {
            self.commit_locked(file, state, When::Closed).await?;
        }
        match self.names.tables().inode(file.ino)?.is_ahead() {
            true => self.try_show_at_path(file, state).await,
            false => Ok(()),
        }
    }
}

/// Writes the volume record once.
#[derive(Debug)]
pub(super) struct RecordWriter {
    /// The record, once it is stored.
    record: OnceCell<VolumeRecord>,
    /// Serializes writers of the volume record.
    writers: FailFastSemaphore,
}

impl RecordWriter {
    fn new(record: Option<VolumeRecord>) -> Self {
        let record = record.map_or_else(OnceCell::new, |record| OnceCell::new_with(Some(record)));
        Self { record, writers: FailFastSemaphore::default() }
    }

    /// Writes the record by `put`, unless one is known.
    pub(super) async fn ensure(&self, put: impl Future<Output = Result<VolumeRecord>> + Send) -> Result<()> {
        if self.record.initialized() {
            return Ok(());
        }
        let recorded = async { self.record.get_or_try_init(|| put).await.map(drop) };
        self.writers.run(Box::pin(recorded)).await
    }
}
