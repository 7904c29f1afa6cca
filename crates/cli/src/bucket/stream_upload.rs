//! Storing of bytes of unknown length as one object: by one request if they are shorter than a part, otherwise in parts.

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use std::io::{self, Read};
use store::{
    Attributes, Multipart, ObjectKey, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, StoreError,
    Tags,
};

/// Length of the first parts; S3 allows no less than 5 MiB.
const PART_BYTES: u64 = 8 << 20;

/// Number of parts after which their length doubles, so that 10,000 parts reach S3's largest object.
const PARTS_PER_SIZE: u32 = 1000;

/// Length of the pieces that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Why a stream was not stored.
#[derive(Debug)]
pub(crate) enum UploadError {
    /// The bytes of the stream could not be read.
    Read(anyhow::Error),
    /// The store refused the bytes, or did not answer.
    Store(StoreError),
}

impl UploadError {
    /// Returns the error, with a context if it is the store's.
    pub(crate) fn with_store_context(self, context: impl FnOnce() -> String) -> anyhow::Error {
        match self {
            Self::Read(error) => error,
            Self::Store(error) => anyhow::Error::from(error).context(context()),
        }
    }
}

impl From<UploadError> for anyhow::Error {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Read(error) => error,
            UploadError::Store(error) => error.into(),
        }
    }
}

/// Stores all bytes of a stream under a key, and replaces an object there. Returns the object and the number of bytes.
/// Aborts an upload that fails.
pub(crate) async fn store_stream(
    store: &dyn ObjectStore,
    key: &ObjectKey,
    attributes: Attributes,
    body: impl Stream<Item = anyhow::Result<Bytes>> + Unpin,
) -> Result<(ObjectRef, u64), UploadError> {
    let mut parts = Parts { body, waiting: Payload::default() };
    let first = parts.next(PART_BYTES).await?;
    if first.len() < PART_BYTES {
        let sent = first.len();
        let options = PutOptions { attributes, ..PutOptions::default() };
        let stored = store.put(key, first, options).await.map_err(UploadError::Store)?;
        return Ok((stored, sent));
    }
    let upload = store.multipart(key, attributes, Tags::default()).await.map_err(UploadError::Store)?;
    let stored = send(upload.as_ref(), first, parts).await;
    if stored.is_err() {
        // The error of the upload is the one to report; a part that stays behind only takes space.
        upload.abort().await.ok();
    }
    stored
}

/// Sends all parts, of which `first` is the first, and completes the upload.
async fn send(
    upload: &dyn Multipart,
    first: Payload,
    mut parts: Parts<impl Stream<Item = anyhow::Result<Bytes>> + Unpin>,
) -> Result<(ObjectRef, u64), UploadError> {
    let (mut part, mut number, mut sent) = (first, 1, 0);
    while !part.is_empty() {
        sent += part.len();
        upload.put_part(number, part).await.map_err(UploadError::Store)?;
        part = parts.next(PART_BYTES << (number / PARTS_PER_SIZE)).await?;
        number += 1;
    }
    let stored = upload.complete(Precondition::None).await.map_err(UploadError::Store)?;
    Ok((stored, sent))
}

/// Returns the bytes of a reader as a stream; `context` says what could not be read. Does not block the runtime.
pub(crate) fn read_stream(
    from: impl Read + Send + 'static,
    context: String,
) -> BoxStream<'static, anyhow::Result<Bytes>> {
    let read = move |mut from| {
        let context = context.clone();
        async move {
            let read = move || {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                Read::take(&mut from, PIECE_BYTES as u64).read_to_end(&mut piece)?;
                io::Result::Ok((Bytes::from(piece), from))
            };
            let (piece, from) = tokio::task::spawn_blocking(read).await?.context(context)?;
            Ok((!piece.is_empty()).then_some((piece, from)))
        }
    };
    stream::try_unfold(from, read).boxed()
}

/// A stream that is cut into parts.
struct Parts<S> {
    body: S,
    /// Bytes that were read, and belong to the next parts.
    waiting: Payload,
}

impl<S: Stream<Item = anyhow::Result<Bytes>> + Unpin> Parts<S> {
    /// Returns the next part: this many bytes, or fewer at the end of the stream. It is empty after the end.
    async fn next(&mut self, bytes: u64) -> Result<Payload, UploadError> {
        while self.waiting.len() < bytes
            && let Some(piece) = self.body.try_next().await.map_err(UploadError::Read)?
        {
            self.waiting.push(piece);
        }
        let part = self.waiting.slice(0..bytes);
        self.waiting = self.waiting.slice(bytes..u64::MAX);
        Ok(part)
    }
}
