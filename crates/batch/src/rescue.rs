//! Rescue of refused ops: their files keep their bytes under other names, and later ops of the batch follow them there.
//!
//! A new entry whose name is taken gets another name in the same directory. A new entry whose directory is gone, or closed to the user, goes to
//! `lost+found/ID`, where ID is the batch. A directory that exists with the same owner, group and mode is used as if the batch had created it.
//! New content for a file that is gone, or closed to the user, becomes a file in `lost+found/ID`. A file that cannot be renamed stays where it
//! is. If a further name is taken, the file gets another name.
//!
//! Invariants:
//! - an op after a rescued one never reaches an entry or an inode of another client that has taken the place;
//! - the bytes of a refused op are kept, or the batch is not merged: a rescue for which no place is found is an error.

use crate::overlay::Overlay;
use crate::verify::{Refusal, Terms};
use meta::namespace::read_inode;
use meta::{
    Applied, BatchId, Effect, EngineError, FsError, Ino, Inode, Kind, Name, Op, OpContext, Reader, RenameHow,
    SETGID, codec, schema,
};
use std::collections::HashMap;

/// Directory for files that have lost their place, at the volume's root.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Permissions of `lost+found`.
const LOST_AND_FOUND_MODE: u16 = 0o755;

/// Permissions of the directory of a batch in `lost+found`.
const OWN_MODE: u16 = 0o700;

/// Bytes of a name that are kept when a suffix is added.
const NAME_BYTES_KEPT: usize = 200;

/// Maximum number of names that are tried for an entry in one directory.
const NAMES_TRIED_MAX: u32 = 100;

/// Where the entries and inodes of a batch are, if not where its ops say.
#[derive(Debug)]
pub(crate) struct Rescue {
    id: BatchId,
    /// Inodes that stand for inodes of the ops.
    inodes: HashMap<Ino, Ino>,
    /// Entries that stand for entries of the ops.
    entries: HashMap<(Ino, Name), (Ino, Name)>,
    /// `lost+found/ID`, once it exists.
    dir: Option<Ino>,
    /// The last of the leased inode numbers that this part has used, in descending order; at first the end of the lease, which no inode has.
    last_used: Ino,
}

/// The fate of a refused op.
#[derive(Debug)]
pub(crate) struct Rescued {
    /// The ops that were applied in its place, in order, with what they did.
    pub(crate) ops: Vec<(OpContext, Op, Applied)>,
    pub(crate) outcome: Outcome,
}

/// The outcome of a rescue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This inode keeps what the op would have stored or named.
    Kept(Ino),
    /// The directory that the op would have created exists.
    Exists,
    /// The op makes nothing that could be lost.
    NothingToKeep,
}

impl Rescue {
    pub(crate) fn new(terms: &Terms) -> Self {
        Self {
            id: terms.id(),
            inodes: HashMap::new(),
            entries: HashMap::new(),
            dir: None,
            last_used: terms.lease.end,
        }
    }

