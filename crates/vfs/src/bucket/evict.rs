//! Keeps what is known of names, and what the kernel holds of them, within a share of memory.
//!
//! A hand goes round the known entries, a bounded number at a time. What the bucket can tell again and nobody uses
//! goes at once; what only the kernel remembers it is asked to let go of, and goes when it has. In a volume named by
//! inode no entry goes, and the hand goes round what the kernel holds.
//!
//! Invariant: what goes is clean, and nobody can have come to hold it meanwhile.

use meta::{Ino, Inode, Kind, Name, Op};
use std::collections::BTreeMap;
use std::mem;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use store::names::KeyPrefix;

use crate::bucket::directories::Directory;
use crate::bucket::reconcile::Place;
use crate::bucket::sort_keys;
use crate::{Filesystem, Result};

/// Entries looked at in one step.
const BATCH: usize = 1024;
/// Steps of one turn.
const BATCHES_MAX: usize = 8;
/// Between turns so many entries are learned or looked up: fewer than one turn frees or asks the kernel for, and
/// enough that a turn in vain costs each of them little.
const ENTRIES_PER_SWEEP: usize = 1000;
/// Inodes that the kernel let go of and that are evicted together: a commit for each costs more than listing it did.
const FORGOTTEN_BATCH: usize = 256;
/// What a reference of the kernel costs beside the tables.
const REFERENCE_BYTES: u64 = 80;

/// Goes round the known entries.
#[derive(Debug, Default)]
pub(crate) struct ClockHand {
    position: Mutex<Position>,
    /// Entries since the last turn.
    entries: AtomicUsize,
    /// What the kernel let go of while memory was short. A turn of the hand finds what is not evicted from here.
    forgotten: Mutex<Vec<Ino>>,
}

/// Where the next turn goes on.
#[derive(Debug, Default)]
struct Position {
    dir: Option<Ino>,
    after: Option<Name>,
    /// The last inode that the kernel was asked to let go of.
    asked: Option<Ino>,
}

impl Filesystem {
    /// So many entries are learned or looked up. If the tables are beyond their share, evicts down to three quarters
    /// of it, as far as one turn gets.
    pub(crate) fn evict_if_needed(&self, entries: usize) -> Result<()> {
        let is_over = match self.layout.follows_paths() {
            true => self.names_bytes() > self.config.metadata_bytes(),
            // The rest is the engine's.
            false => self.references_bytes() > self.config.metadata_bytes() / 2,
        };
        if !is_over {
            return Ok(());
        }
        if self.hand.entries.fetch_add(entries, Ordering::Relaxed) + entries < ENTRIES_PER_SWEEP {
            return Ok(());
        }
        // Somebody else's turn does for both.
        let Ok(mut position) = self.hand.position.try_lock() else { return Ok(()) };
        self.hand.entries.store(0, Ordering::Relaxed);
        match self.layout.follows_paths() {
            true => self.sweep(&mut position),
            false => self.ask_kernel_to_forget(&mut position.asked),
        }
    }

    /// Asks the kernel to let go of what it holds.
    fn ask_kernel_to_forget(&self, asked: &mut Option<Ino>) -> Result<()> {
        for _ in 0..BATCHES_MAX {
            let held = self.references.after(*asked, BATCH);
            *asked = held.last().copied();
            for inode in self.names.inodes(&held)?.into_iter().flatten() {
                if let Some((dir, name)) = &inode.home {
                    self.invalidations.request_forget(*dir, name.as_bytes());
                }
            }
            if asked.is_none() || self.invalidations.is_busy() {
                break;
            }
        }
        Ok(())
    }

    /// Takes an inode that the kernel has let go of. While memory is short such inodes are evicted, many in one commit.
    pub(crate) fn evict_forgotten(&self, ino: Ino) -> Result<()> {
        if !self.layout.follows_paths() || !self.is_above_target() {
            return Ok(());
        }
        let together = {
            let mut forgotten = self.hand.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            forgotten.push(ino);
            if forgotten.len() < FORGOTTEN_BATCH {
                return Ok(());
            }
            mem::take(&mut *forgotten)
        };
        let mut by_directory: BTreeMap<Ino, Vec<(Name, Inode)>> = BTreeMap::new();
        for inode in self.names.inodes(&together)?.into_iter().flatten() {
            let Some((parent, name)) = inode.home.clone() else { continue };
            by_directory.entry(parent).or_default().push((name, inode));
        }
        for (dir, entries) in by_directory {
            // A directory that is gone has nothing to evict.
            let Ok(prefix) = self.layout.directory(&self.names, dir) else { continue };
            self.evict_unused(dir, &prefix, &entries)?;
        }
        Ok(())
    }

    /// Forgets what the bucket can tell again: what is learned anew takes this mount's settings.
    pub fn forget_learned(&self) -> Result<()> {
        if self.layout.follows_paths() { self.forget_below(Ino::ROOT) } else { Ok(()) }
    }

    fn forget_below(&self, dir: Ino) -> Result<()> {
        let prefix = self.layout.directory(&self.names, dir)?;
        let mut after = None;
        loop {
            let batch = self.names.entries(dir, after.as_ref(), BATCH)?;
            for (_, entry) in batch.iter().filter(|(_, entry)| entry.kind == Kind::Directory) {
                self.forget_below(entry.ino)?;
            }
            let inos: Vec<Ino> = batch.iter().map(|(_, entry)| entry.ino).collect();
            let is_end = batch.len() < BATCH;
            after = batch.last().map(|(name, _)| name.clone());
            let names = batch.into_iter().map(|(name, _)| name).zip(self.names.inodes(&inos)?);
            let entries: Vec<_> = names.filter_map(|(name, inode)| Some((name, inode?))).collect();
            self.evict_unused(dir, &prefix, &entries)?;
            if is_end {
                return Ok(());
            }
        }
    }

