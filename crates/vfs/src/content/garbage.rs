//! Garbage collection: content that belongs to no file, left by an upload whose mount died before naming it or by a failed
//! deletion, objects of batches that no file uses, and leases that are no longer renewed.
//!
//! While a batch is open, only leases and objects of batches without a record are collected, which were discarded or have expired: only the
//! batch knows which of its objects it uses, and programs in it see the volume as it was when the batch began.

use bytes::Bytes;
use meta::namespace::{read_batches, read_content, read_inode};
use meta::{Batch, BatchId, Engine, Extent, FsError, Ino, Inode, Name, schema};
use staging::leases::left_over;
use staging::packs::is_pack;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;
use store::{ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Pages};

use crate::content::Content;
use crate::layout::{KeySpace, Layout};
use crate::{Error, Result};

/// Maximum wait of a collection until the names are backed up, if they are, and the unused objects are deleted.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Keys per page of a listing, and inodes per step of a scan.
const BATCH: usize = 1000;

/// Returns the content of a volume that belongs to no file. No mount may be using the volume.
pub async fn unused_content(
    engine: &dyn Engine,
    store: &dyn ObjectStore,
    keys: KeySpace<'_>,
) -> Result<Vec<ObjectKey>> {
    let Some(root) = read_inode(engine, Ino::ROOT)? else { return Ok(Vec::new()) };
    let layout = Layout::of(keys, root.btime);
    let mut unused = find_unused(engine, store, &layout, &|_| false).await?;
    if let Some(batches) = layout.batches_prefix() {
        let stored = batch_objects_below(store, &layout, batches).await?;
        unused.extend(unused_of_ended_batches(engine, &layout, stored)?);
    }
    spare_for_batches(engine, &layout, &mut unused)?;
    Ok(unused)
}

impl Content {
    /// Returns the content that belongs to no file; deletes it unless `only_find`. Deletions that wait for a backup of
    /// the names may be made later.
    ///
    /// # Errors
    ///
    /// EBUSY if the content is to be deleted while another machine has the volume mounted, which may be storing content.
    pub(crate) async fn collect_garbage(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        let engine = self.names.tables().engine().as_ref();
        // Packs that a concurrent collection is making have no user yet.
        let _only_collection = self.collecting.lock().await;
        if !only_find {
            require_alone(engine)?;
        }
        // Content stored for an open file, or for an object being stored, may be about to be named.
        let is_busy = |ino| self.files.get(ino).is_some() || self.storing.contains(ino);
        let mut keys = find_unused(engine, self.mount.store.as_ref(), &self.mount.layout, &is_busy).await?;
        if !only_find {
            require_alone(engine)?;
            // A machine that had the volume mounted for a moment meanwhile may have named some of the content.
            keys = still_unused(engine, &self.mount.layout, keys)?;
        }
        keys.extend(self.unused_batch_objects().await?);
        spare_for_batches(engine, &self.mount.layout, &mut keys)?;
        if !only_find {
            for key in &keys {
                self.discard_unused(key.clone()).await;
            }
            self.discards.wait_until_drained().await;
            self.discards.request_export();
            if tokio::time::timeout(EXPORT_TIMEOUT, self.discards.wait_until_empty()).await.is_err() {
                tracing::warn!(
                    "unused objects are deleted later: the backup of the names, or the deletion itself, takes long"
                );
            }
        }
        Ok(keys)
    }

    /// Returns the objects of ended batches that no file uses.
    async fn unused_batch_objects(&self) -> Result<Vec<ObjectKey>> {
        let Some(batches) = self.mount.layout.batches_prefix() else { return Ok(Vec::new()) };
        let stored = batch_objects_below(self.mount.store.as_ref(), &self.mount.layout, batches).await?;
        let (engine, layout) = (self.names.tables().engine().clone(), self.mount.layout.clone());
        let unused = move || Ok(unused_of_ended_batches(engine.as_ref(), &layout, stored));
        store::blocking(unused).await.map_err(|_| Error::new(libc::EIO, "the search was interrupted"))?
    }

    /// Removes leases of dead mounts in the background, so that they do not accumulate.
    pub(crate) fn clean_leases(&self) {
        let (store, beginning) = (self.mount.store.clone(), self.mount.layout.leases_prefix());
        tokio::spawn(async move {
            if let Err(error) = left_over(store.as_ref(), &beginning, false).await {
                tracing::debug!(%error, "leases that no mount renews could not be listed or deleted; they stay in the bucket until the next mount or `tenon gc`");
            }
        });
    }
}

