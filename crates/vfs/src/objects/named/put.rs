//! Storing of an object in a volume named by inode: first its bytes, then one commit that creates it and its name.

use bytes::Bytes;
use meta::{Applied, FsError, Kind, Origin};
use store::{Attributes, ObjectKey, ObjectRef, Payload, Precondition, PutOptions, StoreError};

use super::plan::NewObject;
use super::{ATTEMPTS_MAX, NamedObjects, too_many_races, unless_raced};
use crate::content::storing::StoringGuard;
use crate::objects::errors::{error_about, namespace_error_about};

/// Maximum length of a symbolic link target in bytes.
const TARGET_BYTES_MAX: u64 = 4095;
/// Maximum length of a marker's body, which is stored in an extended attribute.
const MARKER_BYTES_MAX: u64 = 60 << 10;

impl NamedObjects {
    pub(in crate::objects) async fn put(
        &self,
        key: &ObjectKey,
        body: Payload,
        options: PutOptions,
    ) -> store::Result<ObjectRef> {
        let resolved = self.keys.resolve(key)?;
        if resolved.last.is_none() {
            return self.put_marker(key, &body.to_bytes(), options).await;
        }
        self.check_precondition_first(key, &options.precondition)?;
        let ino = self.fs.names.new_ino(resolved.dir).map_err(error_about(key))?;
        let _stores = StoringGuard::begin(self.fs.content.storing(), ino);
        let target = self.target(key, &body, &options.attributes);
        let content = match target {
            Some(_) => Vec::new(),
            None => self.fs.io.uploader.store_content(ino, &body).await?,
        };
        let (attributes, tags) = (&options.attributes, &options.tags);
        let size_bytes = body.len();
        let new = NewObject { ino, content, size_bytes, target, attributes, tags, etag: None, orphan: None };
        self.name_or_discard(key, &new, &options.precondition).await
    }

    /// Checks the precondition before any content is stored.
    pub(super) fn check_precondition_first(
        &self,
        key: &ObjectKey,
        precondition: &Precondition,
    ) -> store::Result<()> {
        self.keys.retry_while_replaced(key, || {
            let there = self.keys.object_at(&self.keys.resolve(key)?).map_err(namespace_error_about(key))?;
            self.keys.check_precondition(key, precondition, there.as_ref())
        })
    }

    /// Returns the target of a symbolic link, if the headers describe one.
    fn target(&self, key: &ObjectKey, body: &Payload, attributes: &Attributes) -> Option<Bytes> {
        let seen = self.keys.attributes_from(
            key,
            body.len(),
            attributes,
            self.fs.mount.now(),
            &self.fs.mount.defaults,
        );
        let is_link = seen.kind == Kind::Symlink && (1..=TARGET_BYTES_MAX).contains(&body.len());
        is_link.then(|| body.to_bytes()).filter(|target| !target.contains(&0))
    }

    /// Names stored content, and discards it if that fails.
    pub(in crate::objects) async fn name_or_discard(
        &self,
        key: &ObjectKey,
        new: &NewObject<'_>,
        precondition: &Precondition,
    ) -> store::Result<ObjectRef> {
        let named = self.name_object(key, new, precondition).await;
        // After a commit with an unknown outcome the content may have been named.
        if named.as_ref().is_err_and(|error| !matches!(error, StoreError::Unavailable(_))) {
            self.directory.discard_all(&new.content).await;
        }
        named
    }

