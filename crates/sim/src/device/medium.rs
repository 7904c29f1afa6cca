//! The bytes of a simulated device: what is on the medium, what a reader sees, and the writes in between.

use drive::device::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use store::Entropy;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The least that is written wholly or not at all, in bytes.
const SECTOR: usize = 512;

/// Writes in the order in which they returned.
pub(super) type WriteId = u64;

/// Blocks by number, zeros where there is none. A block is shared by all who hold it until it changes.
type Blocks = BTreeMap<u64, Arc<[u8; BLOCK]>>;

#[derive(Clone, Default)]
pub(super) struct Medium {
    /// What no loss of power takes away.
    stable: Blocks,
    /// What a reader sees.
    seen: Blocks,
    /// In the order of their ids.
    unflushed: Vec<Write>,
    written: WriteId,
}

/// Without the bytes: nobody reads hundreds of megabytes of them.
impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (blocks, unflushed) = (self.seen.len(), self.unflushed.len());
        f.debug_struct("Medium")
            .field("blocks", &blocks)
            .field("unflushed", &unflushed)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Write {
    id: WriteId,
    blocks: Blocks,
    /// A flush of it has failed: no later one makes it safe.
    in_doubt: bool,
}

impl Medium {
    pub(super) fn read(&self, at: u64, into: &mut [u8]) {
        for (block, into) in (at / BLOCK_BYTES..).zip(into.chunks_exact_mut(BLOCK)) {
            into.copy_from_slice(&*bytes_of(&self.seen, block));
        }
    }

    pub(super) fn write(&mut self, at: u64, from: &[u8]) {
        let numbered = (at / BLOCK_BYTES..).zip(from.chunks_exact(BLOCK));
        let blocks: Blocks = numbered.map(|(block, bytes)| (block, copied(bytes))).collect();
        self.seen.extend(blocks.iter().map(|(block, bytes)| (*block, bytes.clone())));
        self.unflushed.push(Write { id: self.written, blocks, in_doubt: false });
        self.written += 1;
    }

    /// A write that failed on its way.
    pub(super) fn write_torn(&mut self, at: u64, from: &[u8], seed: u64) {
        let mut torn = vec![0; from.len()];
        self.read(at, &mut torn);
        let survives = tear(&Entropy::new(seed), from.len());
        for (n, _) in survives.iter().enumerate().filter(|(_, survives)| **survives) {
            let sector = n * SECTOR..(n + 1) * SECTOR;
            torn[sector.clone()].copy_from_slice(&from[sector]);
        }
        self.write(at, &torn);
    }

    /// The id that the next write to return will have.
    pub(super) fn next_write(&self) -> WriteId {
        self.written
    }

    pub(super) fn unflushed(&self) -> usize {
        self.unflushed.len()
    }

    /// Writes before that one are on the medium.
    pub(super) fn flush(&mut self, before: WriteId) {
        let writes = std::mem::take(&mut self.unflushed);
        let (flushed, mut left): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|write| write.id < before && !write.in_doubt);
        for write in flushed {
            // What is older and in doubt cannot come back over it.
            for older in left.iter_mut().filter(|older| older.id < write.id) {
                older.blocks.retain(|block, _| !write.blocks.contains_key(block));
            }
            self.stable.extend(write.blocks);
        }
        left.retain(|write| !write.blocks.is_empty());
        self.unflushed = left;
    }

    /// A flush of the writes before that one has failed.
    pub(super) fn doubt(&mut self, before: WriteId) {
        self.unflushed.iter_mut().filter(|write| write.id < before).for_each(|write| write.in_doubt = true);
    }

    /// Only what is stable stays, and what the seed leaves of the rest.
    pub(super) fn crash(&mut self, seed: u64) {
        let entropy = Entropy::new(seed);
        let mood = Mood::of(&entropy);
        let mut writes = std::mem::take(&mut self.unflushed);
        shuffle(&entropy, &mut writes);
        for write in writes {
            let survives = mood.of_write(&entropy, write.blocks.len() * BLOCK);
            settle(&mut self.stable, &write, &survives);
        }
        self.seen = self.stable.clone();
    }

    pub(super) fn flip(&mut self, seed: u64, range: Range<u64>) -> u64 {
        let entropy = Entropy::new(seed);
        let at = range.start + entropy.below(range.end - range.start);
        let bit = 1 << entropy.below(8);
        let (block, byte) = (at / BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
        for copies in [&mut self.stable, &mut self.seen] {
            Arc::make_mut(copies.entry(block).or_insert_with(zeros))[byte] ^= bit;
        }
        for write in &mut self.unflushed {
            if let Some(bytes) = write.blocks.get_mut(&block) {
                Arc::make_mut(bytes)[byte] ^= bit;
            }
        }
        at
    }
}

/// How a loss of power goes: extremes are as likely as anything in between.
#[derive(Debug, Clone, Copy)]
enum Mood {
    AllIsLost,
    AllSurvives,
    Mixed,
}

impl Mood {
    fn of(entropy: &Entropy) -> Self {
        match entropy.below(6) {
            0 => Self::AllIsLost,
            1 => Self::AllSurvives,
            _ => Self::Mixed,
        }
    }

    /// Which sectors of a write survive.
    fn of_write(self, entropy: &Entropy, bytes: usize) -> Vec<bool> {
        let sectors = bytes / SECTOR;
        match self {
            Self::AllIsLost => vec![false; sectors],
            Self::AllSurvives => vec![true; sectors],
            Self::Mixed => match entropy.below(3) {
                0 => vec![false; sectors],
                1 => vec![true; sectors],
                _ => tear(entropy, bytes),
            },
        }
    }
}

/// A write in part: its beginning, its end, or any sectors or blocks of it.
fn tear(entropy: &Entropy, bytes: usize) -> Vec<bool> {
    let sectors = bytes / SECTOR;
    let cut = entropy.below(sectors as u64 + 1) as usize;
    match entropy.below(4) {
        0 => (0..sectors).map(|sector| sector < cut).collect(),
        1 => (0..sectors).map(|sector| sector >= cut).collect(),
        2 => (0..sectors).map(|_| entropy.below(2) == 0).collect(),
        _ => {
            let blocks: Vec<bool> = (0..bytes / BLOCK).map(|_| entropy.below(2) == 0).collect();
            (0..sectors).map(|sector| blocks[sector * SECTOR / BLOCK]).collect()
        }
    }
}

/// Puts the sectors of a write that survive where they belong.
fn settle(stable: &mut Blocks, write: &Write, survives: &[bool]) {
    for ((block, from), survives) in write.blocks.iter().zip(survives.chunks(BLOCK / SECTOR)) {
        let into = Arc::make_mut(stable.entry(*block).or_insert_with(zeros));
        for (n, _) in survives.iter().enumerate().filter(|(_, survives)| **survives) {
            let sector = n * SECTOR..(n + 1) * SECTOR;
            into[sector.clone()].copy_from_slice(&from[sector]);
        }
    }
}

fn shuffle<T>(entropy: &Entropy, items: &mut [T]) {
    for n in (1..items.len()).rev() {
        items.swap(n, entropy.below(n as u64 + 1) as usize);
    }
}

fn bytes_of(blocks: &Blocks, block: u64) -> Arc<[u8; BLOCK]> {
    blocks.get(&block).cloned().unwrap_or_else(zeros)
}

fn zeros() -> Arc<[u8; BLOCK]> {
    Arc::new([0; BLOCK])
}

fn copied(bytes: &[u8]) -> Arc<[u8; BLOCK]> {
    let mut block = zeros();
    Arc::make_mut(&mut block).copy_from_slice(bytes);
    block
}
