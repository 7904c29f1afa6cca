//! Errors of the log as errors of the store.

use std::io;
use store::StoreError;

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the write-back log is closed".into())
}

pub(super) fn failed(error: io::Error) -> StoreError {
    StoreError::of_log("the write-back log", error)
}
