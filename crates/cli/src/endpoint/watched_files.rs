//! Files that are read when an endpoint starts and again whenever they change: users and certificates.

use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interval of checks for changes. One check of a file's attributes costs a microsecond.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Files and their state when they were last read, valid or not.
pub(crate) struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// State of each file; `None` for one that cannot be read.
    stamps: Vec<Option<Stamp>>,
}

impl WatchedFiles {
    /// Notes the state of the files, before they are read for the first time.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let stamps = Self::stamps_of(&paths);
        Self { paths, stamps }
    }

    fn stamps_of(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
        paths.iter().map(Stamp::of).collect()
    }

    /// Calls `reload` when a file has changed, until the process ends. SIGHUP calls it at once, even if nothing seems changed.
    pub(crate) fn on_change(self, reload: impl FnMut() + Send + 'static) -> Result<()> {
        let hangup = signal(SignalKind::hangup()).context("cannot watch signals")?;
        tokio::spawn(self.watch(reload, hangup));
        Ok(())
    }

    async fn watch(mut self, mut reload: impl FnMut() + Send + 'static, mut hangup: Signal) {
        loop {
            let is_forced = tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => false,
                _ = hangup.recv() => true,
            };
            let checked = tokio::task::spawn_blocking(move || {
                if self.take_change() || is_forced {
                    reload();
                }
                (self, reload)
            });
            match checked.await {
                Ok(back) => (self, reload) = back,
                Err(_) => return,
            }
        }
    }

    /// Returns whether a file has changed since the last call.
    fn take_change(&mut self) -> bool {
        let now = Self::stamps_of(&self.paths);
        std::mem::replace(&mut self.stamps, now) != self.stamps
    }
}

/// Attributes that distinguish a file from its earlier versions, and from another file at its path. A changed mode
/// counts: a wrong mode may be why the file was refused.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    ino: u64,
    size_bytes: u64,
    /// Change time (ctime): seconds and nanoseconds.
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of a file, or `None` if there is no file.
    fn of(path: &PathBuf) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            ino: found.ino(),
            size_bytes: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_file_is_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| dir.path().join(name)).to_vec();
        std::fs::write(&paths[0], "a").unwrap();
        let mut watched = WatchedFiles::new(paths.clone());
        assert!(!watched.take_change());
        for path in &paths {
            std::fs::write(path, "longer").unwrap();
            assert!(watched.take_change() && !watched.take_change());
        }
        std::fs::remove_file(&paths[1]).unwrap();
        assert!(watched.take_change() && !watched.take_change());
    }
}
