//! Versions of objects: implements `Versions`.

use super::edit::{Edit, OlderVersion, check_precondition, has_version_id};
use super::{DriveBucket, effective_naming};
use crate::error::Error;
use crate::format::{Body, BucketId, IndexKey, Kind, ObjectRecord};
use crate::index;
use crate::engine::Engine;
use crate::frontend::decode_record;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use store::listing::{PAGE_ENTRIES_MAX, Scan, successor};
use store::{
    Deleted, ListRequest, ListVersions, Lock, NULL_VERSION, ObjectKey, Precondition, Removal, Result,
    Retention, StoreError, Tags, Version, VersionEntry, Versioning, Versions, version_id,
};

impl DriveBucket {
    fn version(&self, key: &ObjectKey, record: &ObjectRecord, is_newest: bool, state: Versioning) -> Version {
        let id = effective_naming(record.naming, state)
            .id(record.write, record.modified)
            .unwrap_or_else(|| NULL_VERSION.into());
        let stored = (record.body != Body::DeleteMarker).then(|| self.meta(key, record, state));
        Version { key: key.clone(), id, is_newest, last_modified: record.modified, stored }
    }

    /// Returns the newest version of a key: the current object, or a delete marker.
    async fn newest(&self, key: &ObjectKey, state: Versioning) -> Result<Option<Version>> {
        let entry = IndexKey::object(self.id, key);
        let mut current = self.frontend.record(&entry).await?;
        loop {
            if let Some(record) = &current {
                return Ok(Some(self.version(key, record, true, state)));
            }
            let older = self.older_versions(key, 1).await?;
            // An older version may have become current meanwhile.
            current = self.frontend.record(&entry).await?;
            if current.is_none() {
                return Ok(older.first().map(|(_, record)| self.version(key, record, true, state)));
            }
        }
    }

    /// Returns all versions of a key, newest first.
    async fn all_versions(&self, key: &ObjectKey, state: Versioning) -> Result<Vec<Version>> {
        let entry = IndexKey::object(self.id, key);
        let mut current = self.frontend.record(&entry).await?;
        loop {
            let older = self.older_versions(key, usize::MAX).await?.into_iter().map(|(_, record)| record);
            let now = self.frontend.record(&entry).await?;
            if is_same_write(&current, &now) {
                let records = newest_first(current, older);
                return Ok(self.versions_of(key, &records, state).collect());
            }
            current = now;
        }
    }

    /// Returns the entry and the record of the version with this id.
    pub(super) async fn find_version(&self, key: &ObjectKey, id: &str) -> Result<Option<OlderVersion>> {
        let state = self.state().await?;
        let entry = IndexKey::object(self.id, key);
        let mut current = self.frontend.record(&entry).await?;
        loop {
            if let Some(record) = current.as_ref().filter(|record| has_version_id(record, state, id)) {
                return Ok(Some((entry, record.clone())));
            }
            let older = self.older_version(key, id, state).await?;
            if older.is_some() {
                return Ok(older);
            }
            // The version may have become current meanwhile.
            let now = self.frontend.record(&entry).await?;
            if is_same_write(&current, &now) {
                return Ok(None);
            }
            current = now;
        }
    }

    /// Returns the versions of a key for these records, which are ordered newest first.
    fn versions_of(
        &self,
        key: &ObjectKey,
        records: &[ObjectRecord],
        state: Versioning,
    ) -> impl Iterator<Item = Version> {
        let numbered = records.iter().enumerate();
        numbered.map(move |(at, record)| self.version(key, record, at == 0, state))
    }

    /// Changes a version that is no delete marker.
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
        let (entry, mut record) = self.find_entry(&edit, key, id).await?.ok_or_else(missing)?;
        if record.body == Body::DeleteMarker {
            return Err(missing());
        }
        change(&mut record)?;
        edit.put_entry(entry, &record);
        Ok(edit.commit().await?)
    }

    /// Returns the entry and the record of a version, during an edit of its key.
    async fn find_entry(
        &self,
        edit: &Edit<'_>,
        key: &ObjectKey,
        id: &str,
    ) -> Result<Option<(IndexKey, ObjectRecord)>> {
        if let Some(current) = edit.current.as_ref().filter(|current| edit.has_version_id(current, id)) {
            return Ok(Some((IndexKey::object(self.id, key), current.clone())));
        }
        Ok(self.older_version(key, id, edit.state).await?)
    }

    async fn page_of_versions(&self, scan: Scan, after_version: Option<&str>) -> Result<Vec<VersionEntry>> {
        let state = self.state().await?;
        let mut entries = Vec::new();
        if let (Some(after), Some(version)) = (&scan.after, after_version)
            && let Ok(key) = ObjectKey::new(after.clone())
        {
            let versions = self.all_versions(&key, state).await?;
            entries.extend(version_id::after(versions, version).map(entry));
        }
        let bucket = self.clone();
        let work = move |engine: &Arc<Engine>| bucket.versions_from(engine, &scan, state, entries);
        Ok(self.frontend.run_blocking(work).await?)
    }

    /// Appends the versions of the keys that the scan covers, up to its limit.
    fn versions_from(
        &self,
        engine: &Engine,
        scan: &Scan,
        state: Versioning,
        mut entries: Vec<VersionEntry>,
    ) -> crate::Result<Vec<VersionEntry>> {
        let mut from = Some(match &scan.after {
            Some(after) if **after >= *scan.prefix => Bound::Excluded(after.to_vec()),
            _ => Bound::Included(scan.prefix.to_vec()),
        });
        while entries.len() < scan.limit
            && let Some(bound) = from.take()
        {
            let mut keys = VersionedKeys::new(engine, self.id, &bound, &scan.prefix)?;
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
                entries.extend(self.versions_of(&key, &records, state).map(entry));
            }
        }
        entries.truncate(scan.limit);
        Ok(entries)
    }
}

