//! Mapping of files to keys: one object per file or one per chunk, named by path or by inode.
//!
//! Pure functions from names and inodes to keys. By path, a file is one object whose key is its path; a directory exists
//! through the keys that begin with its path, and through a marker object `dir/` if it was created by a mount. By inode, only
//! content is in objects, under keys that are used once; all other state is in the metadata engine.
//!
//! By path, the bucket cannot show every name: only the primary link of a file with several names is a key, and no key exceeds
//! 1,024 bytes. Files that the bucket cannot show are stored by inode in a volume named by path too.

use bytes::Bytes;
use meta::{Extent, Ino, Inode, Kind, Name, Namespace, Stored};
use std::collections::BTreeSet;
use store::names::{BadName, KeyPrefix, plain};
use store::{ETag, InvalidKey, KEY_BYTES_MAX, ObjectKey, ObjectRef, Timestamp};

use crate::volume::{Mapping, Naming, VolumeRecord};
use crate::{Error, Result};

/// Prefix of Tenon's own objects, at the volume's root; listings hide it.
pub const RESERVED: &str = ".tenon";

/// Prefix of the content of files named by inode, at the volume's root.
const CONTENT: &str = "inodes";

/// Directory for the losing side of a conflict, at the volume's root.
pub const LOST_AND_FOUND: &str = "lost+found";

/// The paths and keys of one volume.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: KeyPrefix,
    naming: Naming,
    mapping: Mapping,
    /// Prefix of the keys of content.
    content: Vec<u8>,
}

impl Layout {
    /// Returns the layout of the volume below `prefix`; without a record it is named by path. `made_at` is the creation time of
    /// this machine's metadata: it separates the content of several machines that mount a volume named by path.
    pub(crate) fn of(prefix: &[u8], record: Option<&VolumeRecord>, made_at: Timestamp) -> Self {
        let (naming, mapping) =
            record.map_or((Naming::FilePath, Mapping::Whole), |record| (record.naming, record.mapping));
        let content = match naming {
            Naming::FilePath => format!("{RESERVED}/{CONTENT}/{:016x}/", made_at.0),
            Naming::Inode => format!("{CONTENT}/"),
        };
        let content = [prefix, content.as_bytes()].concat();
        Self { root: KeyPrefix::root(prefix), naming, mapping, content }
    }

    /// Returns the mapping of files to objects.
    pub(crate) fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// Returns how objects are named.
    pub(crate) fn naming(&self) -> Naming {
        self.naming
    }

    /// Returns whether paths can be keys, so that the bucket is the source of truth for names.
    fn can_have_keys(&self) -> bool {
        self.naming == Naming::FilePath
    }

    /// Returns a key for new content of a file named by inode; `unique` is a random number.
    pub(crate) fn content_key(&self, ino: Ino, unique: u64) -> Result<ObjectKey> {
        let name = format!("{:016x}-{unique:016x}", ino.0);
        own_key([self.content.as_slice(), name.as_bytes()].concat())
    }

    /// Returns the inode whose content a key is; `None` for a key that Tenon did not make.
    pub(crate) fn content_owner(&self, key: &ObjectKey) -> Option<Ino> {
        let name = std::str::from_utf8(key.as_bytes().strip_prefix(self.content.as_slice())?).ok()?;
        let (ino, unique) = name.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        number(unique).and(number(ino)).map(Ino)
    }

    /// Returns the prefix of the keys of content.
    pub(crate) fn content_prefix(&self) -> Bytes {
        Bytes::copy_from_slice(&self.content)
    }

    /// Returns whether a listing of the bucket can show anything in the directory with this prefix.
    pub(crate) fn can_list(&self, inside: &KeyPrefix) -> bool {
        self.can_have_keys() && inside.as_bytes().len() < KEY_BYTES_MAX
    }

    /// Returns whether a listing shows an inode under a name in the directory with this prefix, once it is stored.
    pub(crate) fn would_show(&self, place: (Ino, &KeyPrefix), name: &Name, inode: &Inode) -> bool {
        !inode.is_beside() && self.can_show(place, name, inode)
    }

