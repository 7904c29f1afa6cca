//! The operations that requests can name: each method with each sub-resource, for the service, a bucket and an object.

use super::raw::send;
use super::test_server::{KEY, TestServer};

/// S3's sub-resources (API Reference) and some parameters, with the methods that the endpoint implements.
const IMPLEMENTED: [(&str, &str, &str); 31] = [
    ("bucket", "acl", "GET PUT"),
    ("bucket", "cors", "GET PUT DELETE"),
    ("bucket", "delete", "POST"),
    ("bucket", "lifecycle", "GET PUT DELETE"),
    ("bucket", "list-type=2", "GET HEAD"),
    ("bucket", "location", "GET"),
    ("bucket", "notification", "GET PUT"),
    ("bucket", "object-lock", "GET PUT"),
    ("bucket", "ownershipControls", "GET PUT DELETE"),
    ("bucket", "policy", "GET PUT DELETE"),
    ("bucket", "policyStatus", "GET"),
    ("bucket", "prefix=x", "GET HEAD"),
    ("bucket", "tagging", "GET PUT DELETE"),
    ("bucket", "uploads", "GET"),
    ("bucket", "versioning", "GET PUT"),
    ("bucket", "versions", "GET"),
    ("bucket", "versionId", "GET HEAD"),
    ("bucket", "website", "GET PUT DELETE"),
    ("bucket", "partNumber=1", "GET HEAD"),
    ("object", "acl", "GET PUT"),
    ("object", "attributes", "GET"),
    ("object", "legal-hold", "GET PUT"),
    ("object", "list-type=2", "GET HEAD"),
    ("object", "partNumber=1", "GET HEAD"),
    ("object", "prefix=x", "GET HEAD"),
    ("object", "renameObject", "PUT"),
    ("object", "retention", "GET PUT"),
    ("object", "tagging", "GET PUT DELETE"),
    ("object", "uploadId", "GET POST DELETE"),
    ("object", "uploads", "POST"),
    ("object", "versionId", "GET HEAD DELETE"),
];

/// Operations of S3 that are not implemented, and unknown parameters.
const OTHERS: [&str; 22] = [
    "abac",
    "accelerate",
    "analytics",
    "append",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "restore",
    "select",
    "select&select-type=2",
    "session",
    "torrent",
    "ACL",
];

const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"];

fn parameters() -> Vec<&'static str> {
    let mut words: Vec<&str> = IMPLEMENTED.iter().map(|(_, word, _)| *word).chain(OTHERS).collect();
    words.sort_unstable();
    words.dedup();
    words
}

fn is_implemented(method: &str, target: &str, word: &str) -> bool {
    // ListBuckets accepts all parameters that are no sub-resources.
    let is_list = target == "service" && method == "GET" && word.contains(['=', 'I']) && word != "uploadId";
    let is_row = |row: &&(&str, &str, &str)| row.0 == target && row.1 == word;
    is_list || IMPLEMENTED.iter().find(is_row).is_some_and(|row| row.2.split(' ').any(|one| one == method))
}

/// Starts an endpoint with an empty bucket and a bucket with one object.
async fn start() -> TestServer {
    let server = TestServer::start().await;
    for what in ["/bucket", "/empty", "/bucket/key"] {
        send(&server, Some(KEY), ("PUT", what, ""), &[], if what == "/bucket/key" { "kept" } else { "" })
            .await
            .is(200);
    }
    server
}

/// Checks that buckets and objects are unchanged.
async fn assert_unchanged(server: &TestServer, after: &str) {
    let kept = send(server, Some(KEY), ("GET", "/bucket/key", ""), &[], "").await;
    assert_eq!((kept.status, kept.body.as_str()), (200, "kept"), "{after}");
    assert_eq!(kept.header("x-amz-tagging-count"), None, "{after}");
    let buckets = send(server, Some(KEY), ("GET", "/", ""), &[], "").await;
    assert_eq!(buckets.body.matches("<Bucket>").count(), 2, "{after}: {}", buckets.body);
    let keys = send(server, Some(KEY), ("GET", "/bucket", ""), &[], "").await;
    assert_eq!(keys.body.matches("<Contents>").count(), 1, "{after}: {}", keys.body);
}

