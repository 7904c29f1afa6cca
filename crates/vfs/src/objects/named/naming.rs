//! Uploads, settings and buckets of a volume named by inode.

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use meta::{FsError, Ino, Kind, Name};
use store::{ObjectKey, ObjectRef, StoreError};

use super::NamedObjects;
use crate::Filesystem;
use crate::objects::directory_objects::ObjectNaming;
use crate::objects::document::Document;
use crate::objects::errors::{error_about, namespace_error_about};
use crate::objects::served_directory::ServedDirectory;
use crate::objects::uploads::completion::Completion;

/// Names per step of a scan of the root.
const BATCH: usize = 256;

impl ObjectNaming for NamedObjects {
    const DOCUMENTS_REMAIN: bool = true;

    fn new(directory: &ServedDirectory) -> Self {
        Self::below(directory)
    }

    fn upload_directory(&self, key: &ObjectKey) -> store::Result<Ino> {
        Ok(self.keys.resolve(key)?.dir)
    }

    fn complete<'c>(&'c self, completion: Completion<'c>) -> BoxFuture<'c, store::Result<ObjectRef>> {
        self.name_parts(completion).boxed()
    }

    /// The document of a directory is stored under its inode number.
    fn document(&self, bucket: &[u8], name: &str, by_name: ObjectKey) -> store::Result<Document> {
        let asked = ObjectKey::try_from(name)?;
        let gone = || StoreError::NoSuchBucket(String::from_utf8_lossy(bucket).into_owned());
        let bucket = Name::new(bucket).map_err(|_| gone())?;
        let directory = self.fs.names.tables().lookup(Ino::ROOT, &bucket);
        let directory = directory.map_err(namespace_error_about(&asked))?.ok_or_else(gone)?;
        // No bucket name contains this character.
        let by_ino = format!("#{:016x}", directory.ino.0);
        let key = self.fs.mount.layout.setting_key(by_ino.as_bytes(), name).map_err(error_about(&asked))?;
        Ok(Document { key, before: Some((by_name, directory.btime)) })
    }

    fn directories(fs: &Filesystem) -> BoxFuture<'_, store::Result<Vec<String>>> {
        let listed = ObjectKey::try_from("/").map_err(StoreError::from);
        let listed = listed.and_then(|root| list_names(fs).map_err(namespace_error_about(&root)));
        future::ready(listed).boxed()
    }
}

/// Lists the directories at the root of the namespace.
fn list_names(fs: &Filesystem) -> Result<Vec<String>, FsError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let entries = fs.names.tables().entries(Ino::ROOT, after.as_ref(), BATCH)?;
        let Some((last, _)) = entries.last() else { return Ok(found) };
        after = Some(last.clone());
        let directories = entries.iter().filter(|(_, entry)| entry.kind == Kind::Directory);
        found.extend(directories.filter_map(|(name, _)| String::from_utf8(name.as_bytes().to_vec()).ok()));
    }
}
