//! Renames.
//!
//! In a volume named by path a new name is a new key. The [mover](store::mover) shows objects under their new keys at once and
//! moves them in the background; the name changes in the same step. A file that the bucket does not show is renamed in the
//! namespace alone.

mod shared;
mod tree;

use meta::{FsError, Ino, Inode, Kind, Name, Op, RenameHow};
use store::mover::Mover;
use store::{Claim, ObjectKey, ObjectRef, Precondition, StoreError};
use tokio::sync::MutexGuard;

use crate::bucket::changes::Changing;
use crate::content::open_file::OpenFile;
use crate::content::write::{Dirty, When};
use crate::filesystem::name;
use crate::layout::{is_reserved, object_key, stored, stored_at};
use crate::{Error, Filesystem, Result};

/// Attempts to rename to a name that others keep changing.
const ATTEMPTS_MAX: u32 = 8;

/// Directory and name.
type Place = (Ino, Name);

/// The object of a replaced file. Its key and name stay locked until it is deleted.
struct Left<'l> {
    object: ObjectRef,
    _claim: Claim<'l, ObjectKey>,
    _changing: Changing<'l>,
}

/// Kind of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// A rename of a name.
    Rename(RenameHow),
    /// A move of a file's key from its primary name to another of its names.
    HandOn,
}

/// Source and target of a rename.
struct Ends {
    from: Place,
    to: Place,
    source: Inode,
    target: Option<Inode>,
    how: How,
}

impl Filesystem {
    /// Renames a name; `flags` are those of `renameat2`.
    pub async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<()> {
        self.writable()?;
        if let Some(views) = self.derived_at(from.0).or_else(|| self.derived_at(to.0)) {
            return Box::pin(self.rename_derived(views, from, to, flags)).await;
        }
        self.must_not_be_derived(from.0, from.1)?;
        self.must_not_be_derived(to.0, to.1)?;
        Box::pin(self.rename_in_volume(from, to, flags)).await
    }

    /// Renames a name between the volume's own directories.
    pub(crate) async fn rename_in_volume(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let (how, leaves_whiteout) = how(flags)?;
        if is_reserved(to.0, to.1) {
            return Err(Error::new(libc::EPERM, "'.tenon' at the volume's root is reserved for Tenon"));
        }
        let (from, to) = ((from.0, name(from.1)?), (to.0, name(to.1)?));
        if !self.layout.follows_paths() {
            return self.rename_by_inode(from, to, how, leaves_whiteout).await;
        }
        if leaves_whiteout {
            return Err(Error::new(
                libc::EINVAL,
                "RENAME_WHITEOUT is not possible in a volume named by path",
            ));
        }
        match (how, &self.sharing) {
            (RenameHow::Exchange, None) => self.exchange(from, to).await,
            (RenameHow::Exchange, Some(_)) => Err(Error::new(
                libc::EINVAL,
                "RENAME_EXCHANGE is not possible on a bucket that other machines mount",
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

    /// Renames in one commit, including a whiteout: a character device 0/0 at the old name (rename(2)).
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
        // Renaming one name of an inode to another of its names does nothing and leaves no whiteout.
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

    /// Tries to rename once. Fails with `Conflict` if the new name changed meanwhile.
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
        // Attributes known from a listing must be made authoritative, because they count as such once published under the new
        // name.
        let source = self.exact(self.must(self.find(from.0, &from.1).await?)?).await?;
        let target = self.find(to.0, &to.1).await?;
        if target.is_none() {
            self.must_be_plain(to.0, &to.1, source.kind)?;
        }
        Ok(Ends { from, to, source, target, how: How::Rename(how) })
    }

    /// Fails for renames that POSIX refuses, before any object moves.
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

    /// Waits until the namespace shows what the endpoint did to either key, and blocks the endpoint from changing them: an
    /// object is moved by its known tag.
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

    /// Both files are locked, so that neither is published, moved or removed meanwhile.
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
                // A program that replaces a file by another expects the new file's bytes at the name, even if the file was just
                // created.
                self.begin_new(source, &mut work)?;
                self.commit_locked(source, &mut work, When::Closed).await?;
                was_shared = self.names.inode(target.ino)?.nlink > 1;
                let aside = match self.files.users(target.ino) {
                    0 | 1 => None,
                    _ if was_shared => None,
                    _ => self.set_aside(target, &mut replaced).await?,
                };
                let moved = self.move_object(ends, source, &mut work).await;
                self.settle_aside(target, &mut replaced, aside, moved.is_ok()).await?;
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

    /// Returns whether listing the bucket would restore everything about a file at its path.
    fn is_told_by_bucket(&self, ino: Ino) -> Result<bool> {
        let inode = self.names.inode(ino)?;
        let is_whole = self.lies_at_path(&inode)? && !inode.is_ahead();
        Ok(is_whole && inode.nlink == 1 && self.names.xattrs(ino)?.is_empty())
    }

    /// Promotes another name of a file to its primary name before the primary name goes; the object moves along. The caller
    /// holds the file's lock.
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
                // A foreign object at that key: the bucket gives the name to that object.
                Ok(key) if self.store.find(&key).await?.is_some() => self.probe(heir.0, &heir.1).await?,
                _ => return self.move_object(&ends, file, work).await.map(drop),
            }
        }
        Err(Error::new(
            libc::EBUSY,
            "the other names of the file keep being overwritten in the bucket; try again",
        ))
    }

