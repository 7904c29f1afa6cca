//! Server-side encryption: refused unless the operator states that all data is encrypted.

use super::raw::send;
use super::test_server::{KEY, TestServer};

const HEADER: &str = "x-amz-server-side-encryption";

/// `AES256`, `aws:kms` and `garbage` got 200, although nothing was encrypted and no response said otherwise.
#[tokio::test]
async fn s463_missing_encryption_is_refused() {
    for is_encrypted in [false, true] {
        let server = TestServer::with_changed_options(|options| options.encrypted = is_encrypted).await;
        send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
        send(&server, Some(KEY), ("PUT", "/bucket/source", ""), &[], "x").await.is(200);
        for (wanted, status, code) in [
            ("aws:kms", 501, "NotImplemented"),
            ("aws:kms:dsse", 501, "NotImplemented"),
            ("aes256", 400, "InvalidArgument"),
            ("garbage", 400, "InvalidArgument"),
        ] {
            let plain = [(HEADER, wanted)];
            send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &plain, "x").await.errs(status, code);
            send(&server, Some(KEY), ("POST", "/bucket/a", "uploads"), &plain, "").await.errs(status, code);
            let copy = [(HEADER, wanted), ("x-amz-copy-source", "bucket/source")];
            send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &copy, "").await.errs(status, code);
        }
        let customers = [("x-amz-server-side-encryption-customer-algorithm", "AES256")];
        let answer = send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &customers, "x").await;
        answer.errs(501, "NotImplemented");
        send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
    }
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let aes = [(HEADER, "AES256")];
    send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &aes, "x").await.errs(501, "NotImplemented");
    send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
}

#[tokio::test]
async fn s463_an_operator_states_that_all_is_encrypted() {
    let server = TestServer::with_changed_options(|options| options.encrypted = true).await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let aes = [(HEADER, "AES256")];
    let put = send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &aes, "x").await.is(200);
    let copy = [("x-amz-copy-source", "bucket/a")];
    let copied = send(&server, Some(KEY), ("PUT", "/bucket/b", ""), &copy, "").await.is(200);
    let begun = send(&server, Some(KEY), ("POST", "/bucket/c", "uploads"), &aes, "").await.is(200);
    let get = send(&server, Some(KEY), ("GET", "/bucket/b", "versionId=null"), &[], "").await;
    let head = send(&server, Some(KEY), ("HEAD", "/bucket/b", ""), &[], "").await.is(200);
    for answer in [put, copied, begun, head] {
        assert_eq!(answer.header(HEADER), Some("AES256"), "{}", answer.head);
    }
    assert!(get.status != 200 || get.header(HEADER) == Some("AES256"));
    for (method, path, query) in
        [("GET", "/bucket", ""), ("GET", "/bucket/a", "acl"), ("DELETE", "/bucket/a", "")]
    {
        let answer = send(&server, Some(KEY), (method, path, query), &[], "").await;
        assert_eq!(answer.header(HEADER), None, "{method} {path}?{query}");
    }
}
