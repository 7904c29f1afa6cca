//! The bucket, as the uploads see it: objects are stored in it from their extents, and compared with what it has.

use super::early_upload::EarlyUpload;
use super::errors::failed;
use super::extent::{Extent, slice_extents};
use super::pending::{Change, PendingObject};
use super::send_memory::SendMemory;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::ops::Range;
use std::sync::Arc;
use store::{
    CopyOptions, ETag, GetOptions, Multipart, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload,
    Precondition, PutOptions, Result, StoreError,
};

/// Length of parts, in bytes, unless an object would have more than 10,000. Longer objects are uploaded in parts.
pub(super) const PART_BYTES: u64 = 8 << 20;
/// Parts of one object uploaded concurrently.
const CONCURRENT_PARTS: usize = 3;
/// Minimum length of a part that is copied inside the bucket.
const COPIED_BYTES_MIN: u64 = 5 << 20;

/// How to compare bytes of ours that are gone, because the object that they come from was replaced.
#[derive(Debug, Clone, Copy)]
enum GoneBytes {
    Skipped,
    Differ,
}

/// The bucket, and the memory for bodies on their way to it.
#[derive(Debug)]
pub(super) struct BucketSide {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) memory: SendMemory,
}

impl BucketSide {
    /// Applies a change to the bucket. Returns the object's etag, or `None` after a deletion.
    pub(super) async fn apply(
        &self,
        key: &ObjectKey,
        change: &Change,
        base: Precondition,
    ) -> Result<Option<ETag>> {
        match &change.object {
            None => self.store.delete(key, base).await.map(|()| None),
            Some(object) => self.store_object(key, object, base).await.map(|stored| Some(stored.etag)),
        }
    }

    /// Stores an object in the bucket, if the bucket's object is as `base` requires: by a copy, by an upload that was
    /// begun early, by one request, or in parts.
    pub(super) async fn store_object(
        &self,
        key: &ObjectKey,
        object: &PendingObject,
        base: Precondition,
    ) -> Result<ObjectRef> {
        let (attributes, tags) = (object.description.attributes.clone(), object.description.tags.clone());
        if let [Extent::Bucket(from, range)] = object.extents.as_slice()
            && let Some(copied) = self.copy_whole(from, range, key, object, &base).await?
        {
            return Ok(copied);
        }
        let early = object.early.take(key).inspect(|_| object.note_sent());
        if let Some(early) = early
            && let Some(stored) = complete_early(early, key, &base).await?
        {
            return Ok(stored);
        }
        let size = object.size_bytes();
        if size <= PART_BYTES {
            let _memory = self.memory.take(size).await?;
            let body = self.read(object, 0..size).await?;
            let options = PutOptions { precondition: base, attributes, tags, ..PutOptions::default() };
            object.note_sent();
            return self.store.put(key, body, options).await;
        }
        let upload = self.store.multipart(key, attributes, tags).await?;
        let outcome = match self.send_parts(object, upload.as_ref()).await {
            Ok(()) => {
                object.note_sent();
                upload.complete(base).await
            }
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            upload.abort().await.ok();
        }
        outcome
    }

    /// Copies an object inside the bucket if it consists of another whole object; `None` if it does not.
    async fn copy_whole(
        &self,
        from: &ObjectRef,
        range: &Range<u64>,
        to: &ObjectKey,
        object: &PendingObject,
        base: &Precondition,
    ) -> Result<Option<ObjectRef>> {
        let source = self.store.head(&from.key).await?;
        if source.object.etag != from.etag || *range != (0..source.size_bytes) {
            return Ok(None);
        }
        let attributes = Some(object.description.attributes.clone());
        let (precondition, size_bytes) = (base.clone(), Some(source.size_bytes));
        // Tags may have been set while the copy was pending.
        let tags = &object.description.tags;
        let are_same = tags.is_empty() && source.tag_count.is_none_or(|count| count == 0);
        let tags = (!are_same).then(|| tags.clone());
        let options = CopyOptions { attributes, tags, precondition, size_bytes, ..CopyOptions::default() };
        object.note_sent();
        self.store.copy(from, to, options).await.map(Some)
    }

