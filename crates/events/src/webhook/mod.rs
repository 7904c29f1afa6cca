//! Events for a receiver behind a URL: one POST of AWS's form each.
//!
//! Owns a bounded queue in several lanes: a key's events are in one of them, so that they arrive in their order. An event is
//! posted until the receiver takes it (any answer of 200 to 299), so it may arrive twice; what the receiver refuses, what has been tried
//! for too long, and what found no place goes to a file of dead letters, as a line that is the message.
//!
//! Refuses: to let whoever hands in an event wait.

mod dead_letters;
mod lane;
mod post;

pub use post::{Outcome, Post};

use crate::ObjectEvent;
use dead_letters::DeadLetters;
use http::{HeaderValue, Uri};
use lane::{Lane, Waiting};
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

/// Events that are on their way at the same time.
const LANES: usize = 8;
/// Events that may wait in each lane; one with all the metadata and tags there may be has some 8 KiB.
const WAITING_MAX: usize = 1024;

/// What tells a receiver that it is us: the value of the header `Authorization`.
#[derive(Clone)]
pub struct Authorization(HeaderValue);

impl Authorization {
    /// Of a token, which is sent as `Bearer TOKEN`, or of two words, which are sent as they are (`Basic ...`).
    pub fn of(token: &str) -> Result<Self, WebhookError> {
        let value = if token.contains(' ') { token.to_owned() } else { format!("Bearer {token}") };
        let mut value = HeaderValue::try_from(value).map_err(|_| WebhookError::Token)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Whether a header says the same; how long that takes does not say how much of it is right.
    pub fn is(&self, header: Option<&HeaderValue>) -> bool {
        let said = header.map(HeaderValue::as_bytes).unwrap_or_default();
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), said).is_ok()
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization")
    }
}

/// Where events are posted, and how.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// The receiver's name, for the log.
    pub name: String,
    /// Where it is: `http` or `https`.
    pub url: String,
    /// What is sent as `Authorization`, if anything is.
    pub authorization: Option<Authorization>,
    /// PEM file of certificate authorities to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
    /// How long an event is tried.
    pub retry_for: Duration,
    /// Where what could not be delivered goes.
    pub dead_letters: PathBuf,
}

/// Why a webhook cannot be.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The URL is none.
    #[error("'{0}' is no URL of a receiver; give one like https://host/path")]
    Url(String),
    /// The URL holds a secret, which would be seen.
    #[error("a URL with a user or a password shows them to everybody; give a token instead")]
    Credentials,
    /// The token cannot be sent.
    #[error("the token holds characters that a header cannot hold")]
    Token,
    /// There is nothing to trust, or the CA bundle cannot be read.
    #[error(transparent)]
    Connect(#[from] store::s3::ConfigError),
}

/// An event for one destination.
#[derive(Debug, Clone)]
pub struct Notice {
    /// What happened.
    pub event: Arc<ObjectEvent>,
    /// The id of the configuration that sends it there.
    pub configuration: Arc<str>,
}

/// What a webhook did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WebhookCounts {
    /// Events that wait or are on their way.
    pub queued: u64,
    /// Events that the receiver took.
    pub sent: u64,
    /// Posts that were repeated.
    pub retried: u64,
    /// Events that are among the dead letters instead.
    pub failed: u64,
    /// Events that are not even there.
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

/// A receiver of events. Clones share it; it ends when the last is dropped, or stopped.
#[derive(Debug, Clone)]
pub struct Webhook(Arc<Sending>);

#[derive(Debug)]
struct Sending {
    lanes: Vec<mpsc::Sender<Waiting>>,
    dead: DeadLetters,
    counters: Arc<Counters>,
    /// When what is left must be given up, once that is known.
    ending: watch::Sender<Option<Instant>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Webhook {
    /// Begins to send, in the runtime that this is called in.
    pub fn start(config: WebhookConfig, entropy: Arc<Entropy>) -> Result<Self, WebhookError> {
        let (authorization, ca_bundle) = (config.authorization.clone(), config.ca_bundle.as_deref());
        let post = Arc::new(Post::new(&config.url, authorization, ca_bundle)?);
        let counters = Arc::new(Counters::default());
        let (dead, writing) = DeadLetters::open(config.dead_letters.clone(), Arc::clone(&counters));
        let (ending, ends) = watch::channel(None);
        let mut tasks = vec![writing];
        let mut lanes = Vec::with_capacity(LANES);
        for _ in 0..LANES {
            let (sender, waiting) = mpsc::channel(WAITING_MAX);
            let lane = Lane {
                name: config.name.clone(),
                post: Arc::clone(&post),
                retry_for: config.retry_for,
                counters: Arc::clone(&counters),
                dead: dead.clone(),
                entropy: Arc::clone(&entropy),
                ends: ends.clone(),
                is_down: false,
            };
            tasks.push(tokio::spawn(lane.run(waiting)));
            lanes.push(sender);
        }
        Ok(Self(Arc::new(Sending { lanes, dead, counters, ending, tasks: Mutex::new(tasks) })))
    }

    /// Takes an event on its way. Where too many wait it becomes a dead letter at once.
    pub fn send(&self, notice: Notice) {
        let mut hasher = DefaultHasher::new();
        (&notice.event.bucket, &notice.event.key).hash(&mut hasher);
        let lane = &self.0.lanes[(hasher.finish() % LANES as u64) as usize];
        count(&self.0.counters.queued);
        if let Err(error) = lane.try_send(Waiting { notice, since: Instant::now() }) {
            self.0.counters.queued.fetch_sub(1, Ordering::Relaxed);
            self.0.dead.put(error.into_inner().notice);
        }
    }

    /// What it did so far.
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

    /// Takes no more events, and returns when those that wait are delivered or, after `patience`, among the dead letters.
    pub async fn stop(&self, patience: Duration) {
        self.0.ending.send_replace(Some(Instant::now() + patience));
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let mut tasks = tasks.into_iter();
        let writing = tasks.next();
        for lane in tasks {
            lane.await.ok();
        }
        self.0.dead.close();
        if let Some(writing) = writing {
            writing.await.ok();
        }
    }
}

/// A receiver's address.
fn parse_url(url: &str) -> Result<Uri, WebhookError> {
    let invalid = || WebhookError::Url(url.to_owned());
    // Before anything else: no error shows a secret.
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
