//! Commit: the bytes are stored first, then named.
//!
//! Invariant: data is durable before the metadata that names it. A failed commit keeps the unpublished writes, so that a later
//! one may succeed; `conflict` handles commits that meet a foreign object.

use meta::{Inode, Kind};
use std::sync::Arc;
use store::{CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, PutOptions, StoreError};

use super::assemble::Assembly;
use super::conflict::Resolution;
use super::{Local, Memory, Stream, When, WriteState, precondition};
use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::content::Content;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::pin::Pin;
use crate::content::write::publisher::Publisher;
use crate::content::write::uploader::Uploader;
use crate::followers::invalidation::Invalidation;
use crate::layout::{content_keys, stored};
use crate::names::inodes::publish_outdated;
use crate::volume::{Mapping, Naming, VolumeRecord};
use crate::{Error, Result};

/// A shorter file is stored whole at `fsync` too: that takes one request, like a delta.
const DELTA_FILE_BYTES_MIN: u64 = 128 << 10;

/// The object that a file found at its path where it did not expect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathObject {
    /// The file's own: it is the file's content now.
    Ours,
    /// An earlier upload of the file, which is deleted.
    Removed,
    /// Another client's, or there is none.
    Foreign,
}

impl Publisher {
    /// Publishes a file's unpublished writes if the file has a name. Makes the names durable if the file's content was
    /// named since they last were, unless the mount uses write-back.
    pub(crate) async fn commit(&self, file: &OpenFile, when: When) -> Result<()> {
        let published = async {
            let mut state = file.write_state.lock().await;
            self.commit_locked(file, &mut state, when).await?;
            // A created file counts as published even if nothing was written to it.
            file.set_new(false);
            if file.has_unsynced_names() {
                self.names.sync_names_unless_write_back().await?;
                file.mark_names_synced();
            }
            Ok(())
        };
        file.publishing.run(Box::pin(published)).await
    }

    /// Like `commit`, for a caller that already holds the file's `write_state`. A file named by inode is assembled at its last
    /// close, a file named by path at its first.
    pub(crate) async fn commit_locked(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        when: When,
    ) -> Result<()> {
        if state.is_assembled() {
            return Ok(());
        }
        let _path = self.locks.lock_path(file.ino).await?;
        state.rebase_on_pin(file);
        let inode = file.overlay(self.names.tables().inode(file.ino)?);
        if inode.home.is_none() {
            return Ok(());
        }
        if let Some(key) = self.names.path_key(&inode)?
            && (when == When::Closed || !self.is_delta_enough(state, &inode)?)
        {
            let stored = self.commit_at_path(file, state, &inode, &key).await;
            if stored.is_err() && self.names.tables().inode(file.ino).is_ok_and(|now| now.is_ahead()) {
                // The last handle may be closed now, and the bucket would have the old object until the next mount.
                self.exports.store_later(file.ino)?;
            }
            return stored;
        }
        match state.is_published() {
            true => Ok(()),
            false => self.uploader.commit_by_inode(file, state, &inode, When::Open).await,
        }
    }

    /// Returns whether a delta is enough for a file that stays open and whose object is at its path: the file must keep a part
    /// of that object. An object waiting in the write-back log does not count, because its tag changes when it is uploaded and
    /// would no longer identify the file.
    fn is_delta_enough(&self, state: &WriteState, inode: &Inode) -> Result<bool> {
        let (WriteState::Local(local), Some(object)) = (state, self.names.object(inode)?) else {
            return Ok(false);
        };
        Ok(local.size_bytes() >= DELTA_FILE_BYTES_MIN
            && !object.etag.is_provisional()
            && (local.is_published() || self.uploader.leaves_part_in(local, &object.key)?))
    }

    /// Stores a file at its path whose bytes are elsewhere: under a key of its own because its path could not be a key before,
    /// or partly in deltas because its mount died while it was open. On failure the file stays where it is, nothing is lost,
    /// and the background exporter retries.
    pub(crate) async fn show_at_path(&self, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        if let Err(error) = self.try_show_at_path(file, state).await {
            tracing::warn!(ino = %file.ino, %error, "a file could not be stored at its path in the bucket yet; its bytes stay safe under other keys; retrying");
            self.exports.export_later(file.ino)?;
        }
        Ok(())
    }

