//! Test fixture: buckets, clients and hints of one test.

use events::{ChangeKind, Hint, ObjectDescription, Order, Sink};
use sim::SimClock;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use store::memory::{MemoryBuckets, MemoryLimits};
use store::{
    Attributes, Buckets, Clock, CopyOptions, Entropy, ListRequest, ObjectKey, ObjectStore, Pages, Payload,
    Precondition, PutOptions, Tags, Timestamp,
};
use views::{
    Cursor, Handler, HandlerConfig, HandlerParts, ObjectName, ObjectState, PackedObject, Ruleset, ViewError,
    ViewId, Views,
};

/// Content of an event.
#[derive(Debug, Clone)]
pub(crate) struct TestEvent {
    pub(crate) bucket: String,
    pub(crate) key: Vec<u8>,
    pub(crate) kind: ChangeKind,
    pub(crate) order: Option<u128>,
    pub(crate) time: Timestamp,
    pub(crate) etag: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) content_type: Option<String>,
    pub(crate) properties: Option<BTreeMap<String, String>>,
    pub(crate) tags: Option<Tags>,
}

impl TestEvent {
    pub(crate) fn hint(&self) -> Hint<'_> {
        let pairs = |map: &'_ BTreeMap<String, String>| {
            map.iter().map(|(name, value)| (Cow::Owned(name.clone()), Cow::Owned(value.clone()))).collect()
        };
        Hint {
            bucket: Cow::Borrowed(&self.bucket),
            key: Cow::Borrowed(&self.key),
            kind: self.kind,
            order: self.order.map(Order),
            time: Some(self.time),
            object: ObjectDescription {
                size_bytes: self.size_bytes,
                etag: self.etag.as_deref().map(Cow::Borrowed),
                version: None,
                content_type: self.content_type.as_deref().map(Cow::Borrowed),
                properties: self.properties.as_ref().map(pairs),
                tags: self.tags.as_ref().map(pairs),
            },
        }
    }

    /// Returns the event as a source sends it that does not include metadata, such as AWS.
    pub(crate) fn without_metadata(mut self) -> Self {
        (self.content_type, self.properties, self.tags) = (None, None, None);
        self
    }
}

/// Returns a set of properties or tags.
pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clock: Arc<SimClock>,
    pub(crate) buckets: Arc<dyn Buckets>,
    last: u128,
}

impl World {
    /// Creates empty buckets of these names.
    pub(crate) async fn new(names: &[&str]) -> Self {
        let clock = Arc::new(SimClock::default());
        let limits = MemoryLimits { page_entries_max: 7, ..MemoryLimits::default() };
        let buckets = MemoryBuckets::with_limits(clock.clone(), limits);
        for name in names {
            buckets.create(name).await.unwrap();
        }
        Self { clock, buckets: Arc::new(buckets), last: 0 }
    }

    pub(crate) async fn start(&self, dir: Option<PathBuf>, seed: u64) -> Arc<Handler> {
        self.start_on(self.buckets.clone(), dir, seed).await
    }

    pub(crate) async fn start_on(
        &self,
        buckets: Arc<dyn Buckets>,
        dir: Option<PathBuf>,
        seed: u64,
    ) -> Arc<Handler> {
        let config = HandlerConfig { knows_accessed: true, memory_max_bytes: None };
        let (clock, entropy) = (self.clock.clone(), Entropy::new(seed));
        Handler::start(HandlerParts { buckets, clock, entropy, dir, config }).await.unwrap()
    }

    pub(crate) async fn bucket(&self, name: &str) -> Arc<dyn ObjectStore> {
        self.buckets.open(name).await.unwrap()
    }

    fn next_order(&mut self) -> u128 {
        self.last = (self.last + 1).max(self.clock.now().0 as u128);
        self.last
    }

    pub(crate) async fn put(
        &mut self,
        bucket: &str,
        key: &str,
        size_bytes: usize,
        properties: BTreeMap<String, String>,
        tags: Tags,
    ) -> TestEvent {
        let content_type = (size_bytes % 2 == 1).then(|| "text/plain".to_owned());
        let attributes = Attributes {
            content_type: content_type.clone(),
            user: properties.clone(),
            ..Attributes::default()
        };
        let options = PutOptions { attributes, tags: tags.clone(), ..PutOptions::default() };
        let body = Payload::from(bytes::Bytes::from(vec![b'x'; size_bytes]));
        let stored = self.bucket(bucket).await.put(&key_of(key), body, options).await.unwrap();
        TestEvent {
            bucket: bucket.to_owned(),
            key: key.as_bytes().to_vec(),
            kind: ChangeKind::Stored,
            order: Some(self.next_order()),
            time: stored.last_modified.unwrap(),
            etag: Some(stored.etag.as_str().to_owned()),
            size_bytes: Some(size_bytes as u64),
            content_type,
            properties: Some(properties),
            tags: Some(tags),
        }
    }

    pub(crate) async fn delete(&mut self, bucket: &str, key: &str) -> TestEvent {
        self.bucket(bucket).await.delete(&key_of(key), Precondition::None).await.unwrap();
        self.event(bucket, key, ChangeKind::Removed)
    }

