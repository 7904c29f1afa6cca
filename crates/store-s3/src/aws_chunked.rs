//! Decoding of `aws-chunked` bodies ("Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks",
//! S3 API reference). Signatures of chunks and trailing checksums are dropped.

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Body, Frame};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Maximum length of the line before a chunk: its size and a signature.
const LINE_BYTES_MAX: usize = 512;

/// A body that decodes another body.
#[derive(Debug)]
pub(super) struct AwsChunked<B> {
    encoded: Pin<Box<B>>,
    decoder: Decoder,
    is_ended: bool,
}

impl<B> AwsChunked<B> {
    pub(super) fn new(encoded: B) -> Self {
        Self { encoded: Box::pin(encoded), decoder: Decoder::default(), is_ended: false }
    }
}

impl<B> Body for AwsChunked<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            match self.decoder.next() {
                Ok(Some(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(None) if self.is_ended && !self.decoder.is_complete() => {
                    return Poll::Ready(Some(Err("the body ended before its last chunk".into())));
                }
                Ok(None) if self.is_ended => return Poll::Ready(None),
                Ok(None) => {}
                Err(reason) => return Poll::Ready(Some(Err(reason.into()))),
            }
            match ready!(self.encoded.as_mut().poll_frame(context)) {
                None => self.is_ended = true,
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.decoder.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// A decoder of a body in chunks.
#[derive(Debug, Default)]
struct Decoder {
    buffer: BytesMut,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the line with a chunk's size.
    #[default]
    Line,
    /// In a chunk, with this many bytes left.
    Data(usize),
    /// Before the line end after a chunk.
    LineEnd,
    /// After the last chunk: trailers, which are dropped.
    Trailer,
}

impl Decoder {
    /// Returns the next bytes of a chunk; `None` if more input is needed.
    fn next(&mut self) -> Result<Option<Bytes>, &'static str> {
        loop {
            match self.state {
                State::Line => {
                    let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") else {
                        let is_too_long = self.buffer.len() > LINE_BYTES_MAX;
                        return if is_too_long {
                            Err("the line with a chunk's size is too long")
                        } else {
                            Ok(None)
                        };
                    };
                    let size = chunk_size(&self.buffer[..end]).ok_or("a chunk has no valid size")?;
                    self.buffer.advance(end + 2);
                    self.state = if size == 0 { State::Trailer } else { State::Data(size) };
                }
                State::Data(_) if self.buffer.is_empty() => return Ok(None),
                State::Data(left) => {
                    let data = self.buffer.split_to(left.min(self.buffer.len())).freeze();
                    let left = left - data.len();
                    self.state = if left == 0 { State::LineEnd } else { State::Data(left) };
                    return Ok(Some(data));
                }
                State::LineEnd if self.buffer.len() < 2 => return Ok(None),
                State::LineEnd => {
                    if !self.buffer.starts_with(b"\r\n") {
                        return Err("a chunk is longer than its size");
                    }
                    self.buffer.advance(2);
                    self.state = State::Line;
                }
                State::Trailer => {
                    self.buffer.clear();
                    return Ok(None);
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.state == State::Trailer
    }
}

/// Returns the size in a line `10000;chunk-signature=...`, which is hexadecimal; `None` if it is not.
fn chunk_size(line: &[u8]) -> Option<usize> {
    let digits = line.split(|byte| *byte == b';').next()?;
    usize::from_str_radix(std::str::from_utf8(digits).ok()?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, StreamBody};

    async fn decode(encoded: &[u8], piece_bytes: usize) -> Result<Bytes, String> {
        let pieces: Vec<_> = encoded
            .chunks(piece_bytes)
            .map(|piece| Ok::<_, std::io::Error>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body = AwsChunked::new(StreamBody::new(futures_util::stream::iter(pieces)));
        body.collect().await.map(|all| all.to_bytes()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn chunks_are_decoded_however_they_are_cut() {
        let encoded = b"5;chunk-signature=ab\r\nhello\r\n7\r\n, world\r\n0;chunk-signature=cd\r\nx-amz-checksum-crc32:AAAA\r\n\r\n";
        for piece_bytes in 1..=encoded.len() {
            assert_eq!(decode(encoded, piece_bytes).await, Ok(Bytes::from("hello, world")), "{piece_bytes}");
        }
    }

    #[tokio::test]
    async fn bodies_that_are_cut_or_wrong_are_errors() {
        assert!(decode(b"5\r\nhel", 3).await.unwrap_err().contains("ended"));
        assert!(decode(b"2\r\nhello\r\n0\r\n\r\n", 4).await.unwrap_err().contains("longer"));
        assert!(decode(b"five\r\nhello", 4).await.unwrap_err().contains("no valid size"));
    }
}