/// Returns the content that belongs to no file. Spares that of inodes for which `is_busy` returns true.
async fn find_unused(
    engine: &dyn Engine,
    store: &dyn ObjectStore,
    layout: &Layout,
    is_busy: &(dyn Fn(Ino) -> bool + Sync),
) -> Result<Vec<ObjectKey>> {
    let mut unused = Vec::new();
    for prefix in content_prefixes(store, layout).await? {
        let mut pages = Pages::new(store, ListRequest { prefix, limit: BATCH, ..ListRequest::default() });
        loop {
            let entries = match pages.next().await.map_err(Error::from) {
                // Other buckets can be searched all the same.
                Err(error) if layout.joins_buckets() && error.is_of_one_bucket() => break,
                page => page?,
            };
            let Some(entries) = entries else { break };
            for entry in entries {
                let ListEntry::Object(ListedObject { object, .. }) = entry else { continue };
                let Some(ino) = layout.content_owner(&object.key).filter(|ino| !is_busy(*ino)) else {
                    continue;
                };
                // Read after the listing: content that was listed and has no name now never gets one.
                if !refers_to(engine, ino, &object.key)? {
                    unused.push(object.key);
                }
            }
        }
    }
    Ok(unused)
}

/// Returns the prefixes of the keys of content: one, or one for each bucket if the directories at the root are buckets.
pub(crate) async fn content_prefixes(store: &dyn ObjectStore, layout: &Layout) -> Result<Vec<Bytes>> {
    if !layout.joins_buckets() {
        return Ok(vec![layout.content_prefix(None)]);
    }
    let request = ListRequest { delimiter: Some(b'/'), limit: BATCH, ..ListRequest::default() };
    let buckets = Pages::new(store, request).collect().await?;
    let prefix = |bucket: &ListEntry| {
        let name = Name::new(bucket.text().strip_suffix(b"/")?).ok()?;
        Some(layout.content_prefix(Some(&name)))
    };
    Ok(buckets.iter().filter_map(prefix).collect())
}

/// Fails while another machine has the volume mounted.
pub(crate) fn require_alone(engine: &dyn Engine) -> Result<()> {
    match engine.is_alone().map_err(FsError::from)? {
        true => Ok(()),
        false => Err(Error::new(
            libc::EBUSY,
            "another machine has the volume mounted: unused content can be deleted after it is unmounted there",
        )),
    }
}

/// Returns those keys of content to which their inode still does not refer.
fn still_unused(engine: &dyn Engine, layout: &Layout, keys: Vec<ObjectKey>) -> Result<Vec<ObjectKey>> {
    let mut unused = Vec::with_capacity(keys.len());
    for key in keys {
        if layout.content_owner(&key).map_or(Ok(false), |ino| refers_to(engine, ino, &key))? {
            continue;
        }
        unused.push(key);
    }
    Ok(unused)
}

/// An object that a batch has stored.
#[derive(Debug)]
pub(crate) struct BatchObject {
    pub(crate) batch: BatchId,
    pub(crate) key: ObjectKey,
    pub(crate) size_bytes: u64,
}

/// Returns the objects below a prefix that batches have stored.
pub(crate) async fn batch_objects_below(
    store: &dyn ObjectStore,
    layout: &Layout,
    prefix: Vec<u8>,
) -> Result<Vec<BatchObject>> {
    let mut stored = Vec::new();
    let mut pages =
        Pages::new(store, ListRequest { prefix: prefix.into(), limit: BATCH, ..ListRequest::default() });
    while let Some(entries) = pages.next().await? {
        for entry in entries {
            let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else { continue };
            if let Some(batch) = layout.batch_of(&object.key) {
                stored.push(BatchObject { batch, key: object.key, size_bytes });
            }
        }
    }
    Ok(stored)
}

/// Returns those objects of ended batches that no file uses. They must have been listed before: an object of a batch that has ended since is
/// named, or never will be. Reads all inodes.
fn unused_of_ended_batches(
    engine: &dyn Engine,
    layout: &Layout,
    mut stored: Vec<BatchObject>,
) -> Result<Vec<ObjectKey>> {
    let open = open_batches(engine)?;
    stored.retain(|object| !open.contains(&object.batch));
    if stored.is_empty() {
        return Ok(Vec::new());
    }
    let shared = shared_objects_in_use(engine, layout)?;
    let keys = stored.into_iter().map(|object| object.key).filter(|key| !shared.contains_key(key));
    unused_by_owner(engine, layout, keys)
}

