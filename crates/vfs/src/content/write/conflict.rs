//! A file is to be stored, and its path has somebody else's object: the volume's policy says whose bytes have the name.
//!
//! Invariants: nobody's bytes are replaced before they are stored elsewhere and a record says where; theirs are replaced
//! under a condition on exactly what was seen; zeros that nobody wrote are never stored under a name that programs use.

use bytes::BytesMut;
use meta::{Ino, Inode, Name, Op, RenameHow};
use std::ops::Range;
use store::names::Entry;
use store::{CopyOptions, GetOptions, ObjectKey, ObjectRef, Precondition, StoreError};

use super::local::Source;
use super::{Dirty, Local, Stream};
use crate::bucket::conflicts::{Conflict, ConflictPolicy, Side};
use crate::bucket::metadata::Described;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::pin::{Cut, Piece, Pin};
use crate::layout::{LOST_AND_FOUND, content_keys};
use crate::{Error, Filesystem, Result};

/// So often their object is replaced again by others before we give in.
const ATTEMPTS_MAX: usize = 5;

/// How a conflict ended for who stores a file.
pub(super) enum Settled {
    /// The file is stored, or its writes are where the error says.
    Done,
    /// There was none: an earlier upload is what lies there, and below the writes now.
    Ours,
}

impl Filesystem {
    /// Somebody else changed the object at a file's path. If what is there is ours all the same, it is something else that
    /// the file cannot be stored with, and no policy helps.
    pub(super) async fn settle_conflict(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        (key, is_ours): (&ObjectKey, bool),
        described: &Described,
    ) -> Result<Settled> {
        let is_complete = self.complete_base(file.ino, work, key).await?;
        let may_win = is_complete && !is_ours;
        let theirs = self.store.find(key).await?.map(|meta| meta.object);
        let settled = match self.config.conflicts {
            ConflictPolicy::FileWins if may_win => {
                self.replace_theirs(file, work, inode, key, described).await?
            }
            // Who deletes an object has no bytes to keep.
            ConflictPolicy::KeepBoth if may_win && theirs.is_none() => {
                self.replace_theirs(file, work, inode, key, described).await?
            }
            ConflictPolicy::KeepBoth if may_win => {
                self.step_beside(file, work, inode, key, described).await?
            }
            _ => None,
        };
        match settled {
            Some(settled) => Ok(settled),
            None => self.yield_to_bucket(file, work, inode, (key, theirs), described, is_complete).await,
        }
    }

