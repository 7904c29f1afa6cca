//! Uploads that begin before their object is complete: its parts go into an upload in the bucket while later ones are written.
//!
//! Invariants: only the change that goes up completes such an upload, under the change's condition; a failure costs the upload
//! and nothing else, because the log has every byte; a part that finds no free memory is read from the log once there is some;
//! whoever holds that memory waits for nothing but the bucket.

use super::failed;
use super::pending::Extent;
use crate::{Attributes, Multipart, ObjectKey, ObjectStore, Payload, Result, StoreError, Tags};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

/// Parts of one object under way at the same time.
const CONCURRENT_PARTS: usize = 4;
/// Unit of [`SendMemory`], in bytes.
const UNIT_BYTES: u64 = 64 << 10;

/// Memory for bodies on their way to the bucket.
#[derive(Debug, Clone)]
pub(super) struct SendMemory {
    free: Arc<Semaphore>,
    units: u32,
}

impl SendMemory {
    pub(super) fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX >> 4).clamp(1, u32::MAX >> 4);
        Self { free: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// A body longer than all memory takes all of it.
    fn units(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.units)
    }

    /// Waits for memory for a body.
    pub(super) async fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let taken = self.free.clone().acquire_many_owned(self.units(bytes)).await;
        taken.map_err(|_| StoreError::Unavailable("the write-back log is closed".into()))
    }

    /// Takes memory for a body if there is some now.
    fn try_take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_many_owned(self.units(bytes)).ok()
    }
}

/// The early upload of an object, until the change that goes up takes it.
#[derive(Debug, Clone, Default)]
pub(super) struct EarlyUploadSlot(Arc<Mutex<Option<EarlyUpload>>>);

impl EarlyUploadSlot {
    pub(super) fn of(upload: Option<EarlyUpload>) -> Self {
        Self(Arc::new(Mutex::new(upload)))
    }

    /// Takes the upload, if it is one to this key.
    pub(super) fn take(&self, key: &ObjectKey) -> Option<EarlyUpload> {
        let mut upload = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        upload.take_if(|upload| upload.key == *key)
    }
}

/// An upload in the bucket; dropping it aborts the upload.
#[derive(Debug)]
pub(super) struct EarlyUpload {
    key: ObjectKey,
    steps: mpsc::UnboundedSender<UploadStep>,
    /// Parts given that the bucket has not taken yet.
    outstanding: Arc<AtomicUsize>,
    /// Closed when this is dropped.
    _alive: oneshot::Sender<()>,
}

#[derive(Debug)]
enum UploadStep {
    Part(EarlyPart),
    Finish(oneshot::Sender<Result<Arc<dyn Multipart>>>),
}

#[derive(Debug)]
struct EarlyPart {
    number: u32,
    /// Where the log has it.
    extents: Vec<Extent>,
    /// The bytes, where there was memory for them.
    body: Option<(Payload, OwnedSemaphorePermit)>,
}

impl EarlyUpload {
    /// Begins the upload in the background.
    pub(super) fn begin(
        bucket: Arc<dyn ObjectStore>,
        key: ObjectKey,
        attributes: Attributes,
        tags: Tags,
        memory: SendMemory,
    ) -> Self {
        let (steps, receiver) = mpsc::unbounded_channel();
        let (alive, dropped) = oneshot::channel();
        let (target, outstanding) = (key.clone(), Arc::new(AtomicUsize::new(0)));
        let unsent = outstanding.clone();
        tokio::spawn(async move {
            let upload = bucket.multipart(&target, attributes, tags).await;
            UploadTask { upload, memory, outstanding: unsent, parts: JoinSet::new() }
                .run(receiver, dropped)
                .await;
        });
        Self { key, steps, outstanding, _alive: alive }
    }

    /// Sends a part, now or later. The upload takes its bytes from memory if `memory` has room, or else from the log.
    pub(super) fn put(&self, number: u32, extents: Vec<Extent>, body: Option<Payload>, memory: &SendMemory) {
        // A part that waits for others must not hold memory that they may be waiting for.
        let is_next = self.outstanding.fetch_add(1, Ordering::AcqRel) < CONCURRENT_PARTS;
        let body = body.filter(|_| is_next);
        let body = body.and_then(|body| memory.try_take(body.len()).map(|taken| (body, taken)));
        // An upload that has ended says so when it is finished.
        let _ = self.steps.send(UploadStep::Part(EarlyPart { number, extents, body }));
    }

    /// Waits until the bucket has all parts and returns the upload, to be completed or aborted.
    pub(super) async fn finish(self) -> Result<Arc<dyn Multipart>> {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError::Unavailable("an upload was cut off".into());
        self.steps.send(UploadStep::Finish(reply)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

/// The task of an upload.
struct UploadTask {
    upload: Result<Arc<dyn Multipart>>,
    memory: SendMemory,
    outstanding: Arc<AtomicUsize>,
    parts: JoinSet<Result<()>>,
}

impl UploadTask {
    async fn run(
        mut self,
        mut steps: mpsc::UnboundedReceiver<UploadStep>,
        mut dropped: oneshot::Receiver<()>,
    ) {
        loop {
            tokio::select! {
                biased;
                _ = &mut dropped => return self.abort().await,
                Some(sent) = self.parts.join_next() => self.handle_sent(sent).await,
                step = steps.recv(), if self.parts.len() < CONCURRENT_PARTS => match step {
                    Some(UploadStep::Part(part)) => self.send(part),
                    Some(UploadStep::Finish(reply)) => return self.finish(reply).await,
                    None => return self.abort().await,
                },
            }
        }
    }

    fn send(&mut self, part: EarlyPart) {
        let Ok(upload) = self.upload.clone() else { return };
        let memory = self.memory.clone();
        self.parts.spawn(async move {
            let (body, _taken) = match part.body {
                Some(body) => body,
                None => {
                    let taken = memory.take(part.extents.iter().map(Extent::len).sum()).await?;
                    (read(&part.extents)?, taken)
                }
            };
            upload.put_part(part.number, body).await
        });
    }

    /// After a failure nothing more is sent.
    async fn handle_sent(&mut self, sent: std::result::Result<Result<()>, tokio::task::JoinError>) {
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
        let Err(error) = sent.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string()))) else {
            return;
        };
        self.parts.shutdown().await;
        if let Ok(upload) = std::mem::replace(&mut self.upload, Err(error)) {
            upload.abort().await.ok();
        }
    }

    async fn finish(mut self, reply: oneshot::Sender<Result<Arc<dyn Multipart>>>) {
        while let Some(sent) = self.parts.join_next().await {
            self.handle_sent(sent).await;
        }
        if let Err(Ok(unheard)) = reply.send(self.upload) {
            unheard.abort().await.ok();
        }
    }

    async fn abort(mut self) {
        self.parts.shutdown().await;
        if let Ok(upload) = self.upload {
            upload.abort().await.ok();
        }
    }
}

fn read(extents: &[Extent]) -> Result<Payload> {
    let read = |extent: &Extent| match extent {
        Extent::Log(segment, range) => segment.read(range).map_err(failed),
        Extent::Bucket(object, _) => Err(StoreError::NotFound(object.key.clone())),
    };
    extents.iter().map(read).collect()
}
