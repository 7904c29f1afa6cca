//! Lifecycle rules: items that are due are deleted, and nothing else.

use super::raw::{Answer, send};
use super::test_server::{KEY, OneBucket, TestServer};
use events::{ChannelItem, EventKind, Subscription};
use s3::Expired;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::memory::{MemoryBuckets, MemoryStore};
use store::wrap::{Call, Layer, Operation, Wrapped};
use store::{Buckets, Clock, ObjectKey, ObjectStore, PutOptions, SystemClock, Timestamp};

const DAY_SECS: i64 = 86_400;
const ENABLED: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const LOCK: &str =
    "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>";

/// The system clock plus an offset in seconds.
#[derive(Debug, Default)]
struct OffsetClock(AtomicI64);

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now();
        Timestamp(now.0 + self.0.load(Ordering::Relaxed) * 1_000_000_000)
    }
}

/// A test endpoint whose clock can be set ahead. Requests are signed at the present time.
struct ClockedServer {
    server: TestServer,
    clock: Arc<OffsetClock>,
    subscription: Subscription,
}

impl ClockedServer {
    async fn start() -> Self {
        let clock = Arc::new(OffsetClock::default());
        let server = TestServer::with_clock(Arc::new(MemoryBuckets::new(clock.clone())), clock.clone()).await;
        let subscription = server.inner.endpoint().subscribe();
        let days = Self { server, clock, subscription };
        days.ask("PUT", "/bucket", "", "").await.is(200);
        days
    }

    async fn ask(&self, method: &str, path: &str, query: &str, body: &str) -> Answer {
        self.ask_with(method, path, query, &[], body).await
    }

    /// Sends a request at the present time, even if the clock is set ahead.
    async fn ask_with(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let ahead = self.clock.0.swap(0, Ordering::Relaxed);
        let answer = send(&self.server, Some(KEY), (method, path, query), headers, body).await;
        self.clock.0.store(ahead, Ordering::Relaxed);
        answer
    }

    async fn put(&self, key: &str, tags: &str, body: &str) -> Answer {
        let headers: &[(&str, &str)] = if tags.is_empty() { &[] } else { &[("x-amz-tagging", tags)] };
        self.ask_with("PUT", &format!("/bucket/{key}"), "", headers, body).await.is(200)
    }

    async fn set_rules(&self, rules: &str) -> Answer {
        let body = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
        self.ask("PUT", "/bucket", "lifecycle", &body).await
    }

    /// Runs the rules with the clock set ahead by `days`.
    async fn expire_in(&self, days: i64) -> Expired {
        self.clock.0.store(days * DAY_SECS, Ordering::Relaxed);
        self.server.inner.endpoint().apply_lifecycle_rules().await
    }

    async fn keys(&self) -> Vec<String> {
        let listed = self.ask("GET", "/bucket", "list-type=2", "").await.is(200);
        let keys = listed.body.split("<Key>").skip(1);
        keys.map(|rest| rest.split("</Key>").next().unwrap().to_owned()).collect()
    }

    /// Returns the events of lifecycle deletions.
    async fn lifecycle_events(&mut self) -> Vec<(EventKind, String)> {
        self.server.inner.endpoint().shut_down(Duration::from_secs(10)).await;
        let mut events = Vec::new();
        while let Ok(Some(received)) =
            tokio::time::timeout(Duration::from_millis(20), self.subscription.next()).await
        {
            let ChannelItem::Event(event) = received else { panic!("events are lost") };
            if event.principal == "tenon:lifecycle" {
                events.push((event.kind, event.key.to_string()));
            }
        }
        events.sort_by_key(|(_, key)| key.clone());
        events
    }
}

fn rule(filter: &str, actions: &str) -> String {
    format!("<Rule><Status>Enabled</Status><Filter>{filter}</Filter>{actions}</Rule>")
}

fn days(days: i64) -> String {
    format!("<Expiration><Days>{days}</Days></Expiration>")
}

