//! When a handler is asked, and what there is when it does not answer.

use super::{World, name, object, split};
use std::sync::atomic::Ordering;
use std::time::Duration;
use views::tree::TreeError;

const SETS: &str = "set: {container: bucket}\nother: {container: bucket, object: 'o*'}";

#[tokio::test]
async fn s274_a_view_is_asked_for_when_it_is_looked_at_and_not_recent() {
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
    // A clock that was put back does not keep what is known recent.
    world.handler.put(object("c", ""));
    world.clock.move_by(-3600);
    assert_eq!(world.names("set").await, ["a", "b", "c"]);
    assert!(world.tree.status()[0].known.is_none());
}

#[tokio::test]
async fn s274_of_many_who_look_at_one_time_few_ask() {
    let world = World::new(SETS).await;
    world.handler.put(object("a", ""));
    let path = split("set/a");
    let looks = (0..1000).map(|_| world.tree.find(&path));
    for found in futures_util::future::join_all(looks).await {
        assert!(found.unwrap().is_some());
    }
    // The first, and one for all those who came while it asked.
    let asked = world.handler.asked.load(Ordering::Relaxed);
    assert!(asked <= 2, "{asked}");
}

#[tokio::test]
async fn s274_a_lost_handler_takes_nothing_away() {
    let world = World::new(SETS).await;
    world.handler.lose(true);
    let listed = world.tree.list(&split("set"), None, 10).await;
    assert!(matches!(listed, Err(TreeError::View(_))), "{listed:?}");
    world.handler.lose(false);
    world.handler.put(object("a", ""));
    assert_eq!(world.names("set").await, ["a"]);
    world.handler.lose(true);
    world.handler.put(object("b", ""));
    assert_eq!(world.names("set").await, ["a"]);
    let lost = world.tree.status()[1].lost.clone().unwrap();
    assert!(lost.why.contains("it is lost"), "{lost:?}");
    // It is not asked again for a second, and the first loss is what counts.
    let asked = world.handler.asked.load(Ordering::Relaxed);
    assert_eq!(world.names("set").await, ["a"]);
    assert_eq!(world.handler.asked.load(Ordering::Relaxed), asked);
    world.clock.move_by(2);
    assert_eq!(world.names("set").await, ["a"]);
    assert_eq!(world.tree.status()[1].lost.clone().unwrap().since, lost.since);
    // Back, and with another life: what went meanwhile is gone.
    world.handler.lose(false);
    world.handler.remove(&name("a"));
    world.handler.start_anew();
    world.clock.move_by(2);
    assert_eq!(world.names("set").await, ["b"]);
    assert_eq!(world.tree.status()[1].lost, None);
}

#[tokio::test]
async fn s273_what_this_client_did_is_seen_at_once_and_until_the_handler_had_time_to_hear() {
    let world = World::new(SETS).await;
    world.handler.put(object("old", ""));
    assert_eq!(world.names("set").await, ["old"]);
    world.tree.told_stored(object("on", ""));
    world.tree.told_removed(&name("old"));
    assert_eq!(world.names("set").await, ["on"]);
    assert_eq!(world.names("other").await, ["on"]);
    // The handler hears of what was before.
    world.handler.put(object("old", ""));
    world.handler.remove(&name("on"));
    assert_eq!(world.names("set").await, ["on"]);
    world.clock.move_by(11);
    assert_eq!(world.names("set").await, ["old"]);
    assert_eq!(world.names("other").await, ["old"]);
}

/// Another client stored an object after this one had, and the handler said so before this client was told that its own was
/// stored. What this client did was then shown for ever, as the handler had nothing more to say.
#[tokio::test]
async fn s273_what_the_handler_says_while_this_client_changes_an_object_is_not_lost() {
    let world = World::new(SETS).await;
    for is_removed in [false, true] {
        world.handler.put(world.shop.put("x", "").await);
        assert_eq!(world.names("set").await, ["x"]);
        let changing = world.tree.changing(&name("x"));
        let ours = world.shop.put("x", "ours").await;
        let theirs = world.shop.put("x", "theirs").await;
        world.handler.put(theirs);
        assert_eq!(world.names("set").await, ["theirs/"]);
        match is_removed {
            false => world.tree.told_stored(ours),
            true => world.tree.told_removed(&name("x")),
        }
        drop(changing);
        // This client's own is seen for a time.
        assert_eq!(world.key("set/theirs/x").await, None);
        world.clock.move_by(11);
        assert_eq!(world.names("set").await, ["theirs/"]);
        assert_eq!(world.names("set/theirs").await, ["x"]);
    }
}

#[tokio::test]
async fn a_listing_goes_on_where_it_was() {
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

/// However large a view is, a page of a listing costs what is on it; this is a debug build's time on a busy machine.
#[tokio::test]
async fn a_hundred_thousand_objects_are_listed_soon() {
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
