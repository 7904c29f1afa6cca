//! Background export: stores changed attributes, metadata and tags with their objects, and moves files to their paths.
//!
//! An attribute that changed after its file was stored is exported by copying the object onto itself with new headers. The
//! caller does not wait, several changes of one file are exported as one copy, and the number of concurrent copies is bounded.
//! One task does this, and runs only while exports are pending. The task also stores files at their path that could not be
//! stored there before.

use bytes::Bytes;
use futures_util::StreamExt as _;
use meta::{Ino, Inode, Kind};
use staging::mover::Mover;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::{CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, StoreError};

use crate::base::Base;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::content::Content;
use crate::content::open_file::OpenFile;
use crate::content::opener::FileOpener;
use crate::content::write::publisher::Publisher;
use crate::fail_fast::Unanswered as _;
use crate::layout::stored;
use crate::mount::Mount;
use crate::names::Names;
use crate::outcomes::Outcomes;
use crate::{Error, Result};

/// Stores changed attributes with the objects that they belong to.
#[derive(Debug)]
pub(crate) struct Exporter {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) metadata: Arc<Metadata>,
    pub(crate) exports: Arc<ExportQueue>,
    pub(in crate::bucket) locks: Arc<ChangeLocks>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) opener: Arc<FileOpener>,
    /// The mover of the store, if it has one.
    mover: Option<Arc<Mover>>,
}

impl Exporter {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        publisher: &Arc<Publisher>,
        opener: &Arc<FileOpener>,
        mover: Option<Arc<Mover>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            metadata: parts.metadata.clone(),
            exports: parts.exports.clone(),
            locks: parts.locks.clone(),
            publisher: publisher.clone(),
            opener: opener.clone(),
            mover,
        })
    }
}

/// Interval of the exporter. An inode is exported after a full interval without changes.
const TICK: Duration = Duration::from_millis(300);
/// Files to export concurrently.
const EXPORTED_AT_ONCE: usize = 16;
/// Inodes that `sync` reads from the tables in one step.
const BATCH: usize = 1024;

impl Exporter {
    /// Exports all pending inodes. Tries all of them, unless the store stops answering. Returns the first error. Does
    /// nothing on a read-only mount.
    pub(crate) async fn export_all(&self) -> Result<()> {
        let (mut after, mut outcome) = (None, Ok(()));
        if self.mount.config.read_only {
            return outcome;
        }
        loop {
            let found = self.names.tables().waiting_exports(after, BATCH)?;
            let Some(last) = found.last() else { return outcome };
            after = Some(*last);
            let outcomes = Outcomes::default();
            let export = |ino: Ino| {
                let outcomes = &outcomes;
                async move { outcomes.add(self.export_now(ino)).await }
            };
            futures_util::stream::iter(found).for_each_concurrent(EXPORTED_AT_ONCE, export).await;
            outcome = outcome.and(outcomes.into_result());
            if outcome.as_ref().is_err_and(Error::gave_no_usable_answer) {
                return outcome;
            }
        }
    }

    /// Fills the window from the tables.
    pub(crate) fn walk_exports(&self) {
        let Some((after, room)) = self.exports.window().next_walk() else { return };
        match self.names.tables().waiting_exports(after, room) {
            Ok(found) => self.exports.window().refill(&found, room),
            Err(error) => {
                tracing::warn!(%error, "cannot read from the metadata which files and directories have attributes to export; retrying")
            }
        }
    }

    /// Exports an inode, and logs a failure, which schedules a retry.
    pub(crate) async fn try_export(&self, ino: Ino) {
        if let Err(error) = self.export_now(ino).await {
            tracing::warn!(%ino, %error, "cannot store the attributes of a file or directory in the bucket; retrying later");
        }
    }

