//! Request bodies: read piece by piece, digested on the way, and stored without holding them whole.

use bytes::Bytes;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{StreamExt as _, TryStreamExt as _};
use s3s::dto::StreamingBlob;
use s3s::{S3Result, StdError};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use store::{Attributes, Multipart, ObjectKey, ObjectRef, ObjectStore, ObjectWriter, Payload, Precondition};
use store::{PutOptions, StoreError, Tags};

use crate::admission::{AdmittedClient, Permit, SMALL_BYTES};
use crate::checksums::{BodyDigest, Checksum, Digests};
use crate::error::{body_error, from_store, from_upload, incomplete};
use crate::metadata_names::CHECKSUM;

/// Bodies up to this length are buffered and stored by one call, longer bodies in parts of this length. A store that
/// takes streams gets bodies longer than [`SMALL_BYTES`] as a stream instead.
const PART_BYTES: u64 = 8 << 20;
/// The memory charged for a body that the store takes as a stream: buffers of the store (1 MiB on a drive) and of the
/// connection. It also bounds the number of such bodies at a time.
const STREAM_BYTES: u64 = 4 << 20;
/// The most that a store buffers of an uploaded part: what it sends at once, plus a last piece that would be too short
/// alone.
const PART_BUFFER_BYTES: u64 = 13 << 20;
/// S3's maximum length of the body of one PUT or part, in bytes.
pub(crate) const BODY_BYTES_MAX: u64 = 5 << 30;
/// The maximum number of parts of one body in flight.
const PARTS_IN_FLIGHT: usize = 2;
/// The capacity, in pieces, of the channel between the reader of a body and the store.
const PIPE_PIECES: usize = 4;

/// A request body that is read and digested piece by piece.
pub(crate) struct BodyReader {
    body: Option<StreamingBlob>,
    /// A piece that was read ahead to find out whether the body goes on.
    lookahead: Option<Bytes>,
    digests: Option<Digests>,
    /// Bytes still to be read from `body`; `None` if the request does not declare the length.
    remaining: Option<u64>,
    /// Bytes read so far.
    len: u64,
    /// The client whose share of memory the body uses, also if it is that of an object that the client copies.
    admitted: Option<AdmittedClient>,
}

impl BodyReader {
    /// Returns a reader for `body`. `announced`: the body's length in bytes, if the request declares it.
    pub(crate) fn new(
        body: Option<StreamingBlob>,
        announced: Option<u64>,
        digests: Digests,
        admitted: Option<AdmittedClient>,
    ) -> Self {
        Self { body, lookahead: None, digests: Some(digests), remaining: announced, len: 0, admitted }
    }

    /// Acquires memory for the beginning of the body. Must be called before any of it is read.
    async fn acquire_short(&self) -> S3Result<Option<Permit>> {
        match &self.admitted {
            Some(admitted) => admitted.acquire_short(self.remaining).await,
            None => Ok(None),
        }
    }

    /// Acquires memory for a part of the body, or for the buffers of a store that takes a stream; at least
    /// [`STREAM_BYTES`].
    async fn acquire_part(&self, bytes: u64) -> S3Result<Option<Permit>> {
        match &self.admitted {
            Some(admitted) => admitted.acquire_part(bytes.max(STREAM_BYTES)).await,
            None => Ok(None),
        }
    }

    /// Returns the remaining length in bytes, at most `bytes_max`; `bytes_max` if the length is unknown.
    fn remaining_up_to(&self, bytes_max: u64) -> u64 {
        let lookahead = self.lookahead.as_ref().map_or(0, Bytes::len) as u64;
        self.remaining.map_or(bytes_max, |remaining| (remaining + lookahead).min(bytes_max))
    }