/// Returns whether two reads of the current object saw the same write. Then no version was moved between the reads.
fn is_same_write(one: &Option<ObjectRecord>, other: &Option<ObjectRecord>) -> bool {
    let write = |record: &Option<ObjectRecord>| record.as_ref().map(|record| record.write);
    write(one) == write(other)
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

    /// Returns the next key.
    fn next(&self) -> Option<ObjectKey> {
        self.object.iter().chain(&self.version).map(|(key, _)| key).min().cloned()
    }

    /// Removes the next key and returns its records, newest first.
    fn take(&mut self, key: &ObjectKey) -> crate::Result<Vec<ObjectRecord>> {
        let (mut current, mut older) = (None, Vec::new());
        if let Some((_, value)) = self.object.take_if(|(next, _)| next == key) {
            current = Some(decode_record(&value)?);
            self.next_object()?;
        }
        while let Some((_, value)) = self.version.take_if(|(next, _)| next == key) {
            older.push(decode_record(&value)?);
            self.next_version()?;
        }
        Ok(newest_first(current, older.into_iter()))
    }

    fn next_object(&mut self) -> crate::Result<()> {
        let read = |entry: &[u8], value: &Bytes| Some((IndexKey::object_key(entry)?, value.clone()));
        self.object = next_of(&mut self.objects, read)?;
        Ok(())
    }

    fn next_version(&mut self) -> crate::Result<()> {
        let key = |entry: &[u8]| ObjectKey::new(IndexKey::escaped_key(entry)?.0).ok();
        self.version = next_of(&mut self.versions, |entry, value| Some((key(entry)?, value.clone())))?;
        Ok(())
    }
}

/// Returns the current record and the older ones. An object that was overwritten between the two reads appears in both; it is returned
/// once.
fn newest_first(
    current: Option<ObjectRecord>,
    older: impl Iterator<Item = ObjectRecord>,
) -> Vec<ObjectRecord> {
    let newest = current.as_ref().map_or(u64::MAX, |current| current.write);
    current.into_iter().chain(older.filter(|record| record.write < newest)).collect()
}

fn next_of<T>(
    scan: &mut index::Scan,
    read: impl FnOnce(&[u8], &Bytes) -> Option<T>,
) -> crate::Result<Option<T>> {
    let Some((entry, value)) = scan.next()? else { return Ok(None) };
    read(entry, value).map(Some).ok_or(Error::damaged("a version's entry in the index", 0))
}

#[async_trait::async_trait]
impl Versions for DriveBucket {
    async fn state(&self) -> Result<Versioning> {
        DriveBucket::state(self).await
    }

    async fn set_state(&self, state: Versioning) -> Result<()> {
        if state == Versioning::Never && DriveBucket::state(self).await? != Versioning::Never {
            return Err(StoreError::Invalid("a bucket that kept versions cannot forget them".into()));
        }
        self.set_versioning(state).await
    }

    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version> {
        id.map_or(Ok(()), version_id::check)?;
        let state = DriveBucket::state(self).await?;
        let missing = || StoreError::NotFound(key.clone());
        let Some(id) = id else { return self.newest(key, state).await?.ok_or_else(missing) };
        let (_, record) = self.find_version(key, id).await?.ok_or_else(missing)?;
        let found = self.version(key, &record, false, state);
        let newest = self.newest(key, state).await?;
        let is_newest = newest.is_some_and(|newest| newest.id == found.id);
        Ok(Version { is_newest, ..found })
    }

    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted> {
        version_id::check(id)?;
        let now = self.frontend.clock.now();
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, lock).await?;
        let Some((entry, record)) = self.find_entry(&edit, key, id).await? else {
            check_precondition(key, None, &removal.precondition)?;
            edit.commit().await?;
            return Ok(Deleted { version: Some(id.into()), is_marker: false });
        };
        let is_marker = record.body == Body::DeleteMarker;
        let etag = (!is_marker).then(|| self.etag_of(&record));
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
        let keys = ListRequest { prefix, delimiter, start_after: after, token: None, limit };
        let scan = Scan::new(keys, PAGE_ENTRIES_MAX)?;
        self.page_of_versions(scan, after_version.as_deref()).await
    }

    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags> {
        version_id::check(id)?;
        let missing = || StoreError::NotFound(key.clone());
        let (_, record) = self.find_version(key, id).await?.ok_or_else(missing)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Naming;
    use store::Timestamp;

    /// A version was listed twice, as the newest and as an older one, if its key was overwritten between the reads of the current object
    /// and of the older versions.
    #[test]
    fn an_object_overwritten_between_two_reads_is_listed_once() {
        let record = |write| {
            let (modified, naming, body) = (Timestamp(1), Naming::Own, Body::DeleteMarker);
            let (attributes, tags) = Default::default();
            ObjectRecord { write, modified, naming, etag: None, body, attributes, tags }
        };
        let listed = |current: Option<u64>, older: &[u64]| -> Vec<u64> {
            let records = newest_first(current.map(record), older.iter().copied().map(record));
            records.iter().map(|record| record.write).collect()
        };
        assert_eq!(listed(Some(5), &[4, 2]), [5, 4, 2]);
        assert_eq!(listed(Some(5), &[6, 5, 4]), [5, 4]);
        assert_eq!(listed(None, &[4, 2]), [4, 2]);
    }
}
