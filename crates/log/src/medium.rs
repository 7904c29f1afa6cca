//! Files on a disk with unreadable sectors.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Size in bytes of the blocks by which a damaged file is read: at most this much is lost per bad sector.
pub(crate) const SECTOR_BYTES: u64 = 4096;

/// Returns whether an error means that the disk cannot return written bytes. File systems use several codes for that.
pub(crate) fn is_medium_error(error: &io::Error) -> bool {
    const CODES: [Errno; 5] = [Errno::IO, Errno::NODATA, Errno::BADMSG, Errno::UCLEAN, Errno::ILSEQ];
    Errno::from_io_error(error).is_some_and(|code| CODES.contains(&code))
}

/// Reads a whole file, with zeros for sectors that the disk cannot read. Returns the bytes, and whether any sector was
/// unreadable.
pub(crate) fn read_file(file: &File) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => return Ok((bytes, false)),
        Err(error) if is_medium_error(&error) => {}
        Err(error) => return Err(error),
    }
    for (index, sector) in bytes.chunks_mut(SECTOR_BYTES as usize).enumerate() {
        match file.read_exact_at(sector, index as u64 * SECTOR_BYTES) {
            Err(error) if is_medium_error(&error) => sector.fill(0),
            read => read?,
        }
    }
    Ok((bytes, true))
}

/// Returns an unused path, made of a file's path and an extension.
pub(crate) fn unused(file: &std::path::Path, extension: &str) -> std::path::PathBuf {
    let numbered = |number: u32| match number {
        0 => file.with_extension(extension),
        number => file.with_extension(format!("{number}.{extension}")),
    };
    (0..).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| file.with_extension(extension))
}
