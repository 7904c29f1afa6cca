//! Listing of directories of any size.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Name};
use std::collections::HashMap;
use std::sync::Arc;

use crate::base::Base;
use crate::bucket::BucketServices;
use crate::bucket::directories::ListedRange;
use crate::bucket::discovery::{Discovery, PAGE_ENTRIES};
use crate::bucket::evict::NameEvictor;
use crate::bucket::known_state::KnownState;
use crate::bucket::sort_keys::{self, Entry};
use crate::content::Content;
use crate::derived::DerivedDirectories;
use crate::derived::router::ViewRouter;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::directory_handle::DirectoryHandle;
use crate::names::handles::Handle;
use crate::names::positions::{DOTS, Positions};
use crate::{Attr, Error, Result};

/// Lists directories of any size.
#[derive(Debug)]
pub(crate) struct DirectoryReader {
    pub(in crate::ops) mount: Arc<Mount>,
    pub(in crate::ops) names: Arc<Names>,
    pub(in crate::ops) content: Arc<Content>,
    pub(in crate::ops) known: Arc<KnownState>,
    pub(in crate::ops) discovery: Arc<Discovery>,
    pub(in crate::ops) name_evictor: Arc<NameEvictor>,
    pub(in crate::ops) views: Arc<ViewRouter>,
}

impl DirectoryReader {
    pub(crate) fn new(base: &Base, services: &BucketServices, views: &Arc<ViewRouter>) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: services.known.clone(),
            discovery: services.discovery.clone(),
            name_evictor: services.name_evictor.clone(),
            views: views.clone(),
        })
    }
}

/// Objects shorter than this may be a symbolic link (whose target is shorter than `PATH_MAX`) or a special file.
const SPECIAL_BYTES_MAX: u64 = 4096;
/// The error of a cookie that the handle has not returned.
const LOST_POSITION: Error =
    Error::new(libc::EINVAL, "invalid directory offset: this handle has returned no such cookie");

/// One entry of a listing.
#[derive(Debug, Clone)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Bytes,
    /// The inode.
    pub ino: Ino,
    /// The kind, if it is known without reading headers.
    pub kind: Option<Kind>,
    /// Cookie that resumes the listing after this entry.
    pub cookie: u64,
    /// The attributes, if `plus` was requested; they count as a lookup. `None` for `.` and `..`, and for an entry that
    /// was evicted meanwhile.
    pub attr: Option<Attr>,
    /// Whether the entry may disappear without an invalidation, so that it must not be cached.
    pub is_awaited: bool,
}

impl DirectoryReader {
    /// Returns entries after `cookie` (0: from the beginning), `.` and `..` first; an empty result is the end. Entries
    /// created or removed meanwhile do not affect the others. With `plus` entries have attributes, which count as
    /// lookups.
    pub(super) async fn read(
        &self,
        handle: Handle,
        cookie: u64,
        limit: usize,
        plus: bool,
    ) -> Result<Vec<DirectoryEntry>> {
        let handle = self.names.handles().directory(handle)?;
        if let Some(views) = self.views.derived.derived_at(handle.ino) {
            return Box::pin(self.read_derived(views, &handle, cookie, limit, plus)).await;
        }
        if cookie == 0 {
            self.content.record_access(handle.ino);
        }
        let mut listed = self.dot_entries(handle.ino, cookie)?;
        let limit = limit.saturating_sub(listed.len()).max(1);
        let mut cookie = cookie.max(listed.last().map_or(0, |dot| dot.cookie));
        let Some(mut after) = handle.positions().sort_key(cookie) else {
            return Err(LOST_POSITION);
        };
        let directory = self.known.directories().get(handle.ino);
        loop {
            let forgotten = directory.forgotten();
            let entries = self.entries_after(handle.ino, &after, limit).await?;
            let inodes = self.described(&entries, plus).await?;
            if directory.forgotten() != forgotten && inodes.len() != inodes.iter().flatten().count() {
                // Missing inodes may only have been evicted.
                continue;
            }
            let Some(last) = entries.last() else { return Ok(listed) };
            after.clone_from(&last.sort_key);
            let mut shown = Vec::with_capacity(entries.len());
            for (entry, inode) in entries.into_iter().zip(inodes) {
                cookie = handle.positions().after(&entry.sort_key);
                let Some(inode) = inode else { continue };
                if self.views.derived.is_derived_name(handle.ino, entry.name.as_bytes()) {
                    continue;
                }
                shown.push((entry, inode, cookie));
            }
            listed.extend(self.listed(shown, plus)?);
            // If all entries of the page vanished meanwhile, the end is not reached yet.
            if !listed.is_empty() {
                return Ok(listed);
            }
        }
    }

