//! A store wrapper that records changes and emits their events.
//!
//! The wrapper lives as long as a request, and emits the events when it is dropped, so that they show the objects as
//! the request left them.
//!
//! Invariant: a call that has begun runs to its end and has its event, even if the client disconnects.

use bytes::Bytes;
use events::{Described, EventKind};
use futures_util::stream::BoxStream;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::{
    Attributes, CompleteOptions, CopyOptions, Deleted, GetOptions, ListPage, ListRequest, ListVersions,
    Multipart, Object, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, ObjectWriter, Part, PartNote, Payload,
    Precondition, PutOptions, Removal, Result, Retention, Settings, StoreError, Tags, Upload, Uploads,
    Version, VersionEntry, Versioning, Versions,
};

use super::in_flight::Turn;
use super::{Action, Cause, Change, Notifier, of_attributes, shown_version};
use crate::bucket::Bucket;

/// A bucket's store in a request that changes objects.
#[derive(Debug)]
pub(super) struct Watched {
    changes: Arc<Changes>,
}

/// The changes that a request has made so far.
#[derive(Debug)]
struct Changes {
    bucket: Bucket,
    cause: Cause,
    notifier: Arc<Notifier>,
    made: Mutex<Vec<Change>>,
}

impl Drop for Changes {
    fn drop(&mut self) {
        let made = std::mem::take(self.made.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.notifier.emit(&self.bucket, &self.cause, made);
    }
}

impl Changes {
    fn store(&self) -> &dyn ObjectStore {
        self.bucket.store.as_ref()
    }

    fn begin(&self, key: &ObjectKey) -> Turn {
        self.notifier.underway.begin(&self.bucket.name, key)
    }

    fn note(&self, change: Change) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    /// Records a stored object. Without `known`, the object is read later for the event's details.
    fn created(&self, turn: Turn, object: &ObjectRef, known: Option<Described>) {
        let needs_look = known.is_none();
        let known = Described {
            etag: Some(object.etag.clone()),
            version: shown_version(object.version.clone()),
            ..known.unwrap_or_default()
        };
        self.note(Change { kind: self.cause.action.created(), known, needs_look, turn });
    }

    fn removed(&self, turn: Turn, leaves_marker: bool, deleted: &Deleted) {
        let known = Described { version: shown_version(deleted.version.clone()), ..Described::default() };
        let kind = self.cause.action.removed(leaves_marker);
        self.note(Change { kind, known, needs_look: false, turn });
    }

    fn tagged(&self, turn: Turn, version: Option<&str>, tags: Tags) {
        let kind = match self.cause.action {
            Action::PutTags => EventKind::TaggingPut,
            Action::DeleteTags => EventKind::TaggingDelete,
            // Tags set within another action are shown by that action's own event.
            _ => return,
        };
        let version = shown_version(version.map(Into::into));
        let known = Described { version, tags, ..Described::default() };
        self.note(Change { kind, known, needs_look: true, turn });
    }
}

impl Watched {
    pub(super) fn new(bucket: Bucket, cause: Cause, notifier: Arc<Notifier>) -> Self {
        Self { changes: Arc::new(Changes { bucket, cause, notifier, made: Mutex::default() }) }
    }

    fn inner(&self) -> &dyn ObjectStore {
        self.changes.store()
    }

    /// Runs a call to its end, even if the caller stops waiting.
    async fn run<T, Work>(&self, call: impl FnOnce(Arc<Changes>) -> Work) -> Result<T>
    where
        T: Send + 'static,
        Work: Future<Output = Result<T>> + Send + 'static,
    {
        to_the_end(call(Arc::clone(&self.changes))).await
    }
}

async fn to_the_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Unavailable("the endpoint ends".to_owned())),
        },
    }
}

fn no_such_calls() -> StoreError {
    StoreError::Unsupported("the store has no such calls".to_owned())
}

#[async_trait::async_trait]
impl ObjectStore for Watched {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        self.inner().get(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.inner().head(key).await
    }

    async fn find(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>> {
        self.inner().find(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let key = key.clone();
        let put = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&key);
            let known = of_put(&options, body.len());
            let object = changes.store().put(&key, body, options).await?;
            changes.created(turn, &object, Some(known));
            Ok(object)
        };
        self.run(put).await
    }

