//! Events: which requests emit which events, in which order, and where to.

use super::raw::{Answer, send};
use super::test_server::{KEY, OneBucket, TestServer};
use events::{ChannelItem, EventKind, ObjectEvent, Subscription, Webhook, WebhookConfig};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::memory::MemoryStore;
use store::wrap::{Call, Layer, Operation, Wrapped};
use store::{Entropy, ObjectKey, Payload, Precondition, PutOptions, SystemClock};
use tokio::sync::Semaphore;

const ENABLED: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";

async fn ask(server: &TestServer, method: &str, path: &str, query: &str, body: &str) -> Answer {
    send(server, Some(KEY), (method, path, query), &[], body).await
}

async fn ask_with(
    server: &TestServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    send(server, Some(KEY), (method, path, ""), headers, body).await
}

async fn bucket() -> (TestServer, Subscription) {
    let server = TestServer::start().await;
    ask(&server, "PUT", "/bucket", "", "").await.is(200);
    let subscription = server.inner.endpoint().subscribe();
    (server, subscription)
}

async fn next(subscription: &mut Subscription) -> Arc<ObjectEvent> {
    let received = tokio::time::timeout(Duration::from_secs(10), subscription.next()).await;
    match received {
        Ok(Some(ChannelItem::Event(event))) => event,
        other => panic!("{other:?}"),
    }
}

/// Waits until all events are dispatched and returns them.
async fn drain_events(server: &TestServer, subscription: &mut Subscription) -> Vec<Arc<ObjectEvent>> {
    server.inner.endpoint().shut_down(Duration::from_secs(10)).await;
    let mut events = Vec::new();
    while let Ok(next) = tokio::time::timeout(Duration::from_millis(20), subscription.next()).await {
        match next {
            Some(ChannelItem::Event(event)) => events.push(event),
            other => panic!("{other:?}"),
        }
    }
    events
}

fn shown(event: &ObjectEvent) -> (EventKind, String) {
    (event.kind, event.key.to_string())
}

#[tokio::test]
async fn s193_events_have_metadata_and_tags() {
    let (server, mut subscription) = bucket().await;
    let headers = [
        ("content-type", "text/plain"),
        ("x-amz-meta-project", "x"),
        ("x-amz-tagging", "class=raw&owner=me"),
        ("x-amz-checksum-algorithm", "CRC32"),
    ];
    let answer = ask_with(&server, "PUT", "/bucket/a", &headers, "abc").await.is(200);
    let put = next(&mut subscription).await;
    assert_eq!(shown(&put), (EventKind::CreatedPut, "a".to_owned()));
    assert_eq!((put.bucket.as_str(), put.region.as_str()), ("bucket", "us-east-1"));
    assert_eq!((put.principal.as_str(), put.owner.as_str()), (KEY, KEY));
    assert_eq!(put.source, Some([127, 0, 0, 1].into()));
    assert_eq!(Some(put.request_id.as_str()), answer.header("x-amz-request-id"));
    let object = &put.object;
    assert_eq!(
        answer.header("etag"),
        Some(format!("\"{}\"", object.etag.clone().unwrap().as_str()).as_str())
    );
    assert_eq!((object.size_bytes, object.content_type.as_deref()), (Some(3), Some("text/plain")));
    assert_eq!(object.user, BTreeMap::from([("project".to_owned(), "x".to_owned())]));
    let tags =
        BTreeMap::from([("class".to_owned(), "raw".to_owned()), ("owner".to_owned(), "me".to_owned())]);
    assert_eq!(object.tags, tags);

    let source = [("x-amz-copy-source", "/bucket/a")];
    ask_with(&server, "PUT", "/bucket/b", &source, "").await.is(200);
    let copied = next(&mut subscription).await;
    assert_eq!(shown(&copied), (EventKind::CreatedCopy, "b".to_owned()));
    assert_eq!((&copied.object.user, &copied.object.tags), (&object.user, &tags));
    assert_eq!(copied.object.size_bytes, Some(3));
    // The event of a copy shows the tags that replace the source's.
    let replaced = [source[0], ("x-amz-tagging-directive", "REPLACE"), ("x-amz-tagging", "class=new")];
    ask_with(&server, "PUT", "/bucket/c", &replaced, "").await.is(200);
    let copied = next(&mut subscription).await;
    assert_eq!(copied.object.tags, BTreeMap::from([("class".to_owned(), "new".to_owned())]));

    let tagging = "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>";
    ask(&server, "PUT", "/bucket/a", "tagging", tagging).await.is(200);
    let tagged = next(&mut subscription).await;
    assert_eq!(shown(&tagged), (EventKind::TaggingPut, "a".to_owned()));
    assert_eq!(tagged.object.tags, BTreeMap::from([("k".to_owned(), "v".to_owned())]));
    assert_eq!((&tagged.object.etag, tagged.object.size_bytes), (&object.etag, Some(3)));
    assert!(tagged.sequence > put.sequence);
    ask(&server, "DELETE", "/bucket/a", "tagging", "").await.is(204);
    let untagged = next(&mut subscription).await;
    assert_eq!(
        (untagged.kind, untagged.object.tags.is_empty(), untagged.object.size_bytes),
        (EventKind::TaggingDelete, true, Some(3))
    );
}

