//! Subscribers in the same process.

use super::webhook::event;
use events::{Channel, Heard};

#[tokio::test]
async fn subscribers_receive_later_events() {
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

/// Publishing never waits. A slow subscriber learns how many events it missed, and continues with the remaining ones.
#[tokio::test]
async fn s193_a_slow_subscriber_is_told_of_lost_events() {
    let channel = Channel::default();
    let mut slow = channel.subscribe();
    for number in 0..10_000 {
        channel.tell(Heard::Event(event("a", number)));
    }
    let Some(Heard::Lost(lost)) = slow.next().await else { panic!("the loss must be reported") };
    assert!((1..10_000).contains(&lost), "{lost}");
    assert_eq!(slow.next().await, Some(Heard::Event(event("a", lost))));
}