    async fn writer(&self, key: &ObjectKey, len_bytes: Option<u64>) -> Result<Option<Box<dyn ObjectWriter>>> {
        let Some(inner) = self.inner().writer(key, len_bytes).await? else { return Ok(None) };
        let (changes, key) = (Arc::clone(&self.changes), key.clone());
        Ok(Some(Box::new(WatchedWriter { inner, changes, key, size_bytes: 0 })))
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let known = of_attributes(&attributes, tags.clone());
        let upload = self.inner().multipart(key, attributes, tags).await?;
        let (changes, key) = (Arc::clone(&self.changes), key.clone());
        Ok(Arc::new(WatchedUpload { upload, changes, key, known, size_bytes: AtomicU64::new(0) }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let (from, to) = (from.clone(), to.clone());
        let copy = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&to);
            let object = changes.store().copy(&from, &to, options).await?;
            changes.created(turn, &object, None);
            Ok(object)
        };
        self.run(copy).await
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        let rename = |changes: Arc<Changes>| async move {
            let turns = (changes.begin(&to), changes.begin(&from.key));
            changes.store().rename(&from, &to, precondition).await?;
            let leaves_marker = match changes.store().versions() {
                Some(versions) => versions.state().await.is_ok_and(|state| state != Versioning::Never),
                None => false,
            };
            let known = Described::default();
            let kind = changes.cause.action.created();
            changes.note(Change { kind, known, needs_look: true, turn: turns.0 });
            changes.removed(turns.1, leaves_marker, &Deleted::default());
            Ok(())
        };
        self.run(rename).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let key = key.clone();
        let delete = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&key);
            changes.store().delete(&key, precondition).await?;
            changes.removed(turn, false, &Deleted::default());
            Ok(())
        };
        self.run(delete).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.inner().list(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.inner().tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let key = key.clone();
        let set = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&key);
            changes.store().set_tags(&key, tags.clone()).await?;
            changes.tagged(turn, None, tags);
            Ok(())
        };
        self.run(set).await
    }

    async fn sync(&self) -> Result<()> {
        self.inner().sync().await
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        self.inner().uploads().map(|_| self as &dyn Uploads)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        self.inner().settings()
    }

    fn versions(&self) -> Option<&dyn Versions> {
        self.inner().versions().map(|_| self as &dyn Versions)
    }
}

fn of_put(options: &PutOptions, size_bytes: u64) -> Described {
    Described { size_bytes: Some(size_bytes), ..of_attributes(&options.attributes, options.tags.clone()) }
}

/// A streaming writer that records the stored object.
#[derive(Debug)]
struct WatchedWriter {
    inner: Box<dyn ObjectWriter>,
    changes: Arc<Changes>,
    key: ObjectKey,
    size_bytes: u64,
}

#[async_trait::async_trait]
impl ObjectWriter for WatchedWriter {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        self.size_bytes += piece.len() as u64;
        self.inner.write(piece).await
    }

    async fn finish(self: Box<Self>, options: PutOptions) -> Result<ObjectRef> {
        let Self { inner, changes, key, size_bytes } = *self;
        to_the_end(async move {
            let turn = changes.begin(&key);
            let known = of_put(&options, size_bytes);
            let object = inner.finish(options).await?;
            changes.created(turn, &object, Some(known));
            Ok(object)
        })
        .await
    }
}

/// A multipart upload that records the completed object.
#[derive(Debug)]
struct WatchedUpload {
    upload: Arc<dyn Multipart>,
    changes: Arc<Changes>,
    key: ObjectKey,
    known: Described,
    size_bytes: AtomicU64,
}

#[async_trait::async_trait]
impl Multipart for WatchedUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.size_bytes.fetch_add(body.len(), Ordering::Relaxed);
        self.upload.put_part(number, body).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        self.size_bytes.fetch_add(range.end.saturating_sub(range.start), Ordering::Relaxed);
        self.upload.copy_part(number, from, range).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let size_bytes = Some(self.size_bytes.load(Ordering::Relaxed));
        let known = Described { size_bytes, ..self.known.clone() };
        let (upload, changes, key) = (Arc::clone(&self.upload), Arc::clone(&self.changes), self.key.clone());
        to_the_end(async move {
            let turn = changes.begin(&key);
            let object = upload.complete(precondition).await?;
            changes.created(turn, &object, Some(known));
            Ok(object)
        })
        .await
    }

    async fn abort(&self) -> Result<()> {
        self.upload.abort().await
    }
}

