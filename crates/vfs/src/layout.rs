//! Where files lie in the bucket: one object or one for each chunk, by path or by inode.
//!
//! Pure: names and inodes in, keys out. By path, a file is one object whose key is its path; a directory is the keys
//! that begin with its path, and a marker object `dir/` where it was made through the mount. By inode, only content
//! is in objects, under keys that are never used again; everything else is in the metadata engine.

use bytes::Bytes;
use meta::{Extent, Ino, Inode, Name, Namespace, Stored};
use std::collections::BTreeSet;
use store::names::{BadName, KeyPrefix, is_continued};
use store::{InvalidKey, ObjectKey, ObjectRef};

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
}

impl Layout {
    /// By path: what a bucket has that nobody prepared.
    pub(crate) fn by_path(prefix: &[u8]) -> Self {
        Self { root: KeyPrefix::root(prefix), naming: Naming::FilePath, mapping: Mapping::Whole }
    }

    pub(crate) fn of(prefix: &[u8], record: &VolumeRecord) -> Self {
        Self { root: KeyPrefix::root(prefix), naming: record.naming, mapping: record.mapping }
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
        Ok(self.root.child_dir(CONTENT.as_bytes())?.child_key(name.as_bytes())?)
    }

    /// Whose content a key is; `None` for a key that Tenon did not make.
    pub(crate) fn owner(&self, key: &ObjectKey) -> Option<Ino> {
        let prefix = self.content().ok()??;
        let name = std::str::from_utf8(key.as_bytes().strip_prefix(prefix.as_ref())?).ok()?;
        let (ino, unique) = name.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        number(unique).and(number(ino)).map(Ino)
    }

    /// What the keys of content begin with, where they are not paths.
    pub(crate) fn content(&self) -> Result<Option<Bytes>> {
        match self.naming {
            Naming::FilePath => Ok(None),
            Naming::Inode => {
                let inside = self.root.child_dir(CONTENT.as_bytes())?;
                Ok(Some(Bytes::copy_from_slice(inside.as_bytes())))
            }
        }
    }

    /// The keys inside a directory.
    pub(crate) fn directory(&self, names: &Namespace, dir: Ino) -> Result<KeyPrefix> {
        let mut at = self.root.clone();
        for name in names.path(dir)? {
            at = at.child_dir(name.as_bytes())?;
        }
        Ok(at)
    }

    /// The marker of a directory to be made; `None` where a name continues, which has none.
    pub(crate) fn marker(&self, names: &Namespace, parent: Ino, name: &Name) -> Result<Option<ObjectKey>> {
        let inside = self.directory(names, parent)?.child_dir(name.as_bytes())?;
        if is_continued(name.as_bytes()) {
            return Ok(None);
        }
        Ok(Some(ObjectKey::try_from(inside.as_bytes()).map_err(BadName::from)?))
    }

    /// The key of a file, or of a directory's marker.
    pub(crate) fn key(&self, names: &Namespace, inode: &Inode) -> Result<ObjectKey> {
        if let Some(key) = inode.object().and_then(|object| object.key.clone()) {
            return Ok(key);
        }
        if !self.follows_paths() {
            return Err(Error::NOT_FOUND);
        }
        if inode.kind == meta::Kind::Directory {
            return self.directory(names, inode.ino)?.marker_key().ok_or(Error::NOT_FOUND);
        }
        let (parent, name) = inode.home.as_ref().ok_or(Error::NOT_FOUND)?;
        Ok(object_key(&self.directory(names, *parent)?, name.as_bytes())?)
    }

    /// The record that says Tenon wrote here.
    pub(crate) fn volume_record(&self) -> Result<ObjectKey> {
        self.reserved(b"volume")
    }

    /// Where the bytes of an open file without a name are kept.
    pub(crate) fn orphan(&self, ino: Ino, unique: u64) -> Result<ObjectKey> {
        self.reserved(format!("orphans/{ino}-{unique:016x}").as_bytes())
    }

    /// Where the file side of a conflict is kept: the path flattened, the etag it lost against.
    pub(crate) fn lost(&self, path: &[&[u8]], unique: u64) -> Result<ObjectKey> {
        let flat = path.join(&b'_');
        let flat = &flat[..flat.len().min(200)];
        let name = [flat, format!(".{:08x}", unique as u32).as_bytes()].concat();
        Ok(self.root.child_dir(LOST_AND_FOUND.as_bytes())?.child_key(&name)?)
    }

    fn reserved(&self, rest: &[u8]) -> Result<ObjectKey> {
        let key = [self.root.as_bytes(), RESERVED.as_bytes(), b"/", rest].concat();
        ObjectKey::new(key).map_err(|error| Error::Name(error.into()))
    }
}

/// Where bytes that lost to somebody else's object are kept in the volume below `prefix`.
pub fn lost_key(prefix: &[u8], key: &ObjectKey, unique: u64) -> Result<ObjectKey> {
    let inside = key.as_bytes().strip_prefix(prefix).unwrap_or(key.as_bytes());
    let parts: Vec<&[u8]> = inside.split(|byte| *byte == b'/').collect();
    Layout::by_path(prefix).lost(&parts, unique)
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

/// The keys that an inode's content says itself.
pub(crate) fn content_keys(inode: &Inode) -> BTreeSet<ObjectKey> {
    inode.content.iter().filter_map(|extent| extent.object.key.clone()).collect()
}

/// The content of a file that is one whole object.
pub(crate) fn whole(object: Stored, size_bytes: u64) -> Vec<Extent> {
    vec![Extent { offset: 0, len: size_bytes, object, object_offset: 0 }]
}