#[tokio::test]
async fn s198_objects_expire_by_age_prefix_size_and_tag() {
    let mut server = ClockedServer::start().await;
    let and = "<And><Prefix>tagged/</Prefix><Tag><Key>class</Key><Value>scratch</Value></Tag><ObjectSizeGreaterThan>2</ObjectSizeGreaterThan></And>";
    let rules = [
        rule("<Prefix>logs/</Prefix>", &days(3)),
        rule(and, &days(1)),
        rule("<ObjectSizeGreaterThan>100</ObjectSizeGreaterThan>", &days(30)),
        rule("<Prefix>kept/</Prefix>", &days(1)).replace("Enabled", "Disabled"),
    ];
    server.set_rules(&rules.concat()).await.is(200);
    for key in ["logs/a", "logs/b", "kept/a", "other"] {
        server.put(key, "", "x").await;
    }
    server.put("tagged/yes", "class=scratch&more=1", "xxx").await;
    server.put("tagged/small", "class=scratch", "xx").await;
    server.put("tagged/no", "class=raw", "xxx").await;
    server.put("large", "", &"x".repeat(101)).await;
    assert_eq!(server.expire_in(0).await, Expired::default());
    // Periods are rounded up to midnight: one day is certainly over on the second day.
    assert_eq!(server.expire_in(2).await, Expired { objects: 1, ..Expired::default() });
    assert_eq!(server.expire_in(4).await, Expired { objects: 2, ..Expired::default() });
    assert_eq!(server.expire_in(31).await, Expired { objects: 1, ..Expired::default() });
    assert_eq!(server.expire_in(1000).await, Expired::default());
    assert_eq!(server.keys().await, ["kept/a", "other", "tagged/no", "tagged/small"]);
    let gone = ["large", "logs/a", "logs/b", "tagged/yes"];
    assert_eq!(
        server.lifecycle_events().await,
        gone.map(|key| (EventKind::ExpirationDelete, key.to_owned()))
    );
}

/// The listing has several pages. The endpoint's own sweep, five seconds after its start, deleted some objects on a
/// slow machine while the test was still storing others. So the rule is set when all objects are there, and both sweeps
/// together delete everything.
#[tokio::test(flavor = "multi_thread")]
async fn s198_a_date_expires_what_is_there_then() {
    let server = ClockedServer::start().await;
    let store = server.server.client(KEY).open("bucket").await.unwrap();
    for at in 0..1100 {
        let key = ObjectKey::try_from(format!("{at}").as_str()).unwrap();
        store.put(&key, "x".into(), PutOptions::default()).await.unwrap();
    }
    server.set_rules(&rule("", "<Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration>")).await.is(200);
    assert_eq!(server.expire_in(0).await.failures, 0);
    assert_eq!(server.keys().await, [] as [&str; 0]);
    server.set_rules(&rule("", "<Expiration><Date>2200-01-01T00:00:00Z</Date></Expiration>")).await.is(200);
    server.put("later", "", "x").await;
    assert_eq!(server.expire_in(100).await, Expired::default());
}

/// A store that replaces an object by one with the same bytes right after every listing.
#[derive(Debug, Clone)]
struct RestoringStore(MemoryStore);

impl Layer for RestoringStore {
    async fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        let done = work.await;
        if call.operation == Operation::List {
            let key = ObjectKey::try_from("a").unwrap();
            self.0.put(&key, "same".into(), PutOptions::default()).await.unwrap();
        }
        done
    }
}