#[async_trait::async_trait]
impl Uploads for Watched {
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> Result<String> {
        self.inner().uploads().ok_or_else(no_such_calls)?.begin(key, attributes, tags).await
    }

    async fn find(&self, key: &ObjectKey, id: &str) -> Result<Upload> {
        self.inner().uploads().ok_or_else(no_such_calls)?.find(key, id).await
    }

    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, Result<Bytes>>,
        note: PartNote<'_>,
    ) -> Result<Part> {
        self.inner().uploads().ok_or_else(no_such_calls)?.put_part(key, id, number, body, note).await
    }

    async fn parts(&self, key: &ObjectKey, id: &str) -> Result<Vec<Part>> {
        self.inner().uploads().ok_or_else(no_such_calls)?.parts(key, id).await
    }

    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> Result<ObjectRef> {
        let (key, id, numbers) = (key.clone(), id.to_owned(), numbers.to_vec());
        let complete = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&key);
            let uploads = changes.store().uploads().ok_or_else(no_such_calls)?;
            let object = uploads.complete(&key, &id, &numbers, options).await?;
            changes.created(turn, &object, None);
            Ok(object)
        };
        self.run(complete).await
    }

    async fn abort(&self, key: &ObjectKey, id: &str) -> Result<()> {
        self.inner().uploads().ok_or_else(no_such_calls)?.abort(key, id).await
    }

    async fn list(&self, prefix: &[u8]) -> Result<Vec<Upload>> {
        self.inner().uploads().ok_or_else(no_such_calls)?.list(prefix).await
    }
}

#[async_trait::async_trait]
impl Versions for Watched {
    async fn state(&self) -> Result<Versioning> {
        self.inner().versions().ok_or_else(no_such_calls)?.state().await
    }

    async fn set_state(&self, state: Versioning) -> Result<()> {
        self.inner().versions().ok_or_else(no_such_calls)?.set_state(state).await
    }

    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version> {
        self.inner().versions().ok_or_else(no_such_calls)?.find(key, id).await
    }

    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted> {
        let (key, id) = (key.clone(), id.to_owned());
        let remove = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&key);
            let versions = changes.store().versions().ok_or_else(no_such_calls)?;
            let deleted = versions.remove(&key, &id, removal).await?;
            changes.removed(turn, false, &deleted);
            Ok(deleted)
        };
        self.run(remove).await
    }

    async fn mark(&self, key: &ObjectKey, precondition: Precondition) -> Result<Deleted> {
        let key = key.clone();
        let mark = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&key);
            let versions = changes.store().versions().ok_or_else(no_such_calls)?;
            let deleted = versions.mark(&key, precondition).await?;
            changes.removed(turn, deleted.is_marker, &deleted);
            Ok(deleted)
        };
        self.run(mark).await
    }

    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        self.inner().versions().ok_or_else(no_such_calls)?.list(request).await
    }

    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags> {
        self.inner().versions().ok_or_else(no_such_calls)?.tags(key, id).await
    }

    async fn set_tags(&self, key: &ObjectKey, id: &str, tags: Tags) -> Result<()> {
        let (key, id) = (key.clone(), id.to_owned());
        let set = |changes: Arc<Changes>| async move {
            let turn = changes.begin(&key);
            let versions = changes.store().versions().ok_or_else(no_such_calls)?;
            versions.set_tags(&key, &id, tags.clone()).await?;
            changes.tagged(turn, Some(&id), tags);
            Ok(())
        };
        self.run(set).await
    }

    async fn set_retention(
        &self,
        key: &ObjectKey,
        id: &str,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()> {
        let versions = self.inner().versions().ok_or_else(no_such_calls)?;
        versions.set_retention(key, id, retention, bypass_governance).await
    }

    async fn set_legal_hold(&self, key: &ObjectKey, id: &str, is_held: bool) -> Result<()> {
        self.inner().versions().ok_or_else(no_such_calls)?.set_legal_hold(key, id, is_held).await
    }
}
