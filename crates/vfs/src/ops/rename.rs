//! Renaming.
//!
//! Under path naming a new name is a new key. The [mover](store::mover) shows objects under their new keys at once and moves
//! them in the background; the name changes in the same step. What the bucket does not show is renamed in the namespace
//! alone.

mod agreed;
mod tree;

use meta::{FsError, Ino, Inode, Kind, Name, Op, RenameHow};
use store::mover::Mover;
use store::{Claim, ObjectKey, ObjectRef, Precondition, StoreError};
use tokio::sync::MutexGuard;

use crate::bucket::changes::ChangeGuard;
use crate::content::open_file::OpenFile;
use crate::content::write::{Dirty, When};
use crate::filesystem::name;
use crate::layout::{is_reserved, object_key, stored, stored_at};
use crate::{Error, Filesystem, Result};

/// A new name that others take again and again is fought for so often.
const ATTEMPTS_MAX: u32 = 8;

/// Directory and name.
type Place = (Ino, Name);

/// What a file leaves behind: its old object, whose key and name are free when it is deleted.
struct Left<'l> {
    object: ObjectRef,
    _claim: Claim<'l, ObjectKey>,
    _changing: ChangeGuard<'l>,
}

/// What changes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// A name.
    Rename(RenameHow),
    /// The key of a file, from one of its names to another.
    HandOn,
}

/// The two ends of a rename.
struct Ends {
    from: Place,
    to: Place,
    source: Inode,
    target: Option<Inode>,
    how: How,
}

impl Filesystem {
    /// Renames; `flags` are `renameat2`'s.
    pub async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<()> {
        self.writable()?;
        if let Some(views) = self.derived_at(from.0).or_else(|| self.derived_at(to.0)) {
            return Box::pin(self.rename_derived(views, from, to, flags)).await;
        }
        self.check_not_derived(from.0, from.1)?;
        self.check_not_derived(to.0, to.1)?;
        Box::pin(self.rename_in_volume(from, to, flags)).await
    }

    /// The same of names in the volume's own directories.
    pub(crate) async fn rename_in_volume(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let (how, leaves_whiteout) = how(flags)?;
        if is_reserved(to.0, to.1) {
            return Err(Error::new(libc::EPERM, "'.tenon' at the root is Tenon's own"));
        }
        let (from, to) = ((from.0, name(from.1)?), (to.0, name(to.1)?));
        if !self.layout.follows_paths() {
            return self.rename_by_inode(from, to, how, leaves_whiteout).await;
        }
        if leaves_whiteout {
            return Err(Error::new(
                libc::EINVAL,
                "a volume named by path has no whiteouts: its names are objects",
            ));
        }
        match (how, &self.sharing) {
            (RenameHow::Exchange, None) => self.exchange(from, to).await,
            (RenameHow::Exchange, Some(_)) => Err(Error::new(
                libc::EINVAL,
                "nothing is exchanged where other machines mount the bucket too",
            )),
            (_, None) => self.rename_here(&from, &to, how).await,
            (_, Some(sharing)) => Box::pin(self.rename_shared(sharing, &from, &to, how)).await,
        }
    }

    async fn rename_here(&self, from: &Place, to: &Place, how: RenameHow) -> Result<()> {
        for _ in 1..ATTEMPTS_MAX {
            match Box::pin(self.rename_once(from, to, how)).await {
                Err(Error::Namespace(FsError::Conflict)) => {}
                outcome => return outcome,
            }
        }
        Box::pin(self.rename_once(from, to, how)).await
    }

    /// One commit, whiteout included: a character device 0/0 at the old name (rename(2)).
    async fn rename_by_inode(
        &self,
        from: Place,
        to: Place,
        how: RenameHow,
        leaves_whiteout: bool,
    ) -> Result<()> {
        let mut ops = vec![Op::Rename { from: from.clone(), to: to.clone(), how, keep: true }];
        if how != RenameHow::Exchange && self.leads_to_directory(&from)? {
            ops.extend(self.plain_again(from.0, &from.1)?);
        }
        // Two names of one inode stay as they are, and nothing is left behind.
        if leaves_whiteout && !self.lead_to_the_same(&from, &to)? {
            let ctx = self.ctx();
            let ino = self.new_ino(from.0)?;
            ops.push(Op::Create {
                parent: from.0,
                name: from.1,
                ino,
                kind: Kind::CharDevice,
                mode: 0,
                umask: 0,
                uid: ctx.uid,
                gid: ctx.gid,
                rdev: 0,
                target: None,
            });
        }
        let moved = self.names.commit_together(&self.ctx(), &ops)?;
        match moved.first() {
            Some(moved) => self.let_go(moved).await,
            None => Ok(()),
        }
    }

