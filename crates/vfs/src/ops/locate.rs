//! From path to key and back.

use bytes::Bytes;
use meta::{Ino, Kind};
use store::ObjectKey;

use crate::filesystem::name;
use crate::{Filesystem, Result};

/// Where a file's bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The inode.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// The object's key; a directory that only its contents' keys name has none.
    pub key: Option<ObjectKey>,
    /// The object's etag, once it is stored.
    pub etag: Option<String>,
    /// Length in bytes.
    pub size_bytes: u64,
}

impl Filesystem {
    /// Finds the object of a path below the volume's root, such as `dir/file`.
    pub async fn locate(&self, path: &[u8]) -> Result<Located> {
        let mut inode = self.names.inode(Ino::ROOT)?;
        for component in path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
            inode = self.must(self.find(inode.ino, &name(component)?).await?)?;
        }
        let inode = self.seen(inode);
        let is_implicit = inode.kind == Kind::Directory && inode.object().is_none();
        let key = if is_implicit { None } else { self.layout.key(&self.names, &inode).ok() };
        let etag = inode.object().map(|object| object.etag.to_string());
        Ok(Located { ino: inode.ino, kind: inode.kind, key, etag, size_bytes: inode.size_bytes })
    }

    /// The path at which a key shows.
    pub fn path_of(&self, key: &ObjectKey) -> Option<Bytes> {
        let inside = key.as_bytes().strip_prefix(self.config.prefix.as_slice())?;
        let path = store::names::key_to_path(&ObjectKey::try_from(inside).ok()?);
        Some(Bytes::from(path.join(&b'/')))
    }
}
