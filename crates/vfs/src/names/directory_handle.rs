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
    /// The share in the directory's cached listing; `None` if the directory is not derived, or its listing must not be
    /// cached.
    pub(crate) kept: Option<ListingReader>,
}

impl DirectoryHandle {
    pub(crate) fn new(ino: Ino, kept: Option<ListingReader>) -> Self {
        Self { ino, positions: Mutex::default(), kept }
    }

    /// Returns the positions given out so far. A cookie is a position.
    pub(crate) fn positions(&self) -> std::sync::MutexGuard<'_, Positions> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
