//! The volume record, stored in the bucket: how the volume's files map to objects, where its attributes and metadata
//! are, and its conflict policy.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use store::{
    Attributes, GetOptions, ListRequest, ObjectStore, Payload, Precondition, PutOptions, StoreError,
    Timestamp,
};

use crate::layout::{KeySpace, Layout, volume_record};
use crate::{ConflictPolicy, Error, Result};

/// The version of records of volumes whose metadata is not in a database.
const VERSION: u32 = 1;
/// The version of records of volumes whose metadata is in a database, the newest that this Tenon reads. An older Tenon
/// refuses it; otherwise it would make metadata of its own.
const VERSION_WITH_DATABASE: u32 = 2;

/// Minimum length of a chunk.
const CHUNK_BYTES_MIN: u64 = 1 << 20;
/// Maximum length of a chunk.
const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// How the bytes of a file are divided into objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// One object per file.
    #[default]
    Whole,
    /// One object per chunk of a file: an edit costs the chunks that it touches, independent of the file's size.
    Chunked {
        /// Length of a chunk in bytes, a power of two from 1 MiB to 64 MiB.
        bytes: u64,
    },
}

impl Mapping {
    /// Returns the maximum bytes of a file in one object, when the file is assembled.
    pub(crate) fn object_bytes(self) -> u64 {
        match self {
            Self::Whole => u64::MAX,
            Self::Chunked { bytes } => bytes,
        }
    }

    /// Returns the mapping with chunks of `bytes`; the error lists the allowed lengths.
    pub fn chunked(bytes: u64) -> Result<Self, String> {
        match bytes {
            CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX if bytes.is_power_of_two() => Ok(Self::Chunked { bytes }),
            _ => Err("a chunk must be 1, 2, 4, 8, 16, 32 or 64 MiB".into()),
        }
    }
}

/// How objects are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Naming {
    /// By the file's path, so that every S3 client finds it. A rename copies objects.
    #[default]
    FilePath,
    /// By the inode's number: a rename touches no object, and names are only in the metadata engine.
    Inode,
}

/// Where attributes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In the engine, and exported to the objects' headers.
    Headers,
    /// In the engine.
    Engine,
}

/// Contents of `.tenon/volume`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Version of the record format.
    pub version: u32,
    /// Identifies the volume, so that tables of another volume are recognised.
    pub id: String,
    /// How files are divided into objects.
    pub mapping: Mapping,
    /// How objects are named.
    pub naming: Naming,
    /// Where attributes are stored.
    pub placement: Placement,
    /// Which side gets the name after a conflict.
    #[serde(default, skip_serializing_if = "ConflictPolicy::is_default")]
    pub conflicts: ConflictPolicy,
    /// URL of the database that has the metadata; `None` if it is in the state directory of a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// Creation time of the volume, in seconds since 1970.
    pub created_unix_s: i64,
}

impl VolumeRecord {
    /// Returns the record of a new volume; `id` is 128 random bits. The error explains why a combination of mapping and naming
    /// is not possible.
    pub fn new(mapping: Mapping, naming: Naming, id: u128, now: Timestamp) -> Result<Self> {
        let placement = match (mapping, naming) {
            (Mapping::Whole, Naming::FilePath) => Placement::Headers,
            (_, Naming::Inode) => Placement::Engine,
            (Mapping::Chunked { .. }, Naming::FilePath) => {
                return Err(Error::Volume(
                    "cannot name files in chunks by path, as a path is the key of one object: add --naming inode"
                        .into(),
                ));
            }
        };
        let (version, created_unix_s) = (VERSION, now.secs());
        let conflicts = ConflictPolicy::default();
        let id = format!("{id:032x}");
        Ok(Self { version, id, mapping, naming, placement, conflicts, database: None, created_unix_s })
    }

    /// Returns the record with another conflict policy. Fails for a volume named by inode, which cannot have conflicts,
    /// unless the policy is the default.
    pub fn with_conflicts(self, conflicts: ConflictPolicy) -> Result<Self> {
        if self.naming == Naming::Inode && !conflicts.is_default() {
            return Err(Error::Volume(
                "takes no conflict policy: only Tenon changes the objects of a volume named by inode, so it has no conflicts".into(),
            ));
        }
        Ok(Self { conflicts, ..self })
    }

    /// Returns the record for metadata in the database at `url`, which must not contain a password; `None`: in no
    /// database.
    pub fn with_database(self, url: Option<String>) -> Self {
        let version = if url.is_some() { VERSION_WITH_DATABASE } else { VERSION };
        Self { version, database: url, ..self }
    }

    /// The versions of records that this Tenon reads.
    pub const VERSIONS: RangeInclusive<u32> = VERSION..=VERSION_WITH_DATABASE;

    /// Reads the record of the volume below `prefix`; `None` if there is no record.
    pub async fn read(store: &dyn ObjectStore, prefix: &[u8]) -> Result<Option<Self>> {
        let Some(body) = read_body(store, prefix).await? else { return Ok(None) };
        parse(&body).map(Some).map_err(|what| damaged(prefix, &what))
    }

    /// Reads the version of the record of the volume below `prefix`, also of one that this Tenon cannot read; `None` if there is no record.
    pub async fn stored_version(store: &dyn ObjectStore, prefix: &[u8]) -> Result<Option<u32>> {
        let Some(body) = read_body(store, prefix).await? else { return Ok(None) };
        version_of(&body).map(Some).map_err(|what| damaged(prefix, &what))
    }

