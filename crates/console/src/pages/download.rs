//! Downloads. The bytes are streamed, and never shown as a page of the console.

use crate::objects::ObjectName;
use crate::pages::visit::Visit;
use crate::reply::{Failure, Reply};
use crate::request::PageRequest;
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Headers of the request that are passed to the endpoint.
const ASKED: [HeaderName; 6] =
    [RANGE, IF_RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
/// Headers of the endpoint's response that are passed to the browser.
const ANSWERED: [HeaderName; 5] = [CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, ACCEPT_RANGES];
/// ASCII characters of a file name that are percent-encoded in a header: all but letters, digits and `-_.~`, which are
/// allowed there (RFC 8187, `attr-char`).
const FILE_NAME: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Sends the bytes of an object, or of a range of it, as a file to save.
pub(crate) async fn send(visit: &Visit, request: &PageRequest) -> Result<Reply, Failure> {
    let query = &request.query;
    let (bucket, key, version) = (query.text("bucket"), query.text("key"), query.non_empty("version"));
    let headers = pick(&request.headers, &ASKED);
    let read = visit.objects().read(ObjectName { bucket, key, version }, headers).await?;
    let (head, body) = read.into_parts();
    let mut reply = Reply::new(body);
    *reply.status_mut() = head.status;
    let headers = reply.headers_mut();
    *headers = pick(&head.headers, &ANSWERED);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    headers.insert(CONTENT_DISPOSITION, disposition(key));
    Ok(reply)
}

/// Returns the headers that have one of these names.
fn pick(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let found = names.iter().filter_map(|name| Some((name.clone(), headers.get(name)?.clone())));
    found.collect()
}

/// Returns the value of `Content-Disposition` that names the saved file after the last part of a key.
fn disposition(key: &str) -> HeaderValue {
    let name = key.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name = if name.is_empty() { "object" } else { name };
    let text = format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(name, &FILE_NAME));
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("attachment"))
}
