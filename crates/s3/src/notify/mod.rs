//! Events of changes made through the endpoint, for subscribers and webhooks.
//!
//! Owns the way from a completed store call to its events. In a request that changes objects, an
//! [`ObservedStore`](observed_store::ObservedStore) wraps the bucket's store and records the changes. Workers turn
//! changes into events, and read the object where a call did not say enough. Requests do not wait for any of this.
//!
//! Invariants: no event precedes its change. An event's sequence is taken after the store call. If calls of one key
//! overlapped, their order is unknown; then the workers read the object, and emit a correcting event if a change's own
//! event does not match it. A consumer that orders a key's events by sequence ends with the object's actual state.

pub(crate) mod configuration;
mod in_flight;
mod observed_store;

use events::{
    Channel, ChannelItem, Described, EventKind, Notice, ObjectEvent, Sequence, Sequencer, Subscription,
};
use events::{Webhook, WebhookCounts};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Attributes, Clock, NULL_VERSION, ObjectKey, ObjectMeta, Tags, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::bucket::Bucket;
use crate::headers;
use crate::operations::Mutation;
use crate::ops::{settings, tagging};
use crate::owners;
use crate::scope::RequestScope;
use crate::users::Users;
use in_flight::{CallGuard, InFlight};
use observed_store::ObservedStore;

/// The number of workers that turn changes into events.
const WORKERS: usize = 8;
/// The capacity of each worker's queue.
const QUEUE_MAX: usize = 512;
/// The time limit for reading an object.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The principal of unsigned requests.
const ANONYMOUS: &str = "anonymous";

impl Mutation {
    fn created_kind(self) -> EventKind {
        match self {
            Self::Post => EventKind::CreatedPost,
            Self::Copy | Self::Rename => EventKind::CreatedCopy,
            Self::Complete => EventKind::CreatedCompleteMultipartUpload,
            _ => EventKind::CreatedPut,
        }
    }

    fn removed_kind(self, leaves_marker: bool) -> EventKind {
        match (self, leaves_marker) {
            (Self::Expire, false) => EventKind::ExpirationDelete,
            (Self::Expire, true) => EventKind::ExpirationDeleteMarkerCreated,
            (_, false) => EventKind::RemovedDelete,
            (_, true) => EventKind::RemovedDeleteMarkerCreated,
        }
    }
}

/// The cause of a change: the request or the lifecycle rule behind it.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) mutation: Mutation,
    pub(crate) principal: String,
    /// The address of the client; `None` if it is not known, and for a lifecycle rule.
    pub(crate) source: Option<IpAddr>,
    pub(crate) request_id: String,
}

impl Cause {
    pub(crate) fn of(scope: &RequestScope, mutation: Mutation) -> Self {
        let caller = &scope.caller;
        Self {
            mutation,
            principal: caller.user.clone().unwrap_or_else(|| ANONYMOUS.to_owned()),
            source: caller.request_context.source,
            request_id: scope.id.clone(),
        }
    }
}

/// A change that a store call made.
#[derive(Debug)]
struct Change {
    kind: EventKind,
    /// The properties of the object that are known from the call.
    known: Described,
    /// Whether the object must be read to complete the event.
    needs_read: bool,
    guard: CallGuard,
}

/// A change that waits to become an event.
#[derive(Debug)]
struct PendingChange {
    bucket: Bucket,
    cause: Cause,
    kind: EventKind,
    key: ObjectKey,
    /// The properties of the object that are known from the store call.
    known: Described,
    /// Whether the object must be read to complete the event.
    needs_read: bool,
    /// Whether another call of the key overlapped.
    is_concurrent: bool,
    /// When the change was made.
    time: Timestamp,
    /// The change's sequence. The next sequence is reserved for a correction.
    sequence: Sequence,
}

/// A message to an event worker.
enum Message {
    Change(Box<PendingChange>),
    /// A request to signal when all earlier messages are processed.
    Flush(oneshot::Sender<()>),
}

/// The queue of changes: passes each to a worker, which sends its events.
#[derive(Debug)]
pub(crate) struct Notifier {
    dispatcher: Arc<Dispatcher>,
    queues: Vec<mpsc::Sender<Message>>,
    in_flight: Arc<InFlight>,
    clock: Arc<dyn Clock>,
    /// Makes taking a sequence and enqueueing the change one step, so that queues are in sequence order.
    order: Mutex<Sequencer>,
    /// The number of events that were dropped.
    lost: AtomicU64,
}

impl Notifier {
    /// Starts the workers, which send events to `webhooks` (by name) and to subscribers. Must be called within a Tokio
    /// runtime.
    pub(crate) fn start(
        webhooks: BTreeMap<String, Webhook>,
        region: String,
        users: Users,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let dispatcher = Arc::new(Dispatcher { channel: Channel::default(), webhooks, region, users });
        let worker = |_| {
            let (sender, waiting) = mpsc::channel(QUEUE_MAX);
            tokio::spawn(Arc::clone(&dispatcher).run(waiting));
            sender
        };
        let queues = (0..WORKERS).map(worker).collect();
        let in_flight = Arc::default();
        Self { dispatcher, queues, in_flight, clock, order: Mutex::default(), lost: AtomicU64::new(0) }
    }

