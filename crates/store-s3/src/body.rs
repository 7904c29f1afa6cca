//! The body of a GET: complete, in order and from one version of the object, or an error.
//!
//! A connection that breaks, stalls or is too slow is replaced by a request for the rest of the same object, within the
//! retry limits of a call; progress resets these limits. If the server sent a checksum, it is verified.

use super::failure::Failure;
use super::get::{Opened, Source};
use super::min_throughput::MinThroughput;
use super::put::Crc64;
use super::retry::Retry;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use hyper::body::Incoming;
use std::ops::Range;
use store::{ETag, Result};

/// A body being received, and the range that is still missing.
pub(super) struct Body {
    source: Source,
    etag: ETag,
    /// `None` after a failure, until the next attempt.
    incoming: Option<Incoming>,
    /// The range of the object that was not read yet.
    left: Range<u64>,
    throughput: MinThroughput,
    retry: Retry,
    /// The checksum to compare; `None` if the server sent none.
    sum: Option<Sum>,
}

/// The expected checksum of the body, and the checksum of the bytes received so far.
struct Sum {
    expected: String,
    found: Crc64,
}

impl Body {
    pub(super) fn of(source: Source, opened: Opened) -> Self {
        Self {
            retry: source.client().retry(),
            source,
            etag: opened.meta.object.etag,
            incoming: Some(opened.body),
            left: opened.range,
            throughput: MinThroughput::default(),
            sum: opened.crc64nvme.map(|expected| Sum { expected, found: Crc64::default() }),
        }
    }

    /// Streams pieces as they arrive, the last piece only if the checksum is correct.
    pub(super) fn stream(self) -> BoxStream<'static, Result<Bytes>> {
        stream::try_unfold(self, |mut body| async move { Ok(body.next().await?.map(|piece| (piece, body))) })
            .boxed()
    }

    /// Receives the whole body and returns it if the checksum is correct.
    pub(super) async fn verified(mut self) -> Result<BoxStream<'static, Result<Bytes>>, Failure> {
        let mut pieces = Vec::new();
        while let Some(piece) = self.next().await? {
            pieces.push(Ok(piece));
        }
        Ok(stream::iter(pieces).boxed())
    }

    /// Returns the next bytes of the object; `None` at its end. Continues with a new request after a failure.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while !self.left.is_empty() {
            match self.read().await {
                Ok(piece) => return self.checked(piece).map(Some),
                Err(failure) => self.reopen(failure).await?,
            }
        }
        Ok(None)
    }

    /// Requests the rest of the object again.
    async fn reopen(&mut self, failure: Failure) -> Result<(), Failure> {
        self.incoming = None;
        self.retry.add_waited(self.throughput.waited());
        self.retry.wait_or_fail(failure).await?;
        let opened = self.source.open(Some(self.left.clone()), Some(&self.etag), &mut self.retry).await?;
        (self.incoming, self.throughput) = (Some(opened.body), MinThroughput::default());
        Ok(())
    }

    /// Reads the next bytes from the connection.
    async fn read(&mut self) -> Result<Bytes, Failure> {
        let body = self.incoming.as_mut().ok_or_else(|| Failure::no_response("no connection"))?;
        let piece = match self.source.client().frame(body, &mut self.throughput).await? {
            Some(piece) if piece.len() as u64 <= self.left.end - self.left.start => piece,
            Some(_) => return Err(Failure::malformed("a body that is too long")),
            None => return Err(Failure::malformed("a body that ends too early")),
        };
        self.left.start += piece.len() as u64;
        if self.throughput.add_bytes(piece.len() as u64) {
            self.retry.record_progress();
        }
        Ok(piece)
    }

    /// Adds bytes to the checksum, and compares it at the end.
    fn checked(&mut self, piece: Bytes) -> Result<Bytes, Failure> {
        let Some(sum) = &mut self.sum else { return Ok(piece) };
        sum.found.add(&piece);
        if self.left.is_empty() && sum.found.text() != sum.expected {
            return Err(Failure::malformed("bytes with another checksum than the server keeps"));
        }
        Ok(piece)
    }
}
