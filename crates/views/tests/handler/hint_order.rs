//! Hints that say less than they seem to, or what is not so.

use super::world::{Client, Told, World, map, ruleset, tell};
use events::Sink as _;
use std::time::Duration;
use store::{Clock as _, Timestamp};

const COLORS: &str = "container: alpha\nproperties:\n  color: green";

/// A world of the whole chain: an object was stored, looked at by a listing, and described anew, all in one second. The event of
/// the description was taken for that of the bytes, whose tag it repeats, and its metadata never seen.
#[tokio::test]
async fn s250_a_copy_onto_itself_within_a_second_of_a_listing_is_noticed() {
    for is_terse in [false, true] {
        let mut world = World::new(&["alpha"]).await;
        let rules = ruleset(COLORS);
        let stored = world.put("alpha", "x", 1, map(&[("color", "red")]), map(&[])).await;
        let handler = world.start(None, 1).await;
        let mut client = Client::open(&handler, &rules).await;
        let described = world.describe("alpha", "x", map(&[("color", "green")])).await;
        // As S3's is, of the bytes alone.
        let described = Told { etag: stored.etag.clone(), ..described };
        let described = if is_terse { described.terse() } else { described };
        tell(&handler, &[described, stored]).await;
        handler.settled().await;
        client.follow(&handler, 10).await;
        assert_eq!((client.shown(), client.knows.len()), (world.expected(&rules).await, 1));
    }
}

/// A world of the whole chain: the same bytes were stored, removed and stored again in one second, and heard in another order. A look
/// that an early event had asked for ended after a later one was heard, and put the object back to the early one's place: then the
/// removal between them counted.
#[tokio::test]
async fn s250_a_look_does_not_undo_what_was_heard_meanwhile() {
    let mut world = World::new(&["alpha"]).await;
    let rules = ruleset("container: alpha\nproperties:\n  color: [red, green]");
    let first = world.put("alpha", "x", 1, map(&[("color", "red")]), map(&[])).await;
    let removed = world.delete("alpha", "x").await;
    let last = world.put("alpha", "x", 1, map(&[("color", "green")]), map(&[])).await;
    let first = Told { etag: last.etag.clone(), ..first };
    let handler = world.start(None, 1).await;
    let mut client = Client::open(&handler, &rules).await;
    handler.take(&[first.hint(), last.hint()]).await.unwrap();
    handler.settled().await;
    tell(&handler, &[removed]).await;
    handler.settled().await;
    client.follow(&handler, 10).await;
    assert_eq!((client.shown(), client.knows.len()), (world.expected(&rules).await, 1));
}

/// What a source said while its clock was ahead would be later than all that comes after it was put right.
#[tokio::test]
async fn s281_a_source_whose_clock_is_put_back_loses_nothing() {
    for is_removed in [false, true] {
        let mut world = World::new(&["alpha"]).await;
        let rules = ruleset("container: alpha\nsize: \">0\"");
        let handler = world.start(None, 1).await;
        let mut client = Client::open(&handler, &rules).await;
        let hour = Duration::from_secs(3600);
        let ahead = |told: Told| Told {
            order: told.order.map(|order| order + hour.as_nanos()),
            time: told.time.after(hour),
            ..told
        };
        let stored = world.put("alpha", "x", 1, map(&[]), map(&[])).await;
        tell(&handler, &[ahead(stored)]).await;
        handler.settled().await;
        if is_removed {
            let removed = world.delete("alpha", "x").await;
            tell(&handler, &[ahead(removed)]).await;
            handler.settled().await;
        }
        client.follow(&handler, 10).await;
        assert_eq!((client.shown(), client.knows.is_empty()), (world.expected(&rules).await, is_removed));
        let right = world.put("alpha", "x", 2, map(&[]), map(&[])).await;
        tell(&handler, &[right]).await;
        handler.settled().await;
        client.follow(&handler, 10).await;
        assert_eq!((client.shown(), client.knows.len()), (world.expected(&rules).await, 1));
    }
}

/// MinIO's events have the time at which an object began to be stored as their order. Of two that were stored at once the one that
/// ended last had the earlier order, was taken for late, and never shown.
#[tokio::test]
async fn s266_of_what_is_stored_at_once_the_order_of_beginnings_is_not_believed() {
    let ms = |ms: u64| Duration::from_millis(ms);
    let at = |told: &Told, time: Timestamp, began: u64, ended: u64| Told {
        order: u128::try_from(time.after(ms(began)).0).ok(),
        time: time.after(ms(ended)),
        ..told.clone()
    };
    for is_removed in [false, true] {
        for is_heard_in_turn in [false, true] {
            let mut world = World::new(&["alpha"]).await;
            world.clock.advance(Duration::from_secs(1_000_000));
            let time = world.clock.now();
            let rules = ruleset("container: alpha");
            let handler = world.start(None, 1).await;
            let mut client = Client::open(&handler, &rules).await;
            let first = world.put("alpha", "x", 1, map(&[]), map(&[])).await;
            let removed = if is_removed { Some(world.delete("alpha", "x").await) } else { None };
            let last = world.put("alpha", "x", 2, map(&[]), map(&[])).await;
            let heard = match is_heard_in_turn {
                // The last one began first.
                true => [at(removed.as_ref().unwrap_or(&first), time, 6, 8), at(&last, time, 0, 50)],
                // The last one began first, and the other is heard after it.
                false => [at(&last, time, 0, 50), at(removed.as_ref().unwrap_or(&first), time, 6, 8)],
            };
            for told in heard {
                tell(&handler, &[told]).await;
                handler.settled().await;
            }
            client.follow(&handler, 10).await;
            assert_eq!((client.shown(), client.knows.len()), (world.expected(&rules).await, 1));
        }
    }
}

/// One was stored after the other had ended: their order is believed, and nobody looks.
#[tokio::test]
async fn s266_of_what_is_stored_in_turn_the_order_is_believed() {
    let mut world = World::new(&["alpha"]).await;
    let handler = world.start(None, 1).await;
    let mut client = Client::open(&handler, &ruleset("container: alpha")).await;
    let mut all = Vec::new();
    for size_bytes in 1..4 {
        world.clock.advance(Duration::from_millis(20));
        all.push(world.put("alpha", "x", size_bytes, map(&[]), map(&[])).await);
    }
    tell(&handler, &all).await;
    tell(&handler, &all).await;
    client.follow(&handler, 10).await;
    let counts = handler.stats().hints;
    assert_eq!((counts.applied, counts.looked, counts.late), (3, 0, 2));
}
