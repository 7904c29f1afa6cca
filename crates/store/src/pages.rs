//! Iteration over the pages of a listing.

use crate::{ListEntry, ListRequest, ObjectStore, Result};

/// The pages of a listing, requested one by one.
#[derive(Debug)]
pub struct Pages<'s> {
    store: &'s dyn ObjectStore,
    /// The next request; `None` after the last page.
    request: Option<ListRequest>,
}

impl<'s> Pages<'s> {
    /// Begins a listing with this request.
    pub fn new(store: &'s dyn ObjectStore, request: ListRequest) -> Self {
        Self { store, request: Some(request) }
    }

    /// Returns the entries of the next page, which may be empty; `None` after the last page. After an error, the next call
    /// requests the same page again.
    pub async fn next(&mut self) -> Result<Option<Vec<ListEntry>>> {
        let Some(request) = &self.request else { return Ok(None) };
        let page = self.store.list(request.clone()).await?;
        self.request = page.next.map(|token| ListRequest { token: Some(token), ..request.clone() });
        Ok(Some(page.entries))
    }

    /// Collects the entries of all remaining pages in memory.
    pub async fn collect(mut self) -> Result<Vec<ListEntry>> {
        let mut entries = Vec::new();
        while let Some(page) = self.next().await? {
            entries.extend(page);
        }
        Ok(entries)
    }
}