#[tokio::test]
async fn s193_every_way_to_change_an_object_has_its_event() {
    let (server, mut subscription) = bucket().await;
    let begun = ask(&server, "POST", "/bucket/big", "uploads", "").await.is(200);
    let id = begun.element("UploadId").unwrap().to_owned();
    let part =
        ask(&server, "PUT", "/bucket/big", &format!("partNumber=1&uploadId={id}"), "part").await.is(200);
    let etag = part.header("etag").unwrap();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    for _ in 0..2 {
        // The second completion finds the upload completed before, and changes nothing.
        ask(&server, "POST", "/bucket/big", &format!("uploadId={id}"), &list).await.is(200);
    }
    let completed = next(&mut subscription).await;
    assert_eq!(shown(&completed), (EventKind::CreatedCompleteMultipartUpload, "big".to_owned()));
    assert_eq!(completed.object.size_bytes, Some(4));
    assert!(completed.object.user.is_empty(), "{:?}", completed.object.user);

    let rename = [("x-amz-rename-source", "big")];
    send(&server, Some(KEY), ("PUT", "/bucket/moved", "renameObject"), &rename, "").await.is(200);
    let mut renamed =
        [next(&mut subscription).await, next(&mut subscription).await].map(|event| shown(&event));
    renamed.sort_by_key(|(_, key)| key.clone());
    let pair = [(EventKind::RemovedDelete, "big".to_owned()), (EventKind::CreatedCopy, "moved".to_owned())];
    assert_eq!(renamed, pair);

    ask(&server, "DELETE", "/bucket/moved", "", "").await.is(204);
    assert_eq!(shown(&*next(&mut subscription).await), (EventKind::RemovedDelete, "moved".to_owned()));
    for key in ["x", "y"] {
        ask(&server, "PUT", &format!("/bucket/{key}"), "", key).await.is(200);
        next(&mut subscription).await;
    }
    let many = "<Delete><Object><Key>x</Key></Object><Object><Key>y</Key></Object></Delete>";
    ask(&server, "POST", "/bucket", "delete", many).await.is(200);
    let mut deleted =
        [next(&mut subscription).await, next(&mut subscription).await].map(|event| shown(&event));
    deleted.sort_by_key(|(_, key)| key.clone());
    assert_eq!(deleted, ["x", "y"].map(|key| (EventKind::RemovedDelete, key.to_owned())));

    // A body that is too long to buffer.
    let long = "x".repeat(17 << 20);
    ask(&server, "PUT", "/bucket/long", "", &long).await.is(200);
    let long = next(&mut subscription).await;
    assert_eq!((long.kind, long.object.size_bytes), (EventKind::CreatedPut, Some(17 << 20)));
    assert_eq!(drain_events(&server, &mut subscription).await, []);
}