    fn names_bytes(&self) -> u64 {
        self.names.engine().memory_bytes() + self.references_bytes()
    }

    fn references_bytes(&self) -> u64 {
        self.references.len() as u64 * REFERENCE_BYTES
    }

    fn is_above_target(&self) -> bool {
        self.names_bytes() > self.config.metadata_bytes() / 4 * 3
    }

    fn sweep(&self, hand: &mut Position) -> Result<()> {
        let begun = hand.dir.unwrap_or(Ino(0));
        let (mut from, mut has_wrapped) = (begun, false);
        let mut left = BATCHES_MAX;
        loop {
            match self.names.directory_from(from)? {
                Some(dir) if !has_wrapped || dir < begun => {
                    if hand.dir != Some(dir) {
                        *hand = Position { dir: Some(dir), ..Position::default() };
                    }
                    if self.sweep_directory(dir, &mut hand.after, &mut left)?.is_break() {
                        return Ok(());
                    }
                    from = Ino(dir.0 + 1);
                }
                _ if has_wrapped => break,
                _ => (from, has_wrapped) = (Ino(0), true),
            }
        }
        // All the way round.
        *hand = Position::default();
        Ok(())
    }

    /// A turn's steps in one directory; breaks when the turn is over.
    fn sweep_directory(
        &self,
        dir: Ino,
        after: &mut Option<Name>,
        left: &mut usize,
    ) -> Result<ControlFlow<()>> {
        let prefix = self.layout.directory(&self.names, dir)?;
        loop {
            if *left == 0 || !self.is_above_target() || self.invalidations.is_busy() {
                return Ok(ControlFlow::Break(()));
            }
            *left -= 1;
            let batch = self.names.entries(dir, after.as_ref(), BATCH)?;
            let inos: Vec<Ino> = batch.iter().map(|(_, entry)| entry.ino).collect();
            let last = batch.last().map(|(name, _)| name.clone());
            let is_end = batch.len() < BATCH;
            let inodes = self.names.inodes(&inos)?;
            let known: Vec<(Name, Inode)> =
                batch.into_iter().zip(inodes).filter_map(|((name, _), inode)| Some((name, inode?))).collect();
            self.evict_unused(dir, &prefix, &known)?;
            if is_end {
                return Ok(ControlFlow::Continue(()));
            }
            *after = last;
        }
    }

    /// Evicts those of a directory's entries that nobody holds, and asks the kernel to let go of the others.
    fn evict_unused(&self, dir: Ino, prefix: &KeyPrefix, entries: &[(Name, Inode)]) -> Result<()> {
        let directory = self.directories.get(dir);
        // Whoever is just learning would believe that what goes now does not exist.
        let Some(_learning) = directory.listing.keep_out() else { return Ok(()) };
        self.references.while_frozen(|holds| {
            let mut ops = Vec::new();
            for (name, inode) in entries {
                // A file that is held is looked at closely once the kernel has let go of it. With a directory the kernel lets go of
                // everything below.
                let is_held = holds(inode.ino);
                let may_go = if is_held && !inode.is_dir() {
                    self.may_be_recoverable(inode)
                } else {
                    self.is_recoverable((dir, prefix), name, inode)
                };
                if !may_go {
                    continue;
                }
                if is_held {
                    self.invalidations.request_forget(dir, name.as_bytes());
                    if let Some((dir, name)) = self.derived.get().and_then(|views| views.shown_at(inode.ino))
                    {
                        self.invalidations.request_forget(dir, name.as_bytes());
                    }
                } else {
                    forget_sort_key(&directory, name, inode.kind);
                    ops.push(Op::Evict { parent: dir, name: name.clone() });
                }
            }
            self.evict(&ops)
        })
    }

    fn evict(&self, ops: &[Op]) -> Result<()> {
        for evicted in self.names.commit_all(&self.ctx(), ops)?.into_iter().flatten() {
            if let Some(inode) = evicted.removed.filter(|inode| inode.kind == Kind::Directory) {
                self.directories.remove(inode.ino);
            }
        }
        Ok(())
    }

    /// Whether the bucket can tell all there is to know of it. Of a directory nothing may be known but itself.
    fn is_recoverable(&self, place: Place<'_>, name: &Name, inode: &Inode) -> bool {
        self.may_be_recoverable(inode)
            && self.layout.shows(place, name, inode)
            && self.names.xattrs(inode.ino).is_ok_and(|xattrs| xattrs.is_empty())
            && (inode.kind != Kind::Directory
                || self.names.entries(inode.ino, None, 1).is_ok_and(|entries| entries.is_empty()))
            && !self.awaits_export(inode.ino)
    }

    /// Like `is_recoverable`, as far as the inode itself and the open files say.
    fn may_be_recoverable(&self, inode: &Inode) -> bool {
        let is_whole = inode.kind == Kind::Directory || (inode.nlink == 1 && inode.object().is_some());
        is_whole && self.files.get(inode.ino).is_none()
    }
}

/// That the name is not known no longer means that it does not exist.
fn forget_sort_key(directory: &Directory, name: &Name, kind: Kind) {
    match sort_keys::sort_key(name, kind) {
        Some(text) => directory.forget_up_to(&text),
        None => directory.forget(),
    }
}
