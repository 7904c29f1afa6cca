//! Tests of copies of large objects in concurrent parts.

use super::scripted::{Scripted, Step, answer, error};
use super::{client_of, config, fresh_bucket};
use futures_util::TryStreamExt as _;
use std::time::Duration;
use store::{
    Attributes, CopyOptions, ETag, GetOptions, ObjectKey, ObjectRef, ObjectStore, Payload, Precondition,
    PutOptions, StoreError,
};
use store_s3::RequestKind;

const LARGE_BYTES: usize = 65 << 20;

fn key(text: &str) -> ObjectKey {
    ObjectKey::try_from(text).unwrap()
}

/// Regression: a rename of 1 GiB took as long as one stream in the store, while other clients copy parts concurrently.
#[tokio::test(flavor = "multi_thread")]
async fn s225_a_large_object_is_copied_in_parts_with_headers_and_tags() {
    for server in [servers::shared_minio(), servers::shared_versitygw()] {
        let buckets = client_of(config(server));
        let store = fresh_bucket(&buckets).await.unwrap();
        let body: Vec<u8> = (0..LARGE_BYTES as u32).map(|at| (at / 1000) as u8).collect();
        let attributes = Attributes {
            content_type: Some("text/x-long".to_owned()),
            system: [("cache-control".to_owned(), "no-store".to_owned())].into(),
            user: [("mode".to_owned(), "0600".to_owned())].into(),
            ..Attributes::default()
        };
        let tags = [("stage".to_owned(), "raw".to_owned())].into();
        let options = PutOptions { attributes: attributes.clone(), tags, ..PutOptions::default() };
        let object = store.put(&key("from"), Payload::from(body.clone()), options.clone()).await.unwrap();
        let counts = buckets.requests();
        let parts =
            || counts.snapshot().into_iter().find(|(kind, _)| *kind == RequestKind::PartCopy).unwrap().1;

        let copied = store.copy(&object, &key("dir/to"), CopyOptions::default()).await.unwrap();
        assert_eq!(parts(), 5);
        let found = store.head(&key("dir/to")).await.unwrap();
        assert_eq!((&found.object.etag, &found.attributes), (&copied.etag, &attributes));
        assert_eq!(store.tags(&key("dir/to")).await.unwrap(), options.tags);
        let stored = store.get(&key("dir/to"), GetOptions::default()).await.unwrap().body;
        assert!(stored.try_collect::<Vec<_>>().await.unwrap().concat() == body);

        let other = store.put(&key("taken"), Payload::from("theirs"), PutOptions::default()).await.unwrap();
        let onto = |precondition| CopyOptions { precondition, ..CopyOptions::default() };
        let refused = store.copy(&object, &key("taken"), onto(Precondition::Absent)).await;
        assert!(matches!(refused, Err(StoreError::PreconditionFailed(_))), "{refused:?}");
        assert_eq!(store.head(&key("taken")).await.unwrap().object.etag, other.etag);
        store.copy(&object, &key("taken"), onto(Precondition::Matches(other.etag))).await.unwrap();
        assert_eq!(store.head(&key("taken")).await.unwrap().size_bytes, LARGE_BYTES as u64);

        let small = store.put(&key("from"), Payload::from("new"), PutOptions::default()).await.unwrap();
        let changed = store.copy(&object, &key("other"), CopyOptions::default()).await;
        assert!(matches!(changed, Err(StoreError::PreconditionFailed(_))), "{changed:?}");
        let before = parts();
        store.copy(&small, &key("other"), CopyOptions::default()).await.unwrap();
        assert_eq!(parts(), before);
    }
}

/// Returns the responses that describe a large object without tags and begin an upload.
fn begins() -> [Step; 3] {
    let length = LARGE_BYTES.to_string();
    let head = answer("200 OK", &[("etag", "\"e\""), ("content-length", &length)], "");
    let begun = "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>";
    [head, answer("200 OK", &[], "<Tagging><TagSet></TagSet></Tagging>"), answer("200 OK", &[], begun)]
}

fn part() -> Step {
    answer("200 OK", &[], "<CopyPartResult><ETag>p</ETag></CopyPartResult>")
}

fn copy_request() -> (ObjectRef, ObjectKey, CopyOptions) {
    let options = CopyOptions { size_bytes: Some(LARGE_BYTES as u64), ..CopyOptions::default() };
    (ObjectRef::new(key("from"), ETag::new("e")), key("to"), options)
}

#[tokio::test]
async fn a_copy_that_fails_leaves_no_parts() {
    let gone = error("412 Precondition Failed", "PreconditionFailed");
    let freed = answer("204 No Content", &[], "");
    // One part fails while the others are being copied.
    let steps = [gone].into_iter().chain(std::iter::repeat_n(part(), 4)).chain([freed]);
    let server = Scripted::start(begins().into_iter().chain(steps)).await;
    let (from, to, options) = copy_request();
    let outcome = server.store().copy(&from, &to, options).await;
    assert!(matches!(outcome, Err(StoreError::PreconditionFailed(_))), "{outcome:?}");
    assert_eq!(server.lines().last().unwrap(), "delete /bucket/to?uploadid=u1");
}

#[tokio::test]
async fn a_cancelled_copy_leaves_no_parts() {
    let slow = part().after(Duration::from_millis(200));
    let freed = answer("204 No Content", &[], "");
    let server =
        Scripted::start(begins().into_iter().chain(std::iter::repeat_n(slow, 5)).chain([freed])).await;
    let store = server.store();
    let (from, to, options) = copy_request();
    let copy = tokio::spawn(async move { store.copy(&from, &to, options).await });
    while server.lines().len() < 8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    copy.abort();
    while server.lines().last().unwrap() != "delete /bucket/to?uploadid=u1" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Google's XML API supports multipart uploads, but not part copies.
#[tokio::test]
async fn a_server_that_copies_no_parts_copies_the_whole() {
    let no_such_call = error("501 Not Implemented", "NotImplemented");
    let freed = answer("204 No Content", &[], "");
    let copied = answer("200 OK", &[], "<CopyObjectResult><ETag>whole</ETag></CopyObjectResult>");
    let steps = std::iter::repeat_n(no_such_call, 5).chain([freed, copied]);
    let server = Scripted::start(begins().into_iter().chain(steps)).await;
    let (from, to, options) = copy_request();
    assert_eq!(server.store().copy(&from, &to, options).await.unwrap().etag, ETag::new("whole"));
    assert_eq!(server.lines().last().unwrap(), "put /bucket/to");
}
