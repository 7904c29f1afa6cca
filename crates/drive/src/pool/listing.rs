//! Listings: what the drives list, merged.
//!
//! Each drive gives as much as is asked for, so that what comes first of all of them is there. What several fold is one common prefix.

use super::bucket::PoolBucket;
use crate::bucket::{PAGE_ENTRIES_MAX, VERSION_ENTRIES_MAX};
use futures_util::future::try_join_all;
use store::listing::{Scan, token_after};
use store::{ListEntry, ListPage, ListRequest, ListVersions, ObjectStore, Result, VersionEntry, Versions};

impl PoolBucket {
    pub(super) async fn page(&self, request: ListRequest) -> Result<ListPage> {
        let scan = Scan::new(request, PAGE_ENTRIES_MAX)?;
        let Scan { prefix, delimiter, after, limit } = scan;
        let request = ListRequest { prefix, delimiter, start_after: after, token: None, limit };
        let pages = self.all()?.into_iter().map(|part| ObjectStore::list(part, request.clone()));
        let pages = try_join_all(pages).await?;
        let mut has_more = pages.iter().any(|page| page.next.is_some());
        let mut entries: Vec<ListEntry> = pages.into_iter().flat_map(|page| page.entries).collect();
        entries.sort_by(|one, other| one.text().cmp(other.text()));
        entries.dedup_by(|later, earlier| later.text() == earlier.text());
        has_more |= entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(|last| token_after(last.text()));
        Ok(ListPage { entries, next })
    }

    pub(super) async fn page_of_versions(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        let request = ListVersions { limit: request.limit.min(VERSION_ENTRIES_MAX), ..request };
        let pages = self.all()?.into_iter().map(|part| Versions::list(part, request.clone()));
        let mut entries = try_join_all(pages).await?.concat();
        // A key's versions are on one drive, and stay in their order.
        entries.sort_by(|one, other| one.text().cmp(other.text()));
        let is_prefix = |entry: &VersionEntry| matches!(entry, VersionEntry::Prefix(_));
        entries.dedup_by(|later, earlier| is_prefix(later) && later.text() == earlier.text());
        entries.truncate(request.limit);
        Ok(entries)
    }
}