    /// Returns a bucket whose changes have events with the given cause.
    pub(crate) fn observe(self: &Arc<Self>, bucket: Bucket, cause: Cause) -> Bucket {
        Bucket {
            name: bucket.name.clone(),
            store: Arc::new(ObservedStore::new(bucket, cause, Arc::clone(self))),
        }
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        self.dispatcher.channel.subscribe()
    }

    pub(crate) fn has_webhook(&self, name: &str) -> bool {
        self.dispatcher.webhooks.contains_key(name)
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, WebhookCounts> {
        let webhooks = self.dispatcher.webhooks.iter();
        webhooks.map(|(name, webhook)| (name.clone(), webhook.counts())).collect()
    }

    /// Returns the number of dropped changes.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until all events are dispatched and delivered, or until `patience` has passed. Webhooks accept no events
    /// afterwards.
    pub(crate) async fn shut_down(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let flushed = async {
            for queue in &self.queues {
                let (sender, flushed) = oneshot::channel();
                if queue.send(Message::Flush(sender)).await.is_ok() {
                    flushed.await.ok();
                }
            }
        };
        if tokio::time::timeout_at(until, flushed).await.is_err() {
            tracing::warn!(
                "the endpoint stops before all changes have become events; the events of the remaining changes are lost"
            );
        }
        let left = until.saturating_duration_since(Instant::now());
        let stopped = self.dispatcher.webhooks.values().map(|webhook| webhook.stop(left));
        futures_util::future::join_all(stopped).await;
    }

    /// Enqueues changes. If a queue is full, the change is dropped, and subscribers get a loss notice. Without webhooks
    /// and subscribers, does nothing.
    fn enqueue(&self, bucket: &Bucket, cause: &Cause, changes: Vec<Change>) {
        if self.dispatcher.webhooks.is_empty() && !self.dispatcher.channel.has_subscribers() {
            return;
        }
        for change in changes {
            let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            let time = self.clock.now();
            let pending = PendingChange {
                bucket: bucket.clone(),
                cause: cause.clone(),
                kind: change.kind,
                key: change.guard.key().clone(),
                known: change.known,
                needs_read: change.needs_read,
                is_concurrent: change.guard.is_concurrent(),
                time,
                sequence: order.next_two(time),
            };
            if self.queue_of(&pending).try_send(Message::Change(Box::new(pending))).is_err() {
                self.count_lost(&bucket.name);
            }
        }
    }

    /// Returns the queue of the worker for the key of a change, so that the events of a key stay in order.
    fn queue_of(&self, pending: &PendingChange) -> &mpsc::Sender<Message> {
        let mut hasher = DefaultHasher::new();
        (&pending.bucket.name, &pending.key).hash(&mut hasher);
        &self.queues[(hasher.finish() % WORKERS as u64) as usize]
    }

    /// Notes that the event of a change in a bucket is lost.
    fn count_lost(&self, bucket: &str) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        // Log rarely: losses come by the thousand or not at all.
        if lost.is_power_of_two() {
            tracing::warn!(
                lost,
                "events are lost: objects change faster than the endpoint can send events, and its queue is full"
            );
        }
        self.dispatcher.channel.publish(ChannelItem::Lost(Some(bucket.to_owned())));
    }
}

/// The event destinations, and the properties that all events share.
#[derive(Debug)]
struct Dispatcher {
    channel: Channel,
    webhooks: BTreeMap<String, Webhook>,
    region: String,
    users: Users,
}

