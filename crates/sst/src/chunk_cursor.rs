//! A cursor over a sorted map in memory that others change meanwhile.

use crate::{Result, Sorted};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;

/// Entries that a cursor copies at a time at most.
const CHUNK_MAX: usize = 256;

/// A sorted map in memory.
pub trait ChunkSource {
    /// Appends at most `limit` entries from a bound on to `chunk`, in ascending order of their keys.
    fn copy_chunk(&self, from: Bound<&[u8]>, limit: usize, chunk: &mut Vec<(Bytes, Bytes)>);
}

impl<S: ChunkSource + ?Sized> ChunkSource for Arc<S> {
    fn copy_chunk(&self, from: Bound<&[u8]>, limit: usize, chunk: &mut Vec<(Bytes, Bytes)>) {
        (**self).copy_chunk(from, limit, chunk);
    }
}

/// A cursor that copies some entries at a time, so that the map is locked only meanwhile. It does not see an entry
/// that is inserted at or before the last key that it has copied.
#[derive(Debug)]
pub struct ChunkCursor<S> {
    source: S,
    from: Bound<Bytes>,
    /// Copied entries, the next one last.
    chunk: Vec<(Bytes, Bytes)>,
    chunk_limit: usize,
    current: (Bytes, Bytes),
}

impl<S: ChunkSource> ChunkCursor<S> {
    /// Returns a cursor before the first entry within the bound. It copies `first_chunk` entries first, then twice as many each time, and
    /// at most 256.
    pub fn new(source: S, from: Bound<Bytes>, first_chunk: usize) -> Self {
        let chunk_limit = first_chunk.clamp(1, CHUNK_MAX);
        Self { source, from, chunk: Vec::new(), chunk_limit, current: Default::default() }
    }
}

impl<S: ChunkSource> Sorted for ChunkCursor<S> {
    fn advance(&mut self) -> Result<bool> {
        if self.chunk.is_empty() {
            let from = self.from.as_ref().map(|key| &key[..]);
            self.source.copy_chunk(from, self.chunk_limit, &mut self.chunk);
            self.chunk.reverse();
            self.chunk_limit = (2 * self.chunk_limit).min(CHUNK_MAX);
        }
        let Some(next) = self.chunk.pop() else { return Ok(false) };
        self.from = Bound::Excluded(next.0.clone());
        self.current = next;
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        &self.current.0
    }

    fn value(&self) -> &Bytes {
        &self.current.1
    }
}
