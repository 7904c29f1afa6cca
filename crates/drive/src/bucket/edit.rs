//! Edit of a key: gathers the changes that one commit makes to a key.

use super::DriveBucket;
use super::key_versions::{FoundVersion, KeyVersions};
use super::record_metadata::{MetadataContext, etag_of};
use crate::engine::{InlinePut, Prepared};
use crate::error::Result;
use crate::format::{Body, Change, IndexKey, Naming, ObjectRecord};
use crate::frontend::{KeyGuard, Stored};
use crate::policy::Purpose;
use store::{Attributes, Deleted, ETag, ObjectKey, ObjectRef, Precondition, StoreError, Tags, Versioning};

/// Changes of a locked key, until they are committed.
#[derive(Debug)]
pub(crate) struct Edit<'a> {
    bucket: &'a DriveBucket,
    key: &'a ObjectKey,
    /// Derives the metadata of records. Its versioning state is the bucket's when the edit began.
    pub(super) context: MetadataContext,
    /// The current object of the key when the edit began.
    pub(crate) current: Option<ObjectRecord>,
    prepared: Prepared,
    locks: Vec<KeyGuard>,
}

impl DriveBucket {
    /// Begins a change of a key. `lock` is the key's lock.
    pub(crate) async fn edit<'a>(&'a self, key: &'a ObjectKey, lock: KeyGuard) -> store::Result<Edit<'a>> {
        let context = self.metadata_context().await?;
        let current = self.frontend.record(&IndexKey::object(self.id, key)).await?;
        let (prepared, locks) = (Prepared::default(), vec![lock]);
        Ok(Edit { bucket: self, key, context, current, prepared, locks })
    }

    /// Makes a stored body the current object of a key, in one commit. Fails with `PreconditionFailed` if the current
    /// object does not meet the precondition.
    pub(crate) async fn put_body(
        &self,
        key: &ObjectKey,
        stored: Stored,
        description: (Attributes, Tags),
        precondition: &Precondition,
    ) -> store::Result<ObjectRef> {
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let mut edit = self.edit(key, lock).await?;
        edit.check_precondition(precondition)?;
        let placed = edit.set_current(stored, description).await?;
        edit.commit().await?;
        Ok(placed)
    }
}

