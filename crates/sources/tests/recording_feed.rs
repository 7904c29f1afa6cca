//! A feed that records the keys of its hints.

use async_trait::async_trait;
use events::{
    Described, Dialect, EventKind, Feed, FeedStatus, Hint, ObjectEvent, Sequence, Sink, SinkError, Source,
    Wanted,
};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Entropy, ObjectKey, SystemClock, Timestamp};
use tokio::task::JoinSet;

#[derive(Debug, Default)]
pub(crate) struct RecordingSink(Mutex<Vec<String>>);

#[async_trait]
impl Sink for RecordingSink {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let keys = hints.iter().map(|hint| String::from_utf8(hint.key.to_vec()).unwrap());
        self.0.lock().unwrap().extend(keys);
        Ok(())
    }
}

impl RecordingSink {
    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until at least `count` hints were recorded.
    pub(crate) async fn wait_for(&self, count: usize) {
        eventually(&format!("{count} hints are recorded"), || self.keys().len() >= count).await;
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
        let sink = Arc::<RecordingSink>::default();
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(1)));
        let feed = Feed::new("test", Dialect::Detected, dead_letters.to_owned(), clock, entropy);
        let feed = feed.wanting(wanted).into_sink(sink.clone());
        let (status, mut running) = (feed.status(), JoinSet::new());
        running.spawn(feed.run(source));
        Self { sink, status, _running: running }
    }
}

/// Returns a message with one event in AWS's format.
pub(crate) fn message(key: &str, number: u64) -> String {
    let event = ObjectEvent {
        kind: EventKind::CreatedPut,
        time: Timestamp(1_790_000_000_000_000_000),
        sequence: Sequence(number),
        region: "us-east-1".to_owned(),
        bucket: "bucket".to_owned(),
        owner: "admin".to_owned(),
        key: ObjectKey::try_from(key).unwrap(),
        object: Described::default(),
        principal: "writer".to_owned(),
        source: None,
        request_id: String::new(),
    };
    String::from_utf8(events::aws::message(&event, "all")).unwrap()
}