/// Returns those objects that the inode in their key does not use. An object without an inode in its key is unused.
pub(crate) fn unused_by_owner(
    engine: &dyn Engine,
    layout: &Layout,
    keys: impl Iterator<Item = ObjectKey>,
) -> Result<Vec<ObjectKey>> {
    let mut unused = Vec::new();
    for key in keys {
        let is_used = match layout.content_owner(&key) {
            Some(ino) => refers_to(engine, ino, &key)?,
            None => false,
        };
        if !is_used {
            unused.push(key);
        }
    }
    Ok(unused)
}

/// Removes the keys from unused ones that programs in open batches may read, and all packs while a batch is open. A batch that begins after
/// the unused ones were found has a snapshot in which no file uses them.
fn spare_for_batches(engine: &dyn Engine, layout: &Layout, unused: &mut Vec<ObjectKey>) -> Result<()> {
    if let Some(readers) = BatchReaders::of(engine)? {
        unused.retain(|key| !is_pack(key) && !readers.may_read(layout, key));
    }
    Ok(())
}

/// The programs in open batches, which see the volume as it was when their batch began.
#[derive(Debug)]
pub(crate) struct BatchReaders {
    /// All batches with a record.
    recorded: BTreeSet<BatchId>,
}

impl BatchReaders {
    /// Returns `None` if no batch is open.
    pub(crate) fn of(engine: &dyn Engine) -> Result<Option<Self>> {
        let batches = read_batches(engine)?;
        let is_open = batches.iter().any(|batch| batch.outcome.is_none());
        Ok(is_open.then(|| Self { recorded: batches.iter().map(Batch::id).collect() }))
    }

    /// Returns whether these programs may read an object that no file of the volume uses any more. Batches without a record, which were
    /// discarded or have expired, were never a part of the volume.
    pub(crate) fn may_read(&self, layout: &Layout, key: &ObjectKey) -> bool {
        layout.batch_of(key).is_none_or(|id| self.recorded.contains(&id))
    }
}

/// Returns whether a batch was begun, and neither merged nor discarded.
pub fn has_open_batches(engine: &dyn Engine) -> Result<bool> {
    Ok(!open_batches(engine)?.is_empty())
}

/// Returns the batches that were begun, and neither merged nor discarded.
pub(crate) fn open_batches(engine: &dyn Engine) -> Result<BTreeSet<BatchId>> {
    let batches = read_batches(engine)?.into_iter();
    Ok(batches.filter(|batch| batch.outcome.is_none()).map(|batch| batch.id()).collect())
}

/// Returns the objects of batches that files other than the one in the key use, and how many bytes of each: packs, and objects of refused
/// changes that are kept as other files. Reads all inodes.
pub(crate) fn shared_objects_in_use(
    engine: &dyn Engine,
    layout: &Layout,
) -> Result<BTreeMap<ObjectKey, u64>> {
    let mut shared = BTreeMap::new();
    for_each_content(engine, |inode, content| {
        for Extent { object, len, .. } in content {
            let is_shared = |key: &ObjectKey| {
                layout.batch_of(key).is_some() && layout.content_owner(key) != Some(inode.ino)
            };
            if let Some(key) = object.key.filter(is_shared) {
                *shared.entry(key).or_default() += len;
            }
        }
    })?;
    Ok(shared)
}

/// Calls a function with each inode and its extents. Reads all inodes.
pub(crate) fn for_each_content(engine: &dyn Engine, mut work: impl FnMut(&Inode, Vec<Extent>)) -> Result<()> {
    let range = schema::inodes();
    let mut from = Bound::Included(range.from.clone());
    loop {
        let rows = engine
            .scan(from.as_ref().map(Vec::as_slice), Bound::Excluded(&range.to), BATCH)
            .map_err(FsError::from)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        from = Bound::Excluded(last.clone());
        for (key, _) in &rows {
            let ino = schema::ino_of(key).map_err(FsError::from)?;
            if let Some((inode, content)) = read_content(engine, ino)? {
                work(&inode, content);
            }
        }
    }
}

/// Returns whether an inode's content is in the object under a key.
fn refers_to(engine: &dyn Engine, ino: Ino, key: &ObjectKey) -> Result<bool> {
    // A cache may have the inode from before it got the content.
    engine.get_newest(&schema::inode(ino)).map_err(FsError::from)?;
    let Some((_, content)) = read_content(engine, ino)? else { return Ok(false) };
    Ok(content.iter().any(|extent| extent.object.key.as_ref() == Some(key)))
}
