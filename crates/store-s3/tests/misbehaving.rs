//! Tests with a server that closes connections, stalls, throttles, returns wrong data or loses responses.

use super::scripted::{Scripted, Step, answer, error, no_response};
use bytes::Bytes;
use futures_util::TryStreamExt;
use std::time::Duration;
use store::{
    Attributes, Buckets, CopyOptions, ETag, GetOptions, ListRequest, ObjectKey, ObjectRef, ObjectStore,
    Payload, Precondition, PutOptions, Result, StoreError, Tags, VersionId,
};
use store_s3::{RequestKind, S3Store};

const TEN: &str = "0123456789";

fn key() -> ObjectKey {
    ObjectKey::try_from("k").unwrap()
}

async fn read(store: &S3Store) -> Result<Vec<u8>> {
    let object = store.get(&key(), GetOptions::default()).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat())
}

fn whole() -> Step {
    answer("200 OK", &[("etag", "\"e\"")], TEN)
}

/// Returns a response that announces ten bytes and sends five.
fn half() -> Step {
    answer("200 OK", &[("etag", "\"e\""), ("content-length", "10")], "01234")
}

fn rest() -> Step {
    answer("206 Partial Content", &[("etag", "\"e\""), ("content-range", "bytes 5-9/10")], "56789")
}

fn if_absent() -> PutOptions {
    PutOptions { precondition: Precondition::Absent, ..PutOptions::default() }
}

async fn resumes(first: Step) {
    let server = Scripted::start([first, rest()]).await;
    assert_eq!(read(&server.store()).await.unwrap(), TEN.as_bytes());
    let again = server.seen()[1].head.clone();
    assert!(again.contains("range: bytes=5-9\r\n") && again.contains("if-match: \"e\"\r\n"), "{again}");
}

#[tokio::test]
async fn a_body_that_ends_too_early_is_resumed() {
    resumes(half()).await;
}

#[tokio::test]
async fn a_body_that_breaks_off_is_resumed() {
    resumes(half().then_reset()).await;
}

#[tokio::test]
async fn a_body_that_stalls_is_resumed() {
    resumes(half().then_stall()).await;
}

#[tokio::test]
async fn a_body_is_not_resumed_from_another_object() {
    let server = Scripted::start([half(), error("412 Precondition Failed", "PreconditionFailed")]).await;
    assert!(matches!(read(&server.store()).await, Err(StoreError::PreconditionFailed(_))));
}

/// If the body of each attempt ends too early, the result is an error, never a short stream.
#[tokio::test]
async fn a_body_that_always_ends_early_is_an_error() {
    let nothing = answer(
        "206 Partial Content",
        &[("etag", "\"e\""), ("content-range", "bytes 5-9/10"), ("content-length", "5")],
        "",
    );
    let server = Scripted::start([half(), nothing]).await;
    let store = server.store();
    assert!(matches!(read(&store).await, Err(StoreError::Unavailable(_) | StoreError::Corrupt(_))));
    assert_eq!(store.requests().of(RequestKind::Get), 4);
}

#[tokio::test]
async fn connections_that_break_are_replaced() {
    let reset = no_response().then_reset();
    let server = Scripted::start([reset.clone(), no_response(), reset, whole()]).await;
    let store = server.store();
    assert_eq!(read(&store).await.unwrap(), TEN.as_bytes());
    assert_eq!((store.requests().of(RequestKind::Get), store.requests().retries()), (4, 3));
}

/// Regression: an empty range of an old version was checked against the current version.
#[tokio::test]
async fn an_empty_range_is_read_from_the_version_that_is_asked_for() {
    let server = Scripted::start([whole()]).await;
    let store = server.store();
    let version = Some(VersionId::from("v1"));
    store.get(&key(), GetOptions { range: Some(3..3), version, ..GetOptions::default() }).await.unwrap();
    store.get(&key(), GetOptions { range: Some(3..3), ..GetOptions::default() }).await.unwrap();
    assert_eq!(server.lines(), ["head /bucket/k?versionid=v1", "head /bucket/k"]);
}

#[tokio::test]
async fn a_stalled_request_is_retried() {
    let server = Scripted::start([no_response().then_stall(), whole()]).await;
    assert_eq!(read(&server.store()).await.unwrap(), TEN.as_bytes());
}