    /// Like `show_at_path`, but returns the error and schedules no retry.
    pub(crate) async fn try_show_at_path(&self, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        let inode = self.names.tables().inode(file.ino)?;
        let is_shown = match inode.object() {
            Some(_) => !inode.is_ahead() && self.names.lies_at_path(&inode)?,
            // A file that was never stored is shown by its commit.
            None => !state.is_clean(),
        };
        if is_shown || inode.home.is_none() {
            return Ok(());
        }
        match self.names.path_key(&inode)? {
            Some(key) => self.store_at_path(file, state, &inode, &key).await,
            None => Ok(()),
        }
    }

    /// Stores an inode under the key of its path, whatever its kind.
    async fn store_at_path(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        key: &ObjectKey,
    ) -> Result<()> {
        if inode.kind == Kind::File {
            if state.is_clean() {
                *state = WriteState::Local(Local::begin(&self.mount.config.cache_dir, file.pin().0)?);
            }
            let _path = self.locks.lock_path(file.ino).await?;
            return self.commit_at_path(file, state, inode, key).await;
        }
        let body = inode.target.clone().unwrap_or_default();
        match self.store_new(inode, body, Precondition::Absent).await {
            Err(Error::Store(StoreError::PreconditionFailed(_))) => {
                match self.adopt_unconfirmed_upload(file, state, inode, key).await? {
                    // The object may have older attributes.
                    PathObject::Ours => self.exports.export_later(inode.ino),
                    PathObject::Foreign | PathObject::Removed => self.known.detach_name(inode),
                }
            }
            stored => {
                stored?;
                let released = content_keys(&self.names.tables().content_of(inode)?).into_iter().collect();
                self.discard_detached(inode, released).await
            }
        }
    }

