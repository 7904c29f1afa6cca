//! A disk that is soon full.

use crate::reaper::Reaper;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory of a size of its own, mounted as long as this lives.
#[derive(Debug)]
pub struct SmallDisk {
    dir: PathBuf,
    _reaper: Reaper,
}

impl SmallDisk {
    /// Mounts one with room for so many bytes.
    ///
    /// # Panics
    /// If it cannot be mounted: that takes root.
    pub fn with_room_for(bytes: u64) -> Self {
        let dir = crate::server::fresh_dir("disk");
        let reaper = Reaper::for_dir(&dir);
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tenon-tests"])
            .arg(dir.join("data"))
            .status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "cannot mount a small disk: run the tests as root"
        );
        Self { dir, _reaper: reaper }
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Takes all the room there is.
    ///
    /// # Panics
    /// If there is no disk.
    pub fn fill(&self) {
        let mut file =
            std::fs::File::create(self.filler()).unwrap_or_else(|error| panic!("no disk: {error}"));
        // It ends with the error that is wanted.
        let _ = std::io::copy(&mut std::io::repeat(1), &mut file);
    }

    /// Gives it back.
    ///
    /// # Panics
    /// If it was not taken.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap_or_else(|error| panic!("the disk was not full: {error}"));
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

/// Whoever still has files there keeps them until he ends.
fn unmount(path: &Path) {
    let _ = Command::new("umount").arg("-l").arg(path).status();
}
