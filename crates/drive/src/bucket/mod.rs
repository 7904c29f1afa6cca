//! A drive's buckets as the seams of `store` want them.
//!
//! Owns nothing: what a bucket is lies in the index. Every change of a key is made under the key's lock, by an `Edit` that
//! gathers what one commit does.
//!
//! Invariants: what a key is now is an entry `Object`, unless it is a deletion's mark; marks and what was before are entries
//! `Version`, the newest first; a write has a greater number than any of its key before.

mod buckets;
mod edit;
mod listing;
mod multipart;
mod objects;
mod settings;
mod uploads;
mod versions;
mod writer;

pub(crate) use multipart::DriveMultipart;
pub(crate) use writer::DriveWriter;

use crate::error::{Error, Result};
use crate::format::{BucketId, IndexKey, Naming, ObjectRecord};
use crate::shell::{Drive, Shell};
use crate::wire::{Decoder, Encoder};
use std::fmt;
use std::sync::Arc;
use store::{ETag, ObjectKey, ObjectMeta, ObjectRef, Timestamp, Versioning};

/// What the index keeps of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BucketRecord {
    id: BucketId,
    made: Timestamp,
    versioning: Versioning,
}

impl BucketRecord {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.number(self.id);
        to.fixed(self.made.0 as u64);
        to.byte(match self.versioning {
            Versioning::Never => 0,
            Versioning::Enabled => 1,
            Versioning::Suspended => 2,
        });
        to.0
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Decoder(bytes);
        let mut read = || {
            let (id, made) = (from.number()?, Timestamp(from.fixed()? as i64));
            let versioning = match from.byte()? {
                0 => Versioning::Never,
                1 => Versioning::Enabled,
                2 => Versioning::Suspended,
                _ => return None,
            };
            Some(Self { id, made, versioning })
        };
        read().ok_or(Error::damaged("a bucket's record in the index", 0))
    }
}

/// A bucket of a drive.
#[derive(Clone)]
pub(crate) struct DriveBucket {
    pub(crate) shell: Arc<Shell>,
    name: Arc<str>,
    pub(crate) id: BucketId,
}

impl fmt::Debug for DriveBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveBucket").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drive {
    /// The entry of a bucket, if there is one.
    async fn bucket_record(&self, name: &str) -> Result<Option<BucketRecord>> {
        let value = self.0.entry(&IndexKey::bucket(name)).await?;
        value.map(|value| BucketRecord::decode(&value)).transpose()
    }
}

impl DriveBucket {
    fn drive_id(&self) -> u64 {
        self.shell.machine.drive.id
    }

    /// What the object's bytes are called.
    fn etag(&self, write: u64, given: Option<&ETag>) -> ETag {
        given.cloned().unwrap_or_else(|| etag_of_write(self.drive_id(), write))
    }

    fn etag_of(&self, record: &ObjectRecord) -> ETag {
        self.etag(record.write, record.etag.as_ref())
    }

    fn object_ref(&self, key: &ObjectKey, record: &ObjectRecord, state: Versioning) -> ObjectRef {
        ObjectRef {
            key: key.clone(),
            etag: self.etag_of(record),
            version: shown(record.naming, state).id(record.write, record.modified),
            last_modified: Some(record.modified),
        }
    }

    fn meta(&self, key: &ObjectKey, record: &ObjectRecord, state: Versioning) -> ObjectMeta {
        ObjectMeta {
            object: self.object_ref(key, record, state),
            size_bytes: record.body.len_bytes(),
            attributes: record.attributes.clone(),
            tag_count: Some(record.tags.len() as u32),
        }
    }
}

/// What bytes are called that nobody named: a listing says it of each object, and a format string takes as long as all the rest.
fn etag_of_write(drive: u64, write: u64) -> ETag {
    let number = u128::from(drive) << 64 | u128::from(write);
    ETag::new(&(store::hex(&number.to_be_bytes()) + "-1"))
}

/// How a version is named: where versions are kept, what was there before is called `null`.
fn shown(naming: Naming, state: Versioning) -> Naming {
    match (naming, state) {
        (Naming::Unnamed, Versioning::Enabled | Versioning::Suspended) => Naming::Null,
        _ => naming,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_the_drives_id_and_the_writes_number() {
        assert_eq!(etag_of_write(0xfe_dcba_9876_5432, 0x1b).as_str(), "00fedcba98765432000000000000001b-1");
    }
}
