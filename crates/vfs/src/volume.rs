//! The record of a volume, kept in the volume: how its files map to objects.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use store::{
    Attributes, GetOptions, ListRequest, ObjectStore, Payload, Precondition, PutOptions, StoreError,
    Timestamp,
};

use crate::layout::{Layout, volume_record};
use crate::{ConflictPolicy, Error, Result};

/// The version that this Tenon writes, and the newest it reads.
const VERSION: u32 = 1;

/// The shortest and the longest chunk.
const CHUNK_BYTES_MIN: u64 = 1 << 20;
const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// How many objects hold a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// One object is one file.
    #[default]
    Whole,
    /// An object for each so many bytes of a file: an edit costs its chunks, whatever the file's size.
    Chunked {
        /// Length of a chunk in bytes, a power of two from 1 MiB to 64 MiB.
        bytes: u64,
    },
}

impl Mapping {
    /// How much of a file one object holds at most, in bytes.
    pub(crate) fn object_bytes(self) -> u64 {
        match self {
            Self::Whole => u64::MAX,
            Self::Chunked { bytes } => bytes,
        }
    }

    /// Chunks of this length in bytes. An error that says what is allowed.
    pub fn chunked(bytes: u64) -> Result<Self, String> {
        match bytes {
            CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX if bytes.is_power_of_two() => Ok(Self::Chunked { bytes }),
            _ => Err("chunks have 1, 2, 4, 8, 16, 32 or 64 MiB".into()),
        }
    }
}

/// How objects are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Naming {
    /// By the file's path: every S3 program finds it. A rename copies objects.
    #[default]
    FilePath,
    /// By the inode's number: a rename touches no object, and names live in the metadata engine alone.
    Inode,
}

/// Where attributes live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In the engine, exported to the objects' headers.
    Headers,
    /// In the engine.
    Engine,
}

/// What `.tenon/volume` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Version of the record.
    pub version: u32,
    /// Tells volumes apart, and a volume from another engine's tables.
    pub id: String,
    /// How many objects hold a file.
    pub mapping: Mapping,
    /// How objects are named.
    pub naming: Naming,
    /// Where attributes live.
    pub placement: Placement,
    /// Whose bytes have the name after a conflict.
    #[serde(default, skip_serializing_if = "ConflictPolicy::is_default")]
    pub conflicts: ConflictPolicy,
    /// When the volume was made, in seconds since 1970.
    pub created_unix_s: i64,
}

impl VolumeRecord {
    /// The record of a new volume; `id` is 128 random bits. An error says why a combination cannot work.
    pub fn new(mapping: Mapping, naming: Naming, id: u128, now: Timestamp) -> Result<Self> {
        let placement = match (mapping, naming) {
            (Mapping::Whole, Naming::FilePath) => Placement::Headers,
            (_, Naming::Inode) => Placement::Engine,
            (Mapping::Chunked { .. }, Naming::FilePath) => {
                return Err(Error::Volume(
                    "a path is the key of one object, so files in chunks are named by inode: add --naming inode"
                        .into(),
                ));
            }
        };
        let (version, created_unix_s) = (VERSION, now.secs());
        let conflicts = ConflictPolicy::default();
        Ok(Self { version, id: format!("{id:032x}"), mapping, naming, placement, conflicts, created_unix_s })
    }

    /// The same with this policy. An error for a volume that has no conflicts.
    pub fn with_conflicts(self, conflicts: ConflictPolicy) -> Result<Self> {
        if self.naming == Naming::Inode && !conflicts.is_default() {
            return Err(Error::Volume(
                "needs no policy: a volume named by inode has no conflicts, as nobody else changes its objects".into(),
            ));
        }
        Ok(Self { conflicts, ..self })
    }

