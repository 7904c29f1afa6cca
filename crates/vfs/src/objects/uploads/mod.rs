//! Multipart uploads that outlast the call that began them and the mount.
//!
//! An upload is an orphan that is never opened: its parts are content of that inode, in the order of their arrival, and the
//! data about the upload and its parts is in extended attributes of Tenon's own. So everything that knows inodes also accounts
//! for uploads: fsck, `tenon gc`, quotas.
//!
//! | attribute | holds |
//! |---|---|
//! | `tenon.upload` | a [`UploadRecord`] |
//! | `tenon.part.00001` to `tenon.part.10000` | a [`PartRecord`] |
//!
//! Invariants: one commit creates the object and ends the upload; a part exists whole or not at all.

mod complete;
pub(super) mod completion;
mod part;
mod record;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use meta::{FsError, Ino, Inode, Op, Origin, XattrHow};
use record::{PartRecord, UPLOAD, UploadRecord, ino_of, new_id};
use std::sync::Arc;
use store::{
    Attributes, CompleteOptions, KeyLock, MakePartNote, ObjectKey, ObjectRef, Part, StoreError, Tags, Upload,
    Uploads,
};

use super::directory_objects::{DirectoryObjects, ObjectNaming};
use super::errors::{error_about, namespace_error_about};
use super::served_directory::ServedDirectory;
use crate::Filesystem;
use crate::names::Names;

/// Orphans per step.
const BATCH: usize = 256;

/// The uploads to keys below a directory.
#[derive(Debug, Clone)]
pub(crate) struct DirectoryUploads {
    fs: Arc<Filesystem>,
    directory: ServedDirectory,
}

impl DirectoryUploads {
    pub(super) fn new(directory: &ServedDirectory) -> Self {
        Self { fs: directory.fs.clone(), directory: directory.clone() }
    }

    /// Returns the upload with an id, if it belongs to this key.
    fn upload(&self, key: &ObjectKey, id: &str) -> store::Result<(Ino, UploadRecord)> {
        let missing = || StoreError::NotFound(key.clone());
        let ino = ino_of(id).ok_or_else(missing)?;
        let record = match self.fs.names.tables().xattr(ino, UPLOAD) {
            Err(FsError::NoData | FsError::NotFound) => return Err(missing()),
            record => UploadRecord::parse(&record.map_err(namespace_error_about(key))?)?,
        };
        match record.id == id && record.key()? == self.directory.path_of(key) {
            true => Ok((ino, record)),
            false => Err(missing()),
        }
    }

