//! Where files lie in the bucket: one object or one for each chunk, by path or by inode.
//!
//! Pure: names and inodes in, keys out. By path, a file is one object whose key is its path; a directory is the keys
//! that begin with its path, and a marker object `dir/` where it was made through the mount. By inode, only content
//! is in objects, under keys that are never used again; everything else is in the metadata engine.
//!
//! A bucket cannot show every name by path: of a file with several names only its home is a key, and no key is longer
//! than 1,024 bytes. What it does not show is by inode in that volume too.

use bytes::Bytes;
use meta::{Extent, Ino, Inode, Kind, Name, Namespace, Stored};
use std::collections::BTreeSet;
use store::names::{BadName, KeyPrefix, plain};
use store::{InvalidKey, KEY_BYTES_MAX, ObjectKey, ObjectRef, Timestamp};

use crate::volume::{Mapping, Naming, VolumeRecord};
use crate::{Error, Result};

/// Tenon's own objects live below this, at the volume's root; listings hide it.
pub const RESERVED: &str = ".tenon";

/// Where the content of files named by inode lies, at the volume's root.
const CONTENT: &str = "inodes";

/// Where the file side of a conflict is kept, at the volume's root.
pub const LOST_AND_FOUND: &str = "lost+found";

/// The paths and keys of one volume.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: KeyPrefix,
    naming: Naming,
    mapping: Mapping,
    /// What the keys of content begin with.
    content: Vec<u8>,
}

impl Layout {
    /// The layout of the volume below `prefix`; one without a record is named by path. `made_at` is when its metadata
    /// on this machine was made: several machines may mount a volume named by path, each with content of its own
    /// there.
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

    /// How many objects hold a file.
    pub(crate) fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// Whether names are keys: what the bucket holds is what there is.
    pub(crate) fn follows_paths(&self) -> bool {
        self.naming == Naming::FilePath
    }

    /// Where the next bytes of a file named by inode go; `unique` is a random number.
    pub(crate) fn content_key(&self, ino: Ino, unique: u64) -> Result<ObjectKey> {
        let name = format!("{:016x}-{unique:016x}", ino.0);
        own_key([self.content.as_slice(), name.as_bytes()].concat())
    }

    /// Whose content a key is; `None` for a key that Tenon did not make.
    pub(crate) fn owner(&self, key: &ObjectKey) -> Option<Ino> {
        let name = std::str::from_utf8(key.as_bytes().strip_prefix(self.content.as_slice())?).ok()?;
        let (ino, unique) = name.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        number(unique).and(number(ino)).map(Ino)
    }

    /// What the keys of content begin with that are not paths.
    pub(crate) fn content(&self) -> Bytes {
        Bytes::copy_from_slice(&self.content)
    }

    /// Whether the bucket shows anything in the directory with this prefix.
    pub(crate) fn lists(&self, inside: &KeyPrefix) -> bool {
        self.follows_paths() && inside.as_bytes().len() < KEY_BYTES_MAX
    }

    /// Whether the bucket shows an inode under a name in the directory with this prefix, as soon as it is stored.
    pub(crate) fn shows(&self, place: (Ino, &KeyPrefix), name: &Name, inode: &Inode) -> bool {
        !inode.is_beside() && self.may_show(place, name, inode)
    }

    /// The same of one that may lie beside its path for now.
    pub(crate) fn may_show(&self, (dir, prefix): (Ino, &KeyPrefix), name: &Name, inode: &Inode) -> bool {
        let is_home = inode.home.as_ref().is_some_and(|(parent, home)| *parent == dir && home == name);
        is_home && self.has_key(prefix, name, inode.kind)
    }

    /// Whether a key can be as long as this path.
    pub(crate) fn has_key(&self, prefix: &KeyPrefix, name: &Name, kind: Kind) -> bool {
        let is_short = prefix.as_bytes().len() + name.as_bytes().len() < KEY_BYTES_MAX;
        let fits = || match kind {
            Kind::Directory => {
                prefix.child_dir(name.as_bytes()).is_ok_and(|inside| inside.as_bytes().len() <= KEY_BYTES_MAX)
            }
            _ => object_key(prefix, name.as_bytes()).is_ok(),
        };
        self.follows_paths() && (is_short || fits())
    }

    /// The keys inside a directory.
    pub(crate) fn directory(&self, names: &Namespace, dir: Ino) -> Result<KeyPrefix> {
        let mut at = self.root.clone();
        for name in names.path(dir)? {
            at = at.child_dir(name.as_bytes())?;
        }
        Ok(at)
    }

    /// An error for a new name that stands for a key which is no name.
    pub(crate) fn must_be_plain(&self, prefix: &KeyPrefix, name: &Name, kind: Kind) -> Result<(), BadName> {
        let checked = match kind {
            _ if !self.follows_paths() => Ok(()),
            _ if plain(name.as_bytes()).is_some() => Err(BadName::Reserved),
            Kind::Directory => prefix.child_dir(name.as_bytes()).map(drop),
            _ => object_key(prefix, name.as_bytes()).map(drop),
        };
        match checked {
            Err(BadName::Key(InvalidKey::TooLong(_))) => Ok(()),
            checked => checked,
        }
    }

    /// The key of a file, or of a directory's marker. An error for what the bucket does not show and that has no
    /// content.
    pub(crate) fn key(&self, names: &Namespace, inode: &Inode) -> Result<ObjectKey> {
        match inode.object().and_then(|object| object.key.clone()) {
            Some(key) => Ok(key),
            None => self.path_key(names, inode),
        }
    }

