//! Labels: the description of the array at the beginning of each member.
//!
//! There are two copies, in the first two blocks of a member. An update writes one, flushes, writes the other and flushes. A label is in
//! force once all members that it names have it; before that, nothing else is written on its basis. Among the labels in force, the one
//! with the greatest epoch defines the members: a device is in sync if its id is in that label at its index. So a device that was
//! excluded or replaced is recognised whatever its own label says.
//!
//! Invariants: the epoch on a device only grows. A label names only devices named by the label in force before it, or rebuilt since. So a
//! device named by a label was not excluded by any label that the label's owner took part in. If a label never came into force, the
//! labels of the devices that lack it name the same devices or more.

use super::shape::{Shape, UNIT_BYTES};
use crate::codec::{Decoder, Encoder, crc32c};
use crate::device::Buffer;

/// Position of the first row on a member, in bytes. The space before it is for the labels.
pub(crate) const ROWS_AT: u64 = 1 << 20;

/// The version of labels.
pub(crate) const VERSION: u8 = 1;

/// The first bytes of every label. The last of them is the version.
pub(crate) const MAGIC: [u8; 8] = [b't', b'e', b'n', b'o', b'n', b'a', 0, VERSION];

/// The id that stands for a missing or excluded device in a label.
pub(super) const NO_DEVICE: u64 = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    /// The id of the array.
    pub(super) array: u64,
    pub(super) shape: Shape,
    /// The number of rows of the array.
    pub(super) rows: u64,
    /// The generation of the label: each opening for writing and each change of the membership writes labels of a
    /// greater epoch.
    pub(super) epoch: u64,
    /// The id of the device that holds this label, and the device's index among the members.
    pub(super) own: u64,
    pub(super) index: usize,
    /// The ids of the devices in sync, by index; [`NO_DEVICE`] for one that is missing or excluded.
    pub(super) members: Vec<u64>,
}

impl Label {
    pub(super) fn encode(&self) -> Buffer {
        let mut to = Encoder(MAGIC.to_vec());
        for number in [self.array, self.rows, self.epoch, self.own] {
            to.fixed64(number);
        }
        for number in [self.shape.data, self.shape.parity, self.index] {
            to.fixed32(number as u32);
        }
        self.members.iter().for_each(|&member| to.fixed64(member));
        to.0.resize(UNIT_BYTES - 4, 0);
        let sum = crc32c(&to.0);
        to.fixed32(sum);
        Buffer::gathered([&to.0[..]])
    }

    pub(super) fn decode(block: &[u8]) -> Option<Self> {
        let (fields, stored) = block.split_last_chunk::<4>()?;
        if crc32c(fields) != u32::from_le_bytes(*stored) {
            return None;
        }
        let mut from = Decoder(fields.strip_prefix(&MAGIC)?);
        let (array, rows, epoch, own) = (from.fixed64()?, from.fixed64()?, from.fixed64()?, from.fixed64()?);
        let [data, parity, index] =
            [from.fixed32()? as usize, from.fixed32()? as usize, from.fixed32()? as usize];
        let shape = Shape { data, parity };
        let members_max = super::shape::MEMBERS_MAX;
        if data > members_max || parity > members_max || !shape.is_possible() || index >= shape.members() {
            return None;
        }
        let members = (0..shape.members()).map(|_| from.fixed64()).collect::<Option<Vec<_>>>()?;
        let fits = own != NO_DEVICE && rows.checked_mul(shape.row_bytes()).is_some();
        fits.then_some(Self { array, shape, rows, epoch, own, index, members })
    }

    /// Returns whether the label may have come into force, given the labels of the devices that are present. It did not if a member that it
    /// names has an older label, or another label of the same epoch. Members that are not present do not count.
    pub(super) fn may_be_in_force<'a>(&self, labels: impl Iterator<Item = &'a Self> + Clone) -> bool {
        self.members.iter().filter(|&&id| id != NO_DEVICE).all(|&id| {
            let mut of_member = labels.clone().filter(|label| label.own == id).peekable();
            of_member.peek().is_none()
                || of_member.any(|label| {
                    label.epoch > self.epoch || label.epoch == self.epoch && label.members == self.members
                })
        })
    }

    /// Returns whether a block begins like a label of any version.
    pub(super) fn has_magic(block: &[u8]) -> bool {
        block.starts_with(&MAGIC[..7])
    }
}

/// Fuzz target: decodes bytes as a label, as they are, and with magic and a valid checksum.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz_label(bytes: &[u8]) {
    drop(Label::decode(bytes));
    let mut block = [&MAGIC[..], bytes].concat();
    block.resize(UNIT_BYTES - 4, 0);
    let sum = crc32c(&block);
    block.extend(sum.to_le_bytes());
    if let Some(read) = Label::decode(&block) {
        assert!(Label::has_magic(&block));
        assert_eq!(Label::decode(&read.encode()).as_ref(), Some(&read));
        assert!(read.may_be_in_force(std::iter::once(&read)), "a single label may be in force: {read:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_decodes_and_every_flipped_bit_is_detected() {
        let shape = Shape { data: 12, parity: 4 };
        let members = (1..=16).collect();
        let label = Label { array: 7, shape, rows: 1000, epoch: 3, own: 5, index: 4, members };
        let block = label.encode();
        assert_eq!(Label::decode(&block), Some(label));
        for bit in 0..block.len() * 8 {
            let mut flipped = block.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::decode(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn the_largest_array_fits_a_block() {
        let shape = Shape { data: 60, parity: 4 };
        let members = vec![u64::MAX; 64];
        let label = Label { array: 7, shape, rows: 9, epoch: 3, own: u64::MAX, index: 63, members };
        assert_eq!(Label::decode(&label.encode()), Some(label));
    }
}
