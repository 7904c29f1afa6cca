//! Several sorted sequences as one.

use crate::Result;
use bytes::Bytes;

/// Entries in strictly ascending order of their keys, one at a time.
pub trait Sorted {
    /// Goes to the next entry, at first to the first; false behind the last.
    ///
    /// # Errors
    ///
    /// The next entry cannot be read.
    fn advance(&mut self) -> Result<bool>;

    /// The present entry's key, after [`Sorted::advance`] was true.
    fn key(&self) -> &[u8];

    /// The present entry's value, after [`Sorted::advance`] was true.
    fn value(&self) -> &Bytes;
}

impl<T: Sorted + ?Sized> Sorted for Box<T> {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn key(&self) -> &[u8] {
        (**self).key()
    }

    fn value(&self) -> &Bytes {
        (**self).value()
    }
}

/// The entries of all, in ascending order; of those with one key, the first's of them that has it: the newest, where newer ones stand
/// first.
#[derive(Debug)]
pub struct Merge<C> {
    /// A heap: none is after those at twice its place and one or two more. Those behind their last entry are gone.
    heap: Vec<Ranked<C>>,
    is_begun: bool,
}

#[derive(Debug)]
struct Ranked<C> {
    rank: usize,
    sorted: C,
}

impl<C: Sorted> Merge<C> {
    /// Before the first entry of all of these, none of which was advanced.
    pub fn new(newest_first: impl IntoIterator<Item = C>) -> Self {
        let ranked = |(rank, sorted)| Ranked { rank, sorted };
        Self { heap: newest_first.into_iter().enumerate().map(ranked).collect(), is_begun: false }
    }

    /// Goes to the next entry; false behind the last.
    ///
    /// # Errors
    ///
    /// One of them could not be advanced; the merge is then behind its last entry.
    pub fn advance(&mut self) -> Result<bool> {
        let advanced = if self.is_begun { self.next() } else { self.begin() };
        if advanced.is_err() {
            self.heap.clear();
        }
        advanced?;
        Ok(!self.heap.is_empty())
    }

    /// The present entry's key; empty before the first and behind the last.
    pub fn key(&self) -> &[u8] {
        if self.is_begun { self.heap.first().map_or(&[], |least| least.sorted.key()) } else { &[] }
    }

    /// The present entry's value; empty before the first and behind the last.
    pub fn value(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        if self.is_begun { self.heap.first().map_or(&NONE, |least| least.sorted.value()) } else { &NONE }
    }

    fn begin(&mut self) -> Result<()> {
        let mut error = None;
        self.heap.retain_mut(|ranked| match ranked.sorted.advance() {
            Ok(is_at_entry) => is_at_entry,
            Err(wrong) => {
                error.get_or_insert(wrong);
                false
            }
        });
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at);
        }
        self.is_begun = true;
        error.map_or(Ok(()), Err)
    }

    fn next(&mut self) -> Result<()> {
        // Entries with the present key are next to the top, one after the other.
        while let Some(at) = self.lesser(1, 2) {
            if self.heap[at].sorted.key() != self.heap[0].sorted.key() {
                break;
            }
            self.advance_at(at)?;
        }
        if self.heap.is_empty() { Ok(()) } else { self.advance_at(0) }
    }

    fn advance_at(&mut self, at: usize) -> Result<()> {
        if !self.heap[at].sorted.advance()? {
            self.heap.swap_remove(at);
        }
        self.sink(at);
        Ok(())
    }

    /// Moves one down to where it belongs.
    fn sink(&mut self, mut at: usize) {
        while let Some(child) = self.lesser(2 * at + 1, 2 * at + 2) {
            if self.is_before(at, child) {
                break;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    /// Which of two comes first, of those that are there.
    fn lesser(&self, one: usize, other: usize) -> Option<usize> {
        match one {
            one if one >= self.heap.len() => None,
            one if other < self.heap.len() && self.is_before(other, one) => Some(other),
            one => Some(one),
        }
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.heap[one], &self.heap[other]);
        (one.sorted.key(), one.rank) < (other.sorted.key(), other.rank)
    }
}

impl<C: Sorted> Sorted for Merge<C> {
    fn advance(&mut self) -> Result<bool> {
        self.advance()
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn value(&self) -> &Bytes {
        self.value()
    }
}
