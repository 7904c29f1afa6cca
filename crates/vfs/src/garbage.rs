//! Content that no file has: what an upload left whose mount died before it was named, or a deletion that failed.

use meta::namespace::read_inode;
use meta::{Engine, Ino};
use store::{ListEntry, ListRequest, ObjectKey, ObjectStore, Pages};

use crate::layout::Layout;
use crate::{Filesystem, Result, VolumeRecord};

/// Keys looked at in one step.
const BATCH: usize = 1000;

/// The content below `prefix` that no file has, while nobody mounts the volume.
pub async fn unused_content(
    engine: &dyn Engine,
    store: &dyn ObjectStore,
    record: Option<&VolumeRecord>,
    prefix: &[u8],
) -> Result<Vec<ObjectKey>> {
    let Some(root) = read_inode(engine, Ino::ROOT)? else { return Ok(Vec::new()) };
    find(engine, store, &Layout::of(prefix, record, root.btime), &|_| false).await
}

impl Filesystem {
    /// Finds content that no file has, and deletes it unless it is only to be found.
    pub async fn collect_garbage(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        // What was stored for a file that is open, or for an object, may be about to be named.
        let is_busy = |ino| self.files.get(ino).is_some() || self.storing.is_for(ino);
        let keys = find(self.names.engine().as_ref(), self.store.as_ref(), &self.layout, &is_busy).await?;
        if !only_find {
            for key in &keys {
                self.discard(key.clone()).await;
            }
            self.discards.drained().await;
        }
        Ok(keys)
    }
}

async fn find(
    engine: &dyn Engine,
    store: &dyn ObjectStore,
    layout: &Layout,
    is_busy: &(dyn Fn(Ino) -> bool + Sync),
) -> Result<Vec<ObjectKey>> {
    let mut unused = Vec::new();
    let request = ListRequest { prefix: layout.content(), limit: BATCH, ..ListRequest::default() };
    let mut pages = Pages::of(store, request);
    while let Some(entries) = pages.next().await? {
        for entry in entries {
            let ListEntry::Object { object, .. } = entry else { continue };
            let Some(ino) = layout.owner(&object.key).filter(|ino| !is_busy(*ino)) else { continue };
            // Read after the listing: what was listed and is not named now never will be.
            if !has(engine, ino, &object.key)? {
                unused.push(object.key);
            }
        }
    }
    Ok(unused)
}

fn has(engine: &dyn Engine, ino: Ino, key: &ObjectKey) -> Result<bool> {
    let Some(inode) = read_inode(engine, ino)? else { return Ok(false) };
    Ok(inode.content.iter().any(|extent| extent.object.key.as_ref() == Some(key)))
}
