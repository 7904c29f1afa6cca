//! The keys of the index, ordered as listings need them.
//!
//! A key begins with the letter of its kind. All kinds but buckets and membership continue with the bucket's number in eight bytes,
//! big-endian. An object's key follows unchanged where it is the last field. Elsewhere each 0 byte in it is written as `00 FF`, and
//! `00 01` ends it, which keeps the order.

use bytes::Bytes;
use store::ObjectKey;

/// A bucket's number: the number of the write that created it, hence unique.
pub(crate) type BucketId = u64;

/// The kind of an index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bucket, by its name.
    Bucket = b'B' as isize,
    /// The pool membership of the drive; a single entry.
    Membership = b'M' as isize,
    /// The current object of a key.
    Object = b'O' as isize,
    /// A part of a multipart upload.
    Part = b'P' as isize,
    /// A setting of a bucket, by its name.
    Setting = b'S' as isize,
    /// A multipart upload.
    Upload = b'U' as isize,
    /// An older version of a key, or a delete marker. The newest comes first.
    Version = b'V' as isize,
}

/// A key of the index, or a common prefix of several keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexKey(pub(crate) Vec<u8>);

impl IndexKey {
    pub(crate) fn bucket(name: &str) -> Self {
        let mut key = vec![Kind::Bucket as u8];
        key.extend(name.as_bytes());
        Self(key)
    }

    pub(crate) fn membership() -> Self {
        Self(vec![Kind::Membership as u8])
    }

    /// Returns the common prefix of all keys of a kind in a bucket.
    pub(crate) fn prefix(kind: Kind, bucket: BucketId) -> Self {
        let mut key = vec![kind as u8];
        key.extend(bucket.to_be_bytes());
        Self(key)
    }

    pub(crate) fn object(bucket: BucketId, key: &ObjectKey) -> Self {
        Self::prefix(Kind::Object, bucket).append(key.as_bytes())
    }

    pub(crate) fn setting(bucket: BucketId, name: &str) -> Self {
        Self::prefix(Kind::Setting, bucket).append(name.as_bytes())
    }

    /// Returns the common prefix of the older versions of a key.
    pub(crate) fn versions(bucket: BucketId, key: &[u8]) -> Self {
        Self::prefix(Kind::Version, bucket).append_escaped(key).append(&[0, 1])
    }

    /// Returns the key of the version that a write stored.
    pub(crate) fn version(bucket: BucketId, key: &[u8], write: u64) -> Self {
        Self::versions(bucket, key).append(&(!write).to_be_bytes())
    }

    /// Returns the common prefix of the uploads of a key.
    pub(crate) fn uploads(bucket: BucketId, key: &[u8]) -> Self {
        Self::prefix(Kind::Upload, bucket).append_escaped(key).append(&[0, 1])
    }

    pub(crate) fn upload(bucket: BucketId, key: &ObjectKey, write: u64) -> Self {
        Self::uploads(bucket, key.as_bytes()).append(&write.to_be_bytes())
    }

    /// Returns the common prefix of the parts of an upload.
    pub(crate) fn parts(bucket: BucketId, upload: u64) -> Self {
        Self::prefix(Kind::Part, bucket).append(&upload.to_be_bytes())
    }

    pub(crate) fn part(bucket: BucketId, upload: u64, number: u32) -> Self {
        Self::parts(bucket, upload).append(&number.to_be_bytes())
    }

    /// Appends bytes unchanged.
    pub(crate) fn append(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Appends bytes, escaped for a field that is not the last.
    pub(crate) fn append_escaped(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            self.0.push(byte);
            if byte == 0 {
                self.0.push(0xff);
            }
        }
        self
    }

    /// Returns the bucket and the object key of an entry of kind `Object` or `Version`; `None` for other and for
    /// invalid entries.
    pub(crate) fn bucket_and_key(&self) -> Option<(BucketId, Vec<u8>)> {
        let bucket = u64::from_be_bytes(*self.0.get(1..)?.first_chunk()?);
        match *self.0.first()? {
            kind if kind == Kind::Object as u8 => Some((bucket, self.0[9..].to_vec())),
            kind if kind == Kind::Version as u8 => Some((bucket, Self::escaped_key(&self.0)?.0)),
            _ => None,
        }
    }

    /// Returns whether an entry is of kind `Object` or `Version`, given its key.
    pub(crate) fn is_object_or_version(entry: &[u8]) -> bool {
        entry.first().is_some_and(|&kind| kind == Kind::Object as u8 || kind == Kind::Version as u8)
    }

    /// Returns the object key of an entry of kind `Object`.
    pub(crate) fn object_key(entry: &[u8]) -> Option<ObjectKey> {
        ObjectKey::new(Bytes::copy_from_slice(entry.get(9..)?)).ok()
    }

    /// Returns the object key of an entry of kind `Version` or `Upload`, and the number after it.
    pub(crate) fn escaped_key(entry: &[u8]) -> Option<(Vec<u8>, u64)> {
        let mut key = Vec::new();
        let mut rest = entry.get(9..)?;
        loop {
            match rest {
                [0, 0xff, more @ ..] => {
                    key.push(0);
                    rest = more;
                }
                [0, 1, number @ ..] => return Some((key, u64::from_be_bytes(number.try_into().ok()?))),
                [0, ..] | [] => return None,
                [byte, more @ ..] => {
                    key.push(*byte);
                    rest = more;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_with_zeros_decode_and_keep_their_order(mut keys in prop::collection::vec(prop::collection::vec(0u8..3, 0..6), 1..9)) {
            keys.sort();
            let entries: Vec<_> = keys.iter().map(|key| IndexKey::version(7, key, 3)).collect();
            prop_assert!(entries.is_sorted());
            for (key, entry) in keys.iter().zip(&entries) {
                prop_assert_eq!(IndexKey::escaped_key(&entry.0), Some((key.clone(), !3)));
            }
        }
    }
}
