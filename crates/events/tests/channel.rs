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
    channel.publish(ChannelItem::Lost(None));
    for subscription in [&mut one, &mut other] {
        assert_eq!(subscription.next().await, Some(ChannelItem::Lost(None)));
        assert_eq!(subscription.next().await, Some(ChannelItem::Event(event("a", 2))));
    }
    drop(channel);
    assert_eq!(one.next().await, None);
}

#[tokio::test]
async fn a_waiting_subscriber_is_woken() {
    let channel = Channel::default();
    let mut subscription = channel.subscribe();
    let published = async {
        tokio::task::yield_now().await;
        channel.publish(ChannelItem::Event(event("a", 1)));
    };
    let (received, ()) = tokio::join!(subscription.next(), published);
    assert_eq!(received, Some(ChannelItem::Event(event("a", 1))));
    drop(subscription);
    assert!(!channel.has_subscribers());
}

/// Publishing never waits. A slow subscriber learns in which buckets it missed events, and continues with the newest ones.
#[tokio::test]
async fn s193_a_slow_subscriber_is_told_of_lost_events() {
    let channel = Channel::default();
    let mut slow = channel.subscribe();
    for number in 0..10_000 {
        channel.publish(ChannelItem::Event(event("a", number)));
    }
    let bucket = event("a", 0).bucket.clone();
    assert_eq!(slow.next().await, Some(ChannelItem::Lost(Some(bucket.clone()))));
    let Some(ChannelItem::Event(oldest)) = slow.next().await else { panic!("the newest events are kept") };
    let kept: Vec<_> = std::iter::from_fn(|| slow.next_ready()).collect();
    assert!((1000..10_000).contains(&kept.len()), "{}", kept.len());
    assert_eq!(oldest, event("a", 10_000 - 1 - kept.len() as u64));
    assert_eq!(kept.last(), Some(&ChannelItem::Event(event("a", 9_999))));
    // Many buckets count as all of them.
    for number in 0..100 {
        channel.publish(ChannelItem::Lost(Some(format!("bucket-{number}"))));
    }
    assert_eq!(slow.next().await, Some(ChannelItem::Lost(None)));
    assert_eq!(slow.next_ready(), None);
}
