//! A commit finds a foreign object at the file's path: the volume's conflict policy decides which side gets the name.
//!
//! Invariants: bytes are replaced only after a copy of them and a record of the copy are stored (a stream that yields
//! replaces the foreign object for a moment, and restores it); a foreign object is replaced under a condition on exactly
//! the tag that was seen; zeros that stand for lost bytes are never stored under a name that programs use.

use bytes::BytesMut;
use meta::{Ino, Inode, Name, Op, Origin, RenameHow};
use std::ops::Range;
use store::names::Entry;
use store::{CopyOptions, GetOptions, ObjectKey, ObjectRef, Precondition, StoreError};

use super::commit::PathObject;
use super::local::Source;
use super::{Local, Stream, WriteState};
use crate::bucket::conflicts::{Conflict, ConflictPolicy, Side};
use crate::bucket::metadata::Described;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::pin::{Cut, Piece, Pin};
use crate::content::write::publisher::Publisher;
use crate::content::write::uploader::Uploader;
use crate::{Error, Result};

/// Attempts to replace a foreign object that keeps changing, before the file gives in.
const ATTEMPTS_MAX: usize = 5;

/// The end of a conflict in which the file's writes did not lose.
pub(super) enum Resolution {
    /// The file is stored and named, at its path or as a conflict copy.
    Done,
    /// There was no conflict: the object is an earlier upload of this file, and the writes are now based on it.
    Ours,
}

impl Publisher {
    /// Resolves a conflict about a file's path. With `is_ours` the object there is our own, so the store rejects the upload for
    /// another reason and no policy helps.
    ///
    /// # Errors
    /// ESTALE if the writes lost: they are kept in `lost+found`, and the file is clean. On any other error they stay unpublished.
    pub(super) async fn resolve_path_conflict(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        (key, is_ours): (&ObjectKey, bool),
        described: &Described,
    ) -> Result<Resolution> {
        let is_complete = self.uploader.complete_base(file.ino, state, key).await?;
        let may_win = is_complete && !is_ours;
        let interrupted = self.interrupted_yield(state);
        let theirs = match &interrupted {
            Some(preserved) => preserved.seen.clone().map(|etag| ObjectRef::new(key.clone(), etag)),
            None => self.mount.store.find(key).await?.map(|meta| meta.object),
        };
        let resolution = match self.mount.config.conflicts {
            ConflictPolicy::FileWins if may_win && interrupted.is_none() => {
                self.replace_theirs(file, state, inode, key, described).await?
            }
            // The other side deleted the object, so it has no bytes to keep.
            ConflictPolicy::KeepBoth if may_win && theirs.is_none() => {
                self.replace_theirs(file, state, inode, key, described).await?
            }
            ConflictPolicy::KeepBoth if may_win => {
                self.keep_as_conflict_copy(file, state, inode, (key, theirs.as_ref()), described).await?
            }
            _ => None,
        };
        match resolution {
            Some(resolution) => Ok(resolution),
            None => self.yield_to_bucket(file, state, inode, (key, theirs), described, is_complete).await,
        }
    }

    /// Returns the record of the foreign object that a stream has replaced, if an attempt to yield to it failed before it was restored.
    pub(super) fn interrupted_yield(&self, state: &WriteState) -> Option<Conflict> {
        let WriteState::Stream(stream) = state else { return None };
        self.replaced_by(stream)
    }

    fn replaced_by(&self, stream: &Stream) -> Option<Conflict> {
        self.conflicts.get(stream.replaced()?)
    }