    /// Theirs is kept under `lost+found`, ours replaces exactly it. `None`: others were faster each time.
    async fn replace_theirs(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        key: &ObjectKey,
        described: &Described,
    ) -> Result<Option<Settled>> {
        for _ in 0..ATTEMPTS_MAX {
            let theirs = self.store.find(key).await?.map(|meta| meta.object);
            let Some(conflict) = self.keep_theirs(inode, key, theirs.as_ref()).await? else { continue };
            let there = theirs.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag));
            match self.upload(work, key, described, there).await {
                Ok(object) => {
                    let conflict = Conflict { file: Some(Side::of(&object)), ..conflict };
                    tracing::warn!(%key, id = conflict.id, "the object was changed in the bucket while its file was written: the file replaced it");
                    let published = async {
                        self.record_conflict(&conflict).await?;
                        self.published(file, work, inode, &object, described.clone()).await
                    };
                    let published = published.await;
                    return self.or_keep(published, work).map(|()| Some(Settled::Done));
                }
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    if self.adopt_tried(file, work, inode, key).await? {
                        let file = work.base().and_then(|base| base.object_at(key)).as_ref().map(Side::of);
                        self.record_conflict(&Conflict { file, ..conflict }).await?;
                        return Ok(Some(Settled::Ours));
                    }
                    self.drop_copy(&conflict).await?;
                }
                // If it got there all the same, the copy is all that is left of theirs.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Copies their object to `lost+found`, unless an attempt that failed did so; records that. `None`: it is gone.
    async fn keep_theirs(
        &self,
        inode: &Inode,
        key: &ObjectKey,
        theirs: Option<&ObjectRef>,
    ) -> Result<Option<Conflict>> {
        let seen = theirs.map(|object| object.etag.clone());
        let is_same = |known: &Conflict| known.key == *key && known.file.is_none() && known.seen == seen;
        if let Some(known) = self.conflicts().into_iter().find(is_same) {
            return Ok(Some(known));
        }
        let bucket = match theirs {
            None => None,
            Some(object) => match self.store.copy(object, &self.lost(inode)?, CopyOptions::default()).await {
                Ok(copy) => Some(Side::of(&copy)),
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        let conflict = Conflict { bucket, ..self.conflict_of(inode, key, theirs)? };
        self.record_conflict(&conflict).await?;
        self.forget_lost_and_found()?;
        Ok(Some(conflict))
    }

    /// Theirs was not replaced: its copy is not needed.
    async fn drop_copy(&self, conflict: &Conflict) -> Result<()> {
        self.forget_conflict(&conflict.id)?;
        if let Some(copy) = &conflict.bucket {
            self.store.delete(&copy.key, Precondition::None).await?;
        }
        self.forget_lost_and_found()
    }

    /// Theirs has the name; the file goes on as another one beside it. `None`: there can be no such name.
    async fn step_beside(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        key: &ObjectKey,
        described: &Described,
    ) -> Result<Option<Settled>> {
        let Some((dir, name)) = inode.home.clone() else { return Ok(None) };
        let prefix = self.layout.directory(&self.names, dir)?;
        let Ok(there) = self.conflict_copy_key(key, self.now()) else { return Ok(None) };
        let Some(Entry::Object(beside)) = prefix.entry(there.as_bytes()) else { return Ok(None) };
        let beside = Name::new(&beside)?;
        let theirs = self.store.find(key).await?.map(|meta| meta.object);
        let _changing = (self.changes.begin(dir, &name), self.changes.begin(dir, &beside));
        let kept = self.keep_aside(work, inode, &there, described).await;
        let ours = kept?;
        let conflict = Conflict {
            file: Some(Side::of(&ours)),
            bucket: theirs.as_ref().map(Side::of),
            ..self.conflict_of(inode, key, theirs.as_ref())?
        };
        tracing::warn!(%key, kept = %there, id = conflict.id, "the object was changed in the bucket while its file was written: the file is beside it");
        let published = async {
            self.record_conflict(&conflict).await?;
            let (from, to) = ((dir, name.clone()), (dir, beside.clone()));
            self.names
                .commit(&self.ctx(), &Op::Rename { from, to, how: RenameHow::NoReplace, keep: false })?;
            self.directories.get(dir).forget();
            self.invalidations.entry(dir, name.as_bytes());
            self.invalidations.entry(dir, beside.as_bytes());
            self.published(file, work, inode, &ours, described.clone()).await
        };
        let published = published.await;
        self.or_keep(published, work).map(|()| Some(Settled::Done))
    }

    /// Theirs stays, and our bytes go to `lost+found`.
    async fn yield_to_bucket(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        inode: &Inode,
        (key, theirs): (&ObjectKey, Option<ObjectRef>),
        described: &Described,
        is_complete: bool,
    ) -> Result<Settled> {
        let had =
            self.names.content(inode.ino).map(|(_, content)| content_keys(&content)).unwrap_or_default();
        let lost = self.lost(inode)?;
        let ours = self.keep_aside(work, inode, &lost, described).await?;
        let conflict = Conflict {
            file: Some(Side::of(&ours)),
            bucket: theirs.as_ref().map(Side::of),
            is_complete,
            ..self.conflict_of(inode, key, theirs.as_ref())?
        };
        let recorded = self.record_conflict(&conflict).await;
        self.or_keep(recorded, work)?;
        tracing::warn!(%key, kept = %lost, id = conflict.id, "the object was changed in the bucket while its file was written: the bucket's stays");
        *work = Dirty::Clean;
        file.set_pending(Pending::default());
        file.forget_tried();
        file.lost_in(&conflict.id);
        if inode.is_beside() || inode.object().is_none() {
            // Nothing of it was ever under its name, which is somebody else's object's now.
            self.give_name_away(inode)?;
        }
        self.forget_lost_and_found()?;
        self.revalidate(inode).await.ok();
        if file.replace(|| self.pin_of(inode.ino)).is_err() {
            file.replace(|| Ok::<_, Error>(None))?;
        }
        let left =
            self.names.content(inode.ino).map(|(_, content)| content_keys(&content)).unwrap_or_default();
        for key in had.difference(&left).cloned() {
            self.discard(key).await;
        }
        Err(Error::Stale(format!(
            "'{key}' was changed in the bucket; this file's bytes are kept as '{lost}'"
        )))
    }

    /// What lies beside its path is not shown there: its name is somebody else's object's.
    pub(super) fn give_name_away(&self, inode: &Inode) -> Result<()> {
        if let Some((dir, name)) = &inode.home {
            self.remove_name(*dir, name, inode, self.moment())?;
            self.directories.get(*dir).forget();
        }
        Ok(())
    }

    fn conflict_of(&self, inode: &Inode, key: &ObjectKey, theirs: Option<&ObjectRef>) -> Result<Conflict> {
        let path = self.names.path(inode.ino)?;
        Ok(Conflict {
            id: format!("{:016x}", self.entropy.next_u64()),
            key: key.clone(),
            path: path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/'),
            at: self.now(),
            policy: self.config.conflicts,
            seen: theirs.map(|object| object.etag.clone()),
            file: None,
            bucket: None,
            is_complete: true,
        })
    }

    /// Where one side of a conflict about a file is kept.
    fn lost(&self, inode: &Inode) -> Result<ObjectKey> {
        let path = self.names.path(inode.ino)?;
        let path: Vec<&[u8]> = path.iter().map(Name::as_bytes).collect();
        self.layout.lost(&path, self.entropy.next_u64())
    }

    /// There is something new in it.
    fn forget_lost_and_found(&self) -> Result<()> {
        self.directories.get(Ino::ROOT).forget();
        if let Some(dir) = self.names.entry(Ino::ROOT, &Name::new(LOST_AND_FOUND.as_bytes())?)? {
            self.directories.get(dir.ino).forget();
        }
        Ok(())
    }

    /// Gets what a file edited in place has not changed from where it still is, the object at its path being another one:
    /// from the cache, or as a version of the object. Whether all of it is there.
    async fn complete_base(&self, ino: Ino, work: &mut Dirty, key: &ObjectKey) -> Result<bool> {
        let Dirty::Local(local) = work else { return Ok(true) };
        let Some(base) = local.base().cloned() else { return Ok(true) };
        let mut is_complete = true;
        for range in gone(local, &base, key)? {
            for cut in base.cut(range)? {
                let Cut::Stored(range, piece) = cut else { continue };
                is_complete &= self.has_version(&piece).await?
                    || self.complete_cached(ino, local, &piece, range).await?;
            }
        }
        Ok(is_complete)
    }

    async fn has_version(&self, piece: &Piece) -> Result<bool> {
        let Some(version) = &piece.object.version else { return Ok(false) };
        let options = GetOptions {
            range: Some(0..1),
            if_match: piece.if_match.clone(),
            version: Some(version.clone()),
        };
        match self.store.get(&piece.object.key, options).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_retryable() => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    /// A range of a file comes out of the cache; false, and as much as there is, if that has not all of it.
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
        for block in self.blocks.find(ino, &piece.object.etag, &within) {
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

    /// Stores our bytes elsewhere. What a file edited in place did not change may have gone with the object below: it is
    /// kept as zeros.
    async fn keep_aside(
        &self,
        work: &mut Dirty,
        inode: &Inode,
        there: &ObjectKey,
        described: &Described,
    ) -> Result<ObjectRef> {
        if let Dirty::Stream(stream) = work {
            return self.keep_stream(stream, inode, there).await;
        }
        let kept = self.upload_new(work, inode, there, described).await;
        match (kept, &mut *work) {
            (Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)), Dirty::Local(local)) => {
                local.lose_base();
                Ok(self.upload_new(work, inode, there, described).await?)
            }
            (kept, _) => Ok(kept?),
        }
    }

    /// Stores our bytes under a new key. A request that was carried out twice finds the bytes of the first time there.
    async fn upload_new(
        &self,
        work: &mut Dirty,
        inode: &Inode,
        there: &ObjectKey,
        described: &Described,
    ) -> Result<ObjectRef, StoreError> {
        match self.upload(work, there, described, Precondition::Absent).await {
            Err(error @ StoreError::PreconditionFailed(_)) => {
                let size_bytes = work.size_bytes().unwrap_or(inode.size_bytes);
                let stored = self.already_stored(there, &described.attributes, size_bytes).await?;
                stored.ok_or(error)
            }
            stored => stored,
        }
    }

    /// The parts belong to the key: the bucket's object steps aside while ours is completed and copied.
    async fn keep_stream(&self, stream: &mut Stream, inode: &Inode, there: &ObjectKey) -> Result<ObjectRef> {
        if let Some(ours) = stream.completed() {
            let kept = self.store.copy(&ours, there, CopyOptions::default()).await?;
            self.store.delete(&ours.key, Precondition::Matches(ours.etag)).await?;
            return Ok(kept);
        }
        let key = &stream.key().cloned().ok_or(Error::NOT_FOUND)?;
        for _ in 0..ATTEMPTS_MAX {
            let theirs = self.store.find(key).await?.map(|meta| meta.object);
            let aside = match &theirs {
                Some(object) => {
                    Some(self.store.copy(object, &self.lost(inode)?, CopyOptions::default()).await?)
                }
                None => None,
            };
            let exactly = theirs.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag));
            match stream.finish(exactly).await {
                Ok(ours) => return self.step_back(ours, aside, there).await,
                Err(StoreError::PreconditionFailed(_)) => {
                    if let Some(aside) = aside {
                        self.store.delete(&aside.key, Precondition::None).await?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::PreconditionFailed(key.clone()).into())
    }

    /// Ours, which has their key for a moment, goes where it belongs, and theirs comes back.
    async fn step_back(
        &self,
        ours: ObjectRef,
        theirs: Option<ObjectRef>,
        there: &ObjectKey,
    ) -> Result<ObjectRef> {
        let kept = self.store.copy(&ours, there, CopyOptions::default()).await?;
        let unless_changed = Precondition::Matches(ours.etag.clone());
        match theirs {
            None => self.store.delete(&ours.key, unless_changed).await?,
            Some(theirs) => {
                let options = CopyOptions { precondition: unless_changed, ..CopyOptions::default() };
                self.store.copy(&theirs, &ours.key, options).await?;
                self.store.delete(&theirs.key, Precondition::None).await?;
            }
        }
        Ok(kept)
    }
}

/// The ranges of an edited file that are only in the object that was at this key.
fn gone(local: &Local, base: &Pin, key: &ObjectKey) -> Result<Vec<Range<u64>>, StoreError> {
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