    fn leads_to_directory(&self, place: &Place) -> Result<bool> {
        Ok(self.names.entry(place.0, &place.1)?.is_some_and(|entry| entry.kind == Kind::Directory))
    }

    fn lead_to_the_same(&self, from: &Place, to: &Place) -> Result<bool> {
        let (from, to) = (self.names.entry(from.0, &from.1)?, self.names.entry(to.0, &to.1)?);
        Ok(from.is_some() && from.map(|entry| entry.ino) == to.map(|entry| entry.ino))
    }

    /// `Conflict` if something else got the new name meanwhile.
    async fn rename_once(&self, from: &Place, to: &Place, how: RenameHow) -> Result<()> {
        let ends = self.ends(from.clone(), to.clone(), how).await?;
        if ends.target.as_ref().is_some_and(|target| target.ino == ends.source.ino) {
            return Ok(());
        }
        self.must_be_allowed(&ends).await?;
        self.keep_directory(ends.from.0).await?;
        match ends.source.kind {
            Kind::Directory => self.move_tree(&ends).await?,
            _ => {
                let _seen = self.both_seen(&ends).await?;
                self.move_file(&ends).await?;
            }
        }
        let is_file = ends.source.kind == Kind::File;
        if is_file && self.renamed.note(ends.source.ino, from.1.as_bytes(), to.1.as_bytes()) {
            self.export_later(ends.source.ino)?;
        }
        Ok(())
    }

    async fn ends(&self, from: Place, to: Place, how: RenameHow) -> Result<Ends> {
        // Attributes that were only listed would count as exact once they are published under the new name.
        let source = self.with_exact_attributes(self.must(self.find(from.0, &from.1).await?)?).await?;
        let target = self.find(to.0, &to.1).await?;
        if target.is_none() {
            self.must_be_plain(to.0, &to.1, source.kind)?;
        }
        Ok(Ends { from, to, source, target, how: How::Rename(how) })
    }

    /// What POSIX refuses, before any object moves.
    async fn must_be_allowed(&self, ends: &Ends) -> Result<()> {
        let is_directory = ends.source.kind == Kind::Directory;
        if is_directory && self.is_below(ends.to.0, ends.source.ino)? {
            return Err(FsError::CrossesItself.into());
        }
        let Some(target) = &ends.target else { return Ok(()) };
        match (ends.how, is_directory, target.kind == Kind::Directory) {
            (How::Rename(RenameHow::NoReplace), _, _) => Err(Error::EXISTS),
            (_, true, false) => Err(Error::NOT_DIRECTORY),
            (_, false, true) => Err(Error::IS_DIRECTORY),
            (_, true, true) => self.must_be_empty(target).await,
            (_, false, false) => Ok(()),
        }
    }

    /// Waits until the names say what the endpoint did to either key, which does no more meanwhile: an object moves by the tag
    /// that it is known by.
    async fn both_seen(
        &self,
        ends: &Ends,
    ) -> Result<(Option<Claim<'_, ObjectKey>>, Option<Claim<'_, ObjectKey>>)> {
        let key = |place: &Place| {
            let prefix = self.layout.directory(&self.names, place.0)?;
            Ok::<_, Error>(object_key(&prefix, place.1.as_bytes()).ok())
        };
        Ok(match (key(&ends.from)?, key(&ends.to)?) {
            (Some(from), Some(to)) if from != to => {
                let (from, to) = self.unseen.claim_both(&from, &to).await;
                (Some(from), Some(to))
            }
            (Some(one), _) | (None, Some(one)) => (Some(self.unseen.claim(&one).await), None),
            (None, None) => (None, None),
        })
    }