    /// Copies the foreign object to `lost+found` and replaces it. `None`: it was changed again before each attempt.
    async fn replace_theirs(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        key: &ObjectKey,
        described: &Described,
    ) -> Result<Option<Resolution>> {
        for _ in 0..ATTEMPTS_MAX {
            let theirs = self.mount.store.find(key).await?.map(|meta| meta.object);
            let Some(conflict) = self.preserve_theirs(inode, key, theirs.as_ref()).await? else { continue };
            let precondition =
                theirs.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag));
            match self.uploader.upload(state, key, described, precondition).await {
                Ok(object) => {
                    let conflict = Conflict { file: Some(Side::of(&object)), ..conflict };
                    tracing::warn!(%key, id = conflict.id, "the bucket's object was not the one that the written file was based on: the file replaced it");
                    let published = async {
                        self.conflicts.record_conflict(&conflict).await?;
                        self.finish_publish(file, state, inode, &object, described.clone()).await
                    };
                    let published = published.await;
                    return self
                        .content
                        .restore_on_failure(published, state)
                        .map(|()| Some(Resolution::Done));
                }
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    if self.adopt_unconfirmed_upload(file, state, inode, key).await? == PathObject::Ours {
                        let file = state.base().and_then(|base| base.object_at(key)).as_ref().map(Side::of);
                        self.conflicts.record_conflict(&Conflict { file, ..conflict }).await?;
                        return Ok(Some(Resolution::Ours));
                    }
                    self.delete_preserved(&conflict).await?;
                }
                // The upload may have succeeded: the copy may be all that is left of the foreign object, so it stays.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Copies the foreign object to `lost+found` and records the conflict, unless a failed attempt already did. `None`: the
    /// object is gone.
    async fn preserve_theirs(
        &self,
        inode: &Inode,
        key: &ObjectKey,
        theirs: Option<&ObjectRef>,
    ) -> Result<Option<Conflict>> {
        let seen = theirs.map(|object| object.etag.clone());
        let is_same = |known: &Conflict| known.key == *key && known.file.is_none() && known.seen == seen;
        if let Some(known) = self.conflicts.list().into_iter().find(is_same) {
            return Ok(Some(known));
        }
        let bucket = match theirs {
            None => None,
            Some(object) => {
                match self.mount.store.copy(object, &self.lost(inode)?, CopyOptions::default()).await {
                    Ok(copy) => Some(Side::of(&copy)),
                    Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let conflict = Conflict { bucket, ..self.conflict_of(inode, key, theirs)? };
        self.conflicts.record_conflict(&conflict).await?;
        self.known.invalidate_lost_and_found(&conflict.key)?;
        Ok(Some(conflict))
    }

    /// Deletes the copy of a foreign object that was not replaced.
    async fn delete_preserved(&self, conflict: &Conflict) -> Result<()> {
        self.conflicts.forget_conflict(&conflict.id)?;
        if let Some(copy) = &conflict.bucket {
            self.mount.store.delete(&copy.key, Precondition::None).await?;
        }
        self.known.invalidate_lost_and_found(&conflict.key)
    }

    /// Leaves the name to the foreign object and renames the file to a conflict copy in the same directory. `None`: no such
    /// name is possible.
    async fn keep_as_conflict_copy(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        (key, theirs): (&ObjectKey, Option<&ObjectRef>),
        described: &Described,
    ) -> Result<Option<Resolution>> {
        let Some((dir, name)) = inode.home.clone() else { return Ok(None) };
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let Ok(there) = self.conflicts.conflict_copy_key(key, self.mount.now()) else { return Ok(None) };
        let Some(Entry::Object(copy_name)) = prefix.entry(there.as_bytes()) else { return Ok(None) };
        let copy_name = Name::new(&copy_name)?;
        let _changing = (self.known.changes().begin(dir, &name), self.known.changes().begin(dir, &copy_name));
        let kept = self.store_elsewhere(state, inode, &there, described).await;
        let ours = kept?;
        let conflict = Conflict {
            file: Some(Side::of(&ours)),
            bucket: theirs.map(Side::of),
            ..self.conflict_of(inode, key, theirs)?
        };
        tracing::warn!(%key, kept = %there, id = conflict.id, "the bucket's object was not the one that the written file was based on: the file is renamed to a conflict copy");
        let published = async {
            self.conflicts.record_conflict(&conflict).await?;
            let (from, to) = ((dir, name.clone()), (dir, copy_name.clone()));
            self.names
                .commit(Origin::Other, &Op::Rename { from, to, how: RenameHow::NoReplace, keep: false })?;
            self.known.directories().get(dir).forget();
            self.finish_publish(file, state, inode, &ours, described.clone()).await
        };
        let published = published.await;
        self.content.restore_on_failure(published, state).map(|()| Some(Resolution::Done))
    }

    /// Leaves the name to the foreign object and stores our bytes in `lost+found`. Always returns an error: ESTALE if
    /// the bytes are there, otherwise the error that prevented it, after which the writes stay unpublished.
    async fn yield_to_bucket(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        inode: &Inode,
        (key, theirs): (&ObjectKey, Option<ObjectRef>),
        described: &Described,
        is_complete: bool,
    ) -> Result<Resolution> {
        let had = self.names.own_objects(inode.ino)?;
        let lost = self.lost(inode)?;
        let ours = self.store_elsewhere(state, inode, &lost, described).await?;
        let conflict = Conflict {
            file: Some(Side::of(&ours)),
            bucket: theirs.as_ref().map(Side::of),
            is_complete,
            ..self.conflict_of(inode, key, theirs.as_ref())?
        };
        let recorded = self.conflicts.record_conflict(&conflict).await;
        self.content.restore_on_failure(recorded, state)?;
        tracing::warn!(%key, kept = %lost, id = conflict.id, "a written file could not be stored at its key: what the bucket has there stays, the file's content is kept under another key");
        *state = WriteState::Clean;
        file.set_pending(Pending::default());
        file.clear_unconfirmed();
        file.set_conflict(&conflict.id);
        file.mark_lost();
        // None of the file's bytes was ever under its name, which now belongs to the foreign object.
        let has_no_name = inode.is_beside() || inode.object().is_none();
        if has_no_name && let Err(error) = self.known.detach_name(inode) {
            tracing::warn!(%error, %key, "a file that lost a conflict keeps its name until the next access to it");
            self.content.files().mark_unconfirmed(inode.ino);
        }
        self.known.invalidate_lost_and_found(&conflict.key)?;
        self.discovery.revalidate(inode).await.ok();
        if file.replace(|| self.names.pin_of(inode.ino)).is_err() {
            file.replace(|| Ok::<_, Error>(None))?;
        }
        // If the names cannot be read, the objects may still be in use.
        let left = self.names.own_objects(inode.ino).unwrap_or_else(|_| had.clone());
        for key in had.difference(&left).cloned() {
            self.content.discard(key).await;
        }
        Err(Error::Stale(format!(
            "'{key}' was changed in the bucket; this file's bytes are kept as '{lost}'"
        )))
    }

    /// Returns a new conflict about the file at a key, without the location of either side.
    fn conflict_of(&self, inode: &Inode, key: &ObjectKey, theirs: Option<&ObjectRef>) -> Result<Conflict> {
        let path = self.names.tables().path(inode.ino)?;
        Ok(Conflict {
            id: format!("{:016x}", self.mount.entropy.next_u64()),
            key: key.clone(),
            path: path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/'),
            at: self.mount.now(),
            policy: self.mount.config.conflicts,
            seen: theirs.map(|object| object.etag.clone()),
            file: None,
            bucket: None,
            is_complete: true,
        })
    }

    /// Returns a key in `lost+found` for one side of a conflict about a file.
    fn lost(&self, inode: &Inode) -> Result<ObjectKey> {
        let path = self.names.tables().path(inode.ino)?;
        self.mount.layout.lost_key(&path, self.mount.entropy.next_u64())
    }

    /// Stores our bytes under another key. Unchanged ranges of a file edited in place are stored as zeros if the object below
    /// is gone.
    async fn store_elsewhere(
        &self,
        state: &mut WriteState,
        inode: &Inode,
        there: &ObjectKey,
        described: &Described,
    ) -> Result<ObjectRef> {
        if let WriteState::Stream(stream) = state {
            return self.store_stream_elsewhere(stream, inode, there).await;
        }
        let kept = self.upload_new(state, inode, there, described).await;
        match (kept, &*state) {
            (Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)), WriteState::Local(local)) => {
                // A copy: if the upload fails, the zeros must not be stored at the path later.
                let mut zeroed = WriteState::Local(local.with_zeros_for_base());
                Ok(self.upload_new(&mut zeroed, inode, there, described).await?)
            }
            (kept, _) => Ok(kept?),
        }
    }

    /// Stores our bytes under a new key. A request that was carried out twice finds the bytes of its first attempt there.
    async fn upload_new(
        &self,
        state: &mut WriteState,
        inode: &Inode,
        there: &ObjectKey,
        described: &Described,
    ) -> Result<ObjectRef, StoreError> {
        match self.uploader.upload(state, there, described, Precondition::Absent).await {
            Err(error @ StoreError::PreconditionFailed(_)) => {
                let size_bytes = state.size_bytes().unwrap_or(inode.size_bytes);
                let stored = self.mount.already_stored(there, &described.attributes, size_bytes).await?;
                stored.ok_or(error)
            }
            stored => stored,
        }
    }

    /// Completes a stream whose parts belong to the file's key: the foreign object is copied away, which a record says, while ours
    /// is completed and copied to `there`.
    async fn store_stream_elsewhere(
        &self,
        stream: &mut Stream,
        inode: &Inode,
        there: &ObjectKey,
    ) -> Result<ObjectRef> {
        if let Some(ours) = stream.completed() {
            if let Some(preserved) = self.replaced_by(stream) {
                return self.restore_theirs(ours, &preserved, there).await;
            }
            let kept = self.mount.store.copy(&ours, there, CopyOptions::default()).await?;
            self.mount.store.delete(&ours.key, Precondition::Matches(ours.etag)).await?;
            return Ok(kept);
        }
        let key = &stream.key().cloned().ok_or(Error::NOT_FOUND)?;
        for _ in 0..ATTEMPTS_MAX {
            let theirs = self.mount.store.find(key).await?.map(|meta| meta.object);
            let Some(preserved) = self.preserve_theirs(inode, key, theirs.as_ref()).await? else { continue };
            let exactly = theirs.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag));
            match stream.finish(exactly).await {
                Ok(ours) => {
                    stream.set_replaced(&preserved.id);
                    return self.restore_theirs(ours, &preserved, there).await;
                }
                Err(StoreError::PreconditionFailed(_)) => self.delete_preserved(&preserved).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::PreconditionFailed(key.clone()).into())
    }

