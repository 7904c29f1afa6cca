//! Handles of open files and directories.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::content::open_file::FileHandle;
use crate::names::directory_handle::DirectoryHandle;
use crate::{Error, Result};

/// The number by which a front end refers to an open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// The result of opening a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The handle for further calls.
    pub handle: Handle,
    /// Whether the page cache of an earlier open stays valid: the bytes are unchanged, or the pages belong to older handles
    /// that are still open.
    pub keep_cache: bool,
    /// Whether the front end must bypass its page cache: neither fill it nor read from it.
    pub is_uncached: bool,
    /// Whether the bytes were replaced since they were last known. A front end may have reported another length.
    pub was_replaced: bool,
}

/// The open handles of files and directories, by number.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// The number of the newest handle.
    next: AtomicU64,
    files: Mutex<HashMap<u64, Arc<FileHandle>>>,
    directories: Mutex<HashMap<u64, Arc<DirectoryHandle>>>,
}

impl Handles {
    pub(crate) fn add_file(&self, file: FileHandle) -> Handle {
        insert(&self.files, self.number(), file)
    }

    /// Returns the handle of a file; EBADF if there is none with this number.
    pub(crate) fn file(&self, handle: Handle) -> Result<Arc<FileHandle>> {
        get(&self.files, handle)
    }

    pub(crate) fn remove_file(&self, handle: Handle) -> Option<Arc<FileHandle>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0)
    }

    pub(crate) fn add_directory(&self, directory: DirectoryHandle) -> Handle {
        insert(&self.directories, self.number(), directory)
    }

    /// Returns the handle of a directory; EBADF if there is none with this number.
    pub(crate) fn directory(&self, handle: Handle) -> Result<Arc<DirectoryHandle>> {
        get(&self.directories, handle)
    }

    pub(crate) fn remove_directory(&self, handle: Handle) {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
    }

    /// Returns the number of handles of files.
    pub(crate) fn len(&self) -> usize {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the number of a new handle.
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn insert<T>(table: &Mutex<HashMap<u64, Arc<T>>>, number: u64, value: T) -> Handle {
    table.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(value));
    Handle(number)
}

fn get<T>(table: &Mutex<HashMap<u64, Arc<T>>>, handle: Handle) -> Result<Arc<T>> {
    table.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned().ok_or(Error::BAD_HANDLE)
}
