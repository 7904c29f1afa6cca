//! Allocation of inode numbers, in ranges per directory.
//!
//! The inodes of one directory get numbers close together, so that their records can be read by a nearly sequential scan.
//! Numbers come from leases ([`Op::Lease`](crate::Op::Lease)): each opening of the namespace reserves 2^40 numbers and
//! allocates ranges of them in memory. So an allocation never waits for the engine, and a crash wastes only unused numbers
//! (there are enough for 16 million leases).
//!
//! Invariant: no number is allocated twice.

use crate::Ino;
use std::collections::HashMap;
use std::ops::Range;

/// Inode numbers in a lease.
pub(crate) const LEASE_INOS: u64 = 1 << 40;

/// The first number that can be leased; 1 is the root.
pub(crate) const FIRST_INO: Ino = Ino(2);

/// Numbers in a directory's first range. Each further range is twice as large, up to [`RANGE_INOS_MAX`].
const RANGE_INOS_MIN: u64 = 16;
const RANGE_INOS_MAX: u64 = 4096;

/// Maximum number of directories with an open range. When it is reached, all open ranges are dropped.
const OPEN_RANGES_MAX: usize = 16_384;

/// Allocates the numbers of one lease.
#[derive(Debug)]
pub struct Allocator {
    lease: Range<u64>,
    open_ranges: HashMap<Ino, OpenRange>,
}

/// The numbers reserved for the entries of one directory.
#[derive(Debug)]
struct OpenRange {
    unused: Range<u64>,
    size: u64,
}

impl Allocator {
    /// Allocates from these numbers, of which none has been allocated.
    pub fn new(lease: Range<Ino>) -> Self {
        Self { lease: lease.start.0..lease.end.0, open_ranges: HashMap::new() }
    }

    /// Allocates `count` numbers for entries of `parent`; fewer only if the lease runs out.
    pub fn allocate(&mut self, parent: Ino, count: usize) -> Vec<Ino> {
        if self.open_ranges.len() >= OPEN_RANGES_MAX {
            self.open_ranges.clear();
        }
        let range =
            self.open_ranges.entry(parent).or_insert(OpenRange { unused: 0..0, size: RANGE_INOS_MIN / 2 });
        let mut inos = Vec::with_capacity(count);
        while inos.len() < count {
            if range.unused.is_empty() {
                range.refill(&mut self.lease, (count - inos.len()) as u64);
            }
            match range.unused.next() {
                Some(number) => inos.push(Ino(number)),
                None => break,
            }
        }
        inos
    }
}

impl OpenRange {
    /// Takes a new range from the lease: twice as long as the last one, and of at least `wanted` numbers if the lease has
    /// so many left.
    fn refill(&mut self, lease: &mut Range<u64>, wanted: u64) {
        self.size = (self.size * 2).min(RANGE_INOS_MAX);
        let size = self.size.max(wanted).min(lease.end - lease.start);
        self.unused = lease.start..lease.start + size;
        lease.start += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_are_close_together_and_allocated_once() {
        let mut allocator = Allocator::new(Ino(2)..Ino(1 << 20));
        let mut given = BTreeSet::new();
        for round in 0..100 {
            for dir in 1..20 {
                let inos = allocator.allocate(Ino(dir), round % 5 + 1);
                assert_eq!(inos.len(), round % 5 + 1);
                assert!(inos.iter().all(|ino| given.insert(*ino)));
            }
        }
        let page = allocator.allocate(Ino(77), 1000);
        assert_eq!(page.last().unwrap().0 - page[0].0, 999);
        assert!(page.iter().all(|ino| given.insert(*ino)));
    }

    #[test]
    fn an_exhausted_lease_returns_fewer_numbers() {
        let mut allocator = Allocator::new(Ino(2)..Ino(10));
        assert_eq!(allocator.allocate(Ino(1), 6).len(), 6);
        assert_eq!(allocator.allocate(Ino(2), 6).len(), 0);
        assert_eq!(allocator.allocate(Ino(1), 6).len(), 2);
    }
}
