//! What time brings: buckets that come and go, permissions, and views that nobody asks for any more.

use super::world::{Client, World, map, ruleset, tell};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::wrap::{Operation, Trace, Wrapped};
use store::{Buckets, ObjectStore, Result, StoreError};
use views::{Permitted, ViewError, Views};

/// Buckets some of which may not be read, and whose requests are counted.
#[derive(Debug)]
struct Guarded {
    buckets: Arc<dyn Buckets>,
    shut: Mutex<HashSet<String>>,
    trace: Trace,
}

impl Guarded {
    fn of(world: &World) -> Arc<Self> {
        Arc::new(Self { buckets: world.buckets.clone(), shut: Mutex::default(), trace: Trace::new() })
    }

    fn shut(&self, name: &str) {
        self.shut.lock().unwrap().insert(name.to_owned());
    }

    fn open_again(&self, name: &str) {
        self.shut.lock().unwrap().remove(name);
    }

    fn listings(&self) -> u64 {
        self.trace.counts().of(Operation::List)
    }
}

#[async_trait::async_trait]
impl Buckets for Guarded {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        if self.shut.lock().unwrap().contains(name) {
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
        let shut = self.shut.lock().unwrap().clone();
        let names = self.buckets.list().await?;
        Ok(names.into_iter().filter(|name| !shut.contains(name)).collect())
    }
}

/// Time that the handler waits for, and by its clock.
async fn pass(world: &World, time: Duration) {
    world.clock.advance(time);
    tokio::time::sleep(time).await;
}

async fn put(world: &mut World, bucket: &str, key: &str) {
    world.put(bucket, key, 1, map(&[]), map(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn s288_what_cannot_be_read_is_said_and_tried_again() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "alpha", "a").await;
    put(&mut world, "beta", "b").await;
    let guarded = Guarded::of(&world);
    guarded.shut("beta");
    let handler = world.start_on(guarded.clone(), None, 1).await;
    let three = ruleset("container: [alpha, beta, gamma]");
    let mut client = Client::open(&handler, &three).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.knows.len(), 1, "what can be read is there");
    let changes = handler.changes(client.view, None, 10).await.unwrap();
    let mut unlisted: Vec<_> = changes.unlisted.iter().map(|one| one.container.as_str()).collect();
    unlisted.sort_unstable();
    assert_eq!(unlisted, ["beta", "gamma"]);
    assert_eq!(handler.stats().unlisted.len(), 2);
    let alone = handler.open(&ruleset("container: beta")).await;
    assert!(matches!(alone, Err(ViewError::Store { container, .. }) if container == "beta"));
    let tried = guarded.listings();
    for _ in 0..100 {
        client.follow(&handler, 10).await;
    }
    assert_eq!(guarded.listings(), tried, "who asks again at once costs nothing");

    guarded.open_again("beta");
    world.buckets.create("gamma").await.unwrap();
    put(&mut world, "gamma", "c").await;
    let mut news = handler.news().unwrap();
    news.mark_unchanged();
    pass(&world, Duration::from_secs(11)).await;
    handler.settled().await;
    assert!(news.has_changed().unwrap(), "who waits for news is told");
    client.follow(&handler, 10).await;
    assert_eq!(client.shown(), world.expected(&three).await);
    assert_eq!((client.knows.len(), handler.stats().unlisted.len(), client.beginnings), (3, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn s288_what_was_known_stays_when_a_bucket_is_forbidden_and_goes_with_the_bucket() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "alpha", "a").await;
    put(&mut world, "beta", "b").await;
    let (guarded, dir) = (Guarded::of(&world), tempfile::tempdir().unwrap());
    let two = ruleset("container: [alpha, beta]");
    let first = world.start_on(guarded.clone(), Some(dir.path().to_owned()), 1).await;
    Client::open(&first, &two).await.follow(&first, 10).await;
    first.snapshot().await.unwrap();
    drop(first);

    guarded.shut("beta");
    let handler = world.start_on(guarded.clone(), Some(dir.path().to_owned()), 2).await;
    handler.list_all_again().await;
    let mut client = Client::open(&handler, &two).await;
    client.follow(&handler, 10).await;
    assert_eq!((client.knows.len(), handler.stats().unlisted.len()), (2, 1));

    guarded.open_again("beta");
    world.delete("beta", "b").await;
    world.buckets.delete("beta").await.unwrap();
    handler.list_all_again().await;
    client.follow(&handler, 10).await;
    assert_eq!(client.knows.len(), 1, "nothing is in a bucket that is not there");
    assert_eq!(handler.stats().unlisted.len(), 1);
    world.buckets.create("beta").await.unwrap();
    let told = world.put("beta", "c", 1, map(&[]), map(&[])).await;
    tell(&handler, &[told]).await;
    handler.settled().await;
    client.follow(&handler, 10).await;
    assert_eq!(client.knows.len(), 2, "its events count while it waits to be listed");
}

#[tokio::test(start_paused = true)]
async fn s288_buckets_that_patterns_name_are_found_without_events() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "beta", "b").await;
    let guarded = Guarded::of(&world);
    guarded.shut("beta");
    let handler = world.start_on(guarded.clone(), None, 1).await;
    let mut client = Client::open(&handler, &ruleset("container: \"*a\"")).await;
    client.follow(&handler, 10).await;
    assert_eq!(client.knows.len(), 0);
    guarded.open_again("beta");
    world.buckets.create("gamma").await.unwrap();
    put(&mut world, "gamma", "c").await;
    pass(&world, Duration::from_secs(61)).await;
    handler.settled().await;
    client.follow(&handler, 10).await;
    assert_eq!(client.knows.len(), 2);
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Whoever comes back sees what there is, and only a container that nobody named meanwhile is listed for it.
#[tokio::test(start_paused = true)]
async fn s291_views_that_nobody_asks_for_are_forgotten() {
    let mut world = World::new(&["alpha", "beta"]).await;
    for key in ["a1", "a2", "b1"] {
        put(&mut world, "alpha", key).await;
    }
    put(&mut world, "beta", "b").await;
    let (guarded, dir) = (Guarded::of(&world), tempfile::tempdir().unwrap());
    let handler = world.start_on(guarded.clone(), Some(dir.path().to_owned()), 1).await;
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
    assert_eq!(clients[1].beginnings, 1, "who goes on notices nothing");

    let before = guarded.listings();
    let unwanted = world.put("alpha", "b2", 1, map(&[]), map(&[])).await;
    tell(&handler, &[unwanted]).await;
    let old = clients[0].cursor.clone();
    for client in &mut clients {
        client.follow(&handler, 10).await;
        assert_eq!(client.shown(), world.expected(&client.ruleset).await);
    }
    let again = handler.changes(clients[0].view, old.as_ref(), 10).await.unwrap();
    assert!(again.is_beginning, "what left meanwhile nobody knows");
    assert_eq!(guarded.listings() - before, 2, "of what was forgotten");
    let same = handler.open(&rules[1]).await.unwrap();
    assert_eq!(same, clients[1].view);

    // So it is for the next life, whether it reads a log or a snapshot.
    for is_snapshot in [false, true] {
        if is_snapshot {
            handler.snapshot().await.unwrap();
        }
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let next = world.start_on(guarded.clone(), Some(copy.path().to_owned()), 2).await;
        let listed = guarded.listings();
        for client in &clients {
            let mut client = client.clone();
            client.follow(&next, 10).await;
            assert_eq!(client.shown(), world.expected(&client.ruleset).await, "{is_snapshot}");
        }
        assert_eq!(guarded.listings(), listed);
        assert_eq!(next.stats().views.len(), 3);
    }
}

