//! Eviction: keeps known names, and what the kernel holds of them, within a share of memory.
//!
//! A CLOCK hand sweeps over the known entries, a bounded number at a time. Entries that can be read from the bucket again and
//! are unused are evicted at once. The kernel is asked to forget entries that only it still references; they are evicted when
//! it has. In a volume named by inode no entry is evicted, and the hand sweeps over the inodes that the kernel holds.
//!
//! Invariant: evicted entries are clean, and cannot become referenced while they are evicted.

use meta::{Ino, Inode, Kind, Name, Op, Origin};
use std::collections::BTreeMap;
use std::mem;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::names::KeyPrefix;

use crate::Result;
use crate::base::Base;
use crate::bucket::directories::Directory;
use crate::bucket::known_state::KnownState;
use crate::bucket::parts::BucketParts;
use crate::bucket::reconcile::PrefixedDirectory;
use crate::bucket::sort_keys;
use crate::content::Content;
use crate::derived::views::Views;
use crate::memory_limit::Share;
use crate::mount::Mount;
use crate::names::Names;
use crate::volumes::rules::Evicted;

/// Keeps known names within their share of memory.
#[derive(Debug)]
pub(crate) struct NameEvictor {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) known: Arc<KnownState>,
    pub(in crate::bucket) derived: Arc<Views>,
    /// The sweep over the entries that are known.
    pub(in crate::bucket) hand: ClockHand,
}

impl NameEvictor {
    pub(crate) fn new(base: &Base, parts: &BucketParts, derived: &Arc<Views>) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            derived: derived.clone(),
            hand: ClockHand::default(),
        })
    }
}

/// Entries to examine in one step. No inode can be referenced meanwhile.
const BATCH: usize = 256;
/// Maximum steps of one sweep.
const BATCHES_MAX: usize = 32;
/// Entries that are learned or looked up between two sweeps. Fewer than one sweep evicts or asks the kernel to forget, and so
/// many that a sweep without effect costs each of them little.
const ENTRIES_PER_SWEEP: usize = 1000;
/// Inodes forgotten by the kernel to evict in one commit. A commit for each would cost more than listing them did.
const FORGOTTEN_BATCH: usize = 256;

/// The CLOCK hand that sweeps over the known entries.
#[derive(Debug, Default)]
pub(crate) struct ClockHand {
    position: Mutex<Position>,
    /// Entries learned or looked up since the last sweep.
    entries: AtomicUsize,
    /// Inodes that the kernel forgot while memory was short, to be evicted together. A sweep evicts those that are left
    /// here.
    forgotten: Mutex<Vec<Ino>>,
}

/// Where the next sweep continues.
#[derive(Debug, Default)]
struct Position {
    /// The directory to sweep next; `None`: the first one.
    dir: Option<Ino>,
    /// The name in that directory after which to continue.
    after: Option<Name>,
    /// The last inode that the kernel was asked to forget.
    asked: Option<Ino>,
}

impl NameEvictor {
    /// Counts entries that were learned or looked up while the names exceed their share of memory. After each
    /// [`ENTRIES_PER_SWEEP`] of them evicts down to three quarters of the share, as far as one sweep gets.
    pub(crate) fn evict_if_needed(&self, entries: usize) -> Result<()> {
        if !self.is_over_share() {
            return Ok(());
        }
        if self.hand.entries.fetch_add(entries, Ordering::Relaxed) + entries < ENTRIES_PER_SWEEP {
            return Ok(());
        }
        self.run_sweep()
    }

    /// Evicts as much as one sweep gets to if the names exceed their share, which may have become smaller.
    pub(crate) fn trim(&self) -> Result<()> {
        if self.is_over_share() { self.run_sweep() } else { Ok(()) }
    }

    /// Returns whether names, or the references of the kernel, exceed their share of memory.
    fn is_over_share(&self) -> bool {
        match self.mount.rules.evicted {
            Evicted::Names => self.names_bytes() > self.share_bytes(),
            // The other half is for the engine.
            Evicted::References => self.references_bytes() > self.share_bytes() / 2,
        }
    }

    /// Sweeps from the position of the hand, and evicts; does nothing while another task sweeps.
    fn run_sweep(&self) -> Result<()> {
        // A sweep of another task is running.
        let Ok(mut position) = self.hand.position.try_lock() else { return Ok(()) };
        self.hand.entries.store(0, Ordering::Relaxed);
        match self.mount.rules.evicted {
            Evicted::Names => self.sweep(&mut position),
            Evicted::References => self.ask_kernel_to_forget(&mut position.asked),
        }
    }

