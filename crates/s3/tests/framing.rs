//! Framing of bodies: chunked, signed or not, with or without trailers, and hashed.

use super::raw::{Answer, now, scope, send, send_signed, send_with, sha256, signature, signed};
use super::test_server::{KEY, SECRET, TestServer};

const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const CRC: &str = "x-amz-checksum-crc64nvme";

async fn start() -> TestServer {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    server
}

async fn assert_absent(server: &TestServer, path: &str) {
    send(server, Some(KEY), ("HEAD", path, ""), &[], "").await.is(404);
}

async fn put_unsigned(server: &TestServer, length: &str, trailer: Option<&str>, body: &str) -> Answer {
    let mut headers = vec![("x-amz-content-sha256", UNSIGNED), ("x-amz-decoded-content-length", length)];
    headers.extend(trailer.map(|trailer| ("x-amz-trailer", trailer)));
    send_with(server, Some((KEY, SECRET)), ("PUT", "/bucket/a", ""), &headers, body).await
}

#[tokio::test]
async fn chunks_are_decoded() {
    let server = start().await;
    let with_trailer = "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:M3eFcAZSQlc=\r\n\r\n";
    let put = put_unsigned(&server, "5", Some(CRC), with_trailer).await.is(200);
    assert_eq!(put.header(CRC), Some("M3eFcAZSQlc="));
    assert_eq!(send(&server, Some(KEY), ("GET", "/bucket/a", ""), &[], "").await.is(200).body, "hello");
    put_unsigned(&server, "3", None, "3\r\nabc\r\n0\r\n\r\n").await.is(200);
    assert_eq!(send(&server, Some(KEY), ("GET", "/bucket/a", ""), &[], "").await.is(200).body, "abc");
}

#[tokio::test]
async fn s191_chunks_that_are_not_as_announced_store_nothing() {
    let server = start().await;
    let right = "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:M3eFcAZSQlc=\r\n\r\n";
    let small = format!("64\r\n{0}\r\n64\r\n{0}\r\n0\r\n\r\n", "a".repeat(100));
    for (length, trailer, body, code) in [
        ("5", None, right, "MalformedTrailerError"),
        ("5", Some("x-amz-checksum-crc32"), right, "MalformedTrailerError"),
        ("5", Some(CRC), "5\r\nhello\r\n0\r\n\r\n", "MalformedTrailerError"),
        ("5", Some("x-amz-meta-a"), right, "InvalidRequest"),
        ("5", Some(CRC), &right.replace("M3e", "M3f"), "BadDigest"),
        ("5", Some(CRC), &right.replace("M3eFcAZSQlc=", "odd"), "InvalidRequest"),
        ("6", Some(CRC), right, "IncompleteBody"),
        ("4", Some(CRC), right, "IncompleteBody"),
        ("x", Some(CRC), right, "MissingContentLength"),
        ("5", Some(CRC), &right[..right.len() - 2], "IncompleteBody"),
        ("5", Some(CRC), &right[..9], "IncompleteBody"),
        ("5", Some(CRC), &right.replace("5\r\n", "5;chunk-signature=0\r\n"), "IncompleteBody"),
        ("5", Some(CRC), &right.replace("5\r\n", "-5\r\n"), "IncompleteBody"),
        ("5", Some(CRC), &format!("{}\r\n", "5".repeat(5000)), "IncompleteBody"),
        ("200", None, &small, "InvalidChunkSizeError"),
    ] {
        let answer = put_unsigned(&server, length, trailer, body).await;
        assert_eq!(answer.element("Code"), Some(code), "{length} {trailer:?} {body}: {}", answer.body);
        assert_absent(&server, "/bucket/a").await;
    }
}

/// Returns a body of one chunk, signed in continuation of the request's signature `seed`.
fn signed_body(time: &str, seed: &str, data: &str, trailer: Option<&str>) -> String {
    let sign = |kind: &str, last: &str, rest: &str| {
        let text = format!("AWS4-HMAC-SHA256-{kind}\n{time}\n{}\n{last}\n{rest}", scope(time));
        signature(SECRET, time, &text)
    };
    let first = sign("PAYLOAD", seed, &format!("{}\n{}", sha256(""), sha256(data)));
    let last = sign("PAYLOAD", &first, &format!("{0}\n{0}", sha256("")));
    let end = match trailer {
        None => String::new(),
        Some(line) => {
            let signature = sign("TRAILER", &last, &sha256(&format!("{line}\n")));
            format!("{line}\r\nx-amz-trailer-signature:{signature}\r\n")
        }
    };
    let size = data.len();
    format!("{size:x};chunk-signature={first}\r\n{data}\r\n0;chunk-signature={last}\r\n{end}\r\n")
}

