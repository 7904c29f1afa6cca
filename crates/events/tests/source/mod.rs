//! What every source over a broker does, on the real broker.

mod amqp;
mod kafka;
mod minio;
mod nats;
mod redis;
mod tls;

use events::{BrokerAccess, Message, Source, SourceError};
use servers::Broker;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use store::Entropy;
use tokio::time::{Instant, timeout};

/// A queue of some broker, which the test fills.
#[async_trait::async_trait]
trait Queue: Send {
    /// Where it is.
    fn broker(&mut self) -> &mut Broker;

    /// The URL of its source.
    fn url(&self) -> String;

    /// What it needs besides.
    fn access(&self) -> BrokerAccess {
        BrokerAccess::default()
    }

    /// Sends a message for each number.
    async fn publish(&mut self, numbers: Range<u32>);
}

/// Longer than any broker or source takes a consumer that is gone for one that is slow.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long nothing comes until nothing is there.
const QUIET: Duration = Duration::from_secs(3);

const BATCH: usize = 256;

fn open(queue: &dyn Queue) -> Box<dyn Source> {
    open_url(&queue.url(), &queue.access())
}

fn open_url(url: &str, access: &BrokerAccess) -> Box<dyn Source> {
    events::open_broker(url, access).unwrap()
}

/// What comes within the time; tries again as a feed does.
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

/// Receives and acknowledges until all of these were there.
async fn drain(source: &mut dyn Source, wanted: Range<u32>) -> Vec<u32> {
    receive_all(source, wanted.collect()).await
}

async fn receive_all(source: &mut dyn Source, mut missing: BTreeSet<u32>) -> Vec<u32> {
    let mut came = Vec::new();
    while !missing.is_empty() {
        let messages = receive(source, PATIENCE).await;
        assert!(!messages.is_empty(), "{} never came, as {:?}", missing.len(), missing.first());
        strike(&mut missing, &messages);
        came.extend(numbers(&messages));
        // That they come again is no failure.
        let _ = source.acknowledge().await;
    }
    came
}

fn strike(missing: &mut BTreeSet<u32>, messages: &[Message]) {
    for number in numbers(messages) {
        missing.remove(&number);
    }
}

async fn assert_quiet(source: &mut dyn Source) {
    let messages = receive(source, QUIET).await;
    assert!(messages.is_empty(), "came again: {:?}", numbers(&messages));
}

/// In order, each once, and what was acknowledged does not come again, not even from a broker that was killed.
async fn order_and_acknowledgement(queue: &mut dyn Queue) {
    queue.publish(0..1000).await;
    let mut source = open(queue);
    assert_eq!(drain(&mut *source, 0..1000).await, Vec::from_iter(0..1000));
    assert_quiet(&mut *source).await;
    drop(source);
    let mut source = open(queue);
    assert_quiet(&mut *source).await;
    queue.broker().restart();
    queue.publish(1000..1010).await;
    assert_eq!(drain(&mut *source, 1000..1010).await, Vec::from_iter(1000..1010));
}

/// What was received and not acknowledged comes again: to somebody else, and after the broker was killed.
async fn unacknowledged_comes_again(queue: &mut dyn Queue) {
    queue.publish(0..500).await;
    let mut source = open(queue);
    let first = receive(&mut *source, PATIENCE).await;
    assert_eq!(numbers(&first), Vec::from_iter(0..first.len() as u32));
    drop(source);
    queue.broker().restart();
    let mut source = open(queue);
    drain(&mut *source, 0..500).await;
}

/// Two share the messages; one dies with some of them.
async fn two_share_and_one_dies(queue: &mut dyn Queue) {
    let (mut one, mut two) = (open(queue), open(queue));
    // Both are known before there is anything.
    let _ = tokio::join!(receive(&mut *one, QUIET), receive(&mut *two, QUIET));
    queue.publish(0..2000).await;
    let (of_one, of_two) = tokio::join!(receive(&mut *one, PATIENCE), receive(&mut *two, PATIENCE));
    assert!(!of_one.is_empty() && !of_two.is_empty());
    let seen = numbers(&of_two);
    assert!(numbers(&of_one).iter().all(|number| !seen.contains(number)), "both have the same");
    two.acknowledge().await.unwrap();
    drop(one);
    let missing = (0..2000).filter(|number| !seen.contains(number)).collect();
    receive_all(&mut *two, missing).await;
}

/// The first answer that is not of messages before this one. A client that publishes while its broker restarts may send a
/// message twice.
async fn receive_no_more(source: &mut dyn Source, before: u32) -> Result<Vec<Message>, SourceError> {
    loop {
        match source.receive(BATCH).await {
            Ok(again) if numbers(&again).iter().all(|number| *number < before) => {}
            other => return other,
        }
    }
}