    /// Determines the kind of entries whose kind is unknown, many at a time, for front ends that cannot express an unknown
    /// kind. Drops entries that are gone.
    pub(super) async fn with_kinds(&self, listed: Vec<DirectoryEntry>) -> Result<Vec<DirectoryEntry>> {
        let unknown = listed.iter().filter(|entry| entry.kind.is_none()).map(|entry| entry.ino);
        let known = self.names.tables().inodes(&unknown.collect::<Vec<_>>())?.into_iter().flatten();
        let may_be_special = |inode: &Inode| inode.kind != Kind::File || inode.size_bytes < SPECIAL_BYTES_MAX;
        let asked: Vec<Inode> = known.filter(may_be_special).collect();
        let exact = self.discovery.exact_all(asked.iter().cloned().map(Some).collect()).await?;
        let kinds = asked.iter().zip(exact).map(|(asked, exact)| (asked.ino, exact.map(|inode| inode.kind)));
        let kinds: HashMap<Ino, Option<Kind>> = kinds.collect();
        let with_kind = |entry: DirectoryEntry| {
            let found = kinds.get(&entry.ino).copied().unwrap_or(Some(Kind::File));
            Some(DirectoryEntry { kind: Some(entry.kind.or(found)?), ..entry })
        };
        Ok(listed.into_iter().filter_map(with_kind).collect())
    }

    /// Like `read`, for a derived directory, whose positions are names.
    async fn read_derived(
        &self,
        views: &DerivedDirectories,
        handle: &DirectoryHandle,
        cookie: u64,
        limit: usize,
        plus: bool,
    ) -> Result<Vec<DirectoryEntry>> {
        let mut listed = self.dot_entries(handle.ino, cookie)?;
        let mut cookie = cookie.max(listed.last().map_or(0, |dot| dot.cookie));
        let mut after = self.resume_after(handle, cookie)?;
        loop {
            let (entries, last) =
                self.views.list_derived(views, handle.ino, after.as_ref(), limit.max(1), plus).await?;
            for entry in entries {
                if let (Some(kept), Some(rank)) = (&handle.kept, Positions::rank(cookie)) {
                    kept.note(rank, &entry.name);
                }
                cookie = handle.positions().after(&entry.name);
                listed.push(DirectoryEntry { cookie, ..entry });
            }
            if last.is_none() || !listed.is_empty() {
                return Ok(listed);
            }
            after = last;
        }
    }

    /// Returns the name after which a listing of a derived directory continues; `None` for its beginning. The name may
    /// come from a listing that another handle read and the front end cached.
    fn resume_after(&self, handle: &DirectoryHandle, cookie: u64) -> Result<Option<Name>> {
        let Some(last) = cookie.checked_sub(DOTS + 1) else { return Ok(None) };
        if let Some(text) = handle.positions().sort_key(cookie) {
            return Ok(Some(Name::new(&text)?));
        }
        let kept = handle.kept.as_ref().and_then(|kept| kept.name(last as usize)).ok_or(LOST_POSITION)?;
        handle.positions().begin_at(cookie);
        Ok(Some(kept))
    }

