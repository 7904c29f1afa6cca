//! The census of packs: how many bytes of each pack files use, and which packs are to be rewritten because files use less than half of them.
//!
//! Counts extents, since no op counts what it takes from a pack (decision 0106). A range of a pack that two files use counts twice, so a pack
//! may be found to be better used than it is, never worse.

use meta::{Engine, Ino};
use staging::packs::is_pack;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{ObjectKey, ObjectStore};

use crate::content::garbage::{
    batch_objects_below, for_each_content, has_open_batches, shared_objects_in_use,
};
use crate::layout::{KeySpace, Layout};
use crate::{Error, Result};

/// Packs that are rewritten.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PacksToRewrite {
    /// Number of packs.
    pub count: u64,
    /// Their length, in bytes.
    pub size_bytes: u64,
    /// The bytes of them that files use.
    pub used_bytes: u64,
}

/// A pack of which files use less than half.
#[derive(Debug)]
pub(crate) struct SparsePack {
    pub(crate) key: ObjectKey,
    /// Length in bytes.
    pub(crate) size_bytes: u64,
    /// Bytes that files use.
    pub(crate) used_bytes: u64,
    /// The files that use the pack.
    pub(crate) users: Vec<Ino>,
}

impl PacksToRewrite {
    pub(crate) fn of(packs: &[SparsePack]) -> Self {
        packs.iter().fold(Self::default(), |sum, pack| Self {
            count: sum.count + 1,
            size_bytes: sum.size_bytes + pack.size_bytes,
            used_bytes: sum.used_bytes + pack.used_bytes,
        })
    }
}

/// Returns how many packs of a volume are to be rewritten. No mount may be using the volume.
pub async fn packs_to_rewrite(
    engine: &Arc<dyn Engine>,
    store: &dyn ObjectStore,
    keys: KeySpace<'_>,
) -> Result<PacksToRewrite> {
    let Some(root) = meta::namespace::read_inode(&**engine, Ino::ROOT)? else {
        return Ok(PacksToRewrite::default());
    };
    let sparse = sparse_packs(engine, store, &Layout::of(keys, root.btime)).await?;
    Ok(PacksToRewrite::of(&sparse))
}

/// Returns the packs of which files use some bytes, but less than half; none while a batch is open. Reads all inodes if there are packs.
pub(crate) async fn sparse_packs(
    engine: &Arc<dyn Engine>,
    store: &dyn ObjectStore,
    layout: &Layout,
) -> Result<Vec<SparsePack>> {
    let Some(batches) = layout.batches_prefix() else { return Ok(Vec::new()) };
    let stored = batch_objects_below(store, layout, batches).await?.into_iter();
    let sizes: BTreeMap<_, _> =
        stored.filter(|object| is_pack(&object.key)).map(|object| (object.key, object.size_bytes)).collect();
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    let (engine, layout) = (Arc::clone(engine), layout.clone());
    let work = move || Ok(count(engine.as_ref(), &layout, sizes));
    store::blocking(work).await.map_err(|_| Error::new(libc::EIO, "the census of packs was interrupted"))?
}

/// Counts the bytes that files use of packs with these lengths.
fn count(
    engine: &dyn Engine,
    layout: &Layout,
    mut sizes: BTreeMap<ObjectKey, u64>,
) -> Result<Vec<SparsePack>> {
    if has_open_batches(engine)? {
        return Ok(Vec::new());
    }
    let used = shared_objects_in_use(engine, layout)?;
    sizes.retain(|key, size_bytes| used.get(key).is_some_and(|used| *used < *size_bytes / 2));
    let mut sparse: BTreeMap<_, _> = sizes
        .into_iter()
        .map(|(key, size_bytes)| {
            let used_bytes = used.get(&key).copied().unwrap_or_default();
            (key.clone(), SparsePack { key, size_bytes, used_bytes, users: Vec::new() })
        })
        .collect();
    if sparse.is_empty() {
        return Ok(Vec::new());
    }
    for_each_content(engine, |inode, content| {
        for key in content.iter().filter_map(|extent| extent.object.key.as_ref()) {
            if let Some(pack) = sparse.get_mut(key)
                && pack.users.last() != Some(&inode.ino)
            {
                pack.users.push(inode.ino);
            }
        }
    })?;
    Ok(sparse.into_values().collect())
}
