//! The drive as a key-value device, with the names and meanings of SNIA's Key Value Storage API (1.0).
//!
//! A **group** (the specification's key space) is a bucket, and a pair is an object without metadata, so S3 clients see the same
//! data. All guarantees for objects hold for pairs: acknowledged changes are durable, every byte has a checksum, and cleaning and
//! scrubbing treat both alike.
//!
//! | here | in the specification |
//! |---|---|
//! | [`Drive::create_group`], [`Drive::open_group`], [`Drive::delete_group`], [`Drive::groups`] | key spaces: create, open, delete, list |
//! | [`Group::store`] with a [`StoreMode`] | `kvs_store_kvp`: post, update only, no overwrite; there is no append |
//! | [`Group::retrieve`] | `kvs_retrieve_kvp`: an offset, and a short buffer is filled |
//! | [`Group::delete`], [`Group::exist`] | `kvs_delete_kvp`, `kvs_exist_kv_pairs` |
//! | [`Group::delete_prefix`] | `kvs_delete_key_group`: of keys with a prefix of any length, not of four bytes under a mask |
//! | [`Group::iterate`] | `kvs_create_iterator`, `kvs_iterate_next` |
//! | [`Batch`], [`Drive::execute`] | none |
//! | [`Lifetime`] | none: a hint for where to store a value |
//!
//! Values are passed as a whole and kept in memory until they are written; they can be read in ranges of any length. Keys have 1 to
//! [`KEY_BYTES_MAX`] arbitrary bytes.
//!
//! ```
//! use drive::kv::{Batch, StoreOptions};
//! # use drive::{Drive, FormatOptions, OpenOptions, device::{BlockDevice, FileDevice}};
//! # use std::sync::Arc;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("drive");
//! # let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(&path, 64 << 20)?);
//! # Drive::format(&device, FormatOptions::default(), &store::Entropy::new(1))?;
//! # let drive = Drive::open(device, OpenOptions::default(), Arc::new(store::SystemClock))?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let group = drive.create_group("sensors").await?;
//! group.store(b"1/name", "north".into(), StoreOptions::default()).await?;
//!
//! // All changes or none, also if the power fails.
//! let mut batch = Batch::default();
//! batch.store(&group, b"2/name", "south".into(), StoreOptions::default());
//! batch.delete(&group, b"1/name");
//! drive.execute(batch).await?;
//!
//! let mut buffer = [0; 3];
//! let retrieved = group.retrieve(b"2/name", 0, &mut buffer).await?;
//! assert_eq!((&buffer, retrieved.value_bytes), (b"sou", 5));
//! assert_eq!(group.exist(&[b"1/name", b"2/name"]).await?, [false, true]);
//! let mut pairs = group.iterate(b"2/");
//! assert_eq!(pairs.next().await?.map(|pair| pair.key), Some("2/name".into()));
//! # Ok::<(), drive::kv::Error>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod error;
mod iterate;

pub use batch::Batch;
pub use error::{Error, Result};
pub use iterate::{Iterate, Pair};

use crate::bucket::DriveBucket;
use crate::format::{IndexKey, Kind};
use crate::frontend::Drive;
use crate::policy::Policy;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::pin::pin;
use store::{
    Buckets as _, KEY_BYTES_MAX as OBJECT_KEY_BYTES_MAX, ObjectKey, Payload, StoreError, Versioning,
    bucket_name,
};

/// The longest key, in bytes. The shortest has one byte.
pub const KEY_BYTES_MAX: usize = OBJECT_KEY_BYTES_MAX;

/// Pairs deleted by one commit of [`Group::delete_prefix`].
const DELETIONS_AT_ONCE: usize = 256;

/// A group of keys. Clones share the group.
#[derive(Debug, Clone)]
pub struct Group(pub(in crate::kv) DriveBucket);

/// Options for storing a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreOptions {
    /// The condition on the key's existence.
    pub mode: StoreMode,
    /// The expected lifetime of the value.
    pub lifetime: Lifetime,
}

/// The condition on the key's existence for a pair to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreMode {
    /// Store the pair whether or not the key exists.
    #[default]
    Post,
    /// The key must exist, else [`Error::KeyNotExist`].
    UpdateOnly,
    /// The key must not exist, else [`Error::KeyExists`].
    NoOverwrite,
}

/// A hint about the lifetime of a value, which decides where the value is stored. It does not change the results of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// Decide by length: values up to 256 KiB, or an eighth of a zone where that is less, go into the log, which needs
    /// no extra write; longer ones go into runs.
    #[default]
    Unknown,
    /// Replaced or deleted soon: values up to 1 MiB, or an eighth of a zone where that is less, go into the log. A zone
    /// of the log is freed as a whole once all its values are deleted, so no holes remain between runs.
    Short,
    /// Kept for long: values from 4 KiB on get a run of their own, which cleaning never moves.
    Long,
}

impl Lifetime {
    /// Returns the longest value that is stored in the log.
    fn inline_bytes_max(self, policy: Policy) -> u64 {
        match self {
            Self::Unknown => policy.inline_bytes_max(),
            Self::Short => policy.inline_bytes_limit(),
            Self::Long => crate::device::BLOCK_BYTES - 1,
        }
    }
}

/// The outcome of reading a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retrieved {
    /// Number of bytes written to the buffer.
    pub filled_bytes: usize,
    /// Length of the whole value. If it exceeds the offset plus `filled_bytes`, the buffer was too short for the rest.
    pub value_bytes: u64,
}

