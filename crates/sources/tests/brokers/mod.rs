//! Behaviour that all sources have in common, tested with real brokers.

mod amqp;
mod kafka;
mod minio;
mod nats;
mod redis;
mod sqs;
mod tls;

use events::{Message, Source, SourceError};
use servers::Broker;
use sources::BrokerAccess;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use store::Entropy;
use tokio::time::{Instant, timeout};

/// A queue of a broker, to which the test publishes.
#[async_trait::async_trait]
trait Queue: Send {
    /// Returns the broker.
    fn broker(&mut self) -> &mut Broker;

    /// Returns the URL of the source.
    fn url(&self) -> String;

    /// Returns the source's settings besides the URL.
    fn access(&self) -> BrokerAccess {
        BrokerAccess::default()
    }

    /// Opens a source that reads the queue.
    fn open(&self) -> Box<dyn Source> {
        open_url(&self.url(), &self.access())
    }

    /// Returns whether messages arrive in the order in which they were published.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Returns whether waiting messages can be counted only after the first messages were received.
    fn counts_after_receiving(&self) -> bool {
        true
    }

    /// Publishes one message for each number.
    async fn publish(&mut self, numbers: Range<u32>);
}

/// Longer than any broker or source needs to notice that a consumer is gone.
const PATIENCE: Duration = Duration::from_secs(90);

/// Silence after which no further message is expected.
const QUIET: Duration = Duration::from_secs(3);

const BATCH: usize = 256;

fn open_url(url: &str, access: &BrokerAccess) -> Box<dyn Source> {
    sources::open_broker(url, access).unwrap()
}