    /// Returns whether the volume below `prefix` has content under keys of its own, which only its metadata can name.
    pub async fn has_content(&self, store: &dyn ObjectStore, prefix: &[u8]) -> Result<bool> {
        let keys = KeySpace { prefix, record: Some(self), joins_buckets: false };
        let prefix = Layout::of(keys, Timestamp::default()).content_prefix(None);
        let page = store.list(ListRequest { prefix, limit: 1, ..ListRequest::default() }).await?;
        Ok(!page.entries.is_empty())
    }

    /// Stores the record of a new volume below `prefix`. Fails if there is a record already.
    pub async fn write(&self, store: &dyn ObjectStore, prefix: &[u8]) -> Result<()> {
        self.put(store, prefix, Precondition::Absent).await
    }

    /// Replaces the record of a volume. Fails if there is none, or another client changes it at the same time.
    pub async fn rewrite(&self, store: &dyn ObjectStore, prefix: &[u8]) -> Result<()> {
        let there = store.head(&volume_record(prefix)?).await?.object.etag;
        self.put(store, prefix, Precondition::Matches(there)).await
    }

    /// Replaces the record `known` of a volume. Fails, and changes nothing, if another record is stored now.
    pub async fn replace(&self, known: &Self, store: &dyn ObjectStore, prefix: &[u8]) -> Result<()> {
        let there = store.get(&volume_record(prefix)?, GetOptions::default()).await?;
        let etag = there.meta.object.etag.clone();
        let body = there.body.try_collect::<Vec<Bytes>>().await?.concat();
        if parse(&body).map_err(|what| damaged(prefix, &what))? != *known {
            return Err(Error::Volume("was changed by another process; run the command again".into()));
        }
        self.put(store, prefix, Precondition::Matches(etag)).await
    }

    /// Stores the record under a precondition on the one that is there.
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

/// Reads the bytes of the record of the volume below `prefix`; `None` if there is no record.
async fn read_body(store: &dyn ObjectStore, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
    match store.get(&volume_record(prefix)?, GetOptions::default()).await {
        Ok(object) => Ok(Some(object.body.try_collect::<Vec<Bytes>>().await?.concat())),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the error for a record of which `what` says what is wrong.
fn damaged(prefix: &[u8], what: &str) -> Error {
    match volume_record(prefix) {
        Ok(key) => Error::Volume(format!("'{key}' {what}")),
        Err(error) => error,
    }
}

/// Returns the version of a record, or says what is wrong.
fn version_of(body: &[u8]) -> Result<u32, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let version = serde_json::from_slice::<Version>(body).map_err(|error| format!("is damaged: {error}"))?;
    Ok(version.version)
}

/// Parses a record. The version is checked first, because the other fields of a newer version are unknown.
fn parse(body: &[u8]) -> Result<VolumeRecord, String> {
    match version_of(body)? {
        VERSION..=VERSION_WITH_DATABASE => {
            serde_json::from_slice(body).map_err(|error| format!("is damaged: {error}"))
        }
        newer if newer > VERSION_WITH_DATABASE => Err(format!(
            "has version {newer}, this Tenon knows version {VERSION_WITH_DATABASE}: use a newer Tenon"
        )),
        other => Err(format!("is damaged: version {other} does not exist")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_combinations_are_refused_with_the_reason() {
        assert!(Mapping::chunked(3 << 20).unwrap_err().contains("4, 8, 16"));
        assert!(Mapping::chunked(128 << 20).is_err());
        let chunked = Mapping::chunked(1 << 20).unwrap();
        let refused = VolumeRecord::new(chunked, Naming::FilePath, 7, Timestamp::from_secs(5, 0));
        assert!(refused.unwrap_err().to_string().contains("--naming inode"));
    }

    #[test]
    fn only_another_conflict_policy_is_recorded() {
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
    fn only_records_with_a_database_have_the_newer_version() {
        let record = || VolumeRecord::new(Mapping::Whole, Naming::Inode, 7, Timestamp::default()).unwrap();
        assert_eq!((record().version, record().with_database(None)), (1, record()));
        let with_database = record().with_database(Some("postgres://tenon@db/names".into()));
        let text = serde_json::to_string(&with_database).unwrap();
        assert!(text.contains(r#""version":2"#) && text.contains(r#""database":"postgres://"#), "{text}");
        assert_eq!(parse(text.as_bytes()).unwrap(), with_database);
    }

    #[test]
    fn records_are_read_as_written_and_newer_ones_refused() {
        for mapping in [Mapping::Whole, Mapping::chunked(4 << 20).unwrap()] {
            let record = VolumeRecord::new(mapping, Naming::Inode, 7, Timestamp::from_secs(5, 0)).unwrap();
            let text = serde_json::to_string(&record).unwrap();
            assert!(text.contains(r#""naming":"inode""#), "{text}");
            assert_eq!(parse(text.as_bytes()).unwrap(), record);
        }
        let newer = parse(br#"{"version":3,"naming":"by-the-moon"}"#).unwrap_err();
        assert!(newer.contains("use a newer Tenon"), "{newer}");
        assert!(parse(b"{}").unwrap_err().contains("damaged"));
    }
}
