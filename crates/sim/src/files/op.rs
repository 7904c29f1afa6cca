//! Ops of programs, drawn at random with a bias towards existing paths and open files.

use super::fs_model::{FsModel, NodeId, NodeKind};
use super::scenario::Scenario;
use bytes::Bytes;
use store::Entropy;
use vfs::{Handle, Ino};

/// Names of which some sort before and some after `/` in a listing.
const NAMES: [&str; 5] = ["a", "b", "c", "a-", "d"];
const DEPTH_MAX: usize = 3;
/// Length of a run of equal bytes in written data.
const PAGE_BYTES: usize = 512;
const OPEN_MAX: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

/// The mode of an `fallocate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllocateMode {
    Extend,
    Zero,
    ZeroKeepSize,
    Punch,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Op {
    Create { path: String, mode: u16 },
    Open { path: String, writes: bool, truncates: bool },
    Close(usize),
    Write { slot: usize, at: usize, data: Bytes },
    Read { slot: usize, at: usize, len: usize },
    Fsync(usize),
    Resize { slot: usize, size: usize },
    Allocate { slot: usize, mode: AllocateMode, at: usize, len: usize },
    Truncate { path: String, size: usize },
    Chmod { path: String, mode: u16 },
    Mkdir(String),
    Rmdir(String),
    Unlink(String),
    Symlink { path: String, target: Bytes },
    Link { from: String, to: String },
    Rename { from: String, to: String, how: RenameMode },
    Walk,
    Sync,
    Wait(u64),
}

/// A file that a program has open.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenSlot {
    pub(super) handle: Handle,
    pub(super) ino: Ino,
    pub(super) node: NodeId,
    pub(super) writes: bool,
}

/// Draws ops for the current state of a program.
pub(super) struct OpGenerator<'a> {
    pub(super) entropy: &'a Entropy,
    pub(super) model: &'a FsModel,
    pub(super) open: &'a [OpenSlot],
}

