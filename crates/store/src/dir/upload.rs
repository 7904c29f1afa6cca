//! An object in parts: a staged file per part, joined by the kernel.

use super::copy::append;
use super::record::Record;
use super::staging::Staged;
use super::{Shared, blocking};
use crate::{
    Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result, StoreError, Tags, byte_range,
};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The highest part number, as on S3.
const PART_NUMBER_MAX: u32 = 10_000;

impl Shared {
    pub(super) fn begin_upload(
        self: &Arc<Self>,
        key: ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<DirUpload> {
        self.staging()?;
        let record = Record { attributes, tags, ..Record::default() };
        let (store, parts) = (self.clone(), Mutex::new(Some(Parts::new())));
        Ok(DirUpload(Arc::new(Upload { store, key, record, parts })))
    }
}

/// Dropped without being completed, it removes its parts.
pub(super) struct DirUpload(Arc<Upload>);

struct Upload {
    store: Arc<Shared>,
    key: ObjectKey,
    record: Record,
    /// `None` once it was completed or aborted.
    parts: Mutex<Option<Parts>>,
}

type Parts = BTreeMap<u32, Part>;

struct Part {
    file: Staged,
    len: u64,
}

impl Upload {
    fn parts(&self) -> MutexGuard<'_, Option<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_part(&self, number: u32, body: &Payload) -> Result<()> {
        let mut file = self.begin_part(number)?;
        file.append(body)?;
        self.keep(number, Part { file, len: body.len() })
    }

    fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let mut file = self.begin_part(number)?;
        let source = self.store.find_exactly(from)?;
        let range = byte_range::inside(&from.key, range, source.size_bytes())?;
        append(&source, range.clone(), &mut file, &from.key)?;
        self.keep(number, Part { file, len: range.end - range.start })
    }

    fn begin_part(&self, number: u32) -> Result<Staged> {
        if !(1..=PART_NUMBER_MAX).contains(&number) {
            return Err(StoreError::Invalid(format!(
                "part {number}: numbers go from 1 to {PART_NUMBER_MAX}"
            )));
        }
        self.store.staging()?.create(&self.key)
    }

    fn keep(&self, number: u32, part: Part) -> Result<()> {
        let replaced = self.parts().as_mut().ok_or_else(ended)?.insert(number, part);
        drop(replaced);
        Ok(())
    }

    /// Makes the object of the parts; if that is refused they are all there again.
    fn complete(&self, precondition: &Precondition) -> Result<ObjectRef> {
        let mut parts = self.parts().take().ok_or_else(ended)?;
        let stored = self.join_and_commit(&mut parts, precondition);
        if stored.is_err() {
            *self.parts() = Some(parts);
        }
        stored
    }

    /// Writes the other parts behind the first, whose file becomes the object.
    fn join_and_commit(&self, parts: &mut Parts, precondition: &Precondition) -> Result<ObjectRef> {
        let mut in_order = parts.values_mut();
        let Some(Part { file: whole, len }) = in_order.next() else {
            return Err(StoreError::Invalid("an upload without parts cannot be completed".into()));
        };
        let joined = in_order.try_for_each(|part| whole.append_range(part.file.file(), 0..part.len));
        let stored =
            joined.and_then(|()| self.store.commit(&self.key, whole, self.record.clone(), precondition));
        if stored.is_err() {
            whole.truncate(*len)?;
        }
        stored
    }
}

fn ended() -> StoreError {
    StoreError::Invalid("the upload was completed or aborted before".into())
}

impl fmt::Debug for DirUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirUpload").field("key", &self.0.key).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Multipart for DirUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        let upload = self.0.clone();
        blocking(move || upload.put_part(number, &body)).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let (upload, from) = (self.0.clone(), from.clone());
        blocking(move || upload.copy_part(number, &from, range)).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let upload = self.0.clone();
        blocking(move || upload.complete(&precondition)).await
    }

    async fn abort(&self) -> Result<()> {
        let upload = self.0.clone();
        blocking(move || {
            drop(upload.parts().take());
            Ok(())
        })
        .await
    }
}
