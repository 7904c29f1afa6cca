//! Listing a page of keys of the ordered map. Seeks over keys that are grouped into a common prefix.

use super::Stored;
use crate::listing::{Scan, successor, token_after};
use crate::{ListEntry, ListPage, ListedObject, ObjectKey};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Returns the page of a listing that `scan` asks for.
pub(super) fn page(objects: &BTreeMap<ObjectKey, Stored>, scan: &Scan) -> ListPage {
    let mut entries = Vec::new();
    let mut from = first_bound(scan);
    while let Some(bound) = from.take() {
        let range = objects.range::<[u8], _>((bound.as_ref().map(Vec::as_slice), Bound::Unbounded));
        for (key, stored) in range {
            if !key.as_bytes().starts_with(&scan.prefix) {
                break;
            }
            let folded = scan.fold(key.as_bytes());
            let text = folded.unwrap_or(key.as_bytes());
            if scan.is_after(text) {
                if entries.len() == scan.limit {
                    return ListPage { next: entries.last().map(token), entries };
                }
                entries.push(match folded {
                    Some(prefix) => ListEntry::Prefix(Bytes::copy_from_slice(prefix)),
                    None => ListEntry::Object(listed(key, stored, scan)),
                });
            }
            if let Some(prefix) = folded {
                from = successor(prefix).map(Bound::Included);
                break;
            }
        }
    }
    ListPage { entries, next: None }
}

/// Returns the bound of the first key that the scan can return.
fn first_bound(scan: &Scan) -> Option<Bound<Vec<u8>>> {
    match &scan.after {
        Some(after) if **after >= *scan.prefix => Some(Bound::Excluded(after.to_vec())),
        _ => Some(Bound::Included(scan.prefix.to_vec())),
    }
}

fn listed(key: &ObjectKey, stored: &Stored, scan: &Scan) -> ListedObject {
    match scan.with_attributes {
        true => ListedObject::of(stored.meta(key), true),
        false => ListedObject::new(stored.object_ref(key), stored.body.len()),
    }
}

/// Returns the token of the page after an entry.
fn token(last: &ListEntry) -> String {
    token_after(last.text())
}