    /// The key that a file or a directory's marker has by its path.
    pub(crate) fn path_key(&self, names: &Namespace, inode: &Inode) -> Result<ObjectKey> {
        if !self.follows_paths() {
            return Err(Error::NOT_FOUND);
        }
        if inode.kind == meta::Kind::Directory {
            return self.directory(names, inode.ino)?.marker_key().ok_or(Error::NOT_FOUND);
        }
        let (parent, name) = inode.home.as_ref().ok_or(Error::NOT_FOUND)?;
        Ok(object_key(&self.directory(names, *parent)?, name.as_bytes())?)
    }

    /// Where the bytes of an open file without a name are kept.
    pub(crate) fn orphan(&self, ino: Ino, unique: u64) -> Result<ObjectKey> {
        self.reserved(format!("orphans/{ino}-{unique:016x}").as_bytes())
    }

    /// Where the file side of a conflict is kept: the path flattened, the etag it lost against.
    pub(crate) fn lost(&self, path: &[&[u8]], unique: u64) -> Result<ObjectKey> {
        lost(&self.root, path, unique)
    }

    /// Where a document that belongs to a bucket, a directory at the volume's root, is kept; `bucket` may be empty for
    /// the whole volume.
    pub(crate) fn setting(&self, bucket: &[u8], name: &str) -> Result<ObjectKey> {
        let bucket = if bucket.is_empty() { b"_" } else { bucket };
        self.reserved(&[b"buckets/", bucket, b"/", name.as_bytes()].concat())
    }

    /// Whether a key, or what keys begin with, is one of Tenon's own.
    pub(crate) fn is_own(&self, text: &[u8]) -> bool {
        is_own(self.root.as_bytes(), text)
    }

    /// What the keys of Tenon's own objects begin with.
    pub(crate) fn own(&self) -> Vec<u8> {
        [self.root.as_bytes(), RESERVED.as_bytes(), b"/"].concat()
    }

    /// What the keys of leases begin with.
    pub(crate) fn leases(&self) -> Vec<u8> {
        leases(self.root.as_bytes())
    }

    fn reserved(&self, rest: &[u8]) -> Result<ObjectKey> {
        reserved(self.root.as_bytes(), rest)
    }
}

/// The record that says Tenon wrote below `prefix`.
pub(crate) fn volume_record(prefix: &[u8]) -> Result<ObjectKey> {
    reserved(prefix, b"volume")
}

/// What the keys of leases begin with in the volume below `prefix`.
pub fn leases(prefix: &[u8]) -> Vec<u8> {
    [prefix, RESERVED.as_bytes(), b"/leases/"].concat()
}

fn reserved(root: &[u8], rest: &[u8]) -> Result<ObjectKey> {
    own_key([root, RESERVED.as_bytes(), b"/", rest].concat())
}

fn own_key(bytes: Vec<u8>) -> Result<ObjectKey> {
    ObjectKey::new(bytes).map_err(|error| Error::Name(error.into()))
}

/// Whether other clients change what is under a key of the volume below `prefix`: it is none of Tenon's own.
pub fn is_shared(prefix: &[u8], key: &ObjectKey) -> bool {
    !is_own(prefix, key.as_bytes())
}

fn is_own(root: &[u8], text: &[u8]) -> bool {
    let inside = text.strip_prefix(root).and_then(|rest| rest.strip_prefix(RESERVED.as_bytes()));
    inside.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Where bytes that lost to somebody else's object are kept in the volume below `prefix`.
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
    // A name that is escaped in the key may leave no room for itself.
    dir.child_key(&[flat, unique.as_bytes()].concat())
        .or_else(|_| Ok(dir.child_key(format!("lost{unique}").as_bytes())?))
}

/// The key of the object `name` in a directory. `%!`, the empty component, is no object's: its key would be the
/// directory's marker.
pub(crate) fn object_key(prefix: &KeyPrefix, name: &[u8]) -> Result<ObjectKey, BadName> {
    match prefix.child_key(name) {
        Ok(key) if key.as_bytes() == prefix.as_bytes() => Err(BadName::Reserved),
        Err(BadName::Key(InvalidKey::Empty)) => Err(BadName::Reserved),
        key => key,
    }
}

/// Whether a name is Tenon's own.
pub(crate) fn is_reserved(parent: Ino, name: &[u8]) -> bool {
    parent == Ino::ROOT && name == RESERVED.as_bytes()
}

/// What the namespace records of an object that lies where naming says.
pub(crate) fn stored(object: &ObjectRef) -> Stored {
    Stored {
        key: None,
        etag: object.etag.clone(),
        version: object.version.clone(),
        last_modified: object.last_modified,
    }
}

/// What the namespace records of an object that lies where it says itself.
pub(crate) fn stored_at(object: &ObjectRef) -> Stored {
    Stored { key: Some(object.key.clone()), last_modified: None, ..stored(object) }
}

/// The content of a file whose object at its path was copied to where `there` says.
pub(crate) fn relocated(content: &[Extent], there: &Stored) -> Vec<Extent> {
    let moved = |extent: &Extent| match extent.object.key {
        None => Extent { object: there.clone(), ..extent.clone() },
        Some(_) => extent.clone(),
    };
    content.iter().map(moved).collect()
}

/// Returns the keys of the objects that content is in, but for that at the file's path.
pub(crate) fn content_keys(content: &[Extent]) -> BTreeSet<ObjectKey> {
    content.iter().filter_map(|extent| extent.object.key.clone()).collect()
}

/// The content of a file that is one whole object.
pub(crate) fn whole(object: Stored, size_bytes: u64) -> Vec<Extent> {
    vec![Extent { offset: 0, len: size_bytes, object, object_offset: 0 }]
}
