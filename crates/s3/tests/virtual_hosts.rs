//! Virtual-hosted-style requests, at an endpoint with a domain.

use super::raw::{Answer, send, send_signed, signed};
use super::test_server::{KEY, SECRET, TestServer};

async fn start() -> TestServer {
    TestServer::with_changed_options(|options| options.domains = vec!["s3.test".to_owned()]).await
}

/// Sends a request to `bucket` by host. The host has a port, as at every endpoint not on port 80 or 443.
async fn send_to_bucket(
    server: &TestServer,
    bucket: &str,
    what: (&str, &str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let host = format!("{bucket}.s3.test:{}", server.inner.address().port());
    let headers = [&[("host", host.as_str())], headers].concat();
    send(server, Some(KEY), what, &headers, body).await
}

/// With `--domain` on a custom port every request was refused: the host with its port was taken for a bucket.
#[tokio::test]
async fn s461_a_domain_has_any_port_and_other_hosts_name_no_bucket() {
    let server = start().await;
    for host in
        ["s3.test", "s3.test:9000", "S3.TEST:80", "localhost:9000", "gateway", "127.0.0.1", "[::1]:9000"]
    {
        let headers = [("host", host)];
        send(&server, Some(KEY), ("PUT", "/by-path/key", ""), &headers, "x").await.errs(404, "NoSuchBucket");
        send(&server, Some(KEY), ("GET", "/", ""), &headers, "").await.is(200);
    }
    for host in ["bucket.s3.test", "bucket.s3.test:9000", "BUCKET.s3.test"] {
        let headers = [("host", host)];
        let missing =
            send(&server, Some(KEY), ("GET", "/key", ""), &headers, "").await.errs(404, "NoSuchBucket");
        assert_eq!(missing.element("BucketName"), Some("bucket"));
    }
    let odd = [("host", "a_b.s3.test")];
    send(&server, Some(KEY), ("GET", "/key", ""), &odd, "").await.errs(400, "InvalidBucketName");
    let odd = [("host", "a/b.s3.test")];
    send(&server, Some(KEY), ("GET", "/key", ""), &odd, "").await.errs(400, "InvalidBucketName");
}

/// Virtual-hosted DeleteObjects was taken for an STS form, and a rename happened in the bucket named by the key's first
/// component.
#[tokio::test]
async fn s461_every_operation_works_on_the_bucket_that_the_host_names() {
    let server = start().await;
    send_to_bucket(&server, "bucket", ("PUT", "/", ""), &[], "").await.is(200);
    send_to_bucket(&server, "aaa", ("PUT", "/", ""), &[], "").await.is(200);
    let by_path = send(&server, Some(KEY), ("PUT", "/aaa/src", ""), &[], "other").await;
    by_path.is(200);
    send_to_bucket(&server, "bucket", ("PUT", "/src", ""), &[], "mine").await.is(200);
    send_to_bucket(&server, "bucket", ("PUT", "/UPPER_case/a%20b", ""), &[], "odd").await.is(200);
    assert_eq!(
        send_to_bucket(&server, "bucket", ("GET", "/UPPER_case/a%20b", ""), &[], "").await.is(200).body,
        "odd"
    );
    let rename = [("x-amz-rename-source", "src")];
    send_to_bucket(&server, "bucket", ("PUT", "/aaa/dst", "renameObject"), &rename, "").await.is(200);
    assert_eq!(send(&server, Some(KEY), ("GET", "/aaa/src", ""), &[], "").await.is(200).body, "other");
    assert_eq!(send(&server, Some(KEY), ("GET", "/bucket/aaa/dst", ""), &[], "").await.is(200).body, "mine");
    let copy = [("x-amz-copy-source", "bucket/aaa/dst")];
    send_to_bucket(&server, "bucket", ("PUT", "/copy", ""), &copy, "").await.is(200);
    let begun = send_to_bucket(&server, "bucket", ("POST", "/parts", "uploads"), &[], "").await.is(200);
    let id = begun.element("UploadId").unwrap();
    let part = send_to_bucket(
        &server,
        "bucket",
        ("PUT", "/parts", &format!("partNumber=1&uploadId={id}")),
        &[],
        "part",
    )
    .await;
    let etag = part.header("etag").unwrap().to_owned();
    part.is(200);
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    send_to_bucket(&server, "bucket", ("POST", "/parts", &format!("uploadId={id}")), &[], &list)
        .await
        .is(200);
    let tags = "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>";
    send_to_bucket(&server, "bucket", ("PUT", "/copy", "tagging"), &[], tags).await.is(200);
    let listed =
        send_to_bucket(&server, "bucket", ("GET", "/", "list-type=2&max-keys=2"), &[], "").await.is(200);
    assert_eq!((listed.element("Name"), listed.element("KeyCount")), (Some("bucket"), Some("2")));
    let delete = "<Delete><Object><Key>copy</Key></Object><Object><Key>parts</Key></Object></Delete>";
    let md5 = [("x-amz-sdk-checksum-algorithm", "CRC32"), ("x-amz-checksum-crc32", "AAAAAA==")];
    send_to_bucket(&server, "bucket", ("POST", "/", "delete"), &md5, delete).await.errs(400, "BadDigest");
    let deleted = send_to_bucket(&server, "bucket", ("POST", "/", "delete"), &[], delete).await.is(200);
    assert_eq!(deleted.body.matches("<Deleted>").count(), 2, "{}", deleted.body);
    send_to_bucket(&server, "bucket", ("GET", "/copy", ""), &[], "").await.errs(404, "NoSuchKey");
    send_to_bucket(&server, "bucket", ("DELETE", "/", "acl"), &[], "").await.errs(405, "MethodNotAllowed");
    for key in ["/aaa/dst", "/UPPER_case/a%20b"] {
        send_to_bucket(&server, "bucket", ("DELETE", key, ""), &[], "").await.is(204);
    }
    send_to_bucket(&server, "bucket", ("DELETE", "/", ""), &[], "").await.is(204);
    send(&server, Some(KEY), ("HEAD", "/bucket", ""), &[], "").await.is(404);
    send_to_bucket(&server, "bucket", ("POST", "/", ""), &[], "Action=AssumeRole")
        .await
        .errs(412, "PreconditionFailed");
}

/// Without `host` among the signed headers a captured request was valid for every bucket below the domain.
#[tokio::test]
async fn s462_a_signature_covers_the_host() {
    let server = start().await;
    send_to_bucket(&server, "bucket", ("PUT", "/", ""), &[], "").await.is(200);
    for method in ["GET", "PUT", "DELETE"] {
        let what = (method, "/key", "");
        let mut headers = signed(&server, Some((KEY, SECRET)), what, &[], "");
        // The signature becomes wrong too, but the headers it covers are checked first.
        let at = headers.iter().position(|(name, _)| name == "authorization").unwrap();
        headers[at].1 = headers[at].1.replace("SignedHeaders=host;", "SignedHeaders=");
        let answer = send_signed(&server, what, &headers, "").await.errs(403, "AccessDenied");
        assert_eq!(answer.element("HeadersNotSigned"), Some("host"), "{}", answer.body);
    }
}