#[tokio::test]
async fn s193_versions_and_delete_markers_have_events() {
    let (server, mut subscription) = bucket().await;
    ask(&server, "PUT", "/bucket", "versioning", ENABLED).await.is(200);
    let put = ask(&server, "PUT", "/bucket/a", "", "1").await.is(200);
    let version = put.header("x-amz-version-id").unwrap();
    assert_eq!(next(&mut subscription).await.object.version.as_deref(), Some(version));
    let marked = ask(&server, "DELETE", "/bucket/a", "", "").await.is(204);
    let event = next(&mut subscription).await;
    assert_eq!(event.kind, EventKind::RemovedDeleteMarkerCreated);
    assert_eq!(event.object.version.as_deref(), marked.header("x-amz-version-id"));
    ask(&server, "DELETE", "/bucket/a", &format!("versionId={version}"), "").await.is(204);
    let event = next(&mut subscription).await;
    assert_eq!((event.kind, event.object.version.as_deref()), (EventKind::RemovedDelete, Some(version)));
}

#[tokio::test]
async fn s193_failed_requests_have_no_events() {
    let (server, mut subscription) = bucket().await;
    ask_with(&server, "PUT", "/bucket/a", &[("if-match", "\"other\"")], "1").await.is(404);
    let wrong = [("x-amz-checksum-crc32", "AAAAAA==")];
    ask_with(&server, "PUT", "/bucket/a", &wrong, "1").await.is(400);
    send(&server, Some("reader"), ("PUT", "/bucket/a", ""), &[], "1").await.errs(403, "AccessDenied");
    ask(&server, "PUT", "/none/a", "", "1").await.errs(404, "NoSuchBucket");
    let source = [("x-amz-copy-source", "/bucket/none")];
    ask_with(&server, "PUT", "/bucket/b", &source, "").await.errs(404, "NoSuchKey");
    ask(&server, "GET", "/bucket/a", "", "").await.errs(404, "NoSuchKey");
    assert_eq!(drain_events(&server, &mut subscription).await, []);
}

/// A store that completes its calls and delays its responses.
#[derive(Debug, Clone)]
struct DelayedStore {
    done: Arc<Semaphore>,
    may_answer: Arc<Semaphore>,
}

impl Layer for DelayedStore {
    async fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        let outcome = work.await;
        if call.operation == Operation::Put {
            self.done.add_permits(1);
            self.may_answer.acquire().await.unwrap().forget();
        }
        outcome
    }
}

/// The client disconnects while the store works. The stored object still has its event.
#[tokio::test]
async fn s193_changes_of_disconnected_clients_have_events() {
    let delayed = DelayedStore { done: Arc::new(Semaphore::new(0)), may_answer: Arc::new(Semaphore::new(0)) };
    let store = Wrapped::new(MemoryStore::new(Arc::new(SystemClock)), delayed.clone());
    let server = Arc::new(TestServer::with_buckets(Arc::new(OneBucket(Arc::new(store)))).await);
    let mut subscription = server.inner.endpoint().subscribe();
    let asking = server.clone();
    let client = tokio::spawn(async move { ask(&asking, "PUT", "/bucket/a", "", "x").await });
    delayed.done.acquire().await.unwrap().forget();
    client.abort();
    assert!(client.await.is_err());
    tokio::time::sleep(Duration::from_millis(100)).await;
    delayed.may_answer.add_permits(1);
    assert_eq!(shown(&*next(&mut subscription).await), (EventKind::CreatedPut, "a".to_owned()));
}

/// A store whose tags cannot be read until the semaphore is closed.
#[derive(Debug, Clone)]
struct BlockedTags(Arc<Semaphore>);

impl Layer for BlockedTags {
    async fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        if call.operation == Operation::GetTags {
            drop(self.0.acquire().await);
        }
        work.await
    }
}

