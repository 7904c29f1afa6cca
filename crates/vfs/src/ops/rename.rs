//! Renames.
//!
//! In a volume named by path a new name is a new key. The [mover](staging::mover) shows objects under their new keys at once and
//! moves them in the background; the name changes in the same step. A file that the bucket does not show is renamed in the
//! namespace alone.

mod tree;
mod under_lease;

use meta::{FsError, Ino, Inode, Kind, Name, Op, Origin, RenameHow};
use staging::mover::Mover;
use std::sync::Arc;
use store::{KeyLock, ObjectKey, ObjectRef, Precondition};
use tokio::sync::MutexGuard;

use crate::base::Base;
use crate::bucket::changes::ChangeGuard;
use crate::bucket::discovery::Discovery;
use crate::bucket::exports::Exporter;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::mover::Moves;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::content::Content;
use crate::content::open_file::OpenFile;
use crate::content::opener::FileOpener;
use crate::content::write::publisher::Publisher;
use crate::content::write::{When, WriteState};
use crate::layout::{object_key, stored, stored_at};
use crate::mount::Mount;
use crate::names::inodes::is_one_object_beside;
use crate::names::{Names, name};
use crate::objects::moved_settings::BucketSettings;
use crate::{Error, Result};

/// Renames files and directories.
#[derive(Debug)]
pub(crate) struct Renamer {
    pub(in crate::ops) mount: Arc<Mount>,
    pub(in crate::ops) names: Arc<Names>,
    pub(in crate::ops) content: Arc<Content>,
    pub(in crate::ops) known: Arc<KnownState>,
    pub(in crate::ops) locks: Arc<ChangeLocks>,
    pub(in crate::ops) discovery: Arc<Discovery>,
    pub(in crate::ops) publisher: Arc<Publisher>,
    pub(in crate::ops) opener: Arc<FileOpener>,
    pub(in crate::ops) moves: Arc<Moves>,
    pub(in crate::ops) settings: Arc<BucketSettings>,
    pub(in crate::ops) exporter: Arc<Exporter>,
    pub(in crate::ops) metadata: Arc<Metadata>,
}

impl Renamer {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        discovery: &Arc<Discovery>,
        exporter: &Arc<Exporter>,
        moves: &Arc<Moves>,
        settings: &Arc<BucketSettings>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            locks: parts.locks.clone(),
            discovery: discovery.clone(),
            publisher: exporter.publisher.clone(),
            opener: exporter.opener.clone(),
            moves: moves.clone(),
            settings: settings.clone(),
            exporter: exporter.clone(),
            metadata: parts.metadata.clone(),
        })
    }
}

/// Maximum attempts of an operation on names or files that others keep changing.
const ATTEMPTS_MAX: u32 = 8;

/// Directory and name.
type DentryKey = (Ino, Name);

/// The object of a replaced file. Its key and name stay locked until it is deleted.
struct ReplacedObject<'l> {
    object: ObjectRef,
    _key_lock: KeyLock<'l, ObjectKey>,
    _changing: ChangeGuard<'l>,
}

/// Kind of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveKind {
    /// A rename of a name.
    Rename(RenameHow),
    /// A move of a file's key from its primary name to another of its names.
    PromoteLink,
}

/// Source and target of a rename.
struct RenamePlan {
    from: DentryKey,
    to: DentryKey,
    source: Inode,
    target: Option<Inode>,
    how: MoveKind,
    origin: Origin,
}

/// A requested rename.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) from: DentryKey,
    pub(crate) to: DentryKey,
    pub(crate) how: RenameHow,
    /// Whether a whiteout is to be left at the old name.
    pub(crate) leaves_whiteout: bool,
}

impl Move {
    /// Parses the arguments of a rename; `flags` are those of `renameat2`.
    pub(crate) fn parse(from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<Self> {
        let (how, leaves_whiteout) = parse_flags(flags)?;
        let (from, to) = ((from.0, name(from.1)?), (to.0, name(to.1)?));
        Ok(Self { from, to, how, leaves_whiteout })
    }
}

impl Renamer {
    /// Renames a name between directories that follow the bucket.
    pub(crate) async fn rename_in_volume(
        &self,
        origin: Origin,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let Move { from, to, how, leaves_whiteout } = Move::parse(from, to, flags)?;
        self.mount.layout.check_not_reserved(self.names.tables(), to.0, to.1.as_bytes())?;
        if leaves_whiteout {
            return Err(Error::new(
                libc::EINVAL,
                "RENAME_WHITEOUT is not possible in a volume named by path",
            ));
        }
        match (how, self.known.sharing()) {
            (RenameHow::Exchange, None) => self.exchange(origin, from, to).await,
            (RenameHow::Exchange, Some(_)) => Err(Error::new(
                libc::EINVAL,
                "RENAME_EXCHANGE is not possible on a bucket that other machines mount",
            )),
            (_, None) => self.rename_here(origin, &from, &to, how).await,
            (_, Some(sharing)) => Box::pin(self.rename_shared(sharing, origin, &from, &to, how)).await,
        }
    }

