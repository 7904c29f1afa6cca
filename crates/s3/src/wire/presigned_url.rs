//! Presigned URLs (S3 API Reference, "Authenticating requests: using query parameters").

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;
use store::Timestamp;

use super::signing_key::{ALGORITHM, Scope, sha256};

/// Characters of a query that are encoded: all but the unreserved ones of RFC 3986.
const QUERY: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the URL of a GET request that anyone may send from `now` on for `validity`. `root` is the endpoint's URL.
/// `path` and `query` are encoded; the query is sorted, and its names begin with lower-case letters.
pub(crate) fn presigned_url(
    (access_key, secret): (&str, &str),
    region: &str,
    now: Timestamp,
    root: &str,
    (path, query): (&str, &str),
    validity: Duration,
) -> String {
    let time = basic_time(now);
    let date = time.get(..8).unwrap_or_default();
    let credential = format!("{access_key}/{date}/{region}/s3/aws4_request");
    let encoded = utf8_percent_encode(&credential, &QUERY);
    let seconds = validity.as_secs();
    // Upper case sorts before lower case, so these come before the given query.
    let mut signed_query = format!(
        "X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={encoded}&X-Amz-Date={time}&X-Amz-Expires={seconds}&X-Amz-SignedHeaders=host"
    );
    if !query.is_empty() {
        signed_query = format!("{signed_query}&{query}");
    }
    let host = root.parse::<Uri>().ok().and_then(|uri| uri.authority().map(ToString::to_string));
    let host = host.unwrap_or_default();
    let canonical = format!("GET\n{path}\n{signed_query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
    let signature = Scope::of(&credential).map(|scope| {
        let text = format!("{ALGORITHM}\n{time}\n{}\n{}", scope.text(), sha256(canonical.as_bytes()));
        scope.key(secret).sign(&text)
    });
    format!("{root}{path}?{signed_query}&X-Amz-Signature={}", signature.unwrap_or_default())
}

/// Formats a time in UTC as `20130524T000000Z`.
fn basic_time(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_second(time.secs()).unwrap_or_default().to_string();
    time.replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the S3 API Reference, "Authenticating requests: using query parameters".
    #[test]
    fn the_documented_example_has_its_signature() {
        let url = presigned_url(
            ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            "us-east-1",
            Timestamp::from_secs(1_369_353_600, 0),
            "https://examplebucket.s3.amazonaws.com",
            ("/test.txt", ""),
            Duration::from_secs(86_400),
        );
        let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert!(url.ends_with(signature), "{url}");
        assert!(url.contains("X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1"), "{url}");
    }
}
