//! One lane of a webhook: posts its events one after the other.

use super::counters::{Counters, count};
use super::dead_letters::DeadLetterQueue;
use super::notice::Notice;
use super::post::{Outcome, Post};
use crate::{Message, aws};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Entropy;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Timeout for the receiver's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound of the first pause before a retry. It doubles with each further retry.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Upper bound of all pauses.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The task that posts the events of some of the keys.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) post: Arc<Post>,
    pub(super) retry_for: Duration,
    pub(super) counters: Arc<Counters>,
    pub(super) dead_letters: DeadLetterQueue,
    pub(super) entropy: Arc<Entropy>,
    /// The time after which queued events are given up, once the webhook is being stopped.
    pub(super) stop_at: watch::Receiver<Option<Instant>>,
    /// Whether the last event was given up because the receiver did not respond or failed.
    pub(super) is_down: bool,
}

impl Lane {
    /// Posts queued events until the webhook is dropped, or is stopped and the queue is empty.
    pub(super) async fn run(mut self, mut waiting: mpsc::Receiver<QueuedEvent>) {
        let mut stop_at = self.stop_at.clone();
        loop {
            let notice = tokio::select! {
                biased;
                notice = waiting.recv() => notice,
                // The webhook is being stopped: queued events are still delivered, new ones are rejected.
                _ = stop_at.wait_for(Option::is_some), if !waiting.is_closed() => {
                    waiting.close();
                    continue;
                }
            };
            let Some(waiting) = notice else { return };
            self.deliver(waiting).await;
            self.counters.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }

    async fn deliver(&mut self, QueuedEvent { notice, queued_at }: QueuedEvent) {
        let until = queued_at + self.retry_for;
        let message = Message::from(Bytes::from(aws::message(&notice.event, &notice.configuration)));
        let mut pause = PAUSE_FIRST;
        // An event that has already waited for `retry_for` is still tried once. If the event before it was given up, or the webhook
        // has ended, this attempt is skipped: the receiver is known to be down.
        let mut may_try = !(self.is_expired(until) && (self.is_down || self.is_past_deadline()));
        while may_try {
            let sent = self.until_deadline(self.post.send(&message, RESPONSE_TIMEOUT)).await;
            match sent.unwrap_or_else(|| Outcome::Failed("the webhook was stopped".to_owned())) {
                Outcome::Taken => {
                    count(&self.counters.sent);
                    self.mark_recovered();
                    return;
                }
                Outcome::Refused(status) => {
                    tracing::warn!(webhook = self.name, %status, "the receiver refused an event, which becomes a dead letter");
                    self.is_down = false;
                    self.dead_letters.append(notice).await;
                    return;
                }
                Outcome::Failed(why) => {
                    may_try = !self.is_expired(until);
                    if may_try {
                        tracing::debug!(webhook = self.name, why, "posting an event failed; it is retried");
                        count(&self.counters.retried);
                        self.pause(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    } else if !self.is_down {
                        tracing::warn!(
                            webhook = self.name,
                            why,
                            "an event could not be posted in time; events become dead letters until the receiver accepts one"
                        );
                    }
                }
            }
        }
        self.is_down = true;
        self.dead_letters.append(notice).await;
    }

    fn mark_recovered(&mut self) {
        if std::mem::take(&mut self.is_down) {
            tracing::info!(webhook = self.name, "the receiver accepts events again");
        }
    }

    /// Returns the time at which remaining events are given up: now, if the webhook was dropped. `None` while it is in
    /// use.
    fn deadline(&self) -> Option<Instant> {
        match self.stop_at.has_changed() {
            Ok(_) => *self.stop_at.borrow(),
            Err(_) => Some(Instant::now()),
        }
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline().is_some_and(|end| Instant::now() >= end)
    }

    fn is_expired(&self, until: Instant) -> bool {
        Instant::now() >= until || self.is_past_deadline()
    }

    /// Returns the result of `work`, or `None` if the webhook ends first.
    async fn until_deadline<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stop_at = self.stop_at.clone();
        let ended = async {
            // An error means that the webhook was dropped.
            let end = stop_at.wait_for(Option::is_some).await.ok().and_then(|end| *end);
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

    /// Pauses for a random time between half of `bound` and `bound`, or until the webhook ends.
    async fn pause(&self, bound: Duration) {
        let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX).max(2);
        let pause = Duration::from_micros(micros / 2 + self.entropy.below(micros / 2));
        self.until_deadline(tokio::time::sleep(pause)).await;
    }
}

/// An event in the queue of a lane.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    pub(super) notice: Notice,
    /// The time at which the event was queued.
    pub(super) queued_at: Instant,
}
