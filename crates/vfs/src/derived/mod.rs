//! Directories that hold no names of their own: what they show are files of the volume, by their keys.
//!
//! Owns their inode numbers, which are no namespace's ([`nodes`]), and what each operation means in them. A file that is found
//! there is the volume's inode of its key, so that it is one file by whichever name it is opened, and everything but finding,
//! making and moving it is as elsewhere.
//!
//! Refuses: to ask the store what a file is like, which the view says; to make, move or remove anything in a view but files and
//! its directories.

mod created_files;
mod entries;
mod listing;
mod listing_cache;
mod lookups;
mod nodes;
mod renames;

pub(crate) use listing_cache::ListingReader;
pub use listing_cache::{Asked, ListingCache};
pub(crate) use nodes::{Derivation, is_derived};

use meta::Name;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use store::{ETag, ObjectKey, Tags, Timestamp};

use crate::Result;

/// A tree of derived directories. Paths are names from its root down; the root is the empty path.
///
/// Implemented where views and volumes are joined, as neither knows the other.
#[async_trait::async_trait]
pub trait Derived: Send + Sync + fmt::Debug {
    /// What is under a path.
    async fn find(&self, path: &[Name]) -> Result<Option<DerivedEntry>>;

    /// The entries of a directory after a name, in the order of names; none at the end.
    async fn list(
        &self,
        directory: &[Name],
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, DerivedEntry)>>;

    /// Where a file that is made under a path lies, and what it gets so that it stays there. EINVAL for one that the directory
    /// could not show.
    async fn place(&self, path: &[Name]) -> Result<Placed>;

    /// Makes a directory.
    async fn make_directory(&self, path: &[Name]) -> Result<()>;

    /// Removes an empty one.
    async fn remove_directory(&self, path: &[Name]) -> Result<()>;

    /// Moves a directory, or a file to another one of the same view, whose name stays.
    async fn rename(&self, from: &[Name], to: &[Name]) -> Result<()>;

    /// How much later than it happens at most a change is known of under a directory, where the source does not lag.
    fn recency(&self, directory: &[Name]) -> Duration;

    /// How long a front end may believe what it found in a directory: for ever, as far as it is told what is stale.
    fn lifetime(&self, directory: &[Name]) -> Duration;

    /// A number that another content of a directory never had.
    async fn version(&self, directory: &[Name]) -> Result<u64>;
}

/// Names that do not stand any more for what they stood for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedStale {
    /// The directory that they are in, in which others may be new.
    pub directory: Vec<Name>,
    /// Those that lead elsewhere by now, or nowhere, or to a file that changed.
    pub names: Vec<Name>,
}

/// What a name of a derived directory leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedEntry {
    /// A further derived directory.
    Directory,
    /// A file of the volume.
    File(DerivedFile),
}

/// A file, as it was last heard of: enough to say what it is like without asking the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedFile {
    /// Its key in the volume, which is its path.
    pub key: ObjectKey,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Which bytes.
    pub etag: ETag,
    /// When it was stored.
    pub modified: Timestamp,
    /// User metadata, where it is known.
    pub properties: Option<BTreeMap<String, String>>,
}

/// Where a new file lies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placed {
    /// Its path in the volume.
    pub path: Vec<Vec<u8>>,
    /// User metadata that it gets.
    pub properties: BTreeMap<String, String>,
    /// Tags that it gets.
    pub tags: Tags,
    /// `Content-Type`, where the view asks for one.
    pub content_type: Option<String>,
}
