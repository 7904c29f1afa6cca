//! Inode numbers for new inodes, in ranges per directory.
//!
//! What one directory holds is numbered closely together, so that its inode records are one nearly sequential scan.
//! Numbers come from leases ([`Op::Lease`](crate::Op::Lease)): whoever opens the namespace reserves 2^40 of them
//! and draws ranges from memory, so an allocation never waits for the engine, and a crash costs only unused numbers
//! (the number space lasts for 16 million leases).
//!
//! Invariant: a number is handed out once.

use crate::Ino;
use std::collections::HashMap;
use std::ops::Range;

/// How many numbers are reserved at a time.
pub(crate) const LEASE_INOS: u64 = 1 << 40;

/// The first number that can be leased; 1 is the root.
pub(crate) const FIRST_INO: Ino = Ino(2);

/// A directory's first range has so many numbers; each further one twice as many as the one before.
const RANGE_INOS_MIN: u64 = 16;
const RANGE_INOS_MAX: u64 = 4096;

/// So many directories have an open range; beyond that all ranges are begun anew.
const OPEN_RANGES_MAX: usize = 16_384;

/// Draws from one lease.
#[derive(Debug)]
pub(crate) struct Allocator {
    lease: Range<u64>,
    open: HashMap<Ino, OpenRange>,
}

#[derive(Debug)]
struct OpenRange {
    left: Range<u64>,
    size: u64,
}

impl Allocator {
    pub(crate) fn new(lease: Range<Ino>) -> Self {
        Self { lease: lease.start.0..lease.end.0, open: HashMap::new() }
    }

    /// `count` numbers for entries of `parent`; fewer only where the lease is used up.
    pub(crate) fn allocate(&mut self, parent: Ino, count: usize) -> Vec<Ino> {
        if self.open.len() >= OPEN_RANGES_MAX {
            self.open.clear();
        }
        let open = self.open.entry(parent).or_insert(OpenRange { left: 0..0, size: RANGE_INOS_MIN / 2 });
        let mut inos = Vec::with_capacity(count);
        while inos.len() < count {
            if open.left.is_empty() {
                open.refill(&mut self.lease, (count - inos.len()) as u64);
            }
            match open.left.next() {
                Some(number) => inos.push(Ino(number)),
                None => break,
            }
        }
        inos
    }
}

impl OpenRange {
    fn refill(&mut self, lease: &mut Range<u64>, wanted: u64) {
        self.size = (self.size * 2).min(RANGE_INOS_MAX);
        let size = self.size.max(wanted).min(lease.end - lease.start);
        self.left = lease.start..lease.start + size;
        lease.start += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_are_close_together_and_never_given_twice() {
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
    fn a_used_up_lease_gives_what_it_has() {
        let mut allocator = Allocator::new(Ino(2)..Ino(10));
        assert_eq!(allocator.allocate(Ino(1), 6).len(), 6);
        assert_eq!(allocator.allocate(Ino(2), 6).len(), 0);
        assert_eq!(allocator.allocate(Ino(1), 6).len(), 2);
    }
}