    /// Like `would_show`, also for an inode whose content is temporarily not at its path.
    pub(crate) fn can_show(&self, (dir, prefix): (Ino, &KeyPrefix), name: &Name, inode: &Inode) -> bool {
        let is_home = inode.home.as_ref().is_some_and(|(parent, home)| *parent == dir && home == name);
        is_home && self.has_key(prefix, name, inode.kind)
    }

    /// Returns whether a path is short enough for a key.
    pub(crate) fn has_key(&self, prefix: &KeyPrefix, name: &Name, kind: Kind) -> bool {
        let is_short = prefix.as_bytes().len() + name.as_bytes().len() < KEY_BYTES_MAX;
        let fits = || match kind {
            Kind::Directory => {
                prefix.child_dir(name.as_bytes()).is_ok_and(|inside| inside.as_bytes().len() <= KEY_BYTES_MAX)
            }
            _ => object_key(prefix, name.as_bytes()).is_ok(),
        };
        self.can_have_keys() && (is_short || fits())
    }

    /// Like `has_key`, for a name in a directory.
    pub(crate) fn has_key_in(&self, names: &Namespace, dir: Ino, name: &Name, kind: Kind) -> Result<bool> {
        Ok(self.can_have_keys() && self.has_key(&self.directory(names, dir)?, name, kind))
    }

    /// Returns whether an inode's path can be a key. An inode without a name counts as if it could.
    pub(crate) fn has_path_key(&self, names: &Namespace, inode: &Inode) -> Result<bool> {
        match &inode.home {
            Some((dir, name)) => self.has_key_in(names, *dir, name, inode.kind),
            None => Ok(self.can_have_keys()),
        }
    }

    /// Like `would_show`, for a directory whose prefix is not known.
    pub(crate) fn would_show_in(
        &self,
        names: &Namespace,
        dir: Ino,
        name: &Name,
        inode: &Inode,
    ) -> Result<bool> {
        Ok(self.can_have_keys() && self.would_show((dir, &self.directory(names, dir)?), name, inode))
    }

    /// Like `can_list`, for a directory whose prefix is not known.
    pub(crate) fn can_list_in(&self, names: &Namespace, dir: Ino) -> Result<bool> {
        Ok(self.listed_prefix(names, dir)?.is_some())
    }

    /// Returns the prefix of the keys inside a directory; `None` if no listing of the bucket can show anything in it.
    pub(crate) fn listed_prefix(&self, names: &Namespace, dir: Ino) -> Result<Option<KeyPrefix>> {
        if !self.can_have_keys() {
            return Ok(None);
        }
        Ok(Some(self.directory(names, dir)?).filter(|prefix| self.can_list(prefix)))
    }

    /// Returns whether an object is under the key that the path of its file gives.
    pub(crate) fn is_at_path(&self, object: &Stored) -> bool {
        self.can_have_keys() && object.key.is_none()
    }

    /// Returns the path in the volume that a key shows; `None` if keys are no paths, or the key is outside the volume.
    pub(crate) fn path_in_volume(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let inside = key.as_bytes().strip_prefix(self.root.as_bytes()).filter(|_| self.can_have_keys())?;
        ObjectKey::new(inside.to_vec()).ok()
    }

    /// Returns the prefix of the keys inside a directory.
    pub(crate) fn directory(&self, names: &Namespace, dir: Ino) -> Result<KeyPrefix> {
        let mut at = self.root.clone();
        for name in names.path(dir)? {
            at = at.child_dir(name.as_bytes())?;
        }
        Ok(at)
    }

    /// Fails if a new name is the escaped form of a key that is no path.
    pub(crate) fn check_not_escape(
        &self,
        prefix: &KeyPrefix,
        name: &Name,
        kind: Kind,
    ) -> Result<(), BadName> {
        let checked = match kind {
            _ if !self.can_have_keys() => Ok(()),
            _ if plain(name.as_bytes()).is_some() => Err(BadName::Reserved),
            Kind::Directory => prefix.child_dir(name.as_bytes()).map(drop),
            _ => object_key(prefix, name.as_bytes()).map(drop),
        };
        match checked {
            Err(BadName::Key(InvalidKey::TooLong(_))) => Ok(()),
            checked => checked,
        }
    }

