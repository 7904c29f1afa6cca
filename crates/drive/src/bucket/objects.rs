//! Objects of a bucket: implements `ObjectStore`.

use super::DriveBucket;
use super::edit::check;
use super::multipart::DriveMultipart;
use super::writer::DriveWriter;
use crate::format::{Body, IndexKey, ObjectRecord};
use crate::shell::{Access, Stored};
use crate::space::{Hold, Pins};
use std::sync::Arc;
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, ObjectWriter, Payload, Precondition, PutOptions, Result, Settings, StoreError,
    Tags, Uploads, Versioning, Versions, byte_range, listing,
};

impl DriveBucket {
    fn missing(key: &ObjectKey) -> StoreError {
        StoreError::NotFound(key.clone())
    }

    /// Returns the record of an object or version, and pins on its bytes.
    pub(super) async fn held(&self, key: &ObjectKey, version: Option<&str>) -> Result<(ObjectRecord, Pins)> {
        loop {
            let named = self.named(key, version).await?;
            let held = self.shell.held(&named.entry).await?;
            if let Some(found) = named.still(held)? {
                return Ok(found);
            }
        }
    }

    /// Returns the record of an object or version, and its cached bytes or pins on them.
    pub(crate) async fn accessed(
        &self,
        key: &ObjectKey,
        version: Option<&str>,
    ) -> Result<(ObjectRecord, Access)> {
        loop {
            let named = self.named(key, version).await?;
            let found = self.shell.accessed(&named.entry).await?;
            if let Some(found) = named.still(found)? {
                return Ok(found);
            }
        }
    }

    /// Finds the entry of a version, or of the current object.
    async fn named<'a>(&self, key: &'a ObjectKey, version: Option<&'a str>) -> Result<Named<'a>> {
        let Some(id) = version else {
            return Ok(Named { key, entry: IndexKey::object(self.id, key), write: None });
        };
        let (entry, record) = self.version_called(key, id).await?.ok_or_else(|| Self::missing(key))?;
        Ok(Named { key, entry, write: Some(record.write) })
    }

    /// Returns the record of the object with exactly this etag, and pins on its bytes.
    pub(crate) async fn held_exactly(&self, object: &ObjectRef) -> Result<(ObjectRecord, Pins)> {
        let (record, pins) = self.held(&object.key, object.version.as_deref()).await?;
        check(&object.key, Some(&self.etag_of(&record)), &Precondition::Matches(object.etag.clone()))?;
        Ok((record, pins))
    }

    /// Makes stored bytes the current object of a key.
    pub(super) async fn put_stored(
        &self,
        key: &ObjectKey,
        stored: Stored,
        options: PutOptions,
    ) -> Result<ObjectRef> {
        let PutOptions { precondition, attributes, tags, etag } = options;
        self.place(key, stored.called(etag), (attributes, tags), &precondition).await
    }

    /// Copies a body: runs get another owner, inline data is written again.
    async fn again(&self, (write, body): (u64, Body), pins: Pins) -> Result<Stored> {
        match body {
            Body::Extents(extents) => Ok(Stored::of_extents(extents, vec![Hold::pins(pins)])),
            body => {
                let len = body.len_bytes();
                let bytes = self.shell.read_all((write, body), 0..len, pins).await?;
                Ok(self.shell.store(bytes.into_iter().collect()).await?)
            }
        }
    }
}

/// The entry in which an object or version was found.
struct Named<'a> {
    key: &'a ObjectKey,
    entry: IndexKey,
    /// The write number of the version, if a certain version was asked for.
    write: Option<u64>,
}

impl Named<'_> {
    /// Checks what was read from the entry. Returns `None` if the version has moved to another entry meanwhile: a current object may have
    /// become an older version, or the reverse.
    fn still<T>(&self, found: Option<(ObjectRecord, T)>) -> Result<Option<(ObjectRecord, T)>> {
        let is_meant = |write| self.write.is_none_or(|meant| meant == write);
        match found {
            Some((record, access)) if is_meant(record.write) => match record.body {
                Body::Mark => Err(DriveBucket::missing(self.key)),
                _ => Ok(Some((record, access))),
            },
            None if self.write.is_none() => Err(DriveBucket::missing(self.key)),
            _ => Ok(None),
        }
    }
}

#[async_trait::async_trait]
impl ObjectStore for DriveBucket {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let (record, access) = self.accessed(key, options.version.as_deref()).await?;
        let meta = self.meta(key, &record, self.state().await?);
        if options.if_match.is_some_and(|etag| etag != meta.object.etag) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        let range = match options.range {
            Some(range) => byte_range::within(key, range, meta.size_bytes)?,
            None => 0..meta.size_bytes,
        };
        Ok(Object { meta, body: self.shell.read((record.write, record.body), range, access) })
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let record = self.shell.record(&IndexKey::object(self.id, key)).await?;
        Ok(self.meta(key, &record.ok_or_else(|| Self::missing(key))?, self.state().await?))
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let stored = self.shell.store(body).await?;
        self.put_stored(key, stored, options).await
    }

    async fn writer(&self, key: &ObjectKey, len_bytes: Option<u64>) -> Result<Option<Box<dyn ObjectWriter>>> {
        Ok(Some(Box::new(DriveWriter::new(self.clone(), key.clone(), len_bytes))))
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        Ok(Arc::new(DriveMultipart::new(self.clone(), key.clone(), (attributes, tags))))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let (record, pins) = self.held_exactly(from).await?;
        if from.key == *to && options.attributes.is_none() && options.tags.is_none() {
            return Err(StoreError::Invalid("a copy of an object onto itself changes nothing".into()));
        }
        let attributes = options.attributes.unwrap_or(record.attributes);
        let description = (attributes, options.tags.unwrap_or(record.tags));
        let stored = self.again((record.write, record.body), pins).await?.called(record.etag);
        self.place(to, stored, description, &options.precondition).await
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        if from.key == *to {
            return Err(StoreError::Invalid("an object cannot be moved to its own key".into()));
        }
        let (record, pins) = self.held_exactly(from).await?;
        let stored = self.again((record.write, record.body.clone()), pins).await?;
        let stored = stored.called(record.etag.clone()).known_as(record.write);
        let [one, other] = self.shell.hold_both(self.id, [from.key.as_bytes(), to.as_bytes()]).await;
        let mut target = self.edit(to, one).await?;
        target.check(&precondition)?;
        let mut source = self.edit(&from.key, other).await?;
        source.check(&Precondition::Matches(from.etag.clone()))?;
        // The bytes are the same, but tags or metadata may have changed before the lock was taken.
        let record = source.current.clone().unwrap_or(record);
        target.place(stored, (record.attributes, record.tags)).await?;
        source.mark().await?;
        Ok(target.commit_with(source).await?)
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        self.mark(key, precondition).await.map(drop)
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let scan = listing::Scan::new(request, listing::PAGE_ENTRIES_MAX)?;
        self.page(scan).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let record = self.shell.record(&IndexKey::object(self.id, key)).await?;
        Ok(record.ok_or_else(|| Self::missing(key))?.tags)
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let held = self.shell.hold(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, held).await?;
        let mut record = edit.current.clone().ok_or_else(|| Self::missing(key))?;
        record.tags = tags;
        edit.put(IndexKey::object(self.id, key), &record);
        Ok(edit.commit().await?)
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        Some(self)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }

    fn versions(&self) -> Option<&dyn Versions> {
        Some(self)
    }
}

impl DriveBucket {
    /// Returns the bucket's versioning state.
    pub(crate) async fn state(&self) -> Result<Versioning> {
        Ok(self.bucket_record().await?.versioning)
    }
}
