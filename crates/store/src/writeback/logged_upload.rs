//! An object in parts: their bytes are in the log as they come, and complete makes one change of them.
//!
//! Bytes of an object that is not complete cannot go up as a change. Where the log's disk is full of them, they and all later
//! parts go into an upload in the bucket instead.

use super::early_upload::{Early, EarlyUpload};
use super::make_change::NewObject;
use super::pending::{Piece, Waiting, slice};
use super::{Held, Hurry, Source, Writeback, reference};
use crate::{
    Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result, StoreError, Tags, blocking,
    byte_range,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct WaitingUpload {
    writeback: Arc<Writeback>,
    key: ObjectKey,
    attributes: Attributes,
    tags: Tags,
    parts: Mutex<Option<BTreeMap<u32, Part>>>,
    /// The upload in the bucket, where the log had no room.
    direct: tokio::sync::Mutex<Option<Arc<dyn Multipart>>>,
    early: Mutex<Progress>,
}

/// Whether parts go up before the object is complete.
#[derive(Debug, Default)]
enum Progress {
    /// The object is short so far.
    #[default]
    Short,
    Begun(EarlyUpload),
    /// Never: parts are copied, or one was given twice.
    Off,
}

/// A part's bytes, and what they are copied from.
#[derive(Debug, Clone)]
struct Part {
    /// Empty: the part is in the upload in the bucket.
    pieces: Vec<Piece>,
    _held: Option<Arc<Held>>,
}

impl Part {
    /// Whether another part has the same bytes of the log.
    fn is_as_given(&self, other: &Self) -> bool {
        let place = |piece: &Piece| match piece {
            Piece::Here(segment, range) => Some((segment.number, range.clone())),
            Piece::There(..) => None,
        };
        self.pieces.iter().map(place).eq(other.pieces.iter().map(place))
    }

    fn sent() -> Self {
        Self { pieces: Vec::new(), _held: None }
    }
}

impl WaitingUpload {
    pub(super) fn new(writeback: Arc<Writeback>, key: ObjectKey, attributes: Attributes, tags: Tags) -> Self {
        let (parts, direct) = (Mutex::new(Some(BTreeMap::new())), tokio::sync::Mutex::default());
        Self { writeback, key, attributes, tags, parts, direct, early: Mutex::default() }
    }

    /// Begins the upload in the bucket, and brings there what is in the log.
    async fn send_directly(&self) -> Result<Arc<dyn Multipart>> {
        let mut direct = self.direct.lock().await;
        let upload = match &*direct {
            Some(upload) => upload.clone(),
            None => {
                tracing::info!(key = %self.key, "the write-back log has no room for the object, which goes straight to the bucket");
                let upload = match self.go_on_with_early().await {
                    Some(upload) => upload,
                    None => {
                        let (attributes, tags) = (self.attributes.clone(), self.tags.clone());
                        self.writeback.bucket.multipart(&self.key, attributes, tags).await?
                    }
                };
                direct.insert(upload).clone()
            }
        };
        let parts = self.parts().clone().ok_or_else(ended)?;
        for (number, part) in parts.into_iter().filter(|(_, part)| !part.pieces.is_empty()) {
            let described = self.writeback.describe(Attributes::default(), Tags::new());
            let object = Waiting { described, pieces: part.pieces, early: Early::default() };
            let range = 0..object.size_bytes();
            self.writeback.send_part(&object, upload.as_ref(), number, range).await?;
            self.keep(number, Part::sent())?;
        }
        let log = self.writeback.clone();
        blocking(move || log.log.reclaim()).await.map_err(super::failed)?;
        Ok(upload)
    }

    /// Completes the upload in the bucket, after everything that it may follow.
    async fn complete_directly(&self, upload: &dyn Multipart, asked: &Precondition) -> Result<ObjectRef> {
        let writeback = &*self.writeback;
        writeback.hurried.fetch_add(1, Ordering::AcqRel);
        let _hurry = Hurry(writeback);
        let mut wait = writeback.begin_wait();
        loop {
            let lighter = writeback.lighter.notified();
            if writeback.pending().get(&self.key).is_none() {
                break;
            }
            writeback.wait_for_room("an earlier change does not go up".into(), lighter, &mut wait).await?;
        }
        // The object that goes may be needed by what the log could still lose.
        writeback.sync_log().await?;
        let object = upload.complete(writeback.there(&self.key, asked)).await?;
        writeback.went_up.fetch_add(1, Ordering::AcqRel);
        writeback.lighter.notify_waiters();
        Ok(object)
    }

    /// The upload in the bucket, if there is one.
    async fn direct(&self) -> Option<Arc<dyn Multipart>> {
        self.direct.lock().await.clone()
    }

    fn parts(&self) -> MutexGuard<'_, Option<BTreeMap<u32, Part>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, number: u32, part: Part) -> Result<()> {
        match self.parts().as_mut() {
            Some(parts) => {
                parts.insert(number, part);
                Ok(())
            }
            None => Err(ended()),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The upload that began early, once the bucket has the parts that were given to it.
    async fn go_on_with_early(&self) -> Option<Arc<dyn Multipart>> {
        let (early, given) = {
            let mut progress = self.progress();
            let Progress::Begun(early) = std::mem::replace(&mut *progress, Progress::Off) else {
                return None;
            };
            (early, self.parts().clone().unwrap_or_default())
        };
        let upload = early.finish().await.ok()?;
        for (number, part) in self.parts().iter_mut().flatten() {
            // A part that was replaced meanwhile is not there.
            if given.get(number).is_some_and(|given| given.is_as_given(part)) {
                *part = Part::sent();
            }
        }
        Some(upload)
    }

    fn take_early(&self) -> Option<EarlyUpload> {
        match std::mem::replace(&mut *self.progress(), Progress::Off) {
            Progress::Begun(upload) => Some(upload),
            Progress::Short | Progress::Off => None,
        }
    }

    /// Keeps a part that is in the log, and sends it up if the object is long.
    fn keep_and_send(&self, number: u32, pieces: Vec<Piece>, body: Payload) -> Result<()> {
        let mut progress = self.progress();
        let is_first = self.parts().as_ref().is_some_and(|parts| !parts.contains_key(&number));
        self.keep(number, Part { pieces: pieces.clone(), _held: None })?;
        let memory = &self.writeback.send_memory;
        match &*progress {
            Progress::Off => {}
            _ if !is_first => *progress = Progress::Off,
            Progress::Begun(upload) => upload.put(number, pieces, Some(body), memory),
            Progress::Short => {
                let parts = self.parts().clone().unwrap_or_default();
                let bytes: u64 = parts.values().flat_map(|part| &part.pieces).map(Piece::len).sum();
                if bytes >= self.writeback.options.early_bytes {
                    let (bucket, key) = (self.writeback.bucket.clone(), self.key.clone());
                    let (attributes, tags) = (self.attributes.clone(), self.tags.clone());
                    let upload = EarlyUpload::begin(bucket, key, attributes, tags, memory.clone());
                    for (number, part) in parts {
                        upload.put(number, part.pieces, None, memory);
                    }
                    *progress = Progress::Begun(upload);
                }
            }
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Multipart for WaitingUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        check_number(number)?;
        let upload = match self.direct().await {
            Some(upload) => upload,
            None => {
                self.writeback.admit(body.len()).await?;
                match self.writeback.append_bytes(&body).await {
                    // Nothing is left that could go up and make room.
                    Err(full @ StoreError::Full(_)) if self.writeback.pending().len() == 0 => {
                        self.send_directly().await.map_err(|_| full)?
                    }
                    pieces => return self.keep_and_send(number, pieces?, body),
                }
            }
        };
        upload.put_part(number, body).await?;
        self.keep(number, Part::sent())
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        check_number(number)?;
        let Source { pieces, held, .. } = self.writeback.source(from).await?;
        let size = pieces.iter().map(Piece::len).sum();
        let range = byte_range::inside(&from.key, range, size)?;
        *self.progress() = Progress::Off;
        self.keep(number, Part { pieces: slice(&pieces, &range), _held: Some(Arc::new(held)) })
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let parts = self.parts().clone().ok_or_else(ended)?;
        if parts.is_empty() {
            return Err(StoreError::Invalid("an upload has at least one part".into()));
        }
        if self.direct().await.is_some() {
            let upload = self.send_directly().await?;
            let object = self.complete_directly(upload.as_ref(), &precondition).await?;
            *self.parts() = None;
            return Ok(object);
        }
        let asked = self.writeback.check_there(&self.key, &precondition).await?;
        let described = self.writeback.describe(self.attributes.clone(), self.tags.clone());
        let object = reference(&self.key, &described);
        let pieces = parts.values().flat_map(|part| part.pieces.clone()).collect();
        let new = NewObject { described, pieces, early: Early::of(self.take_early()) };
        self.writeback.change(&self.key, &asked, Some(new), Payload::default()).await?;
        *self.parts() = None;
        Ok(object)
    }

    async fn abort(&self) -> Result<()> {
        *self.progress() = Progress::Off;
        *self.parts() = None;
        match self.direct().await {
            Some(upload) => upload.abort().await,
            None => Ok(()),
        }
    }
}

fn check_number(number: u32) -> Result<()> {
    match number {
        1..=10_000 => Ok(()),
        _ => Err(StoreError::Invalid("parts have numbers from 1 to 10,000".into())),
    }
}

fn ended() -> StoreError {
    StoreError::Invalid("the upload has ended".into())
}
