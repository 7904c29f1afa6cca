//! Objects of a volume named by inode: a key is a path of names, and everything is in the namespace.
//!
//! Invariants: an object's content is stored before one commit makes it, its description and its name, so that nobody
//! sees half of it; a name of the mount and a key lead to the same inode or to none.

pub(super) mod copy;
pub(super) mod delete;
pub(super) mod list;
pub(super) mod multipart;
pub(super) mod put;
pub(super) mod read;
mod rename;
pub(super) mod tags;

use meta::{FsError, Ino, Inode, Kind, Name};
use store::{ETag, ObjectKey, ObjectMeta, ObjectRef, Precondition, StoreError, Timestamp, names};

use super::description::{IMPLICIT, Kept, MARKER, Record};
use super::errors::{named, no_such_key, reserved};
use super::{Objects, etag};
use crate::bucket::metadata::content_type;
use crate::layout::is_reserved;

/// Somebody else changes the same names so often before it is given up.
pub(super) const ATTEMPTS_MAX: usize = 100;

/// The way to a key, as far as there is one.
#[derive(Debug)]
pub(super) struct Way {
    /// The deepest directory that is there.
    pub(super) dir: Ino,
    /// The directories that are not, below it.
    pub(super) missing: Vec<Name>,
    /// The name of the object; `None`: the key is the marker of the directory.
    pub(super) last: Option<Name>,
}

impl Objects {
    /// The directory that all keys are in.
    pub(super) fn base_dir(&self) -> store::Result<Ino> {
        let Some(bucket) = self.bucket() else { return Ok(Ino::ROOT) };
        let missing = || StoreError::NoSuchBucket(String::from_utf8_lossy(bucket).into_owned());
        let mut dir = Ino::ROOT;
        for name in bucket.split(|byte| *byte == b'/') {
            let name = Name::new(name).map_err(|_| missing())?;
            let found = self.fs.names.entry(dir, &name);
            let found = found.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            dir = found.filter(|entry| entry.kind == Kind::Directory).ok_or_else(missing)?.ino;
        }
        Ok(dir)
    }

    /// The way to a key; an error for one of Tenon's own.
    pub(super) fn way(&self, key: &ObjectKey) -> store::Result<Way> {
        let mut dir = self.base_dir()?;
        let mut path = names::key_to_path(key);
        if path.first().is_some_and(|first| is_reserved(dir, first)) {
            return Err(reserved(key));
        }
        let name = |bytes: Vec<u8>| Name::new(&bytes).map_err(|error| no_such_key(key, &error.to_string()));
        let last = path.pop().filter(|last| !last.is_empty()).map(name).transpose()?;
        let mut missing = Vec::new();
        for bytes in path {
            let name = name(bytes)?;
            let entry =
                if missing.is_empty() { self.fs.names.entry(dir, &name).map_err(named(key))? } else { None };
            match entry {
                Some(entry) if entry.kind == Kind::Directory => dir = entry.ino,
                _ => missing.push(name),
            }
        }
        Ok(Way { dir, missing, last })
    }

    /// The same to something that may not be there, which what is Tenon's own never is.
    pub(super) fn way_to_read(&self, key: &ObjectKey) -> store::Result<Way> {
        self.way(key).map_err(|error| match error {
            StoreError::InvalidKey { .. } => StoreError::NotFound(key.clone()),
            error => error,
        })
    }

    /// What is no directory and has the name of a key, or lies beside it.
    pub(super) fn taken(&self, way: &Way) -> Result<Option<(Name, Inode)>, FsError> {
        let Some(last) = way.last.as_ref().filter(|_| way.missing.is_empty()) else { return Ok(None) };
        match self.fs.names.lookup(way.dir, last)? {
            Some(inode) if !inode.is_dir() => return Ok(Some((last.clone(), inode))),
            _ => {}
        }
        let Ok(beside) = Name::new(&names::beside(last.as_bytes())) else { return Ok(None) };
        let inode = self.fs.names.lookup(way.dir, &beside)?.filter(|inode| !inode.is_dir());
        Ok(inode.map(|inode| (beside, inode)))
    }

    /// The inode that is the object of a key.
    pub(super) fn find_named(&self, key: &ObjectKey) -> store::Result<Option<Inode>> {
        let way = self.way_to_read(key)?;
        self.there(&way).map_err(named(key))
    }

    /// The inode that is the object at the end of a way.
    pub(super) fn there(&self, way: &Way) -> Result<Option<Inode>, FsError> {
        if way.last.is_some() {
            let taken = self.taken(way)?.map(|(_, inode)| inode);
            return Ok(taken.filter(|inode| self.is_object(inode)));
        }
        match way.missing.is_empty() && self.has_marker(way.dir)? {
            true => Ok(Some(self.fs.names.inode(way.dir)?)),
            false => Ok(None),
        }
    }

