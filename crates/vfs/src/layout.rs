//! Mapping of files to keys: one object per file or one per chunk, named by path or by inode.
//!
//! Pure functions from names and inodes to keys. By path, a file is one object whose key is its path; a directory exists
//! through the keys that begin with its path, and through a marker object `dir/` if it was created by a mount. By inode, only
//! content is in objects, under keys that are used once; all other state is in the metadata engine.
//!
//! By path, the bucket cannot show every name: only the primary link of a file with several names is a key, and no key exceeds
//! 1,024 bytes. Files that the bucket cannot show are stored by inode in a volume named by path too.
//!
//! If the directories at the root are buckets, Tenon's own objects of a file are in the bucket of the file: a key outside the buckets
//! cannot be stored.

use bytes::Bytes;
use meta::{BatchId, Extent, Ino, Inode, Kind, Name, Namespace, Stored};
use std::collections::BTreeSet;
use store::names::{BadName, KeyPrefix, plain};
use store::{ETag, InvalidKey, KEY_BYTES_MAX, ObjectKey, ObjectRef, Timestamp};

use crate::volume::{Mapping, Naming, VolumeRecord};
use crate::{Error, Result};

/// Prefix of Tenon's own objects, at the volume's root; listings hide it.
pub const RESERVED: &str = ".tenon";

/// Folder of content under keys of its own: at the volume's root in a volume named by inode, otherwise below
/// [`RESERVED`].
const CONTENT: &str = "inodes";

/// Directory for the losing side of a conflict, at the volume's root.
pub const LOST_AND_FOUND: &str = "lost+found";

/// The facts that determine the keys of a volume.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeySpace<'v> {
    /// Prefix of all keys: empty, or ending in `/`.
    pub prefix: &'v [u8],
    /// The volume's record; `None`: files are named by path.
    pub record: Option<&'v VolumeRecord>,
    /// Whether the directories at the root are buckets.
    pub joins_buckets: bool,
}

impl KeySpace<'_> {
    /// Returns whether other clients may change the object under a key of the volume, as it is none of Tenon's own.
    pub fn is_shared(&self, key: &ObjectKey) -> bool {
        !is_own(&self.own_root(key), key.as_bytes())
    }

    /// Returns a key in `lost+found` for bytes that lost their key in a conflict. `unique` is a random number.
    pub fn lost_key(&self, key: &ObjectKey, unique: u64) -> Result<ObjectKey> {
        let root = self.own_root(key);
        let inside = key.as_bytes().strip_prefix(root.as_slice()).unwrap_or(key.as_bytes());
        let parts: Vec<&[u8]> = inside.split(|byte| *byte == b'/').collect();
        lost(&root, &parts, unique)
    }

    /// Returns the prefix below which Tenon's own objects of a key's volume or bucket are.
    fn own_root(&self, key: &ObjectKey) -> Vec<u8> {
        own_root(self.prefix, self.joins_buckets, bucket_of(key.as_bytes()))
    }
}

/// The paths and keys of one volume.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Prefix of all keys of the volume.
    root: KeyPrefix,
    naming: Naming,
    mapping: Mapping,
    /// Whether the directories at the root are buckets.
    joins_buckets: bool,
    /// Prefix of the keys of content, after the bucket's name if the directories at the root are buckets.
    content: Vec<u8>,
}

impl Layout {
    /// Returns the layout of a volume. `made_at` is the creation time of this machine's metadata: it separates the content of several
    /// machines that mount a volume named by path.
    pub(crate) fn of(keys: KeySpace<'_>, made_at: Timestamp) -> Self {
        let KeySpace { prefix, record, joins_buckets } = keys;
        let (naming, mapping) =
            record.map_or((Naming::FilePath, Mapping::Whole), |record| (record.naming, record.mapping));
        let content = match naming {
            Naming::FilePath => format!("{RESERVED}/{CONTENT}/{:016x}/", made_at.0),
            Naming::Inode => format!("{CONTENT}/"),
        };
        let content = [prefix, content.as_bytes()].concat();
        Self { root: KeyPrefix::root(prefix), naming, mapping, joins_buckets, content }
    }

    /// Returns the layout of the same volume with other keys for new content.
    pub(crate) fn with_content_prefix(self, prefix: &[u8]) -> Self {
        Self { content: prefix.to_vec(), ..self }
    }

    /// Returns the mapping of files to objects.
    pub(crate) fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// Returns how objects are named.
    pub(crate) fn naming(&self) -> Naming {
        self.naming
    }

    /// Returns whether paths can be keys in this volume, so that the bucket is the source of truth for names.
    pub(crate) fn can_have_keys(&self) -> bool {
        self.naming == Naming::FilePath
    }

    /// Returns whether the directories at the root are buckets.
    pub(crate) fn joins_buckets(&self) -> bool {
        self.joins_buckets
    }

    /// Returns a key for new content of a file that is not stored at its path; `unique` is a random number. `bucket` is the file's, if
    /// the directories at the root are buckets.
    pub(crate) fn content_key(&self, bucket: Option<&Name>, ino: Ino, unique: u64) -> Result<ObjectKey> {
        let name = format!("{:016x}-{unique:016x}", ino.0);
        own_key([&self.content_prefix(bucket)[..], name.as_bytes()].concat())
    }