impl<'a> Edit<'a> {
    /// Returns the versions of the key.
    fn versions(&self) -> KeyVersions<'a> {
        KeyVersions { bucket: self.bucket, key: self.key }
    }

    /// Returns the index key of the key's current object.
    fn key_of_current(&self) -> IndexKey {
        IndexKey::object(self.bucket.id, self.key)
    }

    /// Checks a precondition against the current object. Fails with `PreconditionFailed`.
    pub(super) fn check_precondition(&self, precondition: &Precondition) -> store::Result<()> {
        let found = self.current.as_ref().map(|record| etag_of(self.context.drive, record));
        check_precondition(self.key, found.as_ref(), precondition)
    }

    /// Returns how the id of a version is formed that this edit stores.
    fn naming(&self) -> Naming {
        match self.context.versioning {
            Versioning::Never => Naming::Unnamed,
            Versioning::Enabled => Naming::Own,
            Versioning::Suspended => Naming::Null,
        }
    }

    /// Makes a stored body the current object once the edit is committed. The former current object is removed or
    /// becomes an older version.
    pub(crate) async fn set_current(
        &mut self,
        stored: Stored,
        description: (Attributes, Tags),
    ) -> Result<ObjectRef> {
        self.retire_current().await?;
        let Stored { body, inline_bytes, holds, etag, cache_numbers } = stored;
        let (attributes, tags) = description;
        let (write, modified) = (self.bucket.frontend.engine.next_write(), self.bucket.frontend.clock.now());
        let record = ObjectRecord { write, modified, naming: self.naming(), etag, body, attributes, tags };
        let placed = self.context.object_ref(self.key, &record);
        self.prepared.holds.extend(holds);
        let key = self.key_of_current();
        match inline_bytes {
            None => {
                self.prepared.retain(write, &record.body, cache_numbers);
                self.put_entry(key, &record);
            }
            Some(bytes) => self.prepared.inline_puts.push(InlinePut::new(key, record, bytes)),
        }
        Ok(placed)
    }

    /// Deletes the current object, if there is one. In a bucket with versioning a delete marker is added in any case,
    /// and the object becomes an older version, unless versioning is suspended and its id is `null`.
    pub(crate) async fn delete_current(&mut self) -> Result<Deleted> {
        self.retire_current().await?;
        if self.current.is_some() {
            self.delete_entry(self.key_of_current());
        }
        let naming = self.naming();
        if naming == Naming::Unnamed {
            self.prepared.purpose = Purpose::Frees;
            return Ok(Deleted::default());
        }
        self.prepared.purpose = Purpose::Moves;
        let (write, modified) = (self.bucket.frontend.engine.next_write(), self.bucket.frontend.clock.now());
        let (attributes, tags) = Default::default();
        let record =
            ObjectRecord { write, modified, naming, etag: None, body: Body::DeleteMarker, attributes, tags };
        self.put_entry(IndexKey::version(self.bucket.id, self.key.as_bytes(), write), &record);
        Ok(Deleted { version: naming.id(write, modified), is_marker: true })
    }

    /// Releases the bytes of the current object, or adds it as an older version, as the versioning state demands; the
    /// caller replaces or deletes its entry. Removes the older version with the id `null` if the next version takes
    /// this id.
    async fn retire_current(&mut self) -> Result<()> {
        // If the current object has the id `null`, no older version has.
        let is_null = self.current.as_ref().is_some_and(|current| current.naming != Naming::Own);
        if self.context.versioning == Versioning::Suspended
            && !is_null
            && let Some((entry, record)) = self.versions().older_null().await?
        {
            self.drop_version(entry, &record);
        }
        let Some(current) = self.current.clone() else { return Ok(()) };
        let stays = match self.context.versioning {
            Versioning::Never => false,
            Versioning::Enabled => true,
            Versioning::Suspended => current.naming == Naming::Own,
        };
        match stays {
            true => self
                .put_entry(IndexKey::version(self.bucket.id, self.key.as_bytes(), current.write), &current),
            false => self.prepared.release(&current),
        }
        Ok(())
    }

    /// Removes the current object. The newest older version, unless it is a delete marker, becomes current.
    pub(super) async fn remove_current(&mut self) -> Result<()> {
        self.prepared.purpose = Purpose::Frees;
        let Some(current) = self.current.take() else { return Ok(()) };
        self.prepared.release(&current);
        self.delete_entry(self.key_of_current());
        let next = self.versions().older(1).await?.pop();
        self.promote(next);
        Ok(())
    }

    /// Removes an older version or a delete marker. If that was the newest of a key without current object, the version
    /// before it becomes current, unless that is a delete marker.
    pub(super) async fn remove_older(&mut self, entry: IndexKey, record: &ObjectRecord) -> Result<()> {
        self.prepared.purpose = Purpose::Frees;
        let newest = self.versions().older(2).await?;
        let was_newest = self.current.is_none() && newest.first().is_some_and(|(first, _)| *first == entry);
        self.drop_version(entry, record);
        if was_newest {
            self.promote(newest.into_iter().nth(1));
        }
        Ok(())
    }

    /// Makes an older version the current object, unless it is a delete marker.
    fn promote(&mut self, older: Option<FoundVersion>) {
        if let Some((entry, record)) = older.filter(|(_, record)| record.body != Body::DeleteMarker) {
            self.delete_entry(entry);
            self.put_entry(self.key_of_current(), &record);
        }
    }

    /// Removes a version, and releases its blocks.
    fn drop_version(&mut self, entry: IndexKey, record: &ObjectRecord) {
        self.prepared.release(record);
        self.delete_entry(entry);
    }

    /// Adds the change that sets an entry to a record.
    pub(super) fn put_entry(&mut self, key: IndexKey, record: &ObjectRecord) {
        self.prepared.changes.push(Change::Put { key: key.0, value: record.encode() });
    }

    /// Removes an entry of the index.
    pub(super) fn delete_entry(&mut self, key: IndexKey) {
        self.prepared.changes.push(Change::Delete { key: key.0 });
    }

    /// Adds further changes to the same commit.
    pub(super) fn include(&mut self, other: Prepared) {
        self.prepared.extend(other);
    }

    /// Makes the changes durable and visible.
    pub(super) async fn commit(self) -> Result<()> {
        if self.prepared.is_empty() {
            // The deletion of a missing key changes nothing. It fails all the same after a failed write, as the next opening may find that
            // write.
            return self.bucket.frontend.engine.check_writable();
        }
        self.bucket.frontend.commit(self.prepared, self.locks).await
    }

    /// Returns the changes, to be committed by the caller. Releases the edit's key lock: the caller must hold another.
    pub(crate) fn into_prepared(self) -> Prepared {
        self.prepared
    }

    /// Commits the changes of two edits together.
    pub(super) async fn commit_with(mut self, other: Self) -> Result<()> {
        self.prepared.extend(other.prepared);
        self.locks.extend(other.locks);
        self.commit().await
    }

    /// Returns the entry and the record of the version with this id, which may be the current object; `None` if there
    /// is none.
    pub(super) async fn find_version(&self, id: &str) -> Result<Option<FoundVersion>> {
        let current = self.current.as_ref().filter(|current| self.context.has_version_id(current, id));
        match current {
            Some(current) => Ok(Some((self.key_of_current(), current.clone()))),
            None => self.versions().older_with_id(self.context, id).await,
        }
    }
}

pub(super) fn check_precondition(
    key: &ObjectKey,
    found: Option<&ETag>,
    precondition: &Precondition,
) -> store::Result<()> {
    match precondition.holds(found) {
        true => Ok(()),
        false => Err(StoreError::PreconditionFailed(key.clone())),
    }
}
