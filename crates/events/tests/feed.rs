//! Feeds: acknowledgements, repetitions, dead letters, filters.

use super::recording_sink::{RecordingSink, RunningFeed, body, eventually, feed, message};
use super::webhook::event;
use async_trait::async_trait;
use events::{Channel, ChannelItem, Filter, Message, Source, SourceError, Wanted};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// A source that returns scripted batches, then waits. Messages whose acknowledgement failed are returned again.
#[derive(Debug, Clone, Default)]
struct ScriptedSource(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    steps: VecDeque<Result<Vec<Message>, SourceError>>,
    given: Vec<Message>,
    acknowledged: Vec<Message>,
    acknowledgements_fail: usize,
    has_lost: bool,
    /// The answers to `waiting`, in order.
    waiting: VecDeque<Option<u64>>,
    asked: usize,
}

impl ScriptedSource {
    fn new(steps: Vec<Result<Vec<Message>, SourceError>>) -> Self {
        Self(Arc::new(Mutex::new(Script { steps: steps.into(), ..Script::default() })))
    }

    fn acknowledged(&self) -> usize {
        self.0.lock().unwrap().acknowledged.len()
    }
}

#[async_trait]
impl Source for ScriptedSource {
    async fn receive(&mut self, _max: usize) -> Result<Vec<Message>, SourceError> {
        let step = self.0.lock().unwrap().steps.pop_front();
        let Some(step) = step else { std::future::pending().await };
        if let Ok(messages) = &step {
            self.0.lock().unwrap().given.extend(messages.clone());
        }
        step
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let mut script = self.0.lock().unwrap();
        let given = std::mem::take(&mut script.given);
        if script.acknowledgements_fail > 0 {
            script.acknowledgements_fail -= 1;
            script.steps.push_front(Ok(given));
            return Err(SourceError::Unavailable("gone".to_owned()));
        }
        script.acknowledged.extend(given);
        Ok(())
    }

    fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap().has_lost)
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let mut script = self.0.lock().unwrap();
        script.asked += 1;
        Ok(script.waiting.pop_front().flatten())
    }
}

fn messages(keys: &[&str]) -> Vec<Message> {
    keys.iter().map(|key| body(&message(key, 1))).collect()
}

#[tokio::test]
async fn s231_messages_are_acknowledged_after_sinks_took_them() {
    let dir = tempfile::tempdir().unwrap();
    let unavailable = || Err(SourceError::Unavailable("away".to_owned()));
    let source = ScriptedSource::new(vec![
        unavailable(),
        Ok(messages(&["a", "b"])),
        unavailable(),
        Ok(messages(&["c"])),
    ]);
    let running = RunningFeed::start(Box::new(source.clone()), &dir.path().join("dead"), Wanted::default());
    eventually("all is acknowledged", || source.acknowledged() == 3).await;
    assert_eq!(running.sink.keys(), ["a", "b", "c"]);
    let counts = running.status.counts();
    assert_eq!((counts.messages, counts.hints, counts.failures, counts.unreadable), (3, 3, 2, 0));
    assert_eq!((counts.last_error.as_deref(), counts.is_connected), (Some("away"), true));
    assert_eq!(counts.lag, std::time::Duration::from_secs(5));
}

/// A batch is given to a failing sink until the sink takes it. Meanwhile nothing is acknowledged and nothing more is received.
#[tokio::test]
async fn s231_a_batch_that_no_sink_took_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let source = ScriptedSource::new(vec![Ok(messages(&["a"])), Ok(messages(&["b"]))]);
    let sink = Arc::new(RecordingSink::default());
    sink.fails.store(usize::MAX, Ordering::Relaxed);
    let running = RunningFeed::start_with_sink(
        sink.clone(),
        Box::new(source.clone()),
        &dir.path().join("dead"),
        Wanted::default(),
    );
    eventually("the batch was delivered again", || running.status.counts().repeated > 1).await;
    assert_eq!((source.acknowledged(), source.0.lock().unwrap().steps.len()), (0, 1));
    assert!(running.status.counts().last_error.unwrap().contains("not now"));
    sink.fails.store(0, Ordering::Relaxed);
    eventually("all is acknowledged", || source.acknowledged() == 2).await;
    assert_eq!(sink.keys(), ["a", "b"]);
}

