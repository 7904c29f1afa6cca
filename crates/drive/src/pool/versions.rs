//! Versions of a pool: the versions of a key lie on its home.

use super::bucket::PoolBucket;
use crate::bucket::DriveBucket;
use store::{
    Deleted, ListVersions, ObjectKey, Precondition, Removal, Result, Retention, Tags, Version, VersionEntry,
    Versioning, Versions, version_id,
};

#[async_trait::async_trait]
impl Versions for PoolBucket {
    async fn state(&self) -> Result<Versioning> {
        self.first()?.state().await
    }

    async fn set_state(&self, state: Versioning) -> Result<()> {
        let _names = self.pool.0.names.write().await;
        for bucket in self.all()? {
            bucket.set_state(state).await?;
        }
        Ok(())
    }

    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version> {
        id.map_or(Ok(()), version_id::check)?;
        // The newest version may be a delete marker, which is no object. An id makes the search include versions.
        let bucket = self.bucket_of(key, id.or(Some(store::NULL_VERSION))).await?;
        Versions::find(bucket, key, id).await
    }

    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted> {
        let (own, id) = (key.clone(), id.to_owned());
        self.change(key, 0, |bucket| async move { bucket.remove(&own, &id, removal).await }).await
    }

    async fn mark(&self, key: &ObjectKey, precondition: Precondition) -> Result<Deleted> {
        let own = key.clone();
        self.change(key, 0, |bucket| async move { bucket.mark(&own, precondition).await }).await
    }

    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        self.page_of_versions(request).await
    }

    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags> {
        version_id::check(id)?;
        Versions::tags(self.bucket_of(key, Some(id)).await?, key, id).await
    }

    async fn set_tags(&self, key: &ObjectKey, id: &str, tags: Tags) -> Result<()> {
        let (own, id) = (key.clone(), id.to_owned());
        self.change(key, 0, |bucket| async move { Versions::set_tags(&bucket, &own, &id, tags).await }).await
    }

    async fn set_retention(
        &self,
        key: &ObjectKey,
        id: &str,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()> {
        let (own, id) = (key.clone(), id.to_owned());
        let set = |bucket: DriveBucket| async move {
            bucket.set_retention(&own, &id, retention, bypass_governance).await
        };
        self.change(key, 0, set).await
    }

    async fn set_legal_hold(&self, key: &ObjectKey, id: &str, is_held: bool) -> Result<()> {
        let (own, id) = (key.clone(), id.to_owned());
        self.change(key, 0, |bucket| async move { bucket.set_legal_hold(&own, &id, is_held).await }).await
    }
}
