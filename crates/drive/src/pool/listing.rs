//! Listings of a pool: merges the listings of its drives. A common prefix of several drives appears once.

use super::bucket::PoolBucket;
use crate::bucket::DriveBucket;
use futures_util::future::try_join_all;
use std::collections::VecDeque;
use store::listing::{PAGE_ENTRIES_MAX, Scan, token_after};
use store::{ListEntry, ListPage, ListRequest, ListVersions, ObjectStore, Result, VersionEntry, Versions};

/// For a page, each drive is asked for its share of the limit plus this number, as it rarely has exactly its share.
const MORE_THAN_SHARE: usize = 16;

/// The listing of one drive, fetched as needed.
struct Source<'a> {
    bucket: &'a DriveBucket,
    request: ListRequest,
    entries: VecDeque<ListEntry>,
    is_at_end: bool,
}

impl<'a> Source<'a> {
    fn new(bucket: &'a DriveBucket, request: &ListRequest) -> Self {
        Self { bucket, request: request.clone(), entries: VecDeque::new(), is_at_end: false }
    }

    /// Returns the key or common prefix of the next entry; `None` if entries have to be fetched, or at the end.
    fn next(&self) -> Option<&[u8]> {
        self.entries.front().map(ListEntry::text)
    }

    /// Returns whether the next page of the drive has to be read.
    fn is_drained(&self) -> bool {
        self.entries.is_empty() && !self.is_at_end
    }

    /// Fetches entries until there is one or the listing ends.
    async fn fill(&mut self) -> Result<()> {
        while self.is_drained() {
            let page = ObjectStore::list(self.bucket, self.request.clone()).await?;
            self.is_at_end = page.next.is_none();
            self.request.token = page.next;
            self.entries = page.entries.into();
        }
        Ok(())
    }
}

/// Removes the least of the next entries from all drives that have it, and returns it; `None` if no drive has a next
/// one.
fn take_least(sources: &mut [Source<'_>]) -> Option<ListEntry> {
    let there = (0..sources.len()).filter(|&at| sources[at].next().is_some());
    let least = there.min_by(|&one, &other| sources[one].next().cmp(&sources[other].next()))?;
    let taken = sources[least].entries.pop_front()?;
    for source in sources {
        if source.next() == Some(taken.text()) {
            source.entries.pop_front();
        }
    }
    Some(taken)
}

impl PoolBucket {
    pub(super) async fn page(&self, request: ListRequest) -> Result<ListPage> {
        let Scan { prefix, delimiter, after, limit, with_attributes } = Scan::new(request, PAGE_ENTRIES_MAX)?;
        let buckets = self.all()?;
        let share = (limit / buckets.len() + MORE_THAN_SHARE).min(limit.max(1));
        let request =
            ListRequest { prefix, delimiter, start_after: after, token: None, limit: share, with_attributes };
        let mut sources: Vec<Source<'_>> =
            buckets.into_iter().map(|bucket| Source::new(bucket, &request)).collect();
        let mut page = ListPage::default();
        loop {
            if sources.iter().any(Source::is_drained) {
                try_join_all(sources.iter_mut().map(Source::fill)).await?;
            }
            match take_least(&mut sources) {
                None => return Ok(page),
                Some(_) if page.entries.len() == limit => {
                    page.next = page.entries.last().map(|last| token_after(last.text()));
                    return Ok(page);
                }
                Some(entry) => page.entries.push(entry),
            }
        }
    }

    /// Lists versions. Each drive lists up to the limit, so that the merged list has the first ones of all.
    pub(super) async fn page_of_versions(&self, request: ListVersions) -> Result<Vec<VersionEntry>> {
        let request = ListVersions { limit: request.limit.min(PAGE_ENTRIES_MAX), ..request };
        let pages = self.all()?.into_iter().map(|bucket| Versions::list(bucket, request.clone()));
        let mut entries = try_join_all(pages).await?.concat();
        // The sort is stable: the versions of a key are on one drive and keep their order.
        entries.sort_by(|one, other| one.text().cmp(other.text()));
        let is_prefix = |entry: &VersionEntry| matches!(entry, VersionEntry::Prefix(_));
        entries.dedup_by(|later, earlier| is_prefix(later) && later.text() == earlier.text());
        entries.truncate(request.limit);
        Ok(entries)
    }
}