    /// Creates the object in one commit, which also removes the previous owner of the name.
    pub(in crate::objects) async fn name_object(
        &self,
        key: &ObjectKey,
        new: &NewObject<'_>,
        precondition: &Precondition,
    ) -> store::Result<ObjectRef> {
        let _key_lock = self.fs.bucket.locks.key_locks().lock(&self.directory.key_to_lock(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let resolved = self.keys.resolve(key)?;
            let taken = self.keys.find_at(&resolved).map_err(namespace_error_about(key))?;
            let held = match (precondition, &taken) {
                (Precondition::Matches(_), Some((_, inode))) => self.fs.io.opener.open_file(inode.ino).ok(),
                _ => None,
            };
            let outcome = {
                // The lock keeps other bytes from being published between the check and the commit.
                let _state = match &held {
                    Some(file) => Some(file.write_state.lock().await),
                    None => None,
                };
                self.try_to_name(key, new, precondition)
            };
            if let Some(file) = held {
                file.close().await.map_err(error_about(key))?;
            }
            match outcome {
                Ok(Some((object, applied))) => {
                    self.finish_change(key, applied).await?;
                    return Ok(object);
                }
                // The previous owner of the name was removed meanwhile.
                Ok(None) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(too_many_races())
    }

    /// Completes a change after its commit: deletes what it replaced, makes it durable, and waits for the invalidations.
    pub(in crate::objects) async fn finish_change(
        &self,
        key: &ObjectKey,
        applied: Vec<Applied>,
    ) -> store::Result<()> {
        for applied in applied.iter().filter(|applied| applied.orphaned) {
            match self.fs.io.opener.release_orphan(applied).await {
                Err(crate::Error::Namespace(FsError::NotFound)) => {}
                Err(error) => {
                    tracing::warn!(%key, %error, "a replaced file could not be cleaned up; its content may stay in the bucket")
                }
                Ok(()) => {}
            }
        }
        self.fs.names.sync_names_unless_write_back().await.map_err(error_about(key))?;
        self.fs.names.delivered().await;
        Ok(())
    }

    /// Tries to name content. `None`: the names changed meanwhile.
    fn try_to_name(
        &self,
        key: &ObjectKey,
        new: &NewObject<'_>,
        precondition: &Precondition,
    ) -> store::Result<Option<(ObjectRef, Vec<Applied>)>> {
        let resolved = self.keys.resolve(key)?;
        let taken = self.keys.find_at(&resolved).map_err(namespace_error_about(key))?;
        let there = taken.as_ref().map(|(_, inode)| inode).filter(|inode| self.keys.is_object(inode));
        self.keys.check_precondition(key, precondition, there)?;
        let context = self.fs.mount.context(Origin::Other);
        let (object, change) = self.keys.plan_naming(key, new, &resolved, taken.as_ref(), &context)?;
        let applied = unless_raced(key, self.commit_at(&context, &change))?;
        Ok(applied.map(|applied| (object, applied)))
    }

    /// Creates a directory's marker: the directory then exists independently of its contents.
    async fn put_marker(
        &self,
        key: &ObjectKey,
        body: &Bytes,
        options: PutOptions,
    ) -> store::Result<ObjectRef> {
        if body.len() as u64 > MARKER_BYTES_MAX {
            let why = "in a volume named by inode an object whose key ends in '/' is a directory and cannot exceed 60 KiB";
            return Err(StoreError::Invalid(why.to_owned()));
        }
        let _key_lock = self.fs.bucket.locks.key_locks().lock(&self.directory.key_to_lock(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            match self.try_to_mark(key, body, &options) {
                Ok(Some((object, applied))) => {
                    self.finish_change(key, applied).await?;
                    return Ok(object);
                }
                // The directory was removed meanwhile.
                Ok(None) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(too_many_races())
    }

    /// Tries to create a marker. `None`: the names changed meanwhile.
    fn try_to_mark(
        &self,
        key: &ObjectKey,
        body: &Bytes,
        options: &PutOptions,
    ) -> store::Result<Option<(ObjectRef, Vec<Applied>)>> {
        let resolved = self.keys.resolve(key)?;
        let there = self.keys.object_at(&resolved).map_err(namespace_error_about(key))?;
        self.keys.check_precondition(key, &options.precondition, there.as_ref())?;
        let context = self.fs.mount.context(Origin::Other);
        let (object, change) = self.keys.plan_marker(key, &resolved, body, options, &context)?;
        let applied = unless_raced(key, self.commit_at(&context, &change))?;
        Ok(applied.map(|applied| (object, applied)))
    }
}
