//! The on-device formats, drawn in `docs/format.md`: pure functions between bytes and values.
//!
//! Invariants: an encoded value decodes to the same value. Invalid bytes decode to `None`, without a panic, and lengths
//! are checked before memory is allocated.

mod bucket_record;
mod frame;
mod keys;
mod manifest;
mod membership;
mod record;
mod superblock;

pub(crate) use bucket_record::BucketRecord;
pub(crate) use frame::{Change, FRAME_HEADER_BYTES, Frame, FrameHeader, FrameWriter};
pub(crate) use keys::{BucketId, IndexKey, Kind};
pub(crate) use manifest::{Manifest, TableEntry, Zone};
pub use membership::Membership;
pub(crate) use record::{
    Body, InlineData, Naming, ObjectRecord, ObjectSummary, RunSlice, decode_description, decode_record,
    encode_description,
};
pub(crate) use superblock::{
    DriveId, Geometry, MAGIC, MANIFEST_BYTES_MAX, SUPERBLOCK_BYTES, Superblock, VERSION,
};

use crate::codec::{Decoder, Encoder};
use crate::device::BLOCK_BYTES;

/// End of the range of frame numbers and of write numbers. Both stay below, so that a next number always exists.
pub(crate) const NUMBER_END: u64 = 1 << 62;

/// Bytes of inline data or of a run that one checksum covers.
pub(crate) const SUMMED_BYTES: u64 = 64 << 10;

/// A run: contiguous blocks of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Run {
    /// The number of the first block.
    pub(crate) start: u64,
    /// The number of blocks, at least one.
    pub(crate) blocks: u64,
}

impl Run {
    /// Returns the number of the block after the last.
    pub(crate) fn end(self) -> u64 {
        self.start + self.blocks
    }

    /// Returns the position of the run, in bytes.
    pub(crate) fn at(self) -> u64 {
        self.start * BLOCK_BYTES
    }

    pub(crate) fn len_bytes(self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    /// Returns [`len_bytes`](Self::len_bytes), or `None` if that overflows because the run is not valid.
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

/// Returns the number of blocks that hold some bytes.
pub(crate) const fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Returns the number of blocks at the end of a run that hold the checksums of its data.
pub(crate) const fn sum_blocks_of(data_bytes: u64) -> u64 {
    blocks_of(data_bytes.div_ceil(SUMMED_BYTES) * 4)
}

/// Returns the number of blocks of a run: its data, and the checksums of that.
pub(crate) const fn run_blocks_of(data_bytes: u64) -> u64 {
    blocks_of(data_bytes) + sum_blocks_of(data_bytes)
}
