//! Handlers that stop and restart, and several handlers for one client.

use super::{ANY, client, serve};
use crate::fake_handler::FakeHandler;
use crate::tree::{ManualClock, name, object, split};
use std::sync::Arc;
use std::time::Duration;
use store::memory::MemoryBuckets;
use views::tree::{Entry, Tree, TreeParts};

async fn tree(views: views::remote::RemoteViews) -> (Tree, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let rulesets = views::read("set: {container: bucket}").unwrap();
    let buckets = Arc::new(MemoryBuckets::new(clock.clone()));
    let (views, recency) = (Arc::new(views), Duration::ZERO);
    let parts = TreeParts {
        views,
        rulesets,
        recency,
        clock: clock.clone(),
        buckets,
        handler: None,
        dir: None,
        memory_max_bytes: None,
    };
    (Tree::start(parts).await.unwrap(), clock)
}

async fn names(tree: &Tree) -> Vec<String> {
    let listed = tree.list(&split("set"), None, 100).await.unwrap();
    listed.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
}

#[tokio::test]
async fn s277_a_client_survives_a_restart_of_its_handler() {
    let handler = Arc::new(FakeHandler::default());
    handler.put(object("a", ""));
    let server = serve(&handler, None, ANY).await;
    let address = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    let (tree, clock) = tree(client(&[server.url()], None)).await;
    assert_eq!(names(&tree).await, ["a"]);
    server.stop(Duration::from_secs(5)).await;
    drop(server);
    assert_eq!(names(&tree).await, ["a"]);
    assert!(tree.status()[0].outage.is_some());
    handler.put(object("b", ""));
    handler.remove(&name("a"));
    handler.restart();
    let _server = serve(&handler, None, address).await;
    clock.move_by(2);
    assert_eq!(names(&tree).await, ["b"]);
    assert_eq!(tree.status()[0].outage, None);
    assert!(matches!(tree.find(&split("set/b")).await, Ok(Some(Entry::File(_)))));
}

#[tokio::test]
async fn s277_the_next_handler_is_asked_if_one_does_not_answer() {
    let (one, other) = (Arc::new(FakeHandler::default()), Arc::new(FakeHandler::default()));
    other.restart();
    for handler in [&one, &other] {
        handler.put(object("a", ""));
    }
    let (first, second) = (serve(&one, None, ANY).await, serve(&other, None, ANY).await);
    let (tree, clock) = tree(client(&[first.url(), second.url()], None)).await;
    assert_eq!(names(&tree).await, ["a"]);
    first.stop(Duration::from_secs(5)).await;
    drop(first);
    other.put(object("b", ""));
    clock.move_by(2);
    assert_eq!(names(&tree).await, ["a", "b"]);
    assert_eq!(tree.status()[0].outage, None);
}