    /// Replaces tags. The event does not include them; it repeats the order of the last PUT if `order` is given, as
    /// MinIO does.
    pub(crate) async fn set_tags(
        &mut self,
        bucket: &str,
        key: &str,
        tags: Tags,
        order: Option<u128>,
    ) -> TestEvent {
        self.bucket(bucket).await.set_tags(&key_of(key), tags).await.unwrap();
        let event = self.event(bucket, key, ChangeKind::Changed);
        TestEvent { order: order.or(event.order), ..event }
    }

    /// Replaces properties by a copy of the object onto itself, which keeps its etag.
    pub(crate) async fn set_properties(
        &mut self,
        bucket: &str,
        key: &str,
        properties: BTreeMap<String, String>,
    ) -> TestEvent {
        let (store, key) = (self.bucket(bucket).await, key_of(key));
        let meta = store.head(&key).await.unwrap();
        let attributes = Attributes { user: properties.clone(), ..meta.attributes };
        let content_type = attributes.content_type.clone();
        let options = CopyOptions { attributes: Some(attributes), ..CopyOptions::default() };
        let copied = store.copy(&meta.object, &key, options).await.unwrap();
        TestEvent {
            time: copied.last_modified.unwrap(),
            etag: Some(copied.etag.as_str().to_owned()),
            size_bytes: Some(meta.size_bytes),
            content_type,
            properties: Some(properties),
            ..self.event(bucket, &key.to_string(), ChangeKind::Stored)
        }
    }

    pub(crate) fn event(&mut self, bucket: &str, key: &str, kind: ChangeKind) -> TestEvent {
        TestEvent {
            bucket: bucket.to_owned(),
            key: key.as_bytes().to_vec(),
            kind,
            order: Some(self.next_order()),
            time: self.clock.now(),
            etag: None,
            size_bytes: None,
            content_type: None,
            properties: None,
            tags: None,
        }
    }

    /// Returns what a ruleset must show, by a HEAD request for every object.
    pub(crate) async fn expected(&self, ruleset: &Ruleset) -> Vec<String> {
        let mut expected = Vec::new();
        for container in self.buckets.list().await.unwrap() {
            let store = self.bucket(&container).await;
            for entry in Pages::new(&*store, ListRequest { limit: 1000, ..ListRequest::default() })
                .collect()
                .await
                .unwrap()
            {
                let (object, size_bytes) = entry.into_object().unwrap();
                let meta = store.head(&object.key).await.unwrap();
                let tags = store.tags(&object.key).await.unwrap();
                let state = ObjectState {
                    container: &container,
                    key: object.key.as_bytes(),
                    size_bytes,
                    modified: object.last_modified.unwrap(),
                    accessed: None,
                    content_type: meta.attributes.content_type.as_deref(),
                    properties: &meta.attributes.user,
                    tags: &tags,
                };
                if ruleset.matches(&state, self.clock.now()) {
                    expected.push(format!("{container}/{} {}", object.key, object.etag));
                }
            }
        }
        expected.sort();
        expected
    }
}

pub(crate) fn key_of(key: &str) -> ObjectKey {
    ObjectKey::try_from(key).unwrap()
}

/// Delivers hints, each in a batch of its own.
pub(crate) async fn deliver(handler: &Handler, event: &[TestEvent]) {
    for event in event {
        handler.take(&[event.hint()]).await.unwrap();
    }
}

/// A client that follows a view.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) ruleset: Ruleset,
    pub(crate) view: ViewId,
    pub(crate) cursor: Option<Cursor>,
    pub(crate) objects: BTreeMap<ObjectName, PackedObject>,
    pub(crate) beginnings: usize,
}

impl Client {
    pub(crate) async fn open(handler: &Handler, ruleset: &Ruleset) -> Self {
        let view = handler.open(ruleset).await.unwrap();
        Self { ruleset: ruleset.clone(), view, cursor: None, objects: BTreeMap::new(), beginnings: 0 }
    }

    /// Requests one page of changes. Returns whether there are more.
    pub(crate) async fn ask(&mut self, handler: &Handler, limit: usize) -> bool {
        let changes = match handler.changes(self.view, self.cursor.as_ref(), limit).await {
            Err(ViewError::Unknown) => {
                self.view = handler.open(&self.ruleset).await.unwrap();
                handler.changes(self.view, None, limit).await.unwrap()
            }
            changes => changes.unwrap(),
        };
        if changes.is_beginning {
            self.objects.clear();
            self.beginnings += 1;
        }
        for gone in changes.gone {
            self.objects.remove(&gone);
        }
        for shown in changes.shown {
            self.objects.insert(shown.name(), shown);
        }
        self.cursor = Some(changes.cursor);
        changes.has_more
    }

    pub(crate) async fn follow(&mut self, handler: &Handler, limit: usize) {
        while self.ask(handler, limit).await {}
    }

    /// Returns the objects that the client knows, in the format of [`World::expected`].
    pub(crate) fn shown(&self) -> Vec<String> {
        let line = |object: &PackedObject| {
            let shown = object.unpack();
            format!("{}/{} {}", shown.name.container, shown.name.key, shown.etag)
        };
        let mut lines: Vec<String> = self.objects.values().map(line).collect();
        lines.sort();
        lines
    }
}

/// Reads the only ruleset of a text.
pub(crate) fn ruleset(rules: &str) -> Ruleset {
    let lines: String = rules.lines().map(|line| format!("  {line}\n")).collect();
    views::read(&format!("View:\n{lines}")).unwrap().remove(0)
}
