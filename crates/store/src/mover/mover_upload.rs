//! An object in parts, which is completed when nothing is left that would come to its place.

use super::Mover;
use crate::{Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result};
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Upload {
    mover: Arc<Mover>,
    key: ObjectKey,
    inner: Arc<dyn Multipart>,
}

impl Upload {
    pub(super) fn new(mover: Arc<Mover>, key: ObjectKey, inner: Arc<dyn Multipart>) -> Self {
        Self { mover, key, inner }
    }
}

#[async_trait::async_trait]
impl Multipart for Upload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.inner.put_part(number, body).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        self.mover.settle(&from.key).await?;
        let etag = self.mover.aliases().there(&from.key, &from.etag);
        self.inner.copy_part(number, &ObjectRef { etag, ..from.clone() }, range).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        self.mover.settle(&self.key).await?;
        let precondition = self.mover.aliases().condition_there(&self.key, &precondition);
        self.inner.complete(precondition).await
    }

    async fn abort(&self) -> Result<()> {
        self.inner.abort().await
    }
}
