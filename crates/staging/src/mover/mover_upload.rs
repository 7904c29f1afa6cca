//! Multipart uploads through the mover. An upload is completed after the moves into and out of its key.

use super::Mover;
use std::ops::Range;
use std::sync::Arc;
use store::{Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result};

/// A multipart upload to a logical key.
#[derive(Debug)]
pub(super) struct MoverUpload {
    mover: Arc<Mover>,
    key: ObjectKey,
    inner: Arc<dyn Multipart>,
}

impl MoverUpload {
    pub(super) fn new(mover: Arc<Mover>, key: ObjectKey, inner: Arc<dyn Multipart>) -> Self {
        Self { mover, key, inner }
    }
}

#[async_trait::async_trait]
impl Multipart for MoverUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.inner.put_part(number, body).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        self.mover.finish_moves_into(&from.key).await?;
        let etag = self.mover.executor.aliases().bucket_tag(&from.key, &from.etag);
        self.inner.copy_part(number, &ObjectRef { etag, ..from.clone() }, range).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        self.mover.finish_moves_into(&self.key).await?;
        let precondition = self.mover.executor.aliases().bucket_condition(&self.key, &precondition);
        self.inner.complete(precondition).await
    }

    async fn abort(&self) -> Result<()> {
        self.inner.abort().await
    }
}
