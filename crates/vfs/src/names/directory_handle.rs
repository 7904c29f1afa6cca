//! Handles of open directories.

use meta::Ino;
use std::sync::{Mutex, PoisonError};

use crate::derived::listings::ListingReader;
use crate::names::positions::Positions;

/// State of one `opendir`: maps cookies to entries.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    pub(crate) ino: Ino,
    positions: Mutex<Positions>,
    /// For a derived directory: a listing that the front end may cache.
    pub(crate) kept: Option<ListingReader>,
}

impl DirectoryHandle {
    pub(crate) fn new(ino: Ino, kept: Option<ListingReader>) -> Self {
        Self { ino, positions: Mutex::default(), kept }
    }

    /// Returns the cookies given out so far.
    pub(crate) fn positions(&self) -> std::sync::MutexGuard<'_, Positions> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
