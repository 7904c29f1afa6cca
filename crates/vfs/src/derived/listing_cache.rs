//! Caching of derived directories in front ends, and its invalidation.
//!
//! Front ends cache names, attributes and listings for the time that [`super::Derived::lifetime`] returns. The source of
//! changes reports stale names ([`Filesystem::say_stale`]).
//!
//! Invariants: an answer is not cached if something changed while it was made. A listing is not cached if any part of it was
//! read before the last change. A created file that the view does not know yet is not cached, as there may be no report about
//! it.

use meta::{Ino, Name};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::nodes::DerivedDirectories;
use super::{DerivedStale, is_derived};
use crate::names::handles::Handle;
use crate::names::invalidation::Invalidation;
use crate::{Filesystem, Result};

/// Minimum time to cache an entry from a listing: programs often ask for the attributes of listed entries next.
const LISTED_FOR: Duration = Duration::from_secs(1);

/// Maximum stale names in one report.
const NAMES_MAX: usize = 512;

/// The number of stale reports when an answer was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked(u64);

/// Permitted use of a front end's cache of a directory listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingCache {
    /// Neither use nor fill it.
    None,
    /// Fill it from the beginning.
    Anew,
    /// Use it: it is valid.
    Kept,
}

/// A handle's share in the cached listing of its directory.
#[derive(Debug, Clone)]
pub(crate) struct ListingReader {
    cache: ListingCache,
    /// Names in the order in which the front end read them. A reader of the cached listing may have to continue here.
    names: Arc<Mutex<Vec<Name>>>,
}

impl ListingReader {
    /// Records the name of the entry with this number.
    pub(crate) fn note(&self, number: usize, name: &[u8]) {
        let mut names = self.names();
        if names.len() == number {
            names.extend(Name::new(name));
        }
    }

    /// Returns the name of the entry with this number.
    pub(crate) fn name(&self, number: usize) -> Option<Name> {
        self.names().get(number).cloned()
    }

    fn names(&self) -> MutexGuard<'_, Vec<Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// Number of reports of stale names so far.
    stale_reports: AtomicU64,
    listings: Mutex<HashMap<Ino, Listing>>,
}

/// The listing of a directory that a front end may have cached.
#[derive(Debug, Default)]
struct Listing {
    open: usize,
    /// The whole listing is of this version of the directory or of a later one. `None` if it must not be cached.
    version: Option<u64>,
    names: Arc<Mutex<Vec<Name>>>,
}

impl Listings {
    /// Opens a directory at its current version.
    fn open(&self, dir: Ino, version: u64) -> ListingReader {
        let mut listings = self.listings();
        let listing = listings.entry(dir).or_default();
        let is_kept = listing.version == Some(version);
        if !is_kept {
            // Readers that opened the directory before may still fill in the old version.
            listing.version = (listing.open == 0).then_some(version);
            listing.names = Arc::default();
        }
        listing.open += 1;
        let cache = if is_kept { ListingCache::Kept } else { ListingCache::Anew };
        ListingReader { cache, names: Arc::clone(&listing.names) }
    }

    pub(crate) fn close(&self, dir: Ino) {
        if let Some(listing) = self.listings().get_mut(&dir) {
            listing.open = listing.open.saturating_sub(1);
        }
    }

    /// Prevents what is read of a directory from now on from being cached.
    fn invalidate(&self, dir: Ino) {
        if let Some(listing) = self.listings().get_mut(&dir) {
            listing.version = None;
        }
    }

    /// Forgets a directory that the kernel no longer references.
    pub(super) fn forget(&self, dir: Ino) {
        self.listings().remove(&dir);
    }

    fn listings(&self) -> MutexGuard<'_, HashMap<Ino, Listing>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem {
    /// Returns a token for an answer that is about to be made. It tells later whether something changed meanwhile.
    pub fn asked(&self) -> Asked {
        Asked(self.derived.get().map_or(0, |views| views.listings.stale_reports.load(Ordering::Acquire)))
    }

    /// Returns how long a front end may cache the entry under a name, for an answer begun at `asked`.
    pub fn lifetime(&self, dir: Ino, name: &[u8], asked: Asked) -> Duration {
        let Some(views) = self.derived_at(dir) else { return self.ttl() };
        let is_awaited = Name::new(name).is_ok_and(|name| views.created.get(&(dir, name)).is_some());
        match is_awaited || self.asked() != asked {
            true => Duration::ZERO,
            false => self.lifetime_in(views, dir),
        }
    }

