//! What front ends keep of derived directories, and how they hear that it is stale.
//!
//! Names, attributes and listings are kept as long as [`super::Derived::lifetime`] says, as whoever changes what the directories show
//! says so ([`Filesystem::say_stale`]). Invariants: what changed while an answer was made is not kept; of a listing nothing is kept
//! that was read before the last change; what was made here and the view has not heard of is not kept, as it may go unsaid.

use meta::{Ino, Name};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::nodes::Derivation;
use super::{DerivedStale, is_derived};
use crate::names::handles::Handle;
use crate::names::invalidation::Invalidation;
use crate::{Filesystem, Result};

/// What a listing has just said may be believed for so long in any case: who lists looks at the entries next.
const LISTED_FOR: Duration = Duration::from_secs(1);

/// Names that are said to be stale at once.
const NAMES_MAX: usize = 512;

/// The moment at which somebody begins to make an answer, as far as what is kept is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked(u64);

/// Whether a front end may keep what it reads of a directory, for others who open it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingCache {
    /// Nothing.
    None,
    /// It begins anew.
    Anew,
    /// What it has is right.
    Kept,
}

/// What a handle has to do with the listing that a front end keeps.
#[derive(Debug, Clone)]
pub(crate) struct ListingReader {
    cache: ListingCache,
    /// The names in the order in which they were read for the front end: who reads what it kept may have to go on here.
    names: Arc<Mutex<Vec<Name>>>,
}

impl ListingReader {
    /// The entry of a number is read.
    pub(crate) fn note(&self, number: usize, name: &[u8]) {
        let mut names = self.names();
        if names.len() == number {
            names.extend(Name::new(name));
        }
    }

    /// The entry of a number.
    pub(crate) fn name(&self, number: usize) -> Option<Name> {
        self.names().get(number).cloned()
    }

    fn names(&self) -> MutexGuard<'_, Vec<Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// How often something was said to be stale.
    stale_reports: AtomicU64,
    listings: Mutex<HashMap<Ino, Listing>>,
}

/// What a front end may have of a directory's listing.
#[derive(Debug, Default)]
struct Listing {
    open: usize,
    /// All of it is of this version, or of one after it.
    version: Option<u64>,
    names: Arc<Mutex<Vec<Name>>>,
}

impl Listings {
    /// Somebody opens a directory.
    fn open(&self, dir: Ino, version: u64) -> ListingReader {
        let mut listings = self.listings();
        let listing = listings.entry(dir).or_default();
        let is_kept = listing.version == Some(version);
        if !is_kept {
            // Who opened it before may go on reading what was.
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

    /// What is read of a directory from now on is not to be kept.
    fn invalidate(&self, dir: Ino) {
        if let Some(listing) = self.listings().get_mut(&dir) {
            listing.version = None;
        }
    }

    /// Nobody has a directory any more.
    pub(super) fn forget(&self, dir: Ino) {
        self.listings().remove(&dir);
    }

    fn listings(&self) -> MutexGuard<'_, HashMap<Ino, Listing>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem {
    /// Somebody begins to make an answer for a front end.
    pub fn asked(&self) -> Asked {
        Asked(self.derived.get().map_or(0, |views| views.listings.stale_reports.load(Ordering::Acquire)))
    }

    /// How long a front end may believe what was found under a name, for who asked then.
    pub fn lifetime(&self, dir: Ino, name: &[u8], asked: Asked) -> Duration {
        let Some(views) = self.derived_at(dir) else { return self.ttl() };
        let is_awaited = Name::new(name).is_ok_and(|name| views.created.get(&(dir, name)).is_some());
        match is_awaited || self.asked() != asked {
            true => Duration::ZERO,
            false => self.lifetime_in(views, dir),
        }
    }

    /// The same of what a listing said.
    pub fn lifetime_listed(&self, dir: Ino, asked: Asked) -> Duration {
        match self.derived_at(dir) {
            Some(_) if self.asked() != asked => LISTED_FOR,
            Some(views) => self.lifetime_in(views, dir).max(LISTED_FOR),
            None => self.ttl(),
        }
    }

    /// How long a front end may believe an inode's attributes.
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

    fn lifetime_in(&self, views: &Derivation, dir: Ino) -> Duration {
        views.path(dir).map_or(Duration::ZERO, |path| views.tree.lifetime(&path))
    }

    /// What a front end may keep of the listing that it reads through a handle.
    pub fn listing_cache(&self, handle: Handle) -> ListingCache {
        let handle = self.handles.directory(handle).ok();
        handle.and_then(|handle| Some(handle.kept.as_ref()?.cache)).unwrap_or(ListingCache::None)
    }

    pub(crate) async fn open_derived(&self, views: &Derivation, dir: Ino) -> Result<Option<ListingReader>> {
        let path = views.path(dir)?;
        // Who cannot be asked now says so when it is read.
        let Ok(version) = views.tree.version(&path).await else { return Ok(None) };
        match views.created.names(dir, None, None).is_empty() {
            true => Ok(Some(views.listings.open(dir, version))),
            false => {
                views.listings.invalidate(dir);
                Ok(None)
            }
        }
    }

    /// Tells front ends what is stale. False if they are too busy: it must be said again.
    pub fn say_stale(&self, stale: &DerivedStale) -> bool {
        let Some(views) = self.derived.get() else { return true };
        views.listings.stale_reports.fetch_add(1, Ordering::AcqRel);
        let Some(dir) = views.held(&stale.directory) else { return true };
        let mut news = vec![Invalidation::Inode(dir)];
        for name in &stale.names {
            // In this order: a lookup under way ends before the front end lets go of what it found.
            news.push(Invalidation::entry(dir, name.as_bytes()));
            news.extend(views.held_file(&(dir, name.clone())).map(Invalidation::Attributes));
        }
        self.invalidations.try_notify_all(news)
    }

    /// All that front ends may have of a directory and those below, in pieces.
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
    fn a_listing_is_kept_until_another_version_is_opened() {
        let kept = Listings::default();
        let dir = Ino(7);
        let open = |version| kept.open(dir, version).cache;
        assert_eq!(open(1), ListingCache::Anew);
        assert_eq!(open(1), ListingCache::Kept);
        // Two still read the first version when the second is opened: what they bring is not kept.
        assert_eq!(open(2), ListingCache::Anew);
        assert_eq!(open(2), ListingCache::Anew);
        (0..4).for_each(|_| kept.close(dir));
        assert_eq!(open(2), ListingCache::Anew);
        assert_eq!(open(2), ListingCache::Kept);
        kept.forget(dir);
        assert_eq!(open(2), ListingCache::Anew);
    }

    #[test]
    fn who_reads_what_is_kept_goes_on_where_another_was() {
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
