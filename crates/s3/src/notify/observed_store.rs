//! A store wrapper that records changes and emits their events.
//!
//! The wrapper lives as long as a request or one deletion by a lifecycle rule, and emits the events when it is dropped,
//! so that they show the objects as the request left them.
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
    MakePartNote, Multipart, Object, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, ObjectWriter, Part,
    Payload, Precondition, PutOptions, Removal, Result, Retention, Settings, StoreError, Tags, Upload,
    Uploads, Version, VersionEntry, Versioning, Versions,
};

use super::in_flight::CallGuard;
use super::{Cause, Change, Notifier, describe_attributes, shown_version};
use crate::bucket::Bucket;
use crate::operations::Mutation;

/// A bucket's store that records the changes made through it.
#[derive(Debug)]
pub(super) struct ObservedStore {
    changes: Arc<RecordedChanges>,
}

/// The changes that a request has made so far.
#[derive(Debug)]
struct RecordedChanges {
    bucket: Bucket,
    cause: Cause,
    notifier: Arc<Notifier>,
    /// Changes whose events are queued when this is dropped.
    made: Mutex<Vec<Change>>,
}

impl Drop for RecordedChanges {
    fn drop(&mut self) {
        let made = std::mem::take(self.made.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.notifier.enqueue(&self.bucket, &self.cause, made);
    }
}

impl RecordedChanges {
    fn store(&self) -> &dyn ObjectStore {
        self.bucket.store.as_ref()
    }

    fn uploads(&self) -> Result<&dyn Uploads> {
        self.store().uploads().ok_or_else(unsupported)
    }

    fn versions(&self) -> Result<&dyn Versions> {
        self.store().versions().ok_or_else(unsupported)
    }

    fn begin(&self, key: &ObjectKey) -> CallGuard {
        self.notifier.in_flight.begin(&self.bucket.name, key)
    }

    /// Adds a change. Its event is queued when this is dropped.
    fn record(&self, change: Change) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    /// Records a stored object. Without `known`, the object is read later for the event's details.
    fn record_stored(&self, guard: CallGuard, object: &ObjectRef, known: Option<Described>) {
        let needs_read = known.is_none();
        let known = Described {
            etag: Some(object.etag.clone()),
            version: shown_version(object.version.clone()),
            ..known.unwrap_or_default()
        };
        self.record(Change { kind: self.cause.mutation.created_kind(), known, needs_read, guard });
    }

    /// Adds the change of a deletion.
    fn record_removed(&self, guard: CallGuard, leaves_marker: bool, deleted: &Deleted) {
        let known = Described { version: shown_version(deleted.version.clone()), ..Described::default() };
        let kind = self.cause.mutation.removed_kind(leaves_marker);
        self.record(Change { kind, known, needs_read: false, guard });
    }

    fn record_tagged(&self, guard: CallGuard, version: Option<&str>, tags: Tags) {
        let kind = match self.cause.mutation {
            Mutation::PutTags => EventKind::TaggingPut,
            Mutation::DeleteTags => EventKind::TaggingDelete,
            // Tags set within another action are shown by that action's own event.
            _ => return,
        };
        let version = shown_version(version.map(Into::into));
        let known = Described { version, tags, ..Described::default() };
        self.record(Change { kind, known, needs_read: true, guard });
    }
}

impl ObservedStore {
    pub(super) fn new(bucket: Bucket, cause: Cause, notifier: Arc<Notifier>) -> Self {
        Self { changes: Arc::new(RecordedChanges { bucket, cause, notifier, made: Mutex::default() }) }
    }

    fn inner(&self) -> &dyn ObjectStore {
        self.changes.store()
    }

