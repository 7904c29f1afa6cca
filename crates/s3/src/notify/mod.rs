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

use events::{Channel, Described, EventKind, Heard, Notice, ObjectEvent, Sequence, Sequencer, Subscription};
use events::{Webhook, WebhookCounts};
use s3s::{S3Request, S3Result};
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
use crate::endpoint::Shared;
use crate::headers;
use crate::ops::{settings, tagging};
use crate::owners;
use crate::policy_condition::Peer;
use crate::sessions::Sessions;
use crate::users::Users;
use crate::wire::Signer;
use in_flight::{Turn, Underway};
use observed_store::Watched;

/// The number of workers that turn changes into events.
const LANES: usize = 8;
/// The capacity of each worker's queue.
const WAITING_MAX: usize = 512;
/// The time limit for reading an object.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// The principal of unsigned requests.
const ANONYMOUS: &str = "anonymous";

/// The kind of request, as far as it determines the kinds of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Put,
    Post,
    Copy,
    Complete,
    Delete,
    PutTags,
    DeleteTags,
    Rename,
    Expire,
}

impl Action {
    /// Returns the action of PutObject: `s3s` also sees POST Object as PutObject.
    pub(crate) fn of_put(extensions: &http::Extensions) -> Self {
        let is_post =
            extensions.get::<Received>().is_some_and(|received| received.method == http::Method::POST);
        if is_post { Self::Post } else { Self::Put }
    }

    fn created(self) -> EventKind {
        match self {
            Self::Post => EventKind::CreatedPost,
            Self::Copy | Self::Rename => EventKind::CreatedCopy,
            Self::Complete => EventKind::CreatedCompleteMultipartUpload,
            _ => EventKind::CreatedPut,
        }
    }

    fn removed(self, leaves_marker: bool) -> EventKind {
        match (self, leaves_marker) {
            (Self::Expire, false) => EventKind::ExpirationDelete,
            (Self::Expire, true) => EventKind::ExpirationDeleteMarkerCreated,
            (_, false) => EventKind::RemovedDelete,
            (_, true) => EventKind::RemovedDeleteMarkerCreated,
        }
    }
}

/// Properties of a request as received, before it was rewritten.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// The request id that the response shows.
    pub(crate) id: String,
    pub(crate) method: http::Method,
}

/// The cause of a change: the request or the lifecycle rule behind it.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) action: Action,
    pub(crate) principal: String,
    pub(crate) source: Option<IpAddr>,
    pub(crate) request_id: String,
}

impl Cause {
    fn of<T>(request: &S3Request<T>, action: Action, sessions: &Sessions) -> Self {
        let signer = Signer::of(&request.extensions);
        let principal = signer.map(|signer| sessions.user_of(signer).unwrap_or_else(|| signer.to_owned()));
        let received = request.extensions.get::<Received>();
        Self {
            action,
            principal: principal.unwrap_or_else(|| ANONYMOUS.to_owned()),
            source: request.extensions.get::<Peer>().map(|peer| peer.0),
            request_id: received.map(|received| received.id.clone()).unwrap_or_default(),
        }
    }
}

impl Shared {
    /// Opens a bucket for a request that changes objects. Their events are emitted when the returned bucket is dropped.
    pub(crate) async fn changed<T>(
        &self,
        request: &S3Request<T>,
        bucket: &str,
        action: Action,
    ) -> S3Result<Bucket> {
        let cause = Cause::of(request, action, &self.sessions);
        Ok(self.notifier.watch(self.bucket(bucket).await?, cause))
    }
}

/// A change that a store call made.
#[derive(Debug)]
struct Change {
    kind: EventKind,
    known: Described,
    /// Whether the object must be read to complete the event.
    needs_look: bool,
    turn: Turn,
}

/// A change that waits to become an event.
#[derive(Debug)]
struct Pending {
    bucket: Bucket,
    cause: Cause,
    kind: EventKind,
    key: ObjectKey,
    known: Described,
    needs_look: bool,
    /// Whether another call of the key overlapped.
    is_crowded: bool,
    time: Timestamp,
    /// The change's sequence. The next sequence is reserved for a correction.
    sequence: Sequence,
}

enum Told {
    Change(Box<Pending>),
    /// A request to signal when all earlier messages are processed.
    Flush(oneshot::Sender<()>),
}

