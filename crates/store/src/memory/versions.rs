//! Versions of objects in memory.

use super::{Description, MemoryStore, Shared, Stored, check};
use crate::listing::{PAGE_ENTRIES_MAX, Scan, successor};
use crate::{
    Deleted, ListRequest, ListVersions, Lock, NULL_VERSION, ObjectKey, Precondition, Removal, Result,
    Retention, StoreError, Tags, Timestamp, Version, VersionEntry, VersionId, Versioning, Versions,
    version_id,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A bucket's objects. `current` has the newest version of each key, unless that is a delete marker. `older` has all other
/// versions and delete markers, newest first.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) current: BTreeMap<ObjectKey, Stored>,
    older: BTreeMap<ObjectKey, Vec<OlderVersion>>,
    /// Whether writes make versions.
    state: Versioning,
}

/// An older version, or a delete marker.
enum OlderVersion {
    Object(Stored),
    Mark { write: u64, modified: Timestamp, naming: Naming },
}

/// The kind of a version's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// No id: the bucket never kept versions.
    Unnamed,
    /// The id `null`.
    Null,
    /// A unique id.
    Own,
}

impl Naming {
    /// Returns the id of a version with this naming; `None` if the bucket never had versioning.
    pub(super) fn id(self, write: u64, modified: Timestamp) -> Option<VersionId> {
        match self {
            Self::Unnamed => None,
            Self::Null => Some(NULL_VERSION.into()),
            Self::Own => Some(version_id::new(write, modified)),
        }
    }

    /// Returns whether a version with this naming has an id.
    fn is(self, wanted: &str, write: u64, modified: Timestamp) -> bool {
        match self {
            Self::Unnamed | Self::Null => wanted == NULL_VERSION,
            Self::Own => *version_id::new(write, modified) == *wanted,
        }
    }
}

impl OlderVersion {
    fn is(&self, wanted: &str) -> bool {
        match self {
            Self::Object(stored) => stored.is(wanted),
            Self::Mark { write, modified, naming } => naming.is(wanted, *write, *modified),
        }
    }

    /// Returns the object of the version; `None` for a delete marker.
    fn object(&self) -> Option<&Stored> {
        match self {
            Self::Object(stored) => Some(stored),
            Self::Mark { .. } => None,
        }
    }

    fn version(&self, key: &ObjectKey, is_newest: bool) -> Version {
        match self {
            Self::Object(stored) => stored.version(key, is_newest),
            Self::Mark { write, modified, naming } => {
                let id = naming.id(*write, *modified).unwrap_or_else(|| NULL_VERSION.into());
                Version { key: key.clone(), id, is_newest, last_modified: *modified, stored: None }
            }
        }
    }
}

impl Stored {
    pub(super) fn is(&self, wanted: &str) -> bool {
        self.naming.is(wanted, self.write, self.modified)
    }

    fn version(&self, key: &ObjectKey, is_newest: bool) -> Version {
        let id = self.naming.id(self.write, self.modified).unwrap_or_else(|| NULL_VERSION.into());
        let (last_modified, stored) = (self.modified, Some(self.meta(key)));
        Version { key: key.clone(), id, is_newest, last_modified, stored }
    }

    fn lock(&self) -> Lock {
        self.description.as_ref().map(|found| Lock::of(&found.attributes)).unwrap_or_default()
    }

    /// Changes the attributes or tags of an object, without an effect on others that share them.
    fn change(&mut self, change: impl FnOnce(&mut Description)) {
        let mut description = self.description.as_deref().cloned().unwrap_or_default();
        change(&mut description);
        self.description = description.shared();
    }
}