/// When objects change faster than the workers can read them, requests proceed, the lost events are counted, and subscribers
/// learn of which bucket they are.
#[tokio::test]
async fn s193_s196_dropped_events_are_reported_as_lost() {
    const COPIES: u64 = 600;
    let blocked = BlockedTags(Arc::new(Semaphore::new(0)));
    let store = Wrapped::new(MemoryStore::new(Arc::new(SystemClock)), blocked.clone());
    let server = TestServer::with_buckets(Arc::new(OneBucket(Arc::new(store)))).await;
    ask(&server, "PUT", "/bucket/a", "", "x").await.is(200);
    let mut subscription = server.inner.endpoint().subscribe();
    let source = [("x-amz-copy-source", "/bucket/a")];
    for _ in 0..COPIES {
        ask_with(&server, "PUT", "/bucket/b", &source, "").await.is(200);
    }
    blocked.0.close();
    server.inner.endpoint().shut_down(Duration::from_secs(10)).await;
    let lost = server.inner.endpoint().events_lost();
    let (mut delivered, mut lost_in) = (0, None);
    while delivered + lost < COPIES || lost_in.is_none() {
        match tokio::time::timeout(Duration::from_secs(10), subscription.next()).await {
            Ok(Some(ChannelItem::Event(_))) => delivered += 1,
            Ok(Some(ChannelItem::Lost(bucket))) => lost_in = Some(bucket),
            other => panic!("{other:?}"),
        }
    }
    assert!(delivered > 0 && lost > 0 && delivered + lost == COPIES, "{delivered} and {lost}");
    assert_eq!(lost_in, Some(Some("bucket".to_owned())));
}

/// Writers and deleters of one key race. In every round, the event with the greatest sequence matches the object.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s197_the_last_event_of_a_key_matches_the_object() {
    let server = TestServer::start().await;
    let store = server.fresh_bucket().await.unwrap();
    let mut subscription = server.inner.endpoint().subscribe();
    let key = ObjectKey::try_from("contended").unwrap();
    let mut corrected = 0;
    for round in 0..40_u64 {
        let calls = (0..6).map(|number| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                if (number + round) % 3 == 0 {
                    store.delete(&key, Precondition::None).await.unwrap();
                } else {
                    let body = Payload::from(format!("{round}-{number}"));
                    store.put(&key, body, PutOptions::default()).await.unwrap();
                }
            })
        });
        futures_util::future::join_all(calls).await.into_iter().for_each(Result::unwrap);
        let there = store.find(&key).await.unwrap().map(|meta| meta.object.etag);
        let mut delivered = drain_events(&server, &mut subscription).await;
        assert!(delivered.len() >= 6);
        corrected += delivered.len() - 6;
        let in_order = delivered.clone();
        delivered.sort_by_key(|event| event.sequence);
        assert_eq!(in_order, delivered, "events arrive in sequence order");
        let last = delivered.last().unwrap();
        let says = if last.kind.is_created() { last.object.etag.clone() } else { None };
        assert_eq!(says, there, "round {round}");
    }
    println!("{corrected} corrections");
}

fn webhooks(dir: &Path) -> BTreeMap<String, Webhook> {
    let hook = |name: &str| {
        let config = WebhookConfig {
            name: name.to_owned(),
            url: "http://127.0.0.1:1/".to_owned(),
            authorization: None,
            ca_bundle: None,
            retry_for: Duration::ZERO,
            dead_letters: dir.join(name),
        };
        (name.to_owned(), Webhook::start(config, Arc::new(Entropy::new(1))).unwrap())
    };
    ["one", "other"].map(hook).into()
}

/// Returns the events sent to an unreachable webhook, from its dead letters.
fn sent(dir: &Path, name: &str) -> Vec<(EventKind, String)> {
    let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let mut sent: Vec<_> = text
        .lines()
        .flat_map(|line| events::aws::parse(line.as_bytes()).unwrap())
        .map(|e| shown(&e))
        .collect();
    sent.sort_by_key(|(kind, key)| (key.clone(), kind.name()));
    sent
}

fn queue(id: &str, hook: &str, events: &[&str], rules: &[(&str, &str)]) -> String {
    let events: String = events.iter().map(|event| format!("<Event>s3:{event}</Event>")).collect();
    let rule = |(name, value): &(&str, &str)| {
        format!("<FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule>")
    };
    let rules: String = rules.iter().map(rule).collect();
    let filter =
        if rules.is_empty() { String::new() } else { format!("<Filter><S3Key>{rules}</S3Key></Filter>") };
    let arn = format!("arn:tenon:sqs::{hook}:webhook");
    format!("<QueueConfiguration><Id>{id}</Id><Queue>{arn}</Queue>{events}{filter}</QueueConfiguration>")
}

