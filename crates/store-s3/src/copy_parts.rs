//! Copies of large objects inside the store, in concurrent parts.
//!
//! A single CopyObject request has the throughput of one stream and a limit of 5 GiB. Part copies do not copy headers and
//! tags, so both are read first.
//!
//! Invariants: the copies of a client have at most [`PARTS_AT_ONCE`] parts in flight together; the parts of a failed
//! or cancelled copy are freed, unless the abort of its upload fails.

use super::S3Store;
use super::learned::{LARGE_BYTES_MIN, PARTS_AT_ONCE};
use super::multipart::S3Multipart;
use futures_util::{StreamExt as _, stream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{CopyOptions, Multipart as _, ObjectKey, ObjectMeta, ObjectRef, ObjectStore as _, Result};

/// Minimum size of a part, in bytes, because each part is a request.
const PART_BYTES_MIN: u64 = 16 << 20;
/// Maximum number of parts of an object.
const PARTS_MAX: u64 = 10_000;
impl S3Store {
    /// Describes the source of a copy if it is large; `None` if it is not, or if it is missing or was replaced. If
    /// the size is not given, also `None` until the client has seen a large object.
    pub(super) async fn large(
        &self,
        from: &ObjectRef,
        size_bytes: Option<u64>,
    ) -> Result<Option<ObjectMeta>> {
        if !self.client.learned.part_copies.may_be_large(size_bytes) {
            return Ok(None);
        }
        let found = self.find(&from.key).await?;
        Ok(found.filter(|found| found.object.etag == from.etag && found.size_bytes >= LARGE_BYTES_MIN))
    }

    /// Copies an object by a multipart upload of copied parts.
    pub(super) async fn copy_in_parts(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: &CopyOptions,
        source: ObjectMeta,
    ) -> Result<ObjectRef> {
        let part_bytes = source.size_bytes.div_ceil(PARTS_MAX).max(PART_BYTES_MIN);
        self.copy_by(from, to, options, source, part_bytes).await
    }

    async fn copy_by(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: &CopyOptions,
        source: ObjectMeta,
        part_bytes: u64,
    ) -> Result<ObjectRef> {
        let tags = match &options.tags {
            Some(tags) => tags.clone(),
            None => self.get_tags(&from.key).await?,
        };
        let attributes = options.attributes.as_ref().unwrap_or(&source.attributes);
        let upload = self.begin_multipart(to, attributes, &tags).await?;
        let mut guard = AbortGuard { upload: upload.clone(), is_over: false };
        let joined = async {
            self.copy_all_parts(&upload, from, parts(source.size_bytes, part_bytes)).await?;
            // The target may have changed meanwhile, and some servers ignore the precondition of a completion.
            self.check(to, &options.precondition).await?;
            upload.complete(options.precondition.clone()).await
        };
        let joined = joined.await;
        if joined.is_err() {
            abort_upload(upload.clone()).await;
        }
        guard.is_over = true;
        joined
    }

    /// Copies all parts. After an error, waits for the copies in flight: parts stored after the abort would not be freed.
    async fn copy_all_parts(
        &self,
        upload: &S3Multipart,
        from: &ObjectRef,
        parts: impl Iterator<Item = (u32, Range<u64>)>,
    ) -> Result<()> {
        let has_failed = AtomicBool::new(false);
        let copy = async |number, range| {
            let _slot = self.client.learned.part_copies.slots.acquire().await;
            if has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let copied = upload.copy_part(number, from, range).await;
            has_failed.fetch_or(copied.is_err(), Ordering::Relaxed);
            copied
        };
        let copies = parts.map(|(number, range)| copy(number, range));
        let copied: Vec<_> = stream::iter(copies).buffer_unordered(PARTS_AT_ONCE).collect().await;
        copied.into_iter().collect()
    }
}

/// A guard that aborts its upload when it is dropped, unless the upload is over.
struct AbortGuard {
    upload: Arc<S3Multipart>,
    is_over: bool,
}

impl Drop for AbortGuard {
    /// Aborts the upload of a cancelled copy.
    fn drop(&mut self) {
        if !self.is_over
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(abort_upload(self.upload.clone()));
        }
    }
}

/// Aborts an upload. A failure is only logged, so that the caller returns the copy's own error.
async fn abort_upload(upload: Arc<S3Multipart>) {
    if let Err(error) = upload.abort().await {
        tracing::warn!(%error, "could not abort the upload of a failed or cancelled copy; its parts may stay in the bucket");
    }
}

/// Returns the numbers and ranges of parts of equal size.
fn parts(size_bytes: u64, part_bytes: u64) -> impl Iterator<Item = (u32, Range<u64>)> {
    let starts = (0..size_bytes.div_ceil(part_bytes)).map(move |index| index * part_bytes);
    (1..).zip(starts.map(move |start| start..(start + part_bytes).min(size_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_object() {
        let got: Vec<_> = parts(10, 4).collect();
        assert_eq!(got, [(1, 0..4), (2, 4..8), (3, 8..10)]);
        assert_eq!(parts(8, 4).last(), Some((2, 4..8)));
    }
}
