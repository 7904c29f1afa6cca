//! Manifests: the descriptions of complete snapshots.

use serde::{Deserialize, Serialize};

/// The version of manifests that this Tenon writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 1;

/// The volume that a backup or a dump was made of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct About {
    /// The volume, as it was mounted.
    pub volume: String,
    /// Id by which a state directory knows its volume.
    pub owner: String,
    /// Settings under which names were learned.
    #[serde(default)]
    pub settings: Option<String>,
    /// Version of Tenon that wrote this.
    pub tenon: String,
}

/// The description of a complete snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) about: About,
    /// The newest commit in the snapshot.
    pub(crate) seqno: u64,
    /// When the snapshot was taken, in nanoseconds since 1970, by the clock of the machine that took it.
    pub(crate) made_at: i64,
    /// The tables in the order of their numbers. Their keys ascend.
    pub(crate) tables: Vec<TableEntry>,
}

/// A table of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableEntry {
    /// Length of the object in bytes.
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    /// CRC-32C of the object.
    pub(crate) crc32c: u32,
}

impl Manifest {
    /// Returns the number of records in all tables.
    pub(crate) fn records(&self) -> u64 {
        self.tables.iter().map(|table| table.records).sum()
    }
}