    /// Exports an inode's attributes now, if an export is pending. Schedules a retry on failure.
    pub(crate) async fn export_now(&self, ino: Ino) -> Result<()> {
        self.exports.window().remove(ino);
        // Read this before the attributes: a later change has another number, and its record stays.
        let Some(change) = self.names.tables().waiting_export(ino)? else { return Ok(()) };
        let outcome = loop {
            match self.export(ino).await {
                Err(Error::Store(StoreError::Invalid(why)))
                    if self.metadata.drop_refused_pending(ino, &why)? => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(true) => self.exports.note_exported(ino, Some(change)),
            Ok(false) => Ok(()),
            Err(error) => {
                self.exports.retry_later(ino);
                Err(error)
            }
        }
    }

    /// Exports an inode. Returns false if its attributes are stored later: together with unpublished writes, or once its object has moved.
    async fn export(&self, ino: Ino) -> Result<bool> {
        let Ok(inode) = self.names.tables().inode(ino) else {
            self.metadata.renamed().forget(ino);
            return Ok(true);
        };
        if inode.kind == Kind::Directory {
            return self.export_directory(ino).await.map(|()| true);
        }
        let file = self.opener.open_file(ino)?;
        let outcome = self.export_file(&file).await;
        file.close().await?;
        outcome
    }

    /// Exports a file. Returns as `export` does.
    async fn export_file(&self, file: &OpenFile) -> Result<bool> {
        let mut state = file.write_state.lock().await;
        if !state.is_published() {
            return Ok(false);
        }
        // Read under the lock: an exchange may have copied the object to a key of its own.
        let Ok(inode) = self.names.tables().inode(file.ino) else { return Ok(true) };
        if !inode.is_beside() && !inode.is_ahead() {
            let copied = self.copy_onto_itself(file).await;
            return copied.inspect(|_| state.rebase_on_pin(file));
        }
        match self.publisher.try_show_at_path(file, &mut state).await {
            // Another client's object is at the path and this file's bytes are in `lost+found`, or the server does not support such keys.
            Err(Error::Stale(_) | Error::Store(StoreError::InvalidKey { .. })) => Ok(true),
            shown => shown.map(|()| true),
        }
    }

    /// Stores a file's attributes by copying its object onto itself with new headers. Does nothing if the object at the
    /// key is another client's. Returns false if it must be tried again.
    async fn copy_onto_itself(&self, file: &OpenFile) -> Result<bool> {
        let _path = self.locks.lock_path(file.ino).await?;
        let Some(object) = self.names.object(&self.names.tables().inode(file.ino)?)? else { return Ok(true) };
        // The lock keeps Tenon's S3 endpoint from storing another object under the key, which would be taken for this
        // one.
        let _key_lock = self.locks.key_locks().lock(&object.key).await;
        let inode = self.names.tables().inode(file.ino)?;
        let Some(old) = self.names.object(&inode)?.filter(|_| inode.home.is_some()) else { return Ok(true) };
        self.publisher.ensure_volume_record().await?;
        let _rewriting = self.exports.rewrites().begin(file.ino, &self.mount.moments);
        let looked_at = self.mount.moment();
        let described = match self.mount.store.head(&old.key).await {
            Ok(meta) => meta,
            Err(StoreError::NotFound(_)) => return Ok(self.give_up(file, &old.key)),
            Err(error) => return Err(error.into()),
        };
        self.exports.adopt_stored(file.ino, &described, looked_at)?;
        if described.object.etag != old.etag && !self.is_current_object(file.ino, &described)? {
            // An earlier attempt may have succeeded although its answer was lost.
            if !file.is_unconfirmed_upload(&described.attributes, described.size_bytes) {
                return Ok(self.give_up(file, &old.key));
            }
            self.exports.adopt_copy(&inode, &described)?;
        }
        let (old, inode) = (described.object.clone(), self.names.tables().inode(file.ino)?);
        let had = self.current_description(&inode, &described).await?;
        let mut wanted = self.metadata.updated_description(&inode, had.clone())?;
        if wanted.attributes != had.attributes {
            wanted.attributes = headers::of_copy(wanted.attributes, &old.etag);
        }
        file.record_upload(&wanted.attributes, described.size_bytes);
        match self.redescribe(&described, &had, &wanted).await {
            Ok(object) => {
                if object.etag != old.etag {
                    self.names.relocate(&inode, &stored(&object))?;
                }
                self.content.change_etag(inode.ino, &old.etag, &object.etag)?;
                file.clear_unconfirmed();
                self.retag(&inode, &old.key, &had, &wanted).await.map(|()| true)
            }
            // Another client stored other bytes meanwhile, with their own headers.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                Ok(self.give_up(file, &old.key))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends an export that found an unknown object at the key of a file. If the file's own object is still moving, the unknown one may be
    /// its copy, and another export is scheduled. Returns whether the export is over.
    fn give_up(&self, file: &OpenFile, key: &ObjectKey) -> bool {
        file.clear_unconfirmed();
        let is_moving = self.mover.as_ref().is_some_and(|mover| mover.is_moving(key));
        if is_moving {
            self.exports.retry_later(file.ino);
        }
        !is_moving
    }

    /// Returns whether the names have the object found as the content of a file: it may have arrived at its new key during the lookup.
    fn is_current_object(&self, ino: Ino, found: &ObjectMeta) -> Result<bool> {
        let current = self.names.object(&self.names.tables().inode(ino)?)?;
        Ok(current.is_some_and(|current| current.etag == found.object.etag))
    }

    /// Exports a directory's attributes to its marker object. A marker with bytes is copied onto itself with new
    /// headers; an empty or missing marker is stored anew.
    async fn export_directory(&self, ino: Ino) -> Result<()> {
        let _path = self.locks.lock_path(ino).await?;
        // Read under the lock: the directory may have been renamed before.
        let Ok(inode) = self.names.tables().inode(ino) else { return Ok(()) };
        let marker = match self.names.object(&inode)? {
            Some(object) => self.mount.store.find(&object.key).await?,
            None => None,
        };
        let Some(marker) = marker.filter(|marker| marker.size_bytes > 0) else {
            return match self.publisher.store_new_locked(&inode, Bytes::new(), Precondition::None).await {
                // The server can store no object of this name, as for a bucket that is shown as a directory.
                Err(Error::Store(error @ StoreError::InvalidKey { .. })) => {
                    tracing::warn!(%error, "the attributes of a directory are only kept on this machine");
                    Ok(())
                }
                stored => stored,
            };
        };
        let _key_lock = self.locks.key_locks().lock(&marker.object.key).await;
        let had = self.current_description(&inode, &marker).await?;
        let wanted = self.metadata.updated_description(&inode, had.clone())?;
        let object = self.redescribe(&marker, &had, &wanted).await?;
        self.names.publish(&inode, &object, 0, None)?;
        self.retag(&inode, &object.key, &had, &wanted).await
    }

    /// Returns the current metadata of an object. Its tags are requested only if changes of tags are pending.
    async fn current_description(&self, inode: &Inode, meta: &ObjectMeta) -> Result<Described> {
        match self.metadata.has_pending_tags(inode.ino)? {
            true => Ok(self.metadata.read_description(meta).await?),
            false => Ok(meta.attributes.clone().into()),
        }
    }

    /// Replaces an object's headers by copying it onto itself, if they differ from the wanted ones.
    async fn redescribe(
        &self,
        there: &ObjectMeta,
        had: &Described,
        wanted: &Described,
    ) -> Result<ObjectRef, StoreError> {
        let old = &there.object;
        if wanted.attributes == had.attributes {
            return Ok(old.clone());
        }
        let attributes = Some(wanted.attributes.clone());
        let options = CopyOptions { attributes, ..CopyOptions::default() };
        match self.mount.store.copy(old, &old.key, options).await {
            // Perhaps only the answer was lost, or the copy was made twice. Then the object has another etag.
            Err(error) => {
                let stored =
                    self.mount.already_stored(&old.key, &wanted.attributes, there.size_bytes).await?;
                stored.ok_or(error)
            }
            copied => copied,
        }
    }

    /// Replaces the tags of an object that has the wanted headers already, if they differ, and clears the pending
    /// changes. Schedules another export if other changes are pending.
    async fn retag(&self, inode: &Inode, key: &ObjectKey, had: &Described, wanted: &Described) -> Result<()> {
        self.metadata.cache().forget(inode.ino);
        if wanted.tags != had.tags {
            self.mount.store.set_tags(key, wanted.tags.clone()).await?;
        }
        match self.metadata.clear_stored_pending(inode.ino, wanted)? {
            true => self.exports.export_later(inode.ino),
            false => {
                self.metadata.renamed().forget(inode.ino);
                Ok(())
            }
        }
    }
}

/// Starts the task that exports pending inodes.
pub(crate) fn start(me: Weak<Exporter>) {
    tokio::spawn(store::supervise("export of attributes", move || run_exporter(me.clone())));
}

/// Exports pending inodes, tick by tick, until none are left.
async fn run_exporter(me: Weak<Exporter>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(me) = me.upgrade() else { return };
        me.walk_exports();
        let Some(due) = me.exports.window().next_tick() else { return };
        let export = |ino| me.try_export(ino);
        futures_util::stream::iter(due).for_each_concurrent(EXPORTED_AT_ONCE, export).await;
    }
}
