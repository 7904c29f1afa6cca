//! The framing of a body, declared by `x-amz-content-sha256`: plain, hashed or in chunks.

use aws_lc_rs::digest;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap};
use http::request::Parts;
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use s3s::auth::Credentials;
use s3s::{Body, S3Error, S3Result, StdError, s3_error};

use super::chunked::{Chunked, SignatureChain, Trailers};
use super::signing_key::{Scope, is_equal_constant_time};
use crate::checksums::Trailer;
use crate::error::{body_error, custom};
use crate::error_document::with_details;
use crate::headers;
use store::hex;

/// A body's framing.
pub(crate) enum Framing {
    Plain,
    /// The body's SHA-256 in hexadecimal.
    Hashed(String),
    /// Chunks, with the length of the decoded body in bytes.
    Chunked {
        length: u64,
        chain: Option<Box<SignatureChain>>,
        trailers: Option<Trailers>,
    },
}

impl Framing {
    /// Determines the framing from the headers of a request whose signature was verified.
    pub(crate) fn of(head: &Parts, body: &Body, signer: Option<&Credentials>) -> S3Result<Self> {
        let text = |name: &str| headers::text(&head.headers, name);
        let kind = text("x-amz-content-sha256").unwrap_or_default();
        let Some(kind) = kind.strip_prefix("STREAMING-") else {
            if !head.headers.contains_key(CONTENT_LENGTH) && body.size_hint().exact().is_none() {
                return Err(missing_length());
            }
            let is_hash = kind.len() == 64 && kind.bytes().all(|digit| digit.is_ascii_hexdigit());
            return Ok(if is_hash { Self::Hashed(kind.to_ascii_lowercase()) } else { Self::Plain });
        };
        let length = decoded_length(&head.headers)?;
        let chain = match kind.strip_prefix("AWS4-HMAC-SHA256-PAYLOAD") {
            Some(_) => Some(Box::new(signature_chain(head, signer)?)),
            None if kind == "UNSIGNED-PAYLOAD-TRAILER" => None,
            None => return Err(invalid_payload_hash()),
        };
        let trailers = match kind.strip_suffix("-TRAILER") {
            Some(_) => Some(Trailers { name: announced_trailer(head)?, found: Trailer::default() }),
            None => None,
        };
        Ok(Self::Chunked { length, chain, trailers })
    }

    /// Refuses chunked framing, which documents must not have.
    pub(super) fn check_unchunked(&self) -> S3Result<()> {
        match self {
            Self::Chunked { .. } => Err(invalid_payload_hash()),
            _ => Ok(()),
        }
    }

    /// Returns the length of the decoded body, if it differs from the request's length.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Chunked { length, .. } => Some(*length),
            _ => None,
        }
    }

    pub(super) fn trailer(&self) -> Option<Trailer> {
        match self {
            Self::Chunked { trailers: Some(trailers), .. } => Some(trailers.found.clone()),
            _ => None,
        }
    }

    /// Decodes the body.
    pub(super) fn decode(self, body: Body) -> Body {
        match self {
            Self::Plain => body,
            Self::Hashed(expected) => {
                let digest = Some(digest::Context::new(&digest::SHA256));
                streamed(HashedBody { body, digest, expected })
            }
            Self::Chunked { length, chain, trailers } => {
                streamed(Chunked::new(body, length, chain, trailers))
            }
        }
    }
}

/// A source of the pieces of a body.
pub(super) trait PieceSource: Send + 'static {
    /// Returns the next piece; `None` at the end.
    fn next(&mut self) -> impl Future<Output = S3Result<Option<Bytes>>> + Send;
}

/// Returns a body of the pieces of a source.
pub(super) fn streamed(source: impl PieceSource) -> Body {
    let pieces = futures_util::stream::try_unfold(source, |mut source| async move {
        let piece = source.next().await?;
        Ok::<_, S3Error>(piece.map(|piece| (Frame::data(piece), source)))
    });
    Body::http_body_unsync(StreamBody::new(pieces.map_err(StdError::from)))
}

/// A body that must match a hash given in advance.
struct HashedBody {
    body: Body,
    /// `None` once the body has ended.
    digest: Option<digest::Context>,
    /// The given hash, in hexadecimal.
    expected: String,
}

impl PieceSource for HashedBody {
    async fn next(&mut self) -> S3Result<Option<Bytes>> {
        let Some(digest) = &mut self.digest else { return Ok(None) };
        if let Some(piece) = self.body.next().await {
            let piece = piece.map_err(body_error)?;
            digest.update(&piece);
            return Ok(Some(piece));
        }
        let found = self.digest.take().map(|digest| hex(digest.finish().as_ref())).unwrap_or_default();
        if is_equal_constant_time(&found, &self.expected) {
            return Ok(None);
        }
        let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
        let error = custom("XAmzContentSHA256Mismatch", http::StatusCode::BAD_REQUEST, message);
        let (given, found) = (self.expected.as_str(), found.as_str());
        Err(with_details(
            error,
            &[("ClientComputedContentSHA256", given), ("S3ComputedContentSHA256", found)],
        ))
    }
}

/// Returns the chain of chunk signatures, which begins with the signature of the request's headers.
fn signature_chain(head: &Parts, signer: Option<&Credentials>) -> S3Result<SignatureChain> {
    let text = |name: &str| headers::text(&head.headers, name);
    let part = |name: &str| {
        let (_, rest) = text(AUTHORIZATION.as_str())?.split_once(name)?;
        Some(rest.split([',', ' ']).next().unwrap_or_default())
    };
    let scope = part("Credential=").and_then(Scope::of);
    let (Some(signer), Some(scope), Some(seed)) = (signer, scope, part("Signature=")) else {
        return Err(s3_error!(
            InvalidRequest,
            "Anonymous requests don't support this x-amz-content-sha256 value. Please use UNSIGNED-PAYLOAD or STREAMING-UNSIGNED-PAYLOAD-TRAILER."
        ));
    };
    let key = scope.key(signer.secret_key.expose());
    Ok(SignatureChain::new(key, text("x-amz-date").unwrap_or_default(), scope, seed))
}

/// Returns the name of the trailer that the request announces; `None` if it announces none. Only checksums are allowed.
fn announced_trailer(head: &Parts) -> S3Result<Option<String>> {
    let Some(value) = head.headers.get("x-amz-trailer") else { return Ok(None) };
    let name = value.to_str().unwrap_or_default().trim().to_ascii_lowercase();
    if name.is_empty() {
        return Ok(None);
    }
    if !name.starts_with("x-amz-checksum-") {
        return Err(s3_error!(
            InvalidRequest,
            "The value specified in the x-amz-trailer header is not supported"
        ));
    }
    Ok(Some(name))
}

/// Returns the declared length of the decoded body.
fn decoded_length(headers: &HeaderMap) -> S3Result<u64> {
    let length =
        headers.get("x-amz-decoded-content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    length.ok_or_else(missing_length)
}

/// Refuses a chunked body without a decoded length. Runs before authentication.
pub(super) fn check(headers: &HeaderMap) -> S3Result<()> {
    let kind = headers.get("x-amz-content-sha256");
    match kind.is_some_and(|kind| kind.as_bytes().starts_with(b"STREAMING-")) {
        true => decoded_length(headers).map(drop),
        false => Ok(()),
    }
}

fn missing_length() -> S3Error {
    s3_error!(MissingContentLength, "You must provide the Content-Length HTTP header.")
}

fn invalid_payload_hash() -> S3Error {
    s3_error!(InvalidRequest, "The value of x-amz-content-sha256 header is invalid.")
}
