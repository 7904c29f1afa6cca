//! Listings of containers: how often they run, and which objects are kept.

use super::world::{Client, World, deliver, map, ruleset};
use events::{ChangeKind, Sink};
use std::sync::Arc;
use store::wrap::{Fault, Faults, Faulty, Operation, Rule, Trace, Wrapped};
use store::{Buckets, ObjectStore, Result, StoreError};
use views::{Handler, HandlerConfig, HandlerParts, ViewError, Views};

/// Buckets that count their requests.
#[derive(Debug)]
struct CountedBuckets {
    buckets: Arc<dyn Buckets>,
    trace: Trace,
    faults: Faults,
}

#[async_trait::async_trait]
impl Buckets for CountedBuckets {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let faulty = Faulty::new(self.buckets.open(name).await?, self.faults.clone());
        Ok(Arc::new(Wrapped::new(faulty, self.trace.clone())))
    }
    async fn create(&self, name: &str) -> Result<()> {
        self.buckets.create(name).await
    }
    async fn delete(&self, name: &str) -> Result<()> {
        self.buckets.delete(name).await
    }
    async fn list(&self) -> Result<Vec<String>> {
        self.buckets.list().await
    }
}

impl CountedBuckets {
    async fn start(world: &World) -> (Arc<Handler>, Trace) {
        let trace = Trace::new();
        let faults = Faults::new();
        let counted = Self { buckets: world.buckets.clone(), trace: trace.clone(), faults };
        (world.start_on(Arc::new(counted), None, 1).await, trace)
    }
}

fn requests(trace: &Trace, operation: Operation) -> u64 {
    trace.counts().of(operation)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s252_a_container_is_listed_once_for_many_concurrent_clients() {
    let mut world = World::new(&["alpha", "beta"]).await;
    for number in 0..6 {
        world.put("alpha", &format!("d0/x{number}"), number, map(&[]), map(&[])).await;
    }
    let (handler, trace) = CountedBuckets::start(&world).await;
    let ruleset = ruleset("container: alpha\nsize: \">2\"");
    let open = || async {
        let mut client = Client::open(&handler, &ruleset).await;
        client.follow(&handler, 2).await;
        client
    };
    let clients = futures_util::future::join_all((0..32).map(|_| open())).await;
    assert_eq!(requests(&trace, Operation::List), 1);
    assert!(
        clients.iter().all(|client| client.shown() == clients[0].shown() && client.view == clients[0].view)
    );
    assert_eq!(clients[0].shown(), world.expected(&ruleset).await);
}

#[tokio::test]
async fn s253_objects_that_no_rule_wants_are_not_kept() {
    let mut world = World::new(&["alpha", "beta"]).await;
    for key in ["d0/x1", "d0/x2", "d1/x1"] {
        world.put("alpha", key, 1, map(&[]), map(&[])).await;
    }
    let (handler, trace) = CountedBuckets::start(&world).await;
    let mut first = Client::open(&handler, &ruleset("container: alpha\nobject: \"d0/*\"")).await;
    let unwanted = [
        world.put("beta", "d0/x1", 1, map(&[]), map(&[])).await,
        world.put("alpha", "d1/x2", 1, map(&[]), map(&[])).await,
    ];
    deliver(&handler, &unwanted).await;
    let stats = handler.stats();
    assert_eq!((stats.containers, stats.objects, stats.hints.unwanted), (1, 2, 2));
    // For a view that wants the other keys, the container is listed again.
    let all = ruleset("container: alpha");
    let mut second = Client::open(&handler, &all).await;
    second.follow(&handler, 10).await;
    assert_eq!(second.shown(), world.expected(&all).await);
    assert_eq!(requests(&trace, Operation::List), 2);
    first.follow(&handler, 10).await;
    assert_eq!(first.objects.len(), 2);
}

#[tokio::test]
async fn s254_rules_on_properties_cost_one_head_per_object() {
    let mut world = World::new(&["alpha"]).await;
    for number in 0..5 {
        let color = if number % 2 == 0 { "black" } else { "white" };
        world.put("alpha", &format!("x{number}"), 1, map(&[("color", color)]), map(&[])).await;
    }
    let (handler, trace) = CountedBuckets::start(&world).await;
    let black = ruleset("container: alpha\nproperties:\n  color: black");
    let mut client = Client::open(&handler, &black).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.shown(), world.expected(&black).await);
    assert_eq!(requests(&trace, Operation::Head), 5);
    // An event with properties needs no HEAD request; one without does.
    let event = world.put("alpha", "x7", 1, map(&[("color", "black")]), map(&[])).await;
    deliver(&handler, &[super::world::TestEvent { time: store::Timestamp(event.time.0 + 1), ..event }]).await;
    handler.wait_until_idle().await;
    assert_eq!(requests(&trace, Operation::Head), 5);
    let without_metadata =
        world.put("alpha", "x8", 1, map(&[("color", "black")]), map(&[])).await.without_metadata();
    deliver(&handler, &[without_metadata]).await;
    handler.wait_until_idle().await;
    assert_eq!(requests(&trace, Operation::Head), 6);
    client.follow(&handler, 10).await;
    assert_eq!(client.shown(), world.expected(&black).await);
}

