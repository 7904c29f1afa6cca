//! Imports objects that other clients stored in a volume named by inode.
//!
//! Keys of such a volume are not paths. So if a client stores an object `a/b` outside the content prefix, it wants a file with
//! that path. Tenon creates this file: it copies the bytes to a content key inside the store, and then deletes the object. If
//! the path has other bytes already, the file gets another name in that directory.
//!
//! Invariant: the object is deleted only after the names that lead to its copy are durable.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use meta::{FsError, Ino, Inode, Kind, Name, Observed, Op, Origin};
use std::sync::Arc;
use store::names::{self, NAME_BYTES_MAX};
use store::{
    CopyOptions, GetOptions, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectMeta, Pages,
    Precondition, StoreError,
};

use crate::Result;
use crate::base::Base;
use crate::bucket::discovery::PAGE_ENTRIES;
use crate::bucket::headers;
use crate::content::Content;
use crate::content::storing::StoringGuard;
use crate::layout::{LOST_AND_FOUND, RESERVED, stored_at};
use crate::mount::Mount;
use crate::names::Names;

/// Imports objects that other clients stored in a volume named by inode.
#[derive(Debug)]
pub(crate) struct Importer {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
}

impl Importer {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        Arc::new(Self { mount: base.mount.clone(), names: base.names.clone(), content: base.content.clone() })
    }
}

impl Importer {
    /// Imports objects that other clients stored in a volume named by inode. Returns the paths of the new files. Does nothing
    /// in a volume named by path, where such objects are files already.
    pub(crate) async fn import_foreign(&self) -> Result<Vec<Bytes>> {
        let mut imported = Vec::new();
        let root = Bytes::copy_from_slice(&self.mount.config.prefix);
        self.import_listed(root, Some(b'/'), &mut imported).await?;
        Ok(imported)
    }

    /// Makes files in `lost+found` of content objects that no file refers to. Returns their paths.
    pub(crate) async fn name_content(&self, keys: &[ObjectKey]) -> Result<Vec<Bytes>> {
        let mut named = Vec::new();
        for key in keys {
            let Some(meta) = self.mount.store.find(key).await? else { continue };
            let dir = self.directory_of(&[LOST_AND_FOUND.into()], None)?;
            let name = key.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            named
                .extend(self.keep_import(&meta, self.import_file(dir, Name::new(name)?, &meta).await).await?);
        }
        Ok(named)
    }

