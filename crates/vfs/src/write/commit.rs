//! Commit: the bytes are stored, then named.
//!
//! Invariant: data is durable before the metadata that names it. A commit that fails keeps the unpublished writes,
//! so that another may succeed; one that meets somebody else's object loses to it and keeps ours beside.

use meta::{Ino, Inode, Kind, Name, Op};
use std::sync::Arc;
use store::{Attributes, CopyOptions, ObjectKey, ObjectRef, Precondition, PutOptions, StoreError, Tags};

use super::assemble::Assembly;
use super::{Dirty, Local, Memory, Stream, When, precondition};
use crate::headers;
use crate::layout::{LOST_AND_FOUND, stored, whole};
use crate::open_file::{OpenFile, Pending};
use crate::pin::Pin;
use crate::volume::{Mapping, Naming, VolumeRecord};
use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Publishes a file's writes, if it has any and still has a name.
    pub(crate) async fn commit(&self, file: &OpenFile) -> Result<()> {
        let published = async {
            let mut work = file.work.lock().await;
            if work.is_published() {
                return Ok(());
            }
            self.commit_locked(file, &mut work).await?;
            if self.config.write_back { Ok(()) } else { self.sync_names().await }
        };
        file.publishing.take(Box::pin(published)).await
    }

    /// The same for who holds the file's work already.
    pub(crate) async fn commit_locked(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        if work.is_published() {
            return Ok(());
        }
        let _moves = self.moves.read().await;
        work.follow(file);
        let inode = file.overlay(self.names.inode(file.ino)?);
        if inode.home.is_none() {
            return Ok(());
        }
        if self.layout.follows_paths() {
            self.commit_at_path(file, work, &inode).await
        } else {
            self.commit_by_inode(file, work, &inode, When::Open).await
        }
    }

    async fn commit_at_path(&self, file: &OpenFile, work: &mut Dirty, inode: &Inode) -> Result<()> {
        let key = self.layout.key(&self.names, inode)?;
        let _claim = self.claims.claim(&key).await;
        let attributes = self.attributes_to_store(file, inode, work.base()).await?;
        self.ensure_volume_record().await?;
        match self.upload(work, &key, attributes.clone(), precondition(work.base())).await {
            Ok(object) => self.published(file, work, inode, &object, attributes),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                let size_bytes = work.size_bytes().unwrap_or_default();
                match self.already_stored(&key, &attributes, size_bytes).await? {
                    Some(object) => self.published(file, work, inode, &object, attributes),
                    None => self.yield_to_bucket(file, work, inode, &key, attributes).await,
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The object under the key, if it is these writes: an earlier attempt stored them and its answer was lost. The
    /// time of the last write in nanoseconds tells them from anybody else's.
    pub(super) async fn already_stored(
        &self,
        key: &ObjectKey,
        attributes: &Attributes,
        size_bytes: u64,
    ) -> Result<Option<ObjectRef>, StoreError> {
        let found = match self.store.head(key).await {
            Ok(found) => found,
            Err(StoreError::NotFound(_)) => return Ok(None),
            // Whose it is cannot be told: the writes stay.
            Err(error) => return Err(error),
        };
        let is_ours = found.attributes.user == attributes.user && found.size_bytes == size_bytes;
        Ok(is_ours.then_some(found.object))
    }

    /// Names the stored object.
    fn published(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        object: &ObjectRef,
        attributes: Attributes,
    ) -> Result<()> {
        let size_bytes = work.size_bytes().unwrap_or(inode.size_bytes);
        let headers_are_old =
            matches!(work, Dirty::Stream(stream) if !stream.carries(inode, file.pending().touched));
        self.publish(inode, object, size_bytes, file.pending().touched)?;
        self.references.caches(inode.ino, Some(&object.etag));
        file.carries(&object.etag, attributes);
        file.repin(|| self.pin_of(inode.ino))?;
        *work = Dirty::Clean;
        file.set_pending(Pending::default());
        if headers_are_old { self.export_later(inode.ino) } else { Ok(()) }
    }

    /// One op: this object is the inode's content now, whatever the namespace thought it was.
    pub(crate) fn publish(
        &self,
        inode: &Inode,
        object: &ObjectRef,
        size_bytes: u64,
        mtime: Option<store::Timestamp>,
    ) -> Result<()> {
        let ino = inode.ino;
        let base = self.names.inode(ino)?.object().map(|object| object.etag.clone());
        let content = whole(stored(object), size_bytes);
        self.names.commit(&self.ctx(), &Op::Publish { ino, base, content, size_bytes, mtime })?;
        Ok(())
    }

    async fn upload(
        &self,
        work: &mut Dirty,
        key: &ObjectKey,
        attributes: Attributes,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        match std::mem::replace(work, Dirty::Clean) {
            Dirty::Clean => Err(StoreError::Invalid("there is nothing to upload".into())),
            Dirty::Memory(memory) => {
                let (outcome, memory) = self.upload_memory(memory, key, attributes, precondition).await;
                *work = Dirty::Memory(memory);
                outcome
            }
            Dirty::Stream(mut stream) => {
                let outcome = self.finish_stream(&mut stream, key, precondition).await;
                *work = Dirty::Stream(stream);
                outcome
            }
            Dirty::Local(local) => {
                let whole = 0..local.size_bytes();
                let assembly = Assembly { local: &local, runs: std::slice::from_ref(&whole) };
                let outcome = self.assemble(assembly, key, attributes, precondition).await;
                *work = Dirty::Local(local);
                outcome
            }
        }
    }

    async fn upload_memory(
        &self,
        memory: Memory,
        key: &ObjectKey,
        attributes: Attributes,
        precondition: Precondition,
    ) -> (Result<ObjectRef, StoreError>, Memory) {
        let frozen = memory.freeze();
        let options = PutOptions { precondition, attributes, tags: Tags::new() };
        let outcome = self.store.put(key, frozen.payload.clone(), options).await;
        let kept = if outcome.is_ok() { frozen.emptied() } else { frozen.thaw(&self.slabs) };
        (outcome, kept)
    }

    /// Completes a stream under the key it began with; a rename meanwhile gave the file another one.
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
        let moved = self.store.copy(&object, key, CopyOptions { attributes: None, precondition }).await?;
        self.store.delete(&object.key, Precondition::Matches(object.etag)).await?;
        Ok(moved)
    }

    /// Somebody else changed the object meanwhile: the bucket wins, and our bytes go to `lost+found`.
    async fn yield_to_bucket(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<()> {
        let path = self.names.path(inode.ino)?;
        let path: Vec<&[u8]> = path.iter().map(Name::as_bytes).collect();
        let lost = self.layout.lost(&path, self.entropy.next_u64())?;
        self.keep_aside(work, &lost, attributes).await?;
        tracing::warn!(%key, kept = %lost, "the object was changed in the bucket while its file was written: the bucket's stays");
        *work = Dirty::Clean;
        file.set_pending(Pending::default());
        self.directories.get(Ino::ROOT).forget();
        if let Some(dir) = self.names.entry(Ino::ROOT, &Name::new(LOST_AND_FOUND.as_bytes())?)? {
            self.directories.get(dir.ino).forget();
        }
        self.look_again(inode).await.ok();
        if file.replace(|| self.pin_of(inode.ino)).is_err() {
            file.replace(|| Ok::<_, Error>(None))?;
        }
        Err(Error::Stale(format!(
            "'{key}' was changed in the bucket; this file's bytes are kept as '{lost}'"
        )))
    }

    /// What a file edited in place did not change may have gone with the object below: it is kept as zeros.
    async fn keep_written(&self, work: &mut Dirty, lost: &ObjectKey, attributes: Attributes) -> Result<()> {
        let kept = self.upload(work, lost, attributes.clone(), Precondition::Absent).await;
        match (kept, &mut *work) {
            (Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)), Dirty::Local(local)) => {
                local.lose_base();
                self.upload(work, lost, attributes, Precondition::Absent).await?;
            }
            (kept, _) => drop(kept?),
        }
        Ok(())
    }

    async fn keep_aside(&self, work: &mut Dirty, lost: &ObjectKey, attributes: Attributes) -> Result<()> {
        let Dirty::Stream(stream) = work else { return self.keep_written(work, lost, attributes).await };
        if let Some(ours) = stream.completed() {
            self.store.copy(&ours, lost, CopyOptions::default()).await?;
            self.store.delete(&ours.key, Precondition::Matches(ours.etag)).await?;
            return Ok(());
        }
        // The parts belong to the key: the bucket's object steps aside while ours is completed and copied.
        let key = &stream.key().cloned().ok_or(Error::NOT_FOUND)?;
        let aside = self.layout.orphan(Ino::ROOT, self.entropy.next_u64())?;
        let theirs = match self.store.head(key).await {
            Ok(meta) => Some(self.store.copy(&meta.object, &aside, CopyOptions::default()).await?),
            Err(StoreError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let ours = stream.finish(Precondition::None).await?;
        self.store.copy(&ours, lost, CopyOptions::default()).await?;
        let unless_changed = Precondition::Matches(ours.etag.clone());
        match theirs {
            None => self.store.delete(key, unless_changed).await?,
            Some(theirs) => {
                let options = CopyOptions { attributes: None, precondition: unless_changed };
                self.store.copy(&theirs, key, options).await?;
                self.store.delete(&theirs.key, Precondition::None).await?;
            }
        }
        Ok(())
    }

    /// The headers to store with a file: what its object carried, and the inode's attributes.
    pub(crate) async fn attributes_to_store(
        &self,
        file: &OpenFile,
        inode: &Inode,
        base: Option<&Arc<Pin>>,
    ) -> Result<Attributes> {
        let replaced = base.filter(|_| inode.kind == Kind::File && self.layout.follows_paths());
        let Some(object) = replaced.and_then(|pin| pin.object()) else {
            return Ok(headers::with_posix(Attributes::default(), inode));
        };
        let carried = match file.carried(&object.etag) {
            Some(carried) => carried,
            None => match self.store.head(&object.key).await {
                Ok(meta) => meta.attributes,
                Err(StoreError::NotFound(_)) => Attributes::default(),
                Err(error) => return Err(error.into()),
            },
        };
        Ok(headers::with_posix(carried, inode))
    }

    /// Says once, in the bucket, that attributes are in headers here.
    pub(crate) async fn ensure_volume_record(&self) -> Result<()> {
        let put = async {
            let id = u128::from(self.entropy.next_u64()) << 64 | u128::from(self.entropy.next_u64());
            let record = VolumeRecord::new(Mapping::Whole, Naming::FilePath, id, self.now())?;
            match record.write(self.store.as_ref(), &self.config.prefix).await {
                // Another mount was first.
                Ok(()) | Err(Error::Store(StoreError::PreconditionFailed(_))) => Ok(record),
                Err(error) => Err(error),
            }
        };
        if self.volume_record.initialized() {
            return Ok(());
        }
        let recorded = async { self.volume_record.get_or_try_init(|| put).await.map(drop) };
        self.recording.take(Box::pin(recorded)).await
    }

    /// Puts a stream or memory on disk, so that it can be read and written anywhere.
    ///
    /// A stream has sent its beginning under the file's key, so it is completed: the object shows what was written
    /// so far.
    pub(crate) async fn settle(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        match work {
            Dirty::Clean | Dirty::Local(_) => Ok(()),
            Dirty::Stream(_) => self.commit_locked(file, work).await,
            Dirty::Memory(memory) => {
                let mut local = Local::begin_empty(&self.config.cache_dir, memory.base.clone())?;
                let mut at = 0;
                for piece in memory.pieces() {
                    local.write(at, piece)?;
                    at += piece.len() as u64;
                }
                *work = Dirty::Local(local);
                Ok(())
            }
        }
    }
}