    /// Uploads all parts of an object, several at a time.
    async fn send_parts(&self, object: &PendingObject, upload: &dyn Multipart) -> Result<()> {
        let size = object.size_bytes();
        let part_bytes = part_bytes(size);
        let parts: Vec<_> = (0..size.div_ceil(part_bytes))
            .map(|index| {
                let range = index * part_bytes..((index + 1) * part_bytes).min(size);
                self.send_part(object, upload, index as u32 + 1, range)
            })
            .collect();
        let parts = futures_util::stream::iter(parts.into_iter().map(Ok::<_, StoreError>));
        parts.try_for_each_concurrent(CONCURRENT_PARTS, |part| part).await
    }

    /// Uploads one part: by a copy in the bucket if its bytes are there, otherwise from the log.
    pub(super) async fn send_part(
        &self,
        object: &PendingObject,
        upload: &dyn Multipart,
        number: u32,
        range: Range<u64>,
    ) -> Result<()> {
        if let [Extent::Bucket(from, within)] = slice_extents(&object.extents, &range).as_slice()
            && (within.end - within.start >= COPIED_BYTES_MIN || range.end == object.size_bytes())
        {
            return upload.copy_part(number, from, within.clone()).await;
        }
        let _memory = self.memory.take(range.end - range.start).await?;
        upload.put_part(number, self.read(object, range).await?).await
    }

    pub(super) async fn read(&self, object: &PendingObject, range: Range<u64>) -> Result<Payload> {
        let body = self.read_extents(slice_extents(&object.extents, &range)).await?;
        Ok(body.try_collect::<Vec<_>>().await?.into_iter().collect())
    }

    /// Reads extents, one after the other.
    pub(super) async fn read_extents(
        &self,
        extents: Vec<Extent>,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let bucket = self.store.clone();
        let bodies = futures_util::stream::iter(extents).then(move |extent| {
            let bucket = bucket.clone();
            async move {
                match extent {
                    Extent::Log(segment, range) => {
                        let bytes = segment.read(&range).map_err(failed)?;
                        Ok(futures_util::stream::once(std::future::ready(Ok(bytes))).boxed())
                    }
                    Extent::Bucket(object, range) => {
                        let options = GetOptions {
                            range: Some(range),
                            if_match: Some(object.etag),
                            version: object.version,
                        };
                        bucket.get(&object.key, options).await.map(|object| object.body)
                    }
                }
            }
        });
        // The first read begins now, so that a missing object is an error of this call.
        let mut bodies = bodies.boxed();
        let first = match bodies.next().await {
            Some(first) => first?,
            None => return Ok(futures_util::stream::empty().boxed()),
        };
        Ok(first.chain(bodies.try_flatten()).boxed())
    }

    /// Returns whether the object found, or its absence, is the result of a change of its key. Another client's object
    /// may have the same length and metadata, so the bytes are compared. Bytes of ours that are gone, because the object
    /// that had them was replaced, prove nothing and are skipped: they could not be kept anyway. If all of them are gone, the object is not
    /// ours, unless a request that copies the object onto itself was sent.
    pub(super) async fn is_ours(
        &self,
        found: Option<&ObjectMeta>,
        ours: Option<&PendingObject>,
    ) -> Result<bool> {
        self.compare(found, ours, GoneBytes::Skipped).await
    }

    /// Like `is_ours`, for an object that is to be replaced. Returns false if some bytes of ours are gone, because another client's object
    /// could be lost otherwise.
    pub(super) async fn is_surely_ours(
        &self,
        found: Option<&ObjectMeta>,
        ours: Option<&PendingObject>,
    ) -> Result<bool> {
        self.compare(found, ours, GoneBytes::Differ).await
    }

