//! Loop devices over one file, and file systems on them.

use super::SetupError;
use harness::{CleanupAction, CleanupProcess, file_error};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Space that the file system below the backing file may need for its own metadata.
const SPARE_BYTES: u64 = 256 << 20;

/// The backing file of all loop devices of a comparison. All its blocks are written before the first measurement, so that no system pays for
/// their allocation.
#[derive(Debug)]
pub struct Backing {
    dir: PathBuf,
    file: PathBuf,
    size_bytes: u64,
    // Dropped last: it removes the directory.
    _cleanup: CleanupProcess,
}

/// A loop device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    path: PathBuf,
    size_bytes: u64,
}

/// A file system on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// XFS with the defaults of `mkfs.xfs`.
    Xfs,
    /// ext4 with the defaults of `mkfs.ext4`.
    Ext4,
}

impl Backing {
    /// Creates the backing file in a new directory below `scratch`.
    ///
    /// # Errors
    /// If the process is not root, space is missing, or the file cannot be written.
    pub fn new(scratch: &Path, size_bytes: u64) -> Result<Self, SetupError> {
        Self::check(scratch, size_bytes)?;
        let dir = canonical_path(scratch)?.join(format!("tenon-analyze-{}", std::process::id()));
        let mut cleanup = CleanupProcess::new()?;
        cleanup.register(&CleanupAction::Remove(&dir))?;
        let file = dir.join("device");
        // Registered after the removal of the directory, so executed before it: `losetup` finds devices only while their backing file exists.
        // This also waits for the devices of a system whose own cleanup process runs at the same time.
        cleanup.register(&CleanupAction::DetachLoops(&file))?;
        fs::create_dir(&dir).map_err(file_error(&dir))?;
        write_zeros(&file, size_bytes).map_err(file_error(&file))?;
        Ok(Self { dir, file, size_bytes, _cleanup: cleanup })
    }

    /// Checks that the backing file can be created.
    ///
    /// # Errors
    /// If the process is not root, or space is missing.
    pub fn check(scratch: &Path, size_bytes: u64) -> Result<(), SetupError> {
        if !rustix::process::geteuid().is_root() {
            return Err(SetupError::NotRoot);
        }
        let free_bytes = free_bytes(scratch)?;
        let needed_bytes = size_bytes + SPARE_BYTES;
        if free_bytes < needed_bytes {
            return Err(SetupError::NoSpace { dir: scratch.to_owned(), free_bytes, needed_bytes });
        }
        Ok(())
    }

    /// Returns the directory of the backing file, which also holds mount points and logs.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Attaches `parts` loop devices of equal size that together cover the file.
    pub(super) fn attach(
        &self,
        parts: u64,
        cleanup: &mut CleanupProcess,
    ) -> Result<Vec<LoopDevice>, SetupError> {
        const ALIGNMENT: u64 = 1 << 20;
        let size_bytes = self.size_bytes / parts / ALIGNMENT * ALIGNMENT;
        cleanup.register(&CleanupAction::DetachLoops(&self.file))?;
        (0..parts).map(|part| self.attach_part(part * size_bytes, size_bytes, cleanup)).collect()
    }

    fn attach_part(
        &self,
        from: u64,
        size_bytes: u64,
        cleanup: &mut CleanupProcess,
    ) -> Result<LoopDevice, SetupError> {
        let (from, size, file) =
            (format!("--offset={from}"), format!("--sizelimit={size_bytes}"), self.file.to_string_lossy());
        // Direct I/O: otherwise the page cache of this machine would serve reads of the device.
        let arguments = ["--find", "--show", "--direct-io=on", &from, &size, &file];
        let output = cleanup.run("losetup", &arguments)?.stdout;
        Ok(LoopDevice { path: PathBuf::from(String::from_utf8_lossy(&output).trim()), size_bytes })
    }
}

impl LoopDevice {
    /// Returns the path, such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name, such as `loop3`.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Returns the size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Formats the device and mounts it on a new directory.
    pub(super) fn mount(
        &self,
        file_system: FileSystem,
        dir: &Path,
        cleanup: &mut CleanupProcess,
    ) -> Result<(), SetupError> {
        let device = self.path.to_string_lossy();
        match file_system {
            // -K: no discard, so the backing file keeps its blocks for the next system.
            FileSystem::Xfs => cleanup.run("mkfs.xfs", &["-q", "-f", "-K", &device])?,
            // Initialize inode tables now, so that no kernel thread writes them during a measurement.
            FileSystem::Ext4 => cleanup.run(
                "mkfs.ext4",
                &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", &device],
            )?,
        };
        cleanup.register(&CleanupAction::Remove(dir))?;
        cleanup.register(&CleanupAction::Unmount(dir))?;
        fs::create_dir(dir).map_err(file_error(dir))?;
        cleanup
            .run("mount", &["-t", file_system.name(), "-o", "noatime", &device, &dir.to_string_lossy()])?;
        Ok(())
    }
}

impl FileSystem {
    /// Returns the kernel's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
        }
    }

    /// Returns the name in reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::Xfs => "XFS",
            Self::Ext4 => "ext4",
        }
    }
}

/// Returns the canonical path of a directory. Servers with another working directory and the cleanup process need it. The cleanup process gets
/// paths as lines of text, so other paths are refused.
fn canonical_path(dir: &Path) -> Result<PathBuf, SetupError> {
    let path = fs::canonicalize(dir).map_err(file_error(dir))?;
    if path.to_str().is_none_or(|text| text.contains('\n')) {
        let why = "its path is not UTF-8 or contains a line break; choose another directory with --scratch";
        return Err(file_error(dir)(std::io::Error::new(ErrorKind::InvalidInput, why)).into());
    }
    Ok(path)
}

/// Returns the free space of a file system, without blocks reserved for root.
pub(super) fn free_bytes(dir: &Path) -> Result<u64, SetupError> {
    let found = rustix::fs::statvfs(dir).map_err(|errno| file_error(dir)(errno.into()))?;
    Ok(found.f_bavail * found.f_frsize)
}

fn write_zeros(path: &Path, size_bytes: u64) -> std::io::Result<()> {
    const BLOCK: usize = 4 << 20;
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(path)?;
    let zeros = vec![0; BLOCK];
    let mut left = size_bytes;
    while left > 0 {
        let len = left.min(BLOCK as u64);
        file.write_all(&zeros[..len as usize])?;
        left -= len;
    }
    file.sync_all()?;
    // Drop the pages of the file: the memory belongs to the measured systems.
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}