impl Drive {
    /// Creates a group. Names follow the rules of buckets: 3 to 63 lower-case letters, digits, `-` and `.`.
    ///
    /// Errors: [`Error::GroupExists`]; [`Error::Store`] for an invalid name.
    pub async fn create_group(&self, name: &str) -> Result<Group> {
        if self.bucket(name).await.is_ok() {
            return Err(Error::GroupExists(name.to_owned()));
        }
        self.create(name).await?;
        self.open_group(name).await
    }

    /// Opens an existing group; else [`Error::GroupNotExist`].
    pub async fn open_group(&self, name: &str) -> Result<Group> {
        Ok(Group(self.bucket(name).await?))
    }

    /// Returns the names of all groups, ascending.
    pub async fn groups(&self) -> Result<Vec<String>> {
        Ok(self.list().await?)
    }

    /// Deletes a group with all its pairs. This takes several commits: if it is interrupted, call it again. A group
    /// that has older versions of objects, or uploads, or pairs while versioning is on or suspended, is not deleted
    /// and keeps its pairs.
    pub async fn delete_group(&self, name: &str) -> Result<()> {
        let group = self.open_group(name).await?;
        // In a versioned bucket each deletion would leave a delete marker.
        let kinds = match group.0.state().await? {
            Versioning::Never => &[Kind::Version, Kind::Upload][..],
            Versioning::Enabled | Versioning::Suspended => &[Kind::Version, Kind::Upload, Kind::Object],
        };
        for &kind in kinds {
            if !self.0.entries(IndexKey::prefix(kind, group.0.id), 1).await?.is_empty() {
                return Err(bucket_name::not_empty(name).into());
            }
        }
        group.delete_prefix(b"").await?;
        Ok(self.delete(name).await?)
    }
}

impl Group {
    /// Stores a pair. When this returns, the pair is durable.
    pub async fn store(&self, key: &[u8], value: Payload, options: StoreOptions) -> Result<()> {
        let mut batch = Batch::default();
        batch.store(self, key, value, options);
        self.drive().execute(batch).await
    }

    /// Reads the value of a key from an offset on, as much as the buffer takes. A missing key is
    /// [`Error::KeyNotExist`], and an offset beyond the value's end is [`Error::OffsetInvalid`].
    pub async fn retrieve(&self, key: &[u8], offset: u64, into: &mut [u8]) -> Result<Retrieved> {
        let (record, access) = self.0.record_and_access(&key_of(key)?, None).await.map_err(Error::of(key))?;
        let value_bytes = record.body.len_bytes();
        if offset > value_bytes {
            return Err(Error::OffsetInvalid { offset, value_bytes });
        }
        let range = offset..value_bytes.min(offset + into.len() as u64);
        let mut filled_bytes = 0;
        let mut pieces = pin!(self.0.frontend.read((record.write, record.body), range, access));
        while let Some(piece) = pieces.try_next().await? {
            into[filled_bytes..filled_bytes + piece.len()].copy_from_slice(&piece);
            filled_bytes += piece.len();
        }
        Ok(Retrieved { filled_bytes, value_bytes })
    }

    /// Returns the whole value of a key. Fails with [`Error::KeyNotExist`] if there is none.
    pub async fn retrieve_all(&self, key: &[u8]) -> Result<Bytes> {
        let (record, access) = self.0.record_and_access(&key_of(key)?, None).await.map_err(Error::of(key))?;
        let len = record.body.len_bytes();
        let pieces = self.0.frontend.read((record.write, record.body), 0..len, access);
        Ok(pieces.try_collect::<Vec<_>>().await?.into_iter().collect::<Payload>().to_bytes())
    }

    /// Deletes a key. A missing key is no error.
    pub async fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete(self, key);
        self.drive().execute(batch).await
    }

    /// Returns for each key whether it exists.
    pub async fn exist(&self, keys: &[&[u8]]) -> Result<Vec<bool>> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let entry = IndexKey::object(self.0.id, &key_of(key)?);
            found.push(self.0.frontend.entry(&entry).await?.is_some());
        }
        Ok(found)
    }

    /// Iterates over the pairs whose keys begin with a prefix, in ascending order.
    pub fn iterate(&self, prefix: &[u8]) -> Iterate {
        Iterate::new(self.0.clone(), prefix)
    }

    /// Deletes all keys that begin with a prefix, several per commit. Returns their number.
    pub async fn delete_prefix(&self, prefix: &[u8]) -> Result<u64> {
        let mut pairs = self.iterate(prefix);
        let mut count = 0;
        loop {
            let mut batch = Batch::default();
            while batch.len() < DELETIONS_AT_ONCE
                && let Some(pair) = pairs.next().await?
            {
                batch.delete(self, &pair.key);
            }
            if batch.is_empty() {
                return Ok(count);
            }
            count += batch.len() as u64;
            self.drive().execute(batch).await?;
        }
    }

    fn drive(&self) -> Drive {
        Drive(self.0.frontend.clone())
    }
}

/// Converts a key to an object key. Fails with [`Error::KeyInvalid`] if it is empty or too long.
fn key_of(key: &[u8]) -> Result<ObjectKey> {
    ObjectKey::new(Bytes::copy_from_slice(key)).map_err(|error| Error::KeyInvalid(error.to_string()))
}

impl Error {
    /// Returns a function that converts a store error about this key.
    fn of(key: &[u8]) -> impl Fn(StoreError) -> Self {
        move |error| match error {
            StoreError::NotFound(_) => Self::KeyNotExist(key.escape_ascii().to_string()),
            error => error.into(),
        }
    }
}