    /// Renames an object and its file. Returns the object of the replaced file if it must be deleted before its key is used
    /// again.
    async fn move_object(&self, ends: &Ends, file: &OpenFile, work: &mut Dirty) -> Result<Option<Left<'_>>> {
        let _paths = self.lock_entries(&[&ends.from, &ends.to]).await?;
        let source = self.names.inode(ends.source.ino)?;
        if self.names.entry(ends.from.0, &ends.from.1)?.is_none_or(|entry| entry.ino != source.ino) {
            return Err(Error::NOT_FOUND);
        }
        let prefix = self.layout.directory(&self.names, ends.to.0)?;
        let is_shown = self.layout.has_key(&prefix, &ends.to.1, source.kind);
        // An object that is not at its path is moved to the file's new path in the same step.
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
        // Names that only this machine's metadata has, and replaced ones, must not become durable before the journal of
        // renames: they would lead to nothing.
        let is_target_told = match &ends.target {
            Some(target) if ends.how != How::HandOn => self.is_told_by_bucket(target.ino)?,
            _ => true,
        };
        let is_safe_first = !is_target_told || !self.is_told_by_bucket(source.ino)?;
        let etag = self.mover()?.rename_object(&old, &key, &at_target, is_safe_first, named).await?;
        self.references.has_tag(source.ino, &old.etag, &etag);
        file.repin(|| self.pin_of(source.ino))?;
        work.rebase(file.pin().0);
        Ok(None)
    }

    /// Returns the precondition for the new key: the object of the replaced file, or none.
    async fn at_target(&self, ends: &Ends, is_shown: bool) -> Result<Precondition> {
        let object = match is_shown && ends.how != How::HandOn {
            true => self.replaced(ends).await?,
            false => None,
        };
        Ok(object.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag)))
    }

    /// Returns the object to replace at the new name: that of the target file, or a foreign object stored there while the
    /// target was written.
    async fn replaced(&self, ends: &Ends) -> Result<Option<ObjectRef>> {
        let Some(target) = &ends.target else { return Ok(None) };
        // The target may have been stored, or have lost its key, since its lookup.
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
        self.mover.as_deref().ok_or(Error::new(libc::EXDEV, "only a volume named by path moves objects"))
    }

    /// Renames a file that the bucket does not show. Returns the object of the replaced file if the bucket shows that.
    async fn move_name(&self, ends: &Ends) -> Result<Option<Left<'_>>> {
        let Some(object) = self.replaced(ends).await? else {
            return self.rename_entry(ends, None).map(|()| None);
        };
        let _claim = self.claims.claim(&object.key).await;
        let (_going, _changing) = self.changing(ends);
        self.rename_entry(ends, None)?;
        Ok(Some(Left { object, _claim, _changing }))
    }

    /// Marks both names as changing: no observation of them counts until the old objects are gone and the new ones have their
    /// name.
    fn changing(&self, ends: &Ends) -> (Changing<'_>, Changing<'_>) {
        (self.changes.begin(ends.from.0, &ends.from.1), self.changes.begin(ends.to.0, &ends.to.1))
    }

    /// Deletes an object that was moved, unless a new one was stored at its key. If only this machine's metadata has the new
    /// place, the caller syncs it first: otherwise the file would look removed.
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

    /// Renames in the namespace, in one commit with the change of the content.
    fn rename_entry(&self, ends: &Ends, content: Option<Op>) -> Result<()> {
        self.must_be_as_found(ends)?;
        let (from, to) = (ends.from.clone(), ends.to.clone());
        // A replaced file is open, at least by this call: its last close purges it.
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
            // A file with further names still has attributes to export.
            if self.names.inode(target.ino).is_ok_and(|left| left.nlink == 0) {
                self.exports.remove(target.ino);
            }
            if target.kind == Kind::Directory {
                self.forget_removed(target);
            }
        }
        Ok(())
    }

    /// Completes a file before its object moves: the parts of a stream belong to the old key, which another file may need next,
    /// and a crash must not leave older content there than was synced.
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

/// Locks one file or two, always in the same order.
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

/// Returns whether all of an inode's content is one object that is not at its path.
fn is_one_object_beside(inode: &Inode) -> bool {
    let all = inode.content.only_extent();
    all.is_some_and(|all| all.object.key.is_some() && all.len == inode.size_bytes)
}

/// Returns how to treat an entry at the new name, and whether to leave a whiteout at the old one.
fn how(flags: u32) -> Result<(RenameHow, bool)> {
    let leaves_whiteout = flags & libc::RENAME_WHITEOUT != 0;
    match flags & !libc::RENAME_WHITEOUT {
        0 => Ok((RenameHow::Replace, leaves_whiteout)),
        libc::RENAME_NOREPLACE => Ok((RenameHow::NoReplace, leaves_whiteout)),
        libc::RENAME_EXCHANGE if !leaves_whiteout => Ok((RenameHow::Exchange, false)),
        _ => Err(Error::new(libc::EINVAL, "invalid combination of renameat2 flags")),
    }
}
