//! Several buckets as one store.

use futures_util::TryStreamExt as _;
use staging::joined::JoinedStore;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::memory::{MemoryBuckets, MemoryLimits};
use store::{
    Attributes, Buckets, CopyOptions, ETag, GetOptions, ListRequest, ObjectKey, ObjectRef, ObjectStore,
    Pages, Payload, Precondition, PutOptions, StoreError, SystemClock, Tags,
};

fn key(text: &str) -> ObjectKey {
    ObjectKey::try_from(text).unwrap()
}

async fn buckets(names: &[&str]) -> Arc<dyn Buckets> {
    let limits = MemoryLimits { part_bytes_min: 1, ..MemoryLimits::default() };
    let buckets = MemoryBuckets::with_limits(Arc::new(SystemClock), limits);
    for name in names {
        buckets.create(name).await.unwrap();
    }
    Arc::new(buckets)
}

async fn put(store: &dyn ObjectStore, at: &str, body: &str) -> ObjectRef {
    let attributes =
        Attributes { user: [("from".to_owned(), at.to_owned())].into(), ..Attributes::default() };
    let tags = Tags::from([("t".to_owned(), "v".to_owned())]);
    let options = PutOptions { attributes, tags, ..PutOptions::default() };
    store.put(&key(at), Payload::from(body.to_owned()), options).await.unwrap()
}

async fn read(store: &dyn ObjectStore, at: &str) -> Vec<u8> {
    let object = store.get(&key(at), GetOptions::default()).await.unwrap();
    assert_eq!(object.meta.object.key, key(at));
    object.body.try_collect::<Vec<_>>().await.unwrap().concat()
}

