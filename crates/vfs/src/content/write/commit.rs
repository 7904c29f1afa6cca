//! Commit: the bytes are stored, then named.
//!
//! Invariant: data is durable before the metadata that names it. A commit that fails keeps the unpublished writes,
//! so that another may succeed; what one does that meets somebody else's object is in `conflict`.

use meta::{Ino, Inode, Kind, Op, Stored};
use std::sync::Arc;
use store::{
    Attributes, CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, PutOptions, StoreError,
};

use super::assemble::Assembly;
use super::conflict::Settled;
use super::{Dirty, Local, Memory, Stream, When, precondition};
use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::pin::Pin;
use crate::layout::{content_keys, relocated, stored, whole};
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
        let _path = self.lock_path(file.ino).await?;
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
            && (local.is_published() || self.leaves(local, &object.key)?))
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
            let _path = self.lock_path(file.ino).await?;
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
                let beside = content_keys(&self.names.content_of(inode)?).into_iter().collect();
                self.discard_beside(inode, beside).await
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
        let mut described = self.description_to_store(file, inode, work.base()).await?;
        self.ensure_volume_record().await?;
        file.tries(&described.attributes, work.size_bytes().unwrap_or_default());
        loop {
            let base = precondition(work.base(), key);
            match self.upload(work, key, &described, base.clone()).await {
                Ok(object) => {
                    let published = self.published(file, work, inode, &object, described).await;
                    return self.or_keep(published, work);
                }
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    let is_ours = self.adopt_tried(file, work, inode, key).await?;
                    if !is_ours || precondition(work.base(), key) == base {
                        match self.settle_conflict(file, work, inode, (key, is_ours), &described).await? {
                            Settled::Done => return Ok(()),
                            Settled::Ours => {}
                        }
                    }
                }
                Err(StoreError::Invalid(why)) if self.drop_refused_pending(inode.ino, &why)? => {
                    described = self.description_to_store(file, inode, work.base()).await?;
                    file.tries(&described.attributes, work.size_bytes().unwrap_or_default());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// An earlier upload of this file got there, and nobody heard of it, or only a mount that died: it is what lies below
    /// the writes, all of which are here still. The time of the last write in nanoseconds tells it from anybody else's.
    pub(super) async fn adopt_tried(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        key: &ObjectKey,
    ) -> Result<bool> {
        let Some(found) = self.store.find(key).await? else { return Ok(are_new_after_removal(file, work)) };
        let known = self.names.inode(inode.ino)?;
        if !file.has_tried(&found.attributes, found.size_bytes) && !headers::matches_inode(&known, &found) {
            return Ok(false);
        }
        let mut beside = Vec::new();
        match known.is_ahead() {
            // What lies beside is as good over all of the file as over what it was made for.
            true => self.relocate(&known, &stored(&found.object))?,
            false => beside = self.publish(inode, &found.object, found.size_bytes, None)?,
        }
        if found.tag_count.is_none_or(|count| count == 0) {
            file.carries(&found.object.etag, found.attributes.into(), self.moment());
        }
        file.repin(|| self.pin_of(inode.ino))?;
        work.rebase(file.pin().0);
        if !known.is_ahead() {
            self.discard_beside(inode, beside).await?;
        }
        Ok(true)
    }

    /// What lay beside its path does no more: the file is at its path.
    async fn discard_beside(&self, inode: &Inode, beside: Vec<ObjectKey>) -> Result<()> {
        if inode.is_beside() {
            // Else the loss of power would bring back what lay beside, whatever became of the path since.
            self.names_first().await?;
        }
        for key in beside {
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
        let _path = self.lock_path(file.ino).await?;
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
    pub(super) async fn published(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        object: &ObjectRef,
        described: Described,
    ) -> Result<()> {
        let size_bytes = work.size_bytes().unwrap_or(inode.size_bytes);
        let waiting = self.names.waiting_export(inode.ino)?;
        let (described, stream_is_old) = match work {
            Dirty::Stream(stream) => {
                let carries = stream.carries(&self.names.inode(inode.ino)?, file.pending().touched);
                (stream.described().clone(), Some(!carries))
            }
            _ => (described, None),
        };
        let beside = self.publish(inode, object, size_bytes, file.pending().touched)?;
        self.references.set_cached(inode.ino, Some(&object.etag));
        file.carries(&object.etag, described.clone(), self.moment());
        self.metadata_cache.insert_stored(inode.ino, &object.etag, described.clone(), self.moment());
        file.repin(|| self.pin_of(inode.ino))?;
        self.invalidations.notify_others(inode.ino);
        file.forget_tried();
        *work = Dirty::Clean;
        file.set_pending(Pending::default());
        self.discard_beside(inode, beside).await?;
        let waits = self.clear_stored_pending(inode.ino, &described)?;
        // From here on who changes attributes exports them; until here they may have come too late for the headers.
        let now = self.names.inode(inode.ino)?;
        let is_old = match stream_is_old {
            Some(is_old) => is_old,
            None => self.updated_description(&now, described.clone())? != described,
        };
        if is_old || waits {
            return self.export_later(inode.ino);
        }
        self.renamed.forget(inode.ino);
        self.note_exported(inode.ino, waiting)
    }

    /// This object is the inode's content now, whatever the namespace thought it was. Returns the objects that are no part of it any
    /// more.
    pub(crate) fn publish(
        &self,
        inode: &Inode,
        object: &ObjectRef,
        size_bytes: u64,
        mtime: Option<store::Timestamp>,
    ) -> Result<Vec<ObjectKey>> {
        let op = self.publication(inode.ino, object, size_bytes, mtime)?;
        Ok(self.names.commit(&self.ctx(), &op)?.released)
    }

    /// What says so.
    pub(crate) fn publication(
        &self,
        ino: Ino,
        object: &ObjectRef,
        size_bytes: u64,
        mtime: Option<store::Timestamp>,
    ) -> Result<Op> {
        let base = self.names.inode(ino)?.object().map(|object| object.etag.clone());
        let content = whole(stored(object), size_bytes);
        Ok(Op::Publish { ino, base, content, size_bytes, mtime })
    }

    /// What an inode has at its path, whatever tag it had, is a copy elsewhere, or with another tag, now.
    pub(crate) fn relocate(&self, inode: &Inode, there: &Stored) -> Result<()> {
        let op = self.relocation(inode.ino, there)?;
        self.names.commit(&self.ctx(), &op)?;
        Ok(())
    }

    /// What says so.
    pub(crate) fn relocation(&self, ino: Ino, there: &Stored) -> Result<Op> {
        let (inode, stored) = self.names.content(ino)?;
        let base = inode.object().map(|object| object.etag.clone());
        let content = relocated(&stored, there);
        Ok(Op::Publish { ino, base, content, size_bytes: inode.size_bytes, mtime: None })
    }

    pub(super) async fn upload(
        &self,
        work: &mut Dirty,
        key: &ObjectKey,
        described: &Described,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        match std::mem::replace(work, Dirty::Clean) {
            Dirty::Clean => Err(StoreError::Invalid("there is nothing to upload".into())),
            Dirty::Memory(memory) => {
                let (outcome, memory) = self.upload_memory(memory, key, described, precondition).await;
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
                let outcome = self.assemble(assembly, key, described, precondition).await;
                *work = Dirty::Local(local);
                outcome
            }
        }
    }

    async fn upload_memory(
        &self,
        memory: Memory,
        key: &ObjectKey,
        described: &Described,
        precondition: Precondition,
    ) -> (Result<ObjectRef, StoreError>, Memory) {
        let frozen = memory.freeze();
        let Described { attributes, tags } = described.clone();
        let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
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
        let moved =
            self.store.copy(&object, key, CopyOptions { precondition, ..CopyOptions::default() }).await?;
        self.store.delete(&object.key, Precondition::Matches(object.etag)).await?;
        Ok(moved)
    }

    /// What to store with a file's bytes: what its object carried, the inode's attributes, and what waits.
    pub(crate) async fn description_to_store(
        &self,
        file: &OpenFile,
        inode: &Inode,
        base: Option<&Arc<Pin>>,
    ) -> Result<Described> {
        let replaced = match base.filter(|_| inode.kind == Kind::File) {
            // What lies beside its path for now carries what its object carried there.
            Some(pin) => {
                self.path_key(inode)?.and_then(|key| pin.object_at(&key).or_else(|| pin.first_object()))
            }
            None => None,
        };
        let Some(object) = replaced else {
            let is_shown = self.path_key(inode)?.is_some();
            let fresh = if is_shown { headers::new(inode) } else { headers::for_kind(inode.kind) };
            return self.updated_description(inode, fresh.into());
        };
        let carried = match file.carried(&object.etag).filter(|(_, stored_at)| self.is_fresh(*stored_at)) {
            Some((carried, _)) => carried,
            None => match self.store.find(&object.key).await? {
                Some(meta) => self.read_description(&meta).await?,
                None => Described::default(),
            },
        };
        let attributes = headers::without_content_metadata(carried.attributes);
        self.updated_description(inode, Described { attributes, ..carried })
    }

    /// Says once, in the bucket, that attributes are in headers here.
    pub(crate) async fn ensure_volume_record(&self) -> Result<()> {
        let put = async {
            let id = u128::from(self.entropy.next_u64()) << 64 | u128::from(self.entropy.next_u64());
            let record = VolumeRecord::new(Mapping::Whole, Naming::FilePath, id, self.now())?
                .with_conflicts(self.config.conflicts)?;
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

/// Whether what the writes replace went with an attempt to remove the file of which nobody heard: they are a new object then.
fn are_new_after_removal(file: &OpenFile, work: &mut Dirty) -> bool {
    let (true, Dirty::Memory(memory)) = (file.may_be_removed(), work) else { return false };
    memory.base = None;
    true
}