impl Dispatcher {
    async fn run(self: Arc<Self>, mut waiting: mpsc::Receiver<Message>) {
        while let Some(message) = waiting.recv().await {
            match message {
                Message::Change(pending) => self.dispatch(*pending).await,
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn dispatch(&self, pending: PendingChange) {
        let rules = self.rules(&pending.bucket).await;
        let is_wanted = rules.iter().any(|rule| rule.matches_key(&pending.key));
        if !is_wanted && !self.channel.has_subscribers() {
            return;
        }
        let found = match pending.needs_read || pending.is_concurrent {
            true => read_object_of(&pending).await,
            false => CurrentState::Unknown,
        };
        if pending.is_concurrent && matches!(found, CurrentState::Unknown) {
            // The calls overlapped, and the resulting object could not be read: the event may be wrong.
            self.channel.publish(ChannelItem::Lost(Some(pending.bucket.name.to_string())));
        }
        let own = describe_change(&pending, &found);
        let correction = correction(&pending, &own, found);
        let owner = owners::find(&pending.bucket, &self.users).await;
        let owner = owner.unwrap_or_else(|_| self.users.default_owner());
        self.send(&pending, &owner, (pending.kind, own, pending.sequence), &rules);
        if let Some((kind, object)) = correction {
            let sequence = Sequence(pending.sequence.0 + 1);
            self.send(&pending, &owner, (kind, object, sequence), &rules);
        }
    }

    /// Returns the rules by which a bucket's events go to webhooks; none without webhooks.
    async fn rules(&self, bucket: &Bucket) -> Vec<configuration::NotificationRule> {
        if self.webhooks.is_empty() {
            return Vec::new();
        }
        match settings::get_notification(bucket).await {
            Ok(configured) => configuration::parse_rules(configured),
            Err(error) => {
                tracing::warn!(
                    bucket = bucket.name,
                    ?error,
                    "an event is not sent to webhooks: the bucket's notification configuration cannot be read"
                );
                Vec::new()
            }
        }
    }

    /// Sends an event to subscribers and to the webhooks whose rules match.
    fn send(
        &self,
        pending: &PendingChange,
        owner: &str,
        (kind, object, sequence): (EventKind, Described, Sequence),
        rules: &[configuration::NotificationRule],
    ) {
        let event = Arc::new(ObjectEvent {
            kind,
            time: pending.time,
            sequence,
            region: self.region.clone(),
            bucket: pending.bucket.name.clone(),
            owner: owner.to_owned(),
            key: pending.key.clone(),
            object,
            principal: pending.cause.principal.clone(),
            source: pending.cause.source,
            request_id: pending.cause.request_id.clone(),
        });
        for rule in rules.iter().filter(|rule| rule.matches_key(&event.key) && rule.matches_kind(kind)) {
            if let Some(webhook) = self.webhooks.get(&rule.destination) {
                webhook.send(Notice { event: Arc::clone(&event), configuration: Arc::clone(&rule.id) });
            }
        }
        self.channel.publish(ChannelItem::Event(event));
    }
}

/// The result of reading an object.
enum CurrentState {
    Present(Described),
    Absent,
    /// The object was not read, or could not be.
    Unknown,
}

/// Reads the object that a change is about: the version that the change stored, or the current object if the store has no versions or calls
/// overlapped.
async fn read_object_of(pending: &PendingChange) -> CurrentState {
    let read = async {
        let (bucket, key) = (&pending.bucket, &pending.key);
        // After overlapping calls only the current object shows which call was last.
        let version = pending.known.version.as_deref().filter(|_| !pending.is_concurrent);
        let meta = match (bucket.store.versions(), version) {
            (Some(versions), Some(id)) => versions.find(key, Some(id)).await?.stored,
            _ => bucket.store.find(key).await?,
        };
        let Some(meta) = meta else { return Ok(CurrentState::Absent) };
        let tags = tagging::read_from_store(bucket, &meta.object).await.unwrap_or_default();
        Ok::<_, store::StoreError>(CurrentState::Present(describe_object(&meta, tags)))
    };
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(Ok(found)) => found,
        Ok(Err(store::StoreError::NotFound(_))) => CurrentState::Absent,
        _ => CurrentState::Unknown,
    }
}

/// Returns the object as the change left it, completed from the object that was read.
fn describe_change(pending: &PendingChange, found: &CurrentState) -> Described {
    let known = &pending.known;
    match found {
        CurrentState::Present(found) if pending.needs_read => {
            let is_of_tags = !pending.kind.is_created();
            let is_same = known.etag.is_none() || known.etag == found.etag;
            let tags = if is_of_tags { known.tags.clone() } else { found.tags.clone() };
            if is_same { Described { tags, ..found.clone() } } else { known.clone() }
        }
        _ => known.clone(),
    }
}

/// Returns the correcting event for an overlapping change, if the object that was read differs from it.
fn correction(
    pending: &PendingChange,
    own: &Described,
    found: CurrentState,
) -> Option<(EventKind, Described)> {
    let kind = pending.kind;
    match found {
        _ if !pending.is_concurrent => None,
        CurrentState::Absent if !kind.is_removed() => Some((EventKind::RemovedDelete, Described::default())),
        CurrentState::Present(found) if kind.is_removed() || found.etag != own.etag => {
            Some((EventKind::CreatedPut, found))
        }
        CurrentState::Present(found) if found.tags != own.tags => Some((EventKind::TaggingPut, found)),
        _ => None,
    }
}

fn describe_object(meta: &ObjectMeta, tags: Tags) -> Described {
    Described {
        size_bytes: Some(meta.size_bytes),
        etag: Some(meta.object.etag.clone()),
        version: shown_version(meta.object.version.clone()),
        ..describe_attributes(&meta.attributes, tags)
    }
}

fn shown_version(id: Option<store::VersionId>) -> Option<store::VersionId> {
    id.filter(|id| **id != *NULL_VERSION)
}

fn describe_attributes(attributes: &Attributes, tags: Tags) -> Described {
    Described {
        content_type: Some(headers::content_type(attributes)),
        user: headers::metadata(attributes).into_iter().flatten().collect(),
        tags,
        ..Described::default()
    }
}
