//! Webhooks: post events to a receiver behind a URL, one POST in AWS's format for each event.
//!
//! Owns a bounded queue in several lanes. All events of a key go to the same lane, so that they arrive in order. An
//! event is posted until the receiver accepts it (any status from 200 to 299), so it may arrive twice. An event
//! becomes a dead letter if the receiver refuses it, if it was retried for too long, if the queue is full, or if the
//! webhook ends first: the message is written as a line to a file.
//!
//! Refuses to make the caller wait who sends an event.

mod authorization;
mod counters;
mod dead_letters;
mod error;
mod lane;
mod notice;
mod post;
mod source;

pub use authorization::Authorization;
pub use counters::WebhookCounts;
pub use error::WebhookError;
pub use notice::Notice;
pub use post::{Outcome, Post};
pub use source::WebhookSource;

use counters::{Counters, count};
use dead_letters::DeadLetterQueue;
use lane::{Lane, QueuedEvent};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
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
        self.0.counters.now()
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
