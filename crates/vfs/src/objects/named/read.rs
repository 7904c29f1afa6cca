//! Reads of objects of a volume named by inode.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use meta::{Inode, Kind};
use std::ops::Range;
use store::{GetOptions, Object, ObjectKey, ObjectMeta, StoreError, byte_range};

use super::{ATTEMPTS_MAX, NamedObjects, too_many_races};
use crate::objects::body::body;
use crate::objects::errors::{error_about, namespace_error_about};

impl NamedObjects {
    pub(super) fn head(&self, key: &ObjectKey) -> store::Result<ObjectMeta> {
        self.keys.retry_while_replaced(key, || {
            Ok(self.keys.meta_of(key, &self.keys.find_or_fail(key)?).map_err(namespace_error_about(key))?.0)
        })
    }

    pub(super) async fn get(&self, key: &ObjectKey, options: GetOptions) -> store::Result<Object> {
        if options.version.is_some() {
            return Err(StoreError::NotFound(key.clone()));
        }
        for _ in 0..ATTEMPTS_MAX {
            let found = self.get_once(key, options.clone()).await;
            if !self.keys.was_replaced(key, &found)? {
                return found;
            }
        }
        Err(too_many_races())
    }

    async fn get_once(&self, key: &ObjectKey, options: GetOptions) -> store::Result<Object> {
        let inode = self.keys.find_or_fail(key)?;
        match inode.kind {
            Kind::File => self.get_file(key, &inode, options).await,
            Kind::Directory => {
                let meta = self.keys.meta_of(key, &inode).map_err(namespace_error_about(key))?.0;
                in_memory(
                    key,
                    meta,
                    self.keys.marker_body(inode.ino).map_err(namespace_error_about(key))?,
                    options,
                )
            }
            _ => {
                let meta = self.keys.meta_of(key, &inode).map_err(namespace_error_about(key))?.0;
                in_memory(key, meta, inode.target.unwrap_or_default(), options)
            }
        }
    }

    /// Streams a file's content as of the open.
    async fn get_file(&self, key: &ObjectKey, inode: &Inode, options: GetOptions) -> store::Result<Object> {
        let file = self.fs.io.opener.open_file(inode.ino).map_err(error_about(key))?;
        let pinned = self.pin_for_get(key, inode, options);
        match pinned {
            Ok((meta, pin, range)) => match body(&self.fs, file, pin, range).await? {
                Some(body) => Ok(Object { meta, body }),
                None => Err(self.not_there(key, inode)),
            },
            Err(error) => {
                file.close().await.map_err(error_about(key))?;
                Err(error)
            }
        }
    }

    /// Returns the error for missing content: it was replaced since, or is lost.
    fn not_there(&self, key: &ObjectKey, inode: &Inode) -> StoreError {
        match self.fs.names.tables().inode(inode.ino) {
            Ok(now) if now.content == inode.content => {
                StoreError::Corrupt(format!("the content of '{key}' is missing from the bucket"))
            }
            _ => StoreError::NotFound(key.clone()),
        }
    }

    fn pin_for_get(
        &self,
        key: &ObjectKey,
        inode: &Inode,
        options: GetOptions,
    ) -> store::Result<(ObjectMeta, crate::content::pin::Pin, Range<u64>)> {
        let (inode, pin) = self.fs.names.inode_with_pin(inode.ino).map_err(error_about(key))?;
        let meta = self.keys.meta_of(key, &inode).map_err(namespace_error_about(key))?.0;
        let range = requested_range(key, &meta, options)?;
        Ok((meta, pin.ok_or_else(|| StoreError::NotFound(key.clone()))?, range))
    }
}

/// Checks the conditions of a GET and returns the range of the object to read.
pub(in crate::objects) fn requested_range(
    key: &ObjectKey,
    meta: &ObjectMeta,
    options: GetOptions,
) -> store::Result<Range<u64>> {
    if options.if_match.is_some_and(|etag| etag != meta.object.etag) {
        return Err(StoreError::PreconditionFailed(key.clone()));
    }
    match options.range {
        Some(range) => byte_range::clamp(key, range, meta.size_bytes),
        None => Ok(0..meta.size_bytes),
    }
}

/// Returns an object whose bytes are in memory, cut to the requested range.
fn in_memory(key: &ObjectKey, meta: ObjectMeta, bytes: Bytes, options: GetOptions) -> store::Result<Object> {
    let range = requested_range(key, &meta, options)?;
    let bytes = bytes.slice(range.start as usize..range.end as usize);
    Ok(Object { meta, body: stream::iter([Ok(bytes)]).boxed() })
}
