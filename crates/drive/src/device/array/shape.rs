//! The mapping between blocks of an array and blocks of its members. Arithmetic only.

use crate::device::{BLOCK_BYTES, Buffer};

/// The length of a unit, the block of one member in a row, in bytes.
pub(super) const UNIT_BYTES: usize = BLOCK_BYTES as usize;

/// The most members of an array. A label has the ids of all.
pub const MEMBERS_MAX: usize = 64;

/// The numbers of data and parity members of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Units of data in a row, at least one.
    pub data: usize,
    /// Units of parity in a row: the number of members that may be lost.
    pub parity: usize,
}

impl Shape {
    /// Returns the number of members.
    pub fn members(self) -> usize {
        self.data + self.parity
    }

    pub(super) fn is_possible(self) -> bool {
        self.data >= 1 && self.parity < MEMBERS_MAX && (2..=MEMBERS_MAX).contains(&self.members())
    }

    pub(super) fn row_bytes(self) -> u64 {
        self.data as u64 * BLOCK_BYTES
    }

    /// Splits the data of whole rows by member: the units of each, one after the other.
    pub(super) fn split(self, rows: &[u8]) -> Vec<Buffer> {
        let units = |unit| Buffer::gathered(rows.chunks_exact(UNIT_BYTES).skip(unit).step_by(self.data));
        (0..self.data).map(units).collect()
    }
}

/// A set of members, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Members(u64);

impl Members {
    pub(super) fn of(members: impl IntoIterator<Item = usize>) -> Self {
        Self(members.into_iter().fold(0, |bits, member| bits | 1 << member))
    }

    pub(super) fn contains(self, member: usize) -> bool {
        self.0 >> member & 1 == 1
    }

    pub(super) fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS_MAX).filter(move |&member| self.contains(member))
    }
}

/// A contiguous range of blocks of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// The number of units of data in a row.
    data: usize,
    first: u64,
    /// The first block after the span.
    end: u64,
}

impl Span {
    /// Makes the span of a range given in bytes, which must be whole blocks.
    pub(super) fn of(shape: Shape, at: u64, bytes: usize) -> Self {
        let first = at / BLOCK_BYTES;
        Self { data: shape.data, first, end: first + bytes as u64 / BLOCK_BYTES }
    }

    /// Returns the rows that the span touches: the first, and their number.
    pub(super) fn rows(self) -> (u64, usize) {
        let first = self.first / self.data as u64;
        (first, (self.end.div_ceil(self.data as u64) - first) as usize)
    }

    /// Returns the rows in which a member's unit is in the span: the first, and their number.
    pub(super) fn rows_of(self, member: usize) -> (u64, usize) {
        let (data, unit) = (self.data as u64, member as u64);
        let rows_before = |block: u64| block.saturating_sub(unit).div_ceil(data);
        let first = rows_before(self.first);
        (first, (rows_before(self.end) - first) as usize)
    }

    /// Returns the members whose data is in the span.
    pub(super) fn members(self) -> Members {
        Members::of((0..self.data).filter(|&member| self.rows_of(member).1 > 0))
    }

    /// Returns the units of a member, given from a row on, that are in the span, and the position of each in the span's bytes.
    pub(super) fn units(
        self,
        member: usize,
        first_row: u64,
        units: &[u8],
    ) -> impl Iterator<Item = (usize, &[u8])> {
        (first_row..)
            .zip(units.chunks_exact(UNIT_BYTES))
            .filter_map(move |(row, unit)| Some((self.offset_of(member, row)?, unit)))
    }

    /// Returns the position in the span's bytes of a member's unit in a row, if the unit is in the span.
    pub(super) fn offset_of(self, member: usize, row: u64) -> Option<usize> {
        let block = row * self.data as u64 + member as u64;
        (self.first..self.end).contains(&block).then(|| (block - self.first) as usize * UNIT_BYTES)
    }

    /// Copies units of a member, given from a row on, to their positions.
    pub(super) fn scatter(self, member: usize, first_row: u64, units: &[u8], into: &mut [u8]) {
        for (at, unit) in self.units(member, first_row, units) {
            into[at..at + UNIT_BYTES].copy_from_slice(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_a_span_belongs_to_one_member() {
        for data in [1, 2, 3, 4, 12] {
            let shape = Shape { data, parity: 1 };
            let bytes: Vec<u8> = (0..60 * data).flat_map(|block| vec![block as u8; UNIT_BYTES]).collect();
            let split = shape.split(&bytes);
            for (first, blocks) in [(0, 1), (0, data), (1, 3), (5, 1), (7, 2 * data + 1), (2, 40)] {
                let span = Span::of(shape, first as u64 * BLOCK_BYTES, blocks * UNIT_BYTES);
                let mut seen = vec![0xff; blocks * UNIT_BYTES];
                for (member, split) in split.iter().enumerate() {
                    let (row, rows) = span.rows_of(member);
                    assert_eq!(span.members().contains(member), rows > 0);
                    let units = &split[row as usize * UNIT_BYTES..][..rows * UNIT_BYTES];
                    assert_eq!(span.units(member, row, units).count(), rows);
                    span.scatter(member, row, units, &mut seen);
                    let (all_first, all) = span.rows();
                    assert!(all_first <= row && (rows == 0 || row + rows as u64 <= all_first + all as u64));
                }
                assert!(seen == bytes[first * UNIT_BYTES..(first + blocks) * UNIT_BYTES]);
            }
        }
    }
}
