//! Objects of a bucket: implements `ObjectStore`.

use super::DriveBucket;
use super::copy::copy_body;
use super::edit::check_precondition;
use super::multipart::DriveMultipart;
use super::record_metadata::etag_of;
use super::writer::DriveWriter;
use crate::format::{Body, IndexKey, ObjectRecord};
use crate::frontend::{Access, Stored};
use crate::space::Pins;
use std::sync::Arc;
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, ObjectWriter, Payload, Precondition, PutOptions, Result, Settings, StoreError,
    Tags, Uploads, Versioning, Versions, byte_range, listing,
};

impl DriveBucket {
    /// Returns the record of an object or version, and pins on its bytes. Fails with `NotFound` if there is none, or if
    /// it is a delete marker.
    pub(super) async fn pinned_record(
        &self,
        key: &ObjectKey,
        version: Option<&str>,
    ) -> Result<(ObjectRecord, Pins)> {
        loop {
            let located = self.locate(key, version).await?;
            let pinned = self.frontend.pinned_record(&located.entry).await?;
            if let Some(found) = located.confirm(pinned)? {
                return Ok(found);
            }
        }
    }

    /// Returns the record of an object or version, and its cached bytes or pins on them. Fails with `NotFound` if there
    /// is none, or if it is a delete marker.
    pub(crate) async fn record_and_access(
        &self,
        key: &ObjectKey,
        version: Option<&str>,
    ) -> Result<(ObjectRecord, Access)> {
        loop {
            let located = self.locate(key, version).await?;
            let found = self.frontend.record_and_access(&located.entry).await?;
            if let Some(found) = located.confirm(found)? {
                return Ok(found);
            }
        }
    }

    /// Returns the entry of a version, or the one in which the current object would be. Fails with `NotFound` if there
    /// is no such version.
    async fn locate<'a>(&self, key: &'a ObjectKey, version: Option<&'a str>) -> Result<Located<'a>> {
        let Some(id) = version else {
            return Ok(Located { key, entry: IndexKey::object(self.id, key), write: None });
        };
        let found = self.key_versions(key).find(self.metadata_context().await?, id).await?;
        let (entry, record) = found.ok_or_else(|| not_found(key))?;
        Ok(Located { key, entry, write: Some(record.write) })
    }

    /// Returns the record of the object or version, and pins on its bytes. Fails with `PreconditionFailed` if its etag
    /// is another.
    pub(crate) async fn pinned_exact(&self, object: &ObjectRef) -> Result<(ObjectRecord, Pins)> {
        let (record, pins) = self.pinned_record(&object.key, object.version.as_deref()).await?;
        check_precondition(
            &object.key,
            Some(&etag_of(self.drive_id(), &record)),
            &Precondition::Matches(object.etag.clone()),
        )?;
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
        self.put_body(key, stored.with_etag(etag), (attributes, tags), &precondition).await
    }
}

fn not_found(key: &ObjectKey) -> StoreError {
    StoreError::NotFound(key.clone())
}

/// The entry in which an object or version was found.
struct Located<'a> {
    key: &'a ObjectKey,
    entry: IndexKey,
    /// The write number of the version; `None` if the current object was asked for.
    write: Option<u64>,
}

impl Located<'_> {
    /// Checks what was read from the entry, and returns it. Fails with `NotFound` for a missing object or a delete
    /// marker. Returns `None` if the version has moved to another entry meanwhile: a current object may have become an
    /// older version, or the reverse.
    fn confirm<T>(&self, found: Option<(ObjectRecord, T)>) -> Result<Option<(ObjectRecord, T)>> {
        let is_wanted = |write| self.write.is_none_or(|meant| meant == write);
        match found {
            Some((record, access)) if is_wanted(record.write) => match record.body {
                Body::DeleteMarker => Err(not_found(self.key)),
                _ => Ok(Some((record, access))),
            },
            None if self.write.is_none() => Err(not_found(self.key)),
            _ => Ok(None),
        }
    }
}

#[async_trait::async_trait]
impl ObjectStore for DriveBucket {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let (record, access) = self.record_and_access(key, options.version.as_deref()).await?;
        let meta = self.metadata_context().await?.meta(key, &record);
        if options.if_match.is_some_and(|etag| etag != meta.object.etag) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        let range = match options.range {
            Some(range) => byte_range::clamp(key, range, meta.size_bytes)?,
            None => 0..meta.size_bytes,
        };
        Ok(Object { meta, body: self.frontend.read((record.write, record.body), range, access) })
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let record = self.frontend.record(&IndexKey::object(self.id, key)).await?;
        let record = record.ok_or_else(|| not_found(key))?;
        Ok(self.metadata_context().await?.meta(key, &record))
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let stored = self.frontend.store(body).await?;
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
        let (record, pins) = self.pinned_exact(from).await?;
        if from.key == *to && options.attributes.is_none() && options.tags.is_none() {
            return Err(StoreError::Invalid(
                "a copy of an object to its own key needs new metadata or tags".into(),
            ));
        }
        let attributes = options.attributes.unwrap_or(record.attributes);
        let description = (attributes, options.tags.unwrap_or(record.tags));
        let stored =
            copy_body(&self.frontend, (record.write, record.body), pins).await?.with_etag(record.etag);
        self.put_body(to, stored, description, &options.precondition).await
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        if from.key == *to {
            return Err(StoreError::Invalid("an object cannot be moved to its own key".into()));
        }
        let (record, pins) = self.pinned_exact(from).await?;
        let stored = copy_body(&self.frontend, (record.write, record.body.clone()), pins).await?;
        let stored = stored.with_etag(record.etag.clone()).with_cache_number(record.write);
        let [one, other] = self.frontend.lock_two_keys(self.id, [from.key.as_bytes(), to.as_bytes()]).await;
        let mut target = self.edit(to, one).await?;
        target.check_precondition(&precondition)?;
        let mut source = self.edit(&from.key, other).await?;
        source.check_precondition(&Precondition::Matches(from.etag.clone()))?;
        // The bytes are the same, but tags or metadata may have changed before the lock was taken.
        let record = source.current.clone().unwrap_or(record);
        target.set_current(stored, (record.attributes, record.tags)).await?;
        source.delete_current().await?;
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
        let record = self.frontend.record(&IndexKey::object(self.id, key)).await?;
        Ok(record.ok_or_else(|| not_found(key))?.tags)
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, lock).await?;
        let mut record = edit.current.clone().ok_or_else(|| not_found(key))?;
        record.tags = tags;
        edit.put_entry(IndexKey::object(self.id, key), &record);
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