    /// Asks the kernel to forget a bounded number of the inodes that it holds, beginning after `asked`.
    fn ask_kernel_to_forget(&self, asked: &mut Option<Ino>) -> Result<()> {
        for _ in 0..BATCHES_MAX {
            let held = self.names.references().after(*asked, BATCH);
            *asked = held.last().copied();
            for inode in self.names.tables().inodes(&held)?.into_iter().flatten() {
                if let Some((dir, name)) = &inode.home {
                    self.names.request_forget(*dir, name.as_bytes());
                }
            }
            if asked.is_none() || self.names.front_ends().is_busy() {
                break;
            }
        }
        Ok(())
    }

    /// Handles an inode that the kernel has forgotten. While memory is short, such inodes are gathered and evicted in
    /// batches.
    pub(crate) fn evict_forgotten(&self, ino: Ino) -> Result<()> {
        if self.mount.rules.evicted == Evicted::References || !self.is_above_target() {
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
        for inode in self.names.tables().inodes(&together)?.into_iter().flatten() {
            let Some((parent, name)) = inode.home.clone() else { continue };
            by_directory.entry(parent).or_default().push((name, inode));
        }
        for (dir, entries) in by_directory {
            // The directory is gone, and its entries with it.
            let Ok(prefix) = self.mount.layout.directory(self.names.tables(), dir) else { continue };
            self.evict_unused(dir, &prefix, &entries)?;
        }
        Ok(())
    }

    /// Evicts everything that can be read from the bucket again, so that it is read with this mount's settings.
    pub(crate) fn forget_learned(&self) -> Result<()> {
        self.forget_below(Ino::ROOT)
    }

    /// Evicts what can be read from the bucket again in a directory and all below.
    fn forget_below(&self, dir: Ino) -> Result<()> {
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let mut after = None;
        loop {
            let batch = self.names.tables().entries(dir, after.as_ref(), BATCH)?;
            for (_, entry) in batch.iter().filter(|(_, entry)| entry.kind == Kind::Directory) {
                self.forget_below(entry.ino)?;
            }
            let inos: Vec<Ino> = batch.iter().map(|(_, entry)| entry.ino).collect();
            let is_end = batch.len() < BATCH;
            after = batch.last().map(|(name, _)| name.clone());
            let names = batch.into_iter().map(|(name, _)| name).zip(self.names.tables().inodes(&inos)?);
            let entries: Vec<_> = names.filter_map(|(name, inode)| Some((name, inode?))).collect();
            self.evict_unused(dir, &prefix, &entries)?;
            if is_end {
                return Ok(());
            }
        }
    }

    /// Returns the bytes of memory of the names, with what front ends hold of them.
    fn names_bytes(&self) -> u64 {
        self.names.tables().engine().memory_bytes() + self.references_bytes()
    }

    /// Returns the memory that names may take, in bytes.
    fn share_bytes(&self) -> u64 {
        self.mount.memory.share_bytes(Share::Names)
    }

    /// Returns the memory of what front ends hold, in bytes.
    fn references_bytes(&self) -> u64 {
        self.names.references().memory_bytes() as u64
            + self.derived.attached().map_or(0, |views| views.memory_bytes() as u64)
    }

    /// Returns whether the names exceed three quarters of their share, down to which a sweep evicts.
    fn is_above_target(&self) -> bool {
        self.names_bytes() > self.share_bytes() / 4 * 3
    }

    /// Sweeps directories from the position of the hand on, until the sweep is over or has covered all of them.
    fn sweep(&self, hand: &mut Position) -> Result<()> {
        let begun = hand.dir.unwrap_or(Ino(0));
        let (mut from, mut has_wrapped) = (begun, false);
        let mut steps_left = BATCHES_MAX;
        loop {
            match self.names.tables().directory_from(from)? {
                Some(dir) if !has_wrapped || dir < begun => {
                    if hand.dir != Some(dir) {
                        *hand = Position { dir: Some(dir), ..Position::default() };
                    }
                    if self.sweep_directory(dir, &mut hand.after, &mut steps_left)?.is_break() {
                        return Ok(());
                    }
                    from = Ino(dir.0 + 1);
                }
                _ if has_wrapped => break,
                _ => (from, has_wrapped) = (Ino(0), true),
            }
        }
        // The sweep has covered all directories.
        *hand = Position::default();
        Ok(())
    }

    /// Sweeps one directory. Breaks when the sweep is over.
    fn sweep_directory(
        &self,
        dir: Ino,
        after: &mut Option<Name>,
        steps_left: &mut usize,
    ) -> Result<ControlFlow<()>> {
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        loop {
            if *steps_left == 0 || !self.is_above_target() || self.names.front_ends().is_busy() {
                return Ok(ControlFlow::Break(()));
            }
            *steps_left -= 1;
            let batch = self.names.tables().entries(dir, after.as_ref(), BATCH)?;
            let inos: Vec<Ino> = batch.iter().map(|(_, entry)| entry.ino).collect();
            let last = batch.last().map(|(name, _)| name.clone());
            let is_end = batch.len() < BATCH;
            let inodes = self.names.tables().inodes(&inos)?;
            let known: Vec<(Name, Inode)> =
                batch.into_iter().zip(inodes).filter_map(|((name, _), inode)| Some((name, inode?))).collect();
            self.evict_unused(dir, &prefix, &known)?;
            if is_end {
                return Ok(ControlFlow::Continue(()));
            }
            *after = last;
        }
    }

    /// Evicts the entries of a directory that can be read from the bucket again and are unreferenced, and asks the
    /// kernel to forget those that it references. Does nothing while the directory is being listed.
    fn evict_unused(&self, dir: Ino, prefix: &KeyPrefix, entries: &[(Name, Inode)]) -> Result<()> {
        let directory = self.known.directories().get(dir);
        // A listing under way would take evicted names for missing ones.
        let Some(_listing) = directory.listing.try_block() else { return Ok(()) };
        self.names.references().while_frozen(|holds| {
            let mut ops = Vec::new();
            for (name, inode) in entries {
                // A held file is checked fully once the kernel has forgotten it. A directory is checked now, because the kernel
                // forgets everything below it together with it.
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
                    self.names.request_forget(dir, name.as_bytes());
                    if let Some((dir, name)) =
                        self.derived.attached().and_then(|views| views.shown_at(inode.ino))
                    {
                        self.names.request_forget(dir, name.as_bytes());
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
        for evicted in self.names.commit_all(Origin::Other, ops)?.into_iter().flatten() {
            if let Some(inode) = evicted.removed.filter(|inode| inode.kind == Kind::Directory) {
                self.known.directories().remove(inode.ino);
            }
        }
        Ok(())
    }

    /// Returns whether the bucket has all that is known of an entry. A directory must have no known entries.
    fn is_recoverable(&self, place: PrefixedDirectory<'_>, name: &Name, inode: &Inode) -> bool {
        self.may_be_recoverable(inode)
            && self.mount.layout.would_show(place, name, inode)
            && self.names.tables().xattrs(inode.ino).is_ok_and(|xattrs| xattrs.is_empty())
            && (inode.kind != Kind::Directory
                || self.names.tables().entries(inode.ino, None, 1).is_ok_and(|entries| entries.is_empty()))
            && !self.names.awaits_export(inode.ino)
    }

    /// Like `is_recoverable`, but checks only the inode and the open files.
    fn may_be_recoverable(&self, inode: &Inode) -> bool {
        let is_whole = inode.kind == Kind::Directory || (inode.nlink == 1 && inode.object().is_some());
        is_whole && self.content.files().get(inode.ino).is_none()
    }
}

/// Records that a name's absence from the tables no longer means that it does not exist.
fn forget_sort_key(directory: &Directory, name: &Name, kind: Kind) {
    match sort_keys::sort_key(name, kind) {
        Some(text) => directory.forget_up_to(&text),
        None => directory.forget(),
    }
}

impl NameEvictor {
    /// Counts one kernel reference; returns false if the inode was evicted since its lookup.
    pub(crate) fn refer(&self, ino: Ino) -> bool {
        self.names.references().add(ino);
        if let Err(error) = self.evict_if_needed(1) {
            tracing::debug!(%error, "cannot evict inodes; they stay in memory");
        }
        let is_known = self.names.tables().inode(ino).is_ok();
        if !is_known {
            self.names.references().forget(ino, 1);
        }
        is_known
    }

    /// Like `refer`, for many inodes.
    pub(crate) fn refer_all(&self, inos: &[Ino]) -> Result<Vec<bool>> {
        inos.iter().for_each(|ino| self.names.references().add(*ino));
        if let Err(error) = self.evict_if_needed(inos.len()) {
            tracing::debug!(%error, "cannot evict inodes; they stay in memory");
        }
        let known = self.names.tables().inodes(inos);
        let known: Vec<bool> = match known {
            Ok(known) => known.iter().map(Option::is_some).collect(),
            Err(error) => {
                for ino in inos {
                    self.names.references().forget(*ino, 1);
                }
                return Err(error.into());
            }
        };
        for (ino, _) in inos.iter().zip(&known).filter(|(_, is_known)| !**is_known) {
            self.names.references().forget(*ino, 1);
        }
        Ok(known)
    }

    /// Drops `count` kernel references.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        if let Some(views) = self.derived.derived_at(ino) {
            return views.forget(ino, count);
        }
        if !self.names.references().forget(ino, count) {
            return;
        }
        if let Some(views) = self.derived.attached() {
            views.forget_file(ino);
        }
        if let Err(error) = self.evict_forgotten(ino) {
            tracing::debug!(%error, "cannot evict an inode; it stays in memory");
        }
    }
}