async fn texts(store: &dyn ObjectStore, prefix: &str, delimiter: Option<u8>, limit: usize) -> Vec<String> {
    let request = ListRequest {
        prefix: bytes::Bytes::copy_from_slice(prefix.as_bytes()),
        delimiter,
        limit,
        ..ListRequest::default()
    };
    let entries = Pages::new(store, request).collect().await.unwrap();
    entries.iter().map(|entry| String::from_utf8(entry.text().to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn an_object_lies_in_the_bucket_that_its_key_begins_with() {
    let buckets = buckets(&["one-bucket", "two-bucket"]).await;
    let store = JoinedStore::new(Arc::clone(&buckets), None);
    let made = put(&store, "one-bucket/a/b", "hello").await;
    assert_eq!(made.key, key("one-bucket/a/b"));
    let inside = buckets.open("one-bucket").await.unwrap();
    assert_eq!(inside.head(&key("a/b")).await.unwrap().object.etag, made.etag);
    assert_eq!(read(&store, "one-bucket/a/b").await, b"hello");
    assert_eq!(store.tags(&made.key).await.unwrap()["t"], "v");
    for missing in ["two-bucket/a/b", "none-bucket/a", "one-bucket", "one-bucket/", ".tenon/volume", "/x"] {
        assert!(
            matches!(store.head(&key(missing)).await, Err(StoreError::NotFound(at)) if at == key(missing))
        );
    }
    for nowhere in ["one-bucket", "none-bucket/"] {
        let refused = store.put(&key(nowhere), "x".into(), PutOptions::default()).await;
        assert!(matches!(refused, Err(StoreError::Denied(_))), "{nowhere}");
    }
    let marker = store.put(&key("one-bucket/"), "".into(), PutOptions::default()).await;
    assert!(matches!(marker, Err(StoreError::InvalidKey { .. })), "{marker:?}");
    let wrong = ObjectRef::new(made.key.clone(), ETag::new("other"));
    let copied = store.copy(&wrong, &key("two-bucket/c"), CopyOptions::default()).await;
    assert!(matches!(copied, Err(StoreError::PreconditionFailed(at)) if at == made.key));
    store.delete(&made.key, Precondition::None).await.unwrap();
    assert!(inside.find(&key("a/b")).await.unwrap().is_none());
}

#[tokio::test]
async fn only_chosen_buckets_are_listed_as_directories() {
    let buckets =
        buckets(&["a", "a-b", "a.c", "zzz"].map(|name| ["x-", name].concat()).each_ref().map(String::as_str))
            .await;
    let store = JoinedStore::new(Arc::clone(&buckets), None);
    let some = JoinedStore::new(buckets, Some(BTreeSet::from(["x-a".to_owned(), "x-zzz".to_owned()])));
    for at in ["x-a/1", "x-a/d/2", "x-a/.tenon/volume", "x-a-b/3", "x-zzz/4"] {
        put(&store, at, "x").await;
    }
    for limit in [1, 2, 1000] {
        assert_eq!(texts(&store, "", Some(b'/'), limit).await, ["x-a-b/", "x-a.c/", "x-a/", "x-zzz/"]);
        assert_eq!(texts(&some, "", Some(b'/'), limit).await, ["x-a/", "x-zzz/"]);
        assert_eq!(texts(&store, "x-a/", Some(b'/'), limit).await, ["x-a/1", "x-a/d/"]);
        assert_eq!(texts(&store, "x-a/d/", Some(b'/'), limit).await, ["x-a/d/2"]);
        assert_eq!(texts(&store, "", None, limit).await, ["x-a-b/3", "x-a/1", "x-a/d/2", "x-zzz/4"]);
        assert_eq!(texts(&some, "", None, limit).await, ["x-a/1", "x-a/d/2", "x-zzz/4"]);
        assert_eq!(texts(&store, "no-bucket/", Some(b'/'), limit).await, [""; 0]);
    }
    let after = |text: &'static str| ListRequest {
        prefix: "x-a/".into(),
        start_after: Some(text.into()),
        limit: 10,
        ..ListRequest::default()
    };
    assert_eq!(store.list(after("x-a/1")).await.unwrap().entries.len(), 1);
    assert_eq!(store.list(after("x-")).await.unwrap().entries.len(), 2);
    assert_eq!(store.list(after("x-b")).await.unwrap().entries.len(), 0);
    assert!(matches!(some.head(&key("x-a-b/3")).await, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn copies_between_buckets_preserve_headers_and_tags() {
    let store = JoinedStore::new(buckets(&["one-bucket", "two-bucket"]).await, None);
    let small = put(&store, "one-bucket/small", "hello").await;
    let large = put(&store, "one-bucket/large", &"0123456789".repeat(4 << 20)).await;
    for (from, to) in [(&small, "two-bucket/s"), (&large, "two-bucket/l"), (&small, "one-bucket/s")] {
        store.copy(from, &key(to), CopyOptions::default()).await.unwrap();
        assert!(read(&store, to).await == read(&store, &from.key.to_string()).await);
        let meta = store.head(&key(to)).await.unwrap();
        assert_eq!(meta.attributes.user["from"], from.key.to_string());
        assert_eq!(store.tags(&key(to)).await.unwrap()["t"], "v");
        let again = CopyOptions { precondition: Precondition::Absent, ..CopyOptions::default() };
        let refused = store.copy(from, &key(to), again).await;
        assert!(matches!(refused, Err(StoreError::PreconditionFailed(at)) if at == key(to)));
    }
    store.rename(&small, &key("two-bucket/moved"), Precondition::Absent).await.unwrap();
    assert!(store.find(&small.key).await.unwrap().is_none());
    assert_eq!(read(&store, "two-bucket/moved").await, b"hello");
    let upload = store.multipart(&key("two-bucket/parts"), Attributes::default(), Tags::new()).await.unwrap();
    upload.put_part(1, "ab".into()).await.unwrap();
    upload.copy_part(2, &large, 1..3).await.unwrap();
    let joined = upload.complete(Precondition::None).await.unwrap();
    assert_eq!(joined.key, key("two-bucket/parts"));
    assert_eq!(read(&store, "two-bucket/parts").await, b"ab12");
}

/// Tenon's own objects of a bucket have keys, but only a listing that asks for them has them.
#[tokio::test]
async fn own_objects_of_a_bucket_are_listed_on_request() {
    let store = JoinedStore::new(buckets(&["one-bucket", "two-bucket"]).await, None);
    let object = put(&store, "two-bucket/open", "hello").await;
    let own = key("two-bucket/.tenon/orphans/7-1");
    store.copy(&object, &own, CopyOptions::default()).await.unwrap();
    assert_eq!(texts(&store, "two-bucket/", None, 10).await, ["two-bucket/open"]);
    assert_eq!(texts(&store, "two-bucket/.tenon/", None, 10).await, ["two-bucket/.tenon/orphans/7-1"]);
    let outside = store.put(&key(".tenon/orphans/7-1"), "x".into(), PutOptions::default()).await;
    assert!(matches!(outside, Err(StoreError::Denied(_))), "{outside:?}");
}
