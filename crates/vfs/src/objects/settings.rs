//! Documents that belong to a bucket without being its objects, stored among Tenon's own objects.
//!
//! In a volume named by inode the documents of a directory are stored under its inode number: they follow a rename, and another
//! directory of the same name does not get them. In a volume named by path they are stored under the name, and
//! [moved](super::moved_settings) when a mount renames the directory.
//!
//! Invariant: a change of a document by another endpoint is seen within [`CACHE_LIFETIME`], unless the store does not
//! answer: then a cached document stays in use.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::time::Duration;
use store::{
    GetOptions, ListRequest, ObjectKey, Pages, Payload, Precondition, PutOptions, Settings, StoreError,
};

use super::directory_objects::{DirectoryObjects, ObjectNaming};
use super::document::Document;
use super::errors::error_about;
use super::settings_cache::CACHE_LIFETIME;
use crate::objects::moved_settings::BucketSettings;

/// Maximum difference between the clocks of the store and of this machine.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

impl<N: ObjectNaming> DirectoryObjects<N> {
    fn setting(&self, name: &str) -> store::Result<Document> {
        let Ok(asked) = ObjectKey::try_from(name) else {
            return Err(StoreError::Invalid("invalid name of a setting".to_owned()));
        };
        let bucket = self.directory.path().unwrap_or_default();
        let noted = self.directory.fs.settings.settings_source(bucket).map_err(error_about(&asked))?;
        if let Some(noted) = &noted
            && noted.is_empty()
        {
            return Err(StoreError::NoSuchBucket(String::from_utf8_lossy(bucket).into_owned()));
        }
        let bucket = noted.as_deref().unwrap_or(bucket);
        let by_name =
            self.directory.fs.mount.layout.setting_key(bucket, name).map_err(error_about(&asked))?;
        match bucket.is_empty() {
            true => Ok(Document::at(by_name)),
            false => self.naming.document(bucket, name, by_name),
        }
    }

    /// Reads a document. A document that an earlier version stored under the directory's name is moved to its new key, unless
    /// it is older than the directory and so belonged to another one.
    async fn read_at(&self, location: &Document) -> store::Result<Option<Bytes>> {
        if let Some(text) = self.directory.fs.settings.read_setting(&location.key).await? {
            return Ok(Some(text));
        }
        let Some((before, made)) = &location.before else { return Ok(None) };
        let stored = match self.directory.fs.mount.store.head(before).await {
            Ok(meta) => meta.object.last_modified,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if stored.is_none_or(|stored| stored.after(CLOCK_SKEW_MAX) < *made) {
            return Ok(None);
        }
        let text = self.directory.fs.settings.read_setting(before).await?;
        if let Some(text) = &text
            && self.directory.check_writable().is_ok()
        {
            let body = Payload::from(text.clone());
            self.directory.fs.mount.store.put(&location.key, body, PutOptions::default()).await?;
            self.directory.fs.settings.remove_setting(before).await?;
        }
        Ok(text)
    }

    /// Returns the key prefixes of the documents that remain when the directory is removed.
    pub(super) fn remaining_documents(&self) -> store::Result<Vec<Bytes>> {
        if !N::DOCUMENTS_REMAIN {
            return Ok(Vec::new());
        }
        let location = self.setting("/")?;
        let keys = std::iter::once(&location.key).chain(location.before.as_ref().map(|(key, _)| key));
        Ok(keys.map(|key| Bytes::copy_from_slice(&key.as_bytes()[..key.as_bytes().len() - 1])).collect())
    }

    /// Removes all documents with these key prefixes.
    pub(super) async fn forget_settings(&self, prefixes: Vec<Bytes>) -> store::Result<()> {
        for prefix in prefixes {
            let request = ListRequest { prefix, limit: 1000, ..ListRequest::default() };
            for entry in Pages::new(self.directory.fs.mount.store.as_ref(), request).collect().await? {
                let key = ObjectKey::try_from(entry.text())?;
                let _key_lock = self.directory.fs.bucket.locks.key_locks().lock(&key).await;
                self.directory.fs.settings.remove_setting(&key).await?;
                self.directory.fs.settings.cache().insert(key, None);
            }
        }
        Ok(())
    }
}

impl BucketSettings {
    /// Returns the document at a key; `None` if there is none, or it is empty.
    pub(crate) async fn read_setting(&self, key: &ObjectKey) -> store::Result<Option<Bytes>> {
        match self.mount.store.get(key, GetOptions::default()).await {
            Ok(object) => {
                let text = Bytes::from(object.body.try_collect::<Vec<_>>().await?.concat());
                Ok(Some(text).filter(|text| !text.is_empty()))
            }
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a document. A write-back log may pair a deletion with a change that was never uploaded and drop both, so with
    /// such a log an empty document stands for none.
    pub(crate) async fn remove_setting(&self, key: &ObjectKey) -> store::Result<()> {
        match self.mount.config.write_back {
            true => self.mount.store.put(key, Payload::default(), PutOptions::default()).await.map(drop),
            false => self.mount.store.delete(key, Precondition::None).await,
        }
    }
}

#[async_trait::async_trait]
impl<N: ObjectNaming> Settings for DirectoryObjects<N> {
    async fn get(&self, name: &str) -> store::Result<Option<Bytes>> {
        if self.directory.fs.mount.check_writable().is_ok() {
            Box::pin(self.directory.fs.settings.move_pending_settings()).await?;
        }
        let location = match self.setting(name) {
            Ok(location) => location,
            Err(StoreError::NoSuchBucket(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let known = self.directory.fs.settings.cache().get(&location.key);
        if let Some(known) = &known
            && known.at.elapsed() < CACHE_LIFETIME
        {
            return Ok(known.text.clone());
        }
        // The lock keeps the document from being written between the read and the entry in the cache.
        let _key_lock = self.directory.fs.bucket.locks.key_locks().lock(&location.key).await;
        let found = match (Box::pin(self.read_at(&location)).await, known) {
            (Ok(found), _) => found,
            // While the store does not answer, the cached document stays valid.
            (Err(StoreError::Unavailable(_)), Some(known)) => return Ok(known.text),
            (Err(error), _) => return Err(error),
        };
        self.directory.fs.settings.cache().insert(location.key, found.clone());
        Ok(found)
    }

    async fn set(&self, name: &str, value: Option<Bytes>) -> store::Result<()> {
        self.directory.check_writable()?;
        Box::pin(self.directory.fs.settings.move_pending_settings()).await?;
        let Document { key, before } = self.setting(name)?;
        let _key_lock = self.directory.fs.bucket.locks.key_locks().lock(&key).await;
        // If the write fails, the next read finds out what is stored.
        self.directory.fs.settings.cache().remove(&key);
        match &value {
            Some(value) => {
                let body = Payload::from(value.clone());
                self.directory.fs.mount.store.put(&key, body, PutOptions::default()).await.map(drop)?;
            }
            None => {
                if let Some((before, _)) = &before {
                    self.directory.fs.settings.remove_setting(before).await?;
                }
                self.directory.fs.settings.remove_setting(&key).await?;
            }
        }
        self.directory.fs.mount.store.sync().await?;
        self.directory.fs.settings.cache().insert(key, value);
        Ok(())
    }
}