    /// Like `lifetime`, for entries of a listing.
    pub fn lifetime_listed(&self, dir: Ino, asked: Asked) -> Duration {
        match self.derived_at(dir) {
            Some(_) if self.asked() != asked => LISTED_FOR,
            Some(views) => self.lifetime_in(views, dir).max(LISTED_FOR),
            None => self.ttl(),
        }
    }

    /// Returns how long a front end may cache an inode's attributes.
    pub fn lifetime_of(&self, ino: Ino) -> Duration {
        let Some(views) = self.derived.get() else { return self.ttl() };
        if is_derived(ino) {
            return self.lifetime_in(views, views.parent(ino));
        }
        match views.shown_at(ino) {
            Some(place) if views.created.get(&place).is_none() && !self.has_unpublished_writes(ino) => {
                self.lifetime_in(views, place.0)
            }
            _ => self.ttl(),
        }
    }

    fn lifetime_in(&self, views: &DerivedDirectories, dir: Ino) -> Duration {
        views.path(dir).map_or(Duration::ZERO, |path| views.tree.lifetime(&path))
    }

    /// Returns what a front end may do with its cache of the listing that it reads through a handle.
    pub fn listing_cache(&self, handle: Handle) -> ListingCache {
        let handle = self.handles.directory(handle).ok();
        handle.and_then(|handle| Some(handle.kept.as_ref()?.cache)).unwrap_or(ListingCache::None)
    }

    pub(crate) async fn open_derived(
        &self,
        views: &DerivedDirectories,
        dir: Ino,
    ) -> Result<Option<ListingReader>> {
        let path = views.path(dir)?;
        // If the version cannot be read now, reading the directory reports the error.
        let Ok(version) = views.tree.version(&path).await else { return Ok(None) };
        match views.created.names(dir, None, None).is_empty() {
            true => Ok(Some(views.listings.open(dir, version))),
            false => {
                views.listings.invalidate(dir);
                Ok(None)
            }
        }
    }

    /// Sends invalidations for stale names to front ends. Returns false if they are too busy; the caller must then try again.
    pub fn say_stale(&self, stale: &DerivedStale) -> bool {
        let Some(views) = self.derived.get() else { return true };
        views.listings.stale_reports.fetch_add(1, Ordering::AcqRel);
        let Some(dir) = views.held(&stale.directory) else { return true };
        let mut news = vec![Invalidation::Inode(dir)];
        for name in &stale.names {
            // This order matters: a lookup that is under way ends before the front end drops the entry.
            news.push(Invalidation::entry(dir, name.as_bytes()));
            news.extend(views.held_file(&(dir, name.clone())).map(Invalidation::Attributes));
        }
        self.invalidations.try_notify_all(news)
    }

    /// Returns everything that front ends may have cached of a directory and those below, in pieces of bounded size.
    pub fn kept_below(&self, directory: &[Name]) -> Vec<DerivedStale> {
        let Some(views) = self.derived.get() else { return Vec::new() };
        let Some(top) = views.held(directory) else { return Vec::new() };
        let mut pieces = Vec::new();
        for (dir, names) in views.held_below(top) {
            let Ok(directory) = views.path(dir) else { continue };
            for names in names.chunks(NAMES_MAX) {
                pieces.push(DerivedStale { directory: directory.clone(), names: names.to_vec() });
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_cached_until_another_version_is_opened() {
        let kept = Listings::default();
        let dir = Ino(7);
        let open = |version| kept.open(dir, version).cache;
        assert_eq!(open(1), ListingCache::Anew);
        assert_eq!(open(1), ListingCache::Kept);
        // Two handles still read the first version when the second is opened: what they read is not cached.
        assert_eq!(open(2), ListingCache::Anew);
        assert_eq!(open(2), ListingCache::Anew);
        (0..4).for_each(|_| kept.close(dir));
        assert_eq!(open(2), ListingCache::Anew);
        assert_eq!(open(2), ListingCache::Kept);
        kept.forget(dir);
        assert_eq!(open(2), ListingCache::Anew);
    }

    #[test]
    fn a_reader_of_a_cached_listing_continues_where_another_was() {
        let kept = Listings::default();
        let (first, second) = (kept.open(Ino(7), 1), kept.open(Ino(7), 1));
        first.note(0, b"a");
        first.note(1, b"b");
        first.note(0, b"a");
        assert_eq!(second.name(1), Name::new(b"b").ok());
        assert_eq!((second.name(2), kept.open(Ino(7), 2).name(0)), (None, None));
        assert_eq!(first.name(0), Name::new(b"a").ok());
    }
}