    /// Returns the next piece, which is not empty; `None` at the end. Fails with `IncompleteBody` if the body has
    /// another length than declared.
    async fn next(&mut self) -> S3Result<Option<Bytes>> {
        if let Some(piece) = self.lookahead.take() {
            return Ok(Some(piece));
        }
        loop {
            let Some(body) = &mut self.body else { return Ok(None) };
            match body.next().await {
                Some(Ok(piece)) if piece.is_empty() => {}
                Some(Ok(piece)) => return self.account(piece).map(Some),
                Some(Err(error)) => return Err(body_error(error)),
                None => {
                    self.body = None;
                    return match self.remaining {
                        Some(remaining) if remaining > 0 => Err(incomplete()),
                        _ => Ok(None),
                    };
                }
            }
        }
    }

    /// Counts a piece of the body and adds it to the digests. Fails if the body is longer than announced.
    fn account(&mut self, piece: Bytes) -> S3Result<Bytes> {
        let len = piece.len() as u64;
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.checked_sub(len).ok_or_else(incomplete)?;
        }
        self.len += len;
        if let Some(digests) = &mut self.digests {
            digests.update(&piece);
        }
        Ok(piece)
    }

    /// Reads the next part, of about [`PART_BYTES`] or up to the end. A caller that holds another part must be sending
    /// it: this call may wait for the memory of that part.
    async fn next_part(&mut self) -> S3Result<BufferedPart> {
        let remaining = self.remaining_up_to(PART_BYTES);
        let permit = if remaining == 0 { None } else { self.acquire_part(remaining).await? };
        let mut part = BufferedPart { bytes: Payload::default(), permit };
        self.fill(&mut part, PART_BYTES).await?;
        Ok(part)
    }

    /// Reads into a part until it has about `bytes` bytes, or to the end of the body.
    async fn fill(&mut self, part: &mut BufferedPart, bytes: u64) -> S3Result<()> {
        while part.bytes.len() < bytes
            && let Some(piece) = self.next().await?
        {
            part.bytes.push(piece);
        }
        Ok(())
    }

    /// Reads ahead by one piece and returns whether the body has ended.
    async fn peek_end(&mut self) -> S3Result<bool> {
        self.lookahead = self.next().await?;
        Ok(self.lookahead.is_none())
    }

    /// Verifies the digests that the client declared for the body, and returns the computed ones.
    fn finish(&mut self) -> S3Result<BodyDigest> {
        self.digests.take().map_or(Ok(BodyDigest::default()), Digests::finish)
    }
}

/// Buffered bytes of a body, and the permit for their memory; `None` if the memory is not accounted.
struct BufferedPart {
    bytes: Payload,
    permit: Option<Permit>,
}

/// An object to be created from a body.
pub(crate) struct NewObject<'a> {
    pub(crate) store: &'a dyn ObjectStore,
    pub(crate) key: &'a ObjectKey,
    pub(crate) attributes: Attributes,
    pub(crate) tags: Tags,
    pub(crate) precondition: Precondition,
}

impl NewObject<'_> {
    /// Returns the options to store the object with, and the object's checksum.
    fn options(self, BodyDigest { checksum, etag }: BodyDigest) -> (PutOptions, Option<Checksum>) {
        let attributes = with_checksum(self.attributes, checksum.as_ref());
        (PutOptions { precondition: self.precondition, attributes, tags: self.tags, etag }, checksum)
    }
}

/// An object that was created from a body.
pub(crate) struct StoredObject {
    pub(crate) object: ObjectRef,
    pub(crate) checksum: Option<Checksum>,
}

/// Stores a body as an object. The object becomes visible only when the body has arrived completely.
pub(crate) async fn put(mut reader: BodyReader, new_object: NewObject<'_>) -> S3Result<StoredObject> {
    let announced = reader.remaining;
    let mut first = BufferedPart { bytes: Payload::default(), permit: reader.acquire_short().await? };
    reader.fill(&mut first, SMALL_BYTES).await?;
    if !reader.peek_end().await? {
        if let Some(writer) = new_object.store.writer(new_object.key, announced).await.map_err(from_store)? {
            let _permit = reader.acquire_part(STREAM_BYTES).await?;
            return put_streaming(reader, new_object, writer, first).await;
        }
        first.permit = reader.acquire_part(announced.unwrap_or(PART_BYTES).min(PART_BYTES)).await?;
        reader.fill(&mut first, PART_BYTES).await?;
    }
    if !reader.peek_end().await? {
        return put_multipart(reader, new_object, first).await;
    }
    let (store, key) = (new_object.store, new_object.key);
    let (options, checksum) = new_object.options(reader.finish()?);
    let object = store.put(key, first.bytes, options).await.map_err(from_store)?;
    Ok(StoredObject { object, checksum })
}

