//! Webhooks: post events to a receiver behind a URL, one POST in AWS's format for each event.
//!
//! Owns a bounded queue in several lanes. All events of a key go to the same lane, so that they arrive in order. An event is posted
//! until the receiver accepts it (any status from 200 to 299), so it may arrive twice. An event becomes a dead letter if the receiver
//! refuses it, if it was retried for too long, or if the queue is full: the message is written as a line to a file.
//!
//! Refuses to make the caller wait who sends an event.

mod dead_letters;
mod lane;
mod post;
mod source;

pub use post::{Outcome, Post};
pub use source::WebhookSource;

use crate::ObjectEvent;
use dead_letters::DeadLetterQueue;
use http::{HeaderValue, Uri};
use lane::{Lane, QueuedEvent};
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::Entropy;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Number of lanes, and so of events in flight.
const LANES: usize = 8;
/// Maximum number of events queued in each lane. An event with the maximum of metadata and tags has about 8 KiB.
const QUEUE_MAX: usize = 1024;

/// The value of the header `Authorization`, which authenticates Tenon to a receiver, or a sender to Tenon.
#[derive(Clone)]
pub struct Authorization(HeaderValue);

impl Authorization {
    /// Makes the header from a token, sent as `Bearer TOKEN`, or from two words, sent unchanged (`Basic ...`).
    pub fn of(token: &str) -> Result<Self, WebhookError> {
        let value = if token.contains(' ') { token.to_owned() } else { format!("Bearer {token}") };
        let mut value = HeaderValue::try_from(value).map_err(|_| WebhookError::Token)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Returns whether a header has the same value. The comparison takes constant time.
    pub fn is(&self, header: Option<&HeaderValue>) -> bool {
        let value = header.map(HeaderValue::as_bytes).unwrap_or_default();
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), value).is_ok()
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization")
    }
}

/// The configuration of a webhook.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// The receiver's name in the log.
    pub name: String,
    /// The receiver's URL: `http` or `https`.
    pub url: String,
    /// The value of the header `Authorization`, if one is sent.
    pub authorization: Option<Authorization>,
    /// A PEM file of certificate authorities to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
    /// The time for which posting an event is retried.
    pub retry_for: Duration,
    /// The file for events that could not be delivered.
    pub dead_letters: PathBuf,
}

/// An error of a webhook's configuration.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The URL is invalid.
    #[error("'{0}' is not a receiver's URL; write it as https://host/path")]
    Url(String),
    /// The URL contains a secret, which would be visible.
    #[error(
        "a URL must not contain a user or a password, because it is visible to others; use a token instead"
    )]
    Credentials,
    /// The token cannot be sent in a header.
    #[error("the token contains characters that an HTTP header cannot have")]
    Token,
    /// No certificate authority is trusted, or the CA bundle cannot be read.
    #[error(transparent)]
    Connect(#[from] connect::CertificateError),
}

/// An event for one destination.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The event.
    pub event: Arc<ObjectEvent>,
    /// The id of the bucket notification configuration that selected the event.
    pub configuration: Arc<str>,
}

/// The counters of a webhook since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WebhookCounts {
    /// Events that are queued or in flight.
    pub queued: u64,
    /// Events that the receiver accepted.
    pub sent: u64,
    /// Retries.
    pub retried: u64,
    /// Events that became dead letters.
    pub failed: u64,
    /// Events that could not even become dead letters.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counters {
    queued: AtomicU64,
    sent: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A receiver of events. Clones share one queue. Sending ends when the webhook is stopped or its last clone is dropped.
#[derive(Debug, Clone)]
pub struct Webhook(Arc<Dispatcher>);

#[derive(Debug)]
struct Dispatcher {
    lanes: Vec<mpsc::Sender<QueuedEvent>>,
    dead_letters: DeadLetterQueue,
    counters: Arc<Counters>,
    /// The time after which remaining events are given up, once the webhook is being stopped.
    ending: watch::Sender<Option<Instant>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Webhook {
    /// Starts sending, in the current runtime.
    pub fn start(config: WebhookConfig, entropy: Arc<Entropy>) -> Result<Self, WebhookError> {
        let (authorization, ca_bundle) = (config.authorization.clone(), config.ca_bundle.as_deref());
        let post = Arc::new(Post::new(&config.url, authorization, ca_bundle)?);
        let counters = Arc::new(Counters::default());
        let (dead_letters, writing) =
            DeadLetterQueue::open(config.dead_letters.clone(), Arc::clone(&counters));
        let (ending, stop_at) = watch::channel(None);
        let mut tasks = vec![writing];
        let mut lanes = Vec::with_capacity(LANES);
        for _ in 0..LANES {
            let (sender, waiting) = mpsc::channel(QUEUE_MAX);
            let lane = Lane {
                name: config.name.clone(),
                post: Arc::clone(&post),
                retry_for: config.retry_for,
                counters: Arc::clone(&counters),
                dead_letters: dead_letters.clone(),
                entropy: Arc::clone(&entropy),
                stop_at: stop_at.clone(),
                is_down: false,
            };
            tasks.push(tokio::spawn(lane.run(waiting)));
            lanes.push(sender);
        }
        Ok(Self(Arc::new(Dispatcher { lanes, dead_letters, counters, ending, tasks: Mutex::new(tasks) })))
    }

    /// Queues an event. If its lane is full, the event becomes a dead letter at once.
    pub fn send(&self, notice: Notice) {
        let mut hasher = DefaultHasher::new();
        (&notice.event.bucket, &notice.event.key).hash(&mut hasher);
        let lane = &self.0.lanes[(hasher.finish() % LANES as u64) as usize];
        count(&self.0.counters.queued);
        if let Err(error) = lane.try_send(QueuedEvent { notice, queued_at: Instant::now() }) {
            self.0.counters.queued.fetch_sub(1, Ordering::Relaxed);
            self.0.dead_letters.try_append(error.into_inner().notice);
        }
    }

    /// Returns the current counters.
    pub fn counts(&self) -> WebhookCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0.counters;
        WebhookCounts {
            queued: of(&counters.queued),
            sent: of(&counters.sent),
            retried: of(&counters.retried),
            failed: of(&counters.failed),
            dropped: of(&counters.dropped),
        }
    }

    /// Accepts no further events and waits until the queued ones are delivered. After `patience` the rest become dead letters.
    pub async fn stop(&self, patience: Duration) {
        self.0.ending.send_replace(Some(Instant::now() + patience));
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let mut tasks = tasks.into_iter();
        let writing = tasks.next();
        for lane in tasks {
            lane.await.ok();
        }
        self.0.dead_letters.close();
        if let Some(writing) = writing {
            writing.await.ok();
        }
    }
}

/// Parses a receiver's URL.
fn parse_url(url: &str) -> Result<Uri, WebhookError> {
    let invalid = || WebhookError::Url(url.to_owned());
    // Checked first, so that no error message shows a secret.
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(WebhookError::Credentials);
    }
    let parsed: Uri = url.parse().map_err(|_| invalid())?;
    match (parsed.scheme_str(), parsed.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(parsed),
        _ => Err(invalid()),
    }
}
