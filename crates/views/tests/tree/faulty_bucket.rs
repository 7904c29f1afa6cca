//! The bucket of the objects in the tests of trees, with fault injection.

use super::{ManualClock, name, object};
use std::sync::Arc;
use store::memory::MemoryStore;
use store::wrap::{Faults, Faulty};
use store::{
    Attributes, Buckets, Clock as _, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError,
};
use views::Shown;
use views::tree::DIRECTORY_PROPERTY;

#[derive(Debug, Clone)]
pub(crate) struct FaultyBucket {
    store: Faulty<MemoryStore>,
    clock: Arc<ManualClock>,
}

impl FaultyBucket {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Self {
        Self { store: Faulty::new(MemoryStore::new(clock.clone()), Faults::new()), clock }
    }

    pub(crate) fn faults(&self) -> &Faults {
        self.store.layer()
    }

    /// Stores an object that names `directory` as its directory, unless that is empty.
    pub(crate) async fn put(&self, key: &str, directory: &str) -> Shown {
        self.clock.tick();
        let mut shown = object(key, directory);
        shown.modified = self.clock.now();
        let user = shown.properties.clone().unwrap();
        let attributes = Attributes { user, ..Attributes::default() };
        let options = PutOptions {
            attributes,
            tags: [("kind".to_owned(), "raw".to_owned())].into(),
            ..PutOptions::default()
        };
        shown.etag = self.store.put(&shown.name.key, Payload::from("bytes"), options).await.unwrap().etag;
        shown
    }

    pub(crate) async fn remove(&self, key: &str) {
        self.store.delete(&name(key).key, Precondition::None).await.unwrap();
    }

    /// Returns the current state of an object.
    pub(crate) async fn shown(&self, key: &str) -> Shown {
        let found = self.store.head(&name(key).key).await.unwrap();
        let properties = Some(found.attributes.user);
        let (etag, modified) = (found.object.etag, found.object.last_modified.unwrap());
        Shown { etag, modified, properties, ..object(key, "") }
    }

    /// Returns the directory that an object names.
    pub(crate) async fn directory(&self, key: &str) -> String {
        let found = self.store.head(&name(key).key).await.unwrap();
        assert_eq!(self.store.tags(&name(key).key).await.unwrap().len(), 1);
        found.attributes.user.get(DIRECTORY_PROPERTY).cloned().unwrap_or_default()
    }
}

#[async_trait::async_trait]
impl Buckets for FaultyBucket {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        match name {
            "bucket" => Ok(Arc::new(self.store.clone())),
            _ => Err(StoreError::NoSuchBucket(name.to_owned())),
        }
    }

    async fn create(&self, name: &str) -> Result<()> {
        Err(StoreError::Denied(name.to_owned()))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        Err(StoreError::Denied(name.to_owned()))
    }

    async fn list(&self) -> Result<Vec<String>> {
        Ok(vec!["bucket".to_owned()])
    }
}
