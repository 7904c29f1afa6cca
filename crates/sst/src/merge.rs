//! A merge of several sorted sequences into one.

use crate::Result;
use bytes::Bytes;

/// A cursor over entries in strictly ascending order of their keys.
pub trait Sorted {
    /// Moves to the next entry; the first call moves to the first entry. Returns false at the end.
    ///
    /// # Errors
    ///
    /// The next entry cannot be read.
    fn advance(&mut self) -> Result<bool>;

    /// Returns the current entry's key. Valid after [`Sorted::advance`] returned true.
    fn key(&self) -> &[u8];

    /// Returns the current entry's value. Valid after [`Sorted::advance`] returned true.
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

/// The entries of all inputs in ascending order. If several inputs have the same key, the first of these inputs supplies the entry.
/// Inputs are therefore passed newest first.
#[derive(Debug)]
pub struct Merge<C> {
    /// A binary min-heap: the entry at index `i` is not after those at `2 * i + 1` and `2 * i + 2`. Exhausted inputs are removed.
    heap: Vec<HeapEntry<C>>,
    is_begun: bool,
}

#[derive(Debug)]
struct HeapEntry<C> {
    rank: usize,
    sorted: C,
}

impl<C: Sorted> Merge<C> {
    /// Returns a merge before its first entry. None of the inputs may have been advanced.
    pub fn new(newest_first: impl IntoIterator<Item = C>) -> Self {
        let ranked = |(rank, sorted)| HeapEntry { rank, sorted };
        Self { heap: newest_first.into_iter().enumerate().map(ranked).collect(), is_begun: false }
    }

    /// Moves to the next entry. Returns false at the end.
    ///
    /// # Errors
    ///
    /// An input could not be advanced; the merge is then at its end.
    pub fn advance(&mut self) -> Result<bool> {
        let advanced = if self.is_begun { self.next() } else { self.begin() };
        if advanced.is_err() {
            self.heap.clear();
        }
        advanced?;
        Ok(!self.heap.is_empty())
    }

    /// Returns the current entry's key; empty before the first entry and at the end.
    pub fn key(&self) -> &[u8] {
        if self.is_begun { self.heap.first().map_or(&[], |least| least.sorted.key()) } else { &[] }
    }

    /// Returns the current entry's value; empty before the first entry and at the end.
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
            self.sift_down(at);
        }
        self.is_begun = true;
        error.map_or(Ok(()), Err)
    }

    fn next(&mut self) -> Result<()> {
        // Skips the current key in the other inputs. An input with that key is always at one of the root's two children.
        while let Some(at) = self.smaller_of(1, 2) {
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
        self.sift_down(at);
        Ok(())
    }

    /// Moves the heap entry at index `at` down to its position.
    fn sift_down(&mut self, mut at: usize) {
        while let Some(child) = self.smaller_of(2 * at + 1, 2 * at + 2) {
            if self.is_before(at, child) {
                break;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    /// Returns which of two ascending heap indexes has the smaller entry, among those within the heap; `None` if
    /// neither is.
    fn smaller_of(&self, one: usize, other: usize) -> Option<usize> {
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
