//! The fixed-size parts of a table: block handles, partition records and the footer.

use crate::source::Source;
use crate::{Error, KEY_LEN_MAX, Result, VALUE_LEN_MAX};
use bytes::Bytes;

/// Maximum length of a block that a reader loads, in bytes: room for a single entry with the longest key and value.
pub(crate) const BLOCK_LEN_MAX: usize = KEY_LEN_MAX + VALUE_LEN_MAX + 1024;

/// Maximum length of a partition's filter, in bytes.
pub(crate) const FILTER_LEN_MAX: usize = 16 << 20;

/// Maximum length of the top-level index (*top*), in bytes. An open table keeps the top in memory.
pub(crate) const TOP_LEN_MAX: usize = 64 << 20;

/// Returns the CRC-32C of `bytes`, the checksum used everywhere in the format.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A reference to a part of a table: its offset, length and checksum (the "block handle" of LevelDB, with a checksum).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    pub(crate) at: u64,
    pub(crate) len: u32,
    pub(crate) checksum: u32,
}

impl BlockHandle {
    /// The length of an encoded handle, in bytes.
    pub(crate) const LEN: usize = 16;

    pub(crate) fn of(at: u64, bytes: &[u8]) -> Self {
        Self { at, len: bytes.len() as u32, checksum: checksum(bytes) }
    }

    pub(crate) fn end(&self) -> u64 {
        self.at.saturating_add(u64::from(self.len))
    }

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, &self.at.to_le_bytes());
        put(&mut bytes, 8, &self.len.to_le_bytes());
        put(&mut bytes, 12, &self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes a handle from the value of an entry of the index at `index_at`.
    pub(crate) fn decode(value: &[u8], index_at: u64) -> Result<Self> {
        let Ok(bytes) = <&[u8; Self::LEN]>::try_from(value) else {
            return Err(Error::Corrupt { what: "an index entry is not a block handle", at: index_at });
        };
        Ok(Self { at: u64_at(bytes, 0), len: u32_at(bytes, 8), checksum: u32_at(bytes, 12) })
    }

    /// Reads the part and checks it. A part longer than `len_max` bytes is refused as damaged.
    pub(crate) fn read(&self, source: &impl Source, len_max: usize) -> Result<Bytes> {
        if self.len as usize > len_max {
            return Err(Error::Corrupt { what: "a part is longer than the format allows", at: self.at });
        }
        let bytes = read(source, self.at, self.len as usize)?;
        self.check_or_reread(source, bytes)
    }

    /// Returns `bytes` if their checksum is right, otherwise the right bytes from another copy, if the source has one.
    pub(crate) fn check_or_reread(&self, source: &impl Source, bytes: Bytes) -> Result<Bytes> {
        self.check(&bytes).map(|()| bytes).or_else(|error| {
            let is_right = |bytes: &[u8]| self.check(bytes).is_ok();
            source.read_otherwise(self.at, self.len as usize, &is_right).ok_or(error)
        })
    }

    pub(crate) fn check(&self, bytes: &[u8]) -> Result<()> {
        if checksum(bytes) == self.checksum {
            Ok(())
        } else {
            Err(Error::Corrupt { what: "a checksum does not match", at: self.at })
        }
    }
}

/// The filter and the index of one partition, as recorded in the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) filter: BlockHandle,
    /// The index, which begins where the filter ends.
    pub(crate) index: BlockHandle,
}

impl Partition {
    pub(crate) const LEN: usize = 24;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, &self.filter.encode());
        put(&mut bytes, 16, &self.index.len.to_le_bytes());
        put(&mut bytes, 20, &self.index.checksum.to_le_bytes());
        bytes
    }

    /// Decodes a partition from the value of an entry of the top at `top_at`.
    pub(crate) fn decode(value: &[u8], top_at: u64) -> Result<Self> {
        let Ok(bytes) = <&[u8; Self::LEN]>::try_from(value) else {
            return Err(Error::Corrupt {
                what: "an entry of the top-level index is not a partition",
                at: top_at,
            });
        };
        let filter = BlockHandle::decode(&bytes[..BlockHandle::LEN], top_at)?;
        let index = BlockHandle { at: filter.end(), len: u32_at(bytes, 16), checksum: u32_at(bytes, 20) };
        Ok(Self { filter, index })
    }
}

