//! Listing a volume named by path: the bucket's listing, without what is Tenon's own.

use bytes::Bytes;
use store::{ListEntry, ListPage, ListRequest, ObjectKey, ObjectRef};

use crate::objects::Objects;

/// The last character there is: a listing that starts after `.tenon/` and this starts after all of that.
const LAST: &str = "\u{10FFFF}";
/// What tokens begin with that are the bucket's.
const THEIRS: &str = "t";
/// The token of a page that follows what is Tenon's own.
const BEYOND_OWN: &str = "o";

impl Objects {
    pub(in crate::objects) async fn list_at_path(&self, request: ListRequest) -> store::Result<ListPage> {
        let mut request = self.at_full_paths(request)?;
        let at = self.fs.config.prefix.len() + self.base.len();
        loop {
            let mut page = self.fs.store.list(request.clone()).await?;
            let ends_in_own = page.entries.last().is_some_and(|entry| self.fs.layout.is_own(entry.text()));
            // The marker of the directory itself is no object in it.
            page.entries.retain(|entry| !self.fs.layout.is_own(entry.text()) && entry.text().len() > at);
            let next = match page.next {
                // There may be millions of them.
                Some(_) if ends_in_own => Some(BEYOND_OWN.to_owned()),
                next => next.map(|token| format!("{THEIRS}{token}")),
            };
            if next.is_none() || !page.entries.is_empty() {
                let entries =
                    page.entries.into_iter().map(|entry| self.inside(entry)).collect::<Result<_, _>>()?;
                return Ok(ListPage { entries, next });
            }
            self.go_on(&mut request, next)?;
        }
    }

    fn at_full_paths(&self, request: ListRequest) -> store::Result<ListRequest> {
        let full = |text: &Bytes| Bytes::from([&self.fs.config.prefix, &self.base[..], text].concat());
        let mut asked = ListRequest {
            prefix: full(&request.prefix),
            start_after: request.start_after.as_ref().map(full),
            token: None,
            ..request
        };
        if let Some(token) = request.token {
            self.go_on(&mut asked, Some(token))?;
        }
        Ok(asked)
    }

    fn go_on(&self, request: &mut ListRequest, next: Option<String>) -> store::Result<()> {
        match next {
            Some(token) if token == BEYOND_OWN => {
                request.token = None;
                request.start_after = Some([&self.fs.layout.own(), LAST.as_bytes()].concat().into());
            }
            next => {
                let is_none = "a listing's token that no page gave out";
                let token = next.as_deref().and_then(|token| token.strip_prefix(THEIRS)).map(str::to_owned);
                request.token = Some(token.ok_or_else(|| store::StoreError::Invalid(is_none.to_owned()))?);
            }
        }
        Ok(())
    }

    fn inside(&self, entry: ListEntry) -> store::Result<ListEntry> {
        let at = self.fs.config.prefix.len() + self.base.len();
        Ok(match entry {
            ListEntry::Prefix(text) => ListEntry::Prefix(text.slice(at..)),
            ListEntry::Object { object, size_bytes } => {
                let key = ObjectKey::try_from(&object.key.as_bytes()[at..])?;
                ListEntry::Object { object: ObjectRef { key, ..object }, size_bytes }
            }
        })
    }
}
