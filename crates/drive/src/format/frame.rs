//! A frame: one group commit, written by one write and made durable by one flush.
//!
//! ```text
//! header, 64 bytes | pieces: the bytes of small objects | changes | zeros to the end of the block
//! ```
//!
//! The header: the drive's salt (8), the frame's number (8), the number of the zone in which the log goes on when this one
//! is full (8), the number of the last write (8), the lengths of pieces and changes (4 each), the checksum of all that follows the header (4), how many bytes
//! of the changes are the entries of objects whose bytes are pieces (4), zeros, and in its last 4 bytes the checksum of the header. The pieces come first, so that where they lie is known before anything that names
//! them is written.

use super::{DriveId, Geometry, Run, blocks_of};
use crate::device::{BLOCK_BYTES, Buffer, Filling};
use crate::wire::{Decoder, Encoder, sum};

/// The length of what a frame begins with.
pub(crate) const FRAME_HEADER_BYTES: usize = 64;

/// What a frame does to the index and to the space, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// An entry of the index is this from now on.
    Put { key: Vec<u8>, value: Vec<u8> },
    /// An entry of the index is no more.
    Delete { key: Vec<u8> },
    /// A run has one owner more; one that was free has one.
    Retain(Run),
    /// A run has one owner less; without any it is free.
    Release(Run),
    /// So many bytes of pieces in the zone of this byte of the device belong to nobody any more.
    Dead { at: u64, len: u32 },
}

impl Change {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Put { key, value } => {
                to.byte(1);
                to.bytes(key);
                to.bytes(value);
            }
            Self::Delete { key } => {
                to.byte(2);
                to.bytes(key);
            }
            Self::Retain(run) => {
                to.byte(3);
                run.encode(to);
            }
            Self::Release(run) => {
                to.byte(4);
                run.encode(to);
            }
            Self::Dead { at, len } => {
                to.byte(5);
                to.number(*at);
                to.number(u64::from(*len));
            }
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        Some(match from.byte()? {
            1 => Self::Put { key: from.bytes()?.to_vec(), value: from.bytes()?.to_vec() },
            2 => Self::Delete { key: from.bytes()?.to_vec() },
            3 => Self::Retain(Run::decode(from)?),
            4 => Self::Release(Run::decode(from)?),
            5 => Self::Dead { at: from.number()?, len: from.number32()? },
            _ => return None,
        })
    }
}

/// What a frame's first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) number: u64,
    pub(crate) next_zone: u64,
    /// Later writes have greater numbers.
    pub(crate) last_write: u64,
    pub(crate) pieces_bytes: u32,
    changes_bytes: u32,
    sum: u32,
    /// About how many bytes of the changes name the pieces.
    pub(crate) entries_bytes: u32,
}

impl FrameHeader {
    /// Reads the header of a frame of this drive.
    pub(crate) fn decode(drive: DriveId, block: &[u8]) -> Option<Self> {
        let (fields, own) = block.get(..FRAME_HEADER_BYTES)?.split_last_chunk::<4>()?;
        let mut from = Decoder(fields);
        if from.fixed()? != drive.salt || sum(fields) != u32::from_le_bytes(*own) {
            return None;
        }
        let (number, next_zone, last_write) = (from.fixed()?, from.fixed()?, from.fixed()?);
        let (pieces_bytes, changes_bytes) = (from.fixed32()?, from.fixed32()?);
        let (sum, entries_bytes) = (from.fixed32()?, from.fixed32()?);
        Some(Self { number, next_zone, last_write, pieces_bytes, changes_bytes, sum, entries_bytes })
    }

    fn encode(&self, drive: DriveId) -> Vec<u8> {
        let mut to = Encoder(Vec::with_capacity(FRAME_HEADER_BYTES));
        for number in [drive.salt, self.number, self.next_zone, self.last_write] {
            to.fixed(number);
        }
        for number in [self.pieces_bytes, self.changes_bytes, self.sum, self.entries_bytes] {
            to.fixed32(number);
        }
        to.0.resize(FRAME_HEADER_BYTES - 4, 0);
        let own = sum(&to.0);
        to.fixed32(own);
        to.0
    }

    /// The whole frame's length, in bytes: whole blocks.
    pub(crate) fn len_bytes(&self) -> u64 {
        blocks_of(FRAME_HEADER_BYTES as u64 + self.content_bytes()) * BLOCK_BYTES
    }

    /// The length of its pieces and changes.
    pub(crate) fn content_bytes(&self) -> u64 {
        u64::from(self.pieces_bytes) + u64::from(self.changes_bytes)
    }
}

