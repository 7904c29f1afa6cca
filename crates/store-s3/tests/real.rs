//! Tests that need real servers: requests per operation, wrong settings, a server that crashes and restarts.

use super::{client_of, config, fresh_bucket};
use bytes::Bytes;
use futures_util::TryStreamExt;
use servers::S3Server;
use std::time::Duration;
use store::{
    Attributes, Buckets, CopyOptions, GetOptions, ListRequest, ObjectKey, ObjectStore, Payload, Precondition,
    PutOptions, Result, StoreError, Tags,
};
use store_s3::{
    Credentials, CredentialsSource, RequestCounts, RequestKind, RetryPolicy, S3Config, UnsignedPayload,
};

fn both() -> [&'static S3Server; 2] {
    [servers::shared_minio(), servers::shared_versitygw()]
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::try_from(text).unwrap()
}

async fn read(store: &dyn ObjectStore, key: &ObjectKey, options: GetOptions) -> Result<Vec<u8>> {
    let pieces: Vec<Bytes> = store.get(key, options).await?.body.try_collect().await?;
    Ok(pieces.concat())
}

/// Counts the requests of an operation by kind.
struct Meter<'a>(&'a RequestCounts, Vec<(RequestKind, u64)>);

impl<'a> Meter<'a> {
    fn start(counts: &'a RequestCounts) -> Self {
        Self(counts, counts.snapshot())
    }

    /// Returns the requests since the last call.
    fn sent(&mut self) -> Vec<(RequestKind, u64)> {
        let now = self.0.snapshot();
        let since = now.iter().zip(&self.1).map(|(now, before)| (now.0, now.1 - before.1));
        let sent = since.filter(|(_, count)| *count > 0).collect();
        self.1 = now;
        sent
    }
}

/// Requests cost money and time, so an operation sends a single request if S3 has one for it.
#[tokio::test(flavor = "multi_thread")]
async fn requests_per_operation() {
    use RequestKind::{
        Complete, Copy, Delete, Get, GetTags, Head, List, Multipart, Part, PartCopy, Put, PutTags,
    };
    for server in both() {
        let buckets = client_of(config(server));
        let store = fresh_bucket(&buckets).await.unwrap();
        let counts = buckets.requests();
        let mut meter = Meter::start(&counts);
        let attributes =
            Attributes { user: [("mode".into(), "0644".into())].into(), ..Attributes::default() };
        let options = PutOptions { attributes, precondition: Precondition::Absent, ..PutOptions::default() };
        let object = store.put(&key("a/b"), Payload::from("0123456789"), options).await.unwrap();
        assert_eq!(meter.sent(), [(Put, 1)]);
        read(&*store, &key("a/b"), GetOptions::default()).await.unwrap();
        assert_eq!(meter.sent(), [(Get, 1)]);
        let middle = GetOptions { range: Some(4..6), if_match: Some(object.etag.clone()), version: None };
        assert_eq!(read(&*store, &key("a/b"), middle).await.unwrap(), b"45");
        assert_eq!(meter.sent(), [(Get, 1)]);
        store.head(&key("a/b")).await.unwrap();
        assert_eq!(meter.sent(), [(Head, 1)]);
        store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await.unwrap();
        assert_eq!(meter.sent(), [(List, 1)]);
        store.copy(&object, &key("c"), CopyOptions::default()).await.unwrap();
        assert_eq!(meter.sent(), [(Copy, 1)]);
        store.set_tags(&key("c"), [("t".into(), "v".into())].into()).await.unwrap();
        store.tags(&key("c")).await.unwrap();
        assert_eq!(meter.sent(), [(GetTags, 1), (PutTags, 1)]);
        let upload = store.multipart(&key("m"), Attributes::default(), Tags::new()).await.unwrap();
        upload.put_part(1, Payload::from(vec![7; 5 << 20])).await.unwrap();
        upload.copy_part(2, &object, 2..9).await.unwrap();
        upload.complete(Precondition::Absent).await.unwrap();
        assert_eq!(meter.sent(), [(Multipart, 1), (Part, 1), (PartCopy, 1), (Complete, 1)]);
        store.delete(&key("m"), Precondition::None).await.unwrap();
        assert_eq!(meter.sent(), [(Delete, 1)]);
        assert_eq!(counts.retries(), 0);
    }
}