    /// Renames a name, and tries again while the new name keeps changing.
    pub(crate) async fn rename_here(
        &self,
        origin: Origin,
        from: &DentryKey,
        to: &DentryKey,
        how: RenameHow,
    ) -> Result<()> {
        for _ in 1..ATTEMPTS_MAX {
            match Box::pin(self.rename_once(origin, from, to, how)).await {
                Err(Error::Namespace(FsError::Conflict)) => {}
                outcome => return outcome,
            }
        }
        Box::pin(self.rename_once(origin, from, to, how)).await
    }

    /// Tries to rename once. Fails with `Conflict` if the new name changed meanwhile.
    async fn rename_once(
        &self,
        origin: Origin,
        from: &DentryKey,
        to: &DentryKey,
        how: RenameHow,
    ) -> Result<()> {
        let plan = self.plan_rename(origin, from.clone(), to.clone(), how).await?;
        if plan.target.as_ref().is_some_and(|target| target.ino == plan.source.ino) {
            return Ok(());
        }
        self.check_allowed(&plan).await?;
        self.publisher.ensure_marker(plan.from.0).await?;
        match plan.source.kind {
            Kind::Directory => self.move_tree(&plan).await?,
            _ => {
                self.export_before_copy(&plan.source).await;
                let _endpoint_locks = self.wait_for_endpoint(&plan).await?;
                self.move_file(&plan).await?;
            }
        }
        let is_file = plan.source.kind == Kind::File;
        if is_file && self.metadata.renamed().note(plan.source.ino, from.1.as_bytes(), to.1.as_bytes()) {
            self.exporter.exports.export_later(plan.source.ino)?;
        }
        Ok(())
    }

    /// Stores attributes that wait to be stored with a file, if its object is copied to the new name at once: a crash may leave the copy
    /// without the rename, and the copy has the attributes of the object.
    async fn export_before_copy(&self, source: &Inode) {
        if self.mount.config.write_back {
            self.exporter.try_export(source.ino).await;
        }
    }

    /// Looks up the source and the target of a rename.
    async fn plan_rename(
        &self,
        origin: Origin,
        from: DentryKey,
        to: DentryKey,
        how: RenameHow,
    ) -> Result<RenamePlan> {
        // Attributes known from a listing must be made authoritative, because they count as such once published under the new
        // name.
        let source = self
            .discovery
            .with_exact_attributes(self.discovery.must(self.discovery.find(from.0, &from.1).await?)?)
            .await?;
        let target = self.discovery.find(to.0, &to.1).await?;
        if target.is_none() {
            self.names.check_not_escape(to.0, &to.1, source.kind)?;
        }
        Ok(RenamePlan { from, to, source, target, how: MoveKind::Rename(how), origin })
    }

    /// Fails for renames that POSIX refuses, before any object moves.
    async fn check_allowed(&self, plan: &RenamePlan) -> Result<()> {
        let is_directory = plan.source.kind == Kind::Directory;
        if is_directory && self.names.is_below(plan.to.0, plan.source.ino)? {
            return Err(FsError::CrossesItself.into());
        }
        let Some(target) = &plan.target else { return Ok(()) };
        match (plan.how, is_directory, target.kind == Kind::Directory) {
            (MoveKind::Rename(RenameHow::NoReplace), _, _) => Err(Error::EXISTS),
            (_, true, false) => Err(Error::NOT_DIRECTORY),
            (_, false, true) => Err(Error::IS_DIRECTORY),
            (_, true, true) => self.discovery.check_empty(target).await,
            (_, false, false) => Ok(()),
        }
    }

    /// Waits until the namespace shows what Tenon's S3 endpoint did to either key, and blocks the endpoint from
    /// changing them while the locks are held: an object is moved by its known tag.
    async fn wait_for_endpoint(
        &self,
        plan: &RenamePlan,
    ) -> Result<(Option<KeyLock<'_, ObjectKey>>, Option<KeyLock<'_, ObjectKey>>)> {
        let key = |place: &DentryKey| {
            let prefix = self.mount.layout.directory(self.names.tables(), place.0)?;
            Ok::<_, Error>(object_key(&prefix, place.1.as_bytes()).ok())
        };
        Ok(match (key(&plan.from)?, key(&plan.to)?) {
            (Some(from), Some(to)) if from != to => {
                let (from, to) = self.locks.endpoint_key_locks().lock_both(&from, &to).await;
                (Some(from), Some(to))
            }
            (Some(one), _) | (None, Some(one)) => {
                (Some(self.locks.endpoint_key_locks().lock(&one).await), None)
            }
            (None, None) => (None, None),
        })
    }