impl Geometry {
    /// How much of the log a frame takes: whole rows.
    pub(crate) fn frame_bytes(&self, header: &FrameHeader) -> u64 {
        header.len_bytes().next_multiple_of(self.row_bytes())
    }
}

/// A frame being written: pieces first, then what names them.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    /// Where the frame is to lie, in bytes from the device's beginning.
    at: u64,
    bytes: Filling,
    pieces_bytes: usize,
    entries_bytes: u64,
}

impl FrameWriter {
    /// A frame in memory that takes all of it.
    pub(crate) fn new(at: u64, mut bytes: Filling) -> Self {
        bytes.push(&[0; FRAME_HEADER_BYTES]);
        Self { at, bytes, pieces_bytes: 0, entries_bytes: 0 }
    }

    /// Adds the bytes of a small object, whose entry takes so many more; where they lie. Before any change.
    pub(crate) fn piece(&mut self, of: &[u8], entry_bytes: u64) -> u64 {
        assert!(self.bytes.len() == FRAME_HEADER_BYTES + self.pieces_bytes, "pieces come before changes");
        let at = self.at + self.bytes.len() as u64;
        self.bytes.push(of);
        self.pieces_bytes = self.bytes.len() - FRAME_HEADER_BYTES;
        self.entries_bytes += entry_bytes;
        at
    }

    pub(crate) fn change(&mut self, change: &Change) {
        let mut to = Encoder::default();
        change.encode(&mut to);
        self.bytes.push(&to.0);
    }

    /// The frame, in whole rows, and what its first bytes say.
    pub(crate) fn finish(
        mut self,
        drive: DriveId,
        number: u64,
        next_zone: u64,
        last_write: u64,
    ) -> (Buffer, FrameHeader) {
        let changes_bytes = (self.bytes.len() - FRAME_HEADER_BYTES - self.pieces_bytes) as u32;
        self.bytes.pad();
        let sum = sum(&self.bytes[FRAME_HEADER_BYTES..]);
        let mut bytes = self.bytes.finish();
        let (pieces_bytes, entries_bytes) = (self.pieces_bytes as u32, self.entries_bytes as u32);
        let header =
            FrameHeader { number, next_zone, last_write, pieces_bytes, changes_bytes, sum, entries_bytes };
        bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode(drive));
        (bytes, header)
    }
}

/// A frame that was read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    pub(crate) changes: Vec<Change>,
}

impl Frame {
    /// Reads a frame that begins here, if all of it is as it was written.
    pub(crate) fn decode(drive: DriveId, bytes: &[u8]) -> Option<Self> {
        let header = FrameHeader::decode(drive, bytes)?;
        let bytes = bytes.get(FRAME_HEADER_BYTES..usize::try_from(header.len_bytes()).ok()?)?;
        if sum(bytes) != header.sum {
            return None;
        }
        let changes = bytes.get(header.pieces_bytes as usize..)?.get(..header.changes_bytes as usize)?;
        let mut from = Decoder(changes);
        let mut changes = Vec::new();
        while !from.0.is_empty() {
            changes.push(Change::decode(&mut from)?);
        }
        Some(Self { header, changes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Buffers;

    const DRIVE: DriveId = DriveId { id: 1, salt: 0x5a17 };

    fn frame() -> (Vec<u8>, Vec<Change>) {
        let mut writer = FrameWriter::new(8192, Buffers::new(0).fill(4096, BLOCK_BYTES));
        assert_eq!(writer.piece(b"onetwo", 20), 8192 + 64);
        assert_eq!(writer.piece(b"three", 30), 8192 + 70);
        let run = Run { start: 9, blocks: 2 };
        let changes = vec![
            Change::Put { key: b"k".to_vec(), value: b"v".to_vec() },
            Change::Delete { key: b"l".to_vec() },
            Change::Retain(run),
            Change::Release(run),
            Change::Dead { at: 70_000, len: 5 },
        ];
        changes.iter().for_each(|change| writer.change(change));
        (writer.finish(DRIVE, 7, 3, 40).0.to_vec(), changes)
    }

    #[test]
    fn a_frame_comes_back() {
        let (bytes, changes) = frame();
        assert_eq!(bytes.len() as u64, BLOCK_BYTES);
        let read = Frame::decode(DRIVE, &bytes).unwrap();
        assert_eq!((read.header.number, read.header.next_zone, read.header.pieces_bytes), (7, 3, 11));
        assert_eq!(read.header.entries_bytes, 50);
        assert_eq!(read.header.len_bytes(), BLOCK_BYTES);
        assert_eq!(read.changes, changes);
        assert!(Frame::decode(DriveId { id: 1, salt: 1 }, &bytes).is_none());
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let (bytes, _) = frame();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(DRIVE, &flipped).is_none(), "bit {bit}");
        }
    }
}
