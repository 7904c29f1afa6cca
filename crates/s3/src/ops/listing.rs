//! ListObjects and ListObjectsV2.

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use quick_xml::escape::escape;
use s3s::dto::{self, EncodingType};
use s3s::{S3Result, s3_error};
use store::ListEntry;

use crate::bucket::Bucket;
use crate::ops::contents_xml::ContentsXml;
use crate::pagination::{self, Page, PageRequest};

/// Characters that `encoding-type=url` leaves unencoded.
const UNENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/');

/// The encoding of keys in a response: some bytes cannot be represented in XML.
#[derive(Clone, Copy)]
pub(crate) struct Encoding(bool);

impl Encoding {
    pub(crate) fn of(asked: Option<&EncodingType>) -> S3Result<Self> {
        match asked.map(EncodingType::as_str) {
            None | Some("") => Ok(Self(false)),
            Some("url") => Ok(Self(true)),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    /// Returns a key or prefix as a listing with this encoding shows it.
    pub(crate) fn text(self, bytes: &[u8]) -> String {
        match self.0 {
            true => percent_encode(bytes, UNENCODED).to_string(),
            false => String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    /// Appends bytes to a document.
    pub(crate) fn push(self, document: &mut String, bytes: &[u8]) {
        match self.0 {
            true => document.extend(percent_encode(bytes, UNENCODED)),
            false => document.push_str(&escape(String::from_utf8_lossy(bytes))),
        }
    }

    /// Encodes a request's prefix or marker. The response has the element even if the request did not give it.
    fn echo(self, text: Option<String>) -> Option<String> {
        self.string(Some(text.unwrap_or_default()))
    }

    fn string(self, text: Option<String>) -> Option<String> {
        text.map(|text| self.text(text.as_bytes()))
    }
}

/// Returns a page's common prefixes.
fn prefixes(page: &Page, encoding: Encoding) -> Option<Vec<dto::CommonPrefix>> {
    let prefixes = page.entries.iter().filter_map(|entry| match entry {
        ListEntry::Prefix(prefix) => Some(dto::CommonPrefix { prefix: Some(encoding.text(prefix)) }),
        ListEntry::Object(_) => None,
    });
    non_empty(prefixes.collect())
}

pub(crate) fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Lists objects as ListObjects (version 1) does.
pub(crate) async fn v1(
    bucket: &Bucket,
    owner: &dto::Owner,
    input: dto::ListObjectsInput,
) -> S3Result<(dto::ListObjectsOutput, ContentsXml)> {
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let limit = pagination::limit(input.max_keys, "max-keys")?;
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let page_request = PageRequest {
        prefix: Bytes::from(input.prefix.clone().unwrap_or_default()),
        delimiter: delimiter.clone(),
        after: input.marker.clone().filter(|marker| !marker.is_empty()).map(Bytes::from),
        limit,
        ..PageRequest::default()
    };
    let page = pagination::page(bucket.store.as_ref(), &page_request).await?;
    let output = dto::ListObjectsOutput {
        name: Some(bucket.name.clone()),
        prefix: encoding.echo(input.prefix),
        marker: encoding.echo(input.marker),
        max_keys: i32::try_from(limit).ok(),
        is_truncated: Some(page.is_truncated),
        // S3 sends the marker only with a delimiter, and clients otherwise continue after the last key. Here it is
        // always sent.
        next_marker: page.last().filter(|_| page.is_truncated).map(|last| encoding.text(last)),
        common_prefixes: prefixes(&page, encoding),
        delimiter: encoding.string(delimiter),
        encoding_type: input.encoding_type,
        ..Default::default()
    };
    Ok((output, ContentsXml::of(&page, encoding, Some(owner))))
}

/// Lists objects, with their attributes if `with_attributes` is set: the parameter `metadata=true` of MinIO, which saves clients
/// a HEAD of each object.
pub(crate) async fn v2(
    bucket: &Bucket,
    owner: &dto::Owner,
    input: dto::ListObjectsV2Input,
    with_attributes: bool,
) -> S3Result<(dto::ListObjectsV2Output, ContentsXml)> {
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let limit = pagination::limit(input.max_keys, "max-keys")?;
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let starts = input.continuation_token.is_none();
    let after = match &input.continuation_token {
        Some(token) => Some(from_token(&bucket.name, token)?),
        None => input.start_after.clone().filter(|after| !after.is_empty()).map(Bytes::from),
    };
    let page_request = PageRequest {
        prefix: Bytes::from(input.prefix.clone().unwrap_or_default()),
        delimiter: delimiter.clone(),
        after,
        includes_start_prefix: starts,
        limit,
        with_attributes,
    };
    let page = pagination::page(bucket.store.as_ref(), &page_request).await?;
    let owner = input.fetch_owner.unwrap_or(false).then_some(owner);
    let output = dto::ListObjectsV2Output {
        name: Some(bucket.name.clone()),
        prefix: encoding.echo(input.prefix),
        max_keys: i32::try_from(limit).ok(),
        key_count: i32::try_from(page.entries.len()).ok(),
        continuation_token: input.continuation_token,
        is_truncated: Some(page.is_truncated),
        next_continuation_token: page
            .last()
            .filter(|_| page.is_truncated)
            .map(|last| to_token(&bucket.name, last)),
        common_prefixes: prefixes(&page, encoding),
        delimiter: encoding.string(delimiter),
        encoding_type: input.encoding_type,
        start_after: encoding.string(input.start_after),
        ..Default::default()
    };
    Ok((output, ContentsXml::of(&page, encoding, owner)))
}

/// The length of the checksum at the beginning of a token, in bytes.
const TOKEN_CHECKSUM_BYTES: usize = 4;

/// Encodes the end of a page as a token, which is opaque, in ASCII, and valid for one bucket.
fn to_token(bucket: &str, last: &[u8]) -> String {
    use base64::Engine as _;
    let token = [&token_checksum(bucket, last)[..], last].concat();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token)
}

/// Decodes a token. Refuses a token whose checksum is wrong, such as one of another bucket.
fn from_token(bucket: &str, token: &str) -> S3Result<Bytes> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    match bytes.split_at_checked(TOKEN_CHECKSUM_BYTES) {
        Some((check, last)) if !last.is_empty() && check == token_checksum(bucket, last) => {
            Ok(Bytes::copy_from_slice(last))
        }
        _ => Err(s3_error!(InvalidArgument, "The continuation token provided is incorrect")),
    }
}

/// Returns the checksum of a continuation token, which ties it to its bucket.
fn token_checksum(bucket: &str, last: &[u8]) -> [u8; TOKEN_CHECKSUM_BYTES] {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(bucket.as_bytes());
    digest.update(b"/");
    digest.update(last);
    let whole = digest.finalize().to_be_bytes();
    [whole[4], whole[5], whole[6], whole[7]]
}
