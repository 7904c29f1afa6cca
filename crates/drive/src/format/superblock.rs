//! The superblock: identity and geometry of the drive, and the place of its newest manifest.
//!
//! There are two copies, in the first and the second row of the device. An update writes one copy, flushes, writes the other and
//! flushes, so that one copy is intact at any time. If both are, the one of the later generation counts.

use super::Run;
use crate::codec::{Decoder, Encoder, crc32c};
use crate::device::BLOCK_BYTES;

/// The length of one copy, in bytes; zeros fill the rest of its row.
pub(crate) const SUPERBLOCK_BYTES: u64 = BLOCK_BYTES;

/// The longest manifest, in bytes. A manifest is read into memory as a whole.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 30;

/// The version of all formats of the device.
pub(crate) const VERSION: u8 = 2;

/// The first bytes of every superblock.
pub(crate) const MAGIC: [u8; 8] = [b't', b'e', b'n', b'o', b'n', b'd', 0, VERSION];

/// The identity of a drive, drawn at random when it is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DriveId {
    pub(crate) id: u64,
    /// A secret number at the beginning of every frame. It keeps clients from storing an object that could be taken for a frame.
    pub(crate) salt: u64,
}

/// The division of the device into zones and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// The number of blocks in use, a multiple of the zone size.
    pub(crate) blocks: u64,
    /// The number of blocks of a zone, a multiple of the row size.
    pub(crate) zone_blocks: u64,
    /// The number of blocks of a row. Runs and frames are whole rows, as the device is written in rows only.
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

    /// Rounds a number of blocks up to whole rows.
    pub(crate) fn round_up_to_rows(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.row_blocks)
    }

    /// Returns whether a run lies on the device and consists of whole rows.
    pub(crate) fn contains(&self, run: Run) -> bool {
        run.end() <= self.blocks && [run.start, run.blocks].iter().all(|n| n.is_multiple_of(self.row_blocks))
    }

    /// Returns the position of a copy of the superblock, in bytes.
    pub(crate) fn superblock_at(&self, copy: u64) -> u64 {
        copy * self.row_bytes()
    }

    /// Returns the rows of both copies of the superblock.
    pub(crate) fn superblocks(&self) -> Run {
        Run { start: 0, blocks: 2 * self.row_blocks }
    }

    /// Returns the position of a zone, in bytes.
    pub(crate) fn zone_at(&self, zone: u64) -> u64 {
        zone * self.zone_bytes()
    }

    /// Returns the blocks of a zone.
    pub(crate) fn zone_run(&self, zone: u64) -> Run {
        Run { start: zone * self.zone_blocks, blocks: self.zone_blocks }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) drive: DriveId,
    pub(crate) geometry: Geometry,
    /// Number of manifests written so far.
    pub(crate) generation: u64,
    /// The manifest's run; the following fields are its length in bytes and its checksum.
    pub(crate) manifest: Run,
    pub(crate) manifest_bytes: u64,
    pub(crate) manifest_sum: u32,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder(MAGIC.to_vec());
        to.fixed64(self.drive.id);
        to.fixed64(self.drive.salt);
        for number in [self.geometry.blocks, self.geometry.zone_blocks, self.generation] {
            to.fixed64(number);
        }
        for number in [self.manifest.start, self.manifest.blocks, self.manifest_bytes] {
            to.fixed64(number);
        }
        to.fixed32(self.manifest_sum);
        to.fixed32(self.geometry.row_blocks as u32);
        to.0.resize(SUPERBLOCK_BYTES as usize - 4, 0);
        let sum = crc32c(&to.0);
        to.fixed32(sum);
        to.0
    }

    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        let (fields, stored) = block.split_last_chunk::<4>()?;
        if crc32c(fields) != u32::from_le_bytes(*stored) {
            return None;
        }
        let mut from = Decoder(fields.strip_prefix(&MAGIC)?);
        let drive = DriveId { id: from.fixed64()?, salt: from.fixed64()? };
        let (blocks, zone_blocks) = (from.fixed64()?, from.fixed64()?);
        let generation = from.fixed64()?;
        let manifest = Run { start: from.fixed64()?, blocks: from.fixed64()? };
        let (manifest_bytes, manifest_sum) = (from.fixed64()?, from.fixed32()?);
        // Drives formatted before rows were introduced have a zero here.
        let row_blocks = u64::from(from.fixed32()?).max(1);
        let geometry = Geometry { blocks, zone_blocks, row_blocks };
        let fits = (1..=geometry.blocks).contains(&geometry.zone_blocks)
            && geometry.blocks.checked_mul(BLOCK_BYTES).is_some()
            && geometry.zone_blocks.is_multiple_of(row_blocks)
            && manifest.len_bytes_checked()? <= MANIFEST_BYTES_MAX
            && manifest.start.checked_add(manifest.blocks).is_some()
            && geometry.contains(manifest)
            && manifest_bytes <= manifest.blocks * BLOCK_BYTES;
        fits.then_some(Self { drive, geometry, generation, manifest, manifest_bytes, manifest_sum })
    }

    /// Returns whether a block begins like a superblock of any version.
    pub(crate) fn has_magic(block: &[u8]) -> bool {
        block.starts_with(&MAGIC[..7])
    }

    /// Returns the version of an intact superblock whose version is not [`VERSION`].
    pub(crate) fn other_version(block: &[u8]) -> Option<u8> {
        let (fields, stored) = block.split_last_chunk::<4>()?;
        let is_whole = Self::has_magic(block) && crc32c(fields) == u32::from_le_bytes(*stored);
        fields.get(7).copied().filter(|version| is_whole && *version != VERSION)
    }
}
