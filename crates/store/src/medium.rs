//! Files on a disk that cannot give back all that was written.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// A disk refuses at least this much at once, in bytes.
pub(crate) const SECTOR_BYTES: u64 = 4096;

/// Whether the medium cannot give bytes back that a program wrote, whatever the file system calls that.
pub(crate) fn is_medium_error(error: &io::Error) -> bool {
    const CODES: [Errno; 5] = [Errno::IO, Errno::NODATA, Errno::BADMSG, Errno::UCLEAN, Errno::ILSEQ];
    Errno::from_io_error(error).is_some_and(|code| CODES.contains(&code))
}

/// Reads a whole file, with zeros for sectors that the disk cannot read. Returns whether there are any.
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

/// A name that no file has, made of a file's name and an extension.
pub(crate) fn unused(file: &std::path::Path, extension: &str) -> std::path::PathBuf {
    let numbered = |number: u32| match number {
        0 => file.with_extension(extension),
        number => file.with_extension(format!("{number}.{extension}")),
    };
    (0..).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| file.with_extension(extension))
}