/// An object stored again with the same bytes has the etag of the object that was evaluated, but its own age.
#[tokio::test]
async fn s198_objects_stored_after_evaluation_stay() {
    let clock = Arc::new(OffsetClock::default());
    let store = MemoryStore::new(clock.clone());
    let wrapped = Arc::new(Wrapped::new(store.clone(), RestoringStore(store.clone())));
    let server = TestServer::with_clock(Arc::new(OneBucket(wrapped)), clock.clone()).await;
    let rules = format!("<LifecycleConfiguration>{}</LifecycleConfiguration>", rule("", &days(1)));
    send(&server, Some(KEY), ("PUT", "/bucket", "lifecycle"), &[], &rules).await.is(200);
    for key in ["a", "b"] {
        let key = ObjectKey::try_from(key).unwrap();
        store.put(&key, "same".into(), PutOptions::default()).await.unwrap();
    }
    clock.0.store(3 * DAY_SECS, Ordering::Relaxed);
    assert_eq!(
        server.inner.endpoint().apply_lifecycle_rules().await,
        Expired { objects: 1, ..Expired::default() }
    );
    store.head(&ObjectKey::try_from("a").unwrap()).await.unwrap();
}

#[tokio::test]
async fn s198_versions_and_orphan_markers_expire() {
    let mut server = ClockedServer::start().await;
    server.ask("PUT", "/bucket", "versioning", ENABLED).await.is(200);
    let old = "<NoncurrentVersionExpiration><NoncurrentDays>5</NoncurrentDays><NewerNoncurrentVersions>1</NewerNoncurrentVersions></NoncurrentVersionExpiration>";
    let rules = [
        rule("<Prefix>a</Prefix>", &format!("{}{old}", days(1))),
        rule("<Prefix>kept</Prefix>", &format!("{}{old}", days(400))),
    ];
    server.set_rules(&rules.concat()).await.is(200);
    for body in ["1", "2", "3"] {
        server.put("a", "", body).await;
        server.put("kept", "", body).await;
    }
    // The newest version of `a` is hidden, not deleted.
    assert_eq!(server.expire_in(2).await, Expired { objects: 1, ..Expired::default() });
    assert_eq!(server.keys().await, ["kept"]);
    // The newest noncurrent version of both keys is kept. `a` has one more, since a delete marker hid it two days
    // later.
    let expired = server.expire_in(9).await;
    assert_eq!(expired, Expired { versions: 3, ..Expired::default() });
    let listed = server.ask("GET", "/bucket", "versions", "").await.is(200);
    assert_eq!(listed.body.matches("<Version>").count(), 3, "{}", listed.body);
    let events = server.lifecycle_events().await;
    let hidden = (EventKind::ExpirationDeleteMarkerCreated, "a".to_owned());
    let ended = |key: &str| (EventKind::ExpirationDelete, key.to_owned());
    assert_eq!(events, [hidden, ended("a"), ended("a"), ended("kept")]);
    // Once the last version is deleted, the marker is alone and is deleted too.
    let last = listed.body.split("<VersionId>").skip(1).map(|rest| rest.split('<').next().unwrap());
    let last: Vec<&str> = last.collect();
    for id in last {
        let answer = server.ask("GET", "/bucket/a", &format!("versionId={id}"), "").await;
        if answer.status == 200 {
            server.ask("DELETE", "/bucket/a", &format!("versionId={id}"), "").await.is(204);
        }
    }
    assert_eq!(server.expire_in(10).await, Expired { marks: 1, ..Expired::default() });
    let listed = server.ask("GET", "/bucket", "versions&prefix=a", "").await.is(200);
    assert!(!listed.body.contains("<VersionId>"), "{}", listed.body);
}

#[tokio::test]
async fn s198_orphan_markers_are_removed_and_locked_versions_stay() {
    let server = ClockedServer::start().await;
    server.ask("PUT", "/bucket", "versioning", ENABLED).await.is(200);
    server.ask("PUT", "/bucket", "object-lock", LOCK).await.is(200);
    let marks = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
    let old = "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>";
    server.set_rules(&rule("", &format!("{marks}{old}"))).await.is(200);
    for key in ["alone", "z"] {
        server.ask("DELETE", &format!("/bucket/{key}"), "", "").await.is(204);
    }
    let held = [("x-amz-object-lock-legal-hold", "ON"), ("content-md5", "xMpCOKC5I4INzFCab3WEmw==")];
    server.ask_with("PUT", "/bucket/held", "", &held, "1").await.is(200);
    server.ask("DELETE", "/bucket/held", "", "").await.is(204);
    assert_eq!(server.expire_in(0).await, Expired { marks: 2, ..Expired::default() });
    assert_eq!(server.expire_in(9).await, Expired::default());
    let listed = server.ask("GET", "/bucket", "versions", "").await.is(200);
    assert_eq!(listed.body.matches("<VersionId>").count(), 2, "{}", listed.body);
}

