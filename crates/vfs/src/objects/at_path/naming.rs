//! Uploads, settings and buckets of a volume named by path.

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meta::Ino;
use store::{ListEntry, ListRequest, ObjectKey, ObjectRef, Pages};

use crate::Filesystem;
use crate::objects::directory_objects::{ByPath, ObjectNaming, PathObjects};
use crate::objects::document::Document;
use crate::objects::uploads::completion::Completion;

impl ObjectNaming for ByPath {
    fn upload_directory(objects: &PathObjects, key: &ObjectKey) -> store::Result<Ino> {
        objects.full_key(key).map(|_| Ino::ROOT)
    }

    fn complete<'c>(
        objects: &'c PathObjects,
        completion: Completion<'c>,
    ) -> BoxFuture<'c, store::Result<ObjectRef>> {
        objects.join_parts(completion).boxed()
    }

    fn document(
        _objects: &PathObjects,
        _bucket: &[u8],
        _name: &str,
        by_name: ObjectKey,
    ) -> store::Result<Document> {
        Ok(Document::at(by_name))
    }

    /// The documents are noted as moved by the removal of the directory.
    fn remaining_documents(_objects: &PathObjects) -> store::Result<Vec<Bytes>> {
        Ok(Vec::new())
    }

    fn directories(fs: &Filesystem) -> BoxFuture<'_, store::Result<Vec<String>>> {
        list_bucket(fs).boxed()
    }
}

/// Lists the prefixes at the root of the bucket.
async fn list_bucket(fs: &Filesystem) -> store::Result<Vec<String>> {
    let prefix = Bytes::copy_from_slice(&fs.mount.config.prefix);
    let request =
        ListRequest { prefix: prefix.clone(), delimiter: Some(b'/'), limit: 1000, ..ListRequest::default() };
    let entries = Pages::new(fs.mount.store.as_ref(), request).collect().await?;
    let name = |entry: &ListEntry| match entry {
        ListEntry::Prefix(text) => {
            let inside = text.strip_prefix(&*prefix)?.strip_suffix(b"/")?;
            String::from_utf8(inside.to_vec()).ok()
        }
        ListEntry::Object(_) => None,
    };
    Ok(entries.iter().filter_map(name).collect())
}