/// The receiver of changes; owns the workers' queues.
#[derive(Debug)]
pub(crate) struct Notifier {
    telling: Arc<Telling>,
    lanes: Vec<mpsc::Sender<Told>>,
    underway: Arc<Underway>,
    clock: Arc<dyn Clock>,
    /// Makes taking a sequence and enqueueing the change one step, so that queues are in sequence order.
    order: Mutex<Sequencer>,
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
        let telling = Arc::new(Telling { channel: Channel::default(), webhooks, region, users });
        let lane = |_| {
            let (sender, waiting) = mpsc::channel(WAITING_MAX);
            tokio::spawn(Arc::clone(&telling).tell_all(waiting));
            sender
        };
        let lanes = (0..LANES).map(lane).collect();
        let underway = Arc::default();
        Self { telling, lanes, underway, clock, order: Mutex::default(), lost: AtomicU64::new(0) }
    }

    /// Returns a bucket whose changes have events with the given cause.
    pub(crate) fn watch(self: &Arc<Self>, bucket: Bucket, cause: Cause) -> Bucket {
        Bucket { name: bucket.name.clone(), store: Arc::new(Watched::new(bucket, cause, Arc::clone(self))) }
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        self.telling.channel.subscribe()
    }

    pub(crate) fn has_webhook(&self, name: &str) -> bool {
        self.telling.webhooks.contains_key(name)
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, WebhookCounts> {
        let webhooks = self.telling.webhooks.iter();
        webhooks.map(|(name, webhook)| (name.clone(), webhook.counts())).collect()
    }

    /// Returns the number of dropped changes.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until all events are dispatched and delivered, or until `patience` has passed.
    pub(crate) async fn finish(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let flushed = async {
            for lane in &self.lanes {
                let (sender, flushed) = oneshot::channel();
                if lane.send(Told::Flush(sender)).await.is_ok() {
                    flushed.await.ok();
                }
            }
        };
        if tokio::time::timeout_at(until, flushed).await.is_err() {
            tracing::warn!("some events were not told");
        }
        let left = until.saturating_duration_since(Instant::now());
        let stopped = self.telling.webhooks.values().map(|webhook| webhook.stop(left));
        futures_util::future::join_all(stopped).await;
    }

    /// Enqueues changes. If a queue is full, the change is dropped, and subscribers get a loss notice.
    fn emit(&self, bucket: &Bucket, cause: &Cause, changes: Vec<Change>) {
        if self.telling.webhooks.is_empty() && !self.telling.channel.is_heard() {
            return;
        }
        for change in changes {
            let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            let time = self.clock.now();
            let pending = Pending {
                bucket: bucket.clone(),
                cause: cause.clone(),
                kind: change.kind,
                key: change.turn.key().clone(),
                known: change.known,
                needs_look: change.needs_look,
                is_crowded: change.turn.is_crowded(),
                time,
                sequence: order.next_two(time),
            };
            if self.lane(&pending).try_send(Told::Change(Box::new(pending))).is_err() {
                self.lose();
            }
        }
    }

    fn lane(&self, pending: &Pending) -> &mpsc::Sender<Told> {
        let mut hasher = DefaultHasher::new();
        (&pending.bucket.name, &pending.key).hash(&mut hasher);
        &self.lanes[(hasher.finish() % LANES as u64) as usize]
    }

    fn lose(&self) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        // Log rarely: losses come by the thousand or not at all.
        if lost.is_power_of_two() {
            tracing::warn!(lost, "events are lost: objects change faster than they can be looked at");
        }
        self.telling.channel.tell(Heard::Lost(1));
    }
}

/// The event destinations, and the properties that all events share.
#[derive(Debug)]
struct Telling {
    channel: Channel,
    webhooks: BTreeMap<String, Webhook>,
    region: String,
    users: Users,
}

