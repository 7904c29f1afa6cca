//! Multipart uploads: parts are appended to the log as they come, and `complete` makes one change of them.
//!
//! An incomplete object cannot be uploaded as a change. If the log's disk is full of its bytes, they and all later
//! parts go into a multipart upload in the bucket instead.

use super::early_upload::{EarlyUpload, EarlyUploadSlot};
use super::errors::failed;
use super::extent::{Extent, slice_extents};
use super::make_change::NewObject;
use super::object_store::object_ref;
use super::pending::PendingObject;
use super::sources::{CopySource, HeldSources};
use super::{UrgentDrain, Writeback};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{
    Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result, StoreError, Tags, blocking,
    byte_range,
};

/// A multipart upload whose parts go to the log, or to the bucket if the log has no room.
#[derive(Debug)]
pub(super) struct LoggedUpload {
    writeback: Arc<Writeback>,
    key: ObjectKey,
    attributes: Attributes,
    tags: Tags,
    /// The parts by number; `None` once the upload has ended.
    parts: Mutex<Option<BTreeMap<u32, LoggedPart>>>,
    /// The upload in the bucket, if the log had no room.
    bucket_upload: tokio::sync::Mutex<Option<Arc<dyn Multipart>>>,
    /// The state of the early upload, which sends parts to the bucket before the completion.
    early: Mutex<EarlyState>,
}

/// Whether parts are uploaded before the object is complete.
#[derive(Debug, Default)]
enum EarlyState {
    /// The object is still too short for an early upload.
    #[default]
    Short,
    Begun(EarlyUpload),
    /// Parts are not uploaded early: one was copied or given twice, or the early upload was taken over, or the upload
    /// has ended.
    Off,
}

/// A part's bytes, and a guard on the objects that they are in.
#[derive(Debug, Clone)]
struct LoggedPart {
    /// Empty if the part is in the upload in the bucket.
    extents: Vec<Extent>,
    _held: Option<Arc<HeldSources>>,
}

impl LoggedPart {
    /// Returns whether another part has the same bytes of the log.
    fn has_same_log_bytes(&self, other: &Self) -> bool {
        let place = |extent: &Extent| match extent {
            Extent::Log(segment, range) => Some((segment.number, range.clone())),
            Extent::Bucket(..) => None,
        };
        self.extents.iter().map(place).eq(other.extents.iter().map(place))
    }

    /// Returns a part that was sent to the bucket, so that the log does not have it.
    fn sent() -> Self {
        Self { extents: Vec::new(), _held: None }
    }
}

impl LoggedUpload {
    pub(super) fn new(writeback: Arc<Writeback>, key: ObjectKey, attributes: Attributes, tags: Tags) -> Self {
        let (parts, bucket_upload) = (Mutex::new(Some(BTreeMap::new())), tokio::sync::Mutex::default());
        Self { writeback, key, attributes, tags, parts, bucket_upload, early: Mutex::default() }
    }

    /// Begins the upload in the bucket if there is none, and sends it the parts that are in the log. Returns the
    /// upload.
    async fn switch_to_bucket(&self) -> Result<Arc<dyn Multipart>> {
        let mut bucket_upload = self.bucket_upload.lock().await;
        let upload = match &*bucket_upload {
            Some(upload) => upload.clone(),
            None => {
                tracing::info!(key = %self.key, "the write-back log has no room for an object, which is uploaded to the bucket directly");
                let upload = match self.adopt_early_upload().await {
                    Some(upload) => upload,
                    None => {
                        let (attributes, tags) = (self.attributes.clone(), self.tags.clone());
                        self.writeback.bucket.store.multipart(&self.key, attributes, tags).await?
                    }
                };
                bucket_upload.insert(upload).clone()
            }
        };
        let parts = self.parts().clone().ok_or_else(upload_ended)?;
        for (number, part) in parts.into_iter().filter(|(_, part)| !part.extents.is_empty()) {
            let description = self.writeback.stamps.describe(Attributes::default(), Tags::new());
            let object = PendingObject::new(description, part.extents, EarlyUploadSlot::default());
            let range = 0..object.size_bytes();
            self.writeback.bucket.send_part(&object, upload.as_ref(), number, range).await?;
            self.keep(number, LoggedPart::sent())?;
        }
        let writeback = self.writeback.clone();
        blocking(move || writeback.log.reclaim()).await.map_err(failed)?;
        Ok(upload)
    }

    /// Completes the upload in the bucket after all earlier changes of the key are uploaded.
    async fn complete_in_bucket(
        &self,
        upload: &dyn Multipart,
        precondition: &Precondition,
    ) -> Result<ObjectRef> {
        let writeback = &*self.writeback;
        writeback.activity.urgent_callers.fetch_add(1, Ordering::AcqRel);
        let _urgent = UrgentDrain(writeback);
        let mut wait = writeback.begin_wait();
        loop {
            let progress = writeback.activity.progress.notified();
            if writeback.pending().get(&self.key).is_none() {
                break;
            }
            writeback
                .wait_for_room("an earlier change of the key is not uploaded".into(), progress, &mut wait)
                .await?;
        }
        // Earlier records may refer to the object that is replaced. The log must not lose the later records that make
        // those unnecessary.
        writeback.sync_log().await?;
        let condition = writeback.etags.aliases().bucket_condition(&self.key, precondition);
        let object = upload.complete(condition).await?;
        writeback.activity.uploaded.fetch_add(1, Ordering::AcqRel);
        writeback.activity.progress.notify_waiters();
        Ok(object)
    }