    /// Returns the key of a file, or of a directory's marker. Fails for a file that the bucket does not show and that has no
    /// content.
    pub(crate) fn key(&self, names: &Namespace, inode: &Inode) -> Result<ObjectKey> {
        match inode.object().and_then(|object| object.key.clone()) {
            Some(key) => Ok(key),
            None => self.path_key(names, inode),
        }
    }

    /// Returns the key that the path of a file or a directory's marker gives.
    pub(crate) fn path_key(&self, names: &Namespace, inode: &Inode) -> Result<ObjectKey> {
        if !self.can_have_keys() {
            return Err(Error::NOT_FOUND);
        }
        if inode.kind == meta::Kind::Directory {
            return self.directory(names, inode.ino)?.marker_key().ok_or(Error::NOT_FOUND);
        }
        let (parent, name) = inode.home.as_ref().ok_or(Error::NOT_FOUND)?;
        Ok(object_key(&self.directory(names, *parent)?, name.as_bytes())?)
    }

    /// Like `path_key`; `None` if the path cannot be a key.
    pub(crate) fn find_path_key(&self, names: &Namespace, inode: &Inode) -> Result<Option<ObjectKey>> {
        if !self.can_have_keys() {
            return Ok(None);
        }
        match self.path_key(names, inode) {
            Err(Error::Name(BadName::Key(InvalidKey::TooLong(_)))) => Ok(None),
            key => Ok(Some(key?)),
        }
    }

    /// Returns a key for the bytes of an open file without a name.
    pub(crate) fn orphan_key(&self, ino: Ino, unique: u64) -> Result<ObjectKey> {
        self.reserved(format!("orphans/{ino}-{unique:016x}").as_bytes())
    }

    /// Returns a key for the losing side of a conflict: the flattened path and a unique suffix.
    pub(crate) fn lost_key(&self, path: &[&[u8]], unique: u64) -> Result<ObjectKey> {
        lost(&self.root, path, unique)
    }

    /// Returns the key of a document that belongs to a bucket, which is a directory at the volume's root. An empty `bucket`
    /// means the whole volume.
    pub(crate) fn setting_key(&self, bucket: &[u8], name: &str) -> Result<ObjectKey> {
        let bucket = if bucket.is_empty() { b"_" } else { bucket };
        self.reserved(&[b"buckets/", bucket, b"/", name.as_bytes()].concat())
    }

    /// Returns whether a key or a key prefix is reserved for Tenon.
    pub(crate) fn is_own(&self, text: &[u8]) -> bool {
        is_own(self.root.as_bytes(), text)
    }

    /// Returns the prefix of the keys of Tenon's own objects.
    pub(crate) fn reserved_prefix(&self) -> Vec<u8> {
        [self.root.as_bytes(), RESERVED.as_bytes(), b"/"].concat()
    }

    /// Returns the prefix of the keys of leases.
    pub(crate) fn leases_prefix(&self) -> Vec<u8> {
        leases(self.root.as_bytes())
    }

    fn reserved(&self, rest: &[u8]) -> Result<ObjectKey> {
        reserved(self.root.as_bytes(), rest)
    }
}

/// Returns the key of the record that says Tenon wrote below `prefix`.
pub(crate) fn volume_record(prefix: &[u8]) -> Result<ObjectKey> {
    reserved(prefix, b"volume")
}

/// Returns the prefix of the keys of leases in the volume below `prefix`.
pub fn leases(prefix: &[u8]) -> Vec<u8> {
    [prefix, RESERVED.as_bytes(), b"/leases/"].concat()
}

/// Returns the prefix of the keys of metadata backups of the volume below `prefix`.
pub fn metadata_backups(prefix: &[u8]) -> Vec<u8> {
    [prefix, RESERVED.as_bytes(), b"/metadata/"].concat()
}