    /// Runs a call to its end, even if the caller stops waiting.
    async fn run<T, Work>(&self, call: impl FnOnce(Arc<RecordedChanges>) -> Work) -> Result<T>
    where
        T: Send + 'static,
        Work: Future<Output = Result<T>> + Send + 'static,
    {
        run_to_completion(call(Arc::clone(&self.changes))).await
    }
}

/// Runs work that continues if its caller is dropped, so that a change that was made has its event.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(store::work_for(store::current_cause(), work)).await {
        Ok(outcome) => outcome,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Unavailable("the endpoint is shutting down".to_owned())),
        },
    }
}

fn unsupported() -> StoreError {
    StoreError::Unsupported("the store does not support this call".to_owned())
}

#[async_trait::async_trait]
impl ObjectStore for ObservedStore {
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
        let put = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&key);
            let known = describe_put(&options, body.len());
            let object = changes.store().put(&key, body, options).await?;
            changes.record_stored(guard, &object, Some(known));
            Ok(object)
        };
        self.run(put).await
    }

    async fn writer(&self, key: &ObjectKey, len_bytes: Option<u64>) -> Result<Option<Box<dyn ObjectWriter>>> {
        let Some(inner) = self.inner().writer(key, len_bytes).await? else { return Ok(None) };
        let (changes, key) = (Arc::clone(&self.changes), key.clone());
        Ok(Some(Box::new(ObservedWriter { inner, changes, key, size_bytes: 0 })))
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let known = describe_attributes(&attributes, tags.clone());
        let upload = self.inner().multipart(key, attributes, tags).await?;
        let (changes, key) = (Arc::clone(&self.changes), key.clone());
        Ok(Arc::new(ObservedUpload { upload, changes, key, known, size_bytes: AtomicU64::new(0) }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let (from, to) = (from.clone(), to.clone());
        let copy = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&to);
            let object = changes.store().copy(&from, &to, options).await?;
            changes.record_stored(guard, &object, None);
            Ok(object)
        };
        self.run(copy).await
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        let rename = |changes: Arc<RecordedChanges>| async move {
            let guards = (changes.begin(&to), changes.begin(&from.key));
            changes.store().rename(&from, &to, precondition).await?;
            let leaves_marker = match changes.store().versions() {
                Some(versions) => versions.state().await.is_ok_and(|state| state != Versioning::Never),
                None => false,
            };
            let known = Described::default();
            let kind = changes.cause.mutation.created_kind();
            changes.record(Change { kind, known, needs_read: true, guard: guards.0 });
            changes.record_removed(guards.1, leaves_marker, &Deleted::default());
            Ok(())
        };
        self.run(rename).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let key = key.clone();
        let delete = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&key);
            changes.store().delete(&key, precondition).await?;
            changes.record_removed(guard, false, &Deleted::default());
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
        let set = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&key);
            changes.store().set_tags(&key, tags.clone()).await?;
            changes.record_tagged(guard, None, tags);
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

fn describe_put(options: &PutOptions, size_bytes: u64) -> Described {
    Described {
        size_bytes: Some(size_bytes),
        ..describe_attributes(&options.attributes, options.tags.clone())
    }
}

/// A streaming writer that records the stored object.
#[derive(Debug)]
struct ObservedWriter {
    inner: Box<dyn ObjectWriter>,
    changes: Arc<RecordedChanges>,
    key: ObjectKey,
    /// Bytes written so far.
    size_bytes: u64,
}

#[async_trait::async_trait]
impl ObjectWriter for ObservedWriter {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        self.size_bytes += piece.len() as u64;
        self.inner.write(piece).await
    }

    async fn finish(self: Box<Self>, options: PutOptions) -> Result<ObjectRef> {
        let Self { inner, changes, key, size_bytes } = *self;
        run_to_completion(async move {
            let guard = changes.begin(&key);
            let known = describe_put(&options, size_bytes);
            let object = inner.finish(options).await?;
            changes.record_stored(guard, &object, Some(known));
            Ok(object)
        })
        .await
    }
}

