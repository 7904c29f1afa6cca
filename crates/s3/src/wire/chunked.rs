//! Bodies in `aws-chunked` encoding, with or without chunk signatures (S3 API Reference, "Signature calculations for
//! the Authorization header: transferring payload in multiple chunks", and "... including trailing headers").
//!
//! The bytes of a chunk are passed on before its signature is verified. That is safe because a wrong signature ends the
//! body with an error, and an object appears only at the end of its body.

use aws_lc_rs::digest;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use s3s::{Body, S3Error, S3Result, s3_error};

use super::framing::PieceSource;
use super::signing_key::{Scope, SigningKey, is_equal_constant_time, sha256};
use crate::checksums::Trailer;
use crate::error::{body_error, custom};
use crate::error_document::with_details;
use store::hex;

/// The minimum length of all chunks but the last, in bytes (S3's rule).
const CHUNK_BYTES_MIN: u64 = 8192;
/// The maximum length of a chunk header, in bytes.
const LINE_BYTES_MAX: usize = 1024;
/// The maximum length of all trailers, in bytes.
const TRAILERS_BYTES_MAX: usize = 16 << 10;
const SIGNATURE_CHARS: usize = 64;

/// The chain of chunk signatures, each of which covers the one before.
pub(crate) struct SignatureChain {
    key: SigningKey,
    /// The time of the request, as its signature covers it.
    time: String,
    scope: Scope,
    /// The last verified signature.
    last: String,
}

impl SignatureChain {
    /// Starts the chain at the signature of the request's headers.
    pub(super) fn new(key: SigningKey, time: &str, scope: Scope, seed: &str) -> Self {
        Self { key, time: time.to_owned(), scope, last: seed.to_owned() }
    }

    /// Checks the signature of a chunk or trailer, which covers the signature before it.
    fn check(&mut self, kind: &str, rest: &str, given: &str) -> S3Result<()> {
        let (time, scope, last) = (&self.time, self.scope.text(), &self.last);
        let right = self.key.sign(&format!("AWS4-HMAC-SHA256-{kind}\n{time}\n{scope}\n{last}\n{rest}"));
        if !is_equal_constant_time(&right, given) {
            return Err(s3_error!(
                SignatureDoesNotMatch,
                "The request signature we calculated does not match the signature you provided. Check your key and signing method."
            ));
        }
        self.last = right;
        Ok(())
    }
}

/// The trailers that a body may have.
pub(crate) struct Trailers {
    /// The trailer announced by `x-amz-trailer`.
    pub(super) name: Option<String>,
    /// The checksum of the trailer, once it has arrived.
    pub(super) found: Trailer,
}

/// A decoder of a chunked body.
pub(super) struct Chunked {
    body: Body,
    /// Received bytes that are not decoded yet.
    buffer: Bytes,
    chain: Option<Box<SignatureChain>>,
    trailers: Option<Trailers>,
    /// The declared length of the decoded body.
    announced: u64,
    /// Bytes decoded so far, those beyond the declared length included.
    decoded: u64,
    /// The chunk that is being read.
    chunk: Option<Chunk>,
    /// The number of chunks that have begun.
    chunks: u64,
    /// The length of the chunk before.
    size_before: u64,
    has_ended: bool,
}

/// A chunk that is being decoded.
struct Chunk {
    /// The announced length in bytes.
    size: u64,
    /// The number of bytes that have not arrived yet.
    left: u64,
    signature: String,
    digest: digest::Context,
}

