//! The keys of the index: what an entry is about, in the order in which listings want it.
//!
//! A key begins with its kind's letter and, but for buckets, the bucket's number in eight bytes, the greater one later. An
//! object's key follows as it is where nothing comes after it; elsewhere with every 0 as `00 FF`, and ended by `00 01`,
//! which keeps the order.

use bytes::Bytes;
use store::ObjectKey;

/// A bucket's number: that of the write that made it, so none is given twice.
pub(crate) type BucketId = u64;

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bucket, by name.
    Bucket = b'B' as isize,
    /// The pool that the drive is of; one entry.
    Membership = b'M' as isize,
    /// What a key is now: an object, or a deletion's mark.
    Object = b'O' as isize,
    /// A part of an upload.
    Part = b'P' as isize,
    /// A setting of a bucket, by name.
    Setting = b'S' as isize,
    /// An upload.
    Upload = b'U' as isize,
    /// What a key was before, the newest first.
    Version = b'V' as isize,
}

/// A key of the index, or the beginning of several.
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

    /// The beginning of all of a kind in a bucket.
    pub(crate) fn of(kind: Kind, bucket: BucketId) -> Self {
        let mut key = vec![kind as u8];
        key.extend(bucket.to_be_bytes());
        Self(key)
    }

    pub(crate) fn object(bucket: BucketId, key: &ObjectKey) -> Self {
        Self::of(Kind::Object, bucket).then(key.as_bytes())
    }

    pub(crate) fn setting(bucket: BucketId, name: &str) -> Self {
        Self::of(Kind::Setting, bucket).then(name.as_bytes())
    }

    /// The beginning of what a key was before.
    pub(crate) fn versions(bucket: BucketId, key: &[u8]) -> Self {
        Self::of(Kind::Version, bucket).escaped(key).then(&[0, 1])
    }

    /// What a key was by a certain write.
    pub(crate) fn version(bucket: BucketId, key: &[u8], write: u64) -> Self {
        Self::versions(bucket, key).then(&(!write).to_be_bytes())
    }

    /// The beginning of a key's uploads.
    pub(crate) fn uploads(bucket: BucketId, key: &[u8]) -> Self {
        Self::of(Kind::Upload, bucket).escaped(key).then(&[0, 1])
    }

    pub(crate) fn upload(bucket: BucketId, key: &ObjectKey, write: u64) -> Self {
        Self::uploads(bucket, key.as_bytes()).then(&write.to_be_bytes())
    }

    /// The beginning of an upload's parts.
    pub(crate) fn parts(bucket: BucketId, upload: u64) -> Self {
        Self::of(Kind::Part, bucket).then(&upload.to_be_bytes())
    }

    pub(crate) fn part(bucket: BucketId, upload: u64, number: u32) -> Self {
        Self::parts(bucket, upload).then(&number.to_be_bytes())
    }

    /// The key, longer by these bytes.
    pub(crate) fn then(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// The key, longer by these bytes as they stand where something follows.
    pub(crate) fn escaped(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            self.0.push(byte);
            if byte == 0 {
                self.0.push(0xff);
            }
        }
        self
    }

    /// The bucket and the key of the object that an entry of kind `Object` or `Version` is about.
    pub(crate) fn owner(&self) -> Option<(BucketId, Vec<u8>)> {
        let bucket = u64::from_be_bytes(*self.0.get(1..)?.first_chunk()?);
        match *self.0.first()? {
            kind if kind == Kind::Object as u8 => Some((bucket, self.0[9..].to_vec())),
            kind if kind == Kind::Version as u8 => Some((bucket, Self::escaped_key(&self.0)?.0)),
            _ => None,
        }
    }

    /// The object's key in an entry of kind `Object`.
    pub(crate) fn object_key(entry: &[u8]) -> Option<ObjectKey> {
        ObjectKey::new(Bytes::copy_from_slice(entry.get(9..)?)).ok()
    }

    /// The object's key in an entry of kind `Version` or `Upload`, and what follows it.
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
        fn keys_with_zeros_come_back_in_order(mut keys in prop::collection::vec(prop::collection::vec(0u8..3, 0..6), 1..9)) {
            keys.sort();
            let entries: Vec<_> = keys.iter().map(|key| IndexKey::version(7, key, 3)).collect();
            prop_assert!(entries.is_sorted());
            for (key, entry) in keys.iter().zip(&entries) {
                prop_assert_eq!(IndexKey::escaped_key(&entry.0), Some((key.clone(), !3)));
            }
        }
    }
}
