//! A small file system that a test can fill.

use harness::{CleanupAction, CleanupProcess};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs of a given size, mounted for the lifetime of this value.
#[derive(Debug)]
pub struct SmallDisk {
    dir: PathBuf,
    _cleanup: CleanupProcess,
}

impl SmallDisk {
    /// Mounts a file system with room for `bytes`.
    ///
    /// # Panics
    /// Panics if the mount fails, which needs root.
    pub fn with_room_for(bytes: u64) -> Self {
        let dir = crate::server::fresh_dir("disk");
        let mut cleanup = crate::server::cleanup_of(&dir);
        let registered = cleanup.register(&CleanupAction::Unmount(&dir.join("data")));
        registered.unwrap_or_else(|error| panic!("{error}"));
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tenon-tests"])
            .arg(dir.join("data"))
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount a tmpfs: run the tests as root");
        Self { dir, _cleanup: cleanup }
    }

    /// Returns the mount point.
    pub fn path(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Lets all users of the machine reach the file system, for servers that do not run as root.
    ///
    /// # Panics
    /// Panics if the directory is gone.
    pub fn open_to_all(&self) {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.dir, mode)
            .unwrap_or_else(|error| panic!("cannot open {} to all: {error}", self.dir.display()));
    }

    /// Fills the file system.
    ///
    /// # Panics
    /// Panics if the file system is gone.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.filler())
            .unwrap_or_else(|error| panic!("cannot create the file that fills the disk: {error}"));
        // The copy ends with ENOSPC, as intended.
        let _ = std::io::copy(&mut std::io::repeat(1), &mut file);
    }

    /// Frees the space that [`SmallDisk::fill`] took.
    ///
    /// # Panics
    /// Panics if the file system was not filled.
    pub fn free(&self) {
        std::fs::remove_file(self.filler())
            .unwrap_or_else(|error| panic!("cannot remove the file that fills the disk: {error}"));
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

/// Detaches the mount lazily: processes with open files there keep them until they close them.
fn unmount(path: &Path) {
    let _ = Command::new("umount").arg("-l").arg(path).status();
}
