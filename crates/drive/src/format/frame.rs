//! A frame: the log record of one group commit, written by one write and made durable by one flush.
//!
//! ```text
//! header, 64 bytes | inline data: the bytes of small objects | changes | zeros to the end of the block
//! ```
//!
//! The header has: the drive's salt (8 bytes), the frame's number (8), the number of the zone in which the log continues when this
//! zone is full (8), the number of the last write (8), the lengths of inline data and of changes (4 each), the checksum of all bytes
//! after the header (4), the number of bytes of the changes that are index entries of inline objects (4), zeros, and in its last 4
//! bytes the checksum of the header. The inline data comes first, so that its position is known before the changes that refer to it
//! are encoded.

use super::{DriveId, Geometry, Run, blocks_of};
use crate::codec::{Decoder, Encoder, crc32c};
use crate::device::{BLOCK_BYTES, Buffer, BufferBuilder};

/// The length of a frame's header, in bytes.
pub(crate) const FRAME_HEADER_BYTES: usize = 64;

/// A change that a frame makes to the index or to the space. Changes apply in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sets the value of an index entry.
    Put { key: Vec<u8>, value: Vec<u8> },
    /// Removes an index entry.
    Delete { key: Vec<u8> },
    /// Adds an owner to a run. A free run becomes owned.
    Retain(Run),
    /// Removes an owner from a run. Without owners the run is free.
    Release(Run),
    /// Declares bytes of inline data unused: `len` bytes in the zone that contains the position `at` of the device.
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

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The number of the frame; frames of the log have consecutive ones.
    pub(crate) number: u64,
    /// The zone in which the log continues when this zone is full.
    pub(crate) next_zone: u64,
    /// The greatest write number assigned when the frame was written. Later writes get greater numbers.
    pub(crate) last_write: u64,
    pub(crate) inline_bytes: u32,
    changes_bytes: u32,
    /// The checksum of the bytes behind the header.
    sum: u32,
    /// The approximate number of bytes of the changes that are index entries of inline objects.
    pub(crate) entries_bytes: u32,
}

impl FrameHeader {
    /// Decodes the header of a frame of this drive; `None` if the block does not begin with an intact one.
    pub(crate) fn decode(drive: DriveId, block: &[u8]) -> Option<Self> {
        let (fields, own) = block.get(..FRAME_HEADER_BYTES)?.split_last_chunk::<4>()?;
        let mut from = Decoder(fields);
        if from.fixed64()? != drive.salt || crc32c(fields) != u32::from_le_bytes(*own) {
            return None;
        }
        let (number, next_zone, last_write) = (from.fixed64()?, from.fixed64()?, from.fixed64()?);
        let (inline_bytes, changes_bytes) = (from.fixed32()?, from.fixed32()?);
        let (sum, entries_bytes) = (from.fixed32()?, from.fixed32()?);
        Some(Self { number, next_zone, last_write, inline_bytes, changes_bytes, sum, entries_bytes })
    }

    fn encode(&self, drive: DriveId) -> Vec<u8> {
        let mut to = Encoder(Vec::with_capacity(FRAME_HEADER_BYTES));
        for number in [drive.salt, self.number, self.next_zone, self.last_write] {
            to.fixed64(number);
        }
        for number in [self.inline_bytes, self.changes_bytes, self.sum, self.entries_bytes] {
            to.fixed32(number);
        }
        to.0.resize(FRAME_HEADER_BYTES - 4, 0);
        let own = crc32c(&to.0);
        to.fixed32(own);
        to.0
    }

    /// Returns the length of the whole frame in bytes, a multiple of the block size.
    pub(crate) fn len_bytes(&self) -> u64 {
        blocks_of(FRAME_HEADER_BYTES as u64 + self.content_bytes()) * BLOCK_BYTES
    }

    /// Returns the length of inline data and changes, in bytes.
    pub(crate) fn content_bytes(&self) -> u64 {
        u64::from(self.inline_bytes) + u64::from(self.changes_bytes)
    }
}

impl Geometry {
    /// Returns the bytes that a frame takes of the log: whole rows.
    pub(crate) fn frame_bytes(&self, header: &FrameHeader) -> u64 {
        header.len_bytes().next_multiple_of(self.row_bytes())
    }
}