impl OpGenerator<'_> {
    pub(super) fn next_op(&self) -> Op {
        match self.open.len() {
            0 => self.name_op(),
            OPEN_MAX.. => self.handle_op(),
            _ if self.below(5) < 3 => self.handle_op(),
            _ => self.name_op(),
        }
    }

    fn handle_op(&self) -> Op {
        let slot = self.below(self.open.len());
        let OpenSlot { node, writes, .. } = self.open[slot];
        let len = self.model.content(node).len();
        match self.below(16) {
            0..=6 if writes => self.write(slot, len),
            7 if writes => Op::Resize { slot, size: self.random_offset(len) },
            8 if writes => self.allocate(slot, len),
            0..=10 => Op::Read { slot, at: self.random_offset(len), len: 1 + self.below(len + 10) },
            11..=12 => Op::Fsync(slot),
            _ => Op::Close(slot),
        }
    }

    fn name_op(&self) -> Op {
        match self.below(40) {
            0..=10 => Op::Create { path: self.random_path(), mode: self.mode() },
            11..=15 => {
                let writes = self.below(4) > 0;
                Op::Open { path: self.likely_path(), writes, truncates: writes && self.below(4) == 0 }
            }
            16 => Op::Truncate { path: self.likely_path(), size: self.random_offset(40) },
            17..=18 => Op::Chmod { path: self.likely_path(), mode: self.mode() },
            19..=21 => Op::Mkdir(self.random_path()),
            22 => Op::Rmdir(self.likely_path()),
            23..=25 => Op::Unlink(self.likely_path()),
            26 => Op::Symlink { path: self.random_path(), target: self.target() },
            27 => Op::Link { from: self.likely_path(), to: self.random_path() },
            28..=33 => self.rename(),
            34..=35 => Op::Walk,
            36 => Op::Sync,
            _ => Op::Wait([1, 400, 1200, 7000][self.below(4)]),
        }
    }

    fn write(&self, slot: usize, len: usize) -> Op {
        let Scenario { write_bytes, gap_bytes, .. } = self.model.scenario;
        let at = match self.below(10) {
            0..=5 => len,
            6..=8 => self.below(len + 1),
            _ => len + self.below(gap_bytes as usize),
        };
        let most = if self.below(4) == 0 { 4 * write_bytes } else { write_bytes };
        let (tag, bytes) = (self.below(255) as u8, 1 + self.below(most as usize));
        let page = |at: usize| tag.wrapping_add((at / PAGE_BYTES) as u8).max(1);
        Op::Write { slot, at, data: (0..bytes).map(page).collect() }
    }

    fn allocate(&self, slot: usize, len: usize) -> Op {
        let mode =
            [AllocateMode::Extend, AllocateMode::Zero, AllocateMode::ZeroKeepSize, AllocateMode::Punch]
                [self.below(4)];
        Op::Allocate { slot, mode, at: self.random_offset(len), len: 1 + self.below(len + 50) }
    }

    fn rename(&self) -> Op {
        let how = [
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ];
        let to = if self.below(3) == 0 { self.likely_path() } else { self.random_path() };
        let (from, how) = (self.likely_path(), how[self.below(how.len())]);
        // The kernel refuses such a rename itself.
        let is_same = how == RenameMode::NoReplace && self.model.node_at(&from) == self.model.node_at(&to);
        Op::Rename { from, to, how: if is_same { RenameMode::Replace } else { how } }
    }

    /// Draws an offset, mostly inside the file and sometimes beyond its end.
    fn random_offset(&self, len: usize) -> usize {
        match self.below(8) {
            0 => 0,
            1 => len,
            2 => len + self.below(self.model.scenario.gap_bytes as usize),
            _ => self.below(len + 1),
        }
    }

    /// Draws a path that mostly exists.
    fn likely_path(&self) -> String {
        let names = self.model.names.current();
        match names.keys().nth(self.below(names.len().max(1))) {
            Some(path) if self.below(12) > 0 => path.clone(),
            _ => self.random_path(),
        }
    }

    /// Draws a name in a random directory.
    fn random_path(&self) -> String {
        let dirs: Vec<&str> = self.directories().collect();
        let dir = dirs[self.below(dirs.len())];
        let name = NAMES[self.below(NAMES.len())];
        if dir.is_empty() { name.into() } else { format!("{dir}/{name}") }
    }

    fn directories(&self) -> impl Iterator<Item = &str> {
        let names = self.model.names.current().iter();
        let inner = names.filter(|(path, node)| {
            self.model.nodes[**node].kind == NodeKind::Directory && path.split('/').count() < DEPTH_MAX
        });
        std::iter::once("").chain(inner.map(|(path, _)| path.as_str()))
    }

    fn target(&self) -> Bytes {
        format!("to/{}", self.below(1000)).into()
    }

    fn mode(&self) -> u16 {
        [0o600, 0o640, 0o644, 0o755, 0o700][self.below(5)]
    }

    fn below(&self, bound: usize) -> usize {
        self.entropy.below(bound as u64) as usize
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Create { path, mode } => write!(f, "create '{path}' {mode:o}"),
            Self::Open { path, writes, truncates } => {
                let how = if *writes { "to write" } else { "to read" };
                write!(f, "open '{path}' {how}{}", if *truncates { ", truncated" } else { "" })
            }
            Self::Close(slot) => write!(f, "close #{slot}"),
            Self::Write { slot, at, data } => {
                write!(f, "write #{slot} {at}..{} {:02x}", at + data.len(), data[0])
            }
            Self::Read { slot, at, len } => write!(f, "read #{slot} {at}..{}", at + len),
            Self::Fsync(slot) => write!(f, "fsync #{slot}"),
            Self::Resize { slot, size } => write!(f, "truncate #{slot} to {size}"),
            Self::Allocate { slot, mode, at, len } => {
                write!(f, "fallocate #{slot} {mode:?} {at}..{}", at + len)
            }
            Self::Truncate { path, size } => write!(f, "truncate '{path}' to {size}"),
            Self::Chmod { path, mode } => write!(f, "chmod '{path}' {mode:o}"),
            Self::Mkdir(path) => write!(f, "mkdir '{path}'"),
            Self::Rmdir(path) => write!(f, "rmdir '{path}'"),
            Self::Unlink(path) => write!(f, "unlink '{path}'"),
            Self::Symlink { path, .. } => write!(f, "symlink '{path}'"),
            Self::Link { from, to } => write!(f, "link '{from}' to '{to}'"),
            Self::Rename { from, to, how } => write!(f, "rename '{from}' to '{to}' {how:?}"),
            Self::Walk => write!(f, "walk"),
            Self::Sync => write!(f, "sync"),
            Self::Wait(ms) => write!(f, "wait {ms} ms"),
        }
    }
}
