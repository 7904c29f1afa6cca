//! Early uploads: a multipart upload that begins in the bucket while the object is still being written here.
//!
//! Invariants: only the upload of the change completes an early upload, under the change's condition. A failure costs
//! the early upload and nothing else, because the log has every byte. A part that finds no free memory is read from
//! the log once there is some. A part that holds memory waits for nothing but the bucket.

use super::errors::failed;
use super::extent::Extent;
use super::send_memory::SendMemory;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::{Attributes, Multipart, ObjectKey, ObjectStore, Payload, Result, StoreError, Tags};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;

/// Parts of one object uploaded concurrently.
const CONCURRENT_PARTS: usize = 4;
/// The early upload of an object, until the upload of its change takes it.
#[derive(Debug, Clone, Default)]
pub(super) struct EarlyUploadSlot(Arc<Mutex<Option<EarlyUpload>>>);

impl EarlyUploadSlot {
    /// Returns a slot with an upload that was begun, or an empty one.
    pub(super) fn of(upload: Option<EarlyUpload>) -> Self {
        Self(Arc::new(Mutex::new(upload)))
    }

    /// Takes the early upload, if its key is this one.
    pub(super) fn take(&self, key: &ObjectKey) -> Option<EarlyUpload> {
        let mut upload = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        upload.take_if(|upload| upload.key == *key)
    }
}

/// A multipart upload in the bucket. Dropping it aborts the upload.
#[derive(Debug)]
pub(super) struct EarlyUpload {
    key: ObjectKey,
    /// Requests to the task that sends the parts.
    steps: mpsc::UnboundedSender<UploadStep>,
    /// Number of parts that the bucket does not have yet.
    outstanding: Arc<AtomicUsize>,
    /// Closed when the upload is dropped.
    _alive: oneshot::Sender<()>,
}

/// A request to the task of an early upload.
#[derive(Debug)]
enum UploadStep {
    Part(EarlyPart),
    Finish(oneshot::Sender<Result<Arc<dyn Multipart>>>),
}

/// A part to upload early.
#[derive(Debug)]
struct EarlyPart {
    number: u32,
    /// Location of the part in the log.
    extents: Vec<Extent>,
    /// The bytes, if there was memory for them.
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

    /// Sends a part, now or later. Its bytes are kept in memory if `memory` has room, and otherwise read from the
    /// log.
    pub(super) fn put(&self, number: u32, extents: Vec<Extent>, body: Option<Payload>, memory: &SendMemory) {
        // A part that waits for earlier parts must not hold memory that those may wait for.
        let is_next = self.outstanding.fetch_add(1, Ordering::AcqRel) < CONCURRENT_PARTS;
        let body = body.filter(|_| is_next);
        let body = body.and_then(|body| memory.try_take(body.len()).map(|taken| (body, taken)));
        // An error of an ended upload is reported when the upload is finished.
        let _ = self.steps.send(UploadStep::Part(EarlyPart { number, extents, body }));
    }

    /// Waits until the bucket has all parts. Returns the upload, to be completed or aborted.
    pub(super) async fn finish(self) -> Result<Arc<dyn Multipart>> {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError::Unavailable("an upload to the bucket ended early".into());
        self.steps.send(UploadStep::Finish(reply)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

/// The task that sends an early upload's parts.
struct UploadTask {
    upload: Result<Arc<dyn Multipart>>,
    memory: SendMemory,
    outstanding: Arc<AtomicUsize>,
    /// The parts that are being sent.
    parts: JoinSet<Result<()>>,
}

impl UploadTask {
    /// Uploads the parts that are requested, until the upload is finished or its owner is dropped; aborts it then.
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

    /// Begins to upload a part. Does nothing after a failure.
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

    /// Handles the end of a part's upload. After a failure the upload is aborted.
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

    /// Waits for the parts and replies with the upload, or with the first error.
    async fn finish(mut self, reply: oneshot::Sender<Result<Arc<dyn Multipart>>>) {
        while let Some(sent) = self.parts.join_next().await {
            self.handle_sent(sent).await;
        }
        if let Err(Ok(unclaimed)) = reply.send(self.upload) {
            unclaimed.abort().await.ok();
        }
    }

    /// Aborts the upload, with the parts that are being sent.
    async fn abort(mut self) {
        self.parts.shutdown().await;
        if let Ok(upload) = self.upload {
            upload.abort().await.ok();
        }
    }
}

/// Reads the bytes of a part from the log.
fn read(extents: &[Extent]) -> Result<Payload> {
    let read = |extent: &Extent| match extent {
        Extent::Log(segment, range) => segment.read(range).map_err(failed),
        Extent::Bucket(object, _) => Err(StoreError::NotFound(object.key.clone())),
    };
    extents.iter().map(read).collect()
}
