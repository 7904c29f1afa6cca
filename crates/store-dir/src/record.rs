//! The stored metadata of an object: an extended attribute of its file.
//!
//! Format, version 1: the version's byte, then etag, modification time, size, content type, storage class, system
//! headers, user metadata and tags; integers little-endian, text after its length in two bytes, maps after their count
//! in two bytes, missing text as empty text.
//!
//! Invariant: the etag is valid only while the file has the size and modification time in the record. Changing a file
//! in place changes its etag.

use super::errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Stat, XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use store::{Attributes, ETag, ObjectKey, ObjectMeta, ObjectRef, Result, StoreError, Tags, Timestamp};

/// The extended attribute that holds the record.
pub(super) const ATTRIBUTE: &str = "user.tenon";

const VERSION: u8 = 1;

/// Length of the buffer for most records, in bytes: enough for every record that ext4 can store.
const USUAL_BYTES: usize = 4096;

/// The kernel's limit on the length of an attribute, in bytes (`XATTR_SIZE_MAX`).
const MOST_BYTES: usize = 65_536;

/// The part of an object's description that its inode does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty if a store set tags on the file but did not write its bytes.
    pub(super) etag: String,
    /// The file's modification time when it was stored.
    pub(super) modified: Timestamp,
    /// The file's size when it was stored, in bytes.
    pub(super) size_bytes: u64,
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
}

/// An object's open file and its metadata.
#[derive(Debug)]
pub(super) struct OpenObject {
    pub(super) file: OwnedFd,
    pub(super) stat: Stat,
    pub(super) record: Record,
}

impl OpenObject {
    /// Describes an open file; an unreadable record counts as a missing one.
    pub(super) fn new(file: OwnedFd, stat: Stat) -> Self {
        let record = Record::read(&file).unwrap_or_default();
        Self { file, stat, record }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        size_bytes(&self.stat)
    }

    /// Returns the recorded etag or, if the file was changed in place or has none, one derived from the inode, size and
    /// modification time.
    pub(super) fn etag(&self) -> ETag {
        let record = &self.record;
        let current = record.size_bytes == self.size_bytes() && record.modified == modified(&self.stat);
        if current && !record.etag.is_empty() { ETag::new(&record.etag) } else { etag_of(&self.stat) }
    }

    pub(super) fn object_ref(&self, key: &ObjectKey) -> ObjectRef {
        let last_modified = Some(modified(&self.stat));
        ObjectRef { key: key.clone(), etag: self.etag(), version: None, last_modified }
    }

    pub(super) fn meta(&self, key: &ObjectKey) -> ObjectMeta {
        ObjectMeta {
            object: self.object_ref(key),
            size_bytes: self.size_bytes(),
            attributes: self.record.attributes.clone(),
            tag_count: Some(self.record.tags.len() as u32),
        }
    }
}

/// Returns the file's modification time.
pub(super) fn modified(stat: &Stat) -> Timestamp {
    Timestamp::from_secs(stat.st_mtime, stat.st_mtime_nsec as u32)
}

pub(super) fn size_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns the etag of a file that was not written by a store, or that was changed since.
pub(super) fn etag_of(stat: &Stat) -> ETag {
    ETag::new(&format!("{:x}-{:x}-{:x}", stat.st_ino, stat.st_size, modified(stat).0))
}

impl Record {
    /// Returns the record of a file; `None` if it has none, or one that is not valid or cannot be read.
    pub(super) fn read(file: impl AsFd) -> Option<Self> {
        let mut usual = [0; USUAL_BYTES];
        match fgetxattr(file.as_fd(), ATTRIBUTE, &mut usual) {
            Ok(len) => Self::decode(&usual[..len]),
            Err(Errno::RANGE) => {
                let mut most = vec![0; MOST_BYTES];
                let len = fgetxattr(file.as_fd(), ATTRIBUTE, most.as_mut_slice()).ok()?;
                Self::decode(&most[..len])
            }
            Err(_) => None,
        }
    }

    /// Stores the record with the file; a record that does not fit is `Invalid`.
    pub(super) fn write(&self, file: impl AsFd, key: &ObjectKey) -> Result<()> {
        let bytes = self.encode();
        let too_large = || {
            let len = bytes.len();
            StoreError::Invalid(format!(
                "'{key}': the file system cannot keep {len} bytes of headers and tags"
            ))
        };
        match fsetxattr(file, ATTRIBUTE, &bytes, XattrFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::TOOBIG | Errno::RANGE) => Err(too_large()),
            // ext4 returns NOSPC for a record larger than its block, although the disk is not full.
            Err(Errno::NOSPC) if bytes.len() > USUAL_BYTES - 256 => Err(too_large()),
            Err(error) => Err(errno::failed(key, error)),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_text(&mut out, &self.etag);
        out.extend_from_slice(&self.modified.0.to_le_bytes());
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
        put_text(&mut out, self.attributes.content_type.as_deref().unwrap_or_default());
        put_text(&mut out, self.attributes.storage_class.as_deref().unwrap_or_default());
        for map in [&self.attributes.system, &self.attributes.user, &self.tags] {
            put_len(&mut out, map.len());
            for (name, value) in map {
                put_text(&mut out, name);
                put_text(&mut out, value);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let etag = take_text(&mut rest)?;
        let modified = Timestamp(i64::from_le_bytes(take(&mut rest)?));
        let size_bytes = u64::from_le_bytes(take(&mut rest)?);
        let present = |text: String| (!text.is_empty()).then_some(text);
        let attributes = Attributes {
            content_type: present(take_text(&mut rest)?),
            storage_class: present(take_text(&mut rest)?),
            system: take_map(&mut rest)?,
            user: take_map(&mut rest)?,
        };
        let tags = take_map(&mut rest)?;
        rest.is_empty().then_some(Self { etag, modified, size_bytes, attributes, tags })
    }
}

/// Appends a length in two bytes. A greater length is capped: the record is then above the kernel's limit and is refused.
fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let len = usize::from(u16::from_le_bytes(take(rest)?));
    let (text, left) = rest.split_at_checked(len)?;
    *rest = left;
    String::from_utf8(text.to_vec()).ok()
}

fn take_map(rest: &mut &[u8]) -> Option<BTreeMap<String, String>> {
    let count = u16::from_le_bytes(take(rest)?);
    (0..count).map(|_| Some((take_text(rest)?, take_text(rest)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let map = |n: usize| (0..n).map(|n| (format!("name {n}"), "ü".repeat(n))).collect();
        let attributes = Attributes {
            content_type: Some("text/plain".into()),
            storage_class: None,
            system: map(2),
            user: map(20),
        };
        let record = Record {
            etag: "e".into(),
            modified: Timestamp(-7),
            size_bytes: u64::MAX,
            attributes,
            tags: map(10),
        };
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        assert_eq!(Record::decode(&Record::default().encode()), Some(Record::default()));
        let bytes = record.encode();
        assert!((0..bytes.len()).all(|len| Record::decode(&bytes[..len]).is_none()));
    }

    #[test]
    fn another_version_is_no_record() {
        assert_eq!(Record::decode(b"\x02"), None);
        assert_eq!(Record::decode(b""), None);
    }
}