fn configuration(inner: &str) -> String {
    format!("<NotificationConfiguration>{inner}</NotificationConfiguration>")
}

#[tokio::test]
async fn s195_configurations_send_events_where_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::with_webhooks(webhooks(dir.path())).await;
    ask(&server, "PUT", "/bucket", "", "").await.is(200);
    ask(&server, "PUT", "/bucket/before", "", "").await.is(200);
    let jpg = queue("jpg", "one", &["ObjectCreated:*"], &[("prefix", "in/"), ("Suffix", ".jpg")]);
    let gone = queue("gone", "other", &["ObjectRemoved:Delete", "ObjectTagging:*"], &[]);
    ask(&server, "PUT", "/bucket", "notification", &configuration(&(jpg + &gone))).await.is(200);
    let set = ask(&server, "GET", "/bucket", "notification", "").await.is(200);
    assert!(set.body.contains("arn:tenon:sqs::one:webhook") && set.body.contains("in/"), "{}", set.body);
    for key in ["in/a.jpg", "in/a.png", "out/a.jpg"] {
        ask(&server, "PUT", &format!("/bucket/{key}"), "", "x").await.is(200);
        ask(&server, "DELETE", &format!("/bucket/{key}"), "", "").await.is(204);
    }
    // Setting an empty configuration removes it.
    ask(&server, "PUT", "/bucket", "notification", &configuration("")).await.is(200);
    ask(&server, "PUT", "/bucket/in/after.jpg", "", "x").await.is(200);
    server.inner.endpoint().shut_down(Duration::from_secs(10)).await;
    assert_eq!(sent(dir.path(), "one"), [(EventKind::CreatedPut, "in/a.jpg".to_owned())]);
    let gone = ["in/a.jpg", "in/a.png", "out/a.jpg"].map(|key| (EventKind::RemovedDelete, key.to_owned()));
    assert_eq!(sent(dir.path(), "other"), gone);
    let counts = server.inner.endpoint().webhooks();
    assert_eq!((counts["one"].failed, counts["other"].failed), (1, 3));
}

#[tokio::test]
async fn s195_invalid_configurations_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::with_webhooks(webhooks(dir.path())).await;
    ask(&server, "PUT", "/bucket", "", "").await.is(200);
    let all = ["ObjectCreated:*"];
    let long = "x".repeat(1025);
    let topic = "<TopicConfiguration><Topic>arn:aws:sns:us-east-1:1:t</Topic><Event>s3:ObjectCreated:*</Event></TopicConfiguration>";
    for (odd, says) in [
        (queue("1", "none", &all, &[]), "destination"),
        (topic.to_owned(), "destination"),
        (queue("1", "one", &["ObjectCreated:Odd"], &[]), "not supported"),
        (queue("1", "one", &["*"], &[]), "not supported"),
        (queue("1", "one", &all, &[("infix", "a")]), "prefix or suffix"),
        (queue("1", "one", &all, &[("prefix", "a"), ("Prefix", "b")]), "more than one prefix"),
        (queue("1", "one", &all, &[("prefix", &long)]), "1024"),
        (queue("1", "one", &all, &[]) + &queue("1", "one", &["ObjectRemoved:*"], &[]), "unique"),
        (
            queue("1", "one", &all, &[]) + &queue("2", "other", &["ObjectCreated:Put"], &[("prefix", "a")]),
            "overlapping",
        ),
    ] {
        let answer = ask(&server, "PUT", "/bucket", "notification", &configuration(&odd)).await;
        let refused = answer.errs(400, "InvalidArgument");
        assert!(refused.body.contains(says), "{}", refused.body);
    }
    let bridge = configuration("<EventBridgeConfiguration/>");
    ask(&server, "PUT", "/bucket", "notification", &bridge).await.errs(501, "NotImplemented");
    let set = ask(&server, "GET", "/bucket", "notification", "").await.is(200);
    assert!(!set.body.contains("QueueConfiguration"), "{}", set.body);
    let fine = queue("1", "one", &["ObjectRestore:*", "ObjectAcl:Put"], &[]);
    ask(&server, "PUT", "/bucket", "notification", &configuration(&fine)).await.is(200);
}