async fn put_signed(server: &TestServer, trailer: Option<&str>, change: impl Fn(String) -> String) -> Answer {
    let kind = match trailer {
        None => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        Some(_) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    };
    let mut headers = vec![("x-amz-content-sha256", kind), ("x-amz-decoded-content-length", "5")];
    headers.extend(trailer.map(|_| ("x-amz-trailer", CRC)));
    let what = ("PUT", "/bucket/a", "");
    let headers = signed(server, Some((KEY, SECRET)), what, &headers, "");
    let value = |wanted: &str| &headers.iter().find(|(name, _)| name == wanted).unwrap().1;
    let seed = value("authorization").rsplit_once("Signature=").unwrap().1;
    let body = change(signed_body(value("x-amz-date"), seed, "hello", trailer));
    send_signed(server, what, &headers, &body).await
}

#[tokio::test]
async fn s191_signed_chunks_are_stored_as_they_were_signed_or_not_at_all() {
    let server = start().await;
    let trailer = "x-amz-checksum-crc64nvme:M3eFcAZSQlc=";
    for changed in [("hello", "hallo"), ("M3e", "M3f")] {
        let answer = put_signed(&server, Some(trailer), |body| body.replace(changed.0, changed.1)).await;
        answer.errs(403, "SignatureDoesNotMatch");
        assert_absent(&server, "/bucket/a").await;
    }
    let unsigned = |body: String| body.split_once("x-amz-trailer-signature").unwrap().0.to_owned() + "\r\n";
    put_signed(&server, Some(trailer), unsigned).await.errs(400, "IncompleteBody");
    let swapped = |body: String| body.replacen("chunk-signature=", "chunk-signature=0", 1);
    put_signed(&server, None, swapped).await.errs(400, "IncompleteBody");
    assert_absent(&server, "/bucket/a").await;
    put_signed(&server, None, |body| body).await.is(200);
    put_signed(&server, Some(trailer), |body| body).await.is(200);
    assert_eq!(send(&server, Some(KEY), ("GET", "/bucket/a", ""), &[], "").await.is(200).body, "hello");
}

#[tokio::test]
async fn signed_chunks_need_a_signed_request() {
    let server = start().await;
    let time = now();
    let body = signed_body(&time, &"0".repeat(64), "hello", None);
    let headers = [
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("x-amz-decoded-content-length", "5"),
        ("x-amz-date", time.as_str()),
    ];
    send(&server, None, ("PUT", "/bucket/a", ""), &headers, &body).await.errs(400, "InvalidRequest");
    assert_absent(&server, "/bucket/a").await;
}

#[tokio::test]
async fn s191_a_body_with_another_hash_stores_nothing() {
    let server = start().await;
    let wrong = [("x-amz-content-sha256", sha256("other"))];
    let wrong = wrong.each_ref().map(|(name, value)| (*name, value.as_str()));
    let answer = send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &wrong, "this").await;
    let answer = answer.errs(400, "XAmzContentSHA256Mismatch");
    assert_eq!(answer.element("S3ComputedContentSHA256"), Some(sha256("this").as_str()));
    assert_absent(&server, "/bucket/a").await;
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let answer = send(&server, Some(KEY), ("PUT", "/bucket", "tagging"), &wrong, tags).await;
    answer.errs(400, "XAmzContentSHA256Mismatch");
    let md5 = [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
    send(&server, Some(KEY), ("PUT", "/bucket", "tagging"), &md5, tags).await.errs(400, "BadDigest");
    send(&server, Some(KEY), ("GET", "/bucket", "tagging"), &[], "").await.errs(404, "NoSuchTagSet");
    let chunked = [("x-amz-content-sha256", UNSIGNED), ("x-amz-decoded-content-length", "0")];
    let answer = send(&server, Some(KEY), ("PUT", "/bucket", "tagging"), &chunked, tags).await;
    answer.errs(400, "InvalidRequest");
}
