//! The format of an engine's files, read without opening the engine: no lock is taken and nothing is written, so that the engine may be in use.

use crate::layer::stored_format;
use crate::{OpenError, TableLayer};
use std::path::Path;

/// The format of an engine's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredFormat {
    /// The layer that has the tables.
    pub layer: TableLayer,
    /// The version of the engine's records, if the layer can be read while it is in use: RocksDB.
    pub records: Option<u8>,
    /// The version of the layer's own files, if it is Tenon's: an LSM tree.
    pub tables: Option<u32>,
}

impl StoredFormat {
    /// The versions of an LSM tree's files that this Tenon reads.
    pub const TABLE_VERSIONS: std::ops::RangeInclusive<u32> =
        stored_format::LSM_VERSION..=stored_format::LSM_VERSION;

    /// Reads the format of the engine in a directory; `None` if there is no engine.
    ///
    /// # Errors
    /// The files cannot be read, or this build has no RocksDB.
    pub fn read(dir: &Path) -> Result<Option<Self>, OpenError> {
        let (rocks, lsm) = (dir.join("tables"), dir.join("lsm"));
        if rocks.exists() {
            let records = stored_format::rocks_records(&rocks)?;
            return Ok(Some(Self { layer: TableLayer::RocksDb, records, tables: None }));
        }
        if lsm.exists() {
            let tables = stored_format::lsm_tables(&lsm)?;
            return Ok(Some(Self { layer: TableLayer::Lsm, records: None, tables }));
        }
        Ok(None)
    }
}
