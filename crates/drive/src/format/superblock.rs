//! The superblock: which drive this is, how it is laid out, and where its newest manifest lies.
//!
//! There are two copies, at the device's beginning and in its second row. A change writes one, flushes, writes the
//! other and flushes: one of them is whole at any time, and of two that are the one of the later generation counts.

use super::Run;
use crate::device::BLOCK_BYTES;
use crate::wire::{Decoder, Encoder, sum};

/// The length of one copy; zeros fill its row.
pub(crate) const SUPERBLOCK_BYTES: u64 = BLOCK_BYTES;

/// A manifest is read into memory as a whole: none is longer, in bytes.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 30;

/// The version of all formats of the device.
pub(crate) const VERSION: u8 = 2;

/// What every superblock begins with.
const MAGIC: [u8; 8] = [b't', b'e', b'n', b'o', b'n', b'd', 0, VERSION];

/// Which drive: drawn when it was formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DriveId {
    /// By which it is known.
    pub(crate) id: u64,
    /// What frames begin with, and nobody is told, so that nobody stores an object that is taken for a frame.
    pub(crate) salt: u64,
}

/// How the device is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// The blocks in use: whole zones.
    pub(crate) blocks: u64,
    /// The blocks of a zone: whole rows.
    pub(crate) zone_blocks: u64,
    /// The blocks of a row, which is what the device is written by: runs and frames are whole rows.
    pub(crate) row_blocks: u64,
}

impl Geometry {
    pub(crate) fn zones(&self) -> u64 {
        self.blocks / self.zone_blocks
    }

    pub(crate) fn zone_bytes(&self) -> u64 {
        self.zone_blocks * BLOCK_BYTES
    }

    pub(crate) fn row_bytes(&self) -> u64 {
        self.row_blocks * BLOCK_BYTES
    }

    /// So many blocks, and what is left of the last row.
    pub(crate) fn in_rows(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.row_blocks)
    }

    /// Whether a run is whole rows of the device.
    pub(crate) fn holds(&self, run: Run) -> bool {
        run.end() <= self.blocks && [run.start, run.blocks].iter().all(|n| n.is_multiple_of(self.row_blocks))
    }

    /// Where a copy of the superblock lies, in bytes.
    pub(crate) fn superblock_at(&self, copy: u64) -> u64 {
        copy * self.row_bytes()
    }

    /// The rows of both copies of the superblock.
    pub(crate) fn superblocks(&self) -> Run {
        Run { start: 0, blocks: 2 * self.row_blocks }
    }

    /// Where a zone begins, in bytes.
    pub(crate) fn zone_at(&self, zone: u64) -> u64 {
        zone * self.zone_bytes()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) drive: DriveId,
    pub(crate) geometry: Geometry,
    /// Counts manifests.
    pub(crate) generation: u64,
    /// Where the manifest lies, and its length in bytes and checksum.
    pub(crate) manifest: Run,
    pub(crate) manifest_bytes: u64,
    pub(crate) manifest_sum: u32,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder(MAGIC.to_vec());
        to.fixed(self.drive.id);
        to.fixed(self.drive.salt);
        for number in [self.geometry.blocks, self.geometry.zone_blocks, self.generation] {
            to.fixed(number);
        }
        for number in [self.manifest.start, self.manifest.blocks, self.manifest_bytes] {
            to.fixed(number);
        }
        to.fixed32(self.manifest_sum);
        to.fixed32(self.geometry.row_blocks as u32);
        to.0.resize(SUPERBLOCK_BYTES as usize - 4, 0);
        let sum = sum(&to.0);
        to.fixed32(sum);
        to.0
    }

    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        let (fields, stored) = block.split_last_chunk::<4>()?;
        if sum(fields) != u32::from_le_bytes(*stored) {
            return None;
        }
        let mut from = Decoder(fields.strip_prefix(&MAGIC)?);
        let drive = DriveId { id: from.fixed()?, salt: from.fixed()? };
        let (blocks, zone_blocks) = (from.fixed()?, from.fixed()?);
        let generation = from.fixed()?;
        let manifest = Run { start: from.fixed()?, blocks: from.fixed()? };
        let (manifest_bytes, manifest_sum) = (from.fixed()?, from.fixed32()?);
        // Drives of before there were rows have a zero here.
        let row_blocks = u64::from(from.fixed32()?).max(1);
        let geometry = Geometry { blocks, zone_blocks, row_blocks };
        let fits = (1..=geometry.blocks).contains(&geometry.zone_blocks)
            && geometry.blocks.checked_mul(BLOCK_BYTES).is_some()
            && geometry.zone_blocks.is_multiple_of(row_blocks)
            && manifest.len_bytes_checked()? <= MANIFEST_BYTES_MAX
            && manifest.start.checked_add(manifest.blocks).is_some()
            && geometry.holds(manifest)
            && manifest_bytes <= manifest.blocks * BLOCK_BYTES;
        fits.then_some(Self { drive, geometry, generation, manifest, manifest_bytes, manifest_sum })
    }

    /// Whether a block was meant to be a superblock, of whatever version.
    pub(crate) fn is_meant(block: &[u8]) -> bool {
        block.starts_with(&MAGIC[..7])
    }

    /// The version of a whole superblock that is of another one.
    pub(crate) fn foreign_version(block: &[u8]) -> Option<u8> {
        let (fields, stored) = block.split_last_chunk::<4>()?;
        let is_whole = Self::is_meant(block) && sum(fields) == u32::from_le_bytes(*stored);
        fields.get(7).copied().filter(|version| is_whole && *version != VERSION)
    }
}
