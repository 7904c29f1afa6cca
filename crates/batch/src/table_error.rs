//! Conversion of errors of tables and files into errors of an engine.

use meta::EngineError;
use std::io;

/// Converts an error of a table.
pub(crate) fn table_error(error: sst::Error) -> EngineError {
    match error {
        sst::Error::Io(error) => io_error(&error),
        error @ sst::Error::Corrupt { .. } => EngineError::Corrupt(error.to_string()),
        error => EngineError::Unavailable(error.to_string()),
    }
}

/// Converts an error of a file: to [`EngineError::Full`] if there is no space, otherwise to [`EngineError::Unavailable`].
pub(crate) fn io_error(error: &io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full(error.to_string()),
        _ => EngineError::Unavailable(error.to_string()),
    }
}
