//! Operations for the operator of a volume: imports, eviction, garbage collection and deletions, the background lister,
//! the memory limit, the free space, listing of the whole bucket.

use bytes::Bytes;
use meta::{Ino, Kind};
use std::sync::Arc;
use std::time::Duration;
use store::ObjectKey;

use crate::bucket::discovery::PAGE_ENTRIES;
use crate::names::positions::DOTS;
use crate::{ExportMark, Filesystem, Result};

/// Operations for the operator of a volume.
#[derive(Debug, Clone, Copy)]
pub struct Admin<'fs> {
    pub(super) fs: &'fs Filesystem,
}

impl Filesystem {
    /// Returns the operations for the operator of the volume.
    pub fn admin(&self) -> Admin<'_> {
        Admin { fs: self }
    }
}

impl Admin<'_> {
    /// Evicts everything that can be read from the bucket again, so that it is read with this mount's settings.
    pub fn forget_learned(&self) -> Result<()> {
        self.fs.volume.forget_learned()
    }

    /// Imports objects that other clients stored in a volume named by inode. Returns the paths of the new files. Does nothing
    /// in a volume named by path, where such objects are files already.
    pub async fn import_foreign(&self) -> Result<Vec<Bytes>> {
        self.fs.volume.import_foreign().await
    }

    /// Makes files in `lost+found` of content that no file refers to. Returns their paths. Serves a volume named by
    /// inode whose metadata was restored and is older than the content. Does nothing in a volume named by path.
    pub async fn name_content(&self, keys: &[ObjectKey]) -> Result<Vec<Bytes>> {
        self.fs.volume.name_content(keys).await
    }

    /// Returns the keys of content that belongs to no file and of expired leases; deletes these objects unless
    /// `only_find`.
    pub async fn collect_garbage(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        let mut found = self.fs.content.collect_garbage(only_find).await?;
        found.extend(self.fs.volume.collect_leases(only_find).await?);
        Ok(found)
    }

    /// Returns the number of files that handles, requests or background work have open, each counted once.
    pub fn open_files(&self) -> usize {
        self.fs.content.files().len()
    }

    /// Starts the background lister, with the time `every` for each request. It runs until the file system is dropped. Does
    /// nothing for a volume named by inode, whose objects no other client changes.
    pub fn list_in_background(&self, every: Duration) {
        self.fs.volume.list_in_background(every);
    }

    /// Sets how much of the memory limit other parts of the process hold, at most half of it. Cached bytes beyond the smaller shares
    /// are dropped at once; names are evicted as far as one sweep gets, and further by later calls.
    pub fn reserve_memory(&self, bytes: u64) -> Result<()> {
        self.fs.mount.memory.reserve(bytes);
        self.fs.content.trim();
        self.fs.bucket.name_evictor.trim()
    }

    /// Keeps the content to which a backup of the names refers: from now on, content that is no longer used is deleted once the mark has
    /// reached the commit that released it.
    pub fn delete_after_export(&self, mark: Arc<ExportMark>) {
        self.fs.content.discards().wait_for_exports(mark);
    }

    /// Returns whether content that is no longer used waits for its deletion.
    pub fn has_waiting_deletions(&self) -> bool {
        self.fs.content.discards().len() > 0
    }

    /// Waits until all content that is no longer used has been deleted, also where that needs a backup of the names, or
    /// the bucket does not answer.
    pub async fn wait_for_deletions(&self) {
        self.fs.content.discards().wait_until_empty().await;
    }

    /// Sets the function by which `statfs` and `fallocate` determine the free space of the backing store.
    pub fn measure_space_by(&self, measure: crate::MeasureDiskSpace) {
        self.fs.content.measure_space_by(measure);
    }

    /// Lists the whole bucket to learn every name; `on_progress` gets the number of entries found so far. Returns the
    /// number of all entries.
    pub async fn learn_all(&self, mut on_progress: impl FnMut(usize)) -> Result<usize> {
        let (mut directories, mut count) = (vec![Ino::ROOT], 0);
        while let Some(dir) = directories.pop() {
            let handle = self.fs.opendir(dir).await?;
            let mut cookie = DOTS;
            loop {
                let listed = self.fs.readdir(handle, cookie, PAGE_ENTRIES, false).await?;
                let Some(last) = listed.last() else { break };
                cookie = last.cookie;
                count += listed.len();
                on_progress(count);
                let inside = listed.iter().filter(|entry| entry.kind == Some(Kind::Directory));
                directories.extend(inside.map(|entry| entry.ino));
            }
            self.fs.releasedir(handle);
        }
        Ok(count)
    }
}