    /// Imports the objects that a listing of `prefix` shows, except content and Tenon's own. Appends the paths to
    /// `imported`.
    async fn import_listed(
        &self,
        prefix: Bytes,
        delimiter: Option<u8>,
        imported: &mut Vec<Bytes>,
    ) -> Result<()> {
        let reserved = [&self.mount.config.prefix[..], RESERVED.as_bytes(), b"/"].concat();
        let request = ListRequest { prefix, delimiter, limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::new(self.mount.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                match entry {
                    ListEntry::Object(ListedObject { object, .. }) => {
                        imported.extend(self.import(&object.key).await?)
                    }
                    ListEntry::Prefix(inside)
                        if inside == self.mount.layout.content_prefix(None) || inside == reserved => {}
                    ListEntry::Prefix(inside) => {
                        Box::pin(self.import_listed(inside, None, imported)).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Imports one object. Returns its path. Returns `None` if the object was removed or replaced meanwhile, or left
    /// alone because its path has a file of the same length and mtime, which is probably its copy.
    async fn import(&self, key: &ObjectKey) -> Result<Option<Bytes>> {
        let inside = ObjectKey::new(key.as_bytes()[self.mount.config.prefix.len()..].to_vec());
        let mut path = names::key_to_path(&inside.map_err(|error| crate::Error::Name(error.into()))?);
        let file = path.pop().filter(|name| !name.is_empty());
        let Some(meta) = self.mount.store.find(key).await? else { return Ok(None) };
        let imported = match file {
            Some(name) => {
                let dir = self.directory_of(&path, None)?;
                self.import_file(dir, Name::new(&name)?, &meta).await
            }
            None => self.directory_of(&path, Some(&meta)).map(Some),
        };
        self.keep_import(&meta, imported).await
    }

    /// Makes an imported file durable, and deletes the object that was imported. Returns the file's path, or `None` if the object was removed or
    /// replaced meanwhile.
    async fn keep_import(&self, meta: &ObjectMeta, imported: Result<Option<Ino>>) -> Result<Option<Bytes>> {
        let ino = match imported {
            Ok(Some(ino)) => ino,
            Ok(None) => return Ok(None),
            Err(crate::Error::Store(StoreError::PreconditionFailed(_) | StoreError::NotFound(_))) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.names.sync_names().await?;
        match self.mount.store.delete(&meta.object.key, Precondition::Matches(meta.object.etag.clone())).await
        {
            Ok(()) | Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let path = self.names.tables().path(ino)?;
        Ok(Some(path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/').into()))
    }

    /// Returns the directory of a path, and creates missing ones. `marker` has the attributes of the last one. A
    /// directory whose name a file has gets another name.
    fn directory_of(&self, path: &[Vec<u8>], marker: Option<&ObjectMeta>) -> Result<Ino> {
        let (now, looked_at) = (self.mount.now(), self.mount.moment());
        let mut dir = Ino::ROOT;
        for (index, name) in path.iter().enumerate() {
            let seen = match marker.filter(|_| index + 1 == path.len()) {
                Some(meta) => Observed {
                    object: None,
                    ..headers::observed(meta, true, &self.mount.defaults, looked_at)
                },
                None => headers::implicit_directory(now, looked_at, &self.mount.defaults, true),
            };
            dir = match self.names.tables().lookup(dir, &Name::new(name)?)? {
                Some(there) if there.is_dir() => there.ino,
                taken => self.import_as(dir, Name::new(name)?, taken, seen)?,
            };
        }
        Ok(dir)
    }

    /// Copies an object's bytes and names the copy. Returns the file's inode; `None` if the file with this name is
    /// probably a copy of the object already.
    async fn import_file(&self, dir: Ino, name: Name, meta: &ObjectMeta) -> Result<Option<Ino>> {
        let taken = self.names.tables().lookup(dir, &name)?;
        let mut seen = headers::observed(meta, false, &self.mount.defaults, self.mount.moment());
        if let Some(there) = &taken {
            let is_same = there.object().is_some_and(|own| own.etag == meta.object.etag);
            if is_same {
                // The object was imported before, but not deleted.
                return Ok(Some(there.ino));
            }
            let alike = |inode: &Inode| (inode.kind, inode.size_bytes, inode.mtime);
            if alike(there) == (seen.kind, seen.size_bytes, seen.mtime) {
                // The object was probably imported before, but the store gives copies other etags. Leave it alone.
                return Ok(None);
            }
        }
        seen.object = None;
        // Keep `gc` from collecting the copy before it has a name.
        let _stores;
        match seen.kind {
            Kind::File if meta.size_bytes > 0 => {
                let ino = self.names.new_ino(dir)?;
                _stores = StoringGuard::begin(self.content.storing(), ino);
                let key = self.content.new_key(ino)?;
                let copy = self.mount.store.copy(&meta.object, &key, CopyOptions::default()).await?;
                seen.object = Some(stored_at(&copy));
            }
            Kind::Symlink => {
                let options =
                    GetOptions { if_match: Some(meta.object.etag.clone()), ..GetOptions::default() };
                let body = self.mount.store.get(&meta.object.key, options).await?.body;
                seen.target = Some(body.try_collect::<Vec<Bytes>>().await?.concat().into());
            }
            _ => {}
        }
        self.import_as(dir, name, taken, seen).map(Some)
    }

    /// Creates an imported file or directory under its name, or with a random suffix if the name is taken.
    fn import_as(&self, parent: Ino, name: Name, taken: Option<Inode>, seen: Observed) -> Result<Ino> {
        let mut free = name.clone();
        let mut is_taken = taken.is_some();
        // A content key contains the inode number.
        let owner =
            seen.object.as_ref().and_then(|object| self.mount.layout.content_owner(object.key.as_ref()?));
        let ino = match owner {
            Some(owner) => owner,
            None => self.names.new_ino(parent)?,
        };
        loop {
            if is_taken {
                let end = format!(".{:08x}", self.mount.entropy.next_u64() as u32);
                let kept = name.as_bytes().len().min(NAME_BYTES_MAX - end.len());
                free = Name::new(&[&name.as_bytes()[..kept], end.as_bytes()].concat())?;
            }
            let op = Op::Import { parent, name: free.clone(), ino, seen: seen.clone() };
            match self.names.commit(Origin::Other, &op) {
                Ok(_) => return Ok(ino),
                Err(FsError::Exists) => is_taken = true,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