/// The last bytes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) entries: u64,
    /// The length of the whole table, footer included.
    pub(crate) table_len: u64,
    pub(crate) first_len: u16,
    pub(crate) last_len: u16,
    pub(crate) top_len: u32,
    /// The checksum of the first key, the last key and the top, which precede the footer.
    pub(crate) checksum: u32,
}

impl Footer {
    pub(crate) const LEN: usize = 48;
    const MAGIC: &[u8; 8] = b"\xF7TENONST";
    const VERSION: u32 = 1;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, Self::MAGIC);
        put(&mut bytes, 8, &Self::VERSION.to_le_bytes());
        put(&mut bytes, 12, &self.top_len.to_le_bytes());
        put(&mut bytes, 16, &self.entries.to_le_bytes());
        put(&mut bytes, 24, &self.table_len.to_le_bytes());
        put(&mut bytes, 32, &self.first_len.to_le_bytes());
        put(&mut bytes, 34, &self.last_len.to_le_bytes());
        put(&mut bytes, 36, &self.checksum.to_le_bytes());
        let own = checksum(&bytes[..Self::LEN - 4]);
        put(&mut bytes, Self::LEN - 4, &own.to_le_bytes());
        bytes
    }

    /// Decodes the last bytes of a table that is `table_len` bytes long.
    pub(crate) fn decode(bytes: &[u8], table_len: u64) -> Result<Self> {
        let corrupt = |what| Error::Corrupt { what, at: table_len.saturating_sub(Self::LEN as u64) };
        let Ok(bytes) = <&[u8; Self::LEN]>::try_from(bytes) else {
            return Err(corrupt("it is shorter than a footer"));
        };
        if !bytes.starts_with(Self::MAGIC) {
            return Err(corrupt("it does not end in a footer"));
        }
        if u32_at(bytes, 8) != Self::VERSION {
            return Err(corrupt("this program does not support its format version"));
        }
        if u32_at(bytes, Self::LEN - 4) != checksum(&bytes[..Self::LEN - 4]) {
            return Err(corrupt("the footer's checksum does not match"));
        }
        let footer = Self {
            entries: u64_at(bytes, 16),
            table_len: u64_at(bytes, 24),
            first_len: u16_at(bytes, 32),
            last_len: u16_at(bytes, 34),
            top_len: u32_at(bytes, 12),
            checksum: u32_at(bytes, 36),
        };
        match footer {
            _ if bytes[40..44] != [0; 4] => Err(corrupt("the footer's reserved bytes are not zero")),
            _ if footer.table_len != table_len => Err(corrupt("the footer states another table length")),
            _ if footer.top_len as usize > TOP_LEN_MAX => Err(corrupt("the top-level index is too long")),
            _ if footer.tail_len() as u64 > table_len => {
                Err(corrupt("the top-level index is longer than the table"))
            }
            _ => Ok(footer),
        }
    }

    /// Returns the length of first key, last key, top and footer together, in bytes.
    pub(crate) fn tail_len(&self) -> usize {
        usize::from(self.first_len) + usize::from(self.last_len) + self.top_len as usize + Self::LEN
    }
}

/// Reads exactly `len` bytes at `at`. A range beyond the end of the table is damage.
pub(crate) fn read(source: &impl Source, at: u64, len: usize) -> Result<Bytes> {
    if at.checked_add(len as u64).is_none_or(|end| end > source.len_bytes()) {
        return Err(Error::Corrupt { what: "a part extends past the end of the table", at });
    }
    let bytes = source.read_at(at, len)?;
    if bytes.len() != len {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    Ok(bytes)
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// Reads a little-endian number that must lie within `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
