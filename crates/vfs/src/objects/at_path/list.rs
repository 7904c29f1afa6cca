//! Listing of a volume named by path: the bucket's listing without Tenon's own objects.

use bytes::Bytes;
use store::{ListEntry, ListPage, ListRequest, ObjectKey};

use super::ObjectsAtPath;

/// The largest character: a listing that starts after `.tenon/` plus this character skips everything below `.tenon/`.
const LAST_CHARACTER: &str = "\u{10FFFF}";
/// Prefix of continuation tokens that wrap a token of the bucket.
const BUCKET_TOKEN: &str = "t";
/// Continuation token of a page that ended in Tenon's own objects: the next page starts behind them.
const BEYOND_OWN: &str = "o";

impl ObjectsAtPath {
    pub(super) async fn list(&self, request: ListRequest) -> store::Result<ListPage> {
        let mut request = self.at_full_paths(request)?;
        let at = self.fs.mount.config.prefix.len() + self.directory.base.len();
        loop {
            let mut page = self.fs.mount.store.list(request.clone()).await?;
            let ends_in_own =
                page.entries.last().is_some_and(|entry| self.fs.mount.layout.is_own(entry.text()));
            // The marker of the base directory itself is not an object in it.
            page.entries
                .retain(|entry| !self.fs.mount.layout.is_own(entry.text()) && entry.text().len() > at);
            let next = match page.next {
                // Tenon's own objects may number millions, so the listing skips them.
                Some(_) if ends_in_own => Some(BEYOND_OWN.to_owned()),
                next => next.map(|token| format!("{BUCKET_TOKEN}{token}")),
            };
            if next.is_none() || !page.entries.is_empty() {
                let entries = page
                    .entries
                    .into_iter()
                    .map(|entry| self.without_base(entry))
                    .collect::<Result<_, _>>()?;
                return Ok(ListPage { entries, next });
            }
            self.set_position(&mut request, next)?;
        }
    }

    /// Returns the request with keys from the bucket's root instead of the served directory.
    fn at_full_paths(&self, request: ListRequest) -> store::Result<ListRequest> {
        let full = |text: &Bytes| {
            Bytes::from([&self.fs.mount.config.prefix, &self.directory.base[..], text].concat())
        };
        let mut asked = ListRequest {
            prefix: full(&request.prefix),
            start_after: request.start_after.as_ref().map(full),
            token: None,
            ..request
        };
        if let Some(token) = request.token {
            self.set_position(&mut asked, Some(token))?;
        }
        Ok(asked)
    }

    /// Makes the request continue where the page ended that returned this token.
    fn set_position(&self, request: &mut ListRequest, next: Option<String>) -> store::Result<()> {
        match next {
            Some(token) if token == BEYOND_OWN => {
                request.token = None;
                request.start_after = Some(
                    [&self.fs.mount.layout.reserved_prefix(), LAST_CHARACTER.as_bytes()].concat().into(),
                );
            }
            next => {
                let is_none = "invalid continuation token";
                let token =
                    next.as_deref().and_then(|token| token.strip_prefix(BUCKET_TOKEN)).map(str::to_owned);
                request.token = Some(token.ok_or_else(|| store::StoreError::Invalid(is_none.to_owned()))?);
            }
        }
        Ok(())
    }

    /// Returns an entry with its key below the served directory.
    fn without_base(&self, entry: ListEntry) -> store::Result<ListEntry> {
        let at = self.fs.mount.config.prefix.len() + self.directory.base.len();
        Ok(match entry {
            ListEntry::Prefix(text) => ListEntry::Prefix(text.slice(at..)),
            ListEntry::Object(listed) => {
                let key = ObjectKey::try_from(&listed.object.key.as_bytes()[at..])?;
                ListEntry::Object(listed.with_key(key))
            }
        })
    }
}
