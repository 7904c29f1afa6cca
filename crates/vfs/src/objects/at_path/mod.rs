//! Objects of a volume named by path: the bucket's objects, in one order with the mount's own changes.
//!
//! Invariants: every writer of a key locks it, as the mount does; a name being changed is marked as changing, so that a
//! listing in progress does not bring back its previous state.

mod list;
mod multipart;
mod naming;
mod object_store;

use futures_util::FutureExt as _;
use meta::{Ino, Inode, Kind, Moment, Name, Origin};
use std::sync::Arc;
use store::{
    CopyOptions, GetOptions, Object, ObjectKey, ObjectMeta, ObjectRef, Payload, Precondition, PutOptions,
    StoreError, Tags,
};

use super::body::body;
use super::errors::{error_about, namespace_error_about, no_such_key, reserved};
use super::etag;
use super::named::read::requested_range;
use super::served_directory::ServedDirectory;
use crate::Filesystem;
use crate::bucket::changes::ChangeGuard;
use crate::bucket::headers;
use crate::content::pin::Pin;
use crate::names::inodes::KnownPath;

/// Maximum attempts to remove a file whose name keeps changing; then its object is deleted.
const REMOVALS_MAX: u32 = 8;

/// The objects below a directory.
#[derive(Debug, Clone)]
pub(crate) struct ObjectsAtPath {
    pub(in crate::objects) fs: Arc<Filesystem>,
    pub(in crate::objects) directory: ServedDirectory,
}

impl ObjectsAtPath {
    /// Returns the bucket's key for a key of the endpoint.
    pub(super) fn full_key(&self, key: &ObjectKey) -> store::Result<ObjectKey> {
        let full = [&self.fs.mount.config.prefix, &self.directory.base[..], key.as_bytes()].concat();
        if self.fs.mount.layout.is_own(&full) {
            return Err(reserved(key));
        }
        let (len, len_max) = (full.len(), store::KEY_BYTES_MAX);
        let before = len - key.as_bytes().len();
        ObjectKey::new(full).map_err(|error| match before {
            0 => no_such_key(key, &error.to_string()),
            _ => {
                let why = format!(
                    "with the path in the store the key has {len} bytes ({before} more), and the limit is {len_max}: use a key of at most {} bytes",
                    len_max.saturating_sub(before)
                );
                no_such_key(key, &why)
            }
        })
    }

    /// Returns the key from the bucket's root. A key that cannot be one is reported as not found.
    fn full_key_to_read(&self, key: &ObjectKey) -> store::Result<ObjectKey> {
        self.full_key(key).map_err(|_| StoreError::NotFound(key.clone()))
    }

    /// Returns what the namespace knows of a key: directory, name and inode.
    fn known(&self, full: &ObjectKey) -> crate::Result<Option<(Ino, Name, Option<Inode>)>> {
        let Some((dir, shown)) = self.fs.names.visible_entry(full)? else { return Ok(None) };
        let inode = self.fs.names.tables().lookup(dir, &shown)?.filter(|inode| !inode.is_dir());
        Ok(Some((dir, shown, inode)))
    }

    /// Returns the file of a key whose content is not the bucket's object of that key: a further name of a file, or a file that is
    /// stored, at least partly, in objects under keys of their own. If another client changed or deleted the object, the object counts.
    async fn find_unshown(&self, full: &ObjectKey) -> store::Result<Option<Inode>> {
        let failed = error_about(full);
        let Some((dir, name, Some(inode))) = self.known(full).map_err(&failed)? else { return Ok(None) };
        let Some(object) = inode.object() else { return Ok(None) };
        if !matches!(inode.kind, Kind::File | Kind::Symlink) {
            return Ok(None);
        }
        if !self.fs.names.is_shown(dir, &name, &inode).map_err(&failed)? {
            return Ok(Some(inode));
        }
        if !inode.is_ahead() {
            return Ok(None);
        }
        let seen = self.fs.mount.store.find(full).await?;
        let is_own = seen.is_some_and(|seen| seen.object.etag == object.etag);
        Ok(is_own.then_some(inode))
    }

