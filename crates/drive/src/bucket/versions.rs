//! What was overwritten and deleted.

use super::edit::{Edit, check};
use super::{DriveBucket, shown};
use crate::format::{Body, IndexKey, Kind, ObjectRecord};
use crate::shell::decoded;
use bytes::Bytes;
use std::ops::Bound;
use store::listing::{PAGE_ENTRIES_MAX, Scan, successor};
use store::{
    Deleted, ListRequest, ListVersions, Lock, NULL_VERSION, ObjectKey, Precondition, Removal, Result,
    Retention, StoreError, Tags, Version, VersionEntry, Versioning, Versions, version_id,
};

impl DriveBucket {
    fn version(&self, key: &ObjectKey, record: &ObjectRecord, is_newest: bool, state: Versioning) -> Version {
        let id = shown(record.naming, state)
            .id(record.write, record.modified)
            .unwrap_or_else(|| NULL_VERSION.into());
        let stored = (record.body != Body::Mark).then(|| self.meta(key, record, state));
        Version { key: key.clone(), id, is_newest, last_modified: record.modified, stored }
    }

    /// All of a key, newest first.
    async fn all_of(&self, key: &ObjectKey, state: Versioning) -> Result<Vec<Version>> {
        let current = self.shell.record(&IndexKey::object(self.id, key)).await?;
        let older = self.older(key, usize::MAX).await?;
        let has_current = current.is_some();
        let newest = current.map(|record| self.version(key, &record, true, state));
        let older = older.iter().enumerate();
        let older = older.map(|(at, (_, record))| self.version(key, record, at == 0 && !has_current, state));
        Ok(newest.into_iter().chain(older).collect())
    }

    /// Changes a version that is an object.
    async fn change(
        &self,
        key: &ObjectKey,
        id: &str,
        change: impl FnOnce(&mut ObjectRecord) -> Result<()> + Send,
    ) -> Result<()> {
        version_id::check(id)?;
        let held = self.shell.hold(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, held).await?;
        let missing = || StoreError::NotFound(key.clone());
        let (entry, mut record) = self.found(&edit, key, id).await?.ok_or_else(missing)?;
        if record.body == Body::Mark {
            return Err(missing());
        }
        change(&mut record)?;
        edit.put(entry, &record);
        Ok(edit.commit().await?)
    }

    /// A version's entry.
    async fn found(
        &self,
        edit: &Edit<'_>,
        key: &ObjectKey,
        id: &str,
    ) -> Result<Option<(IndexKey, ObjectRecord)>> {
        if let Some(current) = edit.current.as_ref().filter(|current| edit.is_called(current, id)) {
            return Ok(Some((IndexKey::object(self.id, key), current.clone())));
        }
        let older = self.older(key, usize::MAX).await?;
        Ok(older.into_iter().find(|(_, record)| edit.is_called(record, id)))
    }

    /// The first key of a range, current or not.
    async fn first_key(&self, from: &Bound<Vec<u8>>, prefix: &[u8]) -> Result<Option<ObjectKey>> {
        let (objects, versions) = (IndexKey::of(Kind::Object, self.id), IndexKey::of(Kind::Version, self.id));
        let current = from.as_ref().map(|key| objects.clone().then(key).0);
        let older = match from {
            Bound::Included(key) => Bound::Included(versions.clone().escaped(key).0),
            // After all versions of the key, which end in a number.
            Bound::Excluded(key) => Bound::Included(versions.clone().escaped(key).then(&[0, 2]).0),
            Bound::Unbounded => Bound::Unbounded,
        };
        let (objects, versions) = (objects.then(prefix).0, versions.escaped(prefix).0);
        let found = self.shell.blocking(move |machine| {
            let first = |from: Bound<Vec<u8>>, prefix: &[u8]| {
                let mut scan = machine.index.scan(from.as_ref().map(Vec::as_slice), prefix)?;
                Ok(scan.next()?.map(|(key, _)| key.to_vec()))
            };
            Ok((first(current, &objects)?, first(older, &versions)?))
        });
        let (current, older) = found.await?;
        let current = current.and_then(|entry| IndexKey::object_key(&entry));
        let older = older.and_then(|entry| ObjectKey::new(IndexKey::escaped_key(&entry)?.0).ok());
        Ok(current.into_iter().chain(older).min())
    }

    async fn page_of_versions(&self, scan: &Scan, after_version: Option<&str>) -> Result<Vec<VersionEntry>> {
        let state = self.state().await?;
        let entry = |version| VersionEntry::Version(Box::new(version));
        let mut entries = Vec::new();
        if let (Some(after), Some(version)) = (&scan.after, after_version)
            && let Ok(key) = ObjectKey::new(after.clone())
        {
            let versions = self.all_of(&key, state).await?;
            let rest = versions.into_iter().skip_while(|found| *found.id != *version).skip(1);
            entries.extend(rest.map(entry));
        }
        let mut from = match &scan.after {
            Some(after) if **after >= *scan.prefix => Bound::Excluded(after.to_vec()),
            _ => Bound::Included(scan.prefix.to_vec()),
        };
        while entries.len() < scan.limit
            && let Some(key) = self.first_key(&from, &scan.prefix).await?
        {
            from = match scan.fold(key.as_bytes()) {
                Some(prefix) => {
                    if scan.is_after(prefix) {
                        entries.push(VersionEntry::Prefix(Bytes::copy_from_slice(prefix)));
                    }
                    let Some(next) = successor(prefix) else { break };
                    Bound::Included(next)
                }
                None => {
                    entries.extend(self.all_of(&key, state).await?.into_iter().map(entry));
                    Bound::Excluded(key.as_bytes().to_vec())
                }
            };
        }
        entries.truncate(scan.limit);
        Ok(entries)
    }
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
        let mut versions = self.all_of(key, state).await?.into_iter();
        let found = versions.find(|version| id.is_none_or(|id| *version.id == *id));
        found.ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted> {
        version_id::check(id)?;
        let now = self.shell.clock.now();
        let held = self.shell.hold(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, held).await?;
        let Some((entry, record)) = self.found(&edit, key, id).await? else {
            check(key, None, &removal.precondition)?;
            edit.commit().await?;
            return Ok(Deleted { version: Some(id.into()), is_marker: false });
        };
        let is_marker = record.body == Body::Mark;
        let etag = (!is_marker).then(|| self.etag_of(&record));
        check(key, etag.as_ref(), &removal.precondition)?;
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
        let held = self.shell.hold(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, held).await?;
        edit.check(&precondition)?;
        let deleted = edit.mark().await?;
        edit.commit().await?;
        Ok(deleted)
    }

    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        let ListVersions { prefix, delimiter, after, after_version, limit } = request;
        let keys = ListRequest { prefix, delimiter, start_after: after, token: None, limit };
        let scan = Scan::new(keys, PAGE_ENTRIES_MAX)?;
        self.page_of_versions(&scan, after_version.as_deref()).await
    }

    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags> {
        version_id::check(id)?;
        let missing = || StoreError::NotFound(key.clone());
        let entry = self.entry_of(key, id).await?.ok_or_else(missing)?;
        let record = self.shell.entry(&entry).await?.ok_or_else(missing)?;
        let record = decoded(&record)?;
        if record.body == Body::Mark { Err(missing()) } else { Ok(record.tags) }
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
        let now = self.shell.clock.now();
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
