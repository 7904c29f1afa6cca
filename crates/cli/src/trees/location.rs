//! The place of a tree: a path, or the URL of a bucket with an optional prefix.

use super::entry_stream::{EntryStream, key_prefix};
use crate::bucket::Bucket;
use crate::bucket::credentials::StoreSettings;
use crate::process::context::ProcessContext;
use crate::volume::target;
use anyhow::{Context as _, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{ObjectKey, ObjectStore};

/// The place of a tree.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// A directory or file, mounted or not.
    Path(PathBuf),
    /// Objects below a directory of keys, or a single object.
    Objects {
        store: Arc<dyn ObjectStore>,
        /// URL of the bucket, by which two locations in the same bucket are known.
        bucket: String,
        /// The directory of keys, without `/` at its end; empty for the whole bucket.
        directory: Vec<u8>,
    },
}

impl Location {
    /// Opens a location to read from it. A text with `://` is a URL of objects, everything else a path.
    pub(crate) async fn open_to_read(
        text: &str,
        store: &StoreSettings,
        context: &ProcessContext,
    ) -> Result<Self> {
        Self::open_with(text, store, true, context).await
    }

    /// Like [`Location::open_to_read`], but to change the tree.
    pub(crate) async fn open_to_write(
        text: &str,
        store: &StoreSettings,
        context: &ProcessContext,
    ) -> Result<Self> {
        Self::open_with(text, store, false, context).await
    }

    async fn open_with(
        text: &str,
        store: &StoreSettings,
        read_only: bool,
        context: &ProcessContext,
    ) -> Result<Self> {
        if !text.contains("://") {
            return Ok(Self::Path(PathBuf::from(text)));
        }
        let (volume, key) = target::split(text)?;
        let bucket = Bucket::open_or_connect(&volume, store, read_only, context).await?;
        let mut directory = key;
        while directory.last() == Some(&b'/') {
            directory.pop();
        }
        Ok(Self::Objects { store: bucket.store, bucket: volume.url(), directory })
    }

    /// Starts to walk the tree.
    pub(crate) fn entries(&self) -> EntryStream {
        match self {
            Self::Path(path) => EntryStream::of_directory(path),
            Self::Objects { store, directory, .. } => {
                EntryStream::of_objects(Arc::clone(store), directory.clone())
            }
        }
    }

    /// Returns the location of an entry of the tree.
    pub(crate) fn join(&self, path: &[u8]) -> Self {
        match self {
            Self::Path(root) if path.is_empty() => Self::Path(root.clone()),
            Self::Path(root) => Self::Path(root.join(OsStr::from_bytes(path))),
            Self::Objects { store, bucket, directory } => {
                let directory = match path.is_empty() {
                    true => directory.clone(),
                    false => [&key_prefix(directory), path].concat(),
                };
                Self::Objects { store: Arc::clone(store), bucket: bucket.clone(), directory }
            }
        }
    }

    /// Returns whether there is a directory, as far as a bucket has directories: a key below it is enough.
    pub(crate) async fn is_directory(&self) -> Result<bool> {
        match self {
            Self::Path(path) => Ok(path.is_dir()),
            Self::Objects { directory, .. } if directory.is_empty() => Ok(true),
            Self::Objects { store, directory, .. } => {
                let request = store::ListRequest {
                    prefix: key_prefix(directory).into(),
                    limit: 1,
                    ..store::ListRequest::default()
                };
                let page = store.list(request).await.context("cannot list the bucket")?;
                Ok(!page.entries.is_empty())
            }
        }
    }

    /// Returns whether another location is below this one, so that a copy would copy itself.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path(one), Self::Path(other)) => {
                let (Ok(one), Ok(other)) = (one.canonicalize(), resolve_existing(other)) else {
                    return false;
                };
                other != one && other.starts_with(one)
            }
            (
                Self::Objects { bucket, directory, .. },
                Self::Objects { bucket: other_bucket, directory: other, .. },
            ) => bucket == other_bucket && directory != other && other.starts_with(&key_prefix(directory)),
            _ => false,
        }
    }

    /// Returns whether this is a symbolic link.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self, Self::Path(path) if path.is_symlink())
    }

    /// Returns the path or URL as its user would write it, as bytes, because names need not be text.
    pub(crate) fn as_bytes(&self) -> Vec<u8> {
        match self {
            Self::Path(path) => path.as_os_str().as_bytes().to_vec(),
            Self::Objects { bucket, directory, .. } => [bucket.as_bytes(), b"/", directory].concat(),
        }
    }

    /// Returns the last name of the path or key; `None` if there is none, such as for a whole bucket.
    pub(crate) fn file_name(&self) -> Option<Vec<u8>> {
        match self {
            Self::Path(path) => Some(Path::file_name(path)?.as_bytes().to_vec()),
            Self::Objects { directory, .. } => directory
                .rsplit(|byte| *byte == b'/')
                .next()
                .filter(|name| !name.is_empty())
                .map(<[u8]>::to_vec),
        }
    }
}

/// Returns an absolute path without symbolic links, as far as it exists.
fn resolve_existing(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let existing = path.ancestors().find(|dir| dir.exists()).unwrap_or(&path);
    let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
    Ok(existing.canonicalize()?.join(rest))
}

/// Shows the location as its user would write it.
impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Objects { bucket, directory, .. } if directory.is_empty() => f.write_str(bucket),
            Self::Objects { bucket, directory, .. } => {
                write!(f, "{bucket}/{}", String::from_utf8_lossy(directory))
            }
        }
    }
}

/// Returns a directory of keys as the key of an object.
pub(super) fn object_key(directory: &[u8]) -> Result<ObjectKey> {
    ObjectKey::new(directory.to_vec())
        .with_context(|| format!("'{}' is not a key of an object", String::from_utf8_lossy(directory)))
}
