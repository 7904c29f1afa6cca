//! Sets of byte ranges, and zeros for holes.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use store::Payload;

/// Zeros that all holes share.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Appends zeros for a hole; they take no memory.
pub(crate) fn push_zeros(payload: &mut Payload, range: &Range<u64>) {
    let mut left = range.end - range.start;
    while left > 0 {
        let piece = left.min(ZEROS.len() as u64);
        payload.push(Bytes::from_static(&ZEROS[..piece as usize]));
        left -= piece;
    }
}

/// Returns the zeros of a hole in one new buffer. The range must not be longer than a read.
pub(crate) fn zeros(range: &Range<u64>) -> Bytes {
    Bytes::from(vec![0; (range.end - range.start) as usize])
}

/// Returns the total length of ranges.
pub(crate) fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Disjoint, non-touching ranges of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds a range, merging it with the ranges that it touches.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let touching: Vec<u64> =
            self.0.range(..=end).rev().take_while(|(_, stop)| **stop >= start).map(|(at, _)| *at).collect();
        for at in touching {
            let stop = self.0.remove(&at).unwrap_or(at);
            start = start.min(at);
            end = end.max(stop);
        }
        self.0.insert(start, end);
    }

    /// Returns the ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// Removes all bytes from `end` on from the set.
    pub(crate) fn truncate(&mut self, end: u64) {
        self.0.split_off(&end);
        if let Some(mut last) = self.0.last_entry() {
            let stop = (*last.get()).min(end);
            last.insert(stop);
        }
    }

    /// Fills gaps shorter than `bytes`.
    pub(crate) fn fill_gaps(&mut self, bytes: u64) {
        let ranges: Vec<_> = self.iter().collect();
        for pair in ranges.windows(2) {
            if pair[1].start - pair[0].end < bytes {
                self.insert(pair[0].end..pair[1].start);
            }
        }
    }

    /// Splits `range` into pieces that are wholly in the set (`true`) or wholly outside.
    pub(crate) fn cut(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut pieces = Vec::new();
        if range.is_empty() {
            return pieces;
        }
        let mut at = range.start;
        let first = self.0.range(..=at).next_back().filter(|(_, stop)| **stop > at);
        let rest = self.0.range(at.saturating_add(1)..range.end);
        for (&start, &stop) in first.into_iter().chain(rest) {
            let (start, stop) = (start.max(at), stop.min(range.end));
            if start > at {
                pieces.push((at..start, false));
            }
            pieces.push((start..stop, true));
            at = stop;
        }
        if at < range.end {
            pieces.push((at..range.end, false));
        }
        pieces
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(steps in prop::collection::vec((0u64..60, 0u64..20, any::<bool>()), 0..30), ask in (0u64..60, 0u64..30)) {
            let (mut set, mut model) = (RangeSet::default(), vec![false; 100]);
            for (start, len, cut) in steps {
                if cut {
                    set.truncate(start);
                    model[start as usize..].fill(false);
                } else {
                    set.insert(start..start + len);
                    model[start as usize..(start + len) as usize].fill(true);
                }
            }
            let range = ask.0..ask.0 + ask.1;
            let bytes = &model[range.start as usize..range.end as usize];
            let shown: Vec<bool> = set.cut(range).into_iter().flat_map(|(r, inside)| vec![inside; (r.end - r.start) as usize]).collect();
            prop_assert_eq!(shown, bytes);
        }
    }

    #[test]
    fn small_gaps_are_filled() {
        let mut set = RangeSet::from_iter([0..10, 14..20, 30..40]);
        set.fill_gaps(5);
        assert_eq!(Vec::from_iter(set.iter()), [0..20, 30..40]);
        assert_eq!(total(&[0..20, 30..40]), 30);
    }
}
