//! Settings of a bucket, such as its policy: implements `Settings`. Each is an entry of the index.

use super::DriveBucket;
use crate::engine::Prepared;
use crate::format::{Change, IndexKey, Kind};
use crate::policy::Purpose;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Result, Settings};

#[async_trait::async_trait]
impl Settings for DriveBucket {
    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let value = self.frontend.entry(&IndexKey::setting(self.id, name)).await?;
        Ok(value.map(|value| value.slice(1..)))
    }

    async fn set(&self, name: &str, value: Option<Bytes>) -> Result<()> {
        let locks = vec![self.frontend.lock_key(self.id, name.as_bytes()).await];
        self.bucket_record().await?;
        let key = IndexKey::setting(self.id, name).0;
        let (change, purpose) = match value {
            // The value is prefixed by a byte, as an empty value would be a deletion.
            Some(value) => (Change::Put { key, value: [&[0], &value[..]].concat() }, Purpose::Grows),
            None => (Change::Delete { key }, Purpose::Frees),
        };
        let changes = vec![change];
        Ok(self.frontend.commit(Prepared { changes, purpose, ..Prepared::default() }, locks).await?)
    }
}

impl DriveBucket {
    /// Returns all settings by name.
    pub(crate) async fn all_settings(&self) -> Result<BTreeMap<String, Bytes>> {
        let all = IndexKey::prefix(Kind::Setting, self.id);
        let skip = all.0.len();
        let found = self.frontend.entries(all, usize::MAX).await?;
        let named = |(key, value): (IndexKey, Bytes)| {
            (String::from_utf8_lossy(&key.0[skip..]).into_owned(), value.slice(1..))
        };
        Ok(found.into_iter().map(named).collect())
    }
}
