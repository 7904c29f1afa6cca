//! Copies from one bucket into another: each part is read from the source and stored in the target.

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use std::ops::Range;
use store::{
    CopyOptions, GetOptions, Multipart, ObjectKey, ObjectRef, ObjectStore, Payload, PutOptions, Result,
};

/// Maximum length of an object that is stored by one PUT, and minimum length of the parts of longer objects, in
/// bytes.
const SINGLE_PUT_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of parts that S3 allows.
const PARTS_MAX: u64 = 10_000;

/// Copies an object with its tags, as `ObjectStore::copy` does within a bucket.
pub(super) async fn copy(
    (source, from): (&dyn ObjectStore, &ObjectRef),
    (target, to): (&dyn ObjectStore, &ObjectKey),
    options: CopyOptions,
) -> Result<ObjectRef> {
    let get_options = GetOptions { if_match: Some(from.etag.clone()), ..GetOptions::default() };
    let object = source.get(&from.key, get_options).await?;
    let tags = match options.tags {
        Some(tags) => tags,
        None => source.tags(&from.key).await?,
    };
    let size_bytes = object.meta.size_bytes;
    let attributes = options.attributes.unwrap_or(object.meta.attributes);
    if size_bytes <= SINGLE_PUT_BYTES_MAX {
        let body: Vec<Bytes> = object.body.try_collect().await?;
        let options =
            PutOptions { precondition: options.precondition, attributes, tags, ..PutOptions::default() };
        return target.put(to, Payload::from(Bytes::from(body.concat())), options).await;
    }
    drop(object.body);
    let upload = target.multipart(to, attributes, tags).await?;
    let copied = async {
        let part_bytes = size_bytes.div_ceil(PARTS_MAX).max(SINGLE_PUT_BYTES_MAX);
        let starts = (0..size_bytes.div_ceil(part_bytes)).map(|index| index * part_bytes);
        for (number, start) in (1..).zip(starts) {
            let range = start..(start + part_bytes).min(size_bytes);
            copy_part(source, from, range, &*upload, number).await?;
        }
        upload.complete(options.precondition).await
    };
    let copied = copied.await;
    if copied.is_err()
        && let Err(error) = upload.abort().await
    {
        tracing::warn!(%error, "cannot abort the upload of a failed copy; its parts may stay in the bucket");
    }
    copied
}

/// Makes a part from a range of an object in another bucket.
pub(super) async fn copy_part(
    source: &dyn ObjectStore,
    from: &ObjectRef,
    range: Range<u64>,
    upload: &dyn Multipart,
    number: u32,
) -> Result<()> {
    let options =
        GetOptions { range: Some(range), if_match: Some(from.etag.clone()), ..GetOptions::default() };
    let mut body = source.get(&from.key, options).await?.body;
    let mut part = BytesMut::new();
    while let Some(piece) = body.try_next().await? {
        part.extend_from_slice(&piece);
    }
    upload.put_part(number, Payload::from(part.freeze())).await
}
