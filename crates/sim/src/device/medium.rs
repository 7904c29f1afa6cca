//! The bytes of a simulated device: durable blocks, visible blocks, and the unflushed writes between the two.

use drive::device::BLOCK_BYTES;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use store::Entropy;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The unit of atomic writes, in bytes.
const SECTOR: usize = 512;

/// Number of a write in the order in which writes returned.
pub(super) type WriteId = u64;

/// The bytes of a block, shared until they change.
type Block = Arc<[u8]>;

/// Blocks by number; a missing block is all zeros.
#[derive(Clone, Default)]
struct Blocks(Vec<Option<Block>>);

#[derive(Clone, Default)]
pub(super) struct Medium {
    /// Blocks that survive a power cut.
    stable: Blocks,
    /// Blocks as a reader sees them: the stable blocks with the unflushed writes applied.
    visible: Blocks,
    /// Unflushed writes, ordered by id.
    unflushed: Vec<Write>,
    written: WriteId,
    /// Blocks that are unreadable until they are written: now, and after a power cut.
    unreadable: BTreeSet<u64>,
    unreadable_stable: BTreeSet<u64>,
    /// Blocks with a flipped bit, until they are written.
    flipped: BTreeSet<u64>,
}

impl Blocks {
    fn get(&self, number: u64) -> Option<&Block> {
        self.0.get(number as usize)?.as_ref()
    }

    /// Returns the slot of a block.
    fn slot(&mut self, number: u64) -> &mut Option<Block> {
        let number = number as usize;
        if self.0.len() <= number {
            self.0.resize(number + 1, None);
        }
        &mut self.0[number]
    }

    fn put(&mut self, number: u64, block: Block) {
        *self.slot(number) = Some(block);
    }

    /// Returns the bytes of a block for changes.
    fn bytes_mut(&mut self, number: u64) -> &mut [u8] {
        let block = self.slot(number).get_or_insert_with(|| Arc::new([0; BLOCK]));
        Arc::make_mut(block)
    }

    fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }
}

impl Write {
    fn has(&self, number: u64) -> bool {
        self.blocks.binary_search_by_key(&number, |(number, _)| *number).is_ok()
    }
}

/// Splits bytes at a position on the device into blocks with their numbers.
fn numbered_blocks(at: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, Block)> + use<'_> {
    (at / BLOCK_BYTES..).zip(bytes.chunks_exact(BLOCK)).map(|(number, block)| (number, block.into()))
}

/// Omits the bytes, which can be hundreds of megabytes.
impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (blocks, unflushed) = (self.visible.count(), self.unflushed.len());
        f.debug_struct("Medium")
            .field("blocks", &blocks)
            .field("unflushed", &unflushed)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Write {
    id: WriteId,
    /// Blocks in ascending order of their numbers.
    blocks: Vec<(u64, Block)>,
    /// A flush of the write has failed, so that no later flush makes it durable.
    in_doubt: bool,
}

