//! Listings that merge a page of the bucket with the pending changes.

use super::Writeback;
use super::condition::BucketRead;
use super::pending::Change;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::listing::{Scan, successor, token_after};
use store::{ListEntry, ListPage, ListRequest, ListedObject, ObjectKey, Result};

/// Keys per LIST request that looks for one that is not deleted.
const KEYS_PER_CHECK: usize = 1000;
/// Maximum entries per page.
const PAGE_ENTRIES_MAX: usize = 1000;

/// A listing in progress. While it exists, changes that are uploaded stay visible to it.
struct MergedListing<'w> {
    writeback: &'w Writeback,
    scan: Scan,
    _read: BucketRead<'w>,
}

impl Writeback {
    /// Lists the bucket as it will be once the pending changes are uploaded.
    pub(super) async fn list_merged(&self, request: ListRequest) -> Result<ListPage> {
        let scan = Scan::new(request, PAGE_ENTRIES_MAX)?;
        MergedListing { writeback: self, scan, _read: BucketRead::begin(self) }.page().await
    }
}

impl MergedListing<'_> {
    /// Returns the page of the merged listing that the request asks for.
    async fn page(&self) -> Result<ListPage> {
        let scan = &self.scan;
        let mut after = scan.after.clone();
        loop {
            let page = self.bucket_page(after.clone()).await?;
            let end = page.next.as_ref().and_then(|_| page.entries.last()).map(|last| last.text().to_vec());
            let mut entries = BTreeMap::new();
            for entry in page.entries {
                if self.is_visible(&entry).await? {
                    let entry = self.entry_with_issued_tag(entry);
                    entries.insert(entry.text().to_vec(), entry);
                }
            }
            self.add_pending(after.as_deref(), end.as_deref(), &mut entries);
            let is_cut = entries.len() > scan.limit;
            let entries: Vec<_> = entries.into_values().take(scan.limit).collect();
            let next = match entries.last() {
                Some(last) if is_cut || end.is_some() => Some(token_after(last.text())),
                _ => None,
            };
            // A page in which everything is deleted is not the end.
            match end {
                Some(end) if entries.is_empty() && scan.limit > 0 => after = Some(Bytes::from(end)),
                _ => return Ok(ListPage { entries, next }),
            }
        }
    }

    /// Lists a page of the bucket, without pending changes.
    async fn bucket_page(&self, after: Option<Bytes>) -> Result<ListPage> {
        let request = ListRequest {
            prefix: self.scan.prefix.clone(),
            delimiter: self.scan.delimiter,
            start_after: after,
            token: None,
            limit: self.scan.limit,
            with_attributes: self.scan.with_attributes,
        };
        self.writeback.bucket.store.list(request).await
    }

    /// Returns whether an entry of the bucket is shown: an object without a pending change, or a prefix with an
    /// object that is not deleted.
    async fn is_visible(&self, entry: &ListEntry) -> Result<bool> {
        let prefix = match entry {
            ListEntry::Object(ListedObject { object, .. }) => return Ok(!self.is_changed(&object.key)),
            ListEntry::Prefix(prefix) => prefix,
        };
        let is_touched = || {
            let pending = self.writeback.pending();
            let mut inside =
                pending.overlay_from(prefix).take_while(|(key, _)| key.as_bytes().starts_with(prefix));
            inside.any(|(_, change)| change.object.is_none())
        };
        if !is_touched() {
            return Ok(true);
        }
        let mut after = None;
        loop {
            let request = ListRequest {
                prefix: prefix.clone(),
                start_after: after,
                limit: KEYS_PER_CHECK,
                ..ListRequest::default()
            };
            let page = self.writeback.bucket.store.list(request).await?;
            let is_left = |entry: &ListEntry| match entry {
                ListEntry::Object(ListedObject { object, .. }) => !self.is_changed(&object.key),
                ListEntry::Prefix(_) => true,
            };
            if page.entries.iter().any(is_left) {
                return Ok(true);
            }
            match page.entries.last().filter(|_| page.next.is_some()) {
                Some(last) => after = Some(Bytes::copy_from_slice(last.text())),
                None => return Ok(false),
            }
        }
    }

    /// Returns whether a key has a change that the listing of the bucket may have missed.
    fn is_changed(&self, key: &ObjectKey) -> bool {
        self.writeback.pending().overlay(key).is_some()
    }

    fn entry_with_issued_tag(&self, entry: ListEntry) -> ListEntry {
        entry.map_object(|listed| ListedObject {
            object: self.writeback.etags.aliases().with_issued_tag(listed.object),
            ..listed
        })
    }

    /// Adds pending objects with texts after `after` and up to `end` (`None`: to the end), at most one more
    /// than a page has.
    fn add_pending(
        &self,
        after: Option<&[u8]>,
        end: Option<&[u8]>,
        entries: &mut BTreeMap<Vec<u8>, ListEntry>,
    ) {
        let (pending, scan) = (self.writeback.pending(), &self.scan);
        let mut from = after.unwrap_or_default().max(&scan.prefix).to_vec();
        let mut added = 0;
        while added <= scan.limit {
            // A pending deletion adds no entry to the listing.
            let first = pending.overlay_from(&from).find(|(_, change)| change.object.is_some());
            let Some((key, change)) = first.filter(|(key, _)| key.as_bytes().starts_with(&scan.prefix))
            else {
                return;
            };
            let folded = scan.fold(key.as_bytes());
            let text = folded.unwrap_or(key.as_bytes());
            if end.is_some_and(|end| text > end) {
                return;
            }
            if after.is_none_or(|after| text > after) {
                added += 1;
                entries.insert(text.to_vec(), shown(key, change, folded, scan.with_attributes));
            }
            from = match folded.map(successor) {
                Some(None) => return,
                Some(Some(next)) => next,
                None => [key.as_bytes(), b"\0"].concat(),
            };
        }
    }
}

/// Returns the entry by which a listing shows a change, folded if it has a prefix to fold into.
fn shown(key: &ObjectKey, change: &Change, folded: Option<&[u8]>, with_attributes: bool) -> ListEntry {
    match (folded, &change.object) {
        (None, Some(object)) => ListEntry::Object(ListedObject::of(object.meta(key), with_attributes)),
        (folded, _) => ListEntry::Prefix(Bytes::copy_from_slice(folded.unwrap_or(key.as_bytes()))),
    }
}
