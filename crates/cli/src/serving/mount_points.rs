//! The mount points of one process. Each has a FUSE session of its own; all share one file system.

use fuse::{Meter, Session, UnmountError};
use metrics::SwitchedOn;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::RwLock;

/// The mount points of a volume. There is none if the volume is only served as objects.
#[derive(Debug)]
pub(crate) struct MountPoints {
    all: Vec<MountPoint>,
    /// Held while an unmount is in progress. A session ends before the unmount of its directory returns. In between, the kernel drops the
    /// inodes that it remembers, which takes seconds for 400,000 inodes.
    unmounting: RwLock<()>,
}

#[derive(Debug)]
struct MountPoint {
    session: Session,
    /// Whether the directory was unmounted. Programs may still have files open in it.
    is_unmounted: AtomicBool,
}

impl MountPoints {
    pub(crate) fn new(sessions: Vec<Session>) -> Self {
        let mount_point = |session| MountPoint { session, is_unmounted: AtomicBool::new(false) };
        Self { all: sessions.into_iter().map(mount_point).collect(), unmounting: RwLock::default() }
    }

    /// Returns the directories that are mounted now, the first mount point first.
    pub(crate) fn mounted(&self) -> Vec<PathBuf> {
        let mounted = self.all.iter().filter(|mount_point| mount_point.is_mounted());
        mounted.map(|mount_point| mount_point.session.mount_point().to_owned()).collect()
    }

    /// Returns the directories that are mounted now, as text.
    pub(crate) fn mounted_text(&self) -> Vec<String> {
        self.mounted().iter().map(|path| path.display().to_string()).collect()
    }

    /// Returns the numbers of the kernel's requests so far, by operation.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (name, count) in
            self.all.iter().flat_map(|mount_point| mount_point.session.meter().counts().seen())
        {
            *counts.entry(name.to_owned()).or_default() += count;
        }
        counts
    }

    /// Returns the figures of the kernel's requests, one for each directory.
    pub(crate) fn meters(&self) -> impl Iterator<Item = &Arc<Meter>> {
        self.all.iter().map(|mount_point| mount_point.session.meter())
    }

    /// Measures the times of the kernel's requests until the returned value is dropped.
    pub(crate) fn measure_times(&self) -> Vec<SwitchedOn> {
        self.meters().map(|meter| meter.measure_times()).collect()
    }

    /// Returns whether the volume has mount points, mounted now or earlier.
    pub(crate) fn has_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Waits until no directory is mounted, no file is open in any, and every `unmount` call has returned.
    pub(crate) async fn wait_until_ended(&self) {
        for mount_point in &self.all {
            mount_point.session.ended().await;
        }
        drop(self.unmounting.write().await);
    }

    /// Waits until every mounted directory answers a `stat`.
    pub(crate) async fn wait_until_ready(&self) -> io::Result<()> {
        for path in self.mounted() {
            tokio::task::spawn_blocking(move || std::fs::metadata(path))
                .await
                .map_err(io::Error::other)??;
        }
        Ok(())
    }

    /// Unmounts a directory, on a blocking thread: the kernel sends requests to this process while it unmounts. Fails
    /// if programs have files open, unless `lazily`.
    pub(crate) async fn unmount(&self, path: &Path, lazily: bool) -> Result<(), UnmountError> {
        let not_mounted = || UnmountError::NotMounted(path.to_owned());
        let is_at_path =
            |mount_point: &&MountPoint| mount_point.is_mounted() && mount_point.session.mount_point() == path;
        let mount_point = self.all.iter().find(is_at_path).ok_or_else(not_mounted)?;
        let root = path.to_owned();
        let _unmounting = self.unmounting.read().await;
        let work = move || if lazily { fuse::detach(&root) } else { fuse::unmount(&root) };
        let ended = tokio::task::spawn_blocking(work).await;
        ended.unwrap_or_else(|error| Err(UnmountError::Io(path.to_owned(), io::Error::other(error))))?;
        mount_point.is_unmounted.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl MountPoint {
    fn is_mounted(&self) -> bool {
        !self.is_unmounted.load(Ordering::Relaxed) && !self.session.has_ended()
    }
}