    /// Returns the entries `.` and `..`, if they are after `cookie`.
    fn dot_entries(&self, dir: Ino, cookie: u64) -> Result<Vec<DirectoryEntry>> {
        let parent = match self.views.derived.derived_at(dir) {
            Some(views) => views.parent(dir),
            None => self.names.tables().inode(dir)?.home.map_or(Ino::ROOT, |(parent, _)| parent),
        };
        let dot = |name: &'static [u8], ino, cookie| DirectoryEntry {
            name: Bytes::from_static(name),
            ino,
            kind: Some(Kind::Directory),
            cookie,
            attr: None,
            is_awaited: false,
        };
        Ok([dot(b".", dir, 1), dot(b"..", parent, 2)].into_iter().filter(|dot| dot.cookie > cookie).collect())
    }

    /// Returns the next entries after a sort key, none at the end; lists them from the bucket first if they are not
    /// known.
    async fn entries_after(&self, dir: Ino, after: &[u8], limit: usize) -> Result<Vec<Entry>> {
        if !self.mount.layout.can_list_in(self.names.tables(), dir)? {
            return sort_keys::entries_by_name(self.names.tables(), dir, after, limit);
        }
        let directory = self.known.directories().get(dir);
        let mut after = after.to_vec();
        let asked_at = self.mount.moment();
        let is_usable = |known: &ListedRange, after: &[u8]| {
            known.is_fresh_for(asked_at, self.mount.moment(), self.mount.config.metadata_ttl)
                && known.continues_after(after)
        };
        loop {
            let forgotten = directory.forgotten();
            let known = directory.listed_range();
            if !is_usable(&known, &after) {
                // Evict before learning, because learning needs the entries of this directory.
                self.name_evictor.evict_if_needed(PAGE_ENTRIES)?;
                let learned = async {
                    let is_known = is_usable(&directory.listed_range(), &after);
                    if is_known { Ok(()) } else { self.discovery.list_page(dir, &directory, &after).await }
                };
                directory.listing.run(Box::pin(learned)).await?;
                continue;
            }
            let end = (!known.is_complete).then_some(known.up_to.as_slice());
            let entries = sort_keys::entries_between(self.names.tables(), dir, &after, end, limit)?;
            if directory.forgotten() != forgotten {
                continue;
            }
            if !entries.is_empty() || known.is_complete {
                return Ok(entries);
            }
            after = known.up_to;
        }
    }

    /// Returns the inodes of entries, `None` for those that are gone. With `plus` requests authoritative attributes,
    /// many at a time.
    async fn described(&self, entries: &[Entry], plus: bool) -> Result<Vec<Option<Inode>>> {
        let inos: Vec<Ino> = entries.iter().map(|entry| entry.dentry.ino).collect();
        let inodes = self.names.tables().inodes(&inos)?;
        if !plus || !self.known.reads_headers() {
            return Ok(inodes);
        }
        self.discovery.exact_all(inodes).await
    }

    /// Builds the answer for entries; with `plus` the kernel gets a reference to each entry that has attributes.
    fn listed(&self, entries: Vec<(Entry, Inode, u64)>, plus: bool) -> Result<Vec<DirectoryEntry>> {
        let inos: Vec<Ino> = entries.iter().map(|(_, inode, _)| inode.ino).collect();
        let referred = if plus { self.name_evictor.refer_all(&inos)? } else { vec![false; inos.len()] };
        let listed = entries.into_iter().zip(referred).map(|((entry, inode, cookie), is_referred)| {
            let is_sure = !self.known.reads_headers() || inode.exact || inode.kind == Kind::Directory;
            DirectoryEntry {
                name: Bytes::copy_from_slice(entry.name.as_bytes()),
                ino: inode.ino,
                kind: is_sure.then_some(inode.kind),
                cookie,
                attr: is_referred.then(|| self.content.attr(inode)),
                is_awaited: false,
            }
        });
        Ok(listed.collect())
    }
}
