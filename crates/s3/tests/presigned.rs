//! Presigned URLs: accepted signatures, and headers that SDKs hoist into the query.

use super::raw::{Answer, now, scope, send, send_signed, sha256, signature};
use super::test_server::{KEY, SECRET, TestServer};

async fn start() -> TestServer {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    server
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// Returns the query of a URL that signs `words` and the headers `names` (with the host), whose canonical lines are
/// `lines`.
fn query(
    (key, secret): (&str, &str),
    (method, path): (&str, &str),
    words: &[(&str, &str)],
    names: &str,
    lines: &str,
) -> String {
    let time = now();
    let credential = format!("{key}/{}", scope(&time));
    let mut all = vec![
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", &credential),
        ("X-Amz-Date", &time),
        ("X-Amz-Expires", "600"),
        ("X-Amz-SignedHeaders", names),
    ];
    all.extend(words);
    all.sort_unstable();
    let text: Vec<String> =
        all.iter().map(|(word, value)| format!("{}={}", encoded(word), encoded(value))).collect();
    let text = text.join("&");
    let canonical = format!("{method}\n{path}\n{text}\n{lines}\n{names}\nUNSIGNED-PAYLOAD");
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{}\n{}", scope(&time), sha256(&canonical));
    format!("{text}&X-Amz-Signature={}", signature(secret, &time, &to_sign))
}

async fn presigned(
    server: &TestServer,
    (method, path): (&str, &str),
    words: &[(&str, &str)],
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let host = server.inner.address().to_string();
    let mut all = vec![("host", host.as_str())];
    all.extend(headers);
    all.sort_unstable();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let lines: String = all.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let query = query((KEY, SECRET), (method, path), words, &names.join(";"), &lines);
    let owned: Vec<(String, String)> =
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    send_signed(server, (method, path, &query), &owned, body).await
}

/// The JavaScript SDK hoists metadata, tags, locks and checksums of a presigned PUT into the query. The object was
/// stored without them, with status 200.
#[tokio::test]
async fn s465_headers_in_the_query_count() {
    let server = start().await;
    let words = [
        ("x-amz-meta-who", "me and you"),
        ("X-Amz-Meta-Case", "kept"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-storage-class", "STANDARD_IA"),
        ("x-amz-checksum-crc32", "AAAAAA=="),
    ];
    presigned(&server, ("PUT", "/bucket/a"), &words, &[], "x").await.errs(400, "BadDigest");
    presigned(&server, ("PUT", "/bucket/a"), &words[..4], &[], "x").await.is(200);
    let head = send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(200);
    let shown = ["x-amz-meta-who", "x-amz-meta-case", "x-amz-storage-class"].map(|name| head.header(name));
    assert_eq!(shown, [Some("me and you"), Some("kept"), Some("STANDARD_IA")]);
    let tags = send(&server, Some(KEY), ("GET", "/bucket/a", "tagging"), &[], "").await.is(200);
    assert_eq!((tags.element("Key"), tags.element("Value")), (Some("a"), Some("b")));
    let lock = [
        ("x-amz-object-lock-mode", "COMPLIANCE"),
        ("x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z"),
    ];
    let answer = presigned(&server, ("PUT", "/bucket/b"), &lock, &[], "x").await;
    assert!(answer.status >= 400, "the lock is refused in a bucket without locks: {}", answer.head);
    let acl = [("x-amz-acl", "public-read")];
    presigned(&server, ("PUT", "/bucket/b"), &acl, &[], "x").await.errs(400, "AccessControlListNotSupported");
    let encryption = [("x-amz-server-side-encryption", "aws:kms")];
    presigned(&server, ("PUT", "/bucket/b"), &encryption, &[], "x").await.errs(501, "NotImplemented");
    let attributes = [("attributes", ""), ("x-amz-object-attributes", "ObjectSize")];
    let answer = presigned(&server, ("GET", "/bucket/a"), &attributes, &[], "").await.is(200);
    assert_eq!(answer.element("ObjectSize"), Some("1"));
    send(&server, Some(KEY), ("HEAD", "/bucket/b", ""), &[], "").await.is(404);
}

#[tokio::test]
async fn s465_a_header_stands_in_one_place() {
    let server = start().await;
    let (word, header) = ([("x-amz-meta-a", "1")], [("x-amz-meta-a", "2")]);
    presigned(&server, ("PUT", "/bucket/a"), &word, &header, "x").await.errs(400, "InvalidArgument");
    let twice = [("x-amz-meta-a", "1"), ("X-Amz-Meta-A", "2")];
    presigned(&server, ("PUT", "/bucket/a"), &twice, &[], "x").await.errs(400, "InvalidArgument");
    send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
}

/// A signature of version 2 was accepted next to any parameter of version 4: the URL was valid for ten years, and a
/// session's key needed no token.
#[tokio::test]
async fn s462_a_signature_of_version_2_is_refused_whatever_stands_beside_it() {
    let server = start().await;
    send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &[], "x").await.is(200);
    let own = query((KEY, SECRET), ("GET", "/bucket/a"), &[], "host", "host:x\n");
    for old in
        ["AWSAccessKeyId=tests-admin&Expires=4000000000&Signature=a", "Signature=a", "AWSAccessKeyId=a"]
    {
        for more in ["", "&X-Amz-Date=1", "&X-Amz-Algorithm=AWS4-HMAC-SHA256", &format!("&{own}")] {
            let query = format!("{old}{more}");
            let answer = send(&server, None, ("GET", "/bucket/a", &query), &[], "").await;
            answer.errs(400, "InvalidRequest");
        }
    }
}

#[tokio::test]
async fn s462_a_presigned_url_covers_the_host() {
    let server = start().await;
    send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &[], "x").await.is(200);
    presigned(&server, ("GET", "/bucket/a"), &[], &[], "").await.is(200);
    let query = query((KEY, SECRET), ("GET", "/bucket/a"), &[], "range", "range:bytes=0-0\n");
    let headers = [("range", "bytes=0-0")];
    let answer = send(&server, None, ("GET", "/bucket/a", &query), &headers, "").await;
    assert_eq!(answer.errs(403, "AccessDenied").element("HeadersNotSigned"), Some("host"));
}

/// A date of three euro signs caused a panic per request: it was sliced within a character.
#[tokio::test]
async fn a_date_of_any_text_is_refused() {
    let server = start().await;
    let credential = encoded(&format!("{KEY}/{}", scope(&now())));
    for date in ["€€€", "€", "2013€", "", "20130524T000000Z"] {
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={}&X-Amz-Expires=1&X-Amz-SignedHeaders=host&X-Amz-Signature=0",
            encoded(date)
        );
        let answer = send(&server, None, ("GET", "/bucket/a", &query), &[], "").await;
        answer.errs(400, "AuthorizationQueryParametersError");
    }
}
