//! Periodic maintenance: buckets that appear, disappear or change permissions, and idle views.

use super::world::{Client, World, deliver, map, ruleset};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::wrap::{Operation, Trace, Wrapped};
use store::{Buckets, ObjectStore, Result, StoreError};
use views::{Permitted, ViewError, Views};

/// Buckets of which some can be denied, with a count of the requests.
#[derive(Debug)]
struct GuardedBuckets {
    buckets: Arc<dyn Buckets>,
    denied: Mutex<HashSet<String>>,
    trace: Trace,
}

impl GuardedBuckets {
    fn of(world: &World) -> Arc<Self> {
        Arc::new(Self { buckets: world.buckets.clone(), denied: Mutex::default(), trace: Trace::new() })
    }

    fn deny(&self, name: &str) {
        self.denied.lock().unwrap().insert(name.to_owned());
    }

    fn allow(&self, name: &str) {
        self.denied.lock().unwrap().remove(name);
    }

    fn listings(&self) -> u64 {
        self.trace.counts().of(Operation::List)
    }
}

#[async_trait::async_trait]
impl Buckets for GuardedBuckets {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        if self.denied.lock().unwrap().contains(name) {
            return Err(StoreError::Denied("not for you".to_owned()));
        }
        Ok(Arc::new(Wrapped::new(self.buckets.open(name).await?, self.trace.clone())))
    }
    async fn create(&self, name: &str) -> Result<()> {
        self.buckets.create(name).await
    }
    async fn delete(&self, name: &str) -> Result<()> {
        self.buckets.delete(name).await
    }
    async fn list(&self) -> Result<Vec<String>> {
        let denied = self.denied.lock().unwrap().clone();
        let names = self.buckets.list().await?;
        Ok(names.into_iter().filter(|name| !denied.contains(name)).collect())
    }
}

/// Advances the handler's clock and the timers of the runtime.
async fn let_time_pass(world: &World, time: Duration) {
    world.clock.advance(time);
    tokio::time::sleep(time).await;
}

async fn put(world: &mut World, bucket: &str, key: &str) {
    world.put(bucket, key, 1, map(&[]), map(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn s288_unreadable_buckets_are_reported_and_retried() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "alpha", "a").await;
    put(&mut world, "beta", "b").await;
    let buckets = GuardedBuckets::of(&world);
    buckets.deny("beta");
    let handler = world.start_on(buckets.clone(), None, 1).await;
    let three = ruleset("container: [alpha, beta, gamma]");
    let mut client = Client::open(&handler, &three).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 1, "readable buckets are shown");
    let changes = handler.changes(client.view, None, 10).await.unwrap();
    let mut unlisted: Vec<_> = changes.unlisted.iter().map(|one| one.container.as_str()).collect();
    unlisted.sort_unstable();
    assert_eq!(unlisted, ["beta", "gamma"]);
    assert_eq!(handler.stats().unlisted.len(), 2);
    let alone = handler.open(&ruleset("container: beta")).await;
    assert!(matches!(alone, Err(ViewError::Store { container, .. }) if container == "beta"));
    let tried = buckets.listings();
    for _ in 0..100 {
        client.follow(&handler, 10).await;
    }
    assert_eq!(buckets.listings(), tried, "repeated requests start no listings");

    buckets.allow("beta");
    world.buckets.create("gamma").await.unwrap();
    put(&mut world, "gamma", "c").await;
    let mut counter = handler.change_counter().unwrap();
    counter.mark_unchanged();
    let_time_pass(&world, Duration::from_secs(11)).await;
    handler.wait_until_idle().await;
    assert!(counter.has_changed().unwrap(), "receivers of the counter are woken");
    client.follow(&handler, 10).await;
    assert_eq!(client.shown(), world.expected(&three).await);
    assert_eq!((client.objects.len(), handler.stats().unlisted.len(), client.beginnings), (3, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn s288_objects_stay_when_their_bucket_is_denied_and_go_when_it_is_deleted() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "alpha", "a").await;
    put(&mut world, "beta", "b").await;
    let (buckets, dir) = (GuardedBuckets::of(&world), tempfile::tempdir().unwrap());
    let two = ruleset("container: [alpha, beta]");
    let first = world.start_on(buckets.clone(), Some(dir.path().to_owned()), 1).await;
    Client::open(&first, &two).await.follow(&first, 10).await;
    first.snapshot().await.unwrap();
    drop(first);

    buckets.deny("beta");
    let handler = world.start_on(buckets.clone(), Some(dir.path().to_owned()), 2).await;
    handler.list_all_again().await;
    let mut client = Client::open(&handler, &two).await;
    client.follow(&handler, 10).await;
    assert_eq!((client.objects.len(), handler.stats().unlisted.len()), (2, 1));

    buckets.allow("beta");
    world.delete("beta", "b").await;
    world.buckets.delete("beta").await.unwrap();
    handler.list_all_again().await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 1, "a deleted bucket has no objects");
    assert_eq!(handler.stats().unlisted.len(), 1);
    world.buckets.create("beta").await.unwrap();
    let event = world.put("beta", "c", 1, map(&[]), map(&[])).await;
    deliver(&handler, &[event]).await;
    handler.wait_until_idle().await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 2, "events are applied before the bucket is listed");
}

