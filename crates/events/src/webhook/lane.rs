//! One lane of a webhook: its events go out one after the other.

use super::dead_letters::DeadLetters;
use super::post::{Outcome, Post};
use super::{Counters, Notice, count};
use crate::{Message, aws};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Entropy;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// How long a receiver may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The bound of the first pause before a repetition; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The bound of every pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Who sends the events of some keys.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) post: Arc<Post>,
    pub(super) retry_for: Duration,
    pub(super) counters: Arc<Counters>,
    pub(super) dead: DeadLetters,
    pub(super) entropy: Arc<Entropy>,
    pub(super) ends: watch::Receiver<Option<Instant>>,
    /// Whether the last event was given up because nobody took it.
    pub(super) is_down: bool,
}

impl Lane {
    /// Sends what comes until nobody can hand in more, or until the end is near.
    pub(super) async fn run(mut self, mut waiting: mpsc::Receiver<Waiting>) {
        let mut ends = self.ends.clone();
        loop {
            let notice = tokio::select! {
                biased;
                notice = waiting.recv() => notice,
                // What is handed in still waits; nothing comes after it.
                _ = ends.wait_for(Option::is_some), if !waiting.is_closed() => {
                    waiting.close();
                    continue;
                }
            };
            let Some(waiting) = notice else { return };
            self.deliver(waiting).await;
            self.counters.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }

    async fn deliver(&mut self, Waiting { notice, since }: Waiting) {
        let until = since + self.retry_for;
        let message = Message::from(Bytes::from(aws::message(&notice.event, &notice.configuration)));
        let mut pause = PAUSE_FIRST;
        // Behind an event that nobody took the next has waited as long: it need not show again that nobody is there.
        let mut may_try = !(self.is_over(until) && (self.is_down || self.has_ended()));
        while may_try {
            let sent = self.before_end(self.post.send(&message, ANSWER_WITHIN)).await;
            match sent.unwrap_or_else(|| Outcome::Failed("the end came first".to_owned())) {
                Outcome::Taken => {
                    count(&self.counters.sent);
                    self.has_recovered();
                    return;
                }
                Outcome::Refused(status) => {
                    tracing::warn!(webhook = self.name, %status, "the receiver refuses an event; it is a dead letter");
                    self.is_down = false;
                    self.dead.put_waiting(notice).await;
                    return;
                }
                Outcome::Failed(why) => {
                    may_try = !self.is_over(until);
                    if may_try {
                        tracing::debug!(webhook = self.name, why, "an event is posted again");
                        count(&self.counters.retried);
                        self.pause(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    } else if !self.is_down {
                        tracing::warn!(
                            webhook = self.name,
                            why,
                            "events are dead letters until the receiver is back"
                        );
                    }
                }
            }
        }
        self.is_down = true;
        self.dead.put_waiting(notice).await;
    }

    fn has_recovered(&mut self) {
        if std::mem::take(&mut self.is_down) {
            tracing::info!(webhook = self.name, "the receiver takes events again");
        }
    }

    /// When everything has to be done; at once, where nobody holds the webhook any more.
    fn end(&self) -> Option<Instant> {
        match self.ends.has_changed() {
            Ok(_) => *self.ends.borrow(),
            Err(_) => Some(Instant::now()),
        }
    }

    fn has_ended(&self) -> bool {
        self.end().is_some_and(|end| Instant::now() >= end)
    }

    fn is_over(&self, until: Instant) -> bool {
        Instant::now() >= until || self.has_ended()
    }

    /// What comes of some work, if it is done before the end.
    async fn before_end<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut ends = self.ends.clone();
        let ended = async {
            // An error says that nobody holds the webhook any more.
            let end = ends.wait_for(Option::is_some).await.ok().and_then(|end| *end);
            if let Some(end) = end {
                tokio::time::sleep_until(end).await;
            }
        };
        tokio::select! {
            biased;
            () = ended => None,
            done = work => Some(done),
        }
    }

    /// Waits for a part of `bound`, or until the end.
    async fn pause(&self, bound: Duration) {
        let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX).max(2);
        let pause = Duration::from_micros(micros / 2 + self.entropy.below(micros / 2));
        self.before_end(tokio::time::sleep(pause)).await;
    }
}

/// An event in a lane.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) notice: Notice,
    /// Since when it waits.
    pub(super) since: Instant,
}
