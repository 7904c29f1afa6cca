//! Block devices for tests: loop devices over files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device that is detached on drop. Tests that need one fail where losetup(8) is not permitted.
#[derive(Debug)]
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Makes a loop device over a new file, with direct I/O.
    pub(crate) fn new(below: &Path, len_bytes: u64) -> Self {
        std::fs::File::create_new(below).unwrap().set_len(len_bytes).unwrap();
        let shown = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(below));
        Self(PathBuf::from(shown.trim()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes an ext4 file system on the device and mounts it until the return value is dropped.
    pub(crate) fn mount_ext4(&self, folder: &Path) -> Mounted {
        let at = folder.join("mounted");
        std::fs::create_dir(&at).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(&self.0));
        run(Command::new("mount").arg(&self.0).arg(&at));
        Mounted(at)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

/// A mount point that is unmounted when this is dropped.
#[derive(Debug)]
pub(crate) struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