    /// Copies our object, which has the file's key for a moment, to `there`, and restores the foreign object. Until then, the
    /// record of the conflict says where the foreign object is.
    async fn restore_theirs(
        &self,
        ours: ObjectRef,
        preserved: &Conflict,
        there: &ObjectKey,
    ) -> Result<ObjectRef> {
        let kept = self.mount.store.copy(&ours, there, CopyOptions::default()).await?;
        let unless_changed = Precondition::Matches(ours.etag.clone());
        match &preserved.bucket {
            None => self.mount.store.delete(&ours.key, unless_changed).await?,
            Some(theirs) => {
                let options = CopyOptions { precondition: unless_changed, ..CopyOptions::default() };
                let theirs = ObjectRef::new(theirs.key.clone(), theirs.etag.clone());
                self.mount.store.copy(&theirs, &ours.key, options).await?;
            }
        }
        self.delete_preserved(preserved).await?;
        Ok(kept)
    }
}

impl Uploader {
    /// Restores the unchanged ranges of a file edited in place after the object at its path was replaced: from the cache, or as
    /// an older version of the object. Returns whether all of them are still available.
    async fn complete_base(&self, ino: Ino, state: &mut WriteState, key: &ObjectKey) -> Result<bool> {
        let WriteState::Local(local) = state else { return Ok(true) };
        let Some(base) = local.base().cloned() else { return Ok(true) };
        let mut is_complete = true;
        for range in ranges_only_at(local, &base, key)? {
            for cut in base.cut(range)? {
                let Cut::Stored(range, piece) = cut else { continue };
                is_complete &= self.has_version(&piece).await?
                    || self.complete_cached(ino, local, &piece, range).await?;
            }
        }
        Ok(is_complete)
    }

