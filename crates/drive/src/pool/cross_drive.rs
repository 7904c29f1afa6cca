//! Copies between drives of a pool: objects are read from one drive and stored on another.

use crate::bucket::DriveBucket;
use crate::frontend::{Access, Stored};
use store::{CopyOptions, ObjectKey, ObjectRef, Result};

/// Copies an object to a key on another drive, as `ObjectStore::copy` does on one drive.
pub(super) async fn copy(
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
    let stored = match len_bytes <= target.frontend.engine.inline_bytes_max() {
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
pub(super) async fn copy_range(
    source: &DriveBucket,
    from: &ObjectRef,
    range: std::ops::Range<u64>,
    target: &DriveBucket,
) -> Result<Stored> {
    let (record, pins) = source.pinned_exact(from).await?;
    let range = store::byte_range::inside(&from.key, range, record.body.len_bytes())?;
    let len_bytes = range.end - range.start;
    let bytes = source.frontend.read((record.write, record.body), range, Access::Pinned(pins));
    target.store_stream(bytes, Some(len_bytes)).await
}