/// Waiting messages are counted while there are some, and no longer when there are none.
#[tokio::test(start_paused = true)]
async fn s290_waiting_messages_are_counted_while_there_are_some() {
    let dir = tempfile::tempdir().unwrap();
    let source = ScriptedSource::new(vec![Ok(messages(&["a"])), Ok(messages(&["b"]))]);
    source.0.lock().unwrap().waiting = [Some(7), Some(3), Some(0)].into();
    let sink = Arc::new(RecordingSink::default());
    sink.fails.store(1, Ordering::Relaxed);
    let running = RunningFeed::start_with_sink(
        sink.clone(),
        Box::new(source.clone()),
        &dir.path().join("dead"),
        Wanted::default(),
    );
    eventually("messages are counted while a sink fails", || running.status.counts().waiting == Some(7))
        .await;
    eventually("messages are counted again", || running.status.counts().waiting == Some(3)).await;
    eventually("no message is left", || running.status.counts().waiting == Some(0)).await;
    assert_eq!(sink.keys(), ["a", "b"]);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(source.0.lock().unwrap().asked, 3, "without waiting messages the source is not asked");
}

#[tokio::test]
async fn messages_whose_acknowledgement_failed_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let source = ScriptedSource::new(vec![Ok(messages(&["a"]))]);
    source.0.lock().unwrap().acknowledgements_fail = 1;
    let running = RunningFeed::start(Box::new(source.clone()), &dir.path().join("dead"), Wanted::default());
    eventually("the message is acknowledged", || source.acknowledged() == 1).await;
    assert_eq!(running.sink.keys(), ["a", "a"]);
}

/// An unreadable message becomes a dead letter and delays nothing.
#[tokio::test]
async fn s232_an_unreadable_message_becomes_a_dead_letter() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join("dead");
    let bytes =
        Message { body: b"\xff\x00".as_slice().into(), attributes: vec![("a".to_owned(), "b".to_owned())] };
    let mut batch = messages(&["a"]);
    batch.extend([body("no \"event\""), bytes]);
    batch.extend(messages(&["b"]));
    let source = ScriptedSource::new(vec![Ok(batch)]);
    let running = RunningFeed::start(Box::new(source.clone()), &dead, Wanted::default());
    eventually("all is acknowledged", || source.acknowledged() == 4).await;
    assert_eq!(
        (running.sink.keys(), running.status.counts().unreadable),
        (vec!["a".to_owned(), "b".to_owned()], 2)
    );
    let text = std::fs::read_to_string(&dead).unwrap();
    let letters: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&letters[0]["text"], &letters[0]["source"]), (&"no \"event\"".into(), &"test".into()));
    assert!(letters[0]["reason"].as_str().unwrap().contains("JSON"));
    assert_eq!(letters[0]["time"], "2026-09-21T14:13:25.000Z");
    assert_eq!((&letters[1]["base64"], &letters[1]["attributes"][0][1]), (&"/wA=".into(), &"b".into()));
    assert_eq!(std::fs::metadata(&dead).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn dead_letters_that_cannot_be_written_delay_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = ScriptedSource::new(vec![Ok(vec![body("nonsense")]), Ok(messages(&["a"]))]);
    let running =
        RunningFeed::start(Box::new(source.clone()), &dir.path().join("none/dead"), Wanted::default());
    eventually("all is acknowledged", || source.acknowledged() == 2).await;
    assert_eq!((running.status.counts().lost, running.status.counts().unreadable), (1, 0));
}

