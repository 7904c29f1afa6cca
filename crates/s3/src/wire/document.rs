//! Requests whose body is a document: read whole, and verified against the declared digests before it is parsed.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::request::Parts;
use s3s::dto::{Tag, Tagging};
use s3s::{Body, S3Error, S3Result, s3_error};

use crate::checksum_elements;
use crate::checksums::{self, Declared, Digests};
use crate::error::{body_error, malformed_xml};
use crate::error_document::with_details;
use crate::headers;
use crate::operations::{Mutation, Operation};

/// Reads a document. `MaxMessageLengthExceeded` if it is too long, `BadDigest` if it does not match its declared
/// digests.
pub(super) async fn read(
    head: &Parts,
    mut body: Body,
    operation: &Operation,
    bytes_max: usize,
) -> S3Result<Body> {
    let is_completion = operation.mutation == Some(Mutation::Complete);
    let mut digests = Digests::begin(declared_digests(head, is_completion)?, None)?;
    let mut text = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece: Bytes = piece.map_err(body_error)?;
        if text.len() + piece.len() > bytes_max {
            return Err(too_long(bytes_max));
        }
        digests.update(&piece);
        text.extend_from_slice(&piece);
    }
    digests.finish()?;
    if is_completion && let Ok(xml) = std::str::from_utf8(&text) {
        return Ok(Body::from(checksum_elements::to_carriers(xml)));
    }
    Ok(Body::from(text.freeze()))
}

/// Returns the digests that the headers declare for a document. The checksum headers of CompleteMultipartUpload
/// describe the object instead.
fn declared_digests(head: &Parts, is_completion: bool) -> S3Result<Declared> {
    let md5 = headers::text(&head.headers, "content-md5").map(str::to_owned);
    let checksum = match is_completion {
        true => None,
        false => checksums::single_checksum_with_headers(Vec::new(), &head.headers)?,
    };
    Ok(Declared { md5, checksum, ..Declared::default() })
}

/// Parses the tags of a `Tagging` document.
pub(super) fn parse_tags(xml: &str) -> S3Result<Vec<Tag>> {
    let mut reader = s3s::xml::Deserializer::new(xml.as_bytes());
    let tagging = <Tagging as s3s::xml::Deserialize>::deserialize(&mut reader);
    tagging.map(|tagging| tagging.tag_set).map_err(|_| malformed_xml())
}

/// Parses the tags in a CreateBucket document, which `s3s` ignores; `None` if it has none.
pub(super) fn parse_bucket_tags(xml: &[u8]) -> S3Result<Option<BucketTags>> {
    let xml = String::from_utf8_lossy(xml);
    let inside = xml.split_once("<Tags>").and_then(|(_, rest)| rest.split_once("</Tags>"));
    let Some((inside, _)) = inside else { return Ok(None) };
    parse_tags(&format!("<Tagging><TagSet>{inside}</TagSet></Tagging>")).map(|tags| Some(BucketTags(tags)))
}

/// The tags of a new bucket, among the extensions of its request.
#[derive(Debug, Clone)]
pub(crate) struct BucketTags(pub(crate) Vec<Tag>);

fn too_long(bytes_max: usize) -> S3Error {
    let error = s3_error!(MaxMessageLengthExceeded, "Your request was too big.");
    with_details(error, &[("MaxMessageLengthBytes", &bytes_max.to_string())])
}
