//! Listings by logical key, wherever the objects are stored.
//!
//! A page is merged from several partial listings: one per move that makes objects visible in the page, and one of
//! the bucket. Older moves are listed first, then the bucket, so that an object that moves meanwhile is not missed.

use super::Mover;
use super::moves::{Moves, Target};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::listing::{Scan, token_after};
use store::{ListEntry, ListPage, ListRequest, ListedObject, ObjectKey, ObjectRef, Pages, Result};

/// Maximum entries per page.
const PAGE_ENTRIES_MAX: usize = 1000;

/// The entries that one source contributes to a page, by text, and the last text up to which they are complete
/// (`None`: to the end).
struct PartialListing {
    entries: BTreeMap<Vec<u8>, ListEntry>,
    complete_up_to: Option<Vec<u8>>,
}

impl Mover {
    /// Lists objects by their logical keys: those that move are at their new keys already.
    pub(super) async fn list_logical(&self, request: ListRequest) -> Result<ListPage> {
        let (numbers, before) = {
            let moves = &self.executor.state().moves;
            (moves.moves_into(&request.prefix), moves.next_number())
        };
        if self.executor.is_idle() {
            let page = self.executor.store.list(request).await?;
            let with_issued_tag = |entry: ListEntry| entry.map_object(|listed| self.with_issued_tag(listed));
            let entries = page.entries.into_iter().map(with_issued_tag).collect();
            return Ok(ListPage { entries, ..page });
        }
        let mut scan = Scan::new(request, PAGE_ENTRIES_MAX)?;
        loop {
            let (mut listings, mut duplicates) = (Vec::new(), Vec::new());
            for number in &numbers {
                let may_be_duplicate = self.executor.state().moves.may_be_duplicate(*number);
                let listing = self.list_move(*number, &scan).await?;
                if may_be_duplicate { &mut duplicates } else { &mut listings }.extend(listing);
            }
            listings.push(self.list_in_place(&scan, before).await?);
            // A copy left by an attempt of unknown outcome is shown only if no other source has the entry.
            listings.append(&mut duplicates);
            let complete_up_to = listings.iter().filter_map(|listing| listing.complete_up_to.clone()).min();
            let mut entries = BTreeMap::new();
            for listing in listings.into_iter().rev() {
                entries.extend(listing.entries);
            }
            if let Some(complete_up_to) = &complete_up_to {
                entries.retain(|text, _| text <= complete_up_to);
            }
            let is_cut = entries.len() > scan.limit;
            let entries: Vec<_> = entries.into_values().take(scan.limit).collect();
            let next = match entries.last() {
                Some(last) if is_cut || complete_up_to.is_some() => Some(token_after(last.text())),
                _ => None,
            };
            match complete_up_to {
                // An empty page is not the end if there are more keys: all objects of this page have moved away.
                Some(complete_up_to) if entries.is_empty() && scan.limit > 0 => {
                    scan.after = Some(complete_up_to.into())
                }
                _ => return Ok(ListPage { entries, next }),
            }
        }
    }

    /// Lists the objects whose physical key is their logical key.
    async fn list_in_place(&self, scan: &Scan, before: u64) -> Result<PartialListing> {
        let since = self.executor.state().done_count();
        let (page, complete_up_to) = self.page(scan.prefix.clone(), scan.after.clone(), scan).await?;
        let mut entries = BTreeMap::new();
        for entry in page {
            let is_visible = match &entry {
                ListEntry::Object(ListedObject { object, .. }) => {
                    let state = self.executor.state();
                    state.moves.is_object_in_place(object, before)
                        && !state.was_moved_since(since, before, object.key.as_bytes())
                }
                ListEntry::Prefix(prefix) => self.is_any_in_place(prefix, since).await?,
            };
            if is_visible {
                let text = entry.text().to_vec();
                entries.insert(text, entry.map_object(|listed| self.with_issued_tag(listed)));
            }
        }
        Ok(PartialListing { entries, complete_up_to })
    }

    /// Returns whether any object below a prefix is visible under its physical key. `since` is the number of moves
    /// that were done when the bucket was listed.
    async fn is_any_in_place(&self, prefix: &Bytes, since: u64) -> Result<bool> {
        let (whole, is_touched) = {
            let state = self.executor.state();
            let is_near = state.moves.move_out_of(prefix, |_| false).is_some()
                || state.was_moved_since(since, u64::MAX, prefix);
            let is_shown_or_hidden = !state.moves.moves_into(prefix).is_empty()
                || state.moves.stray_copies_below(prefix).next().is_some();
            (state.moves.tree_owner(prefix), is_near || is_shown_or_hidden)
        };
        if whole.is_some() || !is_touched {
            return Ok(whole.is_none());
        }
        let is_in_place = |moves: &Moves, object: &ObjectRef| moves.is_object_in_place(object, u64::MAX);
        self.any_object(prefix.clone(), is_in_place).await
    }

