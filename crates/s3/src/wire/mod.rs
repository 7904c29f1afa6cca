//! What stands between a connection and the protocol layer.
//!
//! Owns the form of requests: signatures, how a body is framed (hashed, in signed chunks, as a browser's form), and the
//! many ways in which clients write a header. The protocol layer reads requests that are plain already.
//!
//! Refuses: to change anything before the signature over the request as it came was checked; to hold a body, other than
//! a document's.
//!
//! Invariants: what the protocol layer reads is what was signed, said otherwise; a body that is not what its framing
//! says ends in an error, never early.

mod chunked;
mod copy_source;
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

use crate::addressing::Named;
use crate::operation_table;

pub(crate) use document::{BYTES_MAX as DOCUMENT_BYTES_MAX, BucketTags};
pub(crate) use hoisted::unhoist;
pub(crate) use normalize::{EXPIRES, check as check_form};
pub(crate) use post_object::{is_post, read as read_post};
pub(crate) use verifier::Verifier;

/// The most that is read of a body that counts for nothing.
const LEFT_BYTES_MAX: usize = 1 << 20;

/// Who signed a request. The protocol layer hands it on among the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Signer(pub(crate) String);

impl Signer {
    /// The extension that says who signed a request, if anybody did.
    pub(crate) fn extension(signer: Option<&Credentials>) -> http::Extensions {
        let mut extensions = http::Extensions::new();
        if let Some(signer) = signer {
            extensions.insert(Self(signer.access_key.clone()));
        }
        extensions
    }

    /// The access key of who signed, or nobody's.
    pub(crate) fn of(extensions: &http::Extensions) -> Option<&str> {
        extensions.get::<Self>().map(|signer| signer.0.as_str())
    }
}

/// The checksum that came after a body, once the body was read to its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trailer(Arc<OnceLock<String>>);

impl Trailer {
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Whether a request copies an object, or a part of one.
pub(crate) fn copies(head: &Parts) -> bool {
    head.headers.contains_key("x-amz-copy-source")
}

/// Whether a request sets something of a bucket or an object that is there, by a document.
pub(crate) fn brings_document(head: &Parts) -> bool {
    operation_table::is_document(&head.method, head.uri.query().unwrap_or_default())
}

/// Whether a request's body is read before the protocol layer sees the request.
pub(crate) fn reads_body_first(head: &Parts, named: &Named) -> bool {
    brings_document(head) || makes_bucket(head, named)
}

/// Whether a request is CreateBucket.
fn makes_bucket(head: &Parts, named: &Named) -> bool {
    head.method == Method::PUT && named.is_bucket() && !brings_document(head)
}

/// A request in its plain form: its body without framing, its headers as the protocol layer reads them, its signer among
/// its extensions.
pub(crate) async fn plain(
    mut head: Parts,
    body: Body,
    named: &Named,
    signer: Option<&Credentials>,
) -> S3Result<Request<Body>> {
    let framing = framing::Framing::of(&head, &body, signer)?;
    let makes_bucket = makes_bucket(&head, named);
    let is_document = makes_bucket || brings_document(&head);
    if is_document {
        framing.must_be_whole()?;
    }
    let length = framing.length();
    let trailer = framing.trailer();
    let mut body = framing.open(body);
    if is_document {
        body = document::read(&head, body).await?;
    }
    if makes_bucket && let Some(tags) = document::bucket_tags(&body.bytes().unwrap_or_default())? {
        head.extensions.insert(tags);
    }
    if let Err(error) = normalize::rewrite(&mut head) {
        leave(body).await;
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

/// Reads what a client is still sending of a short body, so that it hears the answer before the connection ends.
async fn leave(mut body: Body) {
    let mut read = 0;
    while read < LEFT_BYTES_MAX
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

/// The words of a presigned URL, of either version of signatures.
const SIGNATURE_WORDS: [&str; 10] = [
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

/// The protocol layer would check the signature of what is no longer as it was signed.
pub(crate) fn without_signature(uri: &Uri) -> Uri {
    let Some(query) = uri.query() else { return uri.clone() };
    let name = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned()
    };
    let rest: Vec<&str> =
        query.split('&').filter(|word| !SIGNATURE_WORDS.contains(&name(word).as_str())).collect();
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