/// A container with an object that cannot be verified was listed again without a pause.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_verified_waits_for_the_next_listing() {
    let mut world = World::new(&["alpha"]).await;
    for key in ["denied", "x"] {
        world.put("alpha", key, 1, map(&[("color", "black")]), map(&[])).await;
    }
    let (trace, faults) = (Trace::new(), Faults::new());
    let denied = Fault::Before(|| StoreError::Denied("not yours".into()));
    faults.add(Rule::new(denied).on(Operation::Head).at(&"denied".try_into().unwrap()).always());
    let buckets =
        CountedBuckets { buckets: world.buckets.clone(), trace: trace.clone(), faults: faults.clone() };
    let handler = world.start_on(Arc::new(buckets), None, 1).await;
    let black = ruleset("container: alpha\nproperties:\n  color: black");
    let mut client = Client::open(&handler, &black).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 1);
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    assert_eq!(requests(&trace, Operation::List), 1);
    faults.clear();
    world.clock.advance(std::time::Duration::from_secs(60));
    client.follow(&handler, 10).await;
    handler.wait_until_idle().await;
    client.follow(&handler, 10).await;
    assert_eq!((client.objects.len(), requests(&trace, Operation::List)), (2, 2));
}

#[tokio::test]
async fn s255_rules_on_access_times_are_refused_without_access_events() {
    let mut world = World::new(&["alpha"]).await;
    let stored = world.put("alpha", "x1", 1, map(&[]), map(&[])).await;
    let ruleset = ruleset("container: alpha\naccessed: \"<1 day\"");
    let parts = HandlerParts {
        buckets: world.buckets.clone(),
        clock: world.clock.clone(),
        entropy: store::Entropy::new(1),
        dir: None,
        config: HandlerConfig::default(),
    };
    let handler = Handler::start(parts).await.unwrap();
    let refused = handler.open(&ruleset).await.unwrap_err();
    assert!(matches!(&refused, ViewError::Refused(why) if why.contains("last read")), "{refused}");
    // With access events, an object that was read is shown for a day.
    let handler = world.start(None, 1).await;
    let mut client = Client::open(&handler, &ruleset).await;
    deliver(&handler, &[stored]).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 0);
    let read = world.event("alpha", "x1", ChangeKind::Read);
    deliver(&handler, &[read]).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 1);
    world.clock.advance(std::time::Duration::from_secs(100_000));
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 0);
}

#[tokio::test]
async fn s256_damaged_files_are_renamed_and_containers_listed_again() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("state");
    let mut world = World::new(&["alpha"]).await;
    world.put("alpha", "x1", 1, map(&[]), map(&[])).await;
    let all = ruleset("container: alpha");
    let handler = world.start(Some(dir.clone()), 1).await;
    let mut client = Client::open(&handler, &all).await;
    client.follow(&handler, 10).await;
    handler.snapshot().await.unwrap();
    drop(handler);
    let second = HandlerParts {
        buckets: world.buckets.clone(),
        clock: world.clock.clone(),
        entropy: store::Entropy::new(2),
        dir: Some(dir.clone()),
        config: HandlerConfig::default(),
    };
    let snapshot = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let snapshot = snapshot.into_iter().find(|path| path.to_str().unwrap().contains("snapshot-")).unwrap();
    let mut bytes = std::fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    world.bucket("alpha").await.delete(&super::world::key_of("x1"), store::Precondition::None).await.unwrap();
    let handler = Handler::start(second).await.unwrap();
    assert!(snapshot.with_extension("broken").exists());
    client.follow(&handler, 10).await;
    assert_eq!((client.objects.len(), client.beginnings), (0, 2));
}

#[tokio::test]
async fn a_missing_bucket_is_reported_and_left_out_of_many() {
    let world = World::new(&["alpha"]).await;
    let handler = world.start(None, 1).await;
    let missing = handler.open(&ruleset("container: gamma")).await.unwrap_err();
    assert!(
        matches!(&missing, ViewError::Store { container, source: StoreError::NoSuchBucket(_) } if container == "gamma"),
        "{missing}"
    );
    // An event is enough to find a bucket that is made later.
    let mut all = Client::open(&handler, &ruleset("container: \"*a*\"")).await;
    world.buckets.create("beta").await.unwrap();
    let mut world = world;
    let stored = world.put("beta", "x1", 1, map(&[]), map(&[])).await;
    handler.take(&[stored.hint()]).await.unwrap();
    handler.wait_until_idle().await;
    all.follow(&handler, 10).await;
    assert_eq!(all.objects.len(), 1);
}
