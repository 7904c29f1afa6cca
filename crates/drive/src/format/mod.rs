//! Every byte on the device, drawn in `docs/format.md`: pure functions between bytes and values.
//!
//! Invariants: what was encoded decodes to the same; anything else decodes to `None`, never to a panic, and is never
//! held before its length was checked.

mod frame;
mod keys;
mod manifest;
mod record;
mod superblock;

pub(crate) use frame::{Change, FRAME_HEADER_BYTES, Frame, FrameHeader, FrameWriter};
pub(crate) use keys::{BucketId, IndexKey, Kind};
pub(crate) use manifest::{Manifest, TableEntry, Zone};
pub(crate) use record::{
    Body, Extent, Head, Naming, ObjectRecord, Piece, decode_description, encode_description,
};
pub(crate) use superblock::{DriveId, Geometry, MANIFEST_BYTES_MAX, SUPERBLOCK_BYTES, Superblock, VERSION};

use crate::device::BLOCK_BYTES;
use crate::wire::{Decoder, Encoder};

/// No frame and no write has this number or a greater one, so that the next always has one.
pub(crate) const NUMBER_END: u64 = 1 << 62;

/// How many bytes of an object one checksum covers.
pub(crate) const SUMMED_BYTES: u64 = 64 << 10;

/// Contiguous blocks of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Run {
    /// The first block's number.
    pub(crate) start: u64,
    /// How many there are; more than none.
    pub(crate) blocks: u64,
}

impl Run {
    /// The number of the block after the last.
    pub(crate) fn end(self) -> u64 {
        self.start + self.blocks
    }

    /// Where it begins, in bytes.
    pub(crate) fn at(self) -> u64 {
        self.start * BLOCK_BYTES
    }

    pub(crate) fn len_bytes(self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    /// [`len_bytes`](Self::len_bytes) of what may be no run at all.
    fn len_bytes_checked(self) -> Option<u64> {
        self.blocks.checked_mul(BLOCK_BYTES)
    }

    pub(crate) fn encode(self, to: &mut Encoder) {
        to.number(self.start);
        to.number(self.blocks);
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let run = Self { start: from.number()?, blocks: from.number()? };
        (run.blocks > 0 && run.start.checked_add(run.blocks)?.checked_mul(BLOCK_BYTES).is_some())
            .then_some(run)
    }
}

/// How many blocks hold so many bytes.
pub(crate) const fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// How many blocks of a run hold the sums of so many bytes of data, behind them.
pub(crate) const fn sum_blocks_of(data_bytes: u64) -> u64 {
    blocks_of(data_bytes.div_ceil(SUMMED_BYTES) * 4)
}

/// How many blocks a run of so many bytes of data has.
pub(crate) const fn run_blocks_of(data_bytes: u64) -> u64 {
    blocks_of(data_bytes) + sum_blocks_of(data_bytes)
}
