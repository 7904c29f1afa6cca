//! Offline check that the metadata of a volume and the content in its bucket agree. No mount may be using the volume.

use bytes::Bytes;
use meta::namespace::read_inode;
use meta::{BatchId, Engine, FsError, Ino};
use staging::packs::is_pack;
use std::collections::{BTreeMap, BTreeSet};
use store::{ETag, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Pages};

use crate::Result;
use crate::content::garbage::{content_prefixes, for_each_content, open_batches};
use crate::layout::{KeySpace, Layout};

/// Records or keys per step.
const BATCH: usize = 1000;

/// Differences between metadata and content; empty for a sound volume.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Broken invariants of the metadata, one line each.
    pub violations: Vec<String>,
    /// Files whose content is missing or was replaced: their bytes are lost.
    pub missing: Vec<(Ino, ObjectKey)>,
    /// Content that belongs to no file, as [`unused_content`](crate::unused_content) finds it.
    pub unused: Vec<ObjectKey>,
}

impl Audit {
    /// Compares the metadata in `engine` with the content of the volume. Keeps every file's key in memory.
    pub async fn make(engine: &dyn Engine, store: &dyn ObjectStore, keys: KeySpace<'_>) -> Result<Self> {
        // The snapshot is one state: the volume may change meanwhile, also by other machines.
        let violations =
            meta::invariants::fsck(&*engine.snapshot().map_err(FsError::from)?).map_err(FsError::from)?;
        let violations = violations.iter().map(ToString::to_string).collect();
        let mut audit = Self { violations, ..Self::default() };
        let Some(root) = read_inode(engine, Ino::ROOT)? else { return Ok(audit) };
        let layout = Layout::of(keys, root.btime);
        let mut referred = object_uses(engine)?;
        referred.retain(|key, _| layout.content_owner(key).is_some() || is_pack(key));
        let open = open_batches(engine)?;
        let batches = layout.batches_prefix().map(Bytes::from);
        for prefix in content_prefixes(store, &layout).await?.into_iter().chain(batches) {
            audit.compare(store, &layout, prefix, &mut referred, &open).await?;
        }
        audit.missing.extend(referred.into_iter().map(|(key, needed)| (needed.ino, key)));
        Ok(audit)
    }

    /// Compares the objects below a prefix with those that files refer to, and removes these from `referred`.
    async fn compare(
        &mut self,
        store: &dyn ObjectStore,
        layout: &Layout,
        prefix: Bytes,
        referred: &mut BTreeMap<ObjectKey, ObjectUse>,
        open: &BTreeSet<BatchId>,
    ) -> Result<()> {
        let mut pages = Pages::new(store, ListRequest { prefix, limit: BATCH, ..ListRequest::default() });
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else { continue };
                match referred.remove(&object.key) {
                    // A batch may have been begun when files used them.
                    None if !open.is_empty() => {}
                    None if layout.content_owner(&object.key).is_some() || is_pack(&object.key) => {
                        self.unused.push(object.key);
                    }
                    Some(needed) if !needed.is_met_by(&object.etag, size_bytes) => {
                        self.missing.push((needed.ino, object.key));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The part of an object that a file refers to.
#[derive(Debug)]
struct ObjectUse {
    ino: Ino,
    etag: ETag,
    /// Minimum length of the object.
    bytes: u64,
}

impl ObjectUse {
    /// Returns whether an object of this tag and length has the bytes that the file needs.
    fn is_met_by(&self, etag: &ETag, size_bytes: u64) -> bool {
        // An object that was named while its upload waited in the write-back log has another tag in the bucket.
        (self.etag == *etag || self.etag.is_provisional()) && self.bytes <= size_bytes
    }
}

/// Returns every key that an inode refers to, with the part of the object that it needs.
fn object_uses(engine: &dyn Engine) -> Result<BTreeMap<ObjectKey, ObjectUse>> {
    let mut found: BTreeMap<ObjectKey, ObjectUse> = BTreeMap::new();
    for_each_content(engine, |inode, content| {
        for extent in content {
            let Some(key) = extent.object.key else { continue };
            let (ino, etag) = (inode.ino, extent.object.etag);
            let needed = found.entry(key).or_insert(ObjectUse { ino, etag, bytes: 0 });
            needed.bytes = needed.bytes.max(extent.object_offset + extent.len);
        }
    })?;
    Ok(found)
}