#[tokio::test]
async fn only_hints_that_pass_the_filters_are_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let filter = |bucket: Option<&str>, prefix: &str| Filter {
        bucket: bucket.map(str::to_owned),
        prefix: prefix.as_bytes().to_vec(),
    };
    let wanted =
        Wanted::new(vec![filter(Some("bucket"), "a/"), filter(None, "b/"), filter(Some("other"), "")]);
    let source = ScriptedSource::new(vec![Ok(messages(&["a/1", "a2", "b/3", "c/4"]))]);
    let running = RunningFeed::start(Box::new(source.clone()), &dir.path().join("dead"), wanted);
    eventually("all is acknowledged", || source.acknowledged() == 4).await;
    assert_eq!(running.sink.keys(), ["a/1", "b/3"]);
}

#[tokio::test]
async fn s231_a_source_that_lost_messages_reports_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = ScriptedSource::new(vec![Ok(messages(&["a"]))]);
    source.0.lock().unwrap().has_lost = true;
    let running = RunningFeed::start(Box::new(source), &dir.path().join("dead"), Wanted::default());
    running.sink.wait_for(1).await;
    assert_eq!(*running.sink.losses.lock().unwrap(), [None]);
}

/// A handler whose log could not be written took the report of lost events, which a kill then forgot: the messages after it had been
/// acknowledged.
#[tokio::test(start_paused = true)]
async fn s231_a_loss_is_reported_until_the_sink_has_taken_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = ScriptedSource::new(vec![Ok(messages(&["a"]))]);
    source.0.lock().unwrap().has_lost = true;
    let sink = Arc::new(RecordingSink::default());
    sink.fails.store(2, Ordering::Relaxed);
    let dead_letters = dir.path().join("dead");
    let running =
        RunningFeed::start_with_sink(sink, Box::new(source.clone()), &dead_letters, Wanted::default());
    eventually("all is acknowledged", || source.acknowledged() == 1).await;
    assert_eq!(*running.sink.losses.lock().unwrap(), [None]);
    assert_eq!((running.sink.keys(), running.status.counts().repeated), (vec!["a".to_owned()], 2));
}

/// Events of this process's own endpoint arrive without messages. If the feed is slow, it learns that events were lost.
#[tokio::test]
async fn s231_a_feed_reads_the_endpoint_of_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let (channel, sink) = (Channel::default(), Arc::new(RecordingSink::default()));
    let feed = feed(&dir.path().join("dead")).into_sink(sink.clone());
    let subscription = channel.subscribe();
    for number in 0..10_000 {
        channel.publish(ChannelItem::Event(event("a", number)));
    }
    let mut running = JoinSet::new();
    running.spawn(feed.follow(subscription));
    eventually("the last event was recorded", || {
        sink.hints().last().is_some_and(|hint| hint.order == Some(events::Order(9_999)))
    })
    .await;
    assert!(sink.hints().len() < 10_000);
    assert_eq!(*sink.losses.lock().unwrap(), [Some("bucket".to_owned())]);
    drop(channel);
    running.join_next().await.unwrap().unwrap();
}

/// Lost events of one bucket concern only the feeds that want that bucket: the others list nothing again.
#[tokio::test]
async fn s231_a_loss_in_another_bucket_is_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (channel, sink) = (Channel::default(), Arc::new(RecordingSink::default()));
    let wanted = Wanted::new(vec![Filter { bucket: Some("bucket".to_owned()), prefix: b"a/".to_vec() }]);
    let feed = feed(&dir.path().join("dead")).wanting(wanted).into_sink(sink.clone());
    let subscription = channel.subscribe();
    channel.publish(ChannelItem::Lost(Some("other".to_owned())));
    channel.publish(ChannelItem::Lost(Some("bucket".to_owned())));
    channel.publish(ChannelItem::Event(event("a/x", 1)));
    channel.publish(ChannelItem::Event(event("b/x", 1)));
    drop(channel);
    feed.follow(subscription).await;
    assert_eq!(*sink.losses.lock().unwrap(), [Some("bucket".to_owned())]);
    assert_eq!(sink.keys(), ["a/x"]);
}
