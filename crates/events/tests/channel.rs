//! Subscribers in the process.

use super::webhook::event;
use events::{Channel, Heard};

#[tokio::test]
async fn subscribers_hear_what_happens_from_then_on() {
    let channel = Channel::default();
    channel.tell(Heard::Event(event("before", 1)));
    assert!(!channel.is_heard());
    let (mut one, mut other) = (channel.subscribe(), channel.subscribe());
    assert!(channel.is_heard());
    channel.tell(Heard::Event(event("a", 2)));
    channel.tell(Heard::Lost(3));
    for subscription in [&mut one, &mut other] {
        assert_eq!(subscription.next().await, Some(Heard::Event(event("a", 2))));
        assert_eq!(subscription.next().await, Some(Heard::Lost(3)));
    }
    drop(channel);
    assert_eq!(one.next().await, None);
}

/// Who tells never waits: a subscriber that stands still learns how much it missed, and goes on with what is left.
#[tokio::test]
async fn s193_who_is_slow_is_told_so() {
    let channel = Channel::default();
    let mut slow = channel.subscribe();
    for number in 0..10_000 {
        channel.tell(Heard::Event(event("a", number)));
    }
    let Some(Heard::Lost(lost)) = slow.next().await else { panic!("it did not hear of its loss") };
    assert!((1..10_000).contains(&lost), "{lost}");
    assert_eq!(slow.next().await, Some(Heard::Event(event("a", lost))));
}