    /// Returns the op on the entries and inodes that stand for those of the given op; `None` if it is the same op.
    pub(crate) fn redirect(&self, op: &Op) -> Option<Op> {
        if self.inodes.is_empty() && self.entries.is_empty() {
            return None;
        }
        let mut redirected = op.clone();
        match &mut redirected {
            // A new name is looked up where the op says. An entry that stands for another has a name already.
            Op::Create { parent, .. } => self.move_inode(parent),
            Op::Link { ino, parent, .. } => {
                self.move_inode(ino);
                self.move_inode(parent);
            }
            Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name } => self.move_entry(parent, name),
            Op::Rename { from, to, .. } => {
                self.move_entry(&mut from.0, &mut from.1);
                self.move_entry(&mut to.0, &mut to.1);
            }
            Op::SetAttr { ino, .. }
            | Op::Accessed { ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. }
            | Op::Publish { ino, .. }
            | Op::Splice { ino, .. } => self.move_inode(ino),
            _ => {}
        }
        (redirected != *op).then_some(redirected)
    }

    /// Replaces an inode of the ops by the one that stands for it.
    fn move_inode(&self, ino: &mut Ino) {
        if let Some(moved) = self.inodes.get(ino) {
            *ino = *moved;
        }
    }

    /// Replaces an entry of the ops by the one that stands for it.
    fn move_entry(&self, parent: &mut Ino, name: &mut Name) {
        self.move_inode(parent);
        if let Some(moved) = self.entries.get(&(*parent, name.clone())) {
            (*parent, *name) = moved.clone();
        }
    }

    /// Returns the reason to refuse an op that would lose a file which the job has not seen or has kept: another client has given its name to
    /// another file, or has removed the other names of the file. `effect` is the effect according to the log of the job. It need not be true,
    /// because a false effect can only have the op refused.
    pub(crate) fn refusal(
        &self,
        overlay: &Overlay,
        op: &Op,
        effect: &Effect,
    ) -> Result<Option<Refusal>, EngineError> {
        if self.names_other_file(overlay, op, effect)? {
            return Ok(Some(Refusal::OtherFile));
        }
        let (Op::Unlink { .. }, Some(kept)) = (op, effect.inode) else { return Ok(None) };
        let kept = inode(overlay, self.stands_for(kept))?;
        Ok(kept.filter(|kept| kept.nlink == 1).map(|_| Refusal::LastName))
    }

    /// Returns the inode that stands for one of the ops.
    fn stands_for(&self, ino: Ino) -> Ino {
        self.inodes.get(&ino).copied().unwrap_or(ino)
    }

    /// Returns whether a name that the op removes, moves or replaces refers to another inode than in the job.
    fn names_other_file(&self, overlay: &Overlay, op: &Op, effect: &Effect) -> Result<bool, EngineError> {
        let there = |parent: Ino, name: &Name| -> Result<Option<Ino>, EngineError> {
            let found = overlay.get(&schema::dentry(parent, name))?;
            Ok(found.map(|found| codec::decode_dentry(&found.value)).transpose()?.map(|dentry| dentry.ino))
        };
        let stands_for = |ino| self.stands_for(ino);
        let is_other = |expected: Option<Ino>, found: Option<Ino>| {
            found.is_some_and(|found| expected.map(stands_for) != Some(found))
        };
        Ok(match op {
            Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name } => {
                let expected = effect.inode.or(effect.other);
                expected.is_some() && is_other(expected, there(*parent, name)?)
            }
            Op::Rename { from, to, .. } if effect.inode.is_some() => {
                let replaced = there(to.0, &to.1)?;
                let is_same = replaced == effect.inode.map(stands_for);
                is_other(effect.inode, there(from.0, &from.1)?)
                    || !is_same && is_other(effect.other, replaced)
            }
            _ => false,
        })
    }

    /// Forgets the entries that stand for others and that an accepted op has moved, removed or made.
    pub(crate) fn accepted(&mut self, op: &Op) {
        if self.entries.is_empty() {
            return;
        }
        let gone = match op {
            Op::Create { parent, name, .. } | Op::Link { parent, name, .. } => {
                self.entries.remove(&(*parent, name.clone()));
                return;
            }
            Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name } => (*parent, name),
            Op::Rename { how: RenameHow::Exchange, .. } => return,
            Op::Rename { from, .. } => (from.0, &from.1),
            _ => return,
        };
        self.entries.retain(|_, (parent, name)| (*parent, &*name) != gone);
    }

    /// Keeps what a refused op would have made.
    ///
    /// # Errors
    ///
    /// The error of the op for which no place was found, for example because of a quota. The ops that were applied before it are then part of
    /// the overlay, which must not be merged.
    pub(crate) fn keep(
        &mut self,
        overlay: &mut Overlay,
        terms: &Terms,
        (index, context): (u64, &OpContext),
        (op, why): (&Op, &FsError),
    ) -> Result<Rescued, FsError> {
        let mut place = Place { overlay, context, ops: Vec::new() };
        let outcome = match op {
            Op::Create { ino, .. } => match self.like_existing(place.overlay, op, why)? {
                Some(there) => {
                    self.inodes.insert(*ino, there);
                    Outcome::Exists
                }
                None => self.create_elsewhere(&mut place, index, (op, why))?,
            },
            Op::Publish { ino, content, .. } | Op::Splice { ino, content, .. } if !content.is_empty() => {
                self.copy_to_lost_and_found(&mut place, terms, index, (*ino, op))?
            }
            Op::Link { ino, .. } => self.link_elsewhere(&mut place, *ino, op)?,
            Op::Rename { from, to, how, .. } => self.stay(place.overlay, from, to, *how)?,
            _ => Outcome::NothingToKeep,
        };
        Ok(Rescued { ops: place.ops, outcome })
    }

    /// Returns the directory that has the name of a new one, if its owner, group and mode are like those of the new one: as if both clients
    /// had created the same directory. `None` for an op that creates something else or was refused for another reason.
    fn like_existing(&self, overlay: &Overlay, op: &Op, why: &FsError) -> Result<Option<Ino>, EngineError> {
        let Op::Create { parent, name, kind: Kind::Directory, mode, umask, uid, gid, .. } = op else {
            return Ok(None);
        };
        if *why != FsError::Exists {
            return Ok(None);
        }
        let Some(found) = overlay.get(&schema::dentry(*parent, name))? else { return Ok(None) };
        let (Some(there), Some(above)) =
            (inode(overlay, codec::decode_dentry(&found.value)?.ino)?, inode(overlay, *parent)?)
        else {
            return Ok(None);
        };
        let has_inherited = above.mode & SETGID != 0;
        let is_alike = there.is_dir()
            && there.uid == *uid
            && (has_inherited || there.gid == *gid)
            && there.mode & !SETGID == mode & !umask & !SETGID;
        Ok(is_alike.then_some(there.ino))
    }

    /// Creates an entry under another name in the directory of the taken name, or in `lost+found/ID` if that is not possible.
    fn create_elsewhere(
        &mut self,
        place: &mut Place<'_>,
        index: u64,
        (op, why): (&Op, &FsError),
    ) -> Result<Outcome, FsError> {
        let Op::Create { parent, name, uid, gid, .. } = op else { return Ok(Outcome::NothingToKeep) };
        if *why == FsError::Exists {
            let beside = (*parent, stem(name), self.suffix());
            match self.create_at(place, op, beside) {
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => {}
                created => return created,
            }
        }
        let dir = self.directory(place, (*uid, *gid))?;
        let lost = [format!("{index}-").as_bytes(), stem(name)].concat();
        self.create_at(place, op, (dir, &lost, String::new()))
    }

    /// Creates the entry of a refused op under a free name in a directory. Later ops of the batch are redirected there.
    fn create_at(
        &mut self,
        place: &mut Place<'_>,
        op: &Op,
        (dir, stem, suffix): (Ino, &[u8], String),
    ) -> Result<Outcome, FsError> {
        let Op::Create { parent, name, ino, .. } = op else { return Ok(Outcome::NothingToKeep) };
        let free = free_name(place.overlay, dir, stem, &suffix)?;
        let mut moved = op.clone();
        if let Op::Create { parent, name, .. } = &mut moved {
            (*parent, *name) = (dir, free.clone());
        }
        place.apply(moved)?;
        self.entries.insert((*parent, name.clone()), (dir, free));
        Ok(Outcome::Kept(*ino))
    }

    /// Adds another name in the directory of the one that is taken, because the batch may remove the other names of the file later; in
    /// `lost+found/ID` if that is not possible. Keeps nothing if the file is gone.
    fn link_elsewhere(&mut self, place: &mut Place<'_>, ino: Ino, op: &Op) -> Result<Outcome, FsError> {
        let Op::Link { parent, name, .. } = op else { return Ok(Outcome::NothingToKeep) };
        let mut dir = *parent;
        let mut free = free_name(place.overlay, dir, stem(name), &self.suffix())?;
        let file = inode(place.overlay, ino)?;
        if !file.is_some_and(|file| !file.is_dir() && !file.is_orphan()) {
            self.entries.insert((*parent, name.clone()), (dir, free));
            return Ok(Outcome::NothingToKeep);
        }
        match place.apply(Op::Link { ino, parent: dir, name: free.clone() }) {
            Err(error) if is_final(&error) => return Err(error),
            Err(_) => {
                let root = inode(place.overlay, Ino::ROOT)?.ok_or(FsError::NotFound)?;
                dir = self.directory(place, (root.uid, root.gid))?;
                free = free_name(place.overlay, dir, stem(name), "")?;
                place.apply(Op::Link { ino, parent: dir, name: free.clone() })?;
            }
            Ok(()) => {}
        }
        self.entries.insert((*parent, name.clone()), (dir, free));
        Ok(Outcome::Kept(ino))
    }

    /// Leaves an entry where it is. Later ops on the new name act on this entry, or on nothing if it is gone.
    fn stay(
        &mut self,
        overlay: &Overlay,
        from: &(Ino, Name),
        to: &(Ino, Name),
        how: RenameHow,
    ) -> Result<Outcome, FsError> {
        let (wanted, other) = (self.logical(to), self.logical(from));
        self.entries.insert(wanted, from.clone());
        if how == RenameHow::Exchange {
            self.entries.insert(other, to.clone());
        }
        Ok(match overlay.get(&schema::dentry(from.0, &from.1))? {
            Some(found) => Outcome::Kept(codec::decode_dentry(&found.value)?.ino),
            None => Outcome::NothingToKeep,
        })
    }

    /// Returns the entry of the batch for which an entry stands.
    fn logical(&self, place: &(Ino, Name)) -> (Ino, Name) {
        let found = self.entries.iter().find(|(_, stands)| *stands == place);
        found.map_or_else(|| place.clone(), |(entry, _)| entry.clone())
    }

    /// Creates a file with the new content of an inode that is gone, or closed to the user.
    fn copy_to_lost_and_found(
        &mut self,
        place: &mut Place<'_>,
        terms: &Terms,
        index: u64,
        (lost, op): (Ino, &Op),
    ) -> Result<Outcome, FsError> {
        let (uid, gid) = (terms.caller.uid, terms.caller.gid);
        let parent = self.directory(place, (uid, gid))?;
        let stem = format!("{index}-inode-{lost}");
        let name = free_name(place.overlay, parent, stem.as_bytes(), "")?;
        let ino = self.next_ino();
        let (kind, mode, umask, rdev, target) = (Kind::File, 0o600, 0, 0, None);
        place.apply(Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target })?;
        place.apply(match op.clone() {
            Op::Publish { content, size_bytes, mtime, .. } => {
                let ranges = vec![std::ops::Range { start: 0, end: u64::MAX }];
                Op::Splice { ino, ranges, content, size_bytes, mtime }
            }
            Op::Splice { ranges, content, size_bytes, mtime, .. } => {
                Op::Splice { ino, ranges, content, size_bytes, mtime }
            }
            _ => return Ok(Outcome::NothingToKeep),
        })?;
        self.inodes.insert(lost, ino);
        Ok(Outcome::Kept(ino))
    }

    /// Returns `lost+found/ID`, and creates it for an owner if it does not exist.
    fn directory(&mut self, place: &mut Place<'_>, owner: (u32, u32)) -> Result<Ino, FsError> {
        if let Some(dir) = self.dir {
            return Ok(dir);
        }
        let root = inode(place.overlay, Ino::ROOT)?.ok_or(FsError::NotFound)?;
        let lost =
            self.subdirectory(place, (Ino::ROOT, LOST_AND_FOUND), (LOST_AND_FOUND_MODE, root.uid, root.gid))?;
        let name = self.id.to_string();
        let dir = self.subdirectory(place, (lost, name.as_bytes()), (OWN_MODE, owner.0, owner.1))?;
        self.dir = Some(dir);
        Ok(dir)
    }

    /// Returns the directory of a name. Creates it if there is none, under another name if an entry of another kind has the name.
    fn subdirectory(
        &mut self,
        place: &mut Place<'_>,
        (parent, stem): (Ino, &[u8]),
        (mode, uid, gid): (u16, u32, u32),
    ) -> Result<Ino, FsError> {
        let mut name = Name::new(stem)?;
        if let Some(found) = place.overlay.get(&schema::dentry(parent, &name))? {
            let there = codec::decode_dentry(&found.value)?;
            if there.kind == Kind::Directory {
                return Ok(there.ino);
            }
            name = free_name(place.overlay, parent, stem, &self.suffix())?;
        }
        let ino = self.next_ino();
        let (kind, umask, rdev, target) = (Kind::Directory, 0, 0, None);
        place.apply(Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target })?;
        Ok(ino)
    }

    fn suffix(&self) -> String {
        kept_suffix(self.id)
    }

    /// Returns an inode number that was not used yet, from the end of the lease.
    fn next_ino(&mut self) -> Ino {
        self.last_used = Ino(self.last_used.0 - 1);
        self.last_used
    }
}

