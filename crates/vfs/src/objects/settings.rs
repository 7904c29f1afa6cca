//! Documents that belong to a bucket and are none of its objects, among Tenon's own objects.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{
    GetOptions, ListRequest, ObjectKey, Pages, Payload, Precondition, PutOptions, Settings, StoreError,
};

use super::Objects;
use super::errors::about;

/// What was read or written of them, by key; `None`: there is none.
#[derive(Debug, Default)]
pub(crate) struct SettingsCache(Mutex<HashMap<ObjectKey, Option<Bytes>>>);

impl SettingsCache {
    fn known(&self) -> MutexGuard<'_, HashMap<ObjectKey, Option<Bytes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    fn setting(&self, name: &str) -> store::Result<ObjectKey> {
        let Ok(asked) = ObjectKey::try_from(name) else {
            return Err(StoreError::Invalid("a setting has a name".to_owned()));
        };
        self.fs.layout.setting(self.bucket().unwrap_or_default(), name).map_err(about(&asked))
    }

    async fn read_setting(&self, key: &ObjectKey) -> store::Result<Option<Bytes>> {
        match self.fs.store.get(key, GetOptions::default()).await {
            Ok(object) => {
                let text = Bytes::from(object.body.try_collect::<Vec<_>>().await?.concat());
                Ok(Some(text).filter(|text| !text.is_empty()))
            }
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A log in front of the bucket may take a deletion for that of the change before, which never went up: where there
    /// is one, an empty document stands for none.
    async fn remove(&self, key: &ObjectKey) -> store::Result<()> {
        match self.fs.config.write_back {
            true => self.fs.store.put(key, Payload::default(), PutOptions::default()).await.map(drop),
            false => self.fs.store.delete(key, Precondition::None).await,
        }
    }

    /// Removes all of them.
    pub(super) async fn forget_settings(&self) -> store::Result<()> {
        let prefix = self.setting("/")?;
        let prefix = Bytes::copy_from_slice(&prefix.as_bytes()[..prefix.as_bytes().len() - 1]);
        let request = ListRequest { prefix, limit: 1000, ..ListRequest::default() };
        for entry in Pages::of(self.fs.store.as_ref(), request).all().await? {
            let key = ObjectKey::try_from(entry.text())?;
            let _claim = self.fs.claims.claim(&key).await;
            self.remove(&key).await?;
            self.fs.settings.known().insert(key, None);
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Settings for Objects {
    async fn get(&self, name: &str) -> store::Result<Option<Bytes>> {
        let key = self.setting(name)?;
        let known = self.fs.settings.known().get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        // Nobody writes it between the look and the note of it.
        let _claim = self.fs.claims.claim(&key).await;
        let found = self.read_setting(&key).await?;
        self.fs.settings.known().insert(key.clone(), found.clone());
        Ok(found)
    }

    async fn set(&self, name: &str, value: Option<Bytes>) -> store::Result<()> {
        self.must_be_writable()?;
        let key = self.setting(name)?;
        let _claim = self.fs.claims.claim(&key).await;
        // What an error leaves there, the next look finds out.
        self.fs.settings.known().remove(&key);
        match &value {
            Some(value) => {
                let body = Payload::from(value.clone());
                self.fs.store.put(&key, body, PutOptions::default()).await.map(drop)?;
            }
            None => self.remove(&key).await?,
        }
        self.fs.store.sync().await?;
        self.fs.settings.known().insert(key.clone(), value);
        Ok(())
    }
}
