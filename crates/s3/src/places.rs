//! Memory that requests share: what is too long to be held for every client at once has a place, of which there are few.
//!
//! Who waits for a place reads nothing, so that its client waits too; who waits for too long is told to slow down.
//! Invariant: nobody waits for a place while holding one that only that wait's end would give back.

use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use s3s::{S3Result, s3_error};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::query;

/// Up to so many bytes are held without a place: by 256 requests 64 MiB.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;

/// Parts of bodies (8 MiB), and documents (4 MiB, and several times that when they are understood), held at the same
/// time, however many clients send slowly.
const PARTS: usize = 32;
const DOCUMENTS: usize = 16;

/// Others give their places back as soon as a part is stored.
const WITHIN: Duration = Duration::from_secs(60);

/// Memory is the process's, and so are these.
static FOR_PARTS: Semaphore = Semaphore::const_new(PARTS);
static FOR_DOCUMENTS: Semaphore = Semaphore::const_new(DOCUMENTS);

/// A place; dropping it gives it back.
pub(crate) type Place = SemaphorePermit<'static>;

/// For a part of a body.
pub(crate) async fn for_part() -> S3Result<Place> {
    of(&FOR_PARTS).await
}

/// For a request whose body is a document, which is read as a whole, and not short.
pub(crate) async fn for_document(head: &Parts) -> S3Result<Option<Place>> {
    let is_document = query::is_document(&head.method, head.uri.query().unwrap_or_default());
    if is_document && !is_short(&head.headers) { of(&FOR_DOCUMENTS).await.map(Some) } else { Ok(None) }
}

fn is_short(headers: &HeaderMap) -> bool {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    announced.is_some_and(|length: u64| length <= SMALL_BYTES)
}

async fn of(places: &'static Semaphore) -> S3Result<Place> {
    match tokio::time::timeout(WITHIN, places.acquire()).await {
        Ok(Ok(place)) => Ok(place),
        _ => Err(s3_error!(SlowDown, "Please reduce your request rate.")),
    }
}