impl Objects {
    /// Returns the kind of id for new versions.
    pub(super) fn naming(&self) -> Naming {
        match self.state {
            Versioning::Never => Naming::Unnamed,
            Versioning::Enabled => Naming::Own,
            Versioning::Suspended => Naming::Null,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.current.is_empty() && self.older.is_empty()
    }

    /// Returns the version of an object with this id, the newest or an older one; `None` if there is none, or if it is
    /// a delete marker.
    pub(super) fn find(&self, key: &ObjectKey, wanted: &str) -> Option<&Stored> {
        let newest = self.current.get(key).filter(|stored| stored.is(wanted));
        newest.or_else(|| self.older.get(key)?.iter().find(|kept| kept.is(wanted))?.object())
    }

    fn find_mut(&mut self, key: &ObjectKey, wanted: &str) -> Result<&mut Stored> {
        version_id::check(wanted)?;
        let newest = self.current.get_mut(key).filter(|stored| stored.is(wanted));
        let older = self.older.get_mut(key).into_iter().flatten().find(|kept| kept.is(wanted));
        let older = older.and_then(|kept| match kept {
            OlderVersion::Object(stored) => Some(stored),
            OlderVersion::Mark { .. } => None,
        });
        newest.or(older).ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    /// Inserts an object as the newest version.
    pub(super) fn insert(&mut self, key: &ObjectKey, stored: Stored) {
        self.retire_newest(key);
        self.current.insert(key.clone(), stored);
    }

    /// Deletes a key: adds a delete marker, or removes the object if the bucket never kept versions.
    pub(super) fn mark(&mut self, key: &ObjectKey, write: u64, modified: Timestamp) -> Deleted {
        self.retire_newest(key);
        let naming = self.naming();
        if naming == Naming::Unnamed {
            return Deleted::default();
        }
        self.older.entry(key.clone()).or_default().insert(0, OlderVersion::Mark { write, modified, naming });
        Deleted { version: naming.id(write, modified), is_marker: true }
    }

    /// Removes the newest version, or makes it an older version if the bucket keeps it. While versioning is
    /// suspended, also removes an older version or delete marker with the id `null`.
    fn retire_newest(&mut self, key: &ObjectKey) {
        if self.state == Versioning::Suspended
            && let Some(older) = self.older.get_mut(key)
        {
            older.retain(|kept| !kept.is(NULL_VERSION));
            if older.is_empty() {
                self.older.remove(key);
            }
        }
        let Some(newest) = self.current.remove(key) else { return };
        let stays = match self.state {
            Versioning::Never => false,
            Versioning::Enabled => true,
            Versioning::Suspended => newest.naming == Naming::Own,
        };
        if stays {
            self.older.entry(key.clone()).or_default().insert(0, OlderVersion::Object(newest));
        }
    }

    fn remove(
        &mut self,
        key: &ObjectKey,
        wanted: &str,
        removal: &Removal,
        now: Timestamp,
    ) -> Result<Deleted> {
        version_id::check(wanted)?;
        let deleted = |is_marker| Deleted { version: Some(wanted.into()), is_marker };
        let check_removal = |stored: Option<&Stored>| {
            check(key, stored, &removal.precondition)?;
            match stored.is_some_and(|stored| stored.lock().protects(now, removal.bypass_governance)) {
                true => Err(StoreError::Locked(key.clone())),
                false => Ok(()),
            }
        };
        if let Some(newest) = self.current.get(key).filter(|stored| stored.is(wanted)) {
            check_removal(Some(newest))?;
            self.current.remove(key);
            self.promote(key);
            return Ok(deleted(false));
        }
        let older = self.older.get_mut(key).into_iter().flatten().position(|kept| kept.is(wanted));
        let (Some(at), Some(older)) = (older, self.older.get_mut(key)) else {
            check(key, None, &removal.precondition)?;
            return Ok(deleted(false));
        };
        check_removal(older[at].object())?;
        let is_marker = matches!(older.remove(at), OlderVersion::Mark { .. });
        self.promote(key);
        Ok(deleted(is_marker))
    }

    /// Makes the newest older version current if the key has no current version and it is not a delete marker.
    fn promote(&mut self, key: &ObjectKey) {
        let Some(older) = self.older.get_mut(key) else { return };
        if !self.current.contains_key(key)
            && matches!(older.first(), Some(OlderVersion::Object(_)))
            && let OlderVersion::Object(stored) = older.remove(0)
        {
            self.current.insert(key.clone(), stored);
        }
        if older.is_empty() {
            self.older.remove(key);
        }
    }

    /// Returns all versions of a key, newest first.
    fn of(&self, key: &ObjectKey) -> Vec<Version> {
        let current = self.current.get(key);
        let older = self.older.get(key).into_iter().flatten().enumerate();
        let newest = current.map(|stored| stored.version(key, true));
        let older = older.map(|(at, kept)| kept.version(key, at == 0 && current.is_none()));
        newest.into_iter().chain(older).collect()
    }

    /// Returns the first key from a bound on that has a version or a delete marker.
    fn first(&self, from: Bound<&[u8]>) -> Option<&ObjectKey> {
        let range = (from, Bound::Unbounded);
        let current = self.current.range::<[u8], _>(range).next().map(|(key, _)| key);
        let older = self.older.range::<[u8], _>(range).next().map(|(key, _)| key);
        current.into_iter().chain(older).min()
    }

    fn list(&self, scan: &Scan, after_version: Option<&str>) -> Vec<VersionEntry> {
        let mut entries = Vec::new();
        if let (Some(after), Some(version)) = (&scan.after, after_version)
            && let Ok(key) = ObjectKey::new(after.clone())
        {
            entries.extend(version_id::after(self.of(&key), version).map(entry));
        }
        let mut from = match &scan.after {
            Some(after) if **after >= *scan.prefix => Bound::Excluded(after.to_vec()),
            _ => Bound::Included(scan.prefix.to_vec()),
        };
        while entries.len() < scan.limit
            && let Some(key) = self.first(from.as_ref().map(Vec::as_slice))
            && key.as_bytes().starts_with(&scan.prefix)
        {
            match scan.fold(key.as_bytes()) {
                Some(prefix) => {
                    if scan.is_after(prefix) {
                        entries.push(VersionEntry::Prefix(Bytes::copy_from_slice(prefix)));
                    }
                    let Some(next) = successor(prefix) else { break };
                    from = Bound::Included(next);
                }
                None => {
                    entries.extend(self.of(key).into_iter().map(entry));
                    from = Bound::Excluded(key.as_bytes().to_vec());
                }
            }
        }
        entries.truncate(scan.limit);
        entries
    }
}

fn entry(version: Version) -> VersionEntry {
    VersionEntry::Version(Box::new(version))
}

impl Shared {
    fn with<T>(&self, key: &ObjectKey, id: &str, work: impl FnOnce(&mut Stored) -> Result<T>) -> Result<T> {
        work(self.write().find_mut(key, id)?)
    }
}

#[async_trait::async_trait]
impl Versions for MemoryStore {
    async fn state(&self) -> Result<Versioning> {
        Ok(self.0.read().state)
    }

    async fn set_state(&self, state: Versioning) -> Result<()> {
        let mut objects = self.0.write();
        if state == Versioning::Never && objects.state != Versioning::Never {
            return Err(StoreError::Invalid(
                "versioning that was enabled once cannot be disabled, only suspended".into(),
            ));
        }
        if state != Versioning::Never {
            let unnamed = objects.current.values_mut().filter(|stored| stored.naming == Naming::Unnamed);
            unnamed.for_each(|stored| stored.naming = Naming::Null);
        }
        objects.state = state;
        Ok(())
    }

    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version> {
        id.map_or(Ok(()), version_id::check)?;
        let mut versions = self.0.read().of(key).into_iter();
        let found = versions.find(|version| id.is_none_or(|id| *version.id == *id));
        found.ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted> {
        let now = self.0.clock.now();
        self.0.write().remove(key, id, &removal, now)
    }

    async fn mark(&self, key: &ObjectKey, precondition: Precondition) -> Result<Deleted> {
        self.0.delete(key, &precondition)
    }

    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        let ListVersions { prefix, delimiter, after, after_version, limit } = request;
        let keys = ListRequest { prefix, delimiter, start_after: after, limit, ..ListRequest::default() };
        let scan = Scan::new(keys, PAGE_ENTRIES_MAX)?;
        Ok(self.0.read().list(&scan, after_version.as_deref()))
    }

    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags> {
        self.0.with(key, id, |stored| {
            Ok(stored.description.as_ref().map(|found| found.tags.clone()).unwrap_or_default())
        })
    }

    async fn set_tags(&self, key: &ObjectKey, id: &str, tags: Tags) -> Result<()> {
        self.0.check_tags(&tags)?;
        self.0.with(key, id, |stored| {
            stored.change(|description| description.tags = tags);
            Ok(())
        })
    }

    async fn set_retention(
        &self,
        key: &ObjectKey,
        id: &str,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()> {
        let now = self.0.clock.now();
        self.0.with(key, id, |stored| {
            let lock = stored.lock();
            if !lock.may_become(retention, now, bypass_governance) {
                return Err(StoreError::Locked(key.clone()));
            }
            stored.change(|description| Lock { retention, ..lock }.write(&mut description.attributes));
            Ok(())
        })
    }

    async fn set_legal_hold(&self, key: &ObjectKey, id: &str, is_held: bool) -> Result<()> {
        self.0.with(key, id, |stored| {
            let lock = Lock { legal_hold: Some(is_held), ..stored.lock() };
            stored.change(|description| lock.write(&mut description.attributes));
            Ok(())
        })
    }
}
