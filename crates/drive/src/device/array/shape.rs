//! Where blocks of an array lie on its members: arithmetic only.

use crate::device::{BLOCK_BYTES, Buffer};

/// What one member holds of a row, in bytes.
pub(super) const UNIT_BYTES: usize = BLOCK_BYTES as usize;

/// The most members of an array: a label names them all.
pub const MEMBERS_MAX: usize = 64;

/// How many members of an array hold data, and how many parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many units of data a row has. At least one.
    pub data: usize,
    /// How many units of parity: so many members may be lost.
    pub parity: usize,
}

impl Shape {
    /// How many members there are.
    pub fn members(self) -> usize {
        self.data + self.parity
    }

    pub(super) fn is_possible(self) -> bool {
        self.data >= 1 && self.parity < MEMBERS_MAX && (2..=MEMBERS_MAX).contains(&self.members())
    }

    pub(super) fn row_bytes(self) -> u64 {
        self.data as u64 * BLOCK_BYTES
    }

    /// The data of whole rows as the members have it: each its units, one after the other.
    pub(super) fn split(self, rows: &[u8]) -> Vec<Buffer> {
        let units = |unit| Buffer::gathered(rows.chunks_exact(UNIT_BYTES).skip(unit).step_by(self.data));
        (0..self.data).map(units).collect()
    }
}

/// Some members, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Members(u64);

impl Members {
    pub(super) fn of(members: impl IntoIterator<Item = usize>) -> Self {
        Self(members.into_iter().fold(0, |bits, member| bits | 1 << member))
    }

    pub(super) fn has(self, member: usize) -> bool {
        self.0 >> member & 1 == 1
    }

    pub(super) fn and(self, others: Self) -> Self {
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

    pub(super) fn each(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS_MAX).filter(move |&member| self.has(member))
    }
}

/// Blocks of an array that follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    data: usize,
    first: u64,
    end: u64,
}

impl Span {
    /// Of so many bytes from a position on, both in whole blocks.
    pub(super) fn of(shape: Shape, at: u64, bytes: usize) -> Self {
        let first = at / BLOCK_BYTES;
        Self { data: shape.data, first, end: first + bytes as u64 / BLOCK_BYTES }
    }

    /// The rows that it touches: the first, and how many.
    pub(super) fn rows(self) -> (u64, usize) {
        let first = self.first / self.data as u64;
        (first, (self.end.div_ceil(self.data as u64) - first) as usize)
    }

    /// The rows of which a member's unit is in it: the first, and how many.
    pub(super) fn rows_of(self, member: usize) -> (u64, usize) {
        let (data, unit) = (self.data as u64, member as u64);
        let rows_before = |block: u64| block.saturating_sub(unit).div_ceil(data);
        let first = rows_before(self.first);
        (first, (rows_before(self.end) - first) as usize)
    }

    /// The members whose data is in it.
    pub(super) fn members(self) -> Members {
        Members::of((0..self.data).filter(|&member| self.rows_of(member).1 > 0))
    }

    /// The units of a member from a row on that are in it: each unit, and where of the span's bytes it lies.
    pub(super) fn units(
        self,
        member: usize,
        first_row: u64,
        units: &[u8],
    ) -> impl Iterator<Item = (usize, &[u8])> {
        (first_row..)
            .zip(units.chunks_exact(UNIT_BYTES))
            .filter_map(move |(row, unit)| Some((self.place(member, row)?, unit)))
    }

    /// Where of the span's bytes the unit of a member in a row lies, if it is in it.
    pub(super) fn place(self, member: usize, row: u64) -> Option<usize> {
        let block = row * self.data as u64 + member as u64;
        (self.first..self.end).contains(&block).then(|| (block - self.first) as usize * UNIT_BYTES)
    }

    /// Puts what was read of a member, from a row on, where it belongs.
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
    fn every_block_of_a_span_is_of_one_member() {
        for data in [1, 2, 3, 4, 12] {
            let shape = Shape { data, parity: 1 };
            let bytes: Vec<u8> = (0..60 * data).flat_map(|block| vec![block as u8; UNIT_BYTES]).collect();
            let split = shape.split(&bytes);
            for (first, blocks) in [(0, 1), (0, data), (1, 3), (5, 1), (7, 2 * data + 1), (2, 40)] {
                let span = Span::of(shape, first as u64 * BLOCK_BYTES, blocks * UNIT_BYTES);
                let mut seen = vec![0xff; blocks * UNIT_BYTES];
                for (member, split) in split.iter().enumerate() {
                    let (row, rows) = span.rows_of(member);
                    assert_eq!(span.members().has(member), rows > 0);
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
