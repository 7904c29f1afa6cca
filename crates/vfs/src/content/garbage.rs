//! Garbage collection: content that belongs to no file, left by an upload whose mount died before naming it or by a failed
//! deletion, and leases that are no longer renewed.

use meta::namespace::{read_content, read_inode};
use meta::{Engine, Ino};
use staging::leases::left_over;
use std::time::Duration;
use store::{ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Pages};

use crate::content::Content;
use crate::layout::Layout;
use crate::{Result, VolumeRecord};

/// How long a collection waits for the backup of the names.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Keys per page of a listing.
const BATCH: usize = 1000;

/// Returns the content below `prefix` that belongs to no file. No mount may be using the volume.
pub async fn unused_content(
    engine: &dyn Engine,
    store: &dyn ObjectStore,
    record: Option<&VolumeRecord>,
    prefix: &[u8],
) -> Result<Vec<ObjectKey>> {
    let Some(root) = read_inode(engine, Ino::ROOT)? else { return Ok(Vec::new()) };
    find(engine, store, &Layout::of(prefix, record, root.btime), &|_| false).await
}

impl Content {
    /// Finds content that belongs to no file; deletes it unless `only_find`.
    pub(crate) async fn collect_garbage(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        // Content stored for an open file, or for an object being stored, may be about to be named.
        let is_busy = |ino| self.files.get(ino).is_some() || self.storing.contains(ino);
        let keys = find(
            self.names.tables().engine().as_ref(),
            self.mount.store.as_ref(),
            &self.mount.layout,
            &is_busy,
        )
        .await?;
        if !only_find {
            for key in &keys {
                self.discard(key.clone()).await;
            }
            self.discards.wait_until_drained().await;
            self.discards.request_export();
            if tokio::time::timeout(EXPORT_TIMEOUT, self.discards.wait_until_empty()).await.is_err() {
                tracing::warn!("unused objects are deleted later: the names have not been backed up yet");
            }
        }
        Ok(keys)
    }

    /// Removes leases of dead mounts in the background, so that they do not accumulate.
    pub(crate) fn clean_leases(&self) {
        let (store, beginning) = (self.mount.store.clone(), self.mount.layout.leases_prefix());
        tokio::spawn(async move {
            if let Err(error) = left_over(store.as_ref(), &beginning, false).await {
                tracing::debug!(%error, "leases that no mount renews could not be looked for or deleted");
            }
        });
    }
}

async fn find(
    engine: &dyn Engine,
    store: &dyn ObjectStore,
    layout: &Layout,
    is_busy: &(dyn Fn(Ino) -> bool + Sync),
) -> Result<Vec<ObjectKey>> {
    let mut unused = Vec::new();
    let request = ListRequest { prefix: layout.content_prefix(), limit: BATCH, ..ListRequest::default() };
    let mut pages = Pages::new(store, request);
    while let Some(entries) = pages.next().await? {
        for entry in entries {
            let ListEntry::Object(ListedObject { object, .. }) = entry else { continue };
            let Some(ino) = layout.content_owner(&object.key).filter(|ino| !is_busy(*ino)) else { continue };
            // Read after the listing: content that was listed and has no name now never gets one.
            if !refers_to(engine, ino, &object.key)? {
                unused.push(object.key);
            }
        }
    }
    Ok(unused)
}

fn refers_to(engine: &dyn Engine, ino: Ino, key: &ObjectKey) -> Result<bool> {
    let Some((_, content)) = read_content(engine, ino)? else { return Ok(false) };
    Ok(content.iter().any(|extent| extent.object.key.as_ref() == Some(key)))
}