impl Telling {
    async fn tell_all(self: Arc<Self>, mut waiting: mpsc::Receiver<Told>) {
        while let Some(told) = waiting.recv().await {
            match told {
                Told::Change(pending) => self.tell(*pending).await,
                Told::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn tell(&self, pending: Pending) {
        let routes = self.routes(&pending.bucket).await;
        let is_wanted = routes.iter().any(|route| route.is_about(&pending.key));
        if !is_wanted && !self.channel.is_heard() {
            return;
        }
        let found = match pending.needs_look || pending.is_crowded {
            true => look(&pending).await,
            false => Found::Unknown,
        };
        if pending.is_crowded && matches!(found, Found::Unknown) {
            // The calls overlapped, and the resulting object could not be read: the event may be wrong.
            self.channel.tell(Heard::Lost(1));
        }
        let own = own(&pending, &found);
        let correction = correction(&pending, &own, found);
        let owner = owners::of(&pending.bucket, &self.users).await;
        let owner = owner.unwrap_or_else(|_| self.users.first_admin());
        self.send(&pending, &owner, (pending.kind, own, pending.sequence), &routes);
        if let Some((kind, object)) = correction {
            let sequence = Sequence(pending.sequence.0 + 1);
            self.send(&pending, &owner, (kind, object, sequence), &routes);
        }
    }

    async fn routes(&self, bucket: &Bucket) -> Vec<configuration::Route> {
        if self.webhooks.is_empty() {
            return Vec::new();
        }
        match settings::get_notification(bucket).await {
            Ok(configured) => configuration::routes(configured),
            Err(error) => {
                tracing::warn!(
                    bucket = bucket.name,
                    ?error,
                    "an event is sent nowhere: nobody knows where to"
                );
                Vec::new()
            }
        }
    }

    fn send(
        &self,
        pending: &Pending,
        owner: &str,
        (kind, object, sequence): (EventKind, Described, Sequence),
        routes: &[configuration::Route],
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
        for route in routes.iter().filter(|route| route.is_about(&event.key) && route.wants(kind)) {
            if let Some(webhook) = self.webhooks.get(&route.destination) {
                webhook.send(Notice { event: Arc::clone(&event), configuration: Arc::clone(&route.id) });
            }
        }
        self.channel.tell(Heard::Event(event));
    }
}

/// The result of reading an object.
enum Found {
    There(Described),
    Absent,
    /// The object was not read, or could not be.
    Unknown,
}

async fn look(pending: &Pending) -> Found {
    let looked = async {
        let (bucket, key) = (&pending.bucket, &pending.key);
        // After overlapping calls only the current object shows which call was last.
        let version = pending.known.version.as_deref().filter(|_| !pending.is_crowded);
        let meta = match (bucket.store.versions(), version) {
            (Some(versions), Some(id)) => versions.find(key, Some(id)).await?.stored,
            _ => bucket.store.find(key).await?,
        };
        let Some(meta) = meta else { return Ok(Found::Absent) };
        let tags = tagging::read(bucket, &meta.object).await.unwrap_or_default();
        Ok::<_, store::StoreError>(Found::There(describe(&meta, tags)))
    };
    match tokio::time::timeout(LOOK_WITHIN, looked).await {
        Ok(Ok(found)) => found,
        Ok(Err(store::StoreError::NotFound(_))) => Found::Absent,
        _ => Found::Unknown,
    }
}

/// Returns the object as the change left it, completed from the object that was read.
fn own(pending: &Pending, found: &Found) -> Described {
    let known = &pending.known;
    match found {
        Found::There(found) if pending.needs_look => {
            let is_of_tags = !pending.kind.is_created();
            let is_same = known.etag.is_none() || known.etag == found.etag;
            let tags = if is_of_tags { known.tags.clone() } else { found.tags.clone() };
            if is_same { Described { tags, ..found.clone() } } else { known.clone() }
        }
        _ => known.clone(),
    }
}

/// Returns the correcting event for an overlapping change, if the object that was read differs from it.
fn correction(pending: &Pending, own: &Described, found: Found) -> Option<(EventKind, Described)> {
    let kind = pending.kind;
    match found {
        _ if !pending.is_crowded => None,
        Found::Absent if !kind.is_removed() => Some((EventKind::RemovedDelete, Described::default())),
        Found::There(found) if kind.is_removed() || found.etag != own.etag => {
            Some((EventKind::CreatedPut, found))
        }
        Found::There(found) if found.tags != own.tags => Some((EventKind::TaggingPut, found)),
        _ => None,
    }
}

fn describe(meta: &ObjectMeta, tags: Tags) -> Described {
    Described {
        size_bytes: Some(meta.size_bytes),
        etag: Some(meta.object.etag.clone()),
        version: shown_version(meta.object.version.clone()),
        ..of_attributes(&meta.attributes, tags)
    }
}

fn shown_version(id: Option<store::VersionId>) -> Option<store::VersionId> {
    id.filter(|id| **id != *NULL_VERSION)
}

fn of_attributes(attributes: &Attributes, tags: Tags) -> Described {
    Described {
        content_type: Some(headers::content_type(attributes)),
        user: headers::metadata(attributes).into_iter().flatten().collect(),
        tags,
        ..Described::default()
    }
}
