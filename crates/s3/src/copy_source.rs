//! The header `x-amz-copy-source`: `bucket/key`, percent-encoded, optionally with `?versionId=`.

use http::HeaderMap;
use s3s::dto::CopySource;
use s3s::{S3Error, S3Result, s3_error};
use store::ObjectKey;

use crate::bucket::key;
use crate::error::invalid_argument;
use crate::headers;

const NAME: &str = "x-amz-copy-source";

/// Parses the header as `s3s` does. `InvalidArgument` if it names no object.
pub(crate) fn parse(headers: &HeaderMap) -> S3Result<CopySource> {
    let invalid = |message: &str, shown: &str| -> S3Error { invalid_argument(message, NAME, shown) };
    let text = headers::text(headers, NAME);
    let text = text.ok_or_else(|| invalid("Invalid copy source encoding", ""))?;
    let path = text.split_once("?versionId=").map_or(text, |(path, _)| path);
    let decoded = decoded(path).ok_or_else(|| invalid("Invalid copy source encoding", text))?;
    let path = decoded.strip_prefix('/').unwrap_or(&decoded);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if !path.starts_with("arn:") && !s3s::path::check_bucket_name(bucket) {
        return Err(invalid("Invalid copy source bucket name", text));
    }
    if !path.starts_with("arn:") && key.is_empty() {
        return Err(invalid("Invalid copy source object key", key));
    }
    CopySource::parse(text).map_err(|_| invalid("Invalid copy source encoding", text))
}

/// Returns the bucket, the key and the version of a copy source. Access points are not implemented.
pub(crate) fn parts(source: &CopySource) -> S3Result<(&str, ObjectKey, Option<&str>)> {
    match source {
        CopySource::Bucket { bucket, key: name, version_id } => {
            Ok((bucket, key(name)?, version_id.as_deref()))
        }
        _ => Err(s3_error!(NotImplemented, "An access point as a source is not implemented here")),
    }
}

/// Percent-decodes a text; `None` if it is not validly encoded UTF-8.
fn decoded(text: &str) -> Option<String> {
    let is_code = |rest: &str| {
        let code = rest.as_bytes().get(..2);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_code) {
        return None;
    }
    percent_encoding::percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_an_object() {
        let check = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(NAME, text.parse().unwrap());
            parse(&headers).map_err(|error| error.message().unwrap_or_default().to_owned())
        };
        for right in ["bucket/key", "/bucket/a%2Fb", "bucket/..", "bucket/a?versionId=1%", "bucket/%C3%A4"] {
            check(right).unwrap();
        }
        for (wrong, what) in [
            ("bucket/%ZZ", "encoding"),
            ("bucket/%C3%", "encoding"),
            ("bucket/%C3", "encoding"),
            ("192.168.1.1/a", "bucket name"),
            ("b@k/a", "bucket name"),
            ("bucket", "object key"),
            ("bucket/", "object key"),
        ] {
            assert!(check(wrong).unwrap_err().contains(what), "{wrong}");
        }
    }
}