    async fn compare(
        &self,
        found: Option<&ObjectMeta>,
        ours: Option<&PendingObject>,
        gone: GoneBytes,
    ) -> Result<bool> {
        let (found, ours) = match (found, ours) {
            (Some(found), Some(ours)) => (found, ours),
            (found, ours) => return Ok(found.is_none() && ours.is_none()),
        };
        if !ours.is_like(found) {
            return Ok(false);
        }
        let size = ours.size_bytes();
        let is_at_key =
            |extent: &Extent| matches!(extent, Extent::Bucket(from, _) if from.key == found.object.key);
        let mut is_proved = size == 0 || ours.was_sent() && ours.extents.iter().any(is_at_key);
        for start in (0..size).step_by(PART_BYTES as usize) {
            let mut at = start;
            for extent in slice_extents(&ours.extents, &(start..size.min(start + PART_BYTES))) {
                let range = at..at + extent.len();
                at = range.end;
                let expected = match (self.read_if_present(extent).await?, gone) {
                    (Some(expected), _) => expected,
                    (None, GoneBytes::Skipped) => continue,
                    (None, GoneBytes::Differ) => return Ok(false),
                };
                let theirs = self.read_if_present(Extent::Bucket(found.object.clone(), range)).await?;
                if theirs.is_none_or(|theirs| theirs != expected) {
                    return Ok(false);
                }
                is_proved = true;
            }
        }
        Ok(is_proved)
    }

    /// Reads the bytes of an extent; `None` if the object they are in is gone.
    async fn read_if_present(&self, extent: Extent) -> Result<Option<Vec<u8>>> {
        let read = async { self.read_extents(vec![extent]).await?.try_collect::<Vec<_>>().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes.concat())),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the bucket still has all objects that an object is made of.
    pub(super) async fn is_complete(&self, object: &PendingObject) -> Result<bool> {
        for extent in &object.extents {
            let Extent::Bucket(from, _) = extent else { continue };
            let found = self.store.find(&from.key).await?;
            if found.is_none_or(|found| found.object.etag != from.etag) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores an object of which some bytes are gone: zeros replace them.
    pub(super) async fn store_with_gaps(&self, key: &ObjectKey, object: &PendingObject) -> Result<ObjectRef> {
        let (attributes, tags) = (object.description.attributes.clone(), object.description.tags.clone());
        let size = object.size_bytes();
        if size <= PART_BYTES {
            let options =
                PutOptions { precondition: Precondition::None, attributes, tags, ..PutOptions::default() };
            return self.store.put(key, self.read_with_gaps(object, 0..size).await?, options).await;
        }
        let upload = self.store.multipart(key, attributes, tags).await?;
        let part_bytes = PART_BYTES.max(size.div_ceil(10_000).next_multiple_of(1 << 20));
        let sent = async {
            for (index, start) in (0..size).step_by(part_bytes as usize).enumerate() {
                let body = self.read_with_gaps(object, start..size.min(start + part_bytes)).await?;
                upload.put_part(index as u32 + 1, body).await?;
            }
            upload.complete(Precondition::None).await
        };
        let outcome = sent.await;
        if outcome.is_err() {
            upload.abort().await.ok();
        }
        outcome
    }

    /// Reads a range of an object, with zeros for bytes that are gone.
    async fn read_with_gaps(&self, object: &PendingObject, range: Range<u64>) -> Result<Payload> {
        let mut payload = Payload::default();
        for extent in slice_extents(&object.extents, &range) {
            let len = extent.len();
            let read = async { self.read_extents(vec![extent]).await?.try_collect::<Vec<_>>().await };
            match read.await {
                Ok(bytes) => bytes.into_iter().for_each(|bytes| payload.push(bytes)),
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    payload.push(Bytes::from(vec![0; len as usize]));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(payload)
    }
}

/// Completes an upload that began before its object was complete. `None`: the object must be uploaded anew.
async fn complete_early(
    early: EarlyUpload,
    key: &ObjectKey,
    base: &Precondition,
) -> Result<Option<ObjectRef>> {
    let upload = match early.finish().await {
        Ok(upload) => upload,
        Err(error) => {
            tracing::debug!(%key, %error, "an upload that began before its object was complete has failed; the object is uploaded again from the write-back log");
            return Ok(None);
        }
    };
    let completed = upload.complete(base.clone()).await;
    if completed.is_err() {
        upload.abort().await.ok();
    }
    match completed {
        // The parts are not accepted together, for example because one is too short.
        Err(StoreError::Invalid(_)) => Ok(None),
        completed => completed.map(Some),
    }
}

/// Returns the length of the parts of an object, of which there are at most 10,000.
fn part_bytes(size: u64) -> u64 {
    PART_BYTES.max(size.div_ceil(10_000).next_multiple_of(1 << 20))
}
