//! A block device, or a file used as one, accessed by calls that block the caller's thread.
//!
//! Owns the access, which keeps other processes from writing to the device: a device opened for writing is opened
//! exclusively (O_EXCL), as a mounted file system does, and locked (flock(2)), as another drive does.

use super::{BLOCK_BYTES, BlockDevice, Buffer, check_read, check_write};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of the copy buffer for unaligned memory, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// Longest wait for a device that is in use. udev locks each new device for a moment, and the kernel closes the ring of a killed
/// process with a delay.
const FREE_WITHIN: Duration = Duration::from_secs(5);

/// An error in opening or creating a device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel refused an operation.
    #[error("cannot {doing} {path}: {source}")]
    Refused {
        /// The operation.
        doing: &'static str,
        /// The device or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file system on the device is mounted, or the kernel uses the device in another way.
    #[error("{0} is in use by the system: unmount it, or remove it from swap, RAID or LVM, first")]
    Mounted(PathBuf),
    /// Another process has locked the device, as every drive does.
    #[error("{0} is locked by another process, such as another tenon: end that process first")]
    InUse(PathBuf),
    /// The path is neither a block device nor a file, but a directory, a terminal, ...
    #[error("{0} is neither a block device nor a regular file")]
    NoDevice(PathBuf),
    /// The sectors of the device are larger than [`BLOCK_BYTES`].
    #[error(
        "{path} has sectors of {sector_bytes} bytes; a drive needs sectors of at most {BLOCK_BYTES} bytes"
    )]
    Sectors {
        /// The device.
        path: PathBuf,
        /// The sector size in bytes.
        sector_bytes: u32,
    },
}

/// A block device or a regular file, accessed without the page cache if its file system supports that.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    len_bytes: u64,
    /// Whether the file is open for direct I/O, so that memory must be aligned.
    direct: bool,
}

