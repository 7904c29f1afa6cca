//! Copies of objects. On one drive the copy shares the runs of the original, as one more owner of them, and only inline
//! data is copied. Between drives of a pool, all data is read and stored again.

use super::DriveBucket;
use crate::format::{Body, RunSlice};
use crate::frontend::{Access, Frontend, Stored};
use crate::space::{Hold, Pins};
use std::ops::Range;
use std::sync::Arc;
use store::{CopyOptions, ObjectKey, ObjectRef, Result, byte_range};

/// Copies a body on its drive: the copy becomes one more owner of the runs; inline data is stored again.
pub(super) async fn copy_body(
    frontend: &Arc<Frontend>,
    (write, body): (u64, Body),
    pins: Pins,
) -> Result<Stored> {
    match body {
        Body::Runs(slices) => Ok(Stored::of_slices(slices, vec![Hold::pins(pins)])),
        body => {
            let len = body.len_bytes();
            let bytes = frontend.read_all((write, body), 0..len, pins).await?;
            Ok(frontend.store(bytes.into_iter().collect()).await?)
        }
    }
}

/// Returns a range of an object as a body of its own on the same drive. The new body becomes one more owner of the
/// runs; inline data is copied to a run.
pub(super) async fn copy_range(bucket: &DriveBucket, from: &ObjectRef, range: Range<u64>) -> Result<Stored> {
    let (record, pins) = bucket.pinned_exact(from).await?;
    let range = byte_range::require_inside(&from.key, range, record.body.len_bytes())?;
    match record.body {
        Body::Runs(slices) => Ok(Stored::of_slices(slices_within(&slices, range), vec![Hold::pins(pins)])),
        body => {
            let bytes = bucket.frontend.read_all((record.write, body), range, pins).await?;
            Ok(bucket.frontend.store_in_runs(bytes.into_iter().collect()).await?)
        }
    }
}

/// Returns the slices that hold a range of the bytes that the given slices hold.
fn slices_within(slices: &[RunSlice], range: Range<u64>) -> Vec<RunSlice> {
    let mut begins = 0;
    let cut = |slice: &RunSlice| {
        let end = begins + slice.len_bytes;
        let (from, to) = (range.start.clamp(begins, end) - begins, range.end.clamp(begins, end) - begins);
        begins = end;
        let skip_bytes = slice.skip_bytes + from;
        (from < to).then_some(RunSlice { skip_bytes, len_bytes: to - from, ..*slice })
    };
    slices.iter().filter_map(cut).collect()
}

/// Copies an object to a key on another drive, as `ObjectStore::copy` does on one drive.
pub(crate) async fn copy_between_drives(
    source: &DriveBucket,
    from: &ObjectRef,
    target: &DriveBucket,
    to: &ObjectKey,
    options: CopyOptions,
) -> Result<ObjectRef> {
    let (record, pins) = source.pinned_exact(from).await?;
    let (len_bytes, etag, tags) = (record.body.len_bytes(), record.etag, record.tags);
    let attributes = options.attributes.unwrap_or(record.attributes);
    let description = (attributes, options.tags.unwrap_or(tags));
    let body = (record.write, record.body);
    let stored = match len_bytes <= target.frontend.engine.policy.inline_bytes_max() {
        true => {
            let bytes = source.frontend.read_all(body, 0..len_bytes, pins).await?;
            target.frontend.store(bytes.into_iter().collect()).await?
        }
        false => {
            let bytes = source.frontend.read(body, 0..len_bytes, Access::Pinned(pins));
            target.store_stream(bytes, Some(len_bytes)).await?
        }
    };
    target.put_body(to, stored.with_etag(etag), description, &options.precondition).await
}

/// Stores a range of an object as a body of its own on another drive.
pub(crate) async fn copy_range_between_drives(
    source: &DriveBucket,
    from: &ObjectRef,
    range: Range<u64>,
    target: &DriveBucket,
) -> Result<Stored> {
    let (record, pins) = source.pinned_exact(from).await?;
    let range = byte_range::require_inside(&from.key, range, record.body.len_bytes())?;
    let len_bytes = range.end - range.start;
    let bytes = source.frontend.read((record.write, record.body), range, Access::Pinned(pins));
    target.store_stream(bytes, Some(len_bytes)).await
}
