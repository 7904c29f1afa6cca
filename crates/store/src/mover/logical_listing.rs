//! A page of keys as they show, wherever their objects lie.
//!
//! Every move that shows something in the page is a listing of its own, beside that of the bucket; what has been on its way
//! longer is listed first, so that nothing that moves meanwhile is missed.

use super::Mover;
use super::moves::{Moves, Target};
use crate::listing::{Scan, token_after};
use crate::{ListEntry, ListPage, ListRequest, ObjectKey, ObjectRef, Pages, Result};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Entries of one page at most.
const PAGE_ENTRIES_MAX: usize = 1000;

/// A stretch of a listing: what it shows by text, and the text up to which that is all there is (`None`: to the end).
struct Stretch {
    entries: BTreeMap<Vec<u8>, ListEntry>,
    up_to: Option<Vec<u8>>,
}

impl Mover {
    pub(super) async fn list_as_shown(&self, request: ListRequest) -> Result<ListPage> {
        let (numbers, before) = {
            let moves = &self.state().moves;
            (moves.showing_in(&request.prefix), moves.next())
        };
        if self.is_idle() {
            let page = self.store.list(request).await?;
            let entries = page.entries.into_iter().map(|entry| self.as_given(entry)).collect();
            return Ok(ListPage { entries, ..page });
        }
        let mut scan = Scan::new(request, PAGE_ENTRIES_MAX)?;
        loop {
            let (mut stretches, mut doubles) = (Vec::new(), Vec::new());
            for number in &numbers {
                let is_double = self.state().moves.is_double(*number);
                let stretch = self.stretch_of(*number, &scan).await?;
                if is_double { &mut doubles } else { &mut stretches }.extend(stretch);
            }
            stretches.push(self.stretch_there(&scan, before).await?);
            // The copy of an attempt that nobody heard of shows only where nothing else has arrived.
            stretches.append(&mut doubles);
            let up_to = stretches.iter().filter_map(|stretch| stretch.up_to.clone()).min();
            let mut entries = BTreeMap::new();
            for stretch in stretches.into_iter().rev() {
                entries.extend(stretch.entries);
            }
            if let Some(up_to) = &up_to {
                entries.retain(|text, _| text <= up_to);
            }
            let is_cut = entries.len() > scan.limit;
            let entries: Vec<_> = entries.into_values().take(scan.limit).collect();
            let next = match entries.last() {
                Some(last) if is_cut || up_to.is_some() => Some(token_after(last.text())),
                _ => None,
            };
            match up_to {
                // A page in which everything has moved away is not the end.
                Some(up_to) if entries.is_empty() && scan.limit > 0 => scan.after = Some(up_to.into()),
                _ => return Ok(ListPage { entries, next }),
            }
        }
    }

    /// What lies where it shows.
    async fn stretch_there(&self, scan: &Scan, before: u64) -> Result<Stretch> {
        let since = self.state().done_count();
        let (page, up_to) =
            self.page(scan.prefix.clone(), scan.delimiter, scan.after.clone(), scan.limit).await?;
        let mut entries = BTreeMap::new();
        for entry in page {
            let is_here = match &entry {
                ListEntry::Object { object, .. } => {
                    let state = self.state();
                    state.moves.shows_object(object, before)
                        && !state.has_left_since(since, before, object.key.as_bytes())
                }
                ListEntry::Prefix(prefix) => self.shows_any(prefix, since).await?,
            };
            if is_here {
                entries.insert(entry.text().to_vec(), self.as_given(entry));
            }
        }
        Ok(Stretch { entries, up_to })
    }

    /// Whether anything that begins so lies where it shows, if anything left it since so many moves were done.
    async fn shows_any(&self, prefix: &Bytes, since: u64) -> Result<bool> {
        let (whole, is_touched) = {
            let state = self.state();
            let is_near =
                state.moves.owner_near(prefix).is_some() || state.has_left_since(since, u64::MAX, prefix);
            let shows_or_hides = !state.moves.showing_in(prefix).is_empty()
                || state.moves.given_up_below(prefix).next().is_some();
            (state.moves.owner(prefix), is_near || shows_or_hides)
        };
        if whole.is_some() || !is_touched {
            return Ok(whole.is_none());
        }
        let shows = |moves: &Moves, entry: &ListEntry| match entry {
            ListEntry::Object { object, .. } => moves.shows_object(object, u64::MAX),
            ListEntry::Prefix(prefix) => moves.shows(prefix),
        };
        self.any(prefix.clone(), shows).await
    }