#[tokio::test]
async fn a_busy_server_gets_the_pause_that_it_requests() {
    let busy = answer("503 Slow Down", &[("retry-after", "1")], "<Error><Code>SlowDown</Code></Error>");
    let server = Scripted::start([busy, whole()]).await;
    let began = tokio::time::Instant::now();
    assert_eq!(read(&server.store()).await.unwrap(), TEN.as_bytes());
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_server_that_stays_busy_is_an_error() {
    let server = Scripted::start([error("503 Slow Down", "SlowDown")]).await;
    let store = server.store();
    assert!(matches!(read(&store).await, Err(StoreError::Throttled(_))));
    assert_eq!(store.requests().total(), 4);
}

#[tokio::test]
async fn a_malformed_listing_is_requested_again() {
    let listing =
        "<ListBucketResult><Contents><Key>k</Key><ETag>e</ETag><Size>1</Size></Contents></ListBucketResult>";
    let garbage = answer("200 OK", &[], "<ListBucketResult><Contents>");
    let server = Scripted::start([garbage.clone(), answer("200 OK", &[], listing)]).await;
    let page = server.store().list(ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    assert_eq!(page.entries[0].text(), b"k");
    let server = Scripted::start([garbage]).await;
    let listed = server.store().list(ListRequest { limit: 10, ..ListRequest::default() }).await;
    assert!(matches!(listed, Err(StoreError::Corrupt(_))));
}

#[tokio::test]
async fn another_etag_or_range_than_requested_is_an_error() {
    let server = Scripted::start([whole()]).await;
    let other = GetOptions { if_match: Some(ETag::new("f")), ..GetOptions::default() };
    assert!(matches!(server.store().get(&key(), other).await, Err(StoreError::Corrupt(_))));
    let server = Scripted::start([rest()]).await;
    let range = GetOptions { range: Some(2..7), ..GetOptions::default() };
    assert!(matches!(server.store().get(&key(), range).await, Err(StoreError::Corrupt(_))));
    let server = Scripted::start([whole()]).await;
    let inside = GetOptions { range: Some(2..7), ..GetOptions::default() };
    assert!(matches!(server.store().get(&key(), inside).await, Err(StoreError::Corrupt(_))));
}

#[tokio::test]
async fn a_put_with_lost_response_is_recognised() {
    let refused = error("412 Precondition Failed", "PreconditionFailed");
    let head = answer("200 OK", &[("etag", "\"e\""), ("content-length", "10")], "");
    let server = Scripted::start([no_response(), refused, head, whole()]).await;
    let put = server.store().put(&key(), Payload::from(TEN), if_absent()).await.unwrap();
    assert_eq!(put.etag, ETag::new("e"));
    assert_eq!(server.lines(), ["put /bucket/k", "put /bucket/k", "head /bucket/k", "get /bucket/k"]);
}

#[tokio::test]
async fn a_put_that_lost_a_race_fails() {
    let refused = || error("412 Precondition Failed", "PreconditionFailed");
    let head = |len: &str| answer("200 OK", &[("etag", "\"e\""), ("content-length", len)], "");
    let theirs = answer("200 OK", &[("etag", "\"e\"")], "9876543210");
    let gone = answer("404 Not Found", &[("content-length", "0")], "");
    for script in [
        vec![refused()],
        vec![no_response(), refused(), head("11")],
        vec![no_response(), refused(), head("10"), theirs],
        vec![no_response(), refused(), gone],
    ] {
        let server = Scripted::start(script).await;
        let put = server.store().put(&key(), Payload::from(TEN), if_absent()).await;
        assert!(matches!(put, Err(StoreError::PreconditionFailed(_))), "{put:?} after {:?}", server.lines());
    }
}

pub(crate) fn begun() -> Step {
    let body = "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
    answer("200 OK", &[], body)
}

pub(crate) fn part() -> Step {
    answer("200 OK", &[("etag", "\"p\"")], "")
}

fn completed() -> Step {
    let body = "<CompleteMultipartUploadResult><ETag>\"e-1\"</ETag></CompleteMultipartUploadResult>";
    answer("200 OK", &[], body)
}

/// Begins an upload with one part of ten bytes and completes it.
async fn complete(steps: impl IntoIterator<Item = Step>) -> (Result<ETag>, Vec<String>) {
    let server = Scripted::start([begun(), part()].into_iter().chain(steps)).await;
    let upload = server.store().multipart(&key(), Attributes::default(), Tags::new()).await.unwrap();
    upload.put_part(1, Payload::from(TEN)).await.unwrap();
    let completed = upload.complete(Precondition::Absent).await.map(|object| object.etag);
    (completed, server.lines()[2..].to_vec())
}

#[tokio::test]
async fn a_completion_can_fail_after_status_200() {
    let failed = error("200 OK", "InternalError");
    let (result, lines) = complete([failed, completed()]).await;
    assert_eq!((result.unwrap(), lines.len()), (ETag::new("e-1"), 2));
    let (result, _) = complete([error("200 OK", "AccessDenied")]).await;
    assert!(matches!(result, Err(StoreError::Denied(_))));
}

#[tokio::test]
async fn a_completion_with_lost_response_is_recognised() {
    let gone = || error("404 Not Found", "NoSuchUpload");
    let found = |body: &str| answer("200 OK", &[("etag", "\"e-1\"")], body);
    let (result, lines) = complete([no_response(), gone(), gone(), found(TEN)]).await;
    assert_eq!(result.unwrap(), ETag::new("e-1"));
    assert_eq!(lines[2], "get /bucket/k?max-parts=1&uploadid=u");
    let refused = error("412 Precondition Failed", "PreconditionFailed");
    let (result, _) = complete([no_response(), refused.clone(), gone(), found(TEN)]).await;
    assert_eq!(result.unwrap(), ETag::new("e-1"));
    // Regression: another client's object of equal length was taken for ours, and its bytes were cached as ours.
    for theirs in ["9876543210", "short"] {
        let (result, _) = complete([no_response(), gone(), gone(), found(theirs)]).await;
        assert!(matches!(result, Err(StoreError::PreconditionFailed(_))), "{result:?}");
    }
    let (result, _) = complete([no_response(), refused, answer("200 OK", &[], "<ListPartsResult/>")]).await;
    assert!(matches!(result, Err(StoreError::PreconditionFailed(_))));
    let (result, _) = complete([gone()]).await;
    assert!(matches!(result, Err(StoreError::Invalid(_))));
}

/// Regression: an fsync failed because all responses to its completion were lost. Every later fsync failed with "no such
/// upload", although the object existed.
#[tokio::test]
async fn a_completion_without_response_is_recognised_later() {
    let gone = || error("404 Not Found", "NoSuchUpload");
    let found = answer("200 OK", &[("etag", "\"e-1\"")], TEN);
    let lost = std::iter::repeat_n(no_response(), 4);
    let server =
        Scripted::start([begun(), part()].into_iter().chain(lost).chain([gone(), gone(), found])).await;
    let upload = server.store().multipart(&key(), Attributes::default(), Tags::new()).await.unwrap();
    upload.put_part(1, Payload::from(TEN)).await.unwrap();
    let lost = upload.complete(Precondition::Absent).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    assert_eq!(upload.complete(Precondition::Absent).await.unwrap().etag, ETag::new("e-1"));
}

#[tokio::test]
async fn a_delete_with_lost_response_is_recognised() {
    let head = answer("200 OK", &[("etag", "\"e\""), ("content-length", "10")], "");
    let gone = answer("404 Not Found", &[("content-length", "0")], "");
    let server = Scripted::start([head, no_response(), error("404 Not Found", "NoSuchKey"), gone]).await;
    server.store().delete(&key(), Precondition::Matches(ETag::new("e"))).await.unwrap();
}

/// Regression: an export of attributes copies an object onto itself. If that changed its etag and the response was lost,
/// the second attempt was refused, and readers got the error that another client had replaced their file.
#[tokio::test]
async fn a_copy_with_lost_response_is_recognised() {
    let refused = || error("412 Precondition Failed", "PreconditionFailed");
    let head = |mode| {
        answer("200 OK", &[("etag", "\"new\""), ("content-length", "10"), ("x-amz-meta-mode", mode)], "")
    };
    let from = ObjectRef::new(key(), ETag::new("old"));
    let copy = async |steps: Vec<Step>| {
        let server = Scripted::start(steps).await;
        let attributes =
            Attributes { user: [("mode".to_owned(), "0600".to_owned())].into(), ..Attributes::default() };
        let options = CopyOptions { attributes: Some(attributes), ..CopyOptions::default() };
        server.store().copy(&from, &key(), options).await.map(|object| object.etag)
    };
    assert_eq!(copy(vec![no_response(), refused(), head("0600")]).await.unwrap(), ETag::new("new"));
    for others in [vec![no_response(), refused(), head("0644")], vec![refused()]] {
        assert!(matches!(copy(others).await, Err(StoreError::PreconditionFailed(_))));
    }
}

#[tokio::test]
async fn an_upload_that_the_server_does_not_read_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Scripted::start([no_response()]).await;
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    let retry = store_s3::RetryPolicy { attempts_max: 1, ..server.config().retry };
    let config = store_s3::S3Config { endpoint, retry, ..server.config() };
    let store = super::client_of(config).store("bucket").unwrap();
    let body = Payload::from(vec![0; 64 << 20]);
    assert!(matches!(store.put(&key(), body, PutOptions::default()).await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_second_put_sends_the_same_bytes() {
    let server = Scripted::start([no_response(), part()]).await;
    let pieces: Payload = [&b"0123"[..], b"456789"].map(Bytes::from_static).into_iter().collect();
    server.store().put(&key(), pieces, PutOptions::default()).await.unwrap();
    assert!(server.seen().iter().all(|seen| seen.body == TEN.as_bytes()));
}

#[tokio::test]
async fn errors_are_one_line_without_secrets() {
    let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>It does\nnot match.</Message>\
        <StringToSign>hush-this-is-secret</StringToSign></Error>";
    let server = Scripted::start([answer("403 Forbidden", &[], body)]).await;
    let text = read(&server.store()).await.unwrap_err().to_string();
    assert_eq!(
        text,
        "access denied: SignatureDoesNotMatch: It does not match.; check the secret key and the region"
    );
    assert!(!format!("{:?} {:?}", server.store(), server.config()).contains("hush"));
}

#[tokio::test]
async fn a_server_without_s3_is_recognised() {
    for status in ["200 OK", "404 Not Found", "403 Forbidden", "400 Bad Request"] {
        let server = Scripted::start([answer(status, &[], "<html>hello</html>")]).await;
        let text = server.buckets().open("bucket").await.unwrap_err().to_string();
        assert!(text.contains("not as an S3 server: check the endpoint"), "{status}: {text}");
    }
}

#[tokio::test]
async fn the_error_of_a_bucket_in_another_region_names_the_region() {
    let moved = answer("301 Moved Permanently", &[("x-amz-bucket-region", "eu-west-1")], "");
    let server = Scripted::start([moved]).await;
    let text = server.buckets().open("bucket").await.unwrap_err().to_string();
    assert!(text.contains("bucket 'bucket' is in region eu-west-1: set the region to eu-west-1"), "{text}");
}

/// S3 gives a copy the bucket's default storage class and encryption, and no redirect. A client that has seen objects with
/// such attributes requests the source's attributes first; other clients do not.
#[tokio::test]
async fn a_copy_preserves_attributes_that_the_server_does_not_copy() {
    let plain = [("etag", "\"e\"")];
    let special = [
        ("etag", "\"e\""),
        ("x-amz-storage-class", "STANDARD_IA"),
        ("x-amz-website-redirect-location", "/there"),
        ("x-amz-server-side-encryption", "aws:kms"),
        ("x-amz-server-side-encryption-aws-kms-key-id", "the-key"),
        ("x-amz-meta-project", "x"),
    ];
    let copied = || answer("200 OK", &[], "<CopyObjectResult><ETag>e</ETag></CopyObjectResult>");
    let listed = "<ListBucketResult><Contents><Key>k</Key><ETag>e</ETag><Size>1</Size>\
                  <StorageClass>STANDARD_IA</StorageClass></Contents></ListBucketResult>";
    let from = ObjectRef::new(key(), ETag::new("e"));
    let to = ObjectKey::try_from("to").unwrap();

    let server = Scripted::start([answer("200 OK", &plain, ""), copied()]).await;
    let store = server.store();
    store.head(&key()).await.unwrap();
    store.copy(&from, &to, CopyOptions::default()).await.unwrap();
    assert_eq!(server.seen().len(), 2, "{:?}", server.lines());

    for is_listed in [false, true] {
        let look = if is_listed { answer("200 OK", &[], listed) } else { answer("200 OK", &special, "") };
        let server = Scripted::start([look, answer("200 OK", &special, ""), copied()]).await;
        let store = server.store();
        match is_listed {
            true => drop(store.list(ListRequest { limit: 9, ..ListRequest::default() }).await.unwrap()),
            false => assert_eq!(store.head(&key()).await.unwrap().attributes.system.len(), 3),
        }
        store.copy(&from, &to, CopyOptions::default()).await.unwrap();
        let sent = server.seen().last().unwrap().head.clone();
        for (name, value) in &special[1..] {
            assert!(sent.contains(&format!("{name}: {}", value.to_lowercase())), "{name} in {sent}");
        }
    }
}

/// Regression: a server that has no copies on a condition could not rename anything.
#[tokio::test]
async fn a_server_without_conditional_copies_copies_after_a_look() {
    let missing = answer("404 Not Found", &[], "");
    let no_such_condition = error("501 Not Implemented", "NotImplemented");
    let copied = answer("200 OK", &[], "<CopyObjectResult><ETag>copy</ETag></CopyObjectResult>");
    for is_checked in [false, true] {
        let look = (!is_checked).then(|| missing.clone());
        let steps = look.into_iter().chain([no_such_condition.clone(), copied.clone()]);
        let server = Scripted::start(steps).await;
        let (from, to) = (ObjectRef::new(key(), ETag::new("e")), ObjectKey::try_from("to").unwrap());
        let precondition = Precondition::Absent;
        let options = CopyOptions { precondition, is_checked, size_bytes: Some(1), ..CopyOptions::default() };
        assert_eq!(server.store().copy(&from, &to, options).await.unwrap().etag, ETag::new("copy"));
        let looks: &[&str] = if is_checked { &[] } else { &["head /bucket/to"] };
        assert_eq!(server.lines(), [looks, &["put /bucket/to", "put /bucket/to"]].concat());
    }
}
