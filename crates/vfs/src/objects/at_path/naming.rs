//! Uploads, settings and buckets of a volume named by path.

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meta::Ino;
use store::{ListEntry, ListRequest, ObjectKey, ObjectRef, Pages};

use super::ObjectsAtPath;
use crate::Filesystem;
use crate::objects::directory_objects::ObjectNaming;
use crate::objects::document::Document;
use crate::objects::served_directory::ServedDirectory;
use crate::objects::uploads::completion::Completion;

impl ObjectNaming for ObjectsAtPath {
    const DOCUMENTS_REMAIN: bool = false;

    fn new(directory: &ServedDirectory) -> Self {
        Self { fs: directory.fs.clone(), directory: directory.clone() }
    }

    fn upload_directory(&self, key: &ObjectKey) -> store::Result<Ino> {
        self.full_key(key).map(|_| Ino::ROOT)
    }

    fn complete<'c>(&'c self, completion: Completion<'c>) -> BoxFuture<'c, store::Result<ObjectRef>> {
        self.join_parts(completion).boxed()
    }

    fn document(&self, _bucket: &[u8], _name: &str, by_name: ObjectKey) -> store::Result<Document> {
        Ok(Document::at(by_name))
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