    /// Renames a file, over the target if there is one.
    async fn move_file(&self, plan: &RenamePlan) -> Result<()> {
        let source = self.opener.open_file(plan.source.ino)?;
        let outcome = match &plan.target {
            None => self.move_open_file(plan, &source, None).await,
            Some(target) => self.move_over(plan, &source, target.ino).await,
        };
        let closed = source.close().await;
        outcome.and(closed)
    }

    /// Renames an open file over another one, which is opened meanwhile.
    async fn move_over(&self, plan: &RenamePlan, source: &OpenFile, target: Ino) -> Result<()> {
        let target = self.opener.open_file(target)?;
        let outcome = self.move_open_file(plan, source, Some(&target)).await;
        let closed = target.close().await;
        outcome.and(closed)
    }

    /// Moves an open file over another one or to a free name. The files are locked, so that neither is published, moved or
    /// removed meanwhile.
    async fn move_open_file(
        &self,
        plan: &RenamePlan,
        source: &OpenFile,
        target: Option<&OpenFile>,
    ) -> Result<()> {
        let (mut state, replaced) = lock_both(source, target).await;
        self.publisher.complete_object(source, &mut state).await?;
        self.publisher.resolve_unconfirmed_upload(source, &mut state).await?;
        let mut was_shared = false;
        let old = match replaced {
            None => self.move_object(plan, source, &mut state).await?,
            Some((target, mut replaced)) => {
                self.publisher.resolve_unconfirmed_upload(target, &mut replaced).await?;
                Box::pin(self.promote_link(plan.to.0, &plan.to.1, target, &mut replaced)).await?;
                // A program that replaces a file by another expects the new file's bytes at the name, even if the file was just
                // created.
                self.content.begin_new(source, &mut state)?;
                self.publisher.commit_locked(source, &mut state, When::Closed).await?;
                was_shared = self.names.tables().inode(target.ino)?.nlink > 1;
                let preserved = match self.content.files().users(target.ino) {
                    0 | 1 => None,
                    _ if was_shared => None,
                    _ => self.publisher.preserve_object(target, &mut replaced).await?,
                };
                let moved = self.move_object(plan, source, &mut state).await;
                self.publisher.finish_preserving(target, &mut replaced, preserved, moved.is_ok()).await?;
                moved?
            }
        };
        if was_shared || !self.names.is_restorable_from_bucket(source.ino)? {
            self.names.sync_names_unless_write_back().await?;
        }
        if let Some(old) = old {
            self.content.delete_unless_replaced(&old.object).await?;
        }
        Box::pin(self.publisher.show_at_path(source, &mut state)).await
    }

    /// Promotes another name of a file to its primary name before the primary name goes; the object moves along. The caller
    /// holds the file's lock.
    pub(crate) async fn promote_link(
        &self,
        parent: Ino,
        name: &Name,
        file: &OpenFile,
        state: &mut WriteState,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let inode = self.names.tables().inode(file.ino)?;
            if inode.nlink < 2 || !self.names.is_shown(parent, name, &inode)? {
                return Ok(());
            }
            self.publisher.complete_object(file, state).await?;
            let inode = self.names.tables().inode(file.ino)?;
            let Some(promoted) = self.names.tables().names(file.ino)?.into_iter().nth(1) else {
                return Ok(());
            };
            let (from, to) = ((parent, name.clone()), promoted.clone());
            let (source, target) = (inode.clone(), Some(inode));
            let (how, origin) = (MoveKind::PromoteLink, Origin::Bookkeeping);
            let plan = RenamePlan { from, to, source, target, how, origin };
            let prefix = self.mount.layout.directory(self.names.tables(), promoted.0)?;
            match object_key(&prefix, promoted.1.as_bytes()) {
                // A foreign object at that key: the bucket gives the name to that object.
                Ok(key) if self.mount.store.find(&key).await?.is_some() => {
                    self.discovery.probe(promoted.0, &promoted.1).await?
                }
                _ => return self.move_object(&plan, file, state).await.map(drop),
            }
        }
        Err(Error::new(
            libc::EBUSY,
            "the other names of the file keep being overwritten in the bucket; try again",
        ))
    }