#[tokio::test(start_paused = true)]
async fn s288_buckets_that_patterns_match_are_found_without_events() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "beta", "b").await;
    let buckets = GuardedBuckets::of(&world);
    buckets.deny("beta");
    let handler = world.start_on(buckets.clone(), None, 1).await;
    let mut client = Client::open(&handler, &ruleset("container: \"*a\"")).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 0);
    buckets.allow("beta");
    world.buckets.create("gamma").await.unwrap();
    put(&mut world, "gamma", "c").await;
    let_time_pass(&world, Duration::from_secs(61)).await;
    handler.wait_until_idle().await;
    client.follow(&handler, 10).await;
    assert_eq!(client.objects.len(), 2);
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A client that returns gets the whole view, and only containers that no other view named meanwhile are listed for
/// it.
#[tokio::test(start_paused = true)]
async fn s291_idle_views_are_forgotten() {
    let mut world = World::new(&["alpha", "beta"]).await;
    for key in ["a1", "a2", "b1"] {
        put(&mut world, "alpha", key).await;
    }
    put(&mut world, "beta", "b").await;
    let (buckets, dir) = (GuardedBuckets::of(&world), tempfile::tempdir().unwrap());
    let handler = world.start_on(buckets.clone(), Some(dir.path().to_owned()), 1).await;
    let rules = ["container: alpha", "container: alpha\nobject: \"a*\"", "container: beta"].map(ruleset);
    let mut clients = Vec::new();
    for rules in &rules {
        let mut client = Client::open(&handler, rules).await;
        client.follow(&handler, 10).await;
        clients.push(client);
    }
    assert_eq!(handler.stats().objects, 4);
    world.clock.advance(WEEK);
    clients[1].follow(&handler, 10).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let stats = handler.stats();
    assert_eq!((stats.views.len(), stats.containers, stats.objects), (1, 1, 2), "{stats:?}");
    assert_eq!(stats.views[0].objects, 2);
    clients[1].follow(&handler, 10).await;
    assert_eq!(clients[1].beginnings, 1, "an active client does not have to start over");

    let before = buckets.listings();
    let unwanted = world.put("alpha", "b2", 1, map(&[]), map(&[])).await;
    deliver(&handler, &[unwanted]).await;
    let old = clients[0].cursor.clone();
    for client in &mut clients {
        client.follow(&handler, 10).await;
        assert_eq!(client.shown(), world.expected(&client.ruleset).await);
    }
    let again = handler.changes(clients[0].view, old.as_ref(), 10).await.unwrap();
    assert!(again.is_beginning, "departures in the meantime are not known");
    assert_eq!(buckets.listings() - before, 2, "one listing for each container that was forgotten");
    let same = handler.open(&rules[1]).await.unwrap();
    assert_eq!(same, clients[1].view);

    // A restarted handler behaves in the same way, whether it reads a log or a snapshot.
    for is_snapshot in [false, true] {
        if is_snapshot {
            handler.snapshot().await.unwrap();
        }
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let next = world.start_on(buckets.clone(), Some(copy.path().to_owned()), 2).await;
        let listed = buckets.listings();
        for client in &clients {
            let mut client = client.clone();
            client.follow(&next, 10).await;
            assert_eq!(client.shown(), world.expected(&client.ruleset).await, "{is_snapshot}");
        }
        assert_eq!(buckets.listings(), listed);
        assert_eq!(next.stats().views.len(), 3);
    }
}

/// A client does not see buckets that its credentials may not open, even if the handler knows them.
#[tokio::test]
async fn s289_a_client_does_not_see_buckets_that_it_may_not_read() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "alpha", "a").await;
    put(&mut world, "beta", "b").await;
    let handler = world.start(None, 1).await;
    let client_buckets = GuardedBuckets::of(&world);
    client_buckets.deny("beta");
    let views = Permitted::new(handler.clone(), client_buckets.clone(), world.clock.clone());
    let view = views.open(&ruleset("container: [alpha, beta]")).await.unwrap();
    let keys = |changes: &views::Changes| -> Vec<String> {
        let mut keys: Vec<_> = changes.shown.iter().map(|shown| shown.name().key.to_string()).collect();
        keys.sort();
        keys
    };
    let first = views.changes(view, None, 10).await.unwrap();
    assert_eq!(keys(&first), ["a"]);
    assert_eq!(first.unlisted.len(), 1);
    assert!(first.unlisted[0].why.contains("not for you"), "{:?}", first.unlisted);
    let event = world.put("beta", "c", 1, map(&[]), map(&[])).await;
    deliver(&handler, &[event]).await;
    handler.wait_until_idle().await;
    let next = views.changes(view, Some(&first.cursor), 10).await.unwrap();
    assert!(keys(&next).is_empty() && !next.is_beginning, "{next:?}");

    client_buckets.allow("beta");
    world.clock.advance(Duration::from_secs(11));
    let now = views.changes(view, Some(&next.cursor), 10).await.unwrap();
    assert_eq!((keys(&now), now.is_beginning), (vec!["a".to_owned(), "b".into(), "c".into()], true));
    assert!(now.unlisted.is_empty());

    client_buckets.deny("alpha");
    let still = views.changes(view, Some(&now.cursor), 10).await.unwrap();
    assert!(still.shown.is_empty() && !still.is_beginning, "the permission was checked recently");
    world.clock.advance(Duration::from_secs(31));
    let left = views.changes(view, Some(&still.cursor), 10).await.unwrap();
    assert_eq!((keys(&left), left.is_beginning), (vec!["b".to_owned(), "c".into()], true));
}
