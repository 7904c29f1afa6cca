//! Mapping from path to key and back.

use bytes::Bytes;
use meta::{Extent, Ino, Kind};
use store::ObjectKey;

use crate::Result;
use crate::ops::admin::Admin;

/// Location of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLocation {
    /// The inode.
    pub ino: Ino,
    /// Kind of the inode.
    pub kind: Kind,
    /// The key of the file's one object, even before it is stored. `None` for a directory without a marker, and for a file in
    /// several objects or in none.
    pub key: Option<ObjectKey>,
    /// The etag of that object, once it is stored.
    pub etag: Option<String>,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Every stored range of the file, with the key of its object.
    pub content: Vec<(ObjectKey, Extent)>,
}

impl Admin<'_> {
    /// Returns where the bytes of a path relative to the volume's root are, such as `dir/file`. ENOENT if there is no
    /// such file.
    pub async fn locate(&self, path: &[u8]) -> Result<FileLocation> {
        let inode = self.fs.content.seen(self.fs.bucket.discovery.at_path(path).await?);
        let is_implicit = inode.kind == Kind::Directory && inode.object().is_none();
        let home =
            if is_implicit { None } else { self.fs.mount.layout.key(self.fs.names.tables(), &inode).ok() };
        let content = self.fs.names.tables().content_of(&inode)?;
        let key_of = |extent: &Extent| extent.object.key.clone().or_else(|| home.clone());
        let content: Vec<_> =
            content.iter().filter_map(|extent| Some((key_of(extent)?, extent.clone()))).collect();
        let is_spread = content.iter().any(|(key, _)| Some(key) != home.as_ref());
        let key = home.filter(|_| !is_spread);
        let etag = key.as_ref().and(inode.object()).map(|object| object.etag.to_string());
        Ok(FileLocation {
            ino: inode.ino,
            kind: inode.kind,
            key,
            etag,
            size_bytes: inode.size_bytes,
            content,
        })
    }

    /// Returns the path of an inode from the volume's root, empty for the root. `None` for an inode without a name.
    pub fn path_of_inode(&self, ino: Ino) -> Option<Bytes> {
        let names = self.fs.names.tables().path(ino).ok()?;
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        Some(Bytes::from(names.join(&b'/')))
    }

    /// Returns the path under which a key is shown, whether or not the object exists, or the path of the file that a
    /// content key belongs to. `None` for a key that has no path, or belongs to no file with a name.
    pub fn path_of(&self, key: &ObjectKey) -> Option<Bytes> {
        if let Some(ino) = self.fs.mount.layout.content_owner(key) {
            return self.path_of_inode(ino);
        }
        let path = store::names::key_to_path(&self.fs.mount.layout.path_in_volume(key)?);
        Some(Bytes::from(path.join(&b'/')))
    }
}
