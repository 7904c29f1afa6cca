//! A listing from its first page to its last.

use crate::{ListEntry, ListRequest, ObjectStore, Result};

/// The pages of a listing, asked for one by one.
#[derive(Debug)]
pub struct Pages<'s> {
    store: &'s dyn ObjectStore,
    /// What to ask next; `None` after the last page.
    request: Option<ListRequest>,
}

impl<'s> Pages<'s> {
    /// The listing that begins with this request.
    pub fn of(store: &'s dyn ObjectStore, request: ListRequest) -> Self {
        Self { store, request: Some(request) }
    }

    /// The entries of the next page, which may be none; `None` after the last page. After an error the same page is asked for
    /// again.
    pub async fn next(&mut self) -> Result<Option<Vec<ListEntry>>> {
        let Some(request) = &self.request else { return Ok(None) };
        let page = self.store.list(request.clone()).await?;
        self.request = page.next.map(|token| ListRequest { token: Some(token), ..request.clone() });
        Ok(Some(page.entries))
    }

    /// The entries of all pages that are left, in memory at once.
    pub async fn all(mut self) -> Result<Vec<ListEntry>> {
        let mut entries = Vec::new();
        while let Some(page) = self.next().await? {
            entries.extend(page);
        }
        Ok(entries)
    }
}
