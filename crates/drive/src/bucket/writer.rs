//! Streaming writer for an object: stores bytes as they arrive.

use super::DriveBucket;
use crate::frontend::RunWriter;
use bytes::Bytes;
use store::{ObjectKey, ObjectRef, ObjectWriter, Payload, PutOptions, Result};

/// A writer of an object whose bytes arrive in pieces. The object appears when `finish` commits it.
#[derive(Debug)]
pub(crate) struct DriveWriter {
    bucket: DriveBucket,
    key: ObjectKey,
    len_bytes: Option<u64>,
    /// The bytes so far, as long as they are few enough for a frame; then empty.
    buffered: Payload,
    /// The writer of runs, which takes all bytes once they are too many for a frame.
    runs: Option<RunWriter>,
}

impl DriveWriter {
    pub(crate) fn new(bucket: DriveBucket, key: ObjectKey, len_bytes: Option<u64>) -> Self {
        Self { bucket, key, len_bytes, buffered: Payload::default(), runs: None }
    }
}

#[async_trait::async_trait]
impl ObjectWriter for DriveWriter {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        let frontend = &self.bucket.frontend;
        match &mut self.runs {
            Some(runs) => runs.push(&piece).await?,
            none => {
                self.buffered.push(piece);
                if self.buffered.len() > frontend.engine.policy.inline_bytes_max() {
                    let runs = none.insert(frontend.streaming_run_writer(self.len_bytes)?);
                    for piece in std::mem::take(&mut self.buffered).pieces() {
                        runs.push(piece).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn finish(self: Box<Self>, options: PutOptions) -> Result<ObjectRef> {
        let Self { bucket, key, buffered, runs, .. } = *self;
        let stored = match runs {
            Some(runs) => runs.finish().await?,
            None => bucket.frontend.store(buffered).await?,
        };
        bucket.put_stored(&key, stored, options).await
    }
}