    /// Returns the upload in the bucket, if there is one.
    async fn bucket_upload(&self) -> Option<Arc<dyn Multipart>> {
        self.bucket_upload.lock().await.clone()
    }

    fn parts(&self) -> MutexGuard<'_, Option<BTreeMap<u32, LoggedPart>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part, in place of an earlier one of its number. Fails if the upload has ended.
    fn keep(&self, number: u32, part: LoggedPart) -> Result<()> {
        match self.parts().as_mut() {
            Some(parts) => {
                parts.insert(number, part);
                Ok(())
            }
            None => Err(upload_ended()),
        }
    }

    fn early_state(&self) -> MutexGuard<'_, EarlyState> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the early upload once the bucket has the parts that were given to it; `None` if there is none or it
    /// failed.
    async fn adopt_early_upload(&self) -> Option<Arc<dyn Multipart>> {
        let (early, given) = {
            let mut state = self.early_state();
            let EarlyState::Begun(early) = std::mem::replace(&mut *state, EarlyState::Off) else {
                return None;
            };
            (early, self.parts().clone().unwrap_or_default())
        };
        let upload = early.finish().await.ok()?;
        for (number, part) in self.parts().iter_mut().flatten() {
            // A part that was replaced meanwhile is not in the upload.
            if given.get(number).is_some_and(|given| given.has_same_log_bytes(part)) {
                *part = LoggedPart::sent();
            }
        }
        Some(upload)
    }

    /// Takes the early upload, if one was begun. None begins later.
    fn take_early(&self) -> Option<EarlyUpload> {
        match std::mem::replace(&mut *self.early_state(), EarlyState::Off) {
            EarlyState::Begun(upload) => Some(upload),
            EarlyState::Short | EarlyState::Off => None,
        }
    }

    /// Keeps a part that is in the log, and uploads it if the object is long.
    fn keep_and_send(&self, number: u32, extents: Vec<Extent>, body: Payload) -> Result<()> {
        let mut state = self.early_state();
        let is_first = self.parts().as_ref().is_some_and(|parts| !parts.contains_key(&number));
        self.keep(number, LoggedPart { extents: extents.clone(), _held: None })?;
        let memory = &self.writeback.bucket.memory;
        match &*state {
            EarlyState::Off => {}
            _ if !is_first => *state = EarlyState::Off,
            EarlyState::Begun(upload) => upload.put(number, extents, Some(body), memory),
            EarlyState::Short => {
                let parts = self.parts().clone().unwrap_or_default();
                let bytes: u64 = parts.values().flat_map(|part| &part.extents).map(Extent::len).sum();
                if bytes >= self.writeback.options.early_bytes {
                    let (bucket, key) = (self.writeback.bucket.store.clone(), self.key.clone());
                    let (attributes, tags) = (self.attributes.clone(), self.tags.clone());
                    let upload = EarlyUpload::begin(bucket, key, attributes, tags, memory.clone());
                    for (number, part) in parts {
                        upload.put(number, part.extents, None, memory);
                    }
                    *state = EarlyState::Begun(upload);
                }
            }
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Multipart for LoggedUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        check_number(number)?;
        let upload = match self.bucket_upload().await {
            Some(upload) => upload,
            None => {
                self.writeback.admit(body.len()).await?;
                match self.writeback.append_bytes(&body).await {
                    // Nothing is left to upload that would make room.
                    Err(full @ StoreError::Full(_)) if self.writeback.pending().len() == 0 => {
                        self.switch_to_bucket().await.map_err(|_| full)?
                    }
                    extents => return self.keep_and_send(number, extents?, body),
                }
            }
        };
        upload.put_part(number, body).await?;
        self.keep(number, LoggedPart::sent())
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        check_number(number)?;
        let CopySource { extents, held, .. } = self.writeback.copy_source(from).await?;
        let size = extents.iter().map(Extent::len).sum();
        let range = byte_range::require_inside(&from.key, range, size)?;
        *self.early_state() = EarlyState::Off;
        self.keep(
            number,
            LoggedPart { extents: slice_extents(&extents, &range), _held: Some(Arc::new(held)) },
        )
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let parts = self.parts().clone().ok_or_else(upload_ended)?;
        if parts.is_empty() {
            return Err(StoreError::Invalid("an upload needs at least one part".into()));
        }
        if self.bucket_upload().await.is_some() {
            let upload = self.switch_to_bucket().await?;
            let object = self.complete_in_bucket(upload.as_ref(), &precondition).await?;
            *self.parts() = None;
            return Ok(object);
        }
        let condition = self.writeback.check_in_bucket(&self.key, &precondition).await?;
        let description = self.writeback.stamps.describe(self.attributes.clone(), self.tags.clone());
        let object = object_ref(&self.key, &description);
        let extents = parts.values().flat_map(|part| part.extents.clone()).collect();
        let early = EarlyUploadSlot::of(self.take_early());
        let new = NewObject { early, ..NewObject::new(description, extents) };
        self.writeback.make_change(&self.key, &condition, Some(new), Payload::default()).await?;
        *self.parts() = None;
        Ok(object)
    }

    async fn abort(&self) -> Result<()> {
        *self.early_state() = EarlyState::Off;
        *self.parts() = None;
        match self.bucket_upload().await {
            Some(upload) => upload.abort().await,
            None => Ok(()),
        }
    }
}

fn check_number(number: u32) -> Result<()> {
    match number {
        1..=10_000 => Ok(()),
        _ => Err(StoreError::Invalid("part numbers range from 1 to 10,000".into())),
    }
}

fn upload_ended() -> StoreError {
    StoreError::Invalid("the upload has ended".into())
}
