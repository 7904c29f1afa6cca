//! Versions in the files of table layers, read while the layer may be in use.

use crate::OpenError;
use crate::layer::lsm;
#[cfg(feature = "rocksdb")]
use crate::layer::rocks;
#[cfg(feature = "rocksdb")]
use meta::EngineError;
use std::path::Path;

/// The version of an LSM tree's files.
pub(crate) const LSM_VERSION: u32 = lsm::FORMAT_VERSION;

/// Returns the version of an LSM tree's manifest; `None` if the tree has none.
pub(crate) fn lsm_tables(dir: &Path) -> Result<Option<u32>, OpenError> {
    Ok(lsm::stored_version(dir)?)
}

/// Returns the version of the engine's records in a RocksDB database; `None` if the engine was not initialised.
#[cfg(feature = "rocksdb")]
pub(crate) fn rocks_records(dir: &Path) -> Result<Option<u8>, OpenError> {
    let head = rocks::read_row(dir, &meta::schema::head())?;
    match head.map(|head| head.first().copied()) {
        Some(None) => Err(EngineError::Corrupt("the head record is empty".into()).into()),
        version => Ok(version.flatten()),
    }
}

/// Fails, as this build has no RocksDB.
#[cfg(not(feature = "rocksdb"))]
pub(crate) fn rocks_records(dir: &Path) -> Result<Option<u8>, OpenError> {
    Err(OpenError::NoRocksDb(dir.to_owned()))
}