    fn is_below(&self, mut dir: Ino, ancestor: Ino) -> Result<bool> {
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            match self.names.inode(dir)?.home {
                Some((parent, _)) => dir = parent,
                None => return Ok(false),
            }
        }
    }

    async fn move_file(&self, ends: &Ends) -> Result<()> {
        let source = self.open_file(ends.source.ino)?;
        let outcome = match &ends.target {
            None => self.move_open_file(ends, &source, None).await,
            Some(target) => self.move_over(ends, &source, target.ino).await,
        };
        let closed = source.close().await;
        outcome.and(closed)
    }

    async fn move_over(&self, ends: &Ends, source: &OpenFile, target: Ino) -> Result<()> {
        let target = self.open_file(target)?;
        let outcome = self.move_open_file(ends, source, Some(&target)).await;
        let closed = target.close().await;
        outcome.and(closed)
    }

    /// Both files' work is held, so that nobody publishes, moves or removes one of them meanwhile.
    async fn move_open_file(&self, ends: &Ends, source: &OpenFile, target: Option<&OpenFile>) -> Result<()> {
        let (mut work, replaced) = lock_both(source, target).await;
        self.complete(source, &mut work).await?;
        self.adopt_if_tried(source, &mut work).await?;
        let mut was_shared = false;
        let old = match replaced {
            None => self.move_object(ends, source, &mut work).await?,
            Some((target, mut replaced)) => {
                self.adopt_if_tried(target, &mut replaced).await?;
                Box::pin(self.hand_on(ends.to.0, &ends.to.1, target, &mut replaced)).await?;
                // Whoever replaces a file by another expects the other's bytes there, also if it was just made.
                self.begin_new(source, &mut work)?;
                self.commit_locked(source, &mut work, When::Closed).await?;
                was_shared = self.names.inode(target.ino)?.nlink > 1;
                let aside = match self.files.users(target.ino) {
                    0 | 1 => None,
                    _ if was_shared => None,
                    _ => self.preserve_object(target, &mut replaced).await?,
                };
                let moved = self.move_object(ends, source, &mut work).await;
                self.finish_preserving(target, &mut replaced, aside, moved.is_ok()).await?;
                moved?
            }
        };
        if was_shared || !self.is_told_by_bucket(source.ino)? {
            self.names_first().await?;
        }
        if let Some(old) = old {
            self.delete_moved(&old.object).await?;
        }
        Box::pin(self.show(source, &mut work)).await
    }

    /// Whether a look at the bucket would bring back all of a file that lies at its path.
    fn is_told_by_bucket(&self, ino: Ino) -> Result<bool> {
        let inode = self.names.inode(ino)?;
        let is_whole = self.lies_at_path(&inode)? && !inode.is_ahead();
        Ok(is_whole && inode.nlink == 1 && self.names.xattrs(ino)?.is_empty())
    }

    /// Before a name goes that has the key of a file with other names: another of them gets it, which the object
    /// follows. The file's work is held.
    pub(crate) async fn hand_on(
        &self,
        parent: Ino,
        name: &Name,
        file: &OpenFile,
        work: &mut Dirty,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let inode = self.names.inode(file.ino)?;
            if inode.nlink < 2 || !self.is_shown(parent, name, &inode)? {
                return Ok(());
            }
            self.complete(file, work).await?;
            let inode = self.names.inode(file.ino)?;
            let Some(heir) = self.names.names(file.ino)?.into_iter().nth(1) else { return Ok(()) };
            let (from, to) = ((parent, name.clone()), heir.clone());
            let (source, target) = (inode.clone(), Some(inode));
            let ends = Ends { from, to, source, target, how: How::HandOn };
            let prefix = self.layout.directory(&self.names, heir.0)?;
            match object_key(&prefix, heir.1.as_bytes()) {
                // Somebody else stored an object there: to the bucket the name is that one's.
                Ok(key) if self.store.find(&key).await?.is_some() => self.probe(heir.0, &heir.1).await?,
                _ => return self.move_object(&ends, file, work).await.map(drop),
            }
        }
        Err(Error::new(libc::EBUSY, "the other names of the file are taken by others all the time"))
    }

    /// Renames an object and its file; returns the object of the file replaced, where that is to be deleted before anybody
    /// stores under its key.
    async fn move_object(&self, ends: &Ends, file: &OpenFile, work: &mut Dirty) -> Result<Option<Left<'_>>> {
        let _paths = self.lock_entries(&[&ends.from, &ends.to]).await?;
        let source = self.names.inode(ends.source.ino)?;
        if self.names.entry(ends.from.0, &ends.from.1)?.is_none_or(|entry| entry.ino != source.ino) {
            return Err(Error::NOT_FOUND);
        }
        let prefix = self.layout.directory(&self.names, ends.to.0)?;
        let is_shown = self.layout.has_key(&prefix, &ends.to.1, source.kind);
        // What lies beside its path comes to its new one at once.
        let comes = is_shown && source.home.as_ref() == Some(&ends.from) && is_one_object_beside(&source);
        if !comes && !self.is_shown(ends.from.0, &ends.from.1, &source)? {
            return self.move_name(ends).await;
        }
        let Some(old) = self.object(&source)? else {
            return self.move_name(ends).await;
        };
        let key = match is_shown {
            true => object_key(&prefix, ends.to.1.as_bytes())?,
            false => self.content_key(source.ino)?,
        };
        if key == old.key {
            return self.rename_entry(ends, None).map(|()| None);
        }
        let (_claim, _coming_claim) = self.claims.claim_both(&old.key, &key).await;
        let (_changing, _coming) = self.changing(ends);
        let at_target = self.at_target(ends, is_shown).await?;
        let named = |moved: &ObjectRef| {
            let content = match (comes, is_shown) {
                (true, _) => self.publication(source.ino, moved, source.size_bytes, None)?,
                (false, true) => self.relocation(source.ino, &stored(moved))?,
                (false, false) => self.relocation(source.ino, &stored_at(moved))?,
            };
            self.rename_entry(ends, Some(content))?;
            Ok::<_, Error>(moved.etag.clone())
        };
        // Names that no bucket tells would lead to nothing if they outlived the journal, and so would one that was replaced.
        let is_target_told = match &ends.target {
            Some(target) if ends.how != How::HandOn => self.is_told_by_bucket(target.ino)?,
            _ => true,
        };
        let is_safe_first = !is_target_told || !self.is_told_by_bucket(source.ino)?;
        let etag = self.mover()?.rename_object(&old, &key, &at_target, is_safe_first, named).await?;
        self.references.change_etag(source.ino, &old.etag, &etag);
        file.repin(|| self.pin_of(source.ino))?;
        work.rebase(file.pin().0);
        Ok(None)
    }

    /// What the bucket must have at the new name: the object of the file that is replaced there.
    async fn at_target(&self, ends: &Ends, is_shown: bool) -> Result<Precondition> {
        let object = match is_shown && ends.how != How::HandOn {
            true => self.replaced(ends).await?,
            false => None,
        };
        Ok(object.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag)))
    }

    /// The object that shows at the new name: of the file that is replaced, or what others stored there while that was written.
    async fn replaced(&self, ends: &Ends) -> Result<Option<ObjectRef>> {
        let Some(target) = &ends.target else { return Ok(None) };
        // It may have been stored, or given its key away, since the ends were looked up.
        let target = self.names.inode(target.ino)?;
        if !self.is_shown(ends.to.0, &ends.to.1, &target)? {
            return Ok(None);
        }
        match self.files.get(target.ino).is_some_and(|file| file.is_overtaken()) {
            true => {
                let key = self.layout.key(&self.names, &target)?;
                Ok(self.store.find(&key).await?.map(|there| there.object))
            }
            false => self.object(&target),
        }
    }

    fn mover(&self) -> Result<&Mover> {
        self.mover
            .as_deref()
            .ok_or(Error::new(libc::EXDEV, "only a volume whose names are keys moves objects"))
    }

    /// Renames what the bucket does not show; returns the object of the file replaced, if it shows that.
    async fn move_name(&self, ends: &Ends) -> Result<Option<Left<'_>>> {
        let Some(object) = self.replaced(ends).await? else {
            return self.rename_entry(ends, None).map(|()| None);
        };
        let _claim = self.claims.claim(&object.key).await;
        let (_going, _changing) = self.changing(ends);
        self.rename_entry(ends, None)?;
        Ok(Some(Left { object, _claim, _changing }))
    }

    /// Both names: until the old objects are gone, and before the new ones have their name, no look counts.
    fn changing(&self, ends: &Ends) -> (ChangeGuard<'_>, ChangeGuard<'_>) {
        (self.changes.begin(ends.from.0, &ends.from.1), self.changes.begin(ends.to.0, &ends.to.1))
    }

    /// Deletes what was moved, unless somebody has stored something new there. Where only names on this machine say
    /// where it is now, they come first: without them the bucket would seem to have dropped the file.
    pub(super) async fn delete_moved(&self, old: &ObjectRef) -> Result<()> {
        match self.store.delete(&old.key, Precondition::Matches(old.etag.clone())).await {
            Ok(()) | Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn must_be_as_found(&self, ends: &Ends) -> Result<()> {
        let there = self.names.entry(ends.to.0, &ends.to.1)?.map(|entry| entry.ino);
        match ends.target.as_ref().map(|target| target.ino) == there {
            true => Ok(()),
            false if ends.how == How::Rename(RenameHow::NoReplace) => Err(Error::EXISTS),
            false => Err(FsError::Conflict.into()),
        }
    }

    /// The namespace's part: one commit, with what becomes of the content.
    fn rename_entry(&self, ends: &Ends, content: Option<Op>) -> Result<()> {
        self.must_be_as_found(ends)?;
        let (from, to) = (ends.from.clone(), ends.to.clone());
        // A file that is replaced is open, if only here: its last close purges it.
        let keep = ends.target.as_ref().is_some_and(|target| target.kind != Kind::Directory);
        let op = match ends.how {
            How::Rename(how) => Op::Rename { from, to, how, keep },
            How::HandOn => Op::HandOn { ino: ends.source.ino, parent: to.0, name: to.1 },
        };
        let (left, reached) = match ends.source.kind {
            Kind::Directory => (Some((ends.from.0, &ends.from.1)), Some((ends.to.0, &ends.to.1))),
            _ => (None, None),
        };
        self.commit_with_settings(left, reached, |notes| {
            let ops: Vec<Op> = [op].into_iter().chain(content).chain(notes).collect();
            Ok(self.names.commit_together(&self.ctx(), &ops)?)
        })?;
        if ends.how == How::HandOn {
            return Ok(());
        }
        if let Some(target) = &ends.target {
            // Of a file that has other names they are still to come.
            if self.names.inode(target.ino).is_ok_and(|left| left.nlink == 0) {
                self.exports.remove(target.ino);
            }
            if target.kind == Kind::Directory {
                self.forget_removed(target);
            }
        }
        Ok(())
    }

    /// Before its object moves: parts of a stream lie under the old key, which somebody else may need next, and what a
    /// crash leaves there must not be older than what was synced.
    async fn complete(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        if matches!(work, Dirty::Stream(_)) {
            self.commit_locked(file, work, When::Closed).await?;
        }
        match self.names.inode(file.ino)?.is_ahead() {
            true => self.try_to_show(file, work).await,
            false => Ok(()),
        }
    }
}

/// The work of one file or two, always in the same order.
pub(super) async fn lock_both<'f>(
    source: &'f OpenFile,
    target: Option<&'f OpenFile>,
) -> (MutexGuard<'f, Dirty>, Option<(&'f OpenFile, MutexGuard<'f, Dirty>)>) {
    match target {
        None => (source.work.lock().await, None),
        Some(target) if target.ino < source.ino => {
            let replaced = target.work.lock().await;
            (source.work.lock().await, Some((target, replaced)))
        }
        Some(target) => {
            let work = source.work.lock().await;
            (work, Some((target, target.work.lock().await)))
        }
    }
}

/// Whether all of an inode's content is one object that lies beside its path.
fn is_one_object_beside(inode: &Inode) -> bool {
    let all = inode.content.only_extent();
    all.is_some_and(|all| all.object.key.is_some() && all.len == inode.size_bytes)
}

/// What to do with an entry at the new name, and whether a whiteout stays at the old one.
fn how(flags: u32) -> Result<(RenameHow, bool)> {
    let leaves_whiteout = flags & libc::RENAME_WHITEOUT != 0;
    match flags & !libc::RENAME_WHITEOUT {
        0 => Ok((RenameHow::Replace, leaves_whiteout)),
        libc::RENAME_NOREPLACE => Ok((RenameHow::NoReplace, leaves_whiteout)),
        libc::RENAME_EXCHANGE if !leaves_whiteout => Ok((RenameHow::Exchange, false)),
        _ => Err(Error::new(libc::EINVAL, "renameat2 has no such flags together")),
    }
}