impl PieceSource for Chunked {
    async fn next(&mut self) -> S3Result<Option<Bytes>> {
        while !self.has_ended {
            match self.chunk.take() {
                None => self.begin_chunk().await?,
                Some(chunk) if chunk.left == 0 => self.end_chunk(chunk).await?,
                Some(chunk) => {
                    let piece = self.decode_piece(chunk).await?;
                    if !piece.is_empty() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
        Ok(None)
    }
}

impl Chunked {
    pub(super) fn new(
        body: Body,
        announced: u64,
        chain: Option<Box<SignatureChain>>,
        trailers: Option<Trailers>,
    ) -> Self {
        Self {
            body,
            buffer: Bytes::new(),
            chain,
            trailers,
            announced,
            decoded: 0,
            chunk: None,
            chunks: 0,
            size_before: CHUNK_BYTES_MIN,
            has_ended: false,
        }
    }

    /// Reads a chunk header and, if the chunk is the last one, the rest of the body.
    async fn begin_chunk(&mut self) -> S3Result<()> {
        let line = self.read_line().await?;
        let (size, signature) = match line.split_once(';') {
            Some((size, extension)) => {
                (size, extension.strip_prefix("chunk-signature=").ok_or_else(malformed_body)?)
            }
            None => (line.as_str(), ""),
        };
        let is_right = match self.chain {
            Some(_) => is_signature(signature),
            None => signature.is_empty(),
        };
        if !is_right {
            return Err(malformed_body());
        }
        let is_hex = (1..=16).contains(&size.len()) && size.bytes().all(|digit| digit.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| is_hex).ok_or_else(malformed_body)?;
        self.chunks += 1;
        if size > 0 && self.size_before < CHUNK_BYTES_MIN {
            return Err(too_small(self.chunks - 1, self.size_before));
        }
        let digest = digest::Context::new(&digest::SHA256);
        let chunk = Chunk { size, left: size, signature: signature.to_owned(), digest };
        if size == 0 {
            self.check_signature(chunk)?;
            return self.finish().await;
        }
        self.size_before = size;
        self.chunk = Some(chunk);
        Ok(())
    }

    /// Decodes some bytes of a chunk. Bytes beyond the declared length are counted and dropped.
    async fn decode_piece(&mut self, mut chunk: Chunk) -> S3Result<Bytes> {
        if !self.fill().await? {
            return Err(malformed_body());
        }
        let len = usize::try_from(chunk.left).unwrap_or(usize::MAX).min(self.buffer.len());
        let mut piece = self.buffer.split_to(len);
        if self.chain.is_some() {
            chunk.digest.update(&piece);
        }
        chunk.left -= len as u64;
        self.chunk = Some(chunk);
        let room = usize::try_from(self.announced.saturating_sub(self.decoded)).unwrap_or(usize::MAX);
        self.decoded += len as u64;
        piece.truncate(room);
        Ok(piece)
    }

    /// Reads the line break behind a chunk, and checks the length so far and the chunk's signature.
    async fn end_chunk(&mut self, chunk: Chunk) -> S3Result<()> {
        for expected in *b"\r\n" {
            if self.read_byte().await? != Some(expected) {
                return Err(malformed_body());
            }
        }
        if self.decoded > self.announced {
            return Err(crate::error::incomplete());
        }
        self.check_signature(chunk)
    }

    fn check_signature(&mut self, chunk: Chunk) -> S3Result<()> {
        let Some(chain) = &mut self.chain else { return Ok(()) };
        let data = match chunk.size {
            0 => sha256(b""),
            _ => hex(chunk.digest.finish().as_ref()),
        };
        chain.check("PAYLOAD", &format!("{}\n{data}", sha256(b"")), &chunk.signature)
    }

    /// Reads the trailers, to the end of the body, and checks the length of the whole body.
    async fn finish(&mut self) -> S3Result<()> {
        let mut rest = BytesMut::new();
        while self.fill().await? {
            rest.extend_from_slice(&std::mem::take(&mut self.buffer));
            if rest.len() > TRAILERS_BYTES_MAX {
                return Err(malformed_trailer());
            }
        }
        let rest = String::from_utf8(rest.to_vec()).map_err(|_| malformed_trailer())?;
        let lines = rest.strip_suffix("\r\n").ok_or_else(malformed_body)?;
        self.has_ended = true;
        match self.trailers.take() {
            None if lines.is_empty() => {}
            None => return Err(malformed_body()),
            Some(trailers) => self.parse_trailers(lines, &trailers)?,
        }
        if self.decoded == self.announced { Ok(()) } else { Err(crate::error::incomplete()) }
    }

    fn parse_trailers(&mut self, lines: &str, expected: &Trailers) -> S3Result<()> {
        if !lines.is_empty() && !lines.ends_with('\n') {
            return Err(malformed_body());
        }
        let lines = lines.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let mut found: Vec<(String, &str)> = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(malformed_trailer)?;
            found.push((name.trim().to_ascii_lowercase(), value.trim()));
        }
        let signature = found.iter().position(|(name, _)| name == "x-amz-trailer-signature");
        let signature = signature.map(|at| found.remove(at).1);
        if self.chain.is_some() && !signature.is_some_and(is_signature) {
            return Err(malformed_body());
        }
        match (&expected.name, found.as_slice()) {
            (None, []) => {}
            (Some(name), [(given, value)]) if name == given => expected.found.set((*value).to_owned()),
            _ => return Err(malformed_trailer()),
        }
        if let (Some(chain), Some(signature)) = (&mut self.chain, signature) {
            let text: String = found.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            chain.check("TRAILER", &sha256(text.as_bytes()), signature)?;
        }
        Ok(())
    }

    /// Reads a line and removes its line break.
    async fn read_line(&mut self) -> S3Result<String> {
        let mut line = Vec::new();
        while line.len() <= LINE_BYTES_MAX {
            line.push(self.read_byte().await?.ok_or_else(malformed_body)?);
            if let Some(whole) = line.strip_suffix(b"\r\n") {
                return String::from_utf8(whole.to_vec()).map_err(|_| malformed_body());
            }
        }
        Err(malformed_body())
    }

    async fn read_byte(&mut self) -> S3Result<Option<u8>> {
        let has_more = self.fill().await?;
        Ok(has_more.then(|| self.buffer.split_to(1)[0]))
    }

    /// Makes sure that the buffer is not empty. Returns false at the end of the body.
    async fn fill(&mut self) -> S3Result<bool> {
        while self.buffer.is_empty() {
            match self.body.next().await {
                None => return Ok(false),
                Some(piece) => self.buffer = piece.map_err(body_error)?,
            }
        }
        Ok(true)
    }
}

fn is_signature(text: &str) -> bool {
    text.len() == SIGNATURE_CHARS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns the error for a body that ends early or violates the encoding.
fn malformed_body() -> S3Error {
    s3_error!(IncompleteBody, "The request body terminated unexpectedly")
}

fn malformed_trailer() -> S3Error {
    let message = "The request contained trailing data that was not well-formed or did not conform to our published schema.";
    custom("MalformedTrailerError", http::StatusCode::BAD_REQUEST, message)
}

fn too_small(chunk: u64, size: u64) -> S3Error {
    let message = "Only the last chunk is allowed to have a size less than 8192 bytes";
    let error = custom("InvalidChunkSizeError", http::StatusCode::BAD_REQUEST, message);
    with_details(error, &[("Chunk", &chunk.to_string()), ("BadChunkSize", &size.to_string())])
}
