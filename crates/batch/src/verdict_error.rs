//! Errors of verdicts.

use meta::codec::DecodeError;
use std::io;

/// The reason why a verdict cannot be used. The primary verifies the batch itself then.
#[derive(Debug, thiserror::Error)]
pub enum VerdictError {
    /// A file of the verdict cannot be read.
    #[error("the verdict cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is no verdict, not whole, or of another version.
    #[error("the file is not a whole verdict of this version")]
    Format,
    /// A field has bytes that it cannot have.
    #[error("the verdict has an invalid field: {0}")]
    Field(#[from] DecodeError),
    /// The verdict changes a record that a batch cannot change, or shares an object that is not the batch's.
    #[error("the verdict changes what a batch cannot change")]
    Foreign,
}
