//! Several handlers, each for a part of the objects.

use std::collections::BTreeSet;
use std::sync::Arc;
use store::memory::MemoryBuckets;
use store::{Attributes, Buckets, Clock, Entropy, ObjectKey, Payload, Precondition, PutOptions, SystemClock};
use views::conformance::{self, CONTAINER, World};
use views::part::{Part, Union};
use views::remote::{RemoteConfig, RemoteServer, RemoteViews, Report, Served};
use views::{Handler, HandlerConfig, HandlerParts, ViewError, Views};

/// Handlers of one store, which get hints of the changes made through this fixture.
struct HandlersUnderTest {
    buckets: Arc<MemoryBuckets>,
    sinks: Vec<Arc<dyn events::Sink>>,
    handlers: Vec<Arc<Handler>>,
    views: Arc<dyn Views>,
    order: std::sync::atomic::AtomicU64,
}

async fn handler(buckets: Arc<dyn Buckets>, seed: u64) -> Arc<Handler> {
    let parts = HandlerParts {
        buckets,
        clock: Arc::new(SystemClock),
        entropy: Entropy::new(seed),
        dir: None,
        config: HandlerConfig::default(),
    };
    Handler::start(parts).await.unwrap()
}

async fn buckets() -> Arc<MemoryBuckets> {
    let buckets = Arc::new(MemoryBuckets::new(Arc::new(SystemClock)));
    buckets.create(CONTAINER).await.unwrap();
    buckets
}

impl HandlersUnderTest {
    fn new(buckets: Arc<MemoryBuckets>, handler: Arc<Handler>, views: Arc<dyn Views>) -> Self {
        Self {
            buckets,
            sinks: vec![handler.clone()],
            handlers: vec![handler],
            views,
            order: std::sync::atomic::AtomicU64::new(1),
        }
    }

