//! When the handler is asked, and what a view shows while it does not answer.

use super::{World, name, object, split};
use std::sync::atomic::Ordering;
use std::time::Duration;
use views::tree::TreeError;

const SETS: &str = "set: {container: bucket}\nother: {container: bucket, object: 'o*'}";

#[tokio::test]
async fn s274_the_handler_is_asked_only_for_views_in_use_that_are_not_recent() {
    let world = World::with_recency(SETS, Duration::from_secs(5)).await;
    world.handler.put(object("a", ""));
    assert_eq!(world.names("").await, ["other/", "set/"]);
    assert_eq!(world.handler.asked.load(Ordering::Relaxed), 0);
    assert_eq!(world.names("set").await, ["a"]);
    world.handler.put(object("b", ""));
    assert_eq!(world.names("set").await, ["a"]);
    assert_eq!(world.handler.asked.load(Ordering::Relaxed), 1);
    world.clock.move_by(5);
    assert_eq!(world.names("set").await, ["a", "b"]);
    assert_eq!(world.handler.asked.load(Ordering::Relaxed), 2);
    // After the clock was set back, the content does not count as recent.
    world.handler.put(object("c", ""));
    world.clock.move_by(-3600);
    assert_eq!(world.names("set").await, ["a", "b", "c"]);
    assert!(world.tree.status()[0].known.is_none());
}

#[tokio::test]
async fn s274_concurrent_lookups_share_requests() {
    let world = World::new(SETS).await;
    world.handler.put(object("a", ""));
    let path = split("set/a");
    let looks = (0..1000).map(|_| world.tree.find(&path));
    for found in futures_util::future::join_all(looks).await {
        assert!(found.unwrap().is_some());
    }
    // One request by the first caller, and one for all callers that came while it ran.
    let asked = world.handler.asked.load(Ordering::Relaxed);
    assert!(asked <= 2, "{asked}");
}

#[tokio::test]
async fn s274_an_unreachable_handler_removes_nothing() {
    let world = World::new(SETS).await;
    world.handler.set_lost(true);
    let listed = world.tree.list(&split("set"), None, 10).await;
    assert!(matches!(listed, Err(TreeError::View(_))), "{listed:?}");
    world.handler.set_lost(false);
    world.handler.put(object("a", ""));
    assert_eq!(world.names("set").await, ["a"]);
    world.handler.set_lost(true);
    world.handler.put(object("b", ""));
    assert_eq!(world.names("set").await, ["a"]);
    let outage = world.tree.status()[1].outage.clone().unwrap();
    assert!(outage.why.contains("it is lost"), "{outage:?}");
    // The handler is not asked again for a second; `since` is the time of the first failure.
    let asked = world.handler.asked.load(Ordering::Relaxed);
    assert_eq!(world.names("set").await, ["a"]);
    assert_eq!(world.handler.asked.load(Ordering::Relaxed), asked);
    world.clock.move_by(2);
    assert_eq!(world.names("set").await, ["a"]);
    assert_eq!(world.tree.status()[1].outage.clone().unwrap().since, outage.since);
    // The handler is reachable again, after a restart: objects that were removed meanwhile are gone.
    world.handler.set_lost(false);
    world.handler.remove(&name("a"));
    world.handler.restart();
    world.clock.move_by(2);
    assert_eq!(world.names("set").await, ["b"]);
    assert_eq!(world.tree.status()[1].outage, None);
}

#[tokio::test]
async fn s273_local_changes_are_visible_at_once_and_take_precedence_for_a_time() {
    let world = World::new(SETS).await;
    world.handler.put(object("old", ""));
    assert_eq!(world.names("set").await, ["old"]);
    world.tree.notify_stored(object("on", ""));
    world.tree.notify_removed(&name("old"));
    assert_eq!(world.names("set").await, ["on"]);
    assert_eq!(world.names("other").await, ["on"]);
    // The handler reports the state from before the changes.
    world.handler.put(object("old", ""));
    world.handler.remove(&name("on"));
    assert_eq!(world.names("set").await, ["on"]);
    world.clock.move_by(11);
    assert_eq!(world.names("set").await, ["old"]);
    assert_eq!(world.names("other").await, ["old"]);
}

/// Another client stored an object after this one had, and the handler reported it before this client was notified of
/// its own PUT. The change of this client was then shown for ever, because the handler had no further change to
/// report.
#[tokio::test]
async fn s273_a_state_reported_during_a_local_change_is_not_lost() {
    let world = World::new(SETS).await;
    for is_removed in [false, true] {
        world.handler.put(world.bucket.put("x", "").await);
        assert_eq!(world.names("set").await, ["x"]);
        let changing = world.tree.changing(&name("x"));
        let ours = world.bucket.put("x", "ours").await;
        let theirs = world.bucket.put("x", "theirs").await;
        world.handler.put(theirs);
        assert_eq!(world.names("set").await, ["theirs/"]);
        match is_removed {
            false => world.tree.notify_stored(ours),
            true => world.tree.notify_removed(&name("x")),
        }
        drop(changing);
        // The change of this client takes precedence for a time.
        assert_eq!(world.key("set/theirs/x").await, None);
        world.clock.move_by(11);
        assert_eq!(world.names("set").await, ["theirs/"]);
        assert_eq!(world.names("set/theirs").await, ["x"]);
    }
}

#[tokio::test]
async fn a_listing_continues_after_a_name() {
    let world = World::new(SETS).await;
    for key in ["a", "b", "c"] {
        world.handler.put(object(key, ""));
    }
    let path = split("set");
    let first = world.tree.list(&path, None, 2).await.unwrap();
    assert_eq!(first.len(), 2);
    let rest = world.tree.list(&path, Some(&first[1].0), 2).await.unwrap();
    assert_eq!(&*rest[0].0, b"c");
    assert!(world.tree.list(&path, Some(b"c"), 2).await.unwrap().is_empty());
    assert!(matches!(world.tree.list(&split("set/a"), None, 1).await, Err(TreeError::NotDirectory)));
    assert!(matches!(world.tree.list(&split("set/x"), None, 1).await, Err(TreeError::NotFound)));
    assert!(matches!(world.tree.list(&split("x"), None, 1).await, Err(TreeError::NotFound)));
}

/// The cost of a page does not depend on the size of the view. The limit is for a debug build on a busy machine.
#[tokio::test]
async fn a_hundred_thousand_objects_are_listed_quickly() {
    let world = World::with_recency(SETS, Duration::from_secs(3600)).await;
    for number in 0..100_000 {
        world.handler.put(object(&format!("d{}/file-{number:06}", number % 100), ""));
    }
    let path = split("set");
    assert_eq!(world.tree.list(&path, None, 10).await.unwrap().len(), 10);
    let began = tokio::time::Instant::now();
    let (mut count, mut after) = (0, None::<std::sync::Arc<[u8]>>);
    loop {
        let page = world.tree.list(&path, after.as_deref(), 1000).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        (count, after) = (count + page.len(), Some(last.clone()));
    }
    let took = began.elapsed();
    assert_eq!(count, 100_000);
    assert!(took < Duration::from_secs(2), "{took:?}");
}
