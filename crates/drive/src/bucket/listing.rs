//! Listing of keys. A common prefix is skipped by a seek, not by reading its keys.

use super::DriveBucket;
use crate::error::{Error, Result};
use crate::format::{IndexKey, Kind, ObjectSummary};
use crate::engine::Engine;
use bytes::Bytes;
use std::ops::Bound;
use store::listing::{Scan, successor, token_after};
use store::{ListEntry, ListPage, ObjectRef, StoreError, Versioning};

/// Length of an entry's key before the object key.
const ENTRY_PREFIX_BYTES: usize = 9;

impl DriveBucket {
    pub(super) async fn page(&self, scan: Scan) -> store::Result<ListPage> {
        let state = self.state().await?;
        let bucket = self.clone();
        let page = self.frontend.run_blocking(move |engine| bucket.page_of(engine, &scan, state)).await;
        page.map_err(StoreError::from)
    }

    fn page_of(&self, engine: &Engine, scan: &Scan, state: Versioning) -> Result<ListPage> {
        let all = IndexKey::prefix(Kind::Object, self.id);
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
                        None => self.listed(entry, value, state)?,
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

    fn listed(&self, entry: &[u8], value: &[u8], state: Versioning) -> Result<ListEntry> {
        let read = || Some((IndexKey::object_key(entry)?, ObjectSummary::decode(value)?));
        let (key, head) = read().ok_or(Error::damaged("an object's record in the index", 0))?;
        let etag = self.etag(head.write, head.etag.as_ref());
        let version = super::effective_naming(head.naming, state).id(head.write, head.modified);
        let object = ObjectRef { key, etag, version, last_modified: Some(head.modified) };
        Ok(ListEntry::Object { object, size_bytes: head.len_bytes })
    }
}

/// Returns the position at which the scan begins.
fn first_bound(all: &IndexKey, scan: &Scan) -> Bound<IndexKey> {
    match &scan.after {
        Some(after) if **after >= *scan.prefix => Bound::Excluded(all.clone().append(after)),
        _ => Bound::Included(all.clone().append(&scan.prefix)),
    }
}
