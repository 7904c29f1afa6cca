//! From a source to whoever wants to know: receive, read, hand on, acknowledge.
//!
//! Owns the word [`Sink`], the loop of one source, what happens to messages that nobody can read, and what is told of all that.
//!
//! Refuses: to put the hints of a key in order, or to leave out one that came before (the sinks know what they have heard); to
//! receive more while a sink does not take what is there.
//!
//! Invariants: a message is acknowledged only when every sink has taken its hints, or when it is among the dead letters; a feed
//! holds one batch; a pause is bounded.

mod dead_letters;
mod status;

pub use status::{FeedCounts, FeedStatus};

use crate::{Dialect, Heard, Hint, Message, Source, SourceError, Subscription};
use dead_letters::DeadLetters;
use status::Counters;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy};
use tokio::time::Instant;

/// Messages of a batch.
const BATCH_MAX: usize = 512;
/// The bound of the first pause after a failure; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The bound of every pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often a source is asked how much waits there.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// When it was last asked.
type Counted = Option<Instant>;

/// Who takes hints.
#[async_trait::async_trait]
pub trait Sink: Send + Sync + fmt::Debug {
    /// Takes hints, in the order of their source; returns when what they say will not be lost.
    ///
    /// # Errors
    /// The batch is not acknowledged, and comes again.
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError>;

    /// Hints were lost, of one bucket or of any: only a look at all of it says what is there.
    async fn lost(&self, _bucket: Option<&str>) {}
}

/// Why hints were not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// What is wanted of what a source tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted(Vec<Filter>);

/// Objects of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Which; `None` is any.
    pub bucket: Option<String>,
    /// Whose keys begin so.
    pub prefix: Vec<u8>,
}

impl Wanted {
    /// What one of the filters lets pass; with none of them, everything.
    pub fn new(filters: Vec<Filter>) -> Self {
        Self(filters)
    }

    fn has(&self, hint: &Hint<'_>) -> bool {
        let passes = |filter: &Filter| {
            filter.bucket.as_deref().is_none_or(|bucket| hint.bucket == bucket)
                && hint.key.starts_with(&filter.prefix)
        };
        self.0.is_empty() || self.0.iter().any(passes)
    }
}

/// What a feed is made of.
#[derive(Debug)]
pub struct Feed {
    name: String,
    dialect: Dialect,
    wanted: Wanted,
    sinks: Vec<Arc<dyn Sink>>,
    dead: DeadLetters,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    counters: Arc<Counters>,
}