    /// Renames an object and its file. Returns the object of the replaced file if it must be deleted before its key is used
    /// again.
    async fn move_object(
        &self,
        plan: &RenamePlan,
        file: &OpenFile,
        state: &mut WriteState,
    ) -> Result<Option<ReplacedObject<'_>>> {
        let _paths = self.locks.lock_entries(&[&plan.from, &plan.to]).await?;
        let source = self.names.tables().inode(plan.source.ino)?;
        if self.names.tables().entry(plan.from.0, &plan.from.1)?.is_none_or(|entry| entry.ino != source.ino) {
            return Err(Error::NOT_FOUND);
        }
        let prefix = self.mount.layout.directory(self.names.tables(), plan.to.0)?;
        let is_shown = self.mount.layout.has_key(&prefix, &plan.to.1, source.kind);
        // An object that is not at its path is moved to the file's new path in the same step.
        let moves_to_path =
            is_shown && source.home.as_ref() == Some(&plan.from) && is_one_object_beside(&source);
        if !moves_to_path && !self.names.is_shown(plan.from.0, &plan.from.1, &source)? {
            return self.rename_unshown(plan).await;
        }
        let Some(old) = self.names.object(&source)? else {
            return self.rename_unshown(plan).await;
        };
        let key = match is_shown {
            true => object_key(&prefix, plan.to.1.as_bytes())?,
            false => self.content.new_key(source.ino)?,
        };
        if key == old.key {
            return self.rename_entry(plan, None).map(|()| None);
        }
        let (_key_lock, _new_key_lock) = self.locks.key_locks().lock_both(&old.key, &key).await;
        let (_changing, _coming) = self.mark_both_changing(plan);
        let target_precondition = self.target_precondition(plan, is_shown).await?;
        let named = |moved: &ObjectRef| {
            let content = match (moves_to_path, is_shown) {
                (true, _) => self.names.publish_op(source.ino, moved, source.size_bytes, None)?,
                (false, true) => self.names.relocate_op(source.ino, &stored(moved))?,
                (false, false) => self.names.relocate_op(source.ino, &stored_at(moved))?,
            };
            self.rename_entry(plan, Some(content))?;
            Ok::<_, Error>(moved.etag.clone())
        };
        // Names that only this machine's metadata has, and replaced ones, must not become durable before the journal of
        // renames: they would lead to nothing.
        let is_target_restorable = match &plan.target {
            Some(target) if plan.how != MoveKind::PromoteLink => {
                self.names.is_restorable_from_bucket(target.ino)?
            }
            _ => true,
        };
        let is_safe_first = !is_target_restorable || !self.names.is_restorable_from_bucket(source.ino)?;
        if is_safe_first {
            // After a loss of power, the journal's rename is applied to the names if they have the object and its other names.
            self.names.sync_names_unless_write_back().await?;
        }
        let etag =
            self.mover()?.rename_object(&old, &key, &target_precondition, is_safe_first, named).await?;
        self.names.references().change_etag(source.ino, &old.etag, &etag);
        file.repin(|| self.names.pin_of(source.ino))?;
        state.rebase(file.pin().0);
        Ok(None)
    }

    /// Returns the precondition for the new key: the object of the replaced file, or none.
    async fn target_precondition(&self, plan: &RenamePlan, is_shown: bool) -> Result<Precondition> {
        let object = match is_shown && plan.how != MoveKind::PromoteLink {
            true => self.object_to_replace(plan).await?,
            false => None,
        };
        Ok(object.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag)))
    }

    /// Returns the object to replace at the new name: that of the target file, or a foreign object stored there while the
    /// target was written.
    async fn object_to_replace(&self, plan: &RenamePlan) -> Result<Option<ObjectRef>> {
        let Some(target) = &plan.target else { return Ok(None) };
        // The target may have been stored, or have lost its key, since its lookup.
        let target = self.names.tables().inode(target.ino)?;
        if !self.names.is_shown(plan.to.0, &plan.to.1, &target)? {
            return Ok(None);
        }
        match self.content.files().get(target.ino).is_some_and(|file| file.is_concurrently_modified()) {
            true => {
                let key = self.mount.layout.key(self.names.tables(), &target)?;
                Ok(self.mount.store.find(&key).await?.map(|there| there.object))
            }
            false => self.names.object(&target),
        }
    }

    /// Returns the store that moves objects; EXDEV in a volume named by inode.
    pub(crate) fn mover(&self) -> Result<&Mover> {
        self.moves
            .mover()
            .map(Arc::as_ref)
            .ok_or(Error::new(libc::EXDEV, "only a volume named by path moves objects"))
    }

    /// Renames a file that the bucket does not show. Returns the object of the replaced file if the bucket shows that.
    async fn rename_unshown(&self, plan: &RenamePlan) -> Result<Option<ReplacedObject<'_>>> {
        let Some(object) = self.object_to_replace(plan).await? else {
            return self.rename_entry(plan, None).map(|()| None);
        };
        let _key_lock = self.locks.key_locks().lock(&object.key).await;
        let (_going, _changing) = self.mark_both_changing(plan);
        self.rename_entry(plan, None)?;
        Ok(Some(ReplacedObject { object, _key_lock, _changing }))
    }

    /// Marks both names as changing: no observation of them counts until the old objects are gone and the new ones have their
    /// name.
    fn mark_both_changing(&self, plan: &RenamePlan) -> (ChangeGuard<'_>, ChangeGuard<'_>) {
        (
            self.known.changes().begin(plan.from.0, &plan.from.1),
            self.known.changes().begin(plan.to.0, &plan.to.1),
        )
    }

    /// Fails if the new name leads to another inode than planned: with EEXIST if it must not be replaced, otherwise
    /// with `Conflict`.
    fn check_target_unchanged(&self, plan: &RenamePlan) -> Result<()> {
        let there = self.names.tables().entry(plan.to.0, &plan.to.1)?.map(|entry| entry.ino);
        match plan.target.as_ref().map(|target| target.ino) == there {
            true => Ok(()),
            false if plan.how == MoveKind::Rename(RenameHow::NoReplace) => Err(Error::EXISTS),
            false => Err(FsError::Conflict.into()),
        }
    }

    /// Renames in the namespace, in one commit with the change of the content.
    fn rename_entry(&self, plan: &RenamePlan, content: Option<Op>) -> Result<()> {
        self.check_target_unchanged(plan)?;
        let origin = match content {
            // A front end knows nothing of a file that gets its name back from a directory.
            Some(Op::Rename { .. }) => Origin::Other,
            _ => plan.origin,
        };
        let (from, to) = (plan.from.clone(), plan.to.clone());
        // A replaced file is open, at least by this call: its last close purges it.
        let keep = plan.target.as_ref().is_some_and(|target| target.kind != Kind::Directory);
        let op = match plan.how {
            MoveKind::Rename(how) => Op::Rename { from, to, how, keep },
            MoveKind::PromoteLink => Op::HandOn { ino: plan.source.ino, parent: to.0, name: to.1 },
        };
        let (left, reached) = match plan.source.kind {
            Kind::Directory => (Some((plan.from.0, &plan.from.1)), Some((plan.to.0, &plan.to.1))),
            _ => (None, None),
        };
        self.settings.commit_with_settings(left, reached, |notes| {
            let ops: Vec<Op> = [op].into_iter().chain(content).chain(notes).collect();
            Ok(self.names.commit_together(origin, &ops)?)
        })?;
        if plan.how == MoveKind::PromoteLink {
            return Ok(());
        }
        if let Some(target) = &plan.target {
            // A file with further names still has attributes to export.
            if self.names.tables().inode(target.ino).is_ok_and(|left| left.nlink == 0) {
                self.exporter.exports.window().remove(target.ino);
            }
            if target.kind == Kind::Directory {
                self.known.forget_removed_directory(target);
            }
        }
        Ok(())
    }
}

