//! Object versions and locks.

use super::raw::{Answer, send};
use super::test_server::{KEY, TestServer};
use std::sync::Arc;
use store::{Entropy, SystemClock};
use store_dir::{DirBuckets, DirOptions};

const ENABLED: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const SUSPENDED: &str = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";

async fn ask(server: &TestServer, method: &str, path: &str, query: &str, body: &str) -> Answer {
    send(server, Some(KEY), (method, path, query), &[], body).await
}

async fn versioned() -> TestServer {
    let server = TestServer::start().await;
    ask(&server, "PUT", "/bucket", "", "").await.is(200);
    ask(&server, "PUT", "/bucket", "versioning", ENABLED).await.is(200);
    server
}

async fn put(server: &TestServer, body: &str) -> String {
    let answer = ask(server, "PUT", "/bucket/a", "", body).await.is(200);
    answer.header("x-amz-version-id").unwrap().to_owned()
}

#[tokio::test]
async fn overwritten_versions_are_kept() {
    let server = versioned().await;
    let (first, second) = (put(&server, "1").await, put(&server, "2").await);
    let newest = ask(&server, "GET", "/bucket/a", "", "").await.is(200);
    assert_eq!((newest.body.as_str(), newest.header("x-amz-version-id")), ("2", Some(second.as_str())));
    let older = ask(&server, "GET", "/bucket/a", &format!("versionId={first}"), "").await.is(200);
    assert_eq!(older.body, "1");
    let odd = ask(&server, "GET", "/bucket/a", "versionId=odd", "").await.errs(400, "InvalidArgument");
    assert_eq!(odd.element("ArgumentName"), Some("versionId"));
    let other = format!("versionId={}", first.replace(char::is_numeric, "0"));
    ask(&server, "GET", "/bucket/a", &other, "").await.errs(404, "NoSuchVersion");
    let listed = ask(&server, "GET", "/bucket", "versions&max-keys=1", "").await.is(200);
    assert_eq!(listed.element("NextVersionIdMarker"), Some(second.as_str()));
    let query = format!("key-marker=a&version-id-marker={second}&versions");
    let rest = ask(&server, "GET", "/bucket", &query, "").await.is(200);
    assert_eq!((rest.element("VersionId"), rest.element("IsLatest")), (Some(first.as_str()), Some("false")));
}

#[tokio::test]
async fn a_delete_marker_hides_an_object() {
    let server = versioned().await;
    let first = put(&server, "1").await;
    let deleted = ask(&server, "DELETE", "/bucket/a", "", "").await.is(204);
    assert_eq!(deleted.header("x-amz-delete-marker"), Some("true"));
    let mark = deleted.header("x-amz-version-id").unwrap();
    let gone = ask(&server, "GET", "/bucket/a", "", "").await.errs(404, "NoSuchKey");
    assert_eq!(gone.header("x-amz-delete-marker"), Some("true"));
    let query = format!("versionId={mark}");
    let odd = ask(&server, "GET", "/bucket/a", &query, "").await.errs(405, "MethodNotAllowed");
    assert_eq!(odd.header("allow"), Some("DELETE"));
    let listed = ask(&server, "GET", "/bucket", "versions", "").await.is(200);
    assert!(listed.body.contains("<DeleteMarker>") && listed.body.contains(&first), "{}", listed.body);
    ask(&server, "DELETE", "/bucket", "", "").await.errs(409, "BucketNotEmpty");
    ask(&server, "DELETE", "/bucket/a", &query, "").await.is(204);
    assert_eq!(ask(&server, "GET", "/bucket/a", "", "").await.is(200).body, "1");
    ask(&server, "DELETE", "/bucket/a", &format!("versionId={first}"), "").await.is(204);
    ask(&server, "DELETE", "/bucket", "", "").await.is(204);
}

