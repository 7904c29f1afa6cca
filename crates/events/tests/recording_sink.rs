//! A sink that records hints, and feeds that deliver to it.

use async_trait::async_trait;
use events::{Dialect, Feed, FeedStatus, Hint, Message, Sink, SinkError, Source, Wanted};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Clock, Entropy, Timestamp};
use tokio::task::JoinSet;

#[derive(Debug, Default)]
pub(crate) struct RecordingSink {
    hints: Mutex<Vec<Hint<'static>>>,
    /// The number of further calls that fail.
    pub(crate) fails: AtomicUsize,
    /// The buckets of reported losses; `None` stands for any bucket.
    pub(crate) losses: Mutex<Vec<Option<String>>>,
}

#[async_trait]
impl Sink for RecordingSink {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        self.fail_if_told()?;
        self.hints.lock().unwrap().extend(hints.iter().cloned().map(Hint::into_owned));
        Ok(())
    }

    async fn lost(&self, bucket: Option<&str>) -> Result<(), SinkError> {
        self.fail_if_told()?;
        self.losses.lock().unwrap().push(bucket.map(str::to_owned));
        Ok(())
    }
}

impl RecordingSink {
    fn fail_if_told(&self) -> Result<(), SinkError> {
        let may_fail = |left: usize| left.checked_sub(1);
        match self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may_fail) {
            Ok(_) => Err(SinkError("not now".to_owned())),
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn hints(&self) -> Vec<Hint<'static>> {
        self.hints.lock().unwrap().clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.hints().iter().map(|hint| String::from_utf8(hint.key.to_vec()).unwrap()).collect()
    }

    /// Waits until at least `count` hints were recorded.
    pub(crate) async fn wait_for(&self, count: usize) {
        eventually(&format!("{count} hints are recorded"), || self.hints().len() >= count).await;
    }
}

pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out while waiting until {what}");
}

/// A feed that runs until this is dropped.
pub(crate) struct RunningFeed {
    pub(crate) sink: Arc<RecordingSink>,
    pub(crate) status: FeedStatus,
    _running: JoinSet<()>,
}

impl RunningFeed {
    pub(crate) fn start(source: Box<dyn Source>, dead_letters: &Path, wanted: Wanted) -> Self {
        Self::start_with_sink(Arc::default(), source, dead_letters, wanted)
    }

    pub(crate) fn start_with_sink(
        sink: Arc<RecordingSink>,
        source: Box<dyn Source>,
        dead_letters: &Path,
        wanted: Wanted,
    ) -> Self {
        let feed = feed(dead_letters).wanting(wanted).into_sink(sink.clone());
        let (status, mut running) = (feed.status(), JoinSet::new());
        running.spawn(feed.run(source));
        Self { sink, status, _running: running }
    }
}

/// A clock that is always five seconds ahead of the time of all test events.
#[derive(Debug)]
struct LateClock;

impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        super::webhook::event("a", 1).time.after(Duration::from_secs(5))
    }
}

pub(crate) fn feed(dead_letters: &Path) -> Feed {
    let (clock, entropy) = (Arc::new(LateClock), Arc::new(Entropy::new(1)));
    Feed::new("test", Dialect::Detected, dead_letters.to_owned(), clock, entropy)
}

/// Returns a message with one event in AWS's format.
pub(crate) fn message(key: &str, number: u64) -> String {
    let event = super::webhook::event(key, number);
    String::from_utf8(events::aws::message(&event, "all")).unwrap()
}

pub(crate) fn body(text: &str) -> Message {
    Message { body: text.to_owned().into(), attributes: Vec::new() }
}