/// A broker that is away for a while, and one that does not answer.
async fn outages_end(queue: &mut dyn Queue) {
    let mut source = open(queue);
    queue.publish(0..10).await;
    drain(&mut *source, 0..10).await;
    queue.broker().stop();
    let away = timeout(PATIENCE, receive_no_more(&mut *source, 10)).await.unwrap();
    assert!(matches!(away, Err(SourceError::Unavailable(_))), "{away:?}");
    queue.broker().restart();
    queue.publish(10..20).await;
    drain(&mut *source, 10..20).await;
    queue.broker().freeze();
    let silent = timeout(PATIENCE, receive_no_more(&mut *source, 20)).await.unwrap();
    queue.broker().thaw();
    assert!(matches!(silent, Err(SourceError::Unavailable(_))), "{silent:?}");
    queue.publish(20..30).await;
    drain(&mut *source, 20..30).await;
}

/// A question that is dropped loses nothing, and what it brought is not acknowledged with others.
async fn dropped_questions_lose_nothing(queue: &mut dyn Queue) {
    let mut source = open(queue);
    let mut missing: BTreeSet<u32> = (0..300).collect();
    for start in (0..300).step_by(10) {
        for micros in [100, 200, 300, 2000] {
            if let Ok(Ok(messages)) = timeout(Duration::from_micros(micros), source.receive(BATCH)).await {
                strike(&mut missing, &messages);
                source.acknowledge().await.unwrap();
            }
        }
        queue.publish(start..start + 10).await;
    }
    receive_all(&mut *source, missing).await;
}

/// Consumers that die with what they have, questions that are dropped, and a broker that is killed, at any time: what was not
/// acknowledged comes again.
async fn whatever_dies_nothing_is_missed(queue: &mut dyn Queue) {
    let chance = Entropy::new(7);
    let mut source = open(queue);
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
                // An acknowledgement whose answer was lost may have been made.
                let _ = source.acknowledge().await;
                strike(&mut missing, &messages);
            }
            8 => {
                let asked = timeout(Duration::from_micros(chance.below(3000)), source.receive(BATCH)).await;
                // What it brought dies with the consumer.
                if matches!(asked, Ok(Ok(_))) {
                    source = open(queue);
                }
            }
            9 | 10 => {
                let _ = receive(&mut *source, Duration::from_millis(300)).await;
                source = open(queue);
            }
            _ if restarts < 2 => {
                queue.broker().restart();
                restarts += 1;
            }
            _ => {}
        }
    }
    drop(source);
    receive_all(&mut *open(queue), missing).await;
}

/// What somebody must put right is refused, in words that say what.
async fn assert_refused(url: &str, access: &BrokerAccess, said: &str) {
    let refused = timeout(PATIENCE, open_url(url, access).receive(1)).await.unwrap();
    let Err(SourceError::Refused(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains(said), "{reason}");
    assert!(!reason.contains("secret") && !reason.contains('\n'), "{reason}");
}

/// What was sent ahead to the source waits for nobody any more.
async fn what_waits_is_counted(queue: &mut dyn Queue) {
    const SENT: u32 = 4000;
    const AHEAD_MAX: u64 = 2560;
    queue.publish(0..SENT).await;
    let mut source = open(queue);
    assert_eq!(source.waiting().await.unwrap(), None, "nobody has asked yet");
    let first = receive(&mut *source, PATIENCE).await;
    let waiting = source.waiting().await.unwrap().unwrap();
    let left = u64::from(SENT) - first.len() as u64;
    assert!((left - AHEAD_MAX..=left).contains(&waiting), "{waiting} of {left}");
    source.acknowledge().await.unwrap();
    drain(&mut *source, first.len() as u32..SENT).await;
    assert_eq!(source.waiting().await.unwrap(), Some(0));
}

/// Runs what every queue does on fresh ones.
macro_rules! every_queue {
    ($fresh:expr) => {
        #[tokio::test]
        async fn messages_come_in_order_and_once_acknowledged_never_again() {
            crate::source::order_and_acknowledgement(&mut $fresh).await;
        }

        #[tokio::test]
        async fn messages_that_were_not_acknowledged_come_again() {
            crate::source::unacknowledged_comes_again(&mut $fresh).await;
        }

        #[tokio::test]
        async fn whatever_dies_at_random_nothing_is_missed() {
            crate::source::whatever_dies_nothing_is_missed(&mut $fresh).await;
        }

        #[tokio::test]
        async fn a_broker_that_is_away_or_silent_is_waited_for() {
            crate::source::outages_end(&mut $fresh).await;
        }

        #[tokio::test]
        async fn a_question_that_is_dropped_loses_nothing() {
            crate::source::dropped_questions_lose_nothing(&mut $fresh).await;
        }

        #[tokio::test]
        async fn s290_a_source_says_how_much_waits() {
            crate::source::what_waits_is_counted(&mut $fresh).await;
        }
    };
}
use every_queue;

/// And on those whose broker shares the messages out.
macro_rules! every_shared_queue {
    ($fresh:expr) => {
        crate::source::every_queue!($fresh);

        #[tokio::test]
        async fn two_share_the_messages_and_one_dies() {
            crate::source::two_share_and_one_dies(&mut $fresh).await;
        }
    };
}
use every_shared_queue;
