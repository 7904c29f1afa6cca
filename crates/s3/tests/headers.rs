//! Headers in the various forms that clients send, and headers that are refused.

use super::raw::{send, send_signed, signed};
use super::test_server::{KEY, SECRET, TestServer};

async fn start() -> TestServer {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &[], "0123456789").await.is(200);
    server
}

#[tokio::test]
async fn a_signed_header_cannot_be_changed_unnoticed() {
    let server = start().await;
    let what = ("PUT", "/bucket/b", "");
    for (name, value, other) in [
        ("x-amz-meta-a", "1", "2"),
        ("if-match", "abc", "\"abc\""),
        ("expires", "Thu, 01 Jan 1970 00:00:00 GMT", "0"),
        ("x-amz-trailer", "x-amz-checksum-crc32", "none"),
    ] {
        let mut headers = signed(&server, Some((KEY, SECRET)), what, &[(name, value)], "x");
        headers
            .iter_mut()
            .filter(|(header, _)| header == name)
            .for_each(|(_, value)| other.clone_into(value));
        send_signed(&server, what, &headers, "x").await.errs(403, "SignatureDoesNotMatch");
    }
    let mut headers = signed(&server, Some((KEY, SECRET)), what, &[], "x");
    headers.push(("x-amz-meta-more".to_owned(), "1".to_owned()));
    send_signed(&server, what, &headers, "x").await.errs(403, "AccessDenied");
    send(&server, Some(KEY), ("HEAD", "/bucket/b", ""), &[], "").await.is(404);
}

#[tokio::test]
async fn a_request_is_signed_in_one_place() {
    let server = start().await;
    let twice = ("GET", "/bucket/a", "X-Amz-Signature=0");
    send(&server, Some(KEY), twice, &[], "").await.errs(400, "InvalidArgument");
    let old = ("GET", "/bucket/a", "AWSAccessKeyId=tests-admin&Expires=4000000000&Signature=a");
    send(&server, None, old, &[], "").await.errs(400, "InvalidRequest");
}

#[tokio::test]
async fn entity_tags_need_no_quotes() {
    let server = start().await;
    let head = send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(200);
    let etag = head.header("etag").unwrap();
    for form in [etag, etag.trim_matches('"')] {
        let get = ("GET", "/bucket/a", "");
        send(&server, Some(KEY), get, &[("if-match", form)], "").await.is(200);
        send(&server, Some(KEY), get, &[("if-none-match", form)], "").await.is(304);
        let source = [("x-amz-copy-source", "bucket/a"), ("x-amz-copy-source-if-match", form)];
        send(&server, Some(KEY), ("PUT", "/bucket/copy", ""), &source, "").await.is(200);
    }
    let wrong = [("if-match", "no_tag_at_all")];
    send(&server, Some(KEY), ("GET", "/bucket/a", ""), &wrong, "").await.errs(412, "PreconditionFailed");
    send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &wrong, "x").await.errs(412, "PreconditionFailed");
    send(&server, Some(KEY), ("PUT", "/bucket/none", ""), &wrong, "x").await.errs(404, "NoSuchKey");
}

/// RFC 9110, section 13.1: the conditions are lists of entity tags. Only one tag is possible in the S3 API's own types.
#[tokio::test]
async fn a_condition_may_be_a_list_of_entity_tags() {
    let server = start().await;
    let head = send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(200);
    let etag = head.header("etag").unwrap();
    for method in ["GET", "HEAD"] {
        let ask = async |name: &str, tags: &str| {
            send(&server, Some(KEY), (method, "/bucket/a", ""), &[(name, tags)], "").await.status
        };
        let (with, without) = (format!("\"x\", {etag},\"y\""), "\"x\", \"y\"");
        assert_eq!(ask("if-none-match", &with).await, 304, "{method}");
        assert_eq!(ask("if-none-match", without).await, 200, "{method}");
        assert_eq!(ask("if-match", &with).await, 200, "{method}");
        assert_eq!(ask("if-match", without).await, 412, "{method}");
    }
    let several = [("if-none-match", "\"x\", \"y\"")];
    send(&server, Some(KEY), ("PUT", "/bucket/none", ""), &several, "x").await.is(501);
    send(&server, Some(KEY), ("HEAD", "/bucket/none", ""), &[], "").await.is(404);
}