/// The state in which the ops of a rescue are applied, with the server's authority.
struct Place<'o> {
    overlay: &'o mut Overlay,
    context: &'o OpContext,
    ops: Vec<(OpContext, Op, Applied)>,
}

impl Place<'_> {
    /// Applies an op without a check of the user's rights.
    fn apply(&mut self, op: Op) -> Result<(), FsError> {
        let (applied, changes) = self.overlay.apply(self.context, &op)?;
        self.overlay.commit(changes);
        self.ops.push((*self.context, op, applied));
        Ok(())
    }
}

/// Returns whether an error would be the same at every other place of the volume.
fn is_final(error: &FsError) -> bool {
    matches!(error, FsError::Engine(_) | FsError::OverQuota | FsError::VolumeFull | FsError::Corrupt(_))
}

/// Returns the beginning of a name, with room for a suffix.
fn stem(name: &Name) -> &[u8] {
    &name.as_bytes()[..name.as_bytes().len().min(NAME_BYTES_KEPT)]
}

/// Returns the suffix of the names that a merge gives to files whose names are taken. A number may follow it.
pub fn kept_suffix(id: BatchId) -> String {
    format!(".batch-{:x}", id.0)
}

/// Returns a name in a directory that is free: the stem with the suffix, and with a number if that name is taken. Fails with `Exists` after
/// [`NAMES_TRIED_MAX`] names.
fn free_name(overlay: &Overlay, parent: Ino, stem: &[u8], suffix: &str) -> Result<Name, FsError> {
    for number in 0..NAMES_TRIED_MAX {
        let number = if number == 0 { String::new() } else { format!(".{number}") };
        let name = Name::new(&[stem, suffix.as_bytes(), number.as_bytes()].concat())?;
        if overlay.get(&schema::dentry(parent, &name))?.is_none() {
            return Ok(name);
        }
    }
    Err(FsError::Exists)
}

/// Returns an inode; `None` if it does not exist.
fn inode(overlay: &Overlay, ino: Ino) -> Result<Option<Inode>, EngineError> {
    read_inode(overlay, ino).map_err(FsError::into_engine_error)
}
