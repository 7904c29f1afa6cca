//! Commit: the bytes are stored, then named.
//!
//! Invariant: data is durable before the metadata that names it. A commit that fails keeps the unpublished writes,
//! so that another may succeed; one that meets somebody else's object loses to it and keeps ours beside.

use meta::{Ino, Inode, Kind, Name, Op, Stored};
use std::sync::Arc;
use store::{
    Attributes, CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, PutOptions, StoreError, Tags,
};

use super::assemble::Assembly;
use super::{Dirty, Local, Memory, Stream, When, precondition};
use crate::headers;
use crate::layout::{LOST_AND_FOUND, content_keys, relocated, stored, whole};
use crate::open_file::{OpenFile, Pending};
use crate::pin::Pin;
use crate::volume::{Mapping, Naming, VolumeRecord};
use crate::{Error, Filesystem, Result};

/// A shorter file is stored whole at an `fsync` too: that is one request, as a delta is.
const DELTA_FILE_BYTES_MIN: u64 = 128 << 10;

impl Filesystem {
    /// Publishes a file's writes, if it has any and still has a name.
    pub(crate) async fn commit(&self, file: &OpenFile, when: When) -> Result<()> {
        let published = async {
            let mut work = file.work.lock().await;
            self.commit_locked(file, &mut work, when).await?;
            // Also one that nothing was written to.
            file.set_new(false);
            if file.names_wait() {
                self.names_first().await?;
                file.names_are_synced();
            }
            Ok(())
        };
        file.publishing.take(Box::pin(published)).await
    }

    /// The same for who holds the file's work already. By inode, files are assembled when nobody has them open any
    /// more; by path, when the first does not.
    pub(crate) async fn commit_locked(&self, file: &OpenFile, work: &mut Dirty, when: When) -> Result<()> {
        if work.is_assembled() {
            return Ok(());
        }
        let _moves = self.moves.read().await;
        work.follow(file);
        let inode = file.overlay(self.names.inode(file.ino)?);
        if inode.home.is_none() {
            return Ok(());
        }
        if let Some(key) = self.path_key(&inode)?
            && (when == When::Closed || !self.goes_beside(work, &inode)?)
        {
            return self.commit_at_path(file, work, &inode, &key).await;
        }
        match work.is_published() {
            true => Ok(()),
            false => self.commit_by_inode(file, work, &inode, When::Open).await,
        }
    }

    /// Whether a delta does for a file that stays open and whose object is at its path: which still has a part of it. An
    /// object that waits in the write-back log has another tag once it is up, by which nobody would know it again.
    fn goes_beside(&self, work: &Dirty, inode: &Inode) -> Result<bool> {
        let (Dirty::Local(local), Some(object)) = (work, self.object(inode)?) else { return Ok(false) };
        Ok(local.size_bytes() >= DELTA_FILE_BYTES_MIN
            && !object.etag.is_provisional()
            && (local.is_published() || self.plan(local, When::Open).leaves(local, &object.key)))
    }

    /// Stores a file at its path that lies elsewhere: under a key of its own, as its path could not be a key before,
    /// or partly beside, as its mount died while it was open. Where that fails it stays there: nothing is lost, and it
    /// is tried again.
    pub(crate) async fn show(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        if let Err(error) = self.try_to_show(file, work).await {
            tracing::warn!(ino = %file.ino, %error, "a file is not shown in the bucket yet; it is tried again");
            self.export_later(file.ino)?;
        }
        Ok(())
    }

    pub(crate) async fn try_to_show(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        let inode = self.names.inode(file.ino)?;
        let is_shown = match inode.object() {
            Some(_) => !inode.is_ahead() && self.lies_at_path(&inode)?,
            // What was not stored yet its commit shows.
            None => !work.is_clean(),
        };
        if is_shown || inode.home.is_none() {
            return Ok(());
        }
        match self.path_key(&inode)? {
            Some(key) => self.store_at_path(file, work, &inode, &key).await,
            None => Ok(()),
        }
    }

    async fn store_at_path(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        key: &ObjectKey,
    ) -> Result<()> {
        if inode.kind == Kind::File {
            if work.is_clean() {
                *work = Dirty::Local(Local::begin(&self.config.cache_dir, file.pin().0)?);
            }
            let _moves = self.moves.read().await;
            return self.commit_at_path(file, work, inode, key).await;
        }
        let body = inode.target.clone().unwrap_or_default();
        match self.store_new(inode, body, Precondition::Absent).await {
            Err(Error::Store(StoreError::PreconditionFailed(_))) => {
                match self.adopt_tried(file, work, inode, key).await? {
                    true => Ok(()),
                    false => self.give_name_away(inode),
                }
            }
            stored => {
                stored?;
                self.discard_beside(inode).await
            }
        }
    }

