//! Feeds: what is acknowledged, what is repeated, what nobody can read.

use super::recording_sink::{Fed, Hearing, body, eventually, feed, message};
use super::webhook::event;
use async_trait::async_trait;
use events::{Channel, Filter, Heard, Message, Source, SourceError, Wanted};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// A source that gives batches, then waits; what was not acknowledged is given again after a failure.
#[derive(Debug, Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    steps: VecDeque<Result<Vec<Message>, SourceError>>,
    given: Vec<Message>,
    acknowledged: Vec<Message>,
    acknowledgements_fail: usize,
    has_lost: bool,
    /// What it says waits, each time it is asked.
    waiting: VecDeque<Option<u64>>,
    asked: usize,
}

impl Scripted {
    fn new(steps: Vec<Result<Vec<Message>, SourceError>>) -> Self {
        Self(Arc::new(Mutex::new(Script { steps: steps.into(), ..Script::default() })))
    }

    fn acknowledged(&self) -> usize {
        self.0.lock().unwrap().acknowledged.len()
    }
}

#[async_trait]
impl Source for Scripted {
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
async fn s231_what_was_taken_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let unavailable = || Err(SourceError::Unavailable("away".to_owned()));
    let source =
        Scripted::new(vec![unavailable(), Ok(messages(&["a", "b"])), unavailable(), Ok(messages(&["c"]))]);
    let fed = Fed::start(Box::new(source.clone()), &dir.path().join("dead"), Wanted::default());
    eventually("all is acknowledged", || source.acknowledged() == 3).await;
    assert_eq!(fed.hearing.keys(), ["a", "b", "c"]);
    let counts = fed.status.counts();
    assert_eq!((counts.messages, counts.hints, counts.failures, counts.unreadable), (3, 3, 2, 0));
    assert_eq!((counts.last_error.as_deref(), counts.is_connected), (Some("away"), true));
    assert_eq!(counts.lag, std::time::Duration::from_secs(5));
}

/// A sink in trouble is asked until it takes the batch; meanwhile nothing is acknowledged and nothing more is received.
#[tokio::test]
async fn s231_what_was_not_taken_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let source = Scripted::new(vec![Ok(messages(&["a"])), Ok(messages(&["b"]))]);
    let hearing = Arc::new(Hearing::default());
    hearing.fails.store(usize::MAX, Ordering::Relaxed);
    let fed =
        Fed::into(hearing.clone(), Box::new(source.clone()), &dir.path().join("dead"), Wanted::default());
    eventually("it was tried again", || fed.status.counts().repeated > 1).await;
    assert_eq!((source.acknowledged(), source.0.lock().unwrap().steps.len()), (0, 1));
    assert!(fed.status.counts().last_error.unwrap().contains("not now"));
    hearing.fails.store(0, Ordering::Relaxed);
    eventually("all is acknowledged", || source.acknowledged() == 2).await;
    assert_eq!(hearing.keys(), ["a", "b"]);
}

/// While something waits it is counted, and no more when nothing does.
#[tokio::test(start_paused = true)]
async fn s290_what_waits_is_counted_while_something_does() {
    let dir = tempfile::tempdir().unwrap();
    let source = Scripted::new(vec![Ok(messages(&["a"])), Ok(messages(&["b"]))]);
    source.0.lock().unwrap().waiting = [Some(7), Some(3), Some(0)].into();
    let hearing = Arc::new(Hearing::default());
    hearing.fails.store(1, Ordering::Relaxed);
    let fed =
        Fed::into(hearing.clone(), Box::new(source.clone()), &dir.path().join("dead"), Wanted::default());
    eventually("it is counted while a sink is in trouble", || fed.status.counts().waiting == Some(7)).await;
    eventually("it is counted again", || fed.status.counts().waiting == Some(3)).await;
    eventually("until nothing is there", || fed.status.counts().waiting == Some(0)).await;
    assert_eq!(hearing.keys(), ["a", "b"]);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(source.0.lock().unwrap().asked, 3, "where nothing waits nobody asks");
}