/// The location is the object's URL as the client addresses it, also if the completion is repeated because its answer was lost.
#[tokio::test]
async fn a_completed_upload_has_a_location() {
    let server =
        TestServer::with_changed_options(|options| options.domains = vec!["s3.test".to_owned()]).await;
    let port = server.inner.address().port();
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (host, path, base) in [
        (format!("127.0.0.1:{port}"), "/bucket/dir/a%20b", format!("http://127.0.0.1:{port}/bucket")),
        (format!("bucket.s3.test:{port}"), "/dir/a%20b", format!("http://bucket.s3.test:{port}")),
    ] {
        let host = [("host", host.as_str())];
        let begun = send(&server, Some(KEY), ("POST", path, "uploads"), &host, "").await.is(200);
        let id = begun.element("UploadId").unwrap();
        let query = format!("partNumber=1&uploadId={id}");
        let part = send(&server, Some(KEY), ("PUT", path, &query), &host, "part").await.is(200);
        let list = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
            part.header("etag").unwrap()
        );
        for _ in 0..2 {
            let query = format!("uploadId={id}");
            let done = send(&server, Some(KEY), ("POST", path, &query), &host, &list).await.is(200);
            assert_eq!(done.element("Location"), Some(format!("{base}/dir/a%20b").as_str()));
        }
    }
}

/// S3 API, CopyObject: a copy has the standard class unless the request names another. A copy to itself may change the class.
#[tokio::test]
async fn a_copy_has_its_own_storage_class() {
    let server = start().await;
    const CLASS: &str = "x-amz-storage-class";
    let class_of = async |path: &str| {
        let head = send(&server, Some(KEY), ("HEAD", path, ""), &[], "").await.is(200);
        head.header(CLASS).map(str::to_owned)
    };
    let rare = (CLASS, "STANDARD_IA");
    send(&server, Some(KEY), ("PUT", "/bucket/rare", ""), &[rare], "x").await.is(200);
    assert_eq!(class_of("/bucket/rare").await.as_deref(), Some("STANDARD_IA"));
    let source = ("x-amz-copy-source", "bucket/rare");
    send(&server, Some(KEY), ("PUT", "/bucket/copy", ""), &[source], "").await.is(200);
    assert!(class_of("/bucket/copy").await.is_none_or(|class| class == "STANDARD"));
    let chosen = [source, (CLASS, "GLACIER_IR")];
    send(&server, Some(KEY), ("PUT", "/bucket/copy", ""), &chosen, "").await.is(200);
    assert_eq!(class_of("/bucket/copy").await.as_deref(), Some("GLACIER_IR"));
    send(&server, Some(KEY), ("PUT", "/bucket/rare", ""), &chosen, "").await.is(200);
    assert_eq!(class_of("/bucket/rare").await.as_deref(), Some("GLACIER_IR"));
    let replaced = [chosen[0], ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-k", "v")];
    send(&server, Some(KEY), ("PUT", "/bucket/rare", ""), &replaced, "").await.is(200);
    assert!(class_of("/bucket/rare").await.is_none_or(|class| class == "STANDARD"));
}

#[tokio::test]
async fn invalid_ranges_are_ignored() {
    let server = start().await;
    for (range, status, body) in [
        ("bytes=2-3", 206, "23"),
        ("bytes=08-99", 206, "89"),
        ("bytes=-3", 206, "789"),
        ("bytes=5-2", 200, "0123456789"),
        ("bytes=0-1,3-4", 200, "0123456789"),
        ("lines=1-2", 200, "0123456789"),
    ] {
        let range = [("range", range)];
        let got = send(&server, Some(KEY), ("GET", "/bucket/a", ""), &range, "").await.is(status);
        assert_eq!(got.body, body, "{range:?}");
        send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &range, "").await.is(status);
    }
    // Offsets beyond the range of an integer lie beyond the object too.
    for beyond in
        ["bytes=10-", "bytes=99999999999999999999-", "bytes=99999999999999999999-99999999999999999999"]
    {
        let beyond = [("range", beyond)];
        send(&server, Some(KEY), ("GET", "/bucket/a", ""), &beyond, "").await.errs(416, "InvalidRange");
        send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &beyond, "").await.is(416);
    }
    for whole in ["bytes=0-99999999999999999999", "bytes=-99999999999999999999"] {
        let got = send(&server, Some(KEY), ("GET", "/bucket/a", ""), &[("range", whole)], "").await.is(206);
        assert_eq!(got.body, "0123456789", "{whole}");
    }
}

