//! Loop devices over one file, and file systems on them.

use super::cleanup::{Undertaker, Undo};
use super::{SetupError, about};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What the file's own file system may need besides its bytes.
const SPARE_BYTES: u64 = 256 << 20;

/// The file under all loop devices of a comparison. Its blocks are written once, before anything is measured, so that
/// the first system that writes a block pays no more than the last.
#[derive(Debug)]
pub struct Backing {
    dir: PathBuf,
    file: PathBuf,
    size_bytes: u64,
    // Dropped last: it removes the directory.
    _undertaker: Undertaker,
}

/// A loop device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    path: PathBuf,
    size_bytes: u64,
}

/// What is on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// With `mkfs.xfs`'s defaults.
    Xfs,
    /// With `mkfs.ext4`'s defaults.
    Ext4,
}

impl Backing {
    /// Makes the file, so long, in a new directory below `scratch`.
    ///
    /// # Errors
    /// Not root, too little space, or what writing a file meets.
    pub fn new(scratch: &Path, size_bytes: u64) -> Result<Self, SetupError> {
        Self::check(scratch, size_bytes)?;
        let dir = plain(scratch)?.join(format!("tenon-analyze-{}", std::process::id()));
        let mut undertaker = Undertaker::new()?;
        undertaker.will(&Undo::Remove(&dir))?;
        let file = dir.join("device");
        // A file that is gone names no devices: those of a system that is torn down at the same time go first.
        undertaker.will(&Undo::Detach(&file))?;
        fs::create_dir(&dir).map_err(about(&dir))?;
        write_zeros(&file, size_bytes).map_err(about(&file))?;
        Ok(Self { dir, file, size_bytes, _undertaker: undertaker })
    }

    /// That it can be made.
    ///
    /// # Errors
    /// Not root, or too little space.
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

    /// Where mount points and logs go as well.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// As many loop devices as asked for, of equal length, over the whole file together.
    pub(super) fn attach(
        &self,
        parts: u64,
        undertaker: &mut Undertaker,
    ) -> Result<Vec<LoopDevice>, SetupError> {
        const ALIGNMENT: u64 = 1 << 20;
        let size_bytes = self.size_bytes / parts / ALIGNMENT * ALIGNMENT;
        undertaker.will(&Undo::Detach(&self.file))?;
        (0..parts).map(|part| self.attach_part(part * size_bytes, size_bytes, undertaker)).collect()
    }

    fn attach_part(
        &self,
        from: u64,
        size_bytes: u64,
        undertaker: &mut Undertaker,
    ) -> Result<LoopDevice, SetupError> {
        let (from, size, file) =
            (format!("--offset={from}"), format!("--sizelimit={size_bytes}"), self.file.to_string_lossy());
        // Direct: else this machine's memory would cache what the device is to show.
        let arguments = ["--find", "--show", "--direct-io=on", &from, &size, &file];
        let said = undertaker.run("losetup", &arguments)?.stdout;
        Ok(LoopDevice { path: PathBuf::from(String::from_utf8_lossy(&said).trim()), size_bytes })
    }
}

impl LoopDevice {
    /// Such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Such as `loop3`.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Its length.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Makes a file system on it and mounts that on a new directory.
    pub(super) fn mount(
        &self,
        file_system: FileSystem,
        dir: &Path,
        undertaker: &mut Undertaker,
    ) -> Result<(), SetupError> {
        let device = self.path.to_string_lossy();
        match file_system {
            // Not discarding: the file's blocks stay, for whoever comes next.
            FileSystem::Xfs => undertaker.run("mkfs.xfs", &["-q", "-f", "-K", &device])?,
            // All inode tables now, not by a thread that writes while something is measured.
            FileSystem::Ext4 => undertaker.run(
                "mkfs.ext4",
                &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", &device],
            )?,
        };
        undertaker.will(&Undo::Remove(dir))?;
        undertaker.will(&Undo::Unmount(dir))?;
        fs::create_dir(dir).map_err(about(dir))?;
        undertaker
            .run("mount", &["-t", file_system.name(), "-o", "noatime", &device, &dir.to_string_lossy()])?;
        Ok(())
    }
}

impl FileSystem {
    /// As the kernel calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
        }
    }

    /// As people write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Xfs => "XFS",
            Self::Ext4 => "ext4",
        }
    }
}

/// A directory by the path that the kernel has for it, which is the same for a server that runs elsewhere and for who
/// tears down: these are told in lines of text.
fn plain(dir: &Path) -> Result<PathBuf, SetupError> {
    let path = fs::canonicalize(dir).map_err(about(dir))?;
    if path.to_str().is_none_or(|text| text.contains('\n')) {
        let why = "its path is not one line of text; name another place with --scratch";
        return Err(about(dir)(std::io::Error::new(ErrorKind::InvalidInput, why)));
    }
    Ok(path)
}

/// What is free at a place, for whoever may use all of it.
pub(super) fn free_bytes(dir: &Path) -> Result<u64, SetupError> {
    let found = rustix::fs::statvfs(dir).map_err(|errno| about(dir)(errno.into()))?;
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
    // The memory is for who is measured.
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}
