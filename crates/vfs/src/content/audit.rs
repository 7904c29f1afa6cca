//! Offline check that the metadata of a volume and the content in its bucket agree. No mount may be using the volume.

use meta::namespace::{read_content, read_inode};
use meta::{Engine, FsError, Ino, schema};
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{ETag, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Pages};

use crate::layout::Layout;
use crate::{Result, VolumeRecord};

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
    /// Compares the metadata in `engine` with the content below `prefix`. Keeps every file's key in memory.
    pub async fn make(
        engine: &dyn Engine,
        store: &dyn ObjectStore,
        record: Option<&VolumeRecord>,
        prefix: &[u8],
    ) -> Result<Self> {
        let violations = meta::invariants::fsck(engine).map_err(FsError::from)?;
        let violations = violations.iter().map(ToString::to_string).collect();
        let mut audit = Self { violations, ..Self::default() };
        let Some(root) = read_inode(engine, Ino::ROOT)? else { return Ok(audit) };
        let layout = Layout::of(prefix, record, root.btime);
        let mut referred = object_uses(engine)?;
        referred.retain(|key, _| layout.content_owner(key).is_some());
        let request = ListRequest { prefix: layout.content_prefix(), limit: BATCH, ..ListRequest::default() };
        let mut pages = Pages::new(store, request);
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else { continue };
                match referred.remove(&object.key) {
                    None if layout.content_owner(&object.key).is_some() => audit.unused.push(object.key),
                    Some(needed) if !needed.is_met_by(&object.etag, size_bytes) => {
                        audit.missing.push((needed.ino, object.key));
                    }
                    _ => {}
                }
            }
        }
        audit.missing.extend(referred.into_iter().map(|(key, needed)| (needed.ino, key)));
        Ok(audit)
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
    fn is_met_by(&self, etag: &ETag, size_bytes: u64) -> bool {
        // An object that was named while its upload waited in the write-back log has another tag in the bucket.
        (self.etag == *etag || self.etag.is_provisional()) && self.bytes <= size_bytes
    }
}

/// Returns every key that an inode refers to.
fn object_uses(engine: &dyn Engine) -> Result<BTreeMap<ObjectKey, ObjectUse>> {
    let mut found: BTreeMap<ObjectKey, ObjectUse> = BTreeMap::new();
    let range = schema::inodes();
    let mut from = Bound::Included(range.from.clone());
    loop {
        let rows = engine
            .scan(from.as_ref().map(Vec::as_slice), Bound::Excluded(&range.to), BATCH)
            .map_err(FsError::from)?;
        let Some((last, _)) = rows.last() else { return Ok(found) };
        from = Bound::Excluded(last.clone());
        for (key, _) in &rows {
            let ino = schema::ino_of(key).map_err(FsError::from)?;
            let Some((_, content)) = read_content(engine, ino)? else { continue };
            for extent in content {
                let Some(key) = extent.object.key else { continue };
                let needed =
                    found.entry(key).or_insert(ObjectUse { ino, etag: extent.object.etag, bytes: 0 });
                needed.bytes = needed.bytes.max(extent.object_offset + extent.len);
            }
        }
    }
}