    async fn commit_at_path(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        key: &ObjectKey,
    ) -> Result<()> {
        let _claim = self.claims.claim(key).await;
        let attributes = self.attributes_to_store(file, inode, work.base()).await?;
        self.ensure_volume_record().await?;
        file.tries(&attributes, work.size_bytes().unwrap_or_default());
        loop {
            let base = precondition(work.base(), key);
            match self.upload(work, key, attributes.clone(), base.clone()).await {
                Ok(object) => {
                    let published = self.published(file, work, inode, &object, attributes).await;
                    return self.or_keep(published, work);
                }
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    let is_ours = self.adopt_tried(file, work, inode, key).await?;
                    if !is_ours || precondition(work.base(), key) == base {
                        return self.yield_to_bucket(file, work, inode, key, attributes).await;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// An earlier upload of this file got there, and nobody heard of it, or only a mount that died: it is what lies below
    /// the writes, all of which are here still. The time of the last write in nanoseconds tells it from anybody else's.
    async fn adopt_tried(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        key: &ObjectKey,
    ) -> Result<bool> {
        let Some(found) = self.store.find(key).await? else { return Ok(false) };
        let known = self.names.inode(inode.ino)?;
        if !file.has_tried(&found.attributes, found.size_bytes) && !headers::are_of(&known, &found) {
            return Ok(false);
        }
        match known.is_ahead() {
            // What lies beside is as good over all of the file as over what it was made for.
            true => self.relocate(&known, &stored(&found.object))?,
            false => self.publish(inode, &found.object, found.size_bytes, None)?,
        }
        file.carries(&found.object.etag, found.attributes);
        file.repin(|| self.pin_of(inode.ino))?;
        work.rebase(file.pin().0);
        if !known.is_ahead() {
            self.discard_beside(inode).await?;
        }
        Ok(true)
    }

    /// What lay beside its path does no more: the file is at its path.
    async fn discard_beside(&self, inode: &Inode) -> Result<()> {
        if inode.is_beside() {
            // Else the loss of power would bring back what lay beside, whatever became of the path since.
            self.names_first().await?;
        }
        for key in content_keys(inode) {
            self.discard(key).await;
        }
        Ok(())
    }

    /// The same for who is about to move or remove what was stored; an attempt to show what lies beside its path may
    /// have got there too.
    pub(crate) async fn adopt_if_tried(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        let inode = self.names.inode(file.ino)?;
        let may_be_shown = || Ok::<_, Error>(inode.is_beside() && self.has_path_key(&inode)?);
        if file.has_tried_any() || may_be_shown()? {
            self.adopt_unheard(file, work).await?;
        }
        Ok(())
    }

    /// The same for who has found something else at the path of a file. Whether it is the file.
    pub(crate) async fn adopt_unheard(&self, file: &OpenFile, work: &mut Dirty) -> Result<bool> {
        let _moves = self.moves.read().await;
        let inode = self.names.inode(file.ino)?;
        if inode.home.is_none() {
            return Ok(false);
        }
        let key = self.layout.path_key(&self.names, &inode)?;
        self.adopt_tried(file, work, &inode, &key).await
    }

    /// The same for a reader who finds another object below the writes than `base`. Whether there is another now.
    pub(crate) async fn look_below(&self, file: &OpenFile, base: Option<&Arc<Pin>>) -> Result<bool> {
        // Who is just publishing holds the work.
        let mut work = file.work.lock().await;
        if file.pin().0.as_ref() != base {
            return Ok(true);
        }
        match self.layout.follows_paths() && !work.is_clean() {
            true => self.adopt_unheard(file, &mut work).await,
            false => Ok(false),
        }
    }

    /// What is stored but could not be named is kept: a later commit may succeed.
    pub(super) fn or_keep(&self, named: Result<()>, work: &mut Dirty) -> Result<()> {
        if named.is_err()
            && let Dirty::Memory(_) = work
            && let Dirty::Memory(memory) = std::mem::replace(work, Dirty::Clean)
        {
            *work = Dirty::Memory(memory.take_back(&self.slabs));
        }
        named
    }

    /// The object under the key, if it is what was to be stored: an earlier attempt did, and its answer was lost. Times
    /// in nanoseconds tell it from anybody else's.
    pub(crate) async fn already_stored(
        &self,
        key: &ObjectKey,
        attributes: &Attributes,
        size_bytes: u64,
    ) -> Result<Option<ObjectRef>, StoreError> {
        let is_ours =
            |found: &ObjectMeta| found.attributes.user == attributes.user && found.size_bytes == size_bytes;
        Ok(self.store.find(key).await?.filter(is_ours).map(|found| found.object))
    }

    /// Names the stored object.
    async fn published(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        object: &ObjectRef,
        attributes: Attributes,
    ) -> Result<()> {
        let size_bytes = work.size_bytes().unwrap_or(inode.size_bytes);
        let stream_is_old = match work {
            Dirty::Stream(stream) => Some(!stream.carries(inode, file.pending().touched)),
            _ => None,
        };
        self.publish(inode, object, size_bytes, file.pending().touched)?;
        self.references.caches(inode.ino, Some(&object.etag));
        file.carries(&object.etag, attributes.clone());
        file.repin(|| self.pin_of(inode.ino))?;
        file.forget_tried();
        *work = Dirty::Clean;
        file.set_pending(Pending::default());
        self.discard_beside(inode).await?;
        // From here on who changes attributes exports them; until here they may have come too late for the headers.
        let now = self.names.inode(inode.ino)?;
        let headers_are_old =
            stream_is_old.unwrap_or_else(|| headers::with_posix(attributes.clone(), &now) != attributes);
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

    /// One op: what an inode had at its path is a copy elsewhere, or with another tag, now.
    pub(crate) fn relocate(&self, inode: &Inode, there: &Stored) -> Result<()> {
        let (ino, size_bytes) = (inode.ino, inode.size_bytes);
        let base = inode.object().map(|object| object.etag.clone());
        let content = relocated(&inode.content, there);
        self.names.commit(&self.ctx(), &Op::Publish { ino, base, content, size_bytes, mtime: None })?;
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
        let kept = if outcome.is_ok() { frozen.stored() } else { frozen.thaw(&self.slabs) };
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
        file.forget_tried();
        if inode.is_beside() || inode.object().is_none() {
            // Nothing of it was ever under its name, which is somebody else's object's now.
            self.give_name_away(inode)?;
        }
        self.directories.get(Ino::ROOT).forget();
        if let Some(dir) = self.names.entry(Ino::ROOT, &Name::new(LOST_AND_FOUND.as_bytes())?)? {
            self.directories.get(dir.ino).forget();
        }
        self.look_again(inode).await.ok();
        if file.replace(|| self.pin_of(inode.ino)).is_err() {
            file.replace(|| Ok::<_, Error>(None))?;
        }
        let left = self.names.inode(inode.ino).as_ref().map(content_keys).unwrap_or_default();
        for key in content_keys(inode).difference(&left).cloned() {
            self.discard(key).await;
        }
        Err(Error::Stale(format!(
            "'{key}' was changed in the bucket; this file's bytes are kept as '{lost}'"
        )))
    }

    /// What lies beside its path is not shown there: its name is somebody else's object's.
    fn give_name_away(&self, inode: &Inode) -> Result<()> {
        if let Some((dir, name)) = &inode.home {
            self.take_name_away(*dir, name, inode, self.now())?;
            self.directories.get(*dir).forget();
        }
        Ok(())
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
        let theirs = match self.store.find(key).await? {
            Some(meta) => Some(self.store.copy(&meta.object, &aside, CopyOptions::default()).await?),
            None => None,
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
        let replaced = match base.filter(|_| inode.kind == Kind::File) {
            // What lies beside its path for now carries what its object carried there.
            Some(pin) => self.path_key(inode)?.and_then(|key| pin.object_at(&key).or(pin.first_object())),
            None => None,
        };
        let Some(object) = replaced else {
            return Ok(headers::with_posix(Attributes::default(), inode));
        };
        let carried = match file.carried(&object.etag) {
            Some(carried) => carried,
            None => self.store.find(&object.key).await?.map(|meta| meta.attributes).unwrap_or_default(),
        };
        Ok(headers::with_posix(headers::of_other_bytes(carried), inode))
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
            Dirty::Stream(stream) if stream.key().is_none_or(|key| self.layout.owner(key).is_some()) => {
                // Without a name too: what was sent is read from its object.
                let inode = file.overlay(self.names.inode(file.ino)?);
                self.commit_by_inode(file, work, &inode, When::Open).await
            }
            Dirty::Stream(_) => self.commit_locked(file, work, When::Open).await,
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
