//! A sink that notes what it hears, and feeds into it.

use async_trait::async_trait;
use events::{Dialect, Feed, FeedStatus, Hint, Message, Sink, SinkError, Source, Wanted};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Clock, Entropy, Timestamp};
use tokio::task::JoinSet;

#[derive(Debug, Default)]
pub(crate) struct Hearing {
    heard: Mutex<Vec<Hint<'static>>>,
    /// How often it says that it cannot.
    pub(crate) fails: AtomicUsize,
    pub(crate) losses: AtomicUsize,
}

#[async_trait]
impl Sink for Hearing {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let may_fail = |left: usize| left.checked_sub(1);
        if self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may_fail).is_ok() {
            return Err(SinkError("not now".to_owned()));
        }
        self.heard.lock().unwrap().extend(hints.iter().cloned().map(Hint::into_owned));
        Ok(())
    }

    async fn lost(&self, _bucket: Option<&str>) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }
}

impl Hearing {
    pub(crate) fn heard(&self) -> Vec<Hint<'static>> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.heard().iter().map(|hint| String::from_utf8(hint.key.to_vec()).unwrap()).collect()
    }

    /// Waits until so many hints were heard.
    pub(crate) async fn has(&self, count: usize) {
        eventually(&format!("{count} hints are heard"), || self.heard().len() >= count).await;
    }
}

pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came true that {what}");
}

/// A feed that runs until it is dropped.
pub(crate) struct Fed {
    pub(crate) hearing: Arc<Hearing>,
    pub(crate) status: FeedStatus,
    _running: JoinSet<()>,
}

impl Fed {
    pub(crate) fn start(source: Box<dyn Source>, dead_letters: &Path, wanted: Wanted) -> Self {
        Self::into(Arc::default(), source, dead_letters, wanted)
    }

    pub(crate) fn into(
        hearing: Arc<Hearing>,
        source: Box<dyn Source>,
        dead_letters: &Path,
        wanted: Wanted,
    ) -> Self {
        let feed = feed(dead_letters).wanting(wanted).into_sink(hearing.clone());
        let (status, mut running) = (feed.status(), JoinSet::new());
        running.spawn(feed.run(source));
        Self { hearing, status, _running: running }
    }
}

/// It is always five seconds after the time of all test events.
#[derive(Debug)]
struct Late;

impl Clock for Late {
    fn now(&self) -> Timestamp {
        super::webhook::event("a", 1).time.after(Duration::from_secs(5))
    }
}

pub(crate) fn feed(dead_letters: &Path) -> Feed {
    let (clock, entropy) = (Arc::new(Late), Arc::new(Entropy::new(1)));
    Feed::new("test", Dialect::Detected, dead_letters.to_owned(), clock, entropy)
}

/// An event of AWS's form.
pub(crate) fn message(key: &str, number: u64) -> String {
    let event = super::webhook::event(key, number);
    String::from_utf8(events::aws::message(&event, "all")).unwrap()
}

pub(crate) fn body(text: &str) -> Message {
    Message { body: text.to_owned().into(), attributes: Vec::new() }
}
