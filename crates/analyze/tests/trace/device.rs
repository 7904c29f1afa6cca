//! Loop devices, and file systems on them, that are removed at the end of a test.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Size of a device. mkfs.xfs needs at least 300 MiB; the backing file is sparse.
const DEVICE_BYTES: u64 = 512 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Xfs,
    Ext4,
}

/// A loop device over a new sparse file.
pub(crate) struct Loop {
    path: PathBuf,
    _directory: TempDir,
}

impl Loop {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("disk");
        std::fs::File::create(&file).unwrap().set_len(DEVICE_BYTES).unwrap();
        let path = run("losetup", &["--find", "--show", "--direct-io=on", file.to_str().unwrap()]);
        Self { path: path.trim().into(), _directory: directory }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn format(self, file_system: FileSystem) -> Mounted {
        let device = self.path.to_str().unwrap();
        match file_system {
            FileSystem::Xfs => run("mkfs.xfs", &["-q", "-f", device]),
            // Without lazy initialization, which would write during the trace.
            FileSystem::Ext4 => {
                run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device])
            }
        };
        Mounted::mount(self)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// A mounted file system on a loop device.
pub(crate) struct Mounted {
    path: Option<TempDir>,
    device: Option<Loop>,
}

impl Mounted {
    fn mount(device: Loop) -> Self {
        let path = tempfile::tempdir().unwrap();
        run("mount", &["-o", "noatime", device.path.to_str().unwrap(), path.path().to_str().unwrap()]);
        Self { path: Some(path), device: Some(device) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.as_ref().unwrap().path()
    }

    pub(crate) fn device(&self) -> &Path {
        self.device.as_ref().unwrap().path()
    }

    /// Unmounts the file system and mounts it at the same path, so that none of its data is cached.
    pub(crate) fn remount(mut self) -> Self {
        let path = self.path.take().unwrap();
        let device = self.device.take().unwrap();
        run("umount", &[path.path().to_str().unwrap()]);
        run("mount", &["-o", "noatime", device.path.to_str().unwrap(), path.path().to_str().unwrap()]);
        Self { path: Some(path), device: Some(device) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = Command::new("umount").arg(path.path()).status();
        }
    }
}

/// Runs a program and returns its output. Panics if it fails.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}; install it, and run the tests as root"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {errors}; run the tests as root");
    String::from_utf8(output.stdout).unwrap()
}
