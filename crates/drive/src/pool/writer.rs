//! Streaming writer for an object: stores bytes on the key's home as they arrive. The placement stays locked meanwhile.

use super::bucket::PoolBucket;
use super::placement_lock::PlacementLock;
use super::run_detached;
use crate::bucket::DriveWriter;
use bytes::Bytes;
use std::fmt;
use store::{ObjectRef, ObjectWriter, PutOptions, Result};

pub(super) struct PoolWriter {
    pub(super) bucket: PoolBucket,
    pub(super) inner: Box<DriveWriter>,
    pub(super) placement: PlacementLock,
}

impl fmt::Debug for PoolWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

#[async_trait::async_trait]
impl ObjectWriter for PoolWriter {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        self.inner.write(piece).await
    }

    async fn finish(self: Box<Self>, options: PutOptions) -> Result<ObjectRef> {
        let names = self.bucket.pool.0.names.clone().read_owned().await;
        let Self { inner, placement, .. } = *self;
        run_detached((placement, names), inner.finish(options)).await
    }
}
