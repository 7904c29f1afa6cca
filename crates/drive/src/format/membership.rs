//! Membership: the list of a pool's drives, as stored on each of them.

use crate::codec::{Decoder, Encoder};

/// A pool, as stored on each of its drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The id of the pool.
    pub pool: u64,
    /// The ids of its drives, in the order in which they joined.
    pub drives: Vec<u64>,
}

impl Membership {
    /// Returns the number of a drive, from 0.
    pub fn number_of(&self, drive: u64) -> Option<usize> {
        self.drives.iter().position(|&id| id == drive)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.fixed64(self.pool);
        to.list(self.drives.iter(), |to, &id| to.fixed64(id));
        to.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let (pool, drives) = (from.fixed64()?, from.list(Decoder::fixed64)?);
        from.end(Self { pool, drives })
    }
}
