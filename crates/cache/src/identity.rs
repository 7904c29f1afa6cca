//! The identity of cached bytes.

use aws_lc_rs::digest::{Context, SHA256};
use store::{ETag, ObjectKey};

/// Identity of an object with its bytes: a hash of its source (which server and bucket), key and etag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId([u8; 32]);

/// Identity of a segment of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SegmentId {
    object: ObjectId,
    /// Offset in the object, in segments.
    number: u64,
}

impl ObjectId {
    /// Returns the identity of an object; `etag` is `None` if its key alone identifies it.
    pub fn new(source: &str, key: &ObjectKey, etag: Option<&ETag>) -> Self {
        let mut hash = Context::new(&SHA256);
        // No store has an empty etag.
        let etag = etag.map_or("", ETag::as_str);
        for part in [source.as_bytes(), key.as_bytes(), etag.as_bytes()] {
            // The lengths keep different parts from being the same sequence of bytes.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut id = [0; 32];
        id.copy_from_slice(hash.finish().as_ref());
        Self(id)
    }

    pub(crate) fn segment(self, number: u64) -> SegmentId {
        SegmentId { object: self, number }
    }
}

impl SegmentId {
    /// Returns the bytes that a checksum covers.
    pub(crate) fn to_bytes(self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..32].copy_from_slice(&self.object.0);
        bytes[32..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Returns the directory of the file, below `count`: the segments of a large object are in all of them alike.
    pub(crate) fn shard(self, count: u64) -> usize {
        (u64::from(self.object.0[0]).wrapping_add(self.number) % count) as usize
    }

    /// Returns the name of the file.
    pub(crate) fn file_name(self) -> String {
        format!("{}-{:x}", store::hex(&self.object.0), self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts() {
        let key = |text: &str| ObjectKey::try_from(text.as_bytes()).unwrap();
        let id = ObjectId::new("s3://a", &key("k"), Some(&ETag::new("e")));
        assert_eq!(id, ObjectId::new("s3://a", &key("k"), Some(&ETag::new("e"))));
        for other in [
            ObjectId::new("s3://b", &key("k"), Some(&ETag::new("e"))),
            ObjectId::new("s3://a", &key("l"), Some(&ETag::new("e"))),
            ObjectId::new("s3://a", &key("k"), Some(&ETag::new("f"))),
            ObjectId::new("s3://ak", &key("e"), Some(&ETag::new(""))),
        ] {
            assert_ne!(id, other);
        }
    }
}
