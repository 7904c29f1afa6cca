//! A feed: receives messages from a source, reads them, delivers their hints to sinks, and acknowledges them.
//!
//! Owns the trait [`Sink`], the loop that reads one source, the treatment of unreadable messages, and the status of all this.
//!
//! Refuses to sort the hints of a key or to drop repeated ones (sinks know what they have seen), and to receive more messages while a
//! sink has not taken the last ones.
//!
//! Invariants: a message is acknowledged only after every sink has taken its hints and, if it could not be read,
//! after it has become a dead letter or was counted as lost. A feed holds one batch at a time. Every pause is
//! bounded.

mod dead_letters;
mod status;

pub use status::{FeedCounts, FeedStatus};

use crate::{ChannelItem, Dialect, Hint, Message, Source, SourceError, Subscription};
use dead_letters::DeadLetterFile;
use status::Counters;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy};
use tokio::time::Instant;

/// Maximum number of messages in a batch.
const BATCH_MAX: usize = 512;
/// Upper bound of the first pause after a failure. It doubles with each further failure.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Upper bound of all pauses.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Interval at which a source is asked for its number of waiting messages.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// The time at which the waiting messages were last counted.
type LastCounted = Option<Instant>;

/// A consumer of the hints of a feed.
#[async_trait::async_trait]
pub trait Sink: Send + Sync + fmt::Debug {
    /// Takes hints in the order of their source. Returns when the information in them can no longer be lost.
    ///
    /// # Errors
    /// The batch is not acknowledged and is delivered again.
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError>;

    /// Reports that hints of one bucket, or of any bucket, were lost. Only listing the objects shows their current state. Returns when
    /// the report can no longer be lost.
    ///
    /// # Errors
    /// The loss is reported again, before later hints are delivered.
    async fn lost(&self, _bucket: Option<&str>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The reason why a sink did not take hints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// The filters that decide which hints of a source a feed delivers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted(Vec<Filter>);

/// A filter for the objects of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The bucket; `None` means any bucket.
    pub bucket: Option<String>,
    /// The prefix that keys must have.
    pub prefix: Vec<u8>,
}

impl Wanted {
    /// Accepts hints that pass at least one of the filters. Without filters all hints pass.
    pub fn new(filters: Vec<Filter>) -> Self {
        Self(filters)
    }

    /// Returns whether hints of a bucket, or of any bucket, may pass.
    fn may_match_in(&self, bucket: Option<&str>) -> bool {
        let passes = |name| self.0.iter().any(|filter| filter.is_for_bucket(name));
        self.0.is_empty() || bucket.is_none_or(passes)
    }

