//! Listings of derived directories that front ends may have cached.

use meta::{Ino, Name};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::key_run::KeyRun;

/// The number of stale reports when an answer was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked(pub(super) u64);

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
    pub(super) cache: ListingCache,
    /// Names in the order in which the front end read them. A reader of the cached listing may have to continue here.
    names: Arc<ListedNames>,
}

impl ListingReader {
    /// Records the name of the entry with this number, if it is the next one.
    pub(crate) fn note(&self, number: usize, name: &[u8]) {
        self.names.note(number, name);
    }

    /// Returns the name of the entry with this number; `None` if it is not recorded.
    pub(crate) fn name(&self, number: usize) -> Option<Name> {
        let name = self.names.lock().get(number)?;
        Name::new(&name).ok()
    }
}

/// The names of a listing, which are counted in the memory of all listings.
#[derive(Debug)]
struct ListedNames {
    /// The names in order, and the bytes that the names of all listings take.
    run: Mutex<KeyRun>,
    all_bytes: Arc<AtomicUsize>,
}

impl ListedNames {
    fn new(all_bytes: &Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { run: Mutex::default(), all_bytes: all_bytes.clone() })
    }

    fn note(&self, number: usize, name: &[u8]) {
        let mut run = self.lock();
        if run.len() != number {
            return;
        }
        let before = run.memory_bytes();
        run.push(name);
        self.all_bytes.fetch_add(run.memory_bytes() - before, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, KeyRun> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ListedNames {
    fn drop(&mut self) {
        let bytes = self.lock().memory_bytes();
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The listings that front ends may have cached, by directory.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// Number of reports of stale names so far.
    pub(super) stale_reports: AtomicU64,
    listings: Mutex<HashMap<Ino, Listing>>,
    names_bytes: Arc<AtomicUsize>,
}

/// The listing of a directory that a front end may have cached.
#[derive(Debug)]
struct Listing {
    /// Number of open handles of the directory.
    open: usize,
    /// The whole listing is of this version of the directory or of a later one. `None` if it must not be cached.
    version: Option<u64>,
    /// Names in the order in which front ends read them.
    names: Arc<ListedNames>,
}

impl Listings {
    /// Adds a handle of a directory that has this version now. Returns the handle's share in the listing.
    pub(super) fn open(&self, dir: Ino, version: u64) -> ListingReader {
        let mut listings = self.listings();
        let names = || ListedNames::new(&self.names_bytes);
        let listing =
            listings.entry(dir).or_insert_with(|| Listing { open: 0, version: None, names: names() });
        let is_kept = listing.version == Some(version);
        if !is_kept {
            // Readers that opened the directory before may still fill in the old version.
            listing.version = (listing.open == 0).then_some(version);
            listing.names = names();
        }
        listing.open += 1;
        let cache = if is_kept { ListingCache::Kept } else { ListingCache::Anew };
        ListingReader { cache, names: Arc::clone(&listing.names) }
    }

    /// Removes a handle of a directory.
    pub(crate) fn close(&self, dir: Ino) {
        if let Some(listing) = self.listings().get_mut(&dir) {
            listing.open = listing.open.saturating_sub(1);
        }
    }

    /// Prevents what is read of a directory from now on from being cached.
    pub(super) fn invalidate(&self, dir: Ino) {
        if let Some(listing) = self.listings().get_mut(&dir) {
            listing.version = None;
        }
    }

    /// Returns the memory that the names of all listings take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.names_bytes.load(Ordering::Relaxed)
    }

    /// Forgets a directory that the kernel no longer references.
    pub(super) fn forget(&self, dir: Ino) {
        self.listings().remove(&dir);
    }

    fn listings(&self) -> MutexGuard<'_, HashMap<Ino, Listing>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
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
    #[test]
    fn the_names_of_listings_that_are_gone_take_no_memory() {
        let kept = Listings::default();
        let reader = kept.open(Ino(7), 1);
        let name = |number: usize| format!("{number:055}");
        (0..10_000).for_each(|number| reader.note(number, name(number).as_bytes()));
        assert!((10_000..200_000).contains(&kept.memory_bytes()), "{}", kept.memory_bytes());
        assert_eq!(reader.name(1234), Name::new(name(1234).as_bytes()).ok());
        kept.open(Ino(7), 2);
        assert!(kept.memory_bytes() > 0, "a handle still uses the names");
        drop(reader);
        assert_eq!(kept.memory_bytes(), 0);
    }
}
