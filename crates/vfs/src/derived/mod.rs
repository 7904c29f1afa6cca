//! Derived directories (views): directories that are not in the namespace. They show files of the volume, found by
//! their keys.
//!
//! Owns their inode numbers, which no namespace has ([`nodes`]), and the operations in them. A file found there is
//! the volume's inode for its key. So it is the same file under each of its names, and only lookup, listing,
//! creation, removal and rename differ from other directories.
//!
//! Does not ask the store for the attributes of a file, which the view provides. Does not create, move or remove anything in a
//! view but files and its directories.

mod created_files;
mod entries;
mod listing;
mod listing_cache;
pub(crate) mod listings;
mod lookups;
mod nodes;
mod renames;
pub(crate) mod router;
mod stale_names;
pub(crate) mod views;

pub use listings::{Asked, ListingCache};
pub(crate) use nodes::{DerivedDirectories, is_derived};

use meta::Name;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use store::{ETag, ObjectKey, Tags, Timestamp};

use crate::Result;

/// A tree of derived directories. Paths are lists of names below its root; the root is the empty path.
///
/// Implemented in the crate that connects views and volumes, as neither knows the other.
#[async_trait::async_trait]
pub trait Derived: Send + Sync + fmt::Debug {
    /// Returns the entry at a path; `None` if there is none.
    async fn find(&self, path: &[Name]) -> Result<Option<DerivedEntry>>;

    /// Returns up to `limit` entries of a directory after a name, in the order of names; empty at the end.
    async fn list(
        &self,
        directory: &[Name],
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, DerivedEntry)>>;

    /// Returns the location in the volume for a file to create at a path, and the metadata that keeps it visible there. EINVAL
    /// if the directory could not show such a file.
    async fn place(&self, path: &[Name]) -> Result<Placed>;

    /// Creates a directory.
    async fn make_directory(&self, path: &[Name]) -> Result<()>;

    /// Removes an empty directory.
    async fn remove_directory(&self, path: &[Name]) -> Result<()>;

    /// Renames a directory, or moves a file to another directory of the same view under the same name.
    async fn rename(&self, from: &[Name], to: &[Name]) -> Result<()>;

    /// Returns the maximum delay before a change under a directory is known, if the event source does not lag.
    fn recency(&self, directory: &[Name]) -> Duration;

    /// Returns how long a front end may cache what it found in a directory. Unlimited if the front end is told of stale names.
    fn lifetime(&self, directory: &[Name]) -> Duration;

    /// Returns the version of a directory's contents. Different contents never have the same version.
    async fn version(&self, directory: &[Name]) -> Result<u64>;

    /// Takes names that no longer lead to the same entry, about `limit` at most. Returns none once all were taken, and always in a
    /// tree whose entries expire instead.
    fn take_stale(&self, limit: usize) -> Vec<StaleNames> {
        let _ = limit;
        Vec::new()
    }
}

/// Names that no longer lead to the same entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaleNames {
    /// Some names of a directory.
    In(DerivedStale),
    /// All names in a directory and below.
    Below(Vec<Name>),
}

/// Names of one directory that no longer lead to the same entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedStale {
    /// The directory of these names. Other names in it may be new.
    pub directory: Vec<Name>,
    /// Names that lead to another entry, to none, or to a changed file.
    pub names: Vec<Name>,
}

/// An entry of a derived directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedEntry {
    /// Another derived directory.
    Directory,
    /// A file of the volume.
    File(DerivedFile),
}

/// A file as last reported, with the attributes that are shown without asking the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedFile {
    /// The key in the volume, which is the file's path.
    pub key: ObjectKey,
    /// Length in bytes.
    pub size_bytes: u64,
    /// The etag.
    pub etag: ETag,
    /// When it was stored.
    pub modified: Timestamp,
    /// User metadata, if known.
    pub properties: Option<BTreeMap<String, String>>,
}

/// The location and metadata of a new file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placed {
    /// The path in the volume.
    pub path: Vec<Vec<u8>>,
    /// User metadata to store with the file.
    pub properties: BTreeMap<String, String>,
    /// Tags to store with the file.
    pub tags: Tags,
    /// `Content-Type`, if the view requires one.
    pub content_type: Option<String>,
}