    /// Waits for the other changes of an upload.
    async fn lock(&self, id: &str) -> store::Result<KeyLock<'_, ObjectKey>> {
        Ok(self.fs.bucket.locks.upload_locks().lock(&ObjectKey::try_from(id)?).await)
    }

    /// Returns the parts of an upload with their numbers.
    fn part_records(&self, key: &ObjectKey, ino: Ino) -> store::Result<Vec<(u32, PartRecord)>> {
        let mut parts = Vec::new();
        for name in self.fs.names.tables().xattrs(ino).map_err(namespace_error_about(key))? {
            let Some(number) = record::number_of(&name) else { continue };
            parts.push((
                number,
                PartRecord::parse(
                    &self.fs.names.tables().xattr(ino, &name).map_err(namespace_error_about(key))?,
                )?,
            ));
        }
        Ok(parts)
    }

    /// Returns the upload of an orphan; `None` if it is no upload, or its key is not in the served directory below the prefix.
    fn upload_of(&self, ino: Ino, prefix: &[u8]) -> store::Result<Option<Upload>> {
        let record = match self.fs.names.tables().xattr(ino, UPLOAD) {
            Err(FsError::NoData | FsError::NotFound) => return Ok(None),
            record => UploadRecord::parse(&record.map_err(read_error)?)?,
        };
        let path = record.key()?;
        let inside = path.strip_prefix(&*self.directory.base).filter(|key| key.starts_with(prefix));
        match inside.and_then(|key| ObjectKey::try_from(key).ok()) {
            Some(key) => Ok(Some(record.upload(key))),
            None => Ok(None),
        }
    }

    fn uploads_below(&self, prefix: &[u8]) -> store::Result<Vec<Upload>> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let orphans = self.fs.names.tables().orphans(after, BATCH).map_err(read_error)?;
            let Some(last) = orphans.last() else { break };
            after = Some(*last);
            for ino in orphans {
                found.extend(self.upload_of(ino, prefix)?);
            }
        }
        found.sort_by(|a, b| (&a.key, a.began, &a.id).cmp(&(&b.key, b.began, &b.id)));
        Ok(found)
    }

    fn begin(&self, key: &ObjectKey, dir: Ino, attributes: Attributes, tags: Tags) -> store::Result<String> {
        let ino = self.fs.names.new_ino(dir).map_err(error_about(key))?;
        let id = new_id(&self.fs.mount.entropy, ino);
        let record =
            UploadRecord::new(&id, &self.directory.path_of(key), self.fs.mount.now(), attributes, tags);
        let defaults = &self.fs.mount.defaults;
        let (mode, uid, gid) = (defaults.file_mode, defaults.uid, defaults.gid);
        let value = record.encode()?;
        let ops = [
            Op::CreateOrphan { parent: dir, ino, mode, umask: 0, uid, gid },
            Op::SetXattr { ino, name: UPLOAD.into(), value, how: XattrHow::Create },
        ];
        self.fs.names.commit_together(Origin::Bookkeeping, &ops).map_err(namespace_error_about(key))?;
        Ok(id)
    }

    async fn abort(&self, key: &ObjectKey, id: &str) -> store::Result<()> {
        let _key_lock = self.lock(id).await?;
        let (ino, _) = self.upload(key, id)?;
        let upload = self.fs.names.tables().inode(ino).map_err(namespace_error_about(key))?;
        end_upload(&self.fs, key, &upload).await
    }
}

#[async_trait::async_trait]
impl<N: ObjectNaming> Uploads for DirectoryObjects<N> {
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> store::Result<String> {
        self.directory.check_writable()?;
        let dir = self.naming.upload_directory(key)?;
        let id = self.uploads.begin(key, dir, attributes, tags)?;
        let names = &self.directory.fs.names;
        names.sync_names_unless_write_back().await.map_err(error_about(key))?;
        Ok(id)
    }

    async fn find(&self, key: &ObjectKey, id: &str) -> store::Result<Upload> {
        Ok(self.uploads.upload(key, id)?.1.upload(key.clone()))
    }

    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, store::Result<Bytes>>,
        make_note: MakePartNote<'_>,
    ) -> store::Result<Part> {
        self.directory.check_writable()?;
        Box::pin(self.uploads.receive_part(key, id, number, body, make_note)).await
    }

    async fn parts(&self, key: &ObjectKey, id: &str) -> store::Result<Vec<Part>> {
        let (ino, _) = self.uploads.upload(key, id)?;
        let parts = self.uploads.part_records(key, ino)?;
        Ok(parts.into_iter().map(|(number, record)| record.part(number)).collect())
    }

    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> store::Result<ObjectRef> {
        self.directory.check_writable()?;
        let _key_lock = self.uploads.lock(id).await?;
        let completion = self.uploads.completion(key, id, numbers, options)?;
        self.naming.complete(completion).await
    }

    async fn abort(&self, key: &ObjectKey, id: &str) -> store::Result<()> {
        self.directory.check_writable()?;
        self.uploads.abort(key, id).await
    }

    async fn list(&self, prefix: &[u8]) -> store::Result<Vec<Upload>> {
        self.uploads.uploads_below(prefix)
    }
}

/// Removes an upload and what it stored.
pub(super) async fn end_upload(fs: &Arc<Filesystem>, key: &ObjectKey, upload: &Inode) -> store::Result<()> {
    Box::pin(fs.io.opener.purge(upload)).await.map_err(error_about(key))
}

/// Returns whether an orphan is an upload in progress, which outlasts the mount.
pub(crate) fn is_upload(names: &Names, ino: Ino) -> Result<bool, FsError> {
    match names.tables().xattr(ino, UPLOAD) {
        Ok(_) => Ok(true),
        Err(FsError::NoData) => Ok(false),
        Err(error) => Err(error),
    }
}

fn read_error(error: FsError) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
