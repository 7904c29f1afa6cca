//! Keys of a volume named by inode, as far as they can be read: the names that they are, and the inodes that are their objects.

use meta::{FsError, Ino, Inode, Kind, Name};
use std::sync::Arc;
use store::{ETag, ObjectKey, ObjectMeta, ObjectRef, Precondition, StoreError, Timestamp, names};

use super::{ATTEMPTS_MAX, too_many_races};
use crate::Filesystem;
use crate::bucket::metadata::content_type;
use crate::layout::is_reserved;
use crate::objects::description::{IMPLICIT, MARKER, ObjectDescription, Record};
use crate::objects::errors::{namespace_error_about, no_such_key, reserved};
use crate::objects::etag;
use crate::objects::served_directory::ServedDirectory;

/// A key resolved as far as its directories exist.
#[derive(Debug)]
pub(super) struct ResolvedKey {
    /// The deepest existing directory.
    pub(super) dir: Ino,
    /// The missing directories below it.
    pub(super) missing: Vec<Name>,
    /// The object's name; `None`: the key is the marker of the directory.
    pub(super) last: Option<Name>,
}

/// The keys below a directory.
#[derive(Debug, Clone)]
pub(super) struct NamedKeys {
    pub(super) fs: Arc<Filesystem>,
    pub(super) directory: ServedDirectory,
}

impl NamedKeys {
    /// Returns the directory that contains all keys.
    pub(super) fn base_dir(&self) -> store::Result<Ino> {
        let Some(bucket) = self.directory.path() else { return Ok(Ino::ROOT) };
        let missing = || StoreError::NoSuchBucket(String::from_utf8_lossy(bucket).into_owned());
        let mut dir = Ino::ROOT;
        for name in bucket.split(|byte| *byte == b'/') {
            let name = Name::new(name).map_err(|_| missing())?;
            let found = self.fs.names.tables().entry(dir, &name);
            let found = found.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            dir = found.filter(|entry| entry.kind == Kind::Directory).ok_or_else(missing)?.ino;
        }
        Ok(dir)
    }