/// A multipart upload that records the completed object.
#[derive(Debug)]
struct ObservedUpload {
    upload: Arc<dyn Multipart>,
    changes: Arc<RecordedChanges>,
    key: ObjectKey,
    /// The properties of the object that are known from the call that began the upload.
    known: Described,
    /// Bytes of the parts so far.
    size_bytes: AtomicU64,
}

#[async_trait::async_trait]
impl Multipart for ObservedUpload {
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
        run_to_completion(async move {
            let guard = changes.begin(&key);
            let object = upload.complete(precondition).await?;
            changes.record_stored(guard, &object, Some(known));
            Ok(object)
        })
        .await
    }

    async fn abort(&self) -> Result<()> {
        self.upload.abort().await
    }
}

#[async_trait::async_trait]
impl Uploads for ObservedStore {
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> Result<String> {
        self.changes.uploads()?.begin(key, attributes, tags).await
    }

    async fn find(&self, key: &ObjectKey, id: &str) -> Result<Upload> {
        self.changes.uploads()?.find(key, id).await
    }

    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, Result<Bytes>>,
        make_note: MakePartNote<'_>,
    ) -> Result<Part> {
        self.changes.uploads()?.put_part(key, id, number, body, make_note).await
    }

    async fn parts(&self, key: &ObjectKey, id: &str) -> Result<Vec<Part>> {
        self.changes.uploads()?.parts(key, id).await
    }

    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> Result<ObjectRef> {
        let (key, id, numbers) = (key.clone(), id.to_owned(), numbers.to_vec());
        let complete = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&key);
            let uploads = changes.uploads()?;
            let object = uploads.complete(&key, &id, &numbers, options).await?;
            changes.record_stored(guard, &object, None);
            Ok(object)
        };
        self.run(complete).await
    }

    async fn abort(&self, key: &ObjectKey, id: &str) -> Result<()> {
        self.changes.uploads()?.abort(key, id).await
    }

    async fn list(&self, prefix: &[u8]) -> Result<Vec<Upload>> {
        self.changes.uploads()?.list(prefix).await
    }
}

#[async_trait::async_trait]
impl Versions for ObservedStore {
    async fn state(&self) -> Result<Versioning> {
        self.changes.versions()?.state().await
    }

    async fn set_state(&self, state: Versioning) -> Result<()> {
        self.changes.versions()?.set_state(state).await
    }

    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version> {
        self.changes.versions()?.find(key, id).await
    }

    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted> {
        let (key, id) = (key.clone(), id.to_owned());
        let remove = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&key);
            let versions = changes.versions()?;
            let deleted = versions.remove(&key, &id, removal).await?;
            changes.record_removed(guard, false, &deleted);
            Ok(deleted)
        };
        self.run(remove).await
    }

    async fn mark(&self, key: &ObjectKey, precondition: Precondition) -> Result<Deleted> {
        let key = key.clone();
        let mark = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&key);
            let versions = changes.versions()?;
            let deleted = versions.mark(&key, precondition).await?;
            changes.record_removed(guard, deleted.is_marker, &deleted);
            Ok(deleted)
        };
        self.run(mark).await
    }

    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        self.changes.versions()?.list(request).await
    }

    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags> {
        self.changes.versions()?.tags(key, id).await
    }

    async fn set_tags(&self, key: &ObjectKey, id: &str, tags: Tags) -> Result<()> {
        let (key, id) = (key.clone(), id.to_owned());
        let set = |changes: Arc<RecordedChanges>| async move {
            let guard = changes.begin(&key);
            let versions = changes.versions()?;
            versions.set_tags(&key, &id, tags.clone()).await?;
            changes.record_tagged(guard, Some(&id), tags);
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
        let versions = self.changes.versions()?;
        versions.set_retention(key, id, retention, bypass_governance).await
    }

    async fn set_legal_hold(&self, key: &ObjectKey, id: &str, is_held: bool) -> Result<()> {
        self.changes.versions()?.set_legal_hold(key, id, is_held).await
    }
}
