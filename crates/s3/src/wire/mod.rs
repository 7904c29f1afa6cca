//! The layer between an HTTP connection and `s3s`.
//!
//! Owns the forms of requests: signatures, the framing of bodies (plain, hashed, in chunks, as a browser's form), and
//! the many ways in which clients write headers. `s3s` gets requests in one plain form. Also makes presigned URLs.
//!
//! Refuses: to change a request before the signature over its received form is verified; to hold a body, except a
//! document.
//!
//! Invariants: what `s3s` reads has the meaning of what was signed; a body that violates its framing ends in an error,
//! never in a premature end.

mod chunked;
mod document;
mod form;
mod framing;
mod hoisted;
mod normalize;
mod post_object;
mod post_policy;
mod presigned_url;
mod signing_key;
mod verifier;

use futures_util::StreamExt as _;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Request, Uri};
use s3s::{Body, S3Result};

use crate::operations::{BodyKind, Operation};
use hoisted::SIGNATURE_PARAMETERS;

pub(crate) use document::BucketTags;
pub(crate) use framing::Framing;
pub(crate) use hoisted::unhoist;
pub(crate) use normalize::check_head;
pub(crate) use post_object::{FormPost, FormResponse, read as read_form};
pub(crate) use presigned_url::presigned_url;
pub(crate) use verifier::Verifier;

/// The number of bytes after which no more of an unneeded body is read and discarded.
const DRAIN_BYTES_MAX: usize = 1 << 20;

/// Converts a request to the plain form: its body without framing, its headers as `s3s` parses them. A document is read
/// whole.
pub(crate) async fn to_plain(
    mut head: Parts,
    body: Body,
    operation: &Operation,
    framing: Framing,
) -> S3Result<Request<Body>> {
    if operation.has_document() {
        framing.check_unchunked()?;
    }
    let length = framing.length();
    if let Some(trailer) = framing.trailer() {
        head.extensions.insert(trailer);
    }
    let mut body = framing.decode(body);
    if let BodyKind::Document { bytes_max } = operation.body {
        body = document::read(&head, body, operation, bytes_max).await?;
    }
    if operation.is_create_bucket()
        && let Some(tags) = document::parse_bucket_tags(&body.bytes().unwrap_or_default())?
    {
        head.extensions.insert(tags);
    }
    if let Err(error) = normalize::normalize(&mut head) {
        drain(body).await;
        return Err(error);
    }
    if let Some(length) = length {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    head.headers.remove("x-amz-decoded-content-length");
    head.headers.remove(AUTHORIZATION);
    head.uri = without_signature(&head.uri);
    Ok(Request::from_parts(head, body))
}

/// Reads and discards the rest of a short body, so that a client that is still sending gets the response before the
/// connection ends.
async fn drain(mut body: Body) {
    let mut read = 0;
    while read < DRAIN_BYTES_MAX
        && let Some(Ok(piece)) = body.next().await
    {
        read += piece.len();
    }
}

/// The query parameters of presigned URLs of signature version 2.
const V2_PARAMETERS: [&str; 3] = ["AWSAccessKeyId", "Expires", "Signature"];

/// Returns a URL without its signature, which `s3s` would verify against the rewritten request, and refuse.
fn without_signature(uri: &Uri) -> Uri {
    let Some(query) = uri.query() else { return uri.clone() };
    let name = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned()
    };
    let is_signature = |name: &str| SIGNATURE_PARAMETERS.contains(&name) || V2_PARAMETERS.contains(&name);
    let rest: Vec<&str> = query.split('&').filter(|word| !is_signature(&name(word))).collect();
    let target = match rest.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), rest.join("&")),
    };
    let mut parts = uri.clone().into_parts();
    match target.parse() {
        Ok(target) => parts.path_and_query = Some(target),
        Err(_) => return uri.clone(),
    }
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}