/// The server is probed once for keys that it may normalise, not with every write.
#[tokio::test(flavor = "multi_thread")]
async fn odd_keys_are_probed_once() {
    let buckets = client_of(config(servers::shared_versitygw()));
    let store = fresh_bucket(&buckets).await.unwrap();
    store.put(&key("b"), Payload::from("b"), PutOptions::default()).await.unwrap();
    let first = store.put(&key("a/../b"), Payload::from("x"), PutOptions::default()).await;
    assert!(matches!(first, Err(StoreError::InvalidKey { .. })));
    let sent = buckets.requests().total();
    let second = store.delete(&key("a/../b"), Precondition::None).await;
    assert!(matches!(second, Err(StoreError::InvalidKey { .. })));
    assert_eq!(buckets.requests().total(), sent);
    assert_eq!(read(&*store, &key("b"), GetOptions::default()).await.unwrap(), b"b");
    let listed = store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_sign_a_payload() {
    for server in both() {
        for (unsigned_payload, checksums) in [
            (UnsignedPayload::Always, true),
            (UnsignedPayload::Never, true),
            (UnsignedPayload::Never, false),
            (UnsignedPayload::Always, false),
        ] {
            let store = fresh_bucket(&client_of(S3Config { unsigned_payload, checksums, ..config(server) }))
                .await
                .unwrap();
            for body in ["", "some bytes"] {
                store.put(&key("k"), Payload::from(body), PutOptions::default()).await.unwrap();
                assert_eq!(read(&*store, &key("k"), GetOptions::default()).await.unwrap(), body.as_bytes());
            }
            let upload = store.multipart(&key("m"), Attributes::default(), Tags::new()).await.unwrap();
            upload.put_part(1, Payload::from("part")).await.unwrap();
            upload.complete(Precondition::None).await.unwrap();
            assert_eq!(read(&*store, &key("m"), GetOptions::default()).await.unwrap(), b"part");
        }
    }
}

async fn open_error(config: S3Config, bucket: &str) -> String {
    client_of(config).open(bucket).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_are_reported_in_one_line() {
    for server in both() {
        client_of(config(server)).create("right-bucket").await.unwrap();
        let login = |access: &str, secret: &str| S3Config {
            credentials: Credentials::new(access, secret, None).unwrap().into(),
            ..config(server)
        };
        for (config, bucket, expected) in [
            (config(server), "no-such-bucket", "no bucket 'no-such-bucket': create it first"),
            (login(server.access_key(), "wrong"), "right-bucket", "check the secret key"),
            (login("nobody", server.secret_key()), "right-bucket", "check the access key"),
            (
                S3Config { credentials: CredentialsSource::Anonymous, ..config(server) },
                "right-bucket",
                "access denied",
            ),
            (config(server), "a/b", "not a bucket's name"),
        ] {
            let text = open_error(config, bucket).await;
            assert!(text.contains(expected) && !text.contains('\n'), "{expected}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_endpoint_is_reported_soon() {
    let free = servers::free_address();
    let nowhere = S3Config { endpoint: Some(format!("http://{free}")), ..S3Config::default() };
    let buckets = client_of(nowhere);
    let text = buckets.open("bucket").await.unwrap_err().to_string();
    assert!(text.contains(&free.to_string()) && text.ends_with("check the endpoint"), "{text}");
    assert_eq!(buckets.requests().total(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_is_used_again() {
    for start in [servers::minio, servers::versitygw] {
        let mut server = start();
        let retry = RetryPolicy { attempts_max: 3, budget: Duration::from_secs(2), ..RetryPolicy::default() };
        let store = fresh_bucket(&client_of(S3Config { retry, ..config(&server) })).await.unwrap();
        store.put(&key("k"), Payload::from("kept"), PutOptions::default()).await.unwrap();
        server.stop();
        let dead = store.head(&key("k")).await;
        assert!(matches!(dead, Err(StoreError::Unavailable(_))), "{dead:?}");
        server.restart();
        assert_eq!(read(&*store, &key("k"), GetOptions::default()).await.unwrap(), b"kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_outage_is_bridged_by_retries() {
    let mut server = servers::versitygw();
    let store = fresh_bucket(&client_of(config(&server))).await.unwrap();
    server.stop();
    let reader = {
        let store = store.clone();
        tokio::spawn(async move { store.put(&key("k"), Payload::from("late"), PutOptions::default()).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    let restarted = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    let _server = restarted.await.unwrap();
    reader.await.unwrap().unwrap();
}

/// The servers store the checksums of our objects, so that the client detects bytes that were changed in transit.
#[tokio::test(flavor = "multi_thread")]
async fn s121_bytes_changed_in_transit_are_refused() {
    for server in [servers::shared_minio(), servers::shared_versitygw()] {
        let proxy = servers::proxy(&server.endpoint());
        let retry = RetryPolicy { budget: Duration::from_secs(1), ..RetryPolicy::default() };
        let config = S3Config { endpoint: Some(proxy.endpoint()), retry, ..config(server) };
        let store = fresh_bucket(&client_of(config)).await.unwrap();
        for len in [1, 300_000, 9 << 20] {
            store.put(&key("k"), Payload::from(vec![7; len]), PutOptions::default()).await.unwrap();
            proxy.set(servers::Mode::FlipBytes);
            let changed = read(&*store, &key("k"), GetOptions::default()).await;
            assert!(
                matches!(changed, Err(StoreError::Corrupt(_))),
                "{len}: {:?}",
                changed.map(|read| read.len())
            );
            proxy.set(servers::Mode::Pass);
            assert!(read(&*store, &key("k"), GetOptions::default()).await.unwrap() == vec![7; len]);
        }
    }
}