/// A due rule that requires tags must not delete what a rule without tags deletes later.
#[tokio::test]
async fn s198_each_rule_is_evaluated_separately() {
    let server = ClockedServer::start().await;
    server.ask("PUT", "/bucket", "versioning", ENABLED).await.is(200);
    let old = |days: i64| {
        format!(
            "<NoncurrentVersionExpiration><NoncurrentDays>{days}</NoncurrentDays></NoncurrentVersionExpiration>"
        )
    };
    let tag = "<Tag><Key>k</Key><Value>v</Value></Tag>";
    server.set_rules(&(rule(tag, &old(1)) + &rule("", &old(10)))).await.is(200);
    server.put("plain", "", "1").await;
    server.put("plain", "", "2").await;
    server.put("tagged", "k=v", "1").await;
    server.put("tagged", "", "2").await;
    assert_eq!(server.expire_in(3).await, Expired { versions: 1, ..Expired::default() });
    assert_eq!(server.expire_in(12).await, Expired { versions: 1, ..Expired::default() });
}

#[tokio::test]
async fn s198_incomplete_uploads_are_aborted() {
    let server = ClockedServer::start().await;
    let abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload>";
    server.set_rules(&rule("<Prefix>up/</Prefix>", abort)).await.is(200);
    for key in ["up/a", "other"] {
        server.ask("POST", &format!("/bucket/{key}"), "uploads", "").await.is(200);
    }
    assert_eq!(server.expire_in(6).await, Expired::default());
    assert_eq!(server.expire_in(8).await, Expired { uploads: 1, ..Expired::default() });
    let left = server.ask("GET", "/bucket", "uploads", "").await.is(200);
    assert!(left.body.contains("<Key>other</Key>") && !left.body.contains("up/a"), "{}", left.body);
}

#[tokio::test]
async fn s199_answers_say_when_an_object_expires() {
    let server = ClockedServer::start().await;
    let id = "<ID>of logs &amp; such</ID>";
    let tag = "<Tag><Key>k</Key><Value>v</Value></Tag>";
    let rules = [
        rule("<Prefix>logs/</Prefix>", &format!("{id}{}", days(3))),
        rule(tag, &format!("<ID>soon</ID>{}", days(1))),
        rule(
            "<ObjectSizeGreaterThan>2</ObjectSizeGreaterThan>",
            "<ID>d</ID><Expiration><Date>2200-01-01T00:00:00Z</Date></Expiration>",
        ),
    ];
    server.set_rules(&rules.concat()).await.is(200);
    let shows = |answer: &Answer, id: &str| {
        let shown = answer.header("x-amz-expiration").unwrap_or_default().to_owned();
        assert!(
            shown.starts_with("expiry-date=\"")
                && shown.contains(" 00:00:00 GMT\"")
                && shown.ends_with(&format!("rule-id=\"{id}\"")),
            "{shown}"
        );
    };
    let answer = server.put("logs/a", "", "x").await;
    shows(&answer, "of%20logs%20%26%20such");
    for method in ["GET", "HEAD"] {
        shows(&server.ask(method, "/bucket/logs/a", "", "").await.is(200), "of%20logs%20%26%20such");
    }
    shows(&server.put("logs/b", "k=v", "x").await, "soon");
    shows(&server.ask("HEAD", "/bucket/logs/b", "", "").await.is(200), "soon");
    assert_eq!(server.put("other", "", "x").await.header("x-amz-expiration"), None);
    let large = server.put("other", "", "xxx").await;
    assert!(large.header("x-amz-expiration").unwrap().contains("Wed, 01 Jan 2200 00:00:00 GMT"));
    let source = [("x-amz-copy-source", "/bucket/other")];
    let copied = server.ask_with("PUT", "/bucket/logs/c", "", &source, "").await.is(200);
    shows(&copied, "of%20logs%20%26%20such");
    server.ask("DELETE", "/bucket", "lifecycle", "").await.is(204);
    assert_eq!(server.ask("HEAD", "/bucket/logs/a", "", "").await.is(200).header("x-amz-expiration"), None);
}

