//! Open directories: listings, entry by entry.

use crate::failure::{Failure, Result};
use crate::records::Dirent;
use crate::runtime::wait;
use crate::volume::{Entered, Volume};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use vfs::paths::Node;
use vfs::{DirectoryEntry, Handle, Ino};

/// Entries that are listed at a time.
const PAGE_ENTRIES: usize = 256;

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    volume: Arc<Volume>,
    handle: Handle,
    /// The inode, if the file system counts a reference to it for this directory.
    referenced: Option<Ino>,
    position: Mutex<Position>,
}

/// The position of a listing.
#[derive(Debug, Default)]
struct Position {
    /// Entries that were listed and not returned.
    listed: VecDeque<Dirent>,
    /// Cookie of the last entry that was listed.
    cookie: u64,
    is_at_end: bool,
}

/// Opens a directory.
pub(crate) fn open(volume: &Arc<Volume>, path: &[u8]) -> Result<Arc<OpenDirectory>> {
    let entered = volume.enter()?;
    let opening = async {
        let node = entered.resolve(path, true).await?;
        let handle = entered.fs().opendir(node.ino()).await?;
        Ok::<_, Failure>((node, handle))
    };
    let (node, handle) = wait(opening).map_err(|failure| failure.at(path))?;
    let (volume, position) = (Arc::clone(volume), Mutex::default());
    let referenced = node.into_reference();
    Ok(Arc::new(OpenDirectory { volume, handle, referenced, position }))
}

impl OpenDirectory {
    pub(crate) fn is_of(&self, volume: &Arc<Volume>) -> bool {
        Arc::ptr_eq(&self.volume, volume)
    }

    /// Returns the next entry, without `.` and `..`; `None` at the end.
    pub(crate) fn next(&self) -> Result<Option<Dirent>> {
        let entered = self.volume.enter()?;
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        while position.listed.is_empty() && !position.is_at_end {
            let page = wait(entered.fs().readdir(self.handle, position.cookie, PAGE_ENTRIES, true))?;
            position.is_at_end = page.is_empty();
            if let Some(last) = page.last() {
                position.cookie = last.cookie;
            }
            position.listed.extend(page.into_iter().filter_map(|entry| record(&entered, entry)));
        }
        Ok(position.listed.pop_front())
    }

    /// Closes the directory, whose handle is closed already.
    pub(crate) fn close(&self) -> Result<()> {
        let entered = self.volume.enter()?;
        entered.fs().releasedir(self.handle);
        if let Some(ino) = self.referenced {
            entered.fs().forget(ino, 1);
        }
        Ok(())
    }
}

/// Returns an entry with its attributes. Without attributes it is `.` or `..`, or was removed meanwhile.
fn record(entered: &Entered<'_>, entry: DirectoryEntry) -> Option<Dirent> {
    let node = Node::new(entered.fs(), entry.attr?);
    Some(Dirent::new(&entry.name, &node.attr))
}