    pub(super) async fn head(&self, key: &ObjectKey) -> store::Result<ObjectMeta> {
        let full = self.full_key_to_read(key)?;
        if let Some(inode) = self.find_unshown(&full).await.map_err(|error| about_key(key, error))? {
            return self.meta_of_unshown(key, &inode).await;
        }
        let meta = self.fs.mount.store.head(&full).await;
        meta.map(|meta| with_key(key, meta)).map_err(|error| about_key(key, error))
    }

    pub(super) async fn get(&self, key: &ObjectKey, options: GetOptions) -> store::Result<Object> {
        let full = self.full_key_to_read(key)?;
        if let Some(inode) = self.find_unshown(&full).await.map_err(|error| about_key(key, error))? {
            return self.get_unshown(key, &inode, options).await;
        }
        let object = self.fs.mount.store.get(&full, options).await.map_err(|error| about_key(key, error))?;
        Ok(Object { meta: with_key(key, object.meta), body: object.body })
    }

    /// Returns the metadata of a file that `find_unshown` found: that of its object if it is one whole object, otherwise made of the inode.
    async fn meta_of_unshown(&self, key: &ObjectKey, inode: &Inode) -> store::Result<ObjectMeta> {
        let pin = self.fs.names.pin(inode).map_err(error_about(key))?;
        if let Some(object) = pin.as_ref().and_then(Pin::object) {
            let meta = self.fs.mount.store.head(&object.key).await.map_err(|error| about_key(key, error))?;
            return Ok(with_key(key, meta));
        }
        let object = ObjectRef {
            last_modified: Some(inode.mtime),
            ..ObjectRef::new(key.clone(), etag::of(inode, None))
        };
        let attributes = headers::with_posix(headers::for_kind(inode.kind), inode);
        Ok(ObjectMeta { object, size_bytes: inode.size_bytes, attributes, tag_count: Some(0) })
    }

    async fn get_unshown(
        &self,
        key: &ObjectKey,
        inode: &Inode,
        options: GetOptions,
    ) -> store::Result<Object> {
        let file = self.fs.io.opener.open_file(inode.ino).map_err(error_about(key))?;
        let found = async {
            let inode = self.fs.names.tables().inode(inode.ino).map_err(namespace_error_about(key))?;
            let meta = self.meta_of_unshown(key, &inode).await?;
            let range = requested_range(key, &meta, options)?;
            let pin = self.fs.names.pin(&inode).map_err(error_about(key))?;
            Ok((meta, pin.ok_or_else(|| StoreError::NotFound(key.clone()))?, range))
        };
        match found.await {
            Ok((meta, pin, range)) => match body(&self.fs, file, pin, range).await? {
                Some(body) => Ok(Object { meta, body }),
                None => Err(StoreError::Unavailable(
                    "the file was overwritten while it was read; try again".to_owned(),
                )),
            },
            Err(error) => Err(error),
        }
    }

    pub(super) async fn put(
        &self,
        key: &ObjectKey,
        body: Payload,
        options: PutOptions,
    ) -> store::Result<ObjectRef> {
        let full = self.full_key(key)?;
        let stored = self.change_key(&full, false, self.fs.mount.store.put(&full, body, options)).await;
        let stored = stored.map_err(|error| about_key(key, error))?;
        Ok(ObjectRef { key: key.clone(), ..stored })
    }

    /// Changes a key while no local operation and no observation of the bucket interferes; afterwards the mount shows the
    /// result. A rename of the key waits until it is shown.
    pub(super) async fn change_key<T>(
        &self,
        full: &ObjectKey,
        is_gone: bool,
        work: impl Future<Output = store::Result<T>>,
    ) -> store::Result<T> {
        let _endpoint_key_lock = self.fs.bucket.locks.endpoint_key_locks().lock(full).await;
        let done = {
            let _path = self.fs.bucket.locks.lock_keys(&[full]).await.map_err(error_about(full))?;
            let _key_lock = self.fs.bucket.locks.key_locks().lock(full).await;
            // An unknown name need not be marked before: another observation may find it as it was until the change.
            let _changing = self.mark_changing(full, |known| known.is_some());
            let done = work.await?;
            drop(self.mark_changing(full, |_| true));
            done
        };
        self.show_change(full, is_gone).await;
        Ok(done)
    }