    /// Returns whether the store still has the version of the object that a piece is in.
    async fn has_version(&self, piece: &Piece) -> Result<bool> {
        let Some(version) = &piece.object.version else { return Ok(false) };
        let options = GetOptions {
            range: Some(0..1),
            if_match: piece.if_match.clone(),
            version: Some(version.clone()),
        };
        match self.mount.store.get(&piece.object.key, options).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_retryable() => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    /// Fills a range of a file from the block cache as far as possible; returns whether all of it was cached.
    async fn complete_cached(
        &self,
        ino: Ino,
        local: &mut Local,
        piece: &Piece,
        range: Range<u64>,
    ) -> Result<bool> {
        let within = piece.within(&range);
        let mut at = within.start;
        let mut bytes = BytesMut::new();
        for block in self.content.blocks().find(ino, &piece.object.etag, &within) {
            let Ok(found) = block.bytes().await else { break };
            let (from, to) = (at.max(block.range.start), within.end.min(block.range.end));
            bytes.extend_from_slice(
                &found[(from - block.range.start) as usize..(to - block.range.start) as usize],
            );
            at = to;
        }
        if !bytes.is_empty() {
            local.write(range.start, &bytes)?;
        }
        Ok(at >= within.end)
    }
}

/// Returns the ranges of an edited file that were only in the object at this key.
fn ranges_only_at(local: &Local, base: &Pin, key: &ObjectKey) -> Result<Vec<Range<u64>>, StoreError> {
    let sources = local.sources(0..local.size_bytes()).into_iter();
    let below = sources.filter_map(|source| match source {
        Source::Base(range) => Some(range),
        Source::Local(_) | Source::Zeros(_) => None,
    });
    let lay_there = |cut: Cut| match cut {
        Cut::Stored(range, piece) if piece.object.key == *key => Some(range),
        Cut::Stored(..) | Cut::Hole(_) => None,
    };
    let mut gone = Vec::new();
    for range in below {
        gone.extend(base.cut(range)?.into_iter().filter_map(lay_there));
    }
    Ok(gone)
}
