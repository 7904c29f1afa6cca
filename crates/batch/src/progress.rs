//! The progress of a job: counters of its ops, and counts and sizes per directory.
//!
//! Numbers only grow. A reader gets them as they were at some recent moment, without waiting for the job.
//!
//! Memory is bounded: beyond [`DIRECTORIES_MAX`] directories, changes count only in the totals.

use crate::op_log::{LogDamage, OpLogReader};
use meta::{Ino, Kind, Op, OpRecord, RenameHow};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::Timestamp;

/// Maximum number of directories with counts of their own.
const DIRECTORIES_MAX: usize = 1 << 16;

/// Multiplier that spreads inode numbers over a hash table: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The progress of one job.
#[derive(Debug, Default)]
pub struct Progress {
    counted: Mutex<Counted>,
}

/// Numbers of a whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Ops in the log.
    pub ops: u64,
    /// Files and other entries without children that were created.
    pub files: u64,
    /// Directories that were created.
    pub directories: u64,
    /// Names that were removed.
    pub removed: u64,
    /// Renames.
    pub renames: u64,
    /// Contents that were stored.
    pub writes: u64,
    /// Length of these contents, in bytes.
    pub bytes: u64,
    /// Time of the last op.
    pub last: Option<Timestamp>,
}

/// Numbers of one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectoryCounts {
    /// Names that were added: created, linked or moved here.
    pub added: u64,
    /// Names that were removed, or moved elsewhere.
    pub removed: u64,
    /// Length of the contents that were stored in files of the directory, in bytes.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counted {
    totals: Totals,
    directories: HashMap<Ino, DirectoryCounts, BuildHasherDefault<InoHasher>>,
}

/// A hash of inode numbers, which the volume allocates and no job can choose.
#[derive(Debug, Default)]
struct InoHasher(u64);

impl Progress {
    /// Reads the progress of a job that is not open from its log ([`log_path`](crate::log_path) of its directory), up to the end or the first
    /// damaged page. The sizes of files are in the totals only.
    pub fn read(log: &Path) -> Result<Self, LogDamage> {
        let progress = Self::default();
        let mut reader = OpLogReader::open(log)?;
        while let Ok(Some(page)) = reader.next_page() {
            page.iter().for_each(|record| progress.count(record, None));
        }
        Ok(progress)
    }

    /// Returns the numbers of the whole job.
    pub fn totals(&self) -> Totals {
        self.counted().totals
    }

    /// Returns the `limit` directories with the most bytes, or with the most names among those with equal bytes, and the number of the others.
    pub fn largest_directories(&self, limit: usize) -> (Vec<(Ino, DirectoryCounts)>, usize) {
        let mut all: Vec<_> =
            self.counted().directories.iter().map(|(ino, counts)| (*ino, *counts)).collect();
        let order = |(ino, counts): &(Ino, DirectoryCounts)| {
            (std::cmp::Reverse((counts.bytes, counts.added, counts.removed)), *ino)
        };
        let others = all.len().saturating_sub(limit);
        if others > 0 && limit > 0 {
            all.select_nth_unstable_by_key(limit, order);
        }
        all.truncate(limit);
        all.sort_unstable_by_key(order);
        (all, others)
    }

    /// Counts an op. `home` is the directory of the inode that the op writes to, if it is known.
    pub(crate) fn count(&self, OpRecord { context, op, .. }: &OpRecord, home: Option<Ino>) {
        let counted = &mut *self.counted();
        counted.totals.ops += 1;
        counted.totals.last = counted.totals.last.max(Some(context.now));
        match op {
            Op::Create { parent, kind, .. } => {
                match kind {
                    Kind::Directory => counted.totals.directories += 1,
                    _ => counted.totals.files += 1,
                }
                counted.add(Some(*parent), |counts| counts.added += 1);
            }
            Op::Link { parent, .. } => counted.add(Some(*parent), |counts| counts.added += 1),
            Op::Unlink { parent, .. } | Op::Rmdir { parent, .. } => {
                counted.totals.removed += 1;
                counted.add(Some(*parent), |counts| counts.removed += 1);
            }
            Op::Rename { from, to, how, .. } => {
                counted.totals.renames += 1;
                if *how != RenameHow::Exchange && from.0 != to.0 {
                    counted.add(Some(from.0), |counts| counts.removed += 1);
                    counted.add(Some(to.0), |counts| counts.added += 1);
                }
            }
            Op::Publish { content, .. } | Op::Splice { content, .. } => {
                let bytes: u64 = content.iter().map(|extent| extent.len).sum();
                counted.totals.writes += 1;
                counted.totals.bytes += bytes;
                counted.add(home, |counts| counts.bytes += bytes);
            }
            _ => {}
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// Changes the counts of a directory. Does nothing for an unknown directory, or for a new one beyond [`DIRECTORIES_MAX`].
    fn add(&mut self, dir: Option<Ino>, change: impl FnOnce(&mut DirectoryCounts)) {
        let Some(dir) = dir else { return };
        if self.directories.len() < DIRECTORIES_MAX {
            change(self.directories.entry(dir).or_default());
        } else if let Some(counts) = self.directories.get_mut(&dir) {
            change(counts);
        }
    }
}

impl Hasher for InoHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // A hash table takes the bucket from the low bits and a tag from the high bits, and the product spreads only to the high bits.
        let product = (self.0 ^ number).wrapping_mul(SPREAD);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