fn reserved(root: &[u8], rest: &[u8]) -> Result<ObjectKey> {
    own_key([root, RESERVED.as_bytes(), b"/", rest].concat())
}

fn own_key(bytes: Vec<u8>) -> Result<ObjectKey> {
    ObjectKey::new(bytes).map_err(|error| Error::Name(error.into()))
}

/// Returns whether other clients may change the object under a key of the volume below `prefix`, as it is none of Tenon's own.
pub fn is_shared(prefix: &[u8], key: &ObjectKey) -> bool {
    !is_own(prefix, key.as_bytes())
}

fn is_own(root: &[u8], text: &[u8]) -> bool {
    let inside = text.strip_prefix(root).and_then(|rest| rest.strip_prefix(RESERVED.as_bytes()));
    inside.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Returns a key for bytes that lost against a foreign object, in the volume below `prefix`.
pub fn lost_key(prefix: &[u8], key: &ObjectKey, unique: u64) -> Result<ObjectKey> {
    let inside = key.as_bytes().strip_prefix(prefix).unwrap_or(key.as_bytes());
    let parts: Vec<&[u8]> = inside.split(|byte| *byte == b'/').collect();
    lost(&KeyPrefix::root(prefix), &parts, unique)
}

fn lost(root: &KeyPrefix, path: &[&[u8]], unique: u64) -> Result<ObjectKey> {
    let flat = path.join(&b'_');
    let flat = &flat[..flat.len().min(200)];
    let unique = format!(".{:08x}", unique as u32);
    let dir = root.child_dir(LOST_AND_FOUND.as_bytes())?;
    // An escaped name may exceed the limit for keys together with its path.
    dir.child_key(&[flat, unique.as_bytes()].concat())
        .or_else(|_| Ok(dir.child_key(format!("lost{unique}").as_bytes())?))
}

/// Returns the key of the object `name` in a directory. `%!`, the empty component, is refused: its key would be that of the
/// directory's marker.
pub(crate) fn object_key(prefix: &KeyPrefix, name: &[u8]) -> Result<ObjectKey, BadName> {
    match prefix.child_key(name) {
        Ok(key) if key.as_bytes() == prefix.as_bytes() => Err(BadName::Reserved),
        Err(BadName::Key(InvalidKey::Empty)) => Err(BadName::Reserved),
        key => key,
    }
}

/// Returns whether a name is reserved for Tenon.
pub(crate) fn is_reserved(parent: Ino, name: &[u8]) -> bool {
    parent == Ino::ROOT && name == RESERVED.as_bytes()
}

/// Returns the namespace's record of an object at the file's path.
pub(crate) fn stored(object: &ObjectRef) -> Stored {
    Stored {
        key: None,
        etag: object.etag.clone(),
        version: object.version.clone(),
        last_modified: object.last_modified,
    }
}

/// Returns the namespace's record of an object under a key of its own.
pub(crate) fn stored_at(object: &ObjectRef) -> Stored {
    Stored { key: Some(object.key.clone()), last_modified: None, ..stored(object) }
}

/// Returns the content of a file whose object at the path was copied to `there`.
pub(crate) fn relocated(content: &[Extent], there: &Stored) -> Vec<Extent> {
    let moved = |extent: &Extent| match extent.object.key {
        None => Extent { object: there.clone(), ..extent.clone() },
        Some(_) => extent.clone(),
    };
    content.iter().map(moved).collect()
}

/// Returns the keys of a file's objects, except for the object at the file's path.
pub(crate) fn content_keys(content: &[Extent]) -> BTreeSet<ObjectKey> {
    content.iter().filter_map(|extent| extent.object.key.clone()).collect()
}

/// Returns the content of a file that is one whole object.
pub(crate) fn whole(object: Stored, size_bytes: u64) -> Vec<Extent> {
    vec![Extent { offset: 0, len: size_bytes, object, object_offset: 0 }]
}

/// Returns the etag of an inode's object.
pub(crate) fn etag(inode: &Inode) -> Option<&ETag> {
    inode.object().map(|object| &object.etag)
}