impl FileDevice {
    /// Opens a block device or a regular file with exclusive write access. A partial block at the end is not used.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_as(path, OFlags::RDWR)
    }

    /// Opens a device read-only. Other processes may open it read-only too, but not for writing.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        Self::open_as(path, OFlags::RDONLY)
    }

    /// Creates a file, reserves its space, and opens it. The file reads as zeros. Fails if the path exists.
    pub fn create(path: &Path, len_bytes: u64) -> Result<Self, OpenError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| refused("create", path, errno))?;
        let reserved = reserve(path, &file, len_bytes);
        if reserved.is_err() {
            // If this fails too, the first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
        reserved?;
        Self::open(path)
    }

    /// Opens a block device or a regular file, and locks it.
    fn open_as(path: &Path, access: OFlags) -> Result<Self, OpenError> {
        let writes = access == OFlags::RDWR;
        let kind = std::fs::metadata(path).map_err(|source| refused("open", path, source))?.file_type();
        let is_block_device = kind.is_block_device();
        if !is_block_device && !kind.is_file() {
            return Err(OpenError::NoDevice(path.to_owned()));
        }
        let exclusive = if is_block_device && writes { OFlags::EXCL } else { OFlags::empty() };
        let (file, direct) = retry_while_held(|| match open_direct(path, access | exclusive) {
            Err(Errno::BUSY) => Err(busy_error(path)),
            opened => opened.map_err(|errno| refused("open", path, errno)),
        })?;
        lock(path, &file, writes)?;
        let device = Self { len_bytes: length(path, &file)?, file, direct };
        if is_block_device {
            device.check_sectors(path)?;
        }
        Ok(device)
    }

    /// Fails if the device has sectors longer than a block.
    fn check_sectors(&self, path: &Path) -> Result<(), OpenError> {
        let sector_bytes = rustix::fs::ioctl_blksszget(&self.file)
            .map_err(|errno| refused("ask for the sectors of", path, errno))?;
        if u64::from(sector_bytes) > BLOCK_BYTES {
            return Err(OpenError::Sectors { path: path.to_owned(), sector_bytes });
        }
        Ok(())
    }

    /// Returns whether memory can be passed to the kernel without a copy.
    pub(super) fn accepts(&self, memory: &[u8]) -> bool {
        !self.direct || Buffer::is_aligned(memory)
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl BlockDevice for FileDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        check_read(self.len_bytes, at, into.len())?;
        if self.accepts(into) {
            return self.file.read_exact_at(into, at);
        }
        let mut buffer = Buffer::zeroed(into.len().min(COPY_BYTES));
        for (n, part) in into.chunks_mut(COPY_BYTES).enumerate() {
            let buffer = &mut buffer[..part.len()];
            self.file.read_exact_at(buffer, at + (n * COPY_BYTES) as u64)?;
            part.copy_from_slice(buffer);
        }
        Ok(())
    }

    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        check_write(self.len_bytes, at, from.len())?;
        if self.accepts(from) {
            return self.file.write_all_at(from, at);
        }
        for (n, part) in from.chunks(COPY_BYTES).enumerate() {
            self.file.write_all_at(&Buffer::gathered([part]), at + (n * COPY_BYTES) as u64)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Opens for direct I/O, or through the page cache if the file system does not support that. Returns the file, and
/// whether it is open for direct I/O.
fn open_direct(path: &Path, flags: OFlags) -> Result<(File, bool), Errno> {
    let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from);
    match open(flags | OFlags::DIRECT) {
        Err(Errno::INVAL) => {
            tracing::warn!(
                "{} is accessed through the page cache: its file system does not support O_DIRECT",
                path.display()
            );
            Ok((open(flags)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// Returns the error for a block device that is open exclusively elsewhere: [`OpenError::InUse`] if it is also locked,
/// as by a drive, else [`OpenError::Mounted`], as the kernel locks nothing.
fn busy_error(path: &Path) -> OpenError {
    let probe = || {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)
    };
    match probe() {
        Err(Errno::WOULDBLOCK) => OpenError::InUse(path.to_owned()),
        _ => OpenError::Mounted(path.to_owned()),
    }
}

fn lock(path: &Path, file: &File, writes: bool) -> Result<(), OpenError> {
    let how =
        if writes { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    retry_while_held(|| match rustix::fs::flock(file, how) {
        Err(Errno::WOULDBLOCK) => Err(OpenError::InUse(path.to_owned())),
        locked => locked.map_err(|errno| refused("lock", path, errno)),
    })
}

/// Retries for a limited time while another tenon process uses the device.
fn retry_while_held<T>(ask: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let mut was_held = false;
    log::when_free(FREE_WITHIN, ask, |error| match error {
        OpenError::InUse(_) => {
            was_held = true;
            true
        }
        // The other process releases its lock a moment before the device itself.
        OpenError::Mounted(_) => was_held,
        _ => false,
    })
}

/// Returns the length in whole blocks. Seeking works for files and for block devices.
fn length(path: &Path, mut file: &File) -> Result<u64, OpenError> {
    let end = file.seek(SeekFrom::End(0)).map_err(|source| refused("find the length of", path, source))?;
    Ok(end - end % BLOCK_BYTES)
}

/// Reserves the space of a new file, and makes its name and size durable.
fn reserve(path: &Path, file: impl AsFd, len_bytes: u64) -> Result<(), OpenError> {
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len_bytes)
        .map_err(|errno| refused("reserve the space of", path, errno))?;
    rustix::fs::fsync(&file).map_err(|errno| refused("sync", path, errno))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| refused("sync", folder, source))
}

fn refused(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> OpenError {
    OpenError::Refused { doing, path: path.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::conformance;
    use crate::device::loopback::LoopDevice;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_file_conforms() {
        let folder = folder();
        let device = FileDevice::create(&folder.path().join("drive"), conformance::LEN_BYTES_MIN).unwrap();
        conformance::run(&device);
    }

    #[test]
    fn a_block_device_conforms() {
        let folder = folder();
        let block = LoopDevice::new(&folder.path().join("below"), conformance::LEN_BYTES_MIN);
        let device = FileDevice::open(block.path()).unwrap();
        assert_eq!(device.len_bytes(), conformance::LEN_BYTES_MIN);
        conformance::run(&device);
    }

    #[test]
    fn a_file_through_the_page_cache_conforms() {
        let folder = folder();
        let path = folder.path().join("drive");
        let mut device = FileDevice::create(&path, conformance::LEN_BYTES_MIN).unwrap();
        device.file = File::options().read(true).write(true).open(&path).unwrap();
        device.direct = false;
        conformance::run(&device);
    }

    #[test]
    fn a_new_file_has_reserved_space_and_reads_as_zeros() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = folder();
        let path = folder.path().join("drive");
        let device = FileDevice::create(&path, 1 << 20).unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 1 << 20);
        let mut bytes = Buffer::zeroed(1 << 20);
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn an_existing_file_is_not_replaced() {
        let folder = folder();
        let path = folder.path().join("drive");
        std::fs::write(&path, "precious").unwrap();
        let error = FileDevice::create(&path, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("File exists"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_file_without_enough_space_is_removed() {
        let folder = folder();
        let path = folder.path().join("drive");
        let error = FileDevice::create(&path, 1 << 60).unwrap_err();
        assert!(error.to_string().starts_with("cannot reserve the space of "), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn one_writer_or_several_readers_are_allowed() {
        let folder = folder();
        let path = folder.path().join("drive");
        let writer = FileDevice::create(&path, 1 << 20).unwrap();
        assert!(matches!(FileDevice::open(&path), Err(OpenError::InUse(_))));
        assert!(matches!(FileDevice::open_read_only(&path), Err(OpenError::InUse(_))));
        drop(writer);
        let reader = FileDevice::open_read_only(&path).unwrap();
        let another = FileDevice::open_read_only(&path).unwrap();
        assert!(matches!(FileDevice::open(&path), Err(OpenError::InUse(_))));
        drop((reader, another));
        FileDevice::open(&path).unwrap();
    }

    #[test]
    fn a_read_only_device_refuses_writes() {
        let folder = folder();
        let path = folder.path().join("drive");
        drop(FileDevice::create(&path, 1 << 20).unwrap());
        let device = FileDevice::open_read_only(&path).unwrap();
        let error = device.write_at(0, &Buffer::zeroed(BLOCK_BYTES as usize)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
    }

    #[test]
    fn a_block_device_is_opened_once() {
        let folder = folder();
        let block = LoopDevice::new(&folder.path().join("below"), 1 << 20);
        let device = FileDevice::open(block.path()).unwrap();
        assert!(matches!(FileDevice::open(block.path()), Err(OpenError::InUse(_))));
        assert!(matches!(FileDevice::open_read_only(block.path()), Err(OpenError::InUse(_))));
        drop(device);
        FileDevice::open(block.path()).unwrap();
    }

    /// The kernel releases the device of a killed process only when it has closed its ring. Opening a block device failed at once.
    #[test]
    fn opening_waits_for_a_device_about_to_be_released() {
        let folder = folder();
        let block = LoopDevice::new(&folder.path().join("below"), 1 << 20);
        let held = FileDevice::open(block.path()).unwrap();
        let goes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150));
            drop(held);
        });
        FileDevice::open(block.path()).unwrap();
        goes.join().unwrap();
    }

    /// Formatting the device of a mounted file system would destroy both.
    #[test]
    fn a_mounted_device_is_refused() {
        let folder = folder();
        let block = LoopDevice::new(&folder.path().join("below"), 32 << 20);
        let mounted = block.mount_ext4(folder.path());
        let error = FileDevice::open(block.path()).unwrap_err();
        assert!(matches!(error, OpenError::Mounted(_)), "{error}");
        assert!(error.to_string().ends_with("first"), "{error}");
        drop(mounted);
        FileDevice::open(block.path()).unwrap();
    }

    #[test]
    fn other_kinds_of_files_are_refused() {
        let error = FileDevice::open(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.to_string(), "/dev/null is neither a block device nor a regular file");
        let error = FileDevice::open(Path::new("/nowhere/drive")).unwrap_err();
        assert!(error.to_string().starts_with("cannot open /nowhere/drive: "), "{error}");
    }

    #[test]
    fn a_partial_block_at_the_end_is_not_used() {
        let folder = folder();
        let path = folder.path().join("drive");
        drop(FileDevice::create(&path, (1 << 20) + 100).unwrap());
        assert_eq!(FileDevice::open(&path).unwrap().len_bytes(), 1 << 20);
    }
}