/// What a client's credentials may not open it does not see, though the handler knows it.
#[tokio::test]
async fn s289_what_a_client_may_not_read_it_does_not_see() {
    let mut world = World::new(&["alpha", "beta"]).await;
    put(&mut world, "alpha", "a").await;
    put(&mut world, "beta", "b").await;
    let handler = world.start(None, 1).await;
    let own = Guarded::of(&world);
    own.shut("beta");
    let views = Permitted::new(handler.clone(), own.clone(), world.clock.clone());
    let view = views.open(&ruleset("container: [alpha, beta]")).await.unwrap();
    let sees = |changes: &views::Changes| -> Vec<String> {
        let mut keys: Vec<_> = changes.shown.iter().map(|shown| shown.name.key.to_string()).collect();
        keys.sort();
        keys
    };
    let first = views.changes(view, None, 10).await.unwrap();
    assert_eq!(sees(&first), ["a"]);
    assert_eq!(first.unlisted.len(), 1);
    assert!(first.unlisted[0].why.contains("not for you"), "{:?}", first.unlisted);
    let told = world.put("beta", "c", 1, map(&[]), map(&[])).await;
    tell(&handler, &[told]).await;
    handler.settled().await;
    let next = views.changes(view, Some(&first.cursor), 10).await.unwrap();
    assert!(sees(&next).is_empty() && !next.is_beginning, "{next:?}");

    own.open_again("beta");
    world.clock.advance(Duration::from_secs(11));
    let now = views.changes(view, Some(&next.cursor), 10).await.unwrap();
    assert_eq!((sees(&now), now.is_beginning), (vec!["a".to_owned(), "b".into(), "c".into()], true));
    assert!(now.unlisted.is_empty());

    own.shut("alpha");
    let still = views.changes(view, Some(&now.cursor), 10).await.unwrap();
    assert!(still.shown.is_empty() && !still.is_beginning, "nobody asks that often");
    world.clock.advance(Duration::from_secs(31));
    let left = views.changes(view, Some(&still.cursor), 10).await.unwrap();
    assert_eq!((sees(&left), left.is_beginning), (vec!["b".to_owned(), "c".into()], true));
}