    async fn of_parts(count: usize) -> Self {
        let buckets = buckets().await;
        let (mut sinks, mut handlers, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=count {
            let part: Part = format!("{number}/{count}").parse().unwrap();
            let handler = handler(part.of_buckets(buckets.clone()), number as u64).await;
            sinks.push(part.of_hints(handler.clone()));
            handlers.push(handler.clone());
            views.push(handler as Arc<dyn Views>);
        }
        let order = std::sync::atomic::AtomicU64::new(1);
        Self { buckets, sinks, handlers, views: Arc::new(Union::new(views)), order }
    }

    async fn deliver(&self, key: &str, kind: events::ChangeKind, object: events::ObjectDescription<'_>) {
        let order = u128::from(self.order.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let hint = events::Hint {
            bucket: CONTAINER.into(),
            key: key.as_bytes().into(),
            kind,
            order: Some(events::Order(order)),
            time: Some(SystemClock.now()),
            object,
        };
        for sink in &self.sinks {
            sink.take(std::slice::from_ref(&hint)).await.unwrap();
        }
        for handler in &self.handlers {
            handler.wait_until_idle().await;
        }
    }
}

#[async_trait::async_trait]
impl World for HandlersUnderTest {
    fn views(&self) -> &dyn Views {
        &*self.views
    }

    async fn put(&self, key: &str, size_bytes: u64, properties: &[(&str, &str)]) {
        let store = self.buckets.open(CONTAINER).await.unwrap();
        let user = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let attributes = Attributes { user: user.collect(), ..Attributes::default() };
        let options = PutOptions { attributes, ..PutOptions::default() };
        let body = Payload::from(vec![b'x'; size_bytes as usize]);
        let put = store.put(&ObjectKey::try_from(key).unwrap(), body, options).await.unwrap();
        let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let object = events::ObjectDescription {
            size_bytes: Some(size_bytes),
            etag: Some(put.etag.as_str().to_owned().into()),
            properties: Some(properties.collect()),
            tags: Some(Vec::new()),
            content_type: Some("binary/octet-stream".into()),
            ..events::ObjectDescription::default()
        };
        self.deliver(key, events::ChangeKind::Stored, object).await;
    }

    async fn remove(&self, key: &str) {
        let store = self.buckets.open(CONTAINER).await.unwrap();
        store.delete(&ObjectKey::try_from(key).unwrap(), Precondition::None).await.unwrap();
        self.deliver(key, events::ChangeKind::Removed, events::ObjectDescription::default()).await;
    }
}

#[tokio::test]
async fn the_handler_passes_the_conformance_suite() {
    let buckets = buckets().await;
    let handler = handler(buckets.clone(), 1).await;
    conformance::run(&HandlersUnderTest::new(buckets, handler.clone(), handler)).await;
}

#[tokio::test]
async fn a_remote_handler_passes_the_conformance_suite() {
    let buckets = buckets().await;
    let handler = handler(buckets.clone(), 1).await;
    let report = Report(Arc::new(String::new));
    let served = Served { views: handler.clone(), report, part: Part::ALL, token: None, tls: None };
    let server = RemoteServer::start(served, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config =
        RemoteConfig { addresses: vec![server.url()], part: Part::ALL, token: None, ca_bundle: None };
    let views = Arc::new(RemoteViews::new(&config).unwrap());
    conformance::run(&HandlersUnderTest::new(buckets, handler, views)).await;
}

#[tokio::test]
async fn handlers_of_parts_pass_the_conformance_suite_together() {
    for count in [1, 3] {
        conformance::run(&HandlersUnderTest::of_parts(count).await).await;
    }
}

#[test]
fn every_object_belongs_to_one_part() {
    let parts: Vec<Part> = (1..=3).map(|number| format!("{number}/3").parse().unwrap()).collect();
    let mut used = BTreeSet::new();
    for number in 0..1000 {
        let of: Vec<_> = parts.iter().filter(|part| part.has("b", format!("k{number}").as_bytes())).collect();
        assert_eq!(of.len(), 1);
        used.insert(of[0].index());
    }
    assert_eq!(used.len(), 3);
    assert_eq!((parts[1].to_string().as_str(), parts[1].count()), ("2/3", 3));
    for wrong in ["", "0/3", "4/3", "1", "1/0", "a/b", "1/2000"] {
        assert!(wrong.parse::<Part>().is_err(), "{wrong}");
    }
}

/// If the handler of one part returns the whole content, the client gets it from all parts. A handler that does not
/// know the view is asked to open it.
#[tokio::test]
async fn a_part_that_restarts_hides_no_objects() {
    let world = HandlersUnderTest::of_parts(2).await;
    for number in 0..20 {
        world.put(&format!("k{number}"), 1, &[]).await;
    }
    let part = |number: u64| -> Part { format!("{number}/2").parse().unwrap() };
    let first = handler(part(1).of_buckets(world.buckets.clone()), 1).await;
    let before = handler(part(2).of_buckets(world.buckets.clone()), 2).await;
    let after = handler(part(2).of_buckets(world.buckets.clone()), 3).await;
    let ruleset = views::read("all: {container: bucket}").unwrap().remove(0);
    let one = Union::new(vec![first.clone(), before]);
    let view = one.open(&ruleset).await.unwrap();
    let known = one.changes(view, None, 100).await.unwrap();
    assert_eq!((known.shown.len(), known.is_beginning), (20, true));
    let other = Union::new(vec![first, after]);
    assert!(matches!(other.changes(view, None, 100).await, Err(ViewError::Unknown)));
    let view = other.open(&ruleset).await.unwrap();
    let restarted = other.changes(view, Some(&known.cursor), 100).await.unwrap();
    assert_eq!((restarted.shown.len(), restarted.is_beginning), (20, true));
    let later = other.changes(view, Some(&restarted.cursor), 100).await.unwrap();
    assert_eq!((later.shown.len(), later.is_beginning), (0, false));
}

/// Two handlers of one part were configured as those of both parts: half of all objects were missing, without an
/// error.
#[tokio::test]
async fn s283_a_handler_refuses_clients_of_another_part() {
    let ruleset = views::read("all: {container: bucket}").unwrap().remove(0);
    let part = |text: &str| text.parse::<Part>().unwrap();
    for (own, asked, says) in
        [("1/2", "2/2", Some("1/2=URL")), ("1/1", "1/2", Some("--handler URL")), ("2/2", "2/2", None)]
    {
        let handler = handler(buckets().await, 1).await;
        let report = Report(Arc::new(String::new));
        let served = Served { views: handler, report, part: part(own), token: None, tls: None };
        let server = RemoteServer::start(served, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let config =
            RemoteConfig { addresses: vec![server.url()], part: part(asked), token: None, ca_bundle: None };
        let opened = RemoteViews::new(&config).unwrap().open(&ruleset).await;
        match says {
            Some(says) => {
                assert!(matches!(&opened, Err(ViewError::Refused(why)) if why.contains(says)), "{opened:?}");
            }
            None => assert!(opened.is_ok(), "{opened:?}"),
        }
    }
}
