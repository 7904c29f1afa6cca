//! Multipart uploads by id, and a bucket's settings, in memory.

use super::{Description, MemoryStore, etag_of};
use crate::part_number;
use crate::{
    Attributes, CompleteOptions, MakePartNote, ObjectKey, ObjectRef, Part, Payload, Result, Settings,
    StoreError, Tags, Timestamp, Upload, Uploads,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bucket's state other than its objects.
#[derive(Default)]
pub(super) struct UploadsAndSettings {
    uploads: Mutex<BTreeMap<(ObjectKey, String), Begun>>,
    settings: Mutex<BTreeMap<String, Bytes>>,
}

/// An upload in progress.
struct Begun {
    began: Timestamp,
    description: Option<Arc<Description>>,
    parts: BTreeMap<u32, Sent>,
}

/// A stored part of an upload, and its bytes.
struct Sent {
    part: Part,
    body: Payload,
}

impl UploadsAndSettings {
    fn uploads(&self) -> MutexGuard<'_, BTreeMap<(ObjectKey, String), Begun>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with an upload. Fails with `NotFound` if there is no such upload.
    fn with<T>(&self, key: &ObjectKey, id: &str, work: impl FnOnce(&mut Begun) -> Result<T>) -> Result<T> {
        let mut uploads = self.uploads();
        let begun = uploads.get_mut(&(key.clone(), id.to_owned()));
        work(begun.ok_or_else(|| StoreError::NotFound(key.clone()))?)
    }
}

fn describe_upload(key: &ObjectKey, id: &str, begun: &Begun) -> Upload {
    let attributes = begun.description.as_ref().map(|found| found.attributes.clone()).unwrap_or_default();
    Upload { key: key.clone(), id: id.to_owned(), began: begun.began, attributes }
}

#[async_trait::async_trait]
impl Uploads for MemoryStore {
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> Result<String> {
        let description = self.0.describe(attributes, tags)?;
        let id = format!("{:016x}", self.0.next_write());
        let begun = Begun { began: self.0.clock.now(), description, parts: BTreeMap::new() };
        self.0.uploads_and_settings.uploads().insert((key.clone(), id.clone()), begun);
        Ok(id)
    }

    async fn find(&self, key: &ObjectKey, id: &str) -> Result<Upload> {
        self.0.uploads_and_settings.with(key, id, |begun| Ok(describe_upload(key, id, begun)))
    }

    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, Result<Bytes>>,
        make_note: MakePartNote<'_>,
    ) -> Result<Part> {
        part_number::check(number)?;
        self.find(key, id).await?;
        let pieces: Vec<Result<Bytes>> = body.collect().await;
        let body: Payload = pieces.into_iter().collect::<Result<Vec<_>>>()?.into_iter().collect();
        let part = Part {
            number,
            etag: etag_of(self.0.next_write()),
            size_bytes: body.len(),
            last_modified: self.0.clock.now(),
            note: make_note()?,
        };
        let sent = Sent { part: part.clone(), body };
        self.0.uploads_and_settings.with(key, id, |begun| {
            begun.parts.insert(number, sent);
            Ok(part)
        })
    }

    async fn parts(&self, key: &ObjectKey, id: &str) -> Result<Vec<Part>> {
        self.0
            .uploads_and_settings
            .with(key, id, |begun| Ok(begun.parts.values().map(|sent| sent.part.clone()).collect()))
    }

    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> Result<ObjectRef> {
        let (body, description) = self.0.uploads_and_settings.with(key, id, |begun| {
            let missing = || {
                StoreError::Invalid(
                    "a part of the upload does not exist: list the parts of the upload".into(),
                )
            };
            let sent = numbers.iter().map(|number| begun.parts.get(number).ok_or_else(missing));
            let sent = sent.collect::<Result<Vec<_>>>()?;
            options.check(sent.iter().map(|sent| &sent.part.etag))?;
            let body: Payload = sent.iter().flat_map(|sent| sent.body.pieces()).cloned().collect();
            let mut description = begun.description.as_deref().cloned().unwrap_or_default();
            description.attributes.user.extend(options.user.clone());
            Ok((body, description))
        })?;
        let stored = self.0.store(key, body, description.shared(), &options.precondition)?;
        self.0.uploads_and_settings.uploads().remove(&(key.clone(), id.to_owned()));
        Ok(stored)
    }

    async fn abort(&self, key: &ObjectKey, id: &str) -> Result<()> {
        let removed = self.0.uploads_and_settings.uploads().remove(&(key.clone(), id.to_owned()));
        removed.map(drop).ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    async fn list(&self, prefix: &[u8]) -> Result<Vec<Upload>> {
        let uploads = self.0.uploads_and_settings.uploads();
        let found = uploads.iter().filter(|((key, _), _)| key.as_bytes().starts_with(prefix));
        let mut found: Vec<Upload> =
            found.map(|((key, id), begun)| describe_upload(key, id, begun)).collect();
        found.sort_by(|a, b| (&a.key, a.began, &a.id).cmp(&(&b.key, b.began, &b.id)));
        Ok(found)
    }
}

#[async_trait::async_trait]
impl Settings for MemoryStore {
    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        Ok(self.0.uploads_and_settings.settings().get(name).cloned())
    }

    async fn set(&self, name: &str, value: Option<Bytes>) -> Result<()> {
        let mut settings = self.0.uploads_and_settings.settings();
        match value {
            Some(value) => drop(settings.insert(name.to_owned(), value)),
            None => drop(settings.remove(name)),
        }
        Ok(())
    }
}