/// Stores a body through a store's streaming writer.
async fn put_streaming(
    mut reader: BodyReader,
    new_object: NewObject<'_>,
    mut writer: Box<dyn ObjectWriter>,
    first: BufferedPart,
) -> S3Result<StoredObject> {
    for piece in first.bytes.pieces() {
        writer.write(piece.clone()).await.map_err(from_store)?;
    }
    drop(first);
    while let Some(piece) = reader.next().await? {
        writer.write(piece).await.map_err(from_store)?;
    }
    let (options, checksum) = new_object.options(reader.finish()?);
    let object = writer.finish(options).await.map_err(from_store)?;
    Ok(StoredObject { object, checksum })
}

/// Stores a body that is too long to buffer as a multipart upload. The store takes attributes before the body, so that
/// a trailing checksum is not kept and an MD5 does not become the etag.
async fn put_multipart(
    mut reader: BodyReader,
    new_object: NewObject<'_>,
    first: BufferedPart,
) -> S3Result<StoredObject> {
    let declared = reader.digests.as_ref().and_then(Digests::declared);
    reader.digests.iter_mut().for_each(Digests::drop_undeclared_md5);
    let attributes = with_checksum(new_object.attributes, declared.as_ref());
    let begun = new_object.store.multipart(new_object.key, attributes, new_object.tags).await;
    let upload = begun.map_err(from_store)?;
    let stored = async {
        send_parts(&mut reader, upload.as_ref(), first).await?;
        let checksum = reader.finish()?.checksum;
        let object = upload.complete(new_object.precondition).await.map_err(from_store)?;
        Ok(StoredObject { object, checksum })
    };
    let stored: S3Result<StoredObject> = stored.await;
    if stored.is_err()
        && let Err(error) = upload.abort().await
    {
        tracing::warn!(key = %new_object.key, %error, "cannot abort the multipart upload of an object that could not be stored; its parts may remain in the store");
    }
    stored
}

/// Sends parts while reading the next one.
async fn send_parts(reader: &mut BodyReader, upload: &dyn Multipart, first: BufferedPart) -> S3Result<()> {
    let mut sending = FuturesUnordered::new();
    let (mut number, mut part) = (0, first);
    while !part.bytes.is_empty() {
        number += 1;
        sending.push(send(upload, number, part));
        while sending.len() >= PARTS_IN_FLIGHT {
            sending.try_next().await.map_err(from_store)?;
        }
        let mut next = std::pin::pin!(reader.next_part());
        part = loop {
            tokio::select! {
                part = &mut next => break part?,
                Some(sent) = sending.next() => sent.map_err(from_store)?,
            }
        };
    }
    while sending.try_next().await.map_err(from_store)?.is_some() {}
    Ok(())
}

/// Sends a part and releases its memory.
async fn send(upload: &dyn Multipart, number: u32, part: BufferedPart) -> store::Result<()> {
    upload.put_part(number, part.bytes).await?;
    drop(part.permit);
    Ok(())
}

/// Adds a checksum to the attributes that an object is stored with.
pub(crate) fn with_checksum(mut attributes: Attributes, checksum: Option<&Checksum>) -> Attributes {
    if let Some(checksum) = checksum {
        attributes.user.insert(CHECKSUM.to_owned(), checksum.to_text());
    }
    attributes
}

