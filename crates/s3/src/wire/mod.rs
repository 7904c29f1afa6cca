//! The layer between an HTTP connection and `s3s`.
//!
//! Owns the forms of requests: signatures, the framing of bodies (plain, hashed, in chunks, as a browser's form), and
//! the many ways in which clients write headers. `s3s` gets requests in one plain form.
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
mod signing_key;
mod verifier;

use futures_util::StreamExt as _;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Uri};
use s3s::auth::Credentials;
use s3s::{Body, S3Result};
use std::sync::{Arc, OnceLock};

use crate::addressing::Resource;
use crate::operations;

pub(crate) use document::{BYTES_MAX as DOCUMENT_BYTES_MAX, BucketTags};
pub(crate) use hoisted::unhoist;
pub(crate) use normalize::{EXPIRES, check_head};
pub(crate) use post_object::{is_form_post, read as read_form_post};
pub(crate) use verifier::Verifier;

/// How much of an unneeded body is read and discarded, in bytes.
const DRAIN_BYTES_MAX: usize = 1 << 20;

/// The access key that signed a request, among the request's extensions. `s3s` passes it on to the operations.
#[derive(Debug, Clone)]
pub(crate) struct Signer(pub(crate) String);

impl Signer {
    /// Returns extensions with the signer, if the request is signed.
    pub(crate) fn extension(signer: Option<&Credentials>) -> http::Extensions {
        let mut extensions = http::Extensions::new();
        if let Some(signer) = signer {
            extensions.insert(Self(signer.access_key.clone()));
        }
        extensions
    }

    /// Returns the access key that signed a request; `None` if it is unsigned.
    pub(crate) fn of(extensions: &http::Extensions) -> Option<&str> {
        extensions.get::<Self>().map(|signer| signer.0.as_str())
    }
}

/// The checksum in a body's trailer, available once the body was read to its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trailer(Arc<OnceLock<String>>);

impl Trailer {
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Whether a request copies an object or a part of one.
pub(crate) fn is_copy(head: &Parts) -> bool {
    head.headers.contains_key("x-amz-copy-source")
}

/// Whether the body of a request is a document about an existing bucket or object.
pub(crate) fn has_document(head: &Parts) -> bool {
    operations::has_document_body(&head.method, head.uri.query().unwrap_or_default())
}

/// Whether the body of a request is read before `s3s` sees the request.
pub(crate) fn is_body_read_first(head: &Parts, resource: &Resource) -> bool {
    has_document(head) || is_create_bucket(head, resource)
}

/// Whether a request is CreateBucket.
fn is_create_bucket(head: &Parts, resource: &Resource) -> bool {
    head.method == Method::PUT && resource.is_bucket() && !has_document(head)
}

/// Converts a request to the plain form: its body without framing, its headers as `s3s` parses them, its signer among
/// its extensions.
pub(crate) async fn to_plain(
    mut head: Parts,
    body: Body,
    resource: &Resource,
    signer: Option<&Credentials>,
) -> S3Result<Request<Body>> {
    let framing = framing::Framing::of(&head, &body, signer)?;
    let is_create_bucket = is_create_bucket(&head, resource);
    let is_document = is_create_bucket || has_document(&head);
    if is_document {
        framing.check_unchunked()?;
    }
    let length = framing.length();
    let trailer = framing.trailer();
    let mut body = framing.decode(body);
    if is_document {
        body = document::read(&head, body).await?;
    }
    if is_create_bucket && let Some(tags) = document::parse_bucket_tags(&body.bytes().unwrap_or_default())? {
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
    head.extensions.extend(signer_and_trailer(signer, trailer));
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

fn signer_and_trailer(signer: Option<&Credentials>, trailer: Option<Trailer>) -> http::Extensions {
    let mut extensions = Signer::extension(signer);
    if let Some(trailer) = trailer {
        extensions.insert(trailer);
    }
    extensions
}

/// The query parameters of presigned URLs, of both signature versions.
const SIGNATURE_PARAMETERS: [&str; 10] = [
    "AWSAccessKeyId",
    "Expires",
    "Signature",
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// Returns a URL without its signature, which `s3s` would verify against the rewritten request, and refuse.
pub(crate) fn without_signature(uri: &Uri) -> Uri {
    let Some(query) = uri.query() else { return uri.clone() };
    let name = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned()
    };
    let rest: Vec<&str> =
        query.split('&').filter(|word| !SIGNATURE_PARAMETERS.contains(&name(word).as_str())).collect();
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
