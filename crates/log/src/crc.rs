//! CRC-32C, the checksum of all logs.

use crc_fast::{CrcAlgorithm, Digest};

/// A CRC-32C over several pieces.
#[derive(Debug)]
pub struct Crc(Digest);

impl Default for Crc {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc {
    /// Returns the checksum of some bytes.
    pub fn of(bytes: &[u8]) -> u32 {
        let mut crc = Self::default();
        crc.add(bytes);
        crc.sum()
    }

    /// Adds the next piece of the bytes to the checksum.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of the pieces added so far.
    pub fn sum(&self) -> u32 {
        self.0.finalize() as u32
    }
}
