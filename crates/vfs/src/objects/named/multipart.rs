//! A multipart upload in a volume named by inode, within the process that completes it.

use meta::{Extent, Ino};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use store::{
    Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, PutOptions, StoreError, Tags,
};

use super::NamedObjects;
use super::plan::NewObject;
use crate::content::storing::StoringGuard;
use crate::objects::errors::error_about;

/// A part's content from offset 0, and its length.
type Content = (Vec<Extent>, u64);

struct NamedUpload {
    objects: NamedObjects,
    key: ObjectKey,
    attributes: Attributes,
    tags: Tags,
    /// The inode of the future object.
    ino: Ino,
    _stores: StoringGuard,
    /// `None` once it was completed or aborted.
    parts: Mutex<Option<BTreeMap<u32, Content>>>,
    /// The completed object, for a repeated completion whose first answer was lost.
    completed: OnceLock<ObjectRef>,
}

impl NamedObjects {
    pub(super) fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> store::Result<Arc<dyn Multipart>> {
        let ino = self.fs.names.new_ino(self.keys.resolve(key)?.dir).map_err(error_about(key))?;
        Ok(Arc::new(NamedUpload {
            objects: self.clone(),
            key: key.clone(),
            attributes,
            tags,
            ino,
            _stores: StoringGuard::begin(self.fs.content.storing(), ino),
            parts: Mutex::new(Some(BTreeMap::new())),
            completed: OnceLock::new(),
        }))
    }
}

impl NamedUpload {
    fn parts(&self) -> MutexGuard<'_, Option<BTreeMap<u32, Content>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part and discards an earlier one of the same number.
    async fn insert(&self, number: u32, part: Content) -> store::Result<()> {
        let replaced = match self.parts().as_mut() {
            Some(parts) => Ok(parts.insert(number, part)),
            None => Err(part),
        };
        match replaced {
            Ok(Some((old, _))) => self.objects.directory.discard_all(&old).await,
            Ok(None) => {}
            Err((refused, _)) => {
                self.objects.directory.discard_all(&refused).await;
                return Err(upload_ended());
            }
        }
        Ok(())
    }

    /// Fails if the number is not that of a part, or the upload has ended.
    fn check_open(&self, number: u32) -> store::Result<()> {
        store::part_number::check(number)?;
        if self.parts().is_some() { Ok(()) } else { Err(upload_ended()) }
    }

    /// Gives the content of all parts the name of the upload's key.
    async fn name(&self, content: Content, precondition: Precondition) -> store::Result<ObjectRef> {
        let (content, size_bytes) = content;
        if self.key.as_bytes().ends_with(b"/") {
            return self.name_marker(&content, size_bytes, precondition).await;
        }
        let (attributes, tags) = (&self.attributes, &self.tags);
        let new = NewObject {
            ino: self.ino,
            content,
            size_bytes,
            target: None,
            attributes,
            tags,
            etag: None,
            orphan: None,
        };
        self.objects.name_object(&self.key, &new, &precondition).await
    }

    async fn name_marker(
        &self,
        content: &[Extent],
        size_bytes: u64,
        precondition: Precondition,
    ) -> store::Result<ObjectRef> {
        if size_bytes > 0 {
            let why = "in a volume named by inode a multipart upload cannot create a key that ends in '/'";
            return Err(StoreError::Invalid(why.to_owned()));
        }
        let options = PutOptions {
            precondition,
            attributes: self.attributes.clone(),
            tags: self.tags.clone(),
            ..PutOptions::default()
        };
        let stored = Box::pin(self.objects.put(&self.key, Payload::default(), options)).await?;
        self.objects.directory.discard_all(content).await;
        Ok(stored)
    }
}

impl fmt::Debug for NamedUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedUpload").field("key", &self.key).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Multipart for NamedUpload {
    async fn put_part(&self, number: u32, body: Payload) -> store::Result<()> {
        self.check_open(number)?;
        let content = self.objects.fs.io.uploader.store_content(self.ino, &body).await?;
        self.insert(number, (content, body.len())).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> store::Result<()> {
        self.check_open(number)?;
        let (inode, _, _) = self.objects.source(from)?;
        let size_bytes = range.end.saturating_sub(range.start);
        let content = Box::pin(self.objects.copy_range_of(from, &inode, self.ino, range)).await?;
        self.insert(number, (content, size_bytes)).await
    }

    async fn complete(&self, precondition: Precondition) -> store::Result<ObjectRef> {
        if let Some(object) = self.completed.get() {
            return Ok(object.clone());
        }
        let parts = self.parts().clone().ok_or_else(upload_ended)?;
        if parts.is_empty() {
            return Err(StoreError::Invalid("an upload without parts cannot be completed".to_owned()));
        }
        let object = Box::pin(self.name(concatenate(parts.into_values()), precondition)).await?;
        *self.parts() = None;
        Ok(self.completed.get_or_init(|| object).clone())
    }

    async fn abort(&self) -> store::Result<()> {
        let parts = self.parts().take();
        for (content, _) in parts.into_iter().flat_map(BTreeMap::into_values) {
            self.objects.directory.discard_all(&content).await;
        }
        Ok(())
    }
}

/// Concatenates the content of parts.
pub(in crate::objects) fn concatenate(parts: impl IntoIterator<Item = Content>) -> Content {
    let (mut all, mut at) = (Vec::new(), 0);
    for (content, size_bytes) in parts {
        all.extend(content.into_iter().map(|extent| Extent { offset: extent.offset + at, ..extent }));
        at += size_bytes;
    }
    (all, at)
}

fn upload_ended() -> StoreError {
    StoreError::Invalid("the upload was completed or aborted before".to_owned())
}
