//! The formats of a device, read without opening the drive: no lock is taken and nothing is written, so that the drive may be in use.

use crate::device::{ARRAY_MAGIC, ARRAY_ROWS_AT, ARRAY_VERSION};
use crate::format::{MAGIC, VERSION};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Length of a magic number, of which the last byte is a version.
const MAGIC_BYTES: usize = 8;

/// The formats of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredFormat {
    /// The version of the drive; `None` on the members of an array that do not have the beginning of the drive, and on a device without one.
    pub drive: Option<u8>,
    /// The version of the label; `None` if the device is not a member of an array.
    pub array: Option<u8>,
}

impl StoredFormat {
    /// The versions of drives that this Tenon reads.
    pub const DRIVE_VERSIONS: RangeInclusive<u8> = VERSION..=VERSION;
    /// The versions of labels that this Tenon reads.
    pub const ARRAY_VERSIONS: RangeInclusive<u8> = ARRAY_VERSION..=ARRAY_VERSION;

    /// Reads the formats of a device or file. Blocks.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn read(path: &Path) -> io::Result<Self> {
        let device = File::open(path)?;
        let first = read_magic(&device, 0)?;
        let array = version_of(&first, &ARRAY_MAGIC);
        let first = if array.is_some() { read_magic(&device, ARRAY_ROWS_AT)? } else { first };
        Ok(Self { drive: version_of(&first, &MAGIC), array })
    }
}

/// Reads a magic number; zeros if the device ends before.
fn read_magic(device: &File, at: u64) -> io::Result<[u8; MAGIC_BYTES]> {
    let mut magic = [0; MAGIC_BYTES];
    match device.read_exact_at(&mut magic, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok([0; MAGIC_BYTES]),
        read => read.map(|()| magic),
    }
}

/// Returns the version in a magic number; `None` if it is not `known`, of any version.
fn version_of(magic: &[u8; MAGIC_BYTES], known: &[u8; MAGIC_BYTES]) -> Option<u8> {
    let (version, name) = magic.split_last()?;
    known.starts_with(name).then_some(*version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_of_a_device_are_in_its_magic_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let read = |bytes: &[u8]| {
            let path = folder.path().join("device");
            std::fs::write(&path, bytes).unwrap();
            StoredFormat::read(&path).unwrap()
        };
        assert_eq!(read(b""), StoredFormat::default());
        assert_eq!(read(&[0; 5000]), StoredFormat::default());
        assert_eq!(read(b"tenond\0\x09rest"), StoredFormat { drive: Some(9), array: None });
        let mut member = vec![0; ARRAY_ROWS_AT as usize + 4096];
        member[..8].copy_from_slice(b"tenona\0\x01");
        assert_eq!(read(&member), StoredFormat { drive: None, array: Some(1) });
        member[ARRAY_ROWS_AT as usize..][..8].copy_from_slice(b"tenond\0\x02");
        assert_eq!(read(&member), StoredFormat { drive: Some(2), array: Some(1) });
    }
}