    /// Whether any key of the bucket that begins so is such a one.
    async fn any(&self, prefix: Bytes, is_such: impl Fn(&Moves, &ListEntry) -> bool) -> Result<bool> {
        let request = ListRequest { prefix, limit: PAGE_ENTRIES_MAX, ..ListRequest::default() };
        let mut pages = Pages::of(self.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            let state = self.state();
            if entries.iter().any(|entry| is_such(&state.moves, entry)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What a move shows; `None` if that is nothing here.
    async fn stretch_of(&self, number: u64, scan: &Scan) -> Result<Option<Stretch>> {
        let Some(one) = self.state().moves.get(number).cloned() else { return Ok(None) };
        let Target::Place(to, _) = one.to.clone() else { return Ok(None) };
        if !one.is_tree {
            return self.one_object(&one.from, &to, scan).await;
        }
        if to.starts_with(&scan.prefix)
            && let Some(folded) = scan.fold(&to).map(<[u8]>::to_vec)
        {
            // All of it is one entry.
            return self.one_prefix(number, &one.from, folded, scan).await;
        }
        let inside = |text: &[u8]| [&one.from, text.strip_prefix(to.as_slice()).unwrap_or_default()].concat();
        let after = match &scan.after {
            Some(after) if **after < *to => None,
            Some(after) if after.starts_with(&to) => Some(Bytes::from(inside(after))),
            Some(_) => return Ok(None),
            None => None,
        };
        let outside = |text: &[u8]| [&to, &text[one.from.len()..]].concat();
        let (page, up_to) = self.page(inside(&scan.prefix).into(), scan.delimiter, after, scan.limit).await?;
        let mut entries = BTreeMap::new();
        for entry in page {
            let text = outside(entry.text());
            let shown = match entry {
                ListEntry::Object { object, size_bytes } => {
                    let is_its_own = self.state().moves.owner(object.key.as_bytes()) == Some(number);
                    let object = self.aliases().as_given(object);
                    let key = ObjectKey::new(text.clone()).ok().filter(|_| is_its_own);
                    key.map(|key| ListEntry::Object { object: ObjectRef { key, ..object }, size_bytes })
                }
                ListEntry::Prefix(prefix) => {
                    let is_shown = self.has_any(number, &prefix).await?;
                    is_shown.then(|| ListEntry::Prefix(Bytes::copy_from_slice(&text)))
                }
            };
            if let Some(shown) = shown.filter(|_| scan.is_after(&text)) {
                entries.insert(text, shown);
            }
        }
        Ok(Some(Stretch { entries, up_to: up_to.map(|text| outside(&text)) }))
    }

    async fn one_object(&self, from: &[u8], to: &[u8], scan: &Scan) -> Result<Option<Stretch>> {
        let Ok(key) = ObjectKey::new(to.to_vec()) else { return Ok(None) };
        let text = scan.fold(to).unwrap_or(to).to_vec();
        if !scan.is_after(&text) {
            return Ok(None);
        }
        let there = self.candidates(&key).into_iter().find(|there| there.key.as_bytes() == from);
        let Some(there) = there else { return Ok(None) };
        let Some(found) = self.store.find(&there.key).await? else { return Ok(None) };
        if !self.is_still(&key, there.etag.as_ref(), &found) {
            return Ok(None);
        }
        let entry = match text == to {
            false => ListEntry::Prefix(Bytes::copy_from_slice(&text)),
            true => {
                let size_bytes = found.size_bytes;
                ListEntry::Object { object: self.shown(&key, found).object, size_bytes }
            }
        };
        Ok(Some(Stretch { entries: BTreeMap::from([(text, entry)]), up_to: None }))
    }

    async fn one_prefix(
        &self,
        number: u64,
        from: &[u8],
        folded: Vec<u8>,
        scan: &Scan,
    ) -> Result<Option<Stretch>> {
        if !scan.is_after(&folded) || !self.has_any(number, from).await? {
            return Ok(None);
        }
        let entry = ListEntry::Prefix(Bytes::copy_from_slice(&folded));
        Ok(Some(Stretch { entries: BTreeMap::from([(folded, entry)]), up_to: None }))
    }

    /// Whether a move takes anything that begins so.
    async fn has_any(&self, number: u64, prefix: &[u8]) -> Result<bool> {
        let is_its_own = |moves: &Moves, entry: &ListEntry| moves.owner(entry.text()) == Some(number);
        self.any(Bytes::copy_from_slice(prefix), is_its_own).await
    }

    /// Entries after a text, and the last of them if there are more.
    async fn page(
        &self,
        prefix: Bytes,
        delimiter: Option<u8>,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<(Vec<ListEntry>, Option<Vec<u8>>)> {
        let request = ListRequest { prefix, delimiter, start_after: after, token: None, limit };
        let page = self.store.list(request).await?;
        let up_to = page.next.as_ref().and_then(|_| page.entries.last()).map(|last| last.text().to_vec());
        Ok((page.entries, up_to))
    }

    fn as_given(&self, entry: ListEntry) -> ListEntry {
        match entry {
            ListEntry::Object { object, size_bytes } => {
                ListEntry::Object { object: self.aliases().as_given(object), size_bytes }
            }
            prefix @ ListEntry::Prefix(_) => prefix,
        }
    }
}