#[tokio::test]
async fn s199_invalid_rules_are_refused() {
    let server = ClockedServer::start().await;
    let id = |id: &str| format!("<ID>{id}</ID>{}", days(1));
    let and = "<And><Tag><Key>k</Key><Value>1</Value></Tag><Tag><Key>k</Key><Value>2</Value></Tag></And>";
    let tag = "<Tag><Key>k</Key><Value>v</Value></Tag>";
    let sizes = "<And><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan><ObjectSizeLessThan>5</ObjectSizeLessThan></And>";
    let abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>";
    let mark = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
    let none =
        "<NoncurrentVersionExpiration><NoncurrentDays>0</NoncurrentDays></NoncurrentVersionExpiration>";
    let date = |date: &str| format!("<Expiration><Date>{date}</Date></Expiration>");
    let both = "<Expiration><Days>1</Days><Date>2030-01-01T00:00:00Z</Date></Expiration>";
    let move_to = "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>";
    let prefixed = format!("<Rule><Prefix>a</Prefix><Filter/><Status>Enabled</Status>{}</Rule>", days(1));
    for (rules, status, code) in [
        (String::new(), 400, "MalformedXML"),
        (rule("", ""), 400, "InvalidRequest"),
        (rule("", &days(0)), 400, "InvalidArgument"),
        (rule("", &days(-1)), 400, "InvalidArgument"),
        (rule("", &days(1)).replace("Enabled", "enabled"), 400, "MalformedXML"),
        (rule("", &id(&"x".repeat(256))), 400, "InvalidArgument"),
        (rule("", &id("x")) + &rule("<Prefix>a</Prefix>", &id("x")), 400, "InvalidArgument"),
        (rule("", both), 400, "MalformedXML"),
        (rule("", &date("2030-01-01T01:00:00Z")), 400, "InvalidArgument"),
        (rule("", &date("20300101")), 400, "MalformedXML"),
        (rule("", none), 400, "InvalidArgument"),
        (rule(and, &days(1)), 400, "InvalidRequest"),
        (rule(sizes, &days(1)), 400, "InvalidRequest"),
        (rule(tag, abort), 400, "InvalidRequest"),
        (rule(tag, mark), 400, "InvalidRequest"),
        (rule(&format!("<Prefix>a</Prefix>{tag}"), &days(1)), 400, "MalformedXML"),
        (rule("", &days(1)).replace("<Filter></Filter>", ""), 400, "MalformedXML"),
        (prefixed, 400, "MalformedXML"),
        (rule("", move_to), 501, "NotImplemented"),
    ] {
        let answer = server.set_rules(&rules).await;
        assert_eq!((answer.status, answer.element("Code")), (status, Some(code)), "{rules}: {}", answer.body);
    }
    server.ask("GET", "/bucket", "lifecycle", "").await.errs(404, "NoSuchLifecycleConfiguration");
    // A rule without an id gets one.
    server.set_rules(&rule("", &days(1))).await.is(200);
    let set = server.ask("GET", "/bucket", "lifecycle", "").await.is(200);
    assert_eq!(set.element("ID").map(str::len), Some(16), "{}", set.body);
}