    /// Returns whether any object of the bucket below a prefix matches.
    async fn any_object(&self, prefix: Bytes, matches: impl Fn(&Moves, &ObjectRef) -> bool) -> Result<bool> {
        let request = ListRequest { prefix, limit: PAGE_ENTRIES_MAX, ..ListRequest::default() };
        let mut pages = Pages::new(self.executor.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            let state = self.executor.state();
            let mut objects = entries.into_iter().filter_map(ListEntry::into_object);
            if objects.any(|(object, _)| matches(&state.moves, &object)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lists the objects that a move makes visible; `None` if there are none in this page.
    async fn list_move(&self, number: u64, scan: &Scan) -> Result<Option<PartialListing>> {
        let Some(mv) = self.executor.state().moves.get(number).cloned() else { return Ok(None) };
        let Target::Key(to, _) = mv.to.clone() else { return Ok(None) };
        if !mv.is_tree {
            return self.list_object_move(&mv.from, &to, scan).await;
        }
        if to.starts_with(&scan.prefix)
            && let Some(folded) = scan.fold(&to).map(<[u8]>::to_vec)
        {
            // The whole tree is folded into one entry.
            return self.list_folded_tree(number, &mv.from, folded, scan).await;
        }
        let inside = |text: &[u8]| [&mv.from, text.strip_prefix(to.as_slice()).unwrap_or_default()].concat();
        let after = match &scan.after {
            Some(after) if **after < *to => None,
            Some(after) if after.starts_with(&to) => Some(Bytes::from(inside(after))),
            Some(_) => return Ok(None),
            None => None,
        };
        let outside = |text: &[u8]| [&to, &text[mv.from.len()..]].concat();
        let (page, complete_up_to) = self.page(inside(&scan.prefix).into(), after, scan).await?;
        let mut entries = BTreeMap::new();
        for entry in page {
            let text = outside(entry.text());
            let shown = match entry {
                ListEntry::Object(listed) => {
                    let owner = self.executor.state().moves.owner_of(&listed.object);
                    let listed = self.with_issued_tag(listed);
                    let key = ObjectKey::new(text.clone()).ok().filter(|_| owner == Some(number));
                    key.map(|key| ListEntry::Object(listed.with_key(key)))
                }
                ListEntry::Prefix(prefix) => {
                    let is_shown = self.owns_any(number, &prefix).await?;
                    is_shown.then(|| ListEntry::Prefix(Bytes::copy_from_slice(&text)))
                }
            };
            if let Some(shown) = shown.filter(|_| scan.is_after(&text)) {
                entries.insert(text, shown);
            }
        }
        Ok(Some(PartialListing { entries, complete_up_to: complete_up_to.map(|text| outside(&text)) }))
    }

    /// Lists the target of a moving object; `None` if it is not in the listing.
    async fn list_object_move(&self, from: &[u8], to: &[u8], scan: &Scan) -> Result<Option<PartialListing>> {
        let Ok(key) = ObjectKey::new(to.to_vec()) else { return Ok(None) };
        let text = scan.fold(to).unwrap_or(to).to_vec();
        if !scan.is_after(&text) {
            return Ok(None);
        }
        let candidate = self.candidates(&key).into_iter().find(|candidate| candidate.key.as_bytes() == from);
        let Some(candidate) = candidate else { return Ok(None) };
        let Some(found) = self.executor.store.find(&candidate.key).await? else { return Ok(None) };
        if !self.executor.is_same_object(&key, candidate.etag.as_ref(), &found) {
            return Ok(None);
        }
        let entry = match text == to {
            false => ListEntry::Prefix(Bytes::copy_from_slice(&text)),
            true => {
                let meta = self.as_caller_sees(&key, found);
                ListEntry::Object(ListedObject::of(meta, scan.with_attributes))
            }
        };
        Ok(Some(PartialListing { entries: BTreeMap::from([(text, entry)]), complete_up_to: None }))
    }

    /// Lists a moving tree that a delimiter folds into one prefix; `None` if it is not in the listing or has no object.
    async fn list_folded_tree(
        &self,
        number: u64,
        from: &[u8],
        folded: Vec<u8>,
        scan: &Scan,
    ) -> Result<Option<PartialListing>> {
        if !scan.is_after(&folded) || !self.owns_any(number, from).await? {
            return Ok(None);
        }
        let entry = ListEntry::Prefix(Bytes::copy_from_slice(&folded));
        Ok(Some(PartialListing { entries: BTreeMap::from([(folded, entry)]), complete_up_to: None }))
    }

    /// Returns whether a move owns any object below a prefix.
    async fn owns_any(&self, number: u64, prefix: &[u8]) -> Result<bool> {
        let is_its_own = |moves: &Moves, object: &ObjectRef| moves.owner_of(object) == Some(number);
        self.any_object(Bytes::copy_from_slice(prefix), is_its_own).await
    }

    /// Returns a page of the bucket, of the form that `scan` asks for, and, if there are more entries, its last text.
    async fn page(
        &self,
        prefix: Bytes,
        after: Option<Bytes>,
        scan: &Scan,
    ) -> Result<(Vec<ListEntry>, Option<Vec<u8>>)> {
        let Scan { delimiter, limit, with_attributes, .. } = *scan;
        let request =
            ListRequest { prefix, delimiter, start_after: after, token: None, limit, with_attributes };
        let page = self.executor.store.list(request).await?;
        let complete_up_to =
            page.next.as_ref().and_then(|_| page.entries.last()).map(|last| last.text().to_vec());
        Ok((page.entries, complete_up_to))
    }

    fn with_issued_tag(&self, listed: ListedObject) -> ListedObject {
        ListedObject { object: self.executor.with_known_tag(listed.object), ..listed }
    }
}