    fn mark_changing(
        &self,
        full: &ObjectKey,
        counts: impl Fn(Option<Inode>) -> bool,
    ) -> Option<ChangeGuard<'_>> {
        let (dir, name, known) = self.known(full).ok()??;
        counts(known).then(|| self.fs.bucket.known.changes().begin(dir, &name))
    }

    /// Makes the mount show the outcome of a change before this returns; a directory that is not known will be listed anyway.
    /// The change has succeeded even if the bucket cannot be asked for its result now.
    async fn show_change(&self, full: &ObjectKey, is_gone: bool) {
        let look = |looked_at| self.look_once(full, is_gone, looked_at).boxed();
        if let Err(error) = self.fs.bucket.known.look_up_until_valid(full, look).await {
            tracing::warn!(key = %full, %error, "the result of a change could not be taken over from the bucket; the next lookup asks the bucket again");
            self.ask_again(full).ok();
        }
        self.fs.names.delivered().await;
    }

    /// Updates the names with what the store has at a key, if the mount would answer for the key from its known state, or if the object is gone.
    /// Otherwise forgets the listing of the key. Returns false if a change of the directory has made the look invalid.
    async fn look_once(&self, full: &ObjectKey, is_gone: bool, looked_at: Moment) -> crate::Result<bool> {
        let is_asked = self.is_looked_at(full)?;
        let seen = if is_asked { self.fs.mount.store.find(full).await? } else { None };
        match is_asked || is_gone {
            true => self.fs.bucket.discovery.observe(full, seen.as_ref(), looked_at).await,
            false => self.forget_listing(full).map(|()| true),
        }
    }

    /// Returns whether the mount would answer for a key without asking the bucket.
    fn is_looked_at(&self, full: &ObjectKey) -> crate::Result<bool> {
        let Some(known) = self.fs.names.known_path(full)? else { return Ok(false) };
        let Some(name) = &known.next else { return Ok(true) };
        let directory = self.fs.bucket.known.directories().get(known.dir).listed_range();
        let is_listed = known.is_last && (directory.pages > 0 || directory.is_complete);
        Ok(is_listed || self.fs.names.tables().entry(known.dir, name)?.is_some())
    }

    /// Makes the next lookup of a key ask the bucket, also if a program is writing the file.
    fn ask_again(&self, full: &ObjectKey) -> crate::Result<()> {
        if let Some((_, _, Some(inode))) = self.known(full)? {
            self.fs.content.files().mark_unconfirmed(inode.ino);
        }
        self.forget_listing(full)
    }

    /// Forgets the listing of the last known directory on the path of a key.
    fn forget_listing(&self, full: &ObjectKey) -> crate::Result<()> {
        let mut forgotten = None;
        while let Some(KnownPath { dir, next: Some(name), .. }) = self.fs.names.known_path(full)?
            && forgotten != Some(dir)
        {
            self.fs.bucket.known.forget_listing(dir, &name);
            // Meanwhile the next directory on the path may have been created.
            forgotten = Some(dir);
        }
        Ok(())
    }

    pub(super) async fn copy(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: CopyOptions,
    ) -> store::Result<ObjectRef> {
        let source = self.source_at_path(from).await?;
        let full = self.full_key(to)?;
        let copied = self.change_key(&full, false, self.fs.mount.store.copy(&source, &full, options)).await;
        let copied = copied.map_err(|error| match &error {
            StoreError::NotFound(key) | StoreError::PreconditionFailed(key) if *key == source.key => {
                about_key(&from.key, error)
            }
            _ => about_key(to, error),
        })?;
        Ok(ObjectRef { key: to.clone(), ..copied })
    }

    /// Returns the bucket's object that an object of the endpoint is.
    pub(super) async fn source_at_path(&self, from: &ObjectRef) -> store::Result<ObjectRef> {
        let full = self.full_key_to_read(&from.key)?;
        let Some(inode) = self.find_unshown(&full).await.map_err(|error| about_key(&from.key, error))? else {
            return Ok(ObjectRef { key: full, ..from.clone() });
        };
        let pin = self.fs.names.pin(&inode).map_err(error_about(&from.key))?;
        match pin.as_ref().and_then(Pin::object) {
            Some(object) if object.etag == from.etag => Ok(object.clone()),
            Some(_) => Err(StoreError::PreconditionFailed(from.key.clone())),
            None => {
                Err(StoreError::Unsupported("copying a file that is stored in several objects".to_owned()))
            }
        }
    }

    pub(super) async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> store::Result<()> {
        let full = self.full_key(key)?;
        for _ in 0..REMOVALS_MAX {
            match self.known(&full).map_err(error_about(key))? {
                Some((dir, name, Some(inode)))
                    if self.is_more_than_object(dir, &name, &inode).map_err(error_about(key))? =>
                {
                    self.check_precondition_at_path(key, &precondition).await?;
                    let remover = &self.fs.entries.remover;
                    match Box::pin(remover.unlink_name(Origin::Other, dir, &name, inode.ino)).await {
                        // The name leads elsewhere by now. The file may still be at this key: it gets another name when a
                        // directory of its name appears or goes.
                        Err(error) if error.errno() == libc::ENOENT => continue,
                        removed => removed.map_err(error_about(key))?,
                    }
                    self.show_change(&full, true).await;
                    return Ok(());
                }
                _ => break,
            }
        }
        let deleted = self.change_key(&full, true, self.fs.mount.store.delete(&full, precondition)).await;
        deleted.map_err(|error| about_key(key, error))
    }

    /// Returns whether removing a file is more than deleting its object: it is open, has other names, or is not at its key.
    fn is_more_than_object(&self, dir: Ino, name: &Name, inode: &Inode) -> crate::Result<bool> {
        let is_shown = self.fs.names.is_shown(dir, name, inode)?;
        let is_open = self.fs.content.files().get(inode.ino).is_some();
        Ok(inode.object().is_some() && (!is_shown || is_open || inode.nlink > 1))
    }

    async fn check_precondition_at_path(
        &self,
        key: &ObjectKey,
        precondition: &Precondition,
    ) -> store::Result<()> {
        let Precondition::Matches(etag) = precondition else { return Ok(()) };
        match self.head(key).await {
            Ok(meta) if meta.object.etag == *etag => Ok(()),
            Ok(_) | Err(StoreError::NotFound(_)) => Err(StoreError::PreconditionFailed(key.clone())),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn tags(&self, key: &ObjectKey) -> store::Result<Tags> {
        let full = self.object_key_of(key).await?;
        self.fs.mount.store.tags(&full).await.map_err(|error| about_key(key, error))
    }

    pub(super) async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> store::Result<()> {
        let full = self.object_key_of(key).await?;
        let set = self.fs.mount.store.set_tags(&full, tags).await.map_err(|error| about_key(key, error));
        if let Ok(Some((_, _, Some(inode)))) = self.known(&full) {
            self.fs.bucket.metadata.cache().forget(inode.ino);
        }
        set
    }

    /// Returns the key of the object that carries a key's tags.
    async fn object_key_of(&self, key: &ObjectKey) -> store::Result<ObjectKey> {
        let full = self.full_key_to_read(key)?;
        let Some(inode) = self.find_unshown(&full).await.map_err(|error| about_key(key, error))? else {
            return Ok(full);
        };
        let pin = self.fs.names.pin(&inode).map_err(error_about(key))?;
        Ok(pin.as_ref().and_then(Pin::object).map_or(full, |object| object.key.clone()))
    }
}

/// Returns metadata with the key as the caller knows it.
fn with_key(key: &ObjectKey, meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta { object: ObjectRef { key: key.clone(), ..meta.object }, ..meta }
}

/// Rewrites an error to name the key as the caller knows it.
pub(super) fn about_key(key: &ObjectKey, error: StoreError) -> StoreError {
    match error {
        StoreError::InvalidKey { reason, .. } => no_such_key(key, &reason),
        error => error.about(key),
    }
}