    /// Looks again at what was replaced between two looks: the key leads to something all the time.
    pub(super) fn steadily<T>(
        &self,
        key: &ObjectKey,
        look: impl Fn() -> store::Result<T>,
    ) -> store::Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            let found = look();
            if !self.was_replaced(key, &found)? {
                return found;
            }
        }
        Err(busy())
    }

    /// Whether nothing was found of an object that is there.
    pub(super) fn was_replaced<T>(&self, key: &ObjectKey, found: &store::Result<T>) -> store::Result<bool> {
        Ok(matches!(found, Err(StoreError::NotFound(_))) && self.find_named(key)?.is_some())
    }

    pub(super) fn must_find(&self, key: &ObjectKey) -> store::Result<Inode> {
        self.find_named(key)?.ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    /// Special files are no objects, nor is what was never stored and is being written.
    pub(super) fn is_object(&self, inode: &Inode) -> bool {
        match inode.kind {
            Kind::Symlink => true,
            Kind::File => self.fs.files.get(inode.ino).is_none_or(|file| !file.is_new()),
            _ => false,
        }
    }

    /// Whether a directory is an object: somebody made it, or a program took out of it what it was there for, and it is
    /// empty.
    pub(super) fn has_marker(&self, dir: Ino) -> Result<bool, FsError> {
        Ok(!self.is_implicit(dir)? || self.fs.names.entries(dir, None, 1)?.is_empty())
    }

    /// Whether a directory was made for what is in it.
    pub(super) fn is_implicit(&self, dir: Ino) -> Result<bool, FsError> {
        match self.fs.names.xattr(dir, IMPLICIT) {
            Ok(_) => Ok(true),
            Err(FsError::NoData) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The body of a directory's marker.
    pub(super) fn marker_body(&self, dir: Ino) -> Result<bytes::Bytes, FsError> {
        match self.fs.names.xattr(dir, MARKER) {
            Err(FsError::NoData) => Ok(bytes::Bytes::new()),
            body => body,
        }
    }

    /// What identifies an inode's object: tag, length and time.
    pub(super) fn identity(
        &self,
        key: &ObjectKey,
        inode: &Inode,
        record: &Record,
    ) -> Result<(ObjectRef, u64), FsError> {
        let (etag, size_bytes, at) = match inode.is_dir() {
            true => {
                let (body, at) = (self.marker_body(inode.ino)?, record.at.map_or(inode.btime, Timestamp));
                (etag::of_marker(inode.ino.0, &body, at), body.len() as u64, at)
            }
            false => (etag::of(inode, record.given.as_ref()), inode.size_bytes, inode.mtime),
        };
        let object = ObjectRef { last_modified: Some(at), ..ObjectRef::new(key.clone(), etag) };
        Ok((object, size_bytes))
    }

    pub(super) fn meta_of(&self, key: &ObjectKey, inode: &Inode) -> Result<(ObjectMeta, Kept), FsError> {
        let kept = Kept::read(&self.fs.names, inode.ino)?;
        let (object, size_bytes) = self.identity(key, inode, &kept.record)?;
        let mut attributes = kept.attributes(inode, &object.etag);
        if inode.is_dir() && attributes.content_type.is_none() {
            attributes.content_type = crate::bucket::headers::for_kind(Kind::Directory).content_type;
        }
        if inode.kind == Kind::File && attributes.content_type.is_none() {
            attributes.content_type = content_type(key.as_bytes()).map(str::to_owned);
        }
        let tag_count = Some(kept.tags().len() as u32);
        Ok((ObjectMeta { object, size_bytes, attributes, tag_count }, kept))
    }

    pub(super) fn etag_of(&self, key: &ObjectKey, inode: &Inode) -> Result<ETag, FsError> {
        let record = Record::read(&self.fs.names, inode.ino)?;
        Ok(self.identity(key, inode, &record)?.0.etag)
    }

    pub(super) fn must_hold(
        &self,
        key: &ObjectKey,
        precondition: &Precondition,
        there: Option<&Inode>,
    ) -> store::Result<()> {
        let holds = match (precondition, there) {
            (Precondition::None, _) | (Precondition::Absent, None) => true,
            (Precondition::Absent, Some(_)) | (Precondition::Matches(_), None) => false,
            (Precondition::Matches(etag), Some(inode)) => {
                *etag == self.etag_of(key, inode).map_err(named(key))?
            }
        };
        if holds { Ok(()) } else { Err(StoreError::PreconditionFailed(key.clone())) }
    }
}

/// Others were faster each time.
pub(super) fn busy() -> StoreError {
    StoreError::Unavailable("others change the same names all the time".to_owned())
}

/// Somebody changed the names meanwhile: whoever wants to change them looks again.
pub(super) fn is_race(error: &FsError) -> bool {
    matches!(
        error,
        FsError::NotFound
            | FsError::Exists
            | FsError::NotDirectory
            | FsError::IsDirectory
            | FsError::NotEmpty
            | FsError::NoData
            | FsError::Conflict
    )
}
