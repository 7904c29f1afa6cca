//! Reading from disks with unreadable sectors, and unused paths for files to keep.

use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Size in bytes of the blocks by which a damaged file is read: at most this much is lost per bad sector.
pub(crate) const SECTOR_BYTES: u64 = 4096;

/// Returns whether an error means that the disk cannot return written bytes. File systems use several codes for that.
fn is_medium_error(error: &io::Error) -> bool {
    const CODES: [Errno; 5] = [Errno::IO, Errno::NODATA, Errno::BADMSG, Errno::UCLEAN, Errno::ILSEQ];
    Errno::from_io_error(error).is_some_and(|code| CODES.contains(&code))
}

/// Repeats a read once if the disk could not read the bytes. An error that passes must not count as damage.
pub(crate) fn retry_read<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match read() {
        Err(error) if is_medium_error(&error) => read(),
        outcome => outcome,
    }
}

/// Reads a range with `read`, which fills a buffer from an offset on; `None` if the disk cannot read it.
pub(crate) fn try_read(
    range: Range<u64>,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    match retry_read(|| read(&mut bytes, range.start)) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if is_medium_error(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a range with `read`, with zeros for the sectors that the disk cannot read.
pub fn read_leniently(
    range: Range<u64>,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    if let Some(bytes) = try_read(range.clone(), &read)? {
        return Ok(bytes);
    }
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
        bytes.extend(try_read(at..end, &read)?.unwrap_or_else(|| vec![0; (end - at) as usize]));
        at = end;
    }
    Ok(bytes)
}

/// Returns an unused path: a file's path with another extension, preceded by a number if needed.
pub fn unused_path(file: &Path, extension: &str) -> PathBuf {
    let numbered = |number: u32| match number {
        0 => file.with_extension(extension),
        number => file.with_extension(format!("{number}.{extension}")),
    };
    (0..).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| file.with_extension(extension))
}