impl Medium {
    pub(super) fn read(&self, at: u64, into: &mut [u8]) {
        for (number, into) in (at / BLOCK_BYTES..).zip(into.chunks_exact_mut(BLOCK)) {
            match self.visible.get(number) {
                Some(block) => into.copy_from_slice(block),
                None => into.fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, at: u64, from: &[u8]) {
        self.write_blocks(numbered_blocks(at, from).collect());
    }

    fn write_blocks(&mut self, blocks: Vec<(u64, Block)>) {
        for (number, block) in &blocks {
            self.visible.put(*number, block.clone());
            self.unreadable.remove(number);
            self.flipped.remove(number);
        }
        self.unflushed.push(Write { id: self.written, blocks, in_doubt: false });
        self.written += 1;
    }

    /// Applies a failed write: a random part of its sectors is written. An unreadable block stays unreadable unless all of its
    /// sectors are.
    pub(super) fn write_torn(&mut self, at: u64, from: &[u8], seed: u64) {
        let mut torn = vec![0; from.len()];
        self.read(at, &mut torn);
        let survives = tear(&Entropy::new(seed), from.len());
        for (n, _) in survives.iter().enumerate().filter(|(_, survives)| **survives) {
            let sector = n * SECTOR..(n + 1) * SECTOR;
            torn[sector.clone()].copy_from_slice(&from[sector]);
        }
        let is_whole =
            survives.chunks(BLOCK / SECTOR).map(|sectors| sectors.iter().all(|survives| *survives));
        let written = numbered_blocks(at, &torn).zip(is_whole);
        let written =
            written.filter(|((number, _), is_whole)| *is_whole || !self.unreadable.contains(number));
        self.write_blocks(written.map(|(block, _)| block).collect());
    }

    /// Returns the id that the next returning write will get.
    pub(super) fn next_write(&self) -> WriteId {
        self.written
    }

    pub(super) fn unflushed(&self) -> usize {
        self.unflushed.len()
    }

    /// Makes the writes before `before` durable, except for those in doubt.
    pub(super) fn flush(&mut self, before: WriteId) {
        let writes = std::mem::take(&mut self.unflushed);
        let (flushed, mut left): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|write| write.id < before && !write.in_doubt);
        for write in flushed {
            // An older write that is in doubt must not overwrite this one in a later crash.
            for older in left.iter_mut().filter(|older| older.id < write.id) {
                older.blocks.retain(|(number, _)| !write.has(*number));
            }
            for (number, block) in write.blocks {
                self.unreadable_stable.remove(&number);
                self.stable.put(number, block);
            }
        }
        left.retain(|write| !write.blocks.is_empty());
        self.unflushed = left;
    }

    /// Records a failed flush: the writes before `before` are in doubt.
    pub(super) fn mark_in_doubt(&mut self, before: WriteId) {
        self.unflushed.iter_mut().filter(|write| write.id < before).for_each(|write| write.in_doubt = true);
    }

    /// Applies a power cut: unflushed writes survive as the seed determines. One in `spoils` blocks that were being changed becomes
    /// unreadable, as on a disk whose power fails in the middle of a sector; 0: none. Returns the number of such blocks.
    pub(super) fn crash(&mut self, seed: u64, spoils: u64) -> u64 {
        let entropy = Entropy::new(seed);
        let mode = SurvivalMode::draw(&entropy);
        let mut writes = std::mem::take(&mut self.unflushed);
        shuffle(&entropy, &mut writes);
        let mut spoiled = BTreeSet::new();
        for write in &writes {
            let survives = mode.surviving_sectors(&entropy, write.blocks.len() * BLOCK);
            for ((number, block), survives) in write.blocks.iter().zip(survives.chunks(BLOCK / SECTOR)) {
                let is_changed = self.stable.get(*number) != Some(block);
                if spoils > 0 && is_changed && entropy.below(spoils) == 0 {
                    spoiled.insert(*number);
                } else if survives.iter().all(|survives| *survives) {
                    self.unreadable_stable.remove(number);
                    spoiled.remove(number);
                }
            }
            apply_sectors(&mut self.stable, write, &survives);
        }
        self.unreadable_stable.extend(&spoiled);
        for (number, _) in writes.iter().flat_map(|write| &write.blocks) {
            *self.visible.slot(*number) = self.stable.get(*number).cloned();
            match self.unreadable_stable.contains(number) {
                true => self.unreadable.insert(*number),
                false => self.unreadable.remove(number),
            };
        }
        spoiled.len() as u64
    }

    /// Makes a block unreadable until it is written.
    pub(super) fn spoil(&mut self, block: u64) {
        self.unreadable.insert(block);
        self.unreadable_stable.insert(block);
    }

    /// Returns the number of unreadable blocks in a range, and of blocks with a flipped bit.
    pub(super) fn count_bad_blocks(&self, blocks: Range<u64>) -> (u64, u64) {
        let unreadable = self.unreadable.range(blocks.clone()).count() as u64;
        (unreadable, self.flipped.range(blocks).count() as u64)
    }

    /// Whether a block was ever written.
    pub(super) fn was_written(&self, block: u64) -> bool {
        self.visible.get(block).is_some()
    }

    pub(super) fn flip(&mut self, seed: u64, range: Range<u64>) -> u64 {
        let entropy = Entropy::new(seed);
        let at = range.start + entropy.below(range.end - range.start);
        let bit = 1 << entropy.below(8);
        let (block, byte) = (at / BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
        self.flipped.insert(block);
        for copies in [&mut self.stable, &mut self.visible] {
            copies.bytes_mut(block)[byte] ^= bit;
        }
        for write in &mut self.unflushed {
            if let Ok(slot) = write.blocks.binary_search_by_key(&block, |(number, _)| *number) {
                Arc::make_mut(&mut write.blocks[slot].1)[byte] ^= bit;
            }
        }
        at
    }
}

/// The fate of unflushed writes in a power cut. One cut in six loses all of them, and one in six keeps all.
#[derive(Debug, Clone, Copy)]
enum SurvivalMode {
    LoseAll,
    KeepAll,
    Mixed,
}

impl SurvivalMode {
    fn draw(entropy: &Entropy) -> Self {
        match entropy.below(6) {
            0 => Self::LoseAll,
            1 => Self::KeepAll,
            _ => Self::Mixed,
        }
    }

    /// Returns for each sector of a write whether it survives.
    fn surviving_sectors(self, entropy: &Entropy, bytes: usize) -> Vec<bool> {
        let sectors = bytes / SECTOR;
        match self {
            Self::LoseAll => vec![false; sectors],
            Self::KeepAll => vec![true; sectors],
            Self::Mixed => match entropy.below(3) {
                0 => vec![false; sectors],
                1 => vec![true; sectors],
                _ => tear(entropy, bytes),
            },
        }
    }
}

/// Draws which sectors of a torn write survive: its beginning, its end, or random sectors or blocks.
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

/// Writes the surviving sectors of a write to the stable blocks.
fn apply_sectors(stable: &mut Blocks, write: &Write, survives: &[bool]) {
    for ((number, from), survives) in write.blocks.iter().zip(survives.chunks(BLOCK / SECTOR)) {
        match survives.iter().filter(|survives| **survives).count() {
            0 => continue,
            count if count == survives.len() => {
                stable.put(*number, from.clone());
                continue;
            }
            _ => {}
        }
        let into = stable.bytes_mut(*number);
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