/// `PUT key?encryption`, which boto3 sends for update_object_encryption, overwrote the object with the request's XML.
/// `DELETE key?acl` deleted the object, `DELETE bucket?versioning` the bucket, and `PUT new?policyStatus` created one.
/// Parameters were known for all methods and targets alike, and `s3s` ignored those that did not fit.
#[tokio::test]
async fn s460_a_sub_resource_that_an_operation_does_not_have_changes_nothing() {
    let server = start().await;
    for word in parameters() {
        for method in METHODS {
            for (target, path) in
                [("service", "/"), ("bucket", "/empty"), ("bucket", "/new"), ("object", "/bucket/key")]
            {
                if is_implemented(method, target, word) {
                    continue;
                }
                let answer = send(&server, Some(KEY), (method, path, word), &[], "").await;
                let asked = format!("{method} {path}?{word}");
                assert!(
                    [400, 405, 501].contains(&answer.status),
                    "{asked}: {} {}",
                    answer.status,
                    answer.body
                );
                if method == "DELETE" || method == "PUT" {
                    assert_unchanged(&server, &asked).await;
                }
            }
        }
        assert_unchanged(&server, word).await;
    }
}

/// A parameter may be encoded in several ways, and appear together with others.
#[tokio::test]
async fn s460_a_sub_resource_is_the_same_however_it_is_written() {
    let server = start().await;
    for (method, path, query, status, code) in [
        ("DELETE", "/bucket/key", "acl=", 405, "MethodNotAllowed"),
        ("DELETE", "/bucket/key", "acl=value", 405, "MethodNotAllowed"),
        ("DELETE", "/bucket/key", "%61cl", 405, "MethodNotAllowed"),
        ("DELETE", "/bucket/key", "acl&x-id=DeleteObject", 405, "MethodNotAllowed"),
        ("DELETE", "/bucket/key", "tagging&tagging", 400, "InvalidArgument"),
        ("DELETE", "/bucket/key", "tagging&acl", 400, "InvalidArgument"),
        ("DELETE", "/bucket/key", "versionId=null&versionId=null", 400, "InvalidArgument"),
        ("DELETE", "/bucket/key", "partNumber=1", 400, "InvalidArgument"),
        ("PUT", "/bucket/key", "uploadId=1", 400, "InvalidArgument"),
        ("PUT", "/bucket/key", "partNumber=1", 400, "InvalidArgument"),
        ("PUT", "/bucket/key", "versionId=null", 400, "InvalidArgument"),
        ("PUT", "/bucket/key", "uploadId=1&partNumber=1&uploads", 400, "InvalidArgument"),
        ("PUT", "/bucket/key", "rename%4Fbject", 400, "InvalidRequest"),
        ("PUT", "/bucket/key", "encryption", 501, "NotImplemented"),
        ("PUT", "/bucket/key", "append&position=3", 501, "NotImplemented"),
        ("PUT", "/bucket/key", "%E2%82%AC", 501, "NotImplemented"),
        ("POST", "/bucket", "delete&uploads", 400, "InvalidArgument"),
        ("POST", "/bucket/key", "", 405, "MethodNotAllowed"),
        ("DELETE", "/empty", "prefix=x", 400, "InvalidArgument"),
        ("DELETE", "/empty", "list-type=2", 400, "InvalidArgument"),
        ("GET", "/bucket", "list-type=3", 400, "InvalidArgument"),
        ("GET", "/bucket", "acl&policy", 400, "InvalidArgument"),
    ] {
        let signed = !query.contains('%');
        let user = Some(KEY).filter(|_| signed || query.starts_with("%"));
        let user = if query.starts_with("rename") { None } else { user };
        let answer = send(&server, user, (method, path, query), &[], "").await;
        // The test cannot sign this query, so that the rename is denied; nothing must be written.
        let expected = if query.starts_with("rename") { (403, "AccessDenied") } else { (status, code) };
        assert_eq!((answer.status, answer.element("Code").unwrap_or_default()), expected, "{method} {query}");
        assert_unchanged(&server, query).await;
    }
    // A path with an encoded slash names an object.
    send(&server, Some(KEY), ("DELETE", "/empty/a", ""), &[], "").await.is(204);
    send(&server, None, ("DELETE", "/bucket%2Fkey", "versioning"), &[], "")
        .await
        .errs(405, "MethodNotAllowed");
    assert_unchanged(&server, "an encoded path").await;
}

/// A PUT without a length counted as one of length zero, so that a client that lost its body emptied the object.
#[tokio::test]
async fn a_body_says_how_long_it_is() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = start().await;
    let mut stream = tokio::net::TcpStream::connect(server.inner.address()).await.unwrap();
    let request = "PUT /bucket/key HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 411") && answer.contains("MissingContentLength"), "{answer}");
    assert_unchanged(&server, "no length").await;
}
