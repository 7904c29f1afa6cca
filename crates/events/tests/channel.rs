//! Subscribers in the same process.

use super::webhook::event;
use events::{Channel, ChannelItem};

#[tokio::test]
async fn subscribers_receive_later_events() {
    let channel = Channel::default();
    channel.publish(ChannelItem::Event(event("before", 1)));
    assert!(!channel.has_subscribers());
    let (mut one, mut other) = (channel.subscribe(), channel.subscribe());
    assert!(channel.has_subscribers());
    channel.publish(ChannelItem::Event(event("a", 2)));
    channel.publish(ChannelItem::Lost(3));
    for subscription in [&mut one, &mut other] {
        assert_eq!(subscription.next().await, Some(ChannelItem::Event(event("a", 2))));
        assert_eq!(subscription.next().await, Some(ChannelItem::Lost(3)));
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
        channel.publish(ChannelItem::Event(event("a", number)));
    }
    let Some(ChannelItem::Lost(lost)) = slow.next().await else { panic!("the loss must be reported") };
    assert!((1..10_000).contains(&lost), "{lost}");
    assert_eq!(slow.next().await, Some(ChannelItem::Event(event("a", lost))));
}
