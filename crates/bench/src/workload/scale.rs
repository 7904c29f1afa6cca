//! Numbers and sizes of files.

use super::job::FileKind;
use serde::{Deserialize, Serialize};

/// Numbers and sizes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Number of big files.
    pub big_files: usize,
    /// Size of a big file.
    pub big_bytes: u64,
    /// Number of small files.
    pub small_files: usize,
    /// Size of a small file.
    pub small_bytes: u64,
    /// Size of the single file that is accessed at random offsets.
    pub single_bytes: u64,
    /// Number of empty files.
    pub empty_files: usize,
    /// Number of blocks at random offsets that each thread reads or writes.
    pub blocks: u64,
}

impl Scale {
    /// Smallest scale, for tests: seconds.
    pub const TINY: Self = Self {
        big_files: 8,
        big_bytes: 2 << 20,
        small_files: 64,
        small_bytes: 64 << 10,
        single_bytes: 8 << 20,
        empty_files: 100,
        blocks: 64,
    };
    /// Default scale: minutes.
    pub const SMALL: Self = Self {
        big_files: 8,
        big_bytes: 64 << 20,
        small_files: 1024,
        small_bytes: 64 << 10,
        single_bytes: 256 << 20,
        empty_files: 10_000,
        blocks: 2000,
    };
    /// Scale of the paper: 8 files of 1 GiB, 32,768 files of 64 KiB.
    pub const PAPER: Self = Self {
        big_files: 8,
        big_bytes: 1 << 30,
        small_files: 32_768,
        small_bytes: 64 << 10,
        single_bytes: 1 << 30,
        empty_files: 100_000,
        blocks: 20_000,
    };

    /// Returns the number and the size of files of a kind.
    pub(super) fn files(&self, kind: FileKind) -> (usize, u64) {
        match kind {
            FileKind::Big => (self.big_files, self.big_bytes),
            FileKind::Small => (self.small_files, self.small_bytes),
            FileKind::Single => (1, self.single_bytes),
            FileKind::Empty => (self.empty_files, 0),
        }
    }
}
