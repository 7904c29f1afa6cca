//! Versions of objects: implements `Versions`.

use super::DriveBucket;
use super::edit::check_precondition;
use super::key_versions::newest_first;
use super::record_metadata::{MetadataContext, etag_of};
use crate::engine::Engine;
use crate::error::Error;
use crate::format::{Body, BucketId, IndexKey, Kind, ObjectRecord, decode_record};
use crate::index;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use store::listing::{PAGE_ENTRIES_MAX, Scan, successor};
use store::{
    Deleted, ListRequest, ListVersions, Lock, ObjectKey, Precondition, Removal, Result, Retention,
    StoreError, Tags, Version, VersionEntry, Versioning, Versions, version_id,
};

impl DriveBucket {
    /// Changes the record of a version in one commit. Fails with `NotFound` if there is no such version, or if it is a
    /// delete marker.
    async fn change(
        &self,
        key: &ObjectKey,
        id: &str,
        change: impl FnOnce(&mut ObjectRecord) -> Result<()> + Send,
    ) -> Result<()> {
        version_id::check(id)?;
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, lock).await?;
        let missing = || StoreError::NotFound(key.clone());
        let (entry, mut record) = edit.find_version(id).await?.ok_or_else(missing)?;
        if record.body == Body::DeleteMarker {
            return Err(missing());
        }
        change(&mut record)?;
        edit.put_entry(entry, &record);
        Ok(edit.commit().await?)
    }

    async fn page_of_versions(&self, scan: Scan, after_version: Option<&str>) -> Result<Vec<VersionEntry>> {
        let context = self.metadata_context().await?;
        let mut entries = Vec::new();
        if let (Some(after), Some(version)) = (&scan.after, after_version)
            && let Ok(key) = ObjectKey::new(after.clone())
        {
            let versions = self.key_versions(&key).all(context).await?;
            entries.extend(version_id::after(versions, version).map(entry));
        }
        let bucket = self.id;
        let work = move |engine: &Arc<Engine>| versions_from(engine, bucket, &scan, context, entries);
        Ok(self.frontend.run_blocking(work).await?)
    }
}

/// Appends to `entries` the versions of the keys that the scan covers, until there are as many as its limit.
fn versions_from(
    engine: &Engine,
    bucket: BucketId,
    scan: &Scan,
    context: MetadataContext,
    mut entries: Vec<VersionEntry>,
) -> crate::Result<Vec<VersionEntry>> {
    let mut from = Some(match &scan.after {
        Some(after) if **after >= *scan.prefix => Bound::Excluded(after.to_vec()),
        _ => Bound::Included(scan.prefix.to_vec()),
    });
    while entries.len() < scan.limit
        && let Some(bound) = from.take()
    {
        let mut keys = VersionedKeys::new(engine, bucket, &bound, &scan.prefix)?;
        while entries.len() < scan.limit
            && let Some(key) = keys.next()
        {
            if let Some(prefix) = scan.fold(key.as_bytes()) {
                if scan.is_after(prefix) {
                    entries.push(VersionEntry::Prefix(Bytes::copy_from_slice(prefix)));
                }
                from = successor(prefix).map(Bound::Included);
                break;
            }
            let records = keys.take(&key)?;
            entries.extend(context.versions_of(&key, &records).map(entry));
        }
    }
    entries.truncate(scan.limit);
    Ok(entries)
}

fn entry(version: Version) -> VersionEntry {
    VersionEntry::Version(Box::new(version))
}

/// The keys of a bucket that have a current object or versions, in order: two scans in parallel.
struct VersionedKeys {
    objects: index::Scan,
    versions: index::Scan,
    /// The next unread entry of each scan.
    object: Option<(ObjectKey, Bytes)>,
    version: Option<(ObjectKey, Bytes)>,
}

impl VersionedKeys {
    fn new(engine: &Engine, bucket: BucketId, from: &Bound<Vec<u8>>, prefix: &[u8]) -> crate::Result<Self> {
        let (objects, versions) =
            (IndexKey::prefix(Kind::Object, bucket), IndexKey::prefix(Kind::Version, bucket));
        let current = from.as_ref().map(|key| objects.clone().append(key).0);
        let older = match from {
            Bound::Included(key) => Bound::Included(versions.clone().append_escaped(key).0),
            // After all versions of the key: in their entries `00 01` and a number follow the key.
            Bound::Excluded(key) => Bound::Included(versions.clone().append_escaped(key).append(&[0, 2]).0),
            Bound::Unbounded => Bound::Unbounded,
        };
        let scan = |from: Bound<Vec<u8>>, prefix: IndexKey| {
            engine.index.scan(from.as_ref().map(Vec::as_slice), &prefix.0)
        };
        // Objects first: an object that is overwritten between the scans is then found among the older versions.
        let objects = scan(current, objects.append(prefix))?;
        let versions = scan(older, versions.append_escaped(prefix))?;
        let mut keys = Self { objects, versions, object: None, version: None };
        keys.next_object()?;
        keys.next_version()?;
        Ok(keys)
    }

    /// Returns the next key without removing it; `None` after the last.
    fn next(&self) -> Option<ObjectKey> {
        self.object.iter().chain(&self.version).map(|(key, _)| key).min().cloned()
    }