    /// Resolves a key; fails for a reserved one.
    pub(super) fn resolve(&self, key: &ObjectKey) -> store::Result<ResolvedKey> {
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
            let entry = if missing.is_empty() {
                self.fs.names.tables().entry(dir, &name).map_err(namespace_error_about(key))?
            } else {
                None
            };
            match entry {
                Some(entry) if entry.kind == Kind::Directory => dir = entry.ino,
                _ => missing.push(name),
            }
        }
        Ok(ResolvedKey { dir, missing, last })
    }

    /// Resolves a key for reading: a reserved one does not exist.
    pub(super) fn resolve_to_read(&self, key: &ObjectKey) -> store::Result<ResolvedKey> {
        self.resolve(key).map_err(|error| match error {
            StoreError::InvalidKey { .. } => StoreError::NotFound(key.clone()),
            error => error,
        })
    }

    /// Returns the name and inode of a key's last component that is not a directory, under its plain or its shadowed name.
    pub(super) fn find_at(&self, resolved: &ResolvedKey) -> Result<Option<(Name, Inode)>, FsError> {
        let Some(last) = resolved.last.as_ref().filter(|_| resolved.missing.is_empty()) else {
            return Ok(None);
        };
        match self.fs.names.tables().lookup(resolved.dir, last)? {
            Some(inode) if !inode.is_dir() => return Ok(Some((last.clone(), inode))),
            _ => {}
        }
        let Ok(beside) = Name::new(&names::colliding(last.as_bytes())) else { return Ok(None) };
        let inode = self.fs.names.tables().lookup(resolved.dir, &beside)?.filter(|inode| !inode.is_dir());
        Ok(inode.map(|inode| (beside, inode)))
    }

    /// Returns the inode that is the object of a key.
    pub(super) fn find_named(&self, key: &ObjectKey) -> store::Result<Option<Inode>> {
        let resolved = self.resolve_to_read(key)?;
        self.object_at(&resolved).map_err(namespace_error_about(key))
    }

    /// Returns the inode that is the object of a resolved key.
    pub(super) fn object_at(&self, resolved: &ResolvedKey) -> Result<Option<Inode>, FsError> {
        if resolved.last.is_some() {
            let taken = self.find_at(resolved)?.map(|(_, inode)| inode);
            return Ok(taken.filter(|inode| self.is_object(inode)));
        }
        match resolved.missing.is_empty() && self.has_marker(resolved.dir)? {
            true => Ok(Some(self.fs.names.tables().inode(resolved.dir)?)),
            false => Ok(None),
        }
    }

    /// Repeats a lookup that found nothing because its object was replaced between two steps.
    pub(super) fn retry_while_replaced<T>(
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
        Err(too_many_races())
    }

    /// Returns whether a lookup found nothing although the object exists.
    pub(super) fn was_replaced<T>(&self, key: &ObjectKey, found: &store::Result<T>) -> store::Result<bool> {
        Ok(matches!(found, Err(StoreError::NotFound(_))) && self.find_named(key)?.is_some())
    }

    /// Returns the inode of a key; fails if there is no object.
    pub(super) fn find_or_fail(&self, key: &ObjectKey) -> store::Result<Inode> {
        self.find_named(key)?.ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    /// Returns whether an inode is an object. Special files are not, nor is a file that was never stored.
    pub(super) fn is_object(&self, inode: &Inode) -> bool {
        match inode.kind {
            Kind::Symlink => true,
            Kind::File => self.fs.content.files().get(inode.ino).is_none_or(|file| !file.is_new()),
            _ => false,
        }
    }

    /// Returns whether a directory is an object: it was created explicitly, or it is empty because a program removed the
    /// objects that it existed for.
    pub(super) fn has_marker(&self, dir: Ino) -> Result<bool, FsError> {
        Ok(!self.is_implicit(dir)? || self.fs.names.tables().entries(dir, None, 1)?.is_empty())
    }

    /// Returns whether a directory exists only because of its contents.
    pub(super) fn is_implicit(&self, dir: Ino) -> Result<bool, FsError> {
        match self.fs.names.tables().xattr(dir, IMPLICIT) {
            Ok(_) => Ok(true),
            Err(FsError::NoData) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the body of a directory's marker.
    pub(super) fn marker_body(&self, dir: Ino) -> Result<bytes::Bytes, FsError> {
        match self.fs.names.tables().xattr(dir, MARKER) {
            Err(FsError::NoData) => Ok(bytes::Bytes::new()),
            body => body,
        }
    }

    /// Returns reference (etag and time) and length of an inode's object.
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

    pub(super) fn meta_of(
        &self,
        key: &ObjectKey,
        inode: &Inode,
    ) -> Result<(ObjectMeta, ObjectDescription), FsError> {
        let description = ObjectDescription::read(self.fs.names.tables(), inode.ino)?;
        let (object, size_bytes) = self.identity(key, inode, &description.record)?;
        let mut attributes = description.attributes(inode, &object.etag);
        if inode.is_dir() && attributes.content_type.is_none() {
            attributes.content_type = crate::bucket::headers::for_kind(Kind::Directory).content_type;
        }
        if inode.kind == Kind::File && attributes.content_type.is_none() {
            attributes.content_type = content_type(key.as_bytes()).map(str::to_owned);
        }
        let tag_count = Some(description.tags().len() as u32);
        Ok((ObjectMeta { object, size_bytes, attributes, tag_count }, description))
    }

    pub(super) fn etag_of(&self, key: &ObjectKey, inode: &Inode) -> Result<ETag, FsError> {
        let record = Record::read(self.fs.names.tables(), inode.ino)?;
        Ok(self.identity(key, inode, &record)?.0.etag)
    }

    pub(super) fn check_precondition(
        &self,
        key: &ObjectKey,
        precondition: &Precondition,
        there: Option<&Inode>,
    ) -> store::Result<()> {
        let holds = match (precondition, there) {
            (Precondition::None, _) | (Precondition::Absent, None) => true,
            (Precondition::Absent, Some(_)) | (Precondition::Matches(_), None) => false,
            (Precondition::Matches(etag), Some(inode)) => {
                *etag == self.etag_of(key, inode).map_err(namespace_error_about(key))?
            }
        };
        if holds { Ok(()) } else { Err(StoreError::PreconditionFailed(key.clone())) }
    }
}