#[tokio::test]
async fn suspended_buckets_replace_null() {
    let server = versioned().await;
    let first = put(&server, "1").await;
    ask(&server, "PUT", "/bucket", "versioning", SUSPENDED).await.is(200);
    for body in ["2", "3"] {
        let answer = ask(&server, "PUT", "/bucket/a", "", body).await.is(200);
        assert_eq!(answer.header("x-amz-version-id"), None);
    }
    assert_eq!(ask(&server, "GET", "/bucket/a", "versionId=null", "").await.is(200).body, "3");
    let query = format!("versionId={first}");
    assert_eq!(ask(&server, "GET", "/bucket/a", &query, "").await.is(200).body, "1");
    let source = format!("/bucket/a?versionId={first}");
    let headers = [("x-amz-copy-source", source.as_str())];
    let copied = send(&server, Some(KEY), ("PUT", "/bucket/b", ""), &headers, "").await.is(200);
    assert_eq!(copied.header("x-amz-copy-source-version-id"), Some(first.as_str()));
    assert_eq!(ask(&server, "GET", "/bucket/b", "", "").await.is(200).body, "1");
}

#[tokio::test]
async fn a_locked_version_stays() {
    let server = TestServer::start().await;
    let enabled = [("x-amz-bucket-object-lock-enabled", "true")];
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &enabled, "").await.is(200);
    ask(&server, "PUT", "/bucket", "versioning", SUSPENDED).await.errs(409, "InvalidBucketState");
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    ask(&server, "PUT", "/bucket", "object-lock", rule).await.is(200);
    let version = put(&server, "1").await;
    let query = format!("versionId={version}");
    let shown = ask(&server, "HEAD", "/bucket/a", &query, "").await.is(200);
    assert_eq!(shown.header("x-amz-object-lock-mode"), Some("GOVERNANCE"));
    ask(&server, "DELETE", "/bucket/a", &query, "").await.errs(403, "AccessDenied");
    let held = "<LegalHold><Status>ON</Status></LegalHold>";
    ask(&server, "PUT", "/bucket/a", &format!("legal-hold&{query}"), held).await.is(200);
    let bypass = [("x-amz-bypass-governance-retention", "true")];
    let delete = ("DELETE", "/bucket/a", query.as_str());
    send(&server, Some(KEY), delete, &bypass, "").await.errs(403, "AccessDenied");
    let held = "<LegalHold><Status>OFF</Status></LegalHold>";
    ask(&server, "PUT", "/bucket/a", &format!("legal-hold&{query}"), held).await.is(200);
    send(&server, Some("writer"), delete, &bypass, "").await.errs(403, "AccessDenied");
    send(&server, Some(KEY), delete, &bypass, "").await.is(204);
}

/// In a bucket without versioning the only version is `null`.
#[tokio::test]
async fn version_ids_are_refused_without_versioning() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(3)));
    let buckets = DirBuckets::open(dir.path(), DirOptions::default(), clock, entropy).unwrap();
    let server = TestServer::with_buckets(Arc::new(buckets)).await;
    ask(&server, "PUT", "/bucket", "", "").await.is(200);
    ask(&server, "PUT", "/bucket/a", "", "x").await.is(200);
    for (method, query) in [
        ("GET", "versionId=odd"),
        ("GET", "tagging&versionId=odd"),
        ("GET", "attributes&versionId=odd"),
        ("DELETE", "versionId=odd"),
        ("DELETE", "tagging&versionId=odd"),
    ] {
        let attributes = [("x-amz-object-attributes", "ETag")];
        let answer = send(&server, Some(KEY), (method, "/bucket/a", query), &attributes, "").await;
        assert_eq!(answer.errs(400, "InvalidArgument").element("ArgumentName"), Some("versionId"));
    }
    let other = "versionId=01G65Z755AFWAKHE12NY0CQ9FH";
    ask(&server, "GET", "/bucket/a", other, "").await.errs(404, "NoSuchVersion");
    assert_eq!(ask(&server, "GET", "/bucket/a", "versionId=null", "").await.is(200).body, "x");
}
