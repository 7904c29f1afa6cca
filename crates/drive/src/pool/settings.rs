//! Settings of a pool's bucket: stored on every drive; the first drive is authoritative.

use super::bucket::PoolBucket;
use bytes::Bytes;
use store::{Result, Settings};

#[async_trait::async_trait]
impl Settings for PoolBucket {
    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        Settings::get(self.first()?, name).await
    }

    async fn set(&self, name: &str, value: Option<Bytes>) -> Result<()> {
        let _names = self.pool.0.names.write().await;
        for bucket in self.all()? {
            bucket.set(name, value.clone()).await?;
        }
        Ok(())
    }
}
