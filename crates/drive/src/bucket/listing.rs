//! Listing of keys. A common prefix is skipped by a seek, not by reading its keys.

use super::DriveBucket;
use super::record_metadata::{MetadataContext, effective_naming, etag};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::{BucketId, IndexKey, Kind, ObjectRecord, ObjectSummary};
use bytes::Bytes;
use std::ops::Bound;
use store::listing::{Scan, successor, token_after};
use store::{ListEntry, ListPage, ListedObject, ObjectKey, ObjectRef, StoreError};

/// Length of an entry's key before the object key.
const ENTRY_PREFIX_BYTES: usize = 9;

impl DriveBucket {
    pub(super) async fn page(&self, scan: Scan) -> store::Result<ListPage> {
        let (context, bucket) = (self.metadata_context().await?, self.id);
        let page = self.frontend.run_blocking(move |engine| page_of(engine, bucket, &scan, context)).await;
        page.map_err(StoreError::from)
    }
}

/// Returns the page of a listing that `scan` asks for.
fn page_of(engine: &Engine, bucket: BucketId, scan: &Scan, context: MetadataContext) -> Result<ListPage> {
    let all = IndexKey::prefix(Kind::Object, bucket);
    let prefix = all.clone().append(&scan.prefix);
    let mut entries: Vec<ListEntry> = Vec::new();
    let mut from = Some(first_bound(&all, scan));
    while let Some(bound) = from.take() {
        let mut found = engine.index.scan(bound.as_ref().map(|key| &key.0[..]), &prefix.0)?;
        while let Some((entry, value)) = found.next()? {
            let key = &entry[ENTRY_PREFIX_BYTES..];
            let folded = scan.fold(key);
            if scan.is_after(folded.unwrap_or(key)) {
                if entries.len() == scan.limit {
                    let next = entries.last().map(|last| token_after(last.text()));
                    return Ok(ListPage { entries, next });
                }
                entries.push(match folded {
                    Some(prefix) => ListEntry::Prefix(Bytes::copy_from_slice(prefix)),
                    None => ListEntry::Object(listed(entry, value, context, scan.with_attributes)?),
                });
            }
            if let Some(folded) = folded {
                from = successor(folded).map(|next| Bound::Included(all.clone().append(&next)));
                break;
            }
        }
    }
    Ok(ListPage { entries, next: None })
}

/// Returns an object as listings show it, from its index entry.
fn listed(
    entry: &[u8],
    value: &[u8],
    context: MetadataContext,
    with_attributes: bool,
) -> Result<ListedObject> {
    if with_attributes {
        let read = || Some((IndexKey::object_key(entry)?, ObjectRecord::of_entry(entry, value)?));
        let (key, record) = read().ok_or_else(|| Error::damaged_entry("an object's record", entry))?;
        return Ok(ListedObject::of(context.meta(&key, &record), true));
    }
    let (key, head) = decode_summary(entry, value)?;
    let etag = etag(context.drive, head.write, head.etag.as_ref());
    let version = effective_naming(head.naming, context.versioning).id(head.write, head.modified);
    let object = ObjectRef { key, etag, version, last_modified: Some(head.modified) };
    Ok(ListedObject::new(object, head.len_bytes))
}

/// Decodes the key and the leading fields of an object's entry. Fails if the entry is damaged. Inlined, as a listing
/// calls it for each object.
#[inline]
pub(crate) fn decode_summary(entry: &[u8], value: &[u8]) -> Result<(ObjectKey, ObjectSummary)> {
    let read = || Some((IndexKey::object_key(entry)?, ObjectSummary::decode(value)?));
    read().ok_or_else(|| Error::damaged_entry("an object's record", entry))
}

/// Returns the position at which the scan begins.
fn first_bound(all: &IndexKey, scan: &Scan) -> Bound<IndexKey> {
    match &scan.after {
        Some(after) if **after >= *scan.prefix => Bound::Excluded(all.clone().append(after)),
        _ => Bound::Included(all.clone().append(&scan.prefix)),
    }
}
