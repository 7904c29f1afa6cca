//! Hints whose order or content must not be trusted.

use super::world::{Client, TestEvent, World, deliver, map, ruleset};
use events::Sink as _;
use std::time::Duration;
use store::{Clock as _, Timestamp};

const COLORS: &str = "container: alpha\nproperties:\n  color: green";

/// Found by a simulated world of the whole chain: an object was stored, listed, and given other properties by a copy
/// onto itself, all in one second. The event of the copy repeated the etag of the bytes, was taken for the event of
/// the first PUT, and the new properties were never seen.
#[tokio::test]
async fn s250_a_copy_onto_itself_within_a_second_of_a_listing_is_noticed() {
    for has_no_metadata in [false, true] {
        let mut world = World::new(&["alpha"]).await;
        let rules = ruleset(COLORS);
        let stored = world.put("alpha", "x", 1, map(&[("color", "red")]), map(&[])).await;
        let handler = world.start(None, 1).await;
        let mut client = Client::open(&handler, &rules).await;
        let described = world.set_properties("alpha", "x", map(&[("color", "green")])).await;
        // As in S3, the etag depends on the bytes only.
        let described = TestEvent { etag: stored.etag.clone(), ..described };
        let described = if has_no_metadata { described.without_metadata() } else { described };
        deliver(&handler, &[described, stored]).await;
        handler.wait_until_idle().await;
        client.follow(&handler, 10).await;
        assert_eq!((client.shown(), client.objects.len()), (world.expected(&rules).await, 1));
    }
}

/// Found by a simulated world of the whole chain: the same bytes were stored, removed and stored again in one second,
/// and the events arrived in another order. A HEAD request that an early event had caused ended after a later event
/// was applied, and gave the object the order of the early event. Then the removal between them was applied.
#[tokio::test]
async fn s250_a_head_result_does_not_undo_later_hints() {
    let mut world = World::new(&["alpha"]).await;
    let rules = ruleset("container: alpha\nproperties:\n  color: [red, green]");
    let first = world.put("alpha", "x", 1, map(&[("color", "red")]), map(&[])).await;
    let removed = world.delete("alpha", "x").await;
    let last = world.put("alpha", "x", 1, map(&[("color", "green")]), map(&[])).await;
    let first = TestEvent { etag: last.etag.clone(), ..first };
    let handler = world.start(None, 1).await;
    let mut client = Client::open(&handler, &rules).await;
    handler.take(&[first.hint(), last.hint()]).await.unwrap();
    handler.wait_until_idle().await;
    deliver(&handler, &[removed]).await;
    handler.wait_until_idle().await;
    client.follow(&handler, 10).await;
    assert_eq!((client.shown(), client.objects.len()), (world.expected(&rules).await, 1));
}

/// Hints that a source sent while its clock was ahead must not count as later than all hints after the clock was
/// corrected.
#[tokio::test]
async fn s281_no_hint_is_lost_when_the_clock_of_a_source_is_set_back() {
    for is_removed in [false, true] {
        let mut world = World::new(&["alpha"]).await;
        let rules = ruleset("container: alpha\nsize: \">0\"");
        let handler = world.start(None, 1).await;
        let mut client = Client::open(&handler, &rules).await;
        let hour = Duration::from_secs(3600);
        let ahead = |event: TestEvent| TestEvent {
            order: event.order.map(|order| order + hour.as_nanos()),
            time: event.time.after(hour),
            ..event
        };
        let stored = world.put("alpha", "x", 1, map(&[]), map(&[])).await;
        deliver(&handler, &[ahead(stored)]).await;
        handler.wait_until_idle().await;
        if is_removed {
            let removed = world.delete("alpha", "x").await;
            deliver(&handler, &[ahead(removed)]).await;
            handler.wait_until_idle().await;
        }
        client.follow(&handler, 10).await;
        assert_eq!((client.shown(), client.objects.is_empty()), (world.expected(&rules).await, is_removed));
        let right = world.put("alpha", "x", 2, map(&[]), map(&[])).await;
        deliver(&handler, &[right]).await;
        handler.wait_until_idle().await;
        client.follow(&handler, 10).await;
        assert_eq!((client.shown(), client.objects.len()), (world.expected(&rules).await, 1));
    }
}

/// In MinIO's events the order is the time at which the PUT began. Of two concurrent PUTs, the one that ended last
/// had the earlier order, counted as late, and was never shown.
#[tokio::test]
async fn s266_the_order_of_concurrent_puts_is_not_trusted() {
    let ms = |ms: u64| Duration::from_millis(ms);
    let at = |event: &TestEvent, time: Timestamp, began: u64, ended: u64| TestEvent {
        order: u128::try_from(time.after(ms(began)).0).ok(),
        time: time.after(ms(ended)),
        ..event.clone()
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
                // The PUT that ended last began first.
                true => [at(removed.as_ref().unwrap_or(&first), time, 6, 8), at(&last, time, 0, 50)],
                // The PUT that ended last began first, and its event arrives first.
                false => [at(&last, time, 0, 50), at(removed.as_ref().unwrap_or(&first), time, 6, 8)],
            };
            for event in heard {
                deliver(&handler, &[event]).await;
                handler.wait_until_idle().await;
            }
            client.follow(&handler, 10).await;
            assert_eq!((client.shown(), client.objects.len()), (world.expected(&rules).await, 1));
        }
    }
}

/// Each PUT began after the previous one had ended: their order is trusted, and no object is verified.
#[tokio::test]
async fn s266_the_order_of_sequential_puts_is_trusted() {
    let mut world = World::new(&["alpha"]).await;
    let handler = world.start(None, 1).await;
    let mut client = Client::open(&handler, &ruleset("container: alpha")).await;
    let mut all = Vec::new();
    for size_bytes in 1..4 {
        world.clock.advance(Duration::from_millis(20));
        all.push(world.put("alpha", "x", size_bytes, map(&[]), map(&[])).await);
    }
    deliver(&handler, &all).await;
    deliver(&handler, &all).await;
    client.follow(&handler, 10).await;
    let counts = handler.stats().hints;
    assert_eq!((counts.applied, counts.looked, counts.late), (3, 0, 2));
}