/// Locks one file or two, always in the same order.
pub(super) async fn lock_both<'f>(
    source: &'f OpenFile,
    target: Option<&'f OpenFile>,
) -> (MutexGuard<'f, WriteState>, Option<(&'f OpenFile, MutexGuard<'f, WriteState>)>) {
    match target {
        None => (source.write_state.lock().await, None),
        Some(target) if target.ino < source.ino => {
            let replaced = target.write_state.lock().await;
            (source.write_state.lock().await, Some((target, replaced)))
        }
        Some(target) => {
            let state = source.write_state.lock().await;
            (state, Some((target, target.write_state.lock().await)))
        }
    }
}

/// Returns how to treat an entry at the new name, and whether to leave a whiteout at the old one.
fn parse_flags(flags: u32) -> Result<(RenameHow, bool)> {
    let leaves_whiteout = flags & libc::RENAME_WHITEOUT != 0;
    match flags & !libc::RENAME_WHITEOUT {
        0 => Ok((RenameHow::Replace, leaves_whiteout)),
        libc::RENAME_NOREPLACE => Ok((RenameHow::NoReplace, leaves_whiteout)),
        libc::RENAME_EXCHANGE if !leaves_whiteout => Ok((RenameHow::Exchange, false)),
        _ => Err(Error::new(libc::EINVAL, "invalid combination of renameat2 flags")),
    }
}
