//! Memory for the bytes of a block.

use bytes::{Bytes, BytesMut};

use crate::content::slab::{SLAB_BYTES, Slab, SlabPool};

/// A recycled slab for full blocks, memory of the exact size for small ones.
pub(crate) enum Buffer {
    Slab(Slab, usize),
    Exact(BytesMut),
}

impl Buffer {
    /// Returns an empty buffer for `wanted` bytes.
    pub(crate) fn new(slabs: &SlabPool, wanted: usize) -> Self {
        if wanted > SLAB_BYTES / 2 {
            Self::Slab(slabs.take(), 0)
        } else {
            Self::Exact(BytesMut::with_capacity(wanted))
        }
    }

    /// Returns how many bytes it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Slab(_, filled) => *filled,
            Self::Exact(bytes) => bytes.len(),
        }
    }

    /// Appends as much of `data` as fits; returns how much that was.
    pub(crate) fn fill(&mut self, data: &[u8]) -> usize {
        match self {
            Self::Slab(slab, filled) => {
                let taken = slab.fill(data);
                *filled += taken;
                taken
            }
            Self::Exact(bytes) => {
                bytes.extend_from_slice(data);
                data.len()
            }
        }
    }

    /// Makes an empty buffer `wanted` bytes long, which `read` writes. Returns whether it did; if not, the buffer stays empty.
    pub(crate) fn fill_by(&mut self, wanted: usize, read: impl FnOnce(&mut [u8]) -> bool) -> bool {
        match self {
            Self::Slab(slab, filled) => {
                let is_filled = slab.fill_by(wanted, read);
                *filled = if is_filled { wanted } else { 0 };
                is_filled
            }
            Self::Exact(bytes) => {
                bytes.resize(wanted, 0);
                let is_filled = read(bytes);
                bytes.truncate(if is_filled { wanted } else { 0 });
                is_filled
            }
        }
    }

    /// Returns the bytes.
    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Self::Slab(slab, _) => slab.freeze(),
            Self::Exact(bytes) => bytes.freeze(),
        }
    }
}