/// A frame being built: first the inline data is added, then the changes.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    /// The position of the frame, in bytes from the device's beginning.
    at: u64,
    bytes: BufferBuilder,
    /// The number of bytes of inline data.
    inline_bytes: usize,
    entries_bytes: u64,
}

impl FrameWriter {
    /// Begins a frame in an empty buffer. The buffer must have room for the whole frame.
    pub(crate) fn new(at: u64, mut bytes: BufferBuilder) -> Self {
        bytes.push(&[0; FRAME_HEADER_BYTES]);
        Self { at, bytes, inline_bytes: 0, entries_bytes: 0 }
    }

    /// Appends the bytes of a small object, whose index entry takes `entry_bytes` in the changes. Returns the position of the
    /// bytes on the device. Must precede all changes.
    pub(crate) fn push_inline(&mut self, object: &[u8], entry_bytes: u64) -> u64 {
        assert!(self.bytes.len() == FRAME_HEADER_BYTES + self.inline_bytes, "inline data precedes changes");
        let at = self.at + self.bytes.len() as u64;
        self.bytes.push(object);
        self.inline_bytes = self.bytes.len() - FRAME_HEADER_BYTES;
        self.entries_bytes += entry_bytes;
        at
    }

    pub(crate) fn change(&mut self, change: &Change) {
        let mut to = Encoder::default();
        change.encode(&mut to);
        self.bytes.push(&to.0);
    }

    /// Returns the frame as whole rows, and its header.
    pub(crate) fn finish(
        mut self,
        drive: DriveId,
        number: u64,
        next_zone: u64,
        last_write: u64,
    ) -> (Buffer, FrameHeader) {
        let changes_bytes = (self.bytes.len() - FRAME_HEADER_BYTES - self.inline_bytes) as u32;
        self.bytes.pad();
        let sum = crc32c(&self.bytes[FRAME_HEADER_BYTES..]);
        let mut bytes = self.bytes.finish();
        // Paired with `decode`: lengths in a header have four bytes each.
        assert!(u32::try_from(bytes.len()).is_ok(), "a frame of {} bytes", bytes.len());
        let (inline_bytes, entries_bytes) = (self.inline_bytes as u32, self.entries_bytes as u32);
        let header =
            FrameHeader { number, next_zone, last_write, inline_bytes, changes_bytes, sum, entries_bytes };
        bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode(drive));
        (bytes, header)
    }
}

/// A decoded frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    pub(crate) changes: Vec<Change>,
}

impl Frame {
    /// Decodes the frame at the beginning of the bytes; `None` if there is none of this drive or its checksums do not
    /// match.
    pub(crate) fn decode(drive: DriveId, bytes: &[u8]) -> Option<Self> {
        let header = FrameHeader::decode(drive, bytes)?;
        let bytes = bytes.get(FRAME_HEADER_BYTES..usize::try_from(header.len_bytes()).ok()?)?;
        if crc32c(bytes) != header.sum {
            return None;
        }
        let changes = bytes.get(header.inline_bytes as usize..)?.get(..header.changes_bytes as usize)?;
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
        assert_eq!(writer.push_inline(b"onetwo", 20), 8192 + 64);
        assert_eq!(writer.push_inline(b"three", 30), 8192 + 70);
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
    fn a_frame_decodes_to_what_was_encoded() {
        let (bytes, changes) = frame();
        assert_eq!(bytes.len() as u64, BLOCK_BYTES);
        let read = Frame::decode(DRIVE, &bytes).unwrap();
        assert_eq!((read.header.number, read.header.next_zone, read.header.inline_bytes), (7, 3, 11));
        assert_eq!(read.header.entries_bytes, 50);
        assert_eq!(read.header.len_bytes(), BLOCK_BYTES);
        assert_eq!(read.changes, changes);
        assert!(Frame::decode(DriveId { id: 1, salt: 1 }, &bytes).is_none());
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let (bytes, _) = frame();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(DRIVE, &flipped).is_none(), "bit {bit}");
        }
    }
}