    fn matches(&self, hint: &Hint<'_>) -> bool {
        let passes =
            |filter: &Filter| filter.is_for_bucket(&hint.bucket) && hint.key.starts_with(&filter.prefix);
        self.0.is_empty() || self.0.iter().any(passes)
    }
}

impl Filter {
    fn is_for_bucket(&self, name: &str) -> bool {
        self.bucket.as_deref().is_none_or(|bucket| bucket == name)
    }
}

/// A feed: reads one source and delivers to its sinks.
#[derive(Debug)]
pub struct Feed {
    name: String,
    dialect: Dialect,
    wanted: Wanted,
    sinks: Vec<Arc<dyn Sink>>,
    dead_letters: DeadLetterFile,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    counters: Arc<Counters>,
}

impl Feed {
    /// Returns a feed without sinks. `name` appears in the log; unreadable messages go to the file `dead_letters`.
    pub fn new(
        name: &str,
        dialect: Dialect,
        dead_letters: PathBuf,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> Self {
        let counters = Arc::<Counters>::default();
        Self {
            name: name.to_owned(),
            dialect,
            wanted: Wanted::default(),
            sinks: Vec::new(),
            dead_letters: DeadLetterFile { path: dead_letters, counters: counters.clone() },
            clock,
            entropy,
            counters,
        }
    }

    /// Sets the filters: other hints are not delivered.
    pub fn wanting(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    /// Adds a sink.
    pub fn into_sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Returns a handle for reading the feed's status.
    pub fn status(&self) -> FeedStatus {
        FeedStatus(self.counters.clone())
    }

    /// Reads a source until the future is dropped. Messages that were not acknowledged by then are delivered again.
    pub async fn run(self, mut source: Box<dyn Source>) {
        let (mut failures, mut last_counted) = (Failures::default(), None);
        loop {
            let messages = match self.receive(&mut *source, &mut last_counted).await {
                Ok(messages) => messages,
                Err(error) => {
                    self.source_failed(&error, &mut failures).await;
                    continue;
                }
            };
            self.counters.set_connected(true);
            if source.take_lost() {
                self.report_loss(None).await;
            }
            self.process_and_count(&messages, &mut *source, &mut last_counted).await;
            match source.acknowledge().await {
                Ok(()) => failures = Failures::default(),
                Err(error) => self.source_failed(&error, &mut failures).await,
            }
        }
    }

    /// Receives the next messages. If messages were waiting at the last count, they are counted again while none arrives.
    async fn receive(
        &self,
        source: &mut dyn Source,
        last_counted: &mut LastCounted,
    ) -> Result<Vec<Message>, SourceError> {
        while self.counters.waiting().is_some_and(|waiting| waiting > 0) {
            match tokio::time::timeout(COUNT_INTERVAL, source.receive(BATCH_MAX)).await {
                Ok(received) => return received,
                Err(_) => self.count_waiting(source, last_counted).await,
            }
        }
        source.receive(BATCH_MAX).await
    }

    /// Processes messages and counts the waiting ones at intervals, during the processing and after it.
    async fn process_and_count(
        &self,
        messages: &[Message],
        source: &mut dyn Source,
        last_counted: &mut LastCounted,
    ) {
        let mut processing = std::pin::pin!(self.process(messages));
        loop {
            let due = last_counted.map_or_else(Instant::now, |last_counted| last_counted + COUNT_INTERVAL);
            tokio::select! {
                biased;
                () = &mut processing => {
                    if due <= Instant::now() {
                        self.count_waiting(source, last_counted).await;
                    }
                    return;
                }
                () = tokio::time::sleep_until(due) => self.count_waiting(source, last_counted).await,
            }
        }
    }

    /// Asks the source for its number of waiting messages, and records it and the time.
    async fn count_waiting(&self, source: &mut dyn Source, last_counted: &mut LastCounted) {
        let waiting = source.waiting().await;
        if let Err(error) = &waiting {
            tracing::debug!(feed = self.name, %error, "a source could not report its number of waiting messages");
        }
        self.counters.set_waiting(waiting.ok().flatten());
        *last_counted = Some(Instant::now());
    }

    /// Reads the channel of this process's own endpoint until the channel is gone.
    pub async fn follow(self, mut subscription: Subscription) {
        let mut received = Vec::with_capacity(BATCH_MAX);
        while let Some(first) = subscription.next().await {
            self.counters.set_connected(true);
            received.push(first);
            received.extend(std::iter::from_fn(|| subscription.next_ready()).take(BATCH_MAX - 1));
            self.forward(&received).await;
            received.clear();
        }
        self.counters.set_connected(false);
    }

    async fn forward(&self, received: &[ChannelItem]) {
        let mut hints = Vec::with_capacity(received.len());
        for item in received {
            match item {
                ChannelItem::Event(event) => hints.push(Hint::from(&**event)),
                ChannelItem::Lost(bucket) if self.wanted.may_match_in(bucket.as_deref()) => {
                    self.report_loss(bucket.as_deref()).await;
                }
                ChannelItem::Lost(_) => {}
            }
        }
        hints.retain(|hint| self.wanted.matches(hint));
        self.counters.add_messages(received.len());
        self.deliver(&hints).await;
    }

    /// Reports to every sink that events of a bucket, or of any bucket, were lost, repeating until each sink has taken the report.
    async fn report_loss(&self, bucket: Option<&str>) {
        tracing::warn!(
            feed = self.name,
            bucket,
            "events were lost; the receivers of this feed are told to list the objects of the bucket, or of all buckets, again"
        );
        for sink in &self.sinks {
            let mut failures = Failures::default();
            while let Err(error) = sink.lost(bucket).await {
                self.counters.add_repeated();
                let why = format!("a sink did not take the report of lost events: {error}");
                self.record_failure(&why, &mut failures).await;
            }
        }
    }

    /// Reads messages and delivers their hints. Unreadable messages become dead letters.
    async fn process(&self, messages: &[Message]) {
        self.counters.add_messages(messages.len());
        let mut hints = Vec::with_capacity(messages.len());
        let mut unreadable = Vec::new();
        for message in messages {
            let read = self.dialect.read(message, &mut |hint| {
                if self.wanted.matches(&hint) {
                    hints.push(hint);
                }
            });
            if let Err(error) = read {
                unreadable.push((message, error));
            }
        }
        self.deliver(&hints).await;
        for (message, error) in unreadable {
            tracing::warn!(feed = self.name, %error, "a message cannot be read and becomes a dead letter");
            self.dead_letters.append(&self.name, &error.to_string(), message, self.clock.now()).await;
        }
    }

    /// Delivers hints to every sink, repeating until each sink has taken them.
    async fn deliver(&self, hints: &[Hint<'_>]) {
        if hints.is_empty() {
            return;
        }
        for sink in &self.sinks {
            let mut failures = Failures::default();
            while let Err(error) = sink.take(hints).await {
                self.counters.add_repeated();
                self.record_failure(&format!("a sink did not take hints: {error}"), &mut failures).await;
            }
        }
        self.counters.add_hints(hints, self.clock.now());
    }

    async fn source_failed(&self, error: &SourceError, failures: &mut Failures) {
        self.counters.set_connected(false);
        self.counters.set_waiting(None);
        if matches!(error, SourceError::Refused(_)) {
            failures.mark_permanent();
        }
        self.record_failure(&error.to_string(), failures).await;
    }

    /// Records a failure and pauses.
    async fn record_failure(&self, why: &str, failures: &mut Failures) {
        self.counters.record_failure(why);
        match failures.0 {
            0 => tracing::warn!(
                feed = self.name,
                why,
                "a feed could not receive or deliver messages; it retries"
            ),
            _ => tracing::debug!(feed = self.name, why, "a feed still cannot receive or deliver messages"),
        }
        tokio::time::sleep(failures.next_pause(&self.entropy)).await;
    }
}

/// The number of consecutive failures.
#[derive(Debug, Default)]
struct Failures(u32);

impl Failures {
    /// Raises the count so that the next pauses have the maximum length, because the reason will not go away by itself.
    fn mark_permanent(&mut self) {
        self.0 = self.0.max(PAUSE_MAX.as_millis().ilog2());
    }

    /// Counts a failure and returns the pause after it: random, between half of an exponentially growing bound and the bound.
    fn next_pause(&mut self, entropy: &Entropy) -> Duration {
        let bound = PAUSE_FIRST.saturating_mul(1 << self.0.min(16)).min(PAUSE_MAX);
        self.0 = self.0.saturating_add(1);
        let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros / 2 + entropy.below(micros / 2 + 1))
    }
}