#[tokio::test]
async fn what_could_not_be_acknowledged_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let source = Scripted::new(vec![Ok(messages(&["a"]))]);
    source.0.lock().unwrap().acknowledgements_fail = 1;
    let fed = Fed::start(Box::new(source.clone()), &dir.path().join("dead"), Wanted::default());
    eventually("it is acknowledged", || source.acknowledged() == 1).await;
    assert_eq!(fed.hearing.keys(), ["a", "a"]);
}

/// A message that nobody can read is kept for people, and holds up nothing.
#[tokio::test]
async fn s232_what_nobody_can_read_is_a_dead_letter() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join("dead");
    let bytes =
        Message { body: b"\xff\x00".as_slice().into(), attributes: vec![("a".to_owned(), "b".to_owned())] };
    let mut batch = messages(&["a"]);
    batch.extend([body("no \"event\""), bytes]);
    batch.extend(messages(&["b"]));
    let source = Scripted::new(vec![Ok(batch)]);
    let fed = Fed::start(Box::new(source.clone()), &dead, Wanted::default());
    eventually("all is acknowledged", || source.acknowledged() == 4).await;
    assert_eq!(
        (fed.hearing.keys(), fed.status.counts().unreadable),
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
async fn dead_letters_that_cannot_be_written_hold_up_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = Scripted::new(vec![Ok(vec![body("nonsense")]), Ok(messages(&["a"]))]);
    let fed = Fed::start(Box::new(source.clone()), &dir.path().join("none/dead"), Wanted::default());
    eventually("all is acknowledged", || source.acknowledged() == 2).await;
    assert_eq!((fed.status.counts().lost, fed.status.counts().unreadable), (1, 0));
}

#[tokio::test]
async fn only_what_is_wanted_is_handed_on() {
    let dir = tempfile::tempdir().unwrap();
    let filter = |bucket: Option<&str>, prefix: &str| Filter {
        bucket: bucket.map(str::to_owned),
        prefix: prefix.as_bytes().to_vec(),
    };
    let wanted =
        Wanted::new(vec![filter(Some("bucket"), "a/"), filter(None, "b/"), filter(Some("other"), "")]);
    let source = Scripted::new(vec![Ok(messages(&["a/1", "a2", "b/3", "c/4"]))]);
    let fed = Fed::start(Box::new(source.clone()), &dir.path().join("dead"), wanted);
    eventually("all is acknowledged", || source.acknowledged() == 4).await;
    assert_eq!(fed.hearing.keys(), ["a/1", "b/3"]);
}

#[tokio::test]
async fn s231_who_lost_messages_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let source = Scripted::new(vec![Ok(messages(&["a"]))]);
    source.0.lock().unwrap().has_lost = true;
    let fed = Fed::start(Box::new(source), &dir.path().join("dead"), Wanted::default());
    fed.hearing.has(1).await;
    assert_eq!(fed.hearing.losses.load(Ordering::Relaxed), 1);
}

/// The endpoint of this process tells without messages; who is slow hears that there was more.
#[tokio::test]
async fn s231_the_process_hears_its_own_endpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (channel, hearing) = (Channel::default(), Arc::new(Hearing::default()));
    let feed = feed(&dir.path().join("dead")).into_sink(hearing.clone());
    let subscription = channel.subscribe();
    for number in 0..10_000 {
        channel.tell(Heard::Event(event("a", number)));
    }
    let mut running = JoinSet::new();
    running.spawn(feed.follow(subscription));
    eventually("the last was heard", || {
        hearing.heard().last().is_some_and(|hint| hint.order == Some(events::Order(9_999)))
    })
    .await;
    assert!(hearing.heard().len() < 10_000);
    assert_eq!(hearing.losses.load(Ordering::Relaxed), 1);
    drop(channel);
    running.join_next().await.unwrap().unwrap();
}
