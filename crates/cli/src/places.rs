//! The directories at which one process has a volume mounted: each a session of its own, over one file system.

use fuse::{Session, UnmountError};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::RwLock;

/// Where a volume is mounted; nowhere, if it is only served as objects.
#[derive(Debug)]
pub(crate) struct Places {
    places: Vec<Place>,
    /// Held while the kernel takes a mount away. Its session ends first, and the kernel then forgets what it knows of the mount: of
    /// 400,000 inodes for seconds.
    taking_away: RwLock<()>,
}

#[derive(Debug)]
struct Place {
    session: Session,
    /// It was taken away, though programs may still have files open in it.
    is_left: AtomicBool,
}

impl Places {
    pub(crate) fn new(sessions: Vec<Session>) -> Self {
        let place = |session| Place { session, is_left: AtomicBool::new(false) };
        Self { places: sessions.into_iter().map(place).collect(), taking_away: RwLock::default() }
    }

    /// The directories that are mounted now, the first one first.
    pub(crate) fn mounted(&self) -> Vec<PathBuf> {
        let here = self.places.iter().filter(|place| place.is_here());
        here.map(|place| place.session.mount_point().to_owned()).collect()
    }

    /// The same, as text.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.mounted().iter().map(|path| path.display().to_string()).collect()
    }

    /// The kernel's requests so far, by operation.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (name, count) in self.places.iter().flat_map(|place| place.session.requests().seen()) {
            *counts.entry(name.to_owned()).or_default() += count;
        }
        counts
    }

    /// Whether there ever was one.
    pub(crate) fn are_any(&self) -> bool {
        !self.places.is_empty()
    }

    /// Returns when none is mounted any more, no file is open in any, and those who took them away know it.
    pub(crate) async fn ended(&self) {
        for place in &self.places {
            place.session.ended().await;
        }
        drop(self.taking_away.write().await);
    }

    /// Returns when a program that looks at them gets an answer.
    pub(crate) async fn answer(&self) -> io::Result<()> {
        for path in self.mounted() {
            tokio::task::spawn_blocking(move || std::fs::metadata(path))
                .await
                .map_err(io::Error::other)??;
        }
        Ok(())
    }

    /// Takes one away, on a thread of its own: the kernel asks us things while it unmounts.
    pub(crate) async fn unmount(&self, path: &Path, lazily: bool) -> Result<(), UnmountError> {
        let not_mounted = || UnmountError::NotMounted(path.to_owned());
        let is_meant = |place: &&Place| place.is_here() && place.session.mount_point() == path;
        let place = self.places.iter().find(is_meant).ok_or_else(not_mounted)?;
        let root = path.to_owned();
        let _taking_away = self.taking_away.read().await;
        let work = move || if lazily { fuse::detach(&root) } else { fuse::unmount(&root) };
        let ended = tokio::task::spawn_blocking(work).await;
        ended.unwrap_or_else(|error| Err(UnmountError::Io(path.to_owned(), io::Error::other(error))))?;
        place.is_left.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Place {
    fn is_here(&self) -> bool {
        !self.is_left.load(Ordering::Relaxed) && !self.session.has_ended()
    }
}