impl Feed {
    /// A feed that is called so in the log; what cannot be read goes to the file `dead_letters`.
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
            dead: DeadLetters { path: dead_letters, counters: counters.clone() },
            clock,
            entropy,
            counters,
        }
    }

    /// Hands on what is wanted, and nothing else.
    pub fn wanting(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    /// Hands on to this sink, too.
    pub fn into_sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Where to ask how it goes.
    pub fn status(&self) -> FeedStatus {
        FeedStatus(self.counters.clone())
    }

    /// Feeds from a source, forever: it ends when it is dropped, and what was not acknowledged then comes again.
    pub async fn run(self, mut source: Box<dyn Source>) {
        let (mut failures, mut counted) = (Failures::default(), None);
        loop {
            let messages = match self.receive(&mut *source, &mut counted).await {
                Ok(messages) => messages,
                Err(error) => {
                    self.source_failed(&error, &mut failures).await;
                    continue;
                }
            };
            self.counters.is_connected(true);
            if source.take_lost() {
                self.tell_lost().await;
            }
            self.process_and_count(&messages, &mut *source, &mut counted).await;
            match source.acknowledge().await {
                Ok(()) => failures = Failures::default(),
                Err(error) => self.source_failed(&error, &mut failures).await,
            }
        }
    }

    /// What comes next. Where something waited when it was last counted, it is counted again while nothing comes.
    async fn receive(
        &self,
        source: &mut dyn Source,
        counted: &mut Counted,
    ) -> Result<Vec<Message>, SourceError> {
        while self.counters.waiting().is_some_and(|waiting| waiting > 0) {
            match tokio::time::timeout(COUNT_EVERY, source.receive(BATCH_MAX)).await {
                Ok(received) => return received,
                Err(_) => self.count(source, counted).await,
            }
        }
        source.receive(BATCH_MAX).await
    }

    /// Counts now and then what waits, while messages are processed and after.
    async fn process_and_count(&self, messages: &[Message], source: &mut dyn Source, counted: &mut Counted) {
        let mut processing = std::pin::pin!(self.process(messages));
        loop {
            let due = counted.map_or_else(Instant::now, |counted| counted + COUNT_EVERY);
            tokio::select! {
                biased;
                () = &mut processing => {
                    if due <= Instant::now() {
                        self.count(source, counted).await;
                    }
                    return;
                }
                () = tokio::time::sleep_until(due) => self.count(source, counted).await,
            }
        }
    }

    /// Asks the source how much waits there.
    async fn count(&self, source: &mut dyn Source, counted: &mut Counted) {
        let waiting = source.waiting().await;
        if let Err(error) = &waiting {
            tracing::debug!(feed = self.name, %error, "a source does not say how much waits");
        }
        self.counters.set_waiting(waiting.ok().flatten());
        *counted = Some(Instant::now());
    }

    /// Feeds from this process's own endpoint, until the channel is gone.
    pub async fn follow(self, mut subscription: Subscription) {
        let mut heard = Vec::with_capacity(BATCH_MAX);
        while let Some(first) = subscription.next().await {
            self.counters.is_connected(true);
            heard.push(first);
            heard.extend(std::iter::from_fn(|| subscription.next_ready()).take(BATCH_MAX - 1));
            self.pass_on(&heard).await;
            heard.clear();
        }
        self.counters.is_connected(false);
    }

    async fn pass_on(&self, heard: &[Heard]) {
        if heard.iter().any(|heard| matches!(heard, Heard::Lost(_))) {
            self.tell_lost().await;
        }
        let events = heard.iter().filter_map(|heard| match heard {
            Heard::Event(event) => Some(Hint::from(&**event)),
            Heard::Lost(_) => None,
        });
        let hints: Vec<Hint<'_>> = events.filter(|hint| self.wanted.has(hint)).collect();
        self.counters.messages(heard.len());
        self.give(&hints).await;
    }

    async fn tell_lost(&self) {
        tracing::warn!(feed = self.name, "events were lost; only a look at all objects says what is there");
        for sink in &self.sinks {
            sink.lost(None).await;
        }
    }

    /// Reads messages and sees to it that what they say is not lost.
    async fn process(&self, messages: &[Message]) {
        self.counters.messages(messages.len());
        let mut hints = Vec::with_capacity(messages.len());
        let mut unreadable = Vec::new();
        for message in messages {
            let read = self.dialect.read(message, &mut |hint| {
                if self.wanted.has(&hint) {
                    hints.push(hint);
                }
            });
            if let Err(error) = read {
                unreadable.push((message, error));
            }
        }
        self.give(&hints).await;
        for (message, error) in unreadable {
            tracing::warn!(feed = self.name, %error, "a message cannot be read; it is a dead letter");
            self.dead.put(&self.name, &error.to_string(), message, self.clock.now()).await;
        }
    }

    /// Hands hints to every sink until each has taken them.
    async fn give(&self, hints: &[Hint<'_>]) {
        if hints.is_empty() {
            return;
        }
        for sink in &self.sinks {
            let mut failures = Failures::default();
            while let Err(error) = sink.take(hints).await {
                self.counters.repeated();
                self.failed(&format!("nobody takes what is heard: {error}"), &mut failures).await;
            }
        }
        self.counters.took(hints, self.clock.now());
    }

    async fn source_failed(&self, error: &SourceError, failures: &mut Failures) {
        self.counters.is_connected(false);
        self.counters.set_waiting(None);
        if matches!(error, SourceError::Refused(_)) {
            failures.are_lasting();
        }
        self.failed(&error.to_string(), failures).await;
    }

    /// Notes a failure, and waits.
    async fn failed(&self, why: &str, failures: &mut Failures) {
        self.counters.failed(why);
        match failures.0 {
            0 => tracing::warn!(feed = self.name, why, "a feed stands still; it tries again"),
            _ => tracing::debug!(feed = self.name, why, "a feed stands still"),
        }
        tokio::time::sleep(failures.pause(&self.entropy)).await;
    }
}

/// Failures in a row.
#[derive(Debug, Default)]
struct Failures(u32);

impl Failures {
    /// A lasting reason is not asked for often.
    fn are_lasting(&mut self) {
        self.0 = self.0.max(PAUSE_MAX.as_millis().ilog2());
    }

    /// How long to wait after one more: at random a half to all of a bound that grows.
    fn pause(&mut self, entropy: &Entropy) -> Duration {
        let bound = PAUSE_FIRST.saturating_mul(1 << self.0.min(16)).min(PAUSE_MAX);
        self.0 = self.0.saturating_add(1);
        let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros / 2 + entropy.below(micros / 2 + 1))
    }
}