/// Streams a body to a store call. At the end of the stream the store asks for the note to keep with the part; by then
/// the body has been verified, or the note is an error and the store discards the part.
pub(crate) async fn pipe<T, Storing>(
    mut reader: BodyReader,
    store: impl FnOnce(BoxStream<'static, store::Result<Bytes>>, store::MakePartNote<'static>) -> Storing,
) -> S3Result<(T, Option<Checksum>)>
where
    Storing: Future<Output = store::Result<T>>,
{
    let short = reader.acquire_short().await?;
    let announced = reader.remaining;
    let mut first = BufferedPart { bytes: Payload::default(), permit: short };
    // The store call begins only when a short body is complete or a long one has begun to flow. Until then a slow
    // client ties up nothing in the store.
    reader.fill(&mut first, SMALL_BYTES).await?;
    let BufferedPart { bytes: first, permit: _short } = first;
    let _long = match reader.peek_end().await? {
        true => None,
        false => {
            let held = announced.unwrap_or(PART_BUFFER_BYTES).min(PART_BUFFER_BYTES);
            reader.acquire_part(held).await?
        }
    };
    let body_end = Arc::new(BodyEnd::default());
    let (sender, receiver) = tokio::sync::mpsc::channel(PIPE_PIECES);
    let finished = body_end.clone();
    let reading = async move {
        let end = forward_body(first, &mut reader, &sender).await;
        *finished.lock() = end;
        if matches!(*finished.lock(), Some(Err(_))) {
            sender.send(Err(StoreError::Corrupt("the request body ended early".into()))).await.ok();
        }
    };
    let for_note = body_end.clone();
    let make_note: store::MakePartNote<'static> = Box::new(move || match &*for_note.lock() {
        Some(Ok(checksum)) => Ok(checksum.as_ref().map(Checksum::to_text)),
        _ => Err(StoreError::Corrupt("the request body does not match its declared digests".into())),
    });
    let body = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    })
    .fuse();
    let ((), stored) = futures_util::future::join(reading, store(body.boxed(), make_note)).await;
    let end = body_end.lock().take();
    match (end, stored) {
        (Some(Err(error)), _) => Err(error),
        (_, Err(error)) => Err(from_upload(error)),
        (Some(Ok(checksum)), Ok(stored)) => Ok((stored, checksum)),
        (None, Ok(_)) => Err(incomplete()),
    }
}

/// Sends all pieces to the store. Returns how the body ended, or `None` if the store stopped reading.
async fn forward_body(
    first: Payload,
    reader: &mut BodyReader,
    sender: &tokio::sync::mpsc::Sender<store::Result<Bytes>>,
) -> Option<S3Result<Option<Checksum>>> {
    for piece in first.pieces() {
        sender.send(Ok(piece.clone())).await.ok()?;
    }
    drop(first);
    loop {
        match reader.next().await {
            Ok(Some(piece)) => sender.send(Ok(piece)).await.ok()?,
            Ok(None) => return Some(reader.finish().map(BodyDigest::into_part_checksum)),
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The result of reading a body, passed from the task that reads it to the store call.
#[derive(Default)]
struct BodyEnd(Mutex<Option<S3Result<Option<Checksum>>>>);

impl BodyEnd {
    fn lock(&self) -> MutexGuard<'_, Option<S3Result<Option<Checksum>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bytes of an object as a response body.
pub(crate) fn object_body(body: BoxStream<'static, store::Result<Bytes>>, len: u64) -> StreamingBlob {
    let frames = ObjectBody { body, remaining: len };
    StreamingBlob::from(s3s::Body::http_body_unsync(frames))
}

/// A response body that knows its length, so that the response has a Content-Length.
struct ObjectBody {
    body: BoxStream<'static, store::Result<Bytes>>,
    /// Bytes that are still to be sent.
    remaining: u64,
}

impl http_body::Body for ObjectBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, StdError>>> {
        let piece = std::task::ready!(self.body.as_mut().poll_next(context));
        Poll::Ready(piece.map(|piece| match piece {
            Ok(piece) => {
                self.remaining = self.remaining.saturating_sub(piece.len() as u64);
                Ok(http_body::Frame::data(piece))
            }
            Err(error) => {
                tracing::warn!(%error, "a response ends early: the rest of the object cannot be read");
                Err(error.into())
            }
        }))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.remaining)
    }
}