#[tokio::test]
async fn object_headers_are_returned_verbatim() {
    let server = start().await;
    // This date is not a Monday.
    let odd = "Mon, 02 Jan 2031 00:00:00 GMT";
    let headers = [("expires", odd), ("x-tenon-expires", "other")];
    send(&server, Some(KEY), ("PUT", "/bucket/b", ""), &headers, "x").await.is(200);
    let got = send(&server, Some(KEY), ("GET", "/bucket/b", ""), &[], "").await.is(200);
    assert_eq!(got.header("expires"), Some(odd));
    let source = [("x-amz-copy-source", "bucket/b")];
    send(&server, Some(KEY), ("PUT", "/bucket/c", ""), &source, "").await.is(200);
    let head = send(&server, Some(KEY), ("HEAD", "/bucket/c", ""), &[], "").await.is(200);
    assert_eq!(head.header("expires"), Some(odd));
    // A repeated header counts as one header with all values.
    let unsigned = [("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), ("x-amz-meta-a", "1,2")];
    let what = ("PUT", "/bucket/d", "");
    let mut headers = signed(&server, Some((KEY, SECRET)), what, &unsigned, "x");
    let at = headers.iter().position(|(name, _)| name == "x-amz-meta-a").unwrap();
    headers[at].1 = "1".to_owned();
    headers.insert(at + 1, ("x-amz-meta-a".to_owned(), "2".to_owned()));
    send_signed(&server, what, &headers, "x").await.is(200);
    let head = send(&server, Some(KEY), ("HEAD", "/bucket/d", ""), &[], "").await.is(200);
    assert_eq!(head.header("x-amz-meta-a"), Some("1,2"));
}

#[tokio::test]
async fn s188_invalid_headers_are_refused() {
    let server = start().await;
    let long = "d".repeat(8 << 10);
    for (headers, code) in [
        ([("x-amz-checksum-crc99", "AAAA")], "InvalidRequest"),
        ([("x-amz-copy-source", "bucket")], "InvalidArgument"),
        ([("x-amz-copy-source", "bucket/%zz")], "InvalidArgument"),
        ([("x-amz-object-lock-retain-until-date", "tomorrow")], "InvalidArgument"),
        ([("content-md5", "")], "InvalidDigest"),
        ([("x-amz-meta-a", &long)], "RequestHeaderSectionTooLarge"),
    ] {
        let answer = send(&server, Some(KEY), ("PUT", "/bucket/b", ""), &headers, "x").await;
        answer.errs(400, code);
    }
    let source = [("x-amz-copy-source", "bucket")];
    send(&server, Some(KEY), ("PUT", "/nowhere/b", ""), &source, "").await.errs(404, "NoSuchBucket");
    send(&server, Some(KEY), ("HEAD", "/bucket/b", ""), &[], "").await.is(404);
    let numbers = "part-number-marker=many&uploadId=1";
    send(&server, Some(KEY), ("GET", "/bucket/a", numbers), &[], "").await.errs(400, "InvalidArgument");
    let attributes = send(&server, Some(KEY), ("GET", "/bucket/a", "attributes"), &[], "").await;
    attributes.errs(400, "InvalidRequest");
}

#[tokio::test]
async fn a_bucket_is_made_with_its_tags() {
    let server = TestServer::start().await;
    let document = |key: &str| {
        format!(
            "<CreateBucketConfiguration><Tags><Tag><Key>{key}</Key><Value>b</Value></Tag></Tags></CreateBucketConfiguration>"
        )
    };
    let made = send(&server, Some(KEY), ("PUT", "/tagged", ""), &[], &document("no!")).await;
    made.errs(400, "InvalidTag");
    send(&server, Some(KEY), ("HEAD", "/tagged", ""), &[], "").await.is(404);
    send(&server, Some(KEY), ("PUT", "/tagged", ""), &[], &document("a")).await.is(200);
    let tags = send(&server, Some(KEY), ("GET", "/tagged", "tagging"), &[], "").await.is(200);
    assert_eq!((tags.element("Key"), tags.element("Value")), (Some("a"), Some("b")));
}

#[tokio::test]
async fn a_configuration_of_a_website_is_short() {
    let server = start().await;
    let long = format!("<WebsiteConfiguration>{}", " ".repeat(129 << 10));
    let answer = send(&server, Some(KEY), ("PUT", "/bucket", "website"), &[], &long).await;
    let answer = answer.errs(400, "MaxMessageLengthExceeded");
    assert_eq!(answer.element("MaxMessageLengthBytes"), Some("131072"));
}