    /// Removes the next key and returns its records, newest first.
    fn take(&mut self, key: &ObjectKey) -> crate::Result<Vec<ObjectRecord>> {
        let (mut current, mut older) = (None, Vec::new());
        if let Some((_, value)) = self.object.take_if(|(next, _)| next == key) {
            current = Some(decode_record(key.as_bytes(), &value)?);
            self.next_object()?;
        }
        while let Some((_, value)) = self.version.take_if(|(next, _)| next == key) {
            older.push(decode_record(key.as_bytes(), &value)?);
            self.next_version()?;
        }
        Ok(newest_first(current, older.into_iter()))
    }

    /// Moves to the next current object.
    fn next_object(&mut self) -> crate::Result<()> {
        let read = |entry: &[u8], value: &Bytes| Some((IndexKey::object_key(entry)?, value.clone()));
        self.object = next_of(&mut self.objects, read)?;
        Ok(())
    }

    /// Moves to the next older version.
    fn next_version(&mut self) -> crate::Result<()> {
        let key = |entry: &[u8]| ObjectKey::new(IndexKey::escaped_key(entry)?.0).ok();
        self.version = next_of(&mut self.versions, |entry, value| Some((key(entry)?, value.clone())))?;
        Ok(())
    }
}

/// Returns what `read` makes of the next entry of a scan; `None` at its end.
fn next_of<T>(
    scan: &mut index::Scan,
    read: impl FnOnce(&[u8], &Bytes) -> Option<T>,
) -> crate::Result<Option<T>> {
    let Some((entry, value)) = scan.next()? else { return Ok(None) };
    read(entry, value).map(Some).ok_or_else(|| Error::damaged_entry("a version's key", entry))
}

#[async_trait::async_trait]
impl Versions for DriveBucket {
    async fn state(&self) -> Result<Versioning> {
        DriveBucket::state(self).await
    }

    async fn set_state(&self, state: Versioning) -> Result<()> {
        if state == Versioning::Never && DriveBucket::state(self).await? != Versioning::Never {
            return Err(StoreError::Invalid(
                "versioning that was enabled once cannot be disabled, only suspended".into(),
            ));
        }
        self.set_versioning(state).await
    }

    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version> {
        id.map_or(Ok(()), version_id::check)?;
        let context = self.metadata_context().await?;
        let missing = || StoreError::NotFound(key.clone());
        let Some(id) = id else { return self.key_versions(key).newest(context).await?.ok_or_else(missing) };
        let (_, record) = self.key_versions(key).find(context, id).await?.ok_or_else(missing)?;
        let found = context.version(key, &record, false);
        let newest = self.key_versions(key).newest(context).await?;
        let is_newest = newest.is_some_and(|newest| newest.id == found.id);
        Ok(Version { is_newest, ..found })
    }

    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted> {
        version_id::check(id)?;
        let now = self.frontend.clock.now();
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, lock).await?;
        let Some((entry, record)) = edit.find_version(id).await? else {
            check_precondition(key, None, &removal.precondition)?;
            edit.commit().await?;
            return Ok(Deleted { version: Some(id.into()), is_marker: false });
        };
        let is_marker = record.body == Body::DeleteMarker;
        let etag = (!is_marker).then(|| etag_of(self.drive_id(), &record));
        check_precondition(key, etag.as_ref(), &removal.precondition)?;
        if Lock::of(&record.attributes).protects(now, removal.bypass_governance) {
            return Err(StoreError::Locked(key.clone()));
        }
        match entry == IndexKey::object(self.id, key) {
            true => edit.remove_current().await?,
            false => edit.remove_older(entry, &record).await?,
        }
        edit.commit().await?;
        Ok(Deleted { version: Some(id.into()), is_marker })
    }

    async fn mark(&self, key: &ObjectKey, precondition: Precondition) -> Result<Deleted> {
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, lock).await?;
        edit.check_precondition(&precondition)?;
        let deleted = edit.delete_current().await?;
        edit.commit().await?;
        Ok(deleted)
    }

    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        let ListVersions { prefix, delimiter, after, after_version, limit } = request;
        let keys = ListRequest { prefix, delimiter, start_after: after, limit, ..ListRequest::default() };
        let scan = Scan::new(keys, PAGE_ENTRIES_MAX)?;
        self.page_of_versions(scan, after_version.as_deref()).await
    }

    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags> {
        version_id::check(id)?;
        let missing = || StoreError::NotFound(key.clone());
        let (_, record) =
            self.key_versions(key).find(self.metadata_context().await?, id).await?.ok_or_else(missing)?;
        if record.body == Body::DeleteMarker { Err(missing()) } else { Ok(record.tags) }
    }

    async fn set_tags(&self, key: &ObjectKey, id: &str, tags: Tags) -> Result<()> {
        self.change(key, id, |record| {
            record.tags = tags;
            Ok(())
        })
        .await
    }

    async fn set_retention(
        &self,
        key: &ObjectKey,
        id: &str,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()> {
        let now = self.frontend.clock.now();
        self.change(key, id, |record| {
            let lock = Lock::of(&record.attributes);
            if !lock.may_become(retention, now, bypass_governance) {
                return Err(StoreError::Locked(key.clone()));
            }
            Lock { retention, ..lock }.write(&mut record.attributes);
            Ok(())
        })
        .await
    }

    async fn set_legal_hold(&self, key: &ObjectKey, id: &str, is_held: bool) -> Result<()> {
        self.change(key, id, |record| {
            let lock = Lock { legal_hold: Some(is_held), ..Lock::of(&record.attributes) };
            lock.write(&mut record.attributes);
            Ok(())
        })
        .await
    }
}
