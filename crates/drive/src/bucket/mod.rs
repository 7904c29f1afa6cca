//! Buckets of a drive: implements the traits of `store`.
//!
//! Owns no state, as buckets lie in the index. Every change of a key is made under the key's lock. An `Edit` gathers
//! the changes of an object or a version for one commit.
//!
//! Invariants: the current object of a key is an entry `Object`. Delete markers and older versions are entries `Version`, newest
//! first. A write has a greater number than all earlier writes of its key.

mod buckets;
mod copy;
mod edit;
mod key_versions;
mod listing;
mod multipart;
mod objects;
mod pool_member;
mod record_metadata;
mod settings;
mod uploads;
mod versions;
mod writer;

pub(crate) use copy::{copy_between_drives, copy_range_between_drives};
pub(crate) use listing::decode_summary;
pub(crate) use multipart::DriveMultipart;
pub(crate) use pool_member::PoolMember;
pub(crate) use writer::DriveWriter;

use crate::error::{Error, Result};
use crate::format::{BucketId, BucketRecord, IndexKey};
use crate::frontend::{Drive, Frontend};
use bytes::Bytes;
use key_versions::KeyVersions;
use record_metadata::MetadataContext;
use std::fmt;
use std::sync::Arc;
use store::ObjectKey;

/// A bucket of a drive.
#[derive(Clone)]
pub(crate) struct DriveBucket {
    pub(crate) frontend: Arc<Frontend>,
    name: Arc<str>,
    pub(crate) id: BucketId,
}

impl fmt::Debug for DriveBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveBucket").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drive {
    /// Returns the record of a bucket, if the bucket exists.
    async fn bucket_record(&self, name: &str) -> Result<Option<BucketRecord>> {
        let entry = IndexKey::bucket(name);
        let decode = |value: Bytes| {
            BucketRecord::decode(&value).ok_or_else(|| Error::damaged_entry("a bucket's record", &entry.0))
        };
        self.0.entry(&entry).await?.map(decode).transpose()
    }
}

impl DriveBucket {
    fn drive_id(&self) -> u64 {
        self.frontend.engine.drive.id
    }

    /// Returns how records are shown at the moment.
    async fn metadata_context(&self) -> store::Result<MetadataContext> {
        Ok(MetadataContext { drive: self.drive_id(), versioning: self.state().await? })
    }

    fn key_versions<'a>(&'a self, key: &'a ObjectKey) -> KeyVersions<'a> {
        KeyVersions { bucket: self, key }
    }
}