/// Returns the next messages, or none after the time `within`. Retries as a feed does.
async fn receive(source: &mut dyn Source, within: Duration) -> Vec<Message> {
    let end = Instant::now() + within;
    while Instant::now() < end {
        match timeout(end - Instant::now(), source.receive(BATCH)).await {
            Ok(Ok(messages)) => {
                assert!(messages.len() <= BATCH, "{}", messages.len());
                return messages;
            }
            Ok(Err(SourceError::Refused(reason))) => panic!("refused: {reason}"),
            Ok(Err(SourceError::Unavailable(reason))) => {
                println!("unavailable: {reason}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(_) => {}
        }
    }
    Vec::new()
}

fn numbers(messages: &[Message]) -> Vec<u32> {
    messages.iter().map(|message| std::str::from_utf8(&message.body).unwrap().parse().unwrap()).collect()
}

/// Receives and acknowledges until all wanted messages have arrived.
async fn drain(source: &mut dyn Source, wanted: Range<u32>) -> Vec<u32> {
    receive_all(source, wanted.collect()).await
}

async fn receive_all(source: &mut dyn Source, mut missing: BTreeSet<u32>) -> Vec<u32> {
    let mut arrived = Vec::new();
    while !missing.is_empty() {
        let messages = receive(source, PATIENCE).await;
        assert!(
            !messages.is_empty(),
            "{} messages never arrived, for example {:?}",
            missing.len(),
            missing.first()
        );
        remove_received(&mut missing, &messages);
        arrived.extend(numbers(&messages));
        // If the acknowledgement fails, the messages come again, which is allowed.
        let _ = source.acknowledge().await;
    }
    arrived
}

fn remove_received(missing: &mut BTreeSet<u32>, messages: &[Message]) {
    for number in numbers(messages) {
        missing.remove(&number);
    }
}

async fn assert_quiet(source: &mut dyn Source) {
    let messages = receive(source, QUIET).await;
    assert!(messages.is_empty(), "unexpected messages: {:?}", numbers(&messages));
}

/// Asserts that the numbers of messages are all of a range, each once, and in order if the queue keeps it.
fn assert_are(queue: &dyn Queue, mut arrived: Vec<u32>, expected: Range<u32>) {
    if !queue.keeps_order() {
        arrived.sort_unstable();
    }
    assert_eq!(arrived, Vec::from_iter(expected));
}

/// Messages arrive once, and in order if the queue keeps it. Acknowledged messages do not come again, not even after the broker was killed.
async fn order_and_acknowledgement(queue: &mut dyn Queue) {
    queue.publish(0..1000).await;
    let mut source = queue.open();
    assert_are(queue, drain(&mut *source, 0..1000).await, 0..1000);
    assert_quiet(&mut *source).await;
    drop(source);
    let mut source = queue.open();
    assert_quiet(&mut *source).await;
    queue.broker().restart();
    queue.publish(1000..1010).await;
    assert_are(queue, drain(&mut *source, 1000..1010).await, 1000..1010);
}

/// Unacknowledged messages come again: to another source, and after the broker was killed.
async fn unacknowledged_comes_again(queue: &mut dyn Queue) {
    queue.publish(0..500).await;
    let mut source = queue.open();
    let first = receive(&mut *source, PATIENCE).await;
    assert!(!first.is_empty());
    if queue.keeps_order() {
        assert_eq!(numbers(&first), Vec::from_iter(0..first.len() as u32));
    }
    drop(source);
    queue.broker().restart();
    let mut source = queue.open();
    drain(&mut *source, 0..500).await;
}

/// Two sources share the messages, and one dies with some of them.
async fn two_share_and_one_dies(queue: &mut dyn Queue) {
    let (mut one, mut two) = (queue.open(), queue.open());
    // Both sources must be known to the broker before the first message.
    let _ = tokio::join!(receive(&mut *one, QUIET), receive(&mut *two, QUIET));
    queue.publish(0..2000).await;
    let (of_one, of_two) = tokio::join!(receive(&mut *one, PATIENCE), receive(&mut *two, PATIENCE));
    assert!(!of_one.is_empty() && !of_two.is_empty());
    let seen = numbers(&of_two);
    assert!(numbers(&of_one).iter().all(|number| !seen.contains(number)), "no message may go to both");
    two.acknowledge().await.unwrap();
    drop(one);
    let missing = (0..2000).filter(|number| !seen.contains(number)).collect();
    receive_all(&mut *two, missing).await;
}

/// Returns the first result that contains more than messages before `before`. A client that publishes while its broker restarts may
/// send a message twice.
async fn receive_beyond(source: &mut dyn Source, before: u32) -> Result<Vec<Message>, SourceError> {
    loop {
        match source.receive(BATCH).await {
            Ok(again) if numbers(&again).iter().all(|number| *number < before) => {}
            other => return other,
        }
    }
}

/// The source survives a broker that is down for a while, and one that hangs.
async fn outages_end(queue: &mut dyn Queue) {
    let mut source = queue.open();
    queue.publish(0..10).await;
    drain(&mut *source, 0..10).await;
    queue.broker().stop();
    let away = timeout(PATIENCE, receive_beyond(&mut *source, 10)).await.unwrap();
    assert!(matches!(away, Err(SourceError::Unavailable(_))), "{away:?}");
    queue.broker().restart();
    queue.publish(10..20).await;
    drain(&mut *source, 10..20).await;
    queue.broker().freeze();
    let silent = timeout(PATIENCE, receive_beyond(&mut *source, 20)).await.unwrap();
    queue.broker().thaw();
    assert!(matches!(silent, Err(SourceError::Unavailable(_))), "{silent:?}");
    queue.publish(20..30).await;
    drain(&mut *source, 20..30).await;
}

/// A dropped `receive` loses nothing, and its messages are not acknowledged together with others.
async fn dropped_receives_lose_nothing(queue: &mut dyn Queue) {
    let mut source = queue.open();
    let mut missing: BTreeSet<u32> = (0..300).collect();
    for start in (0..300).step_by(10) {
        for micros in [100, 200, 300, 2000] {
            if let Ok(Ok(messages)) = timeout(Duration::from_micros(micros), source.receive(BATCH)).await {
                remove_received(&mut missing, &messages);
                source.acknowledge().await.unwrap();
            }
        }
        queue.publish(start..start + 10).await;
    }
    receive_all(&mut *source, missing).await;
}

/// Consumers die with unacknowledged messages, calls are dropped, and the broker is killed, in random order: unacknowledged messages
/// come again.
async fn random_failures_lose_nothing(queue: &mut dyn Queue) {
    let chance = Entropy::new(7);
    let mut source = queue.open();
    let (mut published, mut restarts) = (0, 0);
    let mut missing = BTreeSet::new();
    while published < 1000 {
        match chance.below(12) {
            0..=4 => {
                queue.publish(published..published + 40).await;
                missing.extend(published..published + 40);
                published += 40;
            }
            5..=7 => {
                let messages = receive(&mut *source, Duration::from_millis(300)).await;
                // An acknowledgement whose response was lost may have taken effect.
                let _ = source.acknowledge().await;
                remove_received(&mut missing, &messages);
            }
            8 => {
                let asked = timeout(Duration::from_micros(chance.below(3000)), source.receive(BATCH)).await;
                // The messages of a completed call are lost with the consumer, and must come again.
                if matches!(asked, Ok(Ok(_))) {
                    source = queue.open();
                }
            }
            9 | 10 => {
                let _ = receive(&mut *source, Duration::from_millis(300)).await;
                source = queue.open();
            }
            _ if restarts < 2 => {
                queue.broker().restart();
                restarts += 1;
            }
            _ => {}
        }
    }
    drop(source);
    receive_all(&mut *queue.open(), missing).await;
}

/// Asserts that a problem that somebody must fix is refused, with a message that contains `expected`.
async fn assert_refused(url: &str, access: &BrokerAccess, expected: &str) {
    let refused = timeout(PATIENCE, open_url(url, access).receive(1)).await.unwrap();
    let Err(SourceError::Refused(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains(expected), "{reason}");
    assert!(!reason.contains("secret") && !reason.contains('\n'), "{reason}");
}

/// Messages that were sent ahead to the source no longer count as waiting.
async fn waiting_messages_are_counted(queue: &mut dyn Queue) {
    const SENT: u32 = 4000;
    const AHEAD_MAX: u64 = 2560;
    queue.publish(0..SENT).await;
    let mut source = queue.open();
    let is_counted = source.waiting().await.unwrap().is_some();
    assert_eq!(is_counted, !queue.counts_after_receiving(), "brokers have no connection yet");
    let first = receive(&mut *source, PATIENCE).await;
    let waiting = source.waiting().await.unwrap().unwrap();
    let left = u64::from(SENT) - first.len() as u64;
    assert!((left - AHEAD_MAX..=left).contains(&waiting), "{waiting} of {left}");
    source.acknowledge().await.unwrap();
    drain(&mut *source, first.len() as u32..SENT).await;
    assert_eq!(source.waiting().await.unwrap(), Some(0));
}

/// Runs the tests that all queues have in common, each with a fresh queue.
macro_rules! every_queue {
    ($fresh:expr) => {
        #[tokio::test]
        async fn messages_arrive_once_and_acknowledged_ones_never_again() {
            crate::brokers::order_and_acknowledgement(&mut $fresh).await;
        }

        #[tokio::test]
        async fn unacknowledged_messages_come_again() {
            crate::brokers::unacknowledged_comes_again(&mut $fresh).await;
        }

        #[tokio::test]
        async fn random_failures_lose_no_message() {
            crate::brokers::random_failures_lose_nothing(&mut $fresh).await;
        }

        #[tokio::test]
        async fn a_broker_that_is_down_or_hangs_is_retried() {
            crate::brokers::outages_end(&mut $fresh).await;
        }

        #[tokio::test]
        async fn a_dropped_receive_loses_nothing() {
            crate::brokers::dropped_receives_lose_nothing(&mut $fresh).await;
        }

        #[tokio::test]
        async fn s290_a_source_reports_waiting_messages() {
            crate::brokers::waiting_messages_are_counted(&mut $fresh).await;
        }
    };
}
use every_queue;

/// Like `every_queue`, for queues whose broker distributes messages among consumers.
macro_rules! every_shared_queue {
    ($fresh:expr) => {
        crate::brokers::every_queue!($fresh);

        #[tokio::test]
        async fn two_share_the_messages_and_one_dies() {
            crate::brokers::two_share_and_one_dies(&mut $fresh).await;
        }
    };
}
use every_shared_queue;