    /// Stores a file's content under the key of its path and names it. Resolves a conflict with a foreign object there.
    async fn commit_at_path(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        key: &ObjectKey,
    ) -> Result<()> {
        let _key_lock = self.locks.key_locks().lock(key).await;
        let mut described = self.description_to_store(file, inode, state.base()).await?;
        self.ensure_volume_record().await?;
        file.record_upload(&described.attributes, state.size_bytes().unwrap_or_default());
        loop {
            let base = precondition(state.base(), key);
            if self.interrupted_yield(state).is_some() {
                // The outcome is never `Ours`, because the file has lost.
                self.resolve_path_conflict(file, state, inode, (key, false), &described).await?;
                return Ok(());
            }
            match self.uploader.upload(state, key, &described, base.clone()).await {
                Ok(object) => {
                    let published = self.finish_publish(file, state, inode, &object, described).await;
                    return self.content.restore_on_failure(published, state);
                }
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    let is_ours = match self.adopt_unconfirmed_upload(file, state, inode, key).await? {
                        PathObject::Removed => continue,
                        PathObject::Ours => true,
                        PathObject::Foreign => false,
                    };
                    if is_ours && state.is_published() {
                        // The file is stored at its path. A second upload with a lost answer would not be recognized once the file is closed.
                        *state = WriteState::Clean;
                        file.clear_unconfirmed();
                        return self.exports.export_later(inode.ino);
                    }
                    if !is_ours || precondition(state.base(), key) == base {
                        match self
                            .resolve_path_conflict(file, state, inode, (key, is_ours), &described)
                            .await?
                        {
                            Resolution::Done => return Ok(()),
                            Resolution::Ours => {}
                        }
                    }
                }
                Err(StoreError::Invalid(why)) if self.metadata.drop_refused_pending(inode.ino, &why)? => {
                    described = self.description_to_store(file, inode, state.base()).await?;
                    file.record_upload(&described.attributes, state.size_bytes().unwrap_or_default());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Adopts the object at the path as the base of the unpublished writes, if the object is an earlier upload of this file whose
    /// answer was lost, an upload of a mount that died, the file's object, or a copy of it with other headers. The headers distinguish it from
    /// foreign objects: the write time in nanoseconds, or the etag before the copy. An earlier upload is deleted instead if the file has
    /// newer content under keys of its own.
    pub(crate) async fn adopt_unconfirmed_upload(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        key: &ObjectKey,
    ) -> Result<PathObject> {
        let Some(found) = self.mount.store.find(key).await? else {
            let is_ours = are_new_after_removal(file, state);
            return Ok(if is_ours { PathObject::Ours } else { PathObject::Foreign });
        };
        let known = self.names.tables().inode(inode.ino)?;
        let is_upload = file.is_unconfirmed_upload(&found.attributes, found.size_bytes);
        if is_upload && known.is_beside() && !headers::matches_inode(&known, &found) {
            return self.remove_outdated_upload(&found.object).await;
        }
        // A removal that failed leaves an open file without its object, which may still be there.
        let is_unchanged = !known.is_ahead()
            && !known.is_beside()
            && known.object().is_some_and(|object| object.etag == found.object.etag);
        if !is_upload
            && !is_unchanged
            && !headers::has_bytes_of(&known, &found)
            && !self.is_original_of_own_object(&known, &found).await?
        {
            return Ok(PathObject::Foreign);
        }
        let newer_mtime =
            headers::mtime(&found.attributes).filter(|mtime| is_upload && *mtime != known.mtime);
        let is_newer = newer_mtime.is_some() || is_upload && found.size_bytes != known.size_bytes;
        let mut released = Vec::new();
        match known.is_ahead() && !is_newer {
            // The object contains the file as of its deltas, so the whole file is now that object.
            true => self.names.relocate(&known, &stored(&found.object))?,
            false => released = self.names.publish(inode, &found.object, found.size_bytes, newer_mtime)?,
        }
        if found.tag_count.is_none_or(|count| count == 0) {
            file.set_stored_description(&found.object.etag, found.attributes.into(), self.mount.moment());
        }
        file.repin(|| self.names.pin_of(inode.ino))?;
        state.rebase(file.pin().0);
        // Front ends do not know that the store succeeded.
        self.names.tell(Invalidation::Inode(inode.ino));
        self.discard_detached(inode, released).await?;
        Ok(PathObject::Ours)
    }

    /// Deletes an earlier upload of a file at its path, unless another client has replaced it.
    async fn remove_outdated_upload(&self, upload: &ObjectRef) -> Result<PathObject> {
        let unchanged = Precondition::Matches(upload.etag.clone());
        match self.mount.store.delete(&upload.key, unchanged).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(PathObject::Removed),
            // Another client has replaced the upload, or the request was carried out twice.
            Err(StoreError::PreconditionFailed(_)) => Ok(match self.mount.store.find(&upload.key).await? {
                Some(_) => PathObject::Foreign,
                None => PathObject::Removed,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an object at the path of an inode is the one from which the inode's object was copied: the mount died before it
    /// deleted the object at the path. The headers are older than the inode's attributes if an export was pending.
    async fn is_original_of_own_object(&self, inode: &Inode, found: &ObjectMeta) -> Result<bool> {
        let Some(own) = inode.content.only_extent().and_then(|all| all.object.key.as_ref()) else {
            return Ok(false);
        };
        let own = self.mount.store.find(own).await?;
        let is_same =
            |own: &ObjectMeta| own.size_bytes == found.size_bytes && own.attributes == found.attributes;
        Ok(headers::has_mtime(&found.attributes) && own.as_ref().is_some_and(is_same))
    }

    /// Discards a file's objects under keys of their own, once the file is at its path.
    async fn discard_detached(&self, inode: &Inode, released: Vec<ObjectKey>) -> Result<()> {
        if inode.is_beside() {
            // Otherwise a loss of power would restore the old extents, although the object at the path may have changed since.
            self.names.sync_names_unless_write_back().await?;
        }
        for key in released {
            self.content.discard(key).await;
        }
        Ok(())
    }

    /// Like `adopt_unconfirmed_upload`, for a caller that is about to move or remove the stored object. An unconfirmed attempt
    /// to store a detached file at its path counts too.
    pub(crate) async fn resolve_unconfirmed_upload(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
    ) -> Result<()> {
        let inode = self.names.tables().inode(file.ino)?;
        let may_be_shown = || Ok::<_, Error>(inode.is_beside() && self.names.has_path_key(&inode)?);
        if file.has_unconfirmed_upload() || may_be_shown()? {
            self.adopt_object_at_path(file, state).await?;
        }
        Ok(())
    }

    /// Like `adopt_unconfirmed_upload`, for a caller that found an unexpected object at the path of a file. Returns whether it is adopted.
    pub(crate) async fn adopt_object_at_path(&self, file: &OpenFile, state: &mut WriteState) -> Result<bool> {
        let _path = self.locks.lock_path(file.ino).await?;
        let inode = self.names.tables().inode(file.ino)?;
        if inode.home.is_none() {
            return Ok(false);
        }
        let Some(key) = self.names.path_key(&inode)? else { return Ok(false) };
        Ok(self.adopt_unconfirmed_upload(file, state, &inode, &key).await? == PathObject::Ours)
    }

    /// Refreshes the content below a file's unpublished writes, for a reader that failed to read `base`. Returns whether it
    /// changed.
    pub(crate) async fn refresh_base(&self, file: &OpenFile, base: Option<&Arc<Pin>>) -> Result<bool> {
        // A commit in progress holds `write_state` until the file is pinned to the result.
        let mut state = file.write_state.lock().await;
        if file.pin().0.as_ref() != base {
            return Ok(true);
        }
        match state.is_clean() {
            true => Ok(false),
            false => self.adopt_object_at_path(file, &mut state).await,
        }
    }

    /// Makes a stored object the file's content, and the file clean. Discards the objects that it used before, and
    /// schedules an export of attributes that changed since the upload began.
    pub(crate) async fn finish_publish(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        object: &ObjectRef,
        described: Described,
    ) -> Result<()> {
        let size_bytes = state.size_bytes().unwrap_or(inode.size_bytes);
        let waiting = self.names.tables().waiting_export(inode.ino)?;
        let (described, stream_is_old) = match state {
            WriteState::Stream(stream) => {
                let is_current =
                    stream.matches_inode(&self.names.tables().inode(inode.ino)?, file.pending().touched);
                (stream.described().clone(), Some(!is_current))
            }
            _ => (described, None),
        };
        let touched = file.pending().touched;
        let is_outdated = || -> Result<bool> {
            let now = self.names.tables().inode(inode.ino)?;
            let now = Inode { mtime: touched.unwrap_or(now.mtime), ..now };
            Ok(match stream_is_old {
                Some(is_old) => is_old,
                None => self.metadata.updated_description(&now, described.clone())? != described,
            })
        };
        let released = match self.mount.rules.exports_attributes && is_outdated()? {
            true => publish_outdated(&self.names, inode.ino, object, size_bytes, touched)?,
            false => self.names.publish(inode, object, size_bytes, touched)?,
        };
        self.names.references().set_cached(inode.ino, Some(&object.etag));
        file.set_stored_description(&object.etag, described.clone(), self.mount.moment());
        self.metadata.cache().insert_stored(inode.ino, &object.etag, described.clone(), self.mount.moment());
        file.repin(|| self.names.pin_of(inode.ino))?;
        file.clear_unconfirmed();
        *state = WriteState::Clean;
        file.set_pending(Pending::default());
        self.discard_detached(inode, released).await?;
        let has_pending = self.metadata.clear_stored_pending(inode.ino, &described)?;
        // From here on each change of attributes schedules its own export; earlier ones may have missed the headers
        // just stored.
        if has_pending || is_outdated()? {
            return self.exports.export_later(inode.ino);
        }
        self.metadata.renamed().forget(inode.ino);
        self.exports.note_exported(inode.ino, waiting)
    }

    /// Returns the headers and tags to store with a file's bytes: those of its previous object, the inode's attributes, and
    /// pending changes.
    pub(crate) async fn description_to_store(
        &self,
        file: &OpenFile,
        inode: &Inode,
        base: Option<&Arc<Pin>>,
    ) -> Result<Described> {
        let replaced = match base.filter(|_| inode.kind == Kind::File) {
            // A file in deltas keeps the headers of the object that the deltas began from.
            Some(pin) => {
                self.names.path_key(inode)?.and_then(|key| pin.object_at(&key).or_else(|| pin.first_object()))
            }
            None => None,
        };
        let Some(object) = replaced else {
            let is_shown = self.names.path_key(inode)?.is_some();
            let fresh = if is_shown { headers::new(inode) } else { headers::for_kind(inode.kind) };
            return self.metadata.updated_description(inode, fresh.into());
        };
        let carried = match file
            .stored_description(&object.etag)
            .filter(|(_, stored_at)| self.mount.is_fresh(*stored_at))
        {
            Some((carried, _)) => carried,
            None => match self.mount.store.find(&object.key).await? {
                Some(meta) => self.metadata.read_description(&meta).await?,
                None => Described::default(),
            },
        };
        let attributes = headers::without_content_metadata(carried.attributes);
        let attributes = headers::in_place_of(attributes, &object.etag);
        self.metadata.updated_description(inode, Described { attributes, ..carried })
    }

    /// Writes the volume record if there is none: it says that headers in this bucket carry attributes.
    pub(crate) async fn ensure_volume_record(&self) -> Result<()> {
        let put = async {
            let id =
                u128::from(self.mount.entropy.next_u64()) << 64 | u128::from(self.mount.entropy.next_u64());
            let record = VolumeRecord::new(Mapping::Whole, Naming::FilePath, id, self.mount.now())?
                .with_conflicts(self.mount.config.conflicts)?;
            match record.write(self.mount.store.as_ref(), &self.mount.config.prefix).await {
                // Another mount wrote the record first.
                Ok(()) | Err(Error::Store(StoreError::PreconditionFailed(_))) => Ok(record),
                Err(error) => Err(error),
            }
        };
        self.record.ensure(put).await
    }

    /// Moves writes in memory to a local file, or commits those of a stream, so that they can be read and changed
    /// anywhere.
    ///
    /// The parts of a stream are already in the bucket, so the stream is completed and the file is clean afterwards:
    /// other clients see what was written so far.
    pub(crate) async fn spill_to_disk(&self, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        match state {
            WriteState::Clean | WriteState::Local(_) => Ok(()),
            WriteState::Stream(stream)
                if stream.key().is_none_or(|key| self.mount.layout.content_owner(key).is_some()) =>
            {
                // Also for a file without a name, which reads the parts from the completed object.
                let inode = file.overlay(self.names.tables().inode(file.ino)?);
                self.uploader.commit_by_inode(file, state, &inode, When::Open).await
            }
            WriteState::Stream(_) => self.commit_locked(file, state, When::Open).await,
            WriteState::Memory(memory) => {
                let mut local = Local::begin_empty(&self.mount.config.cache_dir, memory.base.clone())?;
                let mut at = 0;
                for piece in memory.pieces() {
                    local.write(at, piece)?;
                    at += piece.len() as u64;
                }
                *state = WriteState::Local(local);
                Ok(())
            }
        }
    }
}

impl Content {
    /// Restores writes whose object was stored but could not be named, so that a later commit may succeed.
    pub(crate) fn restore_on_failure(&self, named: Result<()>, state: &mut WriteState) -> Result<()> {
        if let (Err(_), WriteState::Memory(memory)) = (&named, state) {
            memory.thaw(&self.slabs);
        }
        named
    }
}

impl Uploader {
    /// Stores a file's content as one object under `key`. The write state keeps the content, so that an upload that
    /// failed, or whose object could not be named, can be repeated.
    pub(crate) async fn upload(
        &self,
        state: &mut WriteState,
        key: &ObjectKey,
        described: &Described,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        // The content stays in place while it is stored: the caller may be dropped, as when an S3 client disconnects.
        match state {
            WriteState::Clean => Err(StoreError::Invalid("there is nothing to upload".into())),
            WriteState::Memory(memory) => self.upload_memory(memory, key, described, precondition).await,
            WriteState::Stream(stream) => self.finish_stream(stream, key, precondition).await,
            WriteState::Local(local) => {
                let whole = 0..local.size_bytes();
                let assembly =
                    Assembly { local, runs: std::slice::from_ref(&whole), share: &self.file_share() };
                self.assemble(assembly, key, described, precondition).await
            }
        }
    }

    async fn upload_memory(
        &self,
        memory: &mut Memory,
        key: &ObjectKey,
        described: &Described,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        let Described { attributes, tags } = described.clone();
        let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
        let outcome = self.mount.store.put(key, memory.freeze(), options).await;
        if outcome.is_err() {
            memory.thaw(self.content.slabs());
        }
        outcome
    }

    /// Completes a stream under the key it began with. If a rename gave the file another key since, the object is copied there.
    async fn finish_stream(
        &self,
        stream: &mut Stream,
        key: &ObjectKey,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        if stream.key() == Some(key) {
            return stream.finish(precondition).await;
        }
        let object = stream.finish(Precondition::Absent).await?;
        let moved = self
            .mount
            .store
            .copy(&object, key, CopyOptions { precondition, ..CopyOptions::default() })
            .await?;
        self.mount.store.delete(&object.key, Precondition::Matches(object.etag)).await?;
        Ok(moved)
    }
}

/// Returns whether an unconfirmed removal deleted the object that writes in memory replace; the writes then become a
/// new object.
fn are_new_after_removal(file: &OpenFile, state: &mut WriteState) -> bool {
    let (true, WriteState::Memory(memory)) = (file.may_be_removed(), state) else { return false };
    memory.base = None;
    true
}