    /// Returns the inode whose content has this key; `None` for a key that is no content key of this volume and
    /// machine.
    pub(crate) fn content_owner(&self, key: &ObjectKey) -> Option<Ino> {
        let bucket_bytes = if self.joins_buckets { bucket_of(key.as_bytes()).len() + 1 } else { 0 };
        let inside = key.as_bytes().get(bucket_bytes..)?;
        let name = inside.strip_prefix(self.content.as_slice()).or_else(|| self.name_in_batch(key))?;
        let (ino, unique) = std::str::from_utf8(name).ok()?.split_once('-')?;
        store::number_of_hex(unique).and(store::number_of_hex(ino)).map(Ino)
    }

    /// Returns the batch whose object a key is.
    pub(crate) fn batch_of(&self, key: &ObjectKey) -> Option<BatchId> {
        let inside = key.as_bytes().strip_prefix(self.batches_prefix()?.as_slice())?;
        std::str::from_utf8(inside.split(|byte| *byte == b'/').next()?).ok()?.parse().ok()
    }

    /// Returns the last part of the key of a batch's object.
    fn name_in_batch<'k>(&self, key: &'k ObjectKey) -> Option<&'k [u8]> {
        self.batch_of(key)?;
        key.as_bytes().rsplit(|byte| *byte == b'/').next()
    }

    /// Returns the prefix of the keys of all batches' objects; `None` in a volume named by path, which has no batches.
    pub(crate) fn batches_prefix(&self) -> Option<Vec<u8>> {
        (self.naming == Naming::Inode).then(|| batches(self.root.as_bytes()))
    }

    /// Returns the prefix of the keys of content, in this bucket if the directories at the root are buckets.
    pub(crate) fn content_prefix(&self, bucket: Option<&Name>) -> Bytes {
        let bucket = bucket.filter(|_| self.joins_buckets).map(|name| [name.as_bytes(), b"/"].concat());
        Bytes::from([&bucket.unwrap_or_default()[..], &self.content].concat())
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

    /// Returns whether keys are paths, and the path of a name is short enough for a key.
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

    /// Fails if a new name is the escaped form of a key that is no path. A name that is too long for a key is allowed.
    pub(crate) fn check_not_escape(
        &self,
        prefix: &KeyPrefix,
        name: &Name,
        kind: Kind,
    ) -> Result<(), BadName> {
        let checked = match kind {
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

    /// Returns the key that the path of a file or a directory's marker gives. Fails if there is none: keys are no
    /// paths, the file has no name, or the path is too long.
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

    /// Returns a key for the bytes of an open file without a name. `bucket` is the file's, if the directories at the root are buckets.
    pub(crate) fn orphan_key(&self, bucket: Option<&Name>, ino: Ino, unique: u64) -> Result<ObjectKey> {
        let root = self.own_root(bucket.map_or(b"", |name| name.as_bytes()));
        reserved(&root, format!("orphans/{ino}-{unique:016x}").as_bytes())
    }

    /// Returns a key in `lost+found` for the losing side of a conflict: the flattened path, cut if it is long, and a
    /// unique suffix.
    pub(crate) fn lost_key(&self, path: &[Name], unique: u64) -> Result<ObjectKey> {
        let path: Vec<&[u8]> = path.iter().map(Name::as_bytes).collect();
        let (bucket, inside) = match self.joins_buckets {
            true => path.split_first().map_or((&b""[..], &path[..]), |(bucket, inside)| (*bucket, inside)),
            false => (&b""[..], &path[..]),
        };
        lost(&self.own_root(bucket), inside, unique)
    }

    /// Returns whether a key is in `lost+found`.
    pub(crate) fn is_lost(&self, key: &ObjectKey) -> bool {
        let root = self.own_root(bucket_of(key.as_bytes()));
        let inside = key.as_bytes().strip_prefix(root.as_slice());
        let inside = inside.and_then(|inside| inside.strip_prefix(LOST_AND_FOUND.as_bytes()));
        inside.is_some_and(|inside| inside.starts_with(b"/"))
    }

    /// Returns the key of a document that belongs to a bucket, which is a directory at the volume's root. An empty `bucket`
    /// means the whole volume.
    pub(crate) fn setting_key(&self, bucket: &[u8], name: &str) -> Result<ObjectKey> {
        let root = self.own_root(bucket);
        // The directory is the whole volume, also if it is a bucket itself.
        let bucket = if bucket.is_empty() || self.joins_buckets { b"_" } else { bucket };
        reserved(&root, &[b"buckets/", bucket, b"/", name.as_bytes()].concat())
    }

    /// Returns whether a key is reserved for Tenon, or its path in the volume is: an escaped name may be a reserved one.
    pub(crate) fn has_own_path(&self, key: &ObjectKey, path: &[Vec<u8>]) -> bool {
        self.is_own(key.as_bytes()) || path.first().is_some_and(|first| is_reserved(Ino::ROOT, first))
    }

    /// Returns whether a name is reserved for Tenon: `.tenon` in the root and, if the directories there are buckets, in each of them.
    pub(crate) fn is_reserved(&self, names: &Namespace, parent: Ino, name: &[u8]) -> Result<bool> {
        // The name is compared first, so that other names cost nothing.
        match name == RESERVED.as_bytes() && parent != Ino::ROOT && self.joins_buckets {
            true => Ok(names.inode(parent)?.home.is_some_and(|(above, _)| above == Ino::ROOT)),
            false => Ok(is_reserved(parent, name)),
        }
    }

    /// Fails with EPERM if a name is reserved for Tenon.
    pub(crate) fn check_not_reserved(&self, names: &Namespace, parent: Ino, name: &[u8]) -> Result<()> {
        match self.is_reserved(names, parent, name)? {
            true => Err(Error::new(libc::EPERM, "'.tenon' is reserved for Tenon here")),
            false => Ok(()),
        }
    }

    /// Returns whether a key or a key prefix is reserved for Tenon.
    pub(crate) fn is_own(&self, text: &[u8]) -> bool {
        is_own(&self.own_root(bucket_of(text)), text)
    }

    /// Returns the prefix of the keys of Tenon's own objects.
    pub(crate) fn reserved_prefix(&self) -> Vec<u8> {
        [self.root.as_bytes(), RESERVED.as_bytes(), b"/"].concat()
    }

    /// Returns the prefix of the keys of leases.
    pub(crate) fn leases_prefix(&self) -> Vec<u8> {
        leases(self.root.as_bytes())
    }

    fn own_root(&self, bucket: &[u8]) -> Vec<u8> {
        own_root(self.root.as_bytes(), self.joins_buckets, bucket)
    }
}

/// Returns the prefix below which Tenon's own objects are: `prefix`, that of the volume, or this bucket's if the directories at the root
/// are buckets.
fn own_root(prefix: &[u8], joins_buckets: bool, bucket: &[u8]) -> Vec<u8> {
    match joins_buckets && !bucket.is_empty() {
        true => [bucket, b"/"].concat(),
        false => prefix.to_vec(),
    }
}

/// Returns the bucket of a key below which there are several; empty if the key is in none.
fn bucket_of(key: &[u8]) -> &[u8] {
    key.iter().position(|byte| *byte == b'/').map_or(b"", |end| &key[..end])
}

/// Returns the key of the record that says Tenon wrote below `prefix`.
pub(crate) fn volume_record(prefix: &[u8]) -> Result<ObjectKey> {
    reserved(prefix, b"volume")
}

/// Returns the prefix of the keys of leases in the volume below `prefix`.
pub fn leases(prefix: &[u8]) -> Vec<u8> {
    [prefix, RESERVED.as_bytes(), b"/leases/"].concat()
}

/// Returns the prefix of the keys of all batches' objects in the volume below `prefix`.
fn batches(prefix: &[u8]) -> Vec<u8> {
    [prefix, RESERVED.as_bytes(), b"/batches/"].concat()
}

/// Returns the prefix of the keys of a batch's objects in the volume below `prefix`.
pub fn batch_objects(prefix: &[u8], id: BatchId) -> Vec<u8> {
    [&batches(prefix)[..], id.to_string().as_bytes(), b"/"].concat()
}

/// Returns the prefix of the keys of metadata backups of the volume below `prefix`.
pub fn metadata_backups(prefix: &[u8]) -> Vec<u8> {
    [prefix, RESERVED.as_bytes(), b"/metadata/"].concat()
}

fn reserved(root: &[u8], rest: &[u8]) -> Result<ObjectKey> {
    own_key([root, RESERVED.as_bytes(), b"/", rest].concat())
}

/// Returns a key that Tenon makes; fails if it is too long.
fn own_key(bytes: Vec<u8>) -> Result<ObjectKey> {
    ObjectKey::new(bytes).map_err(|error| Error::Name(error.into()))
}

/// Returns whether a key or key prefix is under Tenon's reserved prefix in the volume below `root`.
fn is_own(root: &[u8], text: &[u8]) -> bool {
    let inside = text.strip_prefix(root).and_then(|rest| rest.strip_prefix(RESERVED.as_bytes()));
    inside.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Returns a key in `lost+found` below `root` for the file with this path. `unique` is a random number.
fn lost(root: &[u8], path: &[&[u8]], unique: u64) -> Result<ObjectKey> {
    let flat = path.join(&b'_');
    let flat = &flat[..flat.len().min(200)];
    let unique = format!(".{:08x}", unique as u32);
    let dir = KeyPrefix::root(root).child_dir(LOST_AND_FOUND.as_bytes())?;
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

/// Returns whether a name is reserved for Tenon: `.tenon` in the root of a volume.
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

/// Returns the content of a file whose object at the path was copied to `there`; other objects of the file stay.
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

/// Returns the etag of an inode's object; `None` if nothing is stored.
pub(crate) fn etag(inode: &Inode) -> Option<&ETag> {
    inode.object().map(|object| &object.etag)
}
