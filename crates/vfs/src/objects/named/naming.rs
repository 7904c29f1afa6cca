//! Uploads, settings and buckets of a volume named by inode.

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use meta::{FsError, Ino, Kind};
use store::{ObjectKey, ObjectRef};

use crate::Filesystem;
use crate::objects::directory_objects::{ByInode, InodeObjects, ObjectNaming};
use crate::objects::document::Document;
use crate::objects::errors::namespace_error_about;
use crate::objects::uploads::completion::Completion;

/// Names per step of a scan of the root.
const BATCH: usize = 256;

impl ObjectNaming for ByInode {
    fn upload_directory(objects: &InodeObjects, key: &ObjectKey) -> store::Result<Ino> {
        Ok(objects.resolve(key)?.dir)
    }

    fn complete<'c>(
        objects: &'c InodeObjects,
        completion: Completion<'c>,
    ) -> BoxFuture<'c, store::Result<ObjectRef>> {
        objects.name_parts(completion).boxed()
    }

    fn document(
        objects: &InodeObjects,
        bucket: &[u8],
        name: &str,
        by_name: ObjectKey,
    ) -> store::Result<Document> {
        objects.document_by_inode(bucket, name, by_name)
    }

    fn remaining_documents(objects: &InodeObjects) -> store::Result<Vec<Bytes>> {
        objects.settings_prefixes()
    }

    fn directories(fs: &Filesystem) -> BoxFuture<'_, store::Result<Vec<String>>> {
        let listed = ObjectKey::try_from("/").map_err(store::StoreError::from);
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