    /// Reads the record of the volume below `prefix`; `None` where nobody has written one.
    pub async fn read(store: &dyn ObjectStore, prefix: &[u8]) -> Result<Option<Self>> {
        let key = volume_record(prefix)?;
        let body = match store.get(&key, GetOptions::default()).await {
            Ok(object) => object.body.try_collect::<Vec<Bytes>>().await?.concat(),
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        parse(&body).map(Some).map_err(|what| Error::Volume(format!("'{key}' {what}")))
    }

    /// Whether the volume below `prefix` holds content that only its metadata can name.
    pub async fn has_content(&self, store: &dyn ObjectStore, prefix: &[u8]) -> Result<bool> {
        let prefix = Layout::of(prefix, Some(self), Timestamp::default()).content();
        let page = store.list(ListRequest { prefix, limit: 1, ..ListRequest::default() }).await?;
        Ok(!page.entries.is_empty())
    }

    /// Stores the record of a new volume below `prefix`. An error if there is one already.
    pub async fn write(&self, store: &dyn ObjectStore, prefix: &[u8]) -> Result<()> {
        self.put(store, prefix, Precondition::Absent).await
    }

    /// Stores the record of a volume that has one. An error if somebody else changes it meanwhile.
    pub async fn rewrite(&self, store: &dyn ObjectStore, prefix: &[u8]) -> Result<()> {
        let there = store.head(&volume_record(prefix)?).await?.object.etag;
        self.put(store, prefix, Precondition::Matches(there)).await
    }

    async fn put(&self, store: &dyn ObjectStore, prefix: &[u8], precondition: Precondition) -> Result<()> {
        let options = PutOptions {
            precondition,
            attributes: Attributes { content_type: Some("application/json".into()), ..Attributes::default() },
            ..PutOptions::default()
        };
        let text = serde_json::to_string(self).map_err(|error| Error::Volume(error.to_string()))?;
        let key = volume_record(prefix)?;
        store.put(&key, Payload::from(text), options).await?;
        Ok(())
    }
}

/// The version is looked at first: what a newer Tenon means by the rest is unknown.
fn parse(body: &[u8]) -> Result<VolumeRecord, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |error: serde_json::Error| format!("is damaged: {error}");
    match serde_json::from_slice::<Version>(body).map_err(damaged)?.version {
        VERSION => serde_json::from_slice(body).map_err(damaged),
        newer if newer > VERSION => {
            Err(format!("has version {newer}, this Tenon knows version {VERSION}: use a newer one"))
        }
        other => Err(format!("is damaged: there is no version {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_with_the_reason() {
        assert!(Mapping::chunked(3 << 20).unwrap_err().contains("4, 8, 16"));
        assert!(Mapping::chunked(128 << 20).is_err());
        let chunked = Mapping::chunked(1 << 20).unwrap();
        let refused = VolumeRecord::new(chunked, Naming::FilePath, 7, Timestamp::from_secs(5, 0));
        assert!(refused.unwrap_err().to_string().contains("--naming inode"));
    }

    #[test]
    fn the_policy_of_conflicts_is_only_said_where_it_is_another() {
        let record = || VolumeRecord::new(Mapping::Whole, Naming::FilePath, 7, Timestamp::default()).unwrap();
        assert!(!serde_json::to_string(&record()).unwrap().contains("conflicts"));
        let record = record().with_conflicts(ConflictPolicy::KeepBoth).unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains(r#""conflicts":"keep-both""#), "{text}");
        assert_eq!(parse(text.as_bytes()).unwrap(), record);
        let by_inode = VolumeRecord::new(Mapping::Whole, Naming::Inode, 7, Timestamp::default()).unwrap();
        assert!(
            by_inode.with_conflicts(ConflictPolicy::Fail).unwrap_err().to_string().contains("no conflicts")
        );
    }

    #[test]
    fn records_are_read_as_written_and_newer_ones_refused() {
        for mapping in [Mapping::Whole, Mapping::chunked(4 << 20).unwrap()] {
            let record = VolumeRecord::new(mapping, Naming::Inode, 7, Timestamp::from_secs(5, 0)).unwrap();
            let text = serde_json::to_string(&record).unwrap();
            assert!(text.contains(r#""naming":"inode""#), "{text}");
            assert_eq!(parse(text.as_bytes()).unwrap(), record);
        }
        let newer = parse(br#"{"version":2,"naming":"by-the-moon"}"#).unwrap_err();
        assert!(newer.contains("use a newer one"), "{newer}");
        assert!(parse(b"{}").unwrap_err().contains("damaged"));
    }
}
