//! State of directory listings: which part of each directory is known, and since when.
//!
//! A directory is listed page by page in the order of its sort keys. The pages form one contiguous range (`ListedRange`).
//! Inside the range the namespace tables are complete: a name that is not in them does not exist. Outside the range they hold
//! only some names.
//!
//! Sort keys are keys and common prefixes relative to the directory. A subdirectory `a` has the sort key `a/`.

use meta::{Ino, Moment};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fail_fast::FailFastSemaphore;

/// Pages that lookups list in any directory, one page each. Names behind these pages are probed one by one.
const LOOKUP_PAGES: u32 = 8;

/// Number of probes that cost as much as a page. After each such number, lookups list one more page: a program that
/// looks up all names of a large directory soon has all its pages, whatever its order, and pages at most double the
/// cost of any lookups.
const PROBES_PER_PAGE: u32 = 32;

/// Maximum directories with state, about 16 MiB.
const DIRECTORIES_MAX: usize = 1 << 16;

/// The listing state of one directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Held while a page is fetched, so that concurrent lookups share one request.
    pub(crate) listing: FailFastSemaphore,
    /// The part of the directory that is listed.
    known: Mutex<ListedRange>,
    /// Number of names that were probed since the range began.
    probes: AtomicU32,
    /// Number of times that the range was forgotten, in part or as a whole.
    forgotten: AtomicU64,
    /// Number of changes in the directory. A page that was requested before a change may not show it.
    changes: AtomicU64,
    /// Observations made at or before this time are stale, in nanoseconds since the mount began.
    stale_at: AtomicU64,
    /// Sequence number of the last use, for eviction.
    used_at: AtomicU64,
}

/// The listed range: sort keys after `from`, up to and including `up_to`, or up to the end of the directory if `is_complete`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListedRange {
    pub(crate) from: Vec<u8>,
    pub(crate) up_to: Vec<u8>,
    pub(crate) is_complete: bool,
    /// When the oldest page of the range was requested.
    pub(crate) since: Moment,
    /// Number of pages in the range.
    pub(crate) pages: u32,
    /// Whether the directory changed while a page was being listed. The page may miss that change, so it answers only requests
    /// from before the page was requested.
    has_missed_change: bool,
}

impl ListedRange {
    /// Returns whether the range is within its TTL and misses no change. The TTL of a range of many pages is
    /// proportionally longer, so that listing takes a bounded share of the requests.
    pub(crate) fn is_fresh(&self, now: Moment, ttl: Duration) -> bool {
        (self.pages > 0 || self.is_complete)
            && !self.has_missed_change
            && now.since(self.since) < ttl * (self.pages / LOOKUP_PAGES).max(1)
    }

    /// Like `is_fresh`, for a request made at `asked_at`: pages that were requested since then are fresh whatever the TTL.
    pub(crate) fn is_fresh_for(&self, asked_at: Moment, now: Moment, ttl: Duration) -> bool {
        self.is_fresh(now, ttl) || (self.pages > 0 || self.is_complete) && self.since >= asked_at
    }

    /// Returns whether the range was listed since `asked_at`, or within the TTL without missing a change. The TTL is
    /// the same for a range of any number of pages.
    pub(crate) fn is_recent(&self, asked_at: Moment, now: Moment, ttl: Duration) -> bool {
        self.since >= asked_at || !self.has_missed_change && now.since(self.since) < ttl
    }

    /// Returns whether the range contains both sort keys of a name: that of its object and that of its directory.
    pub(crate) fn covers(&self, object_key: &[u8], directory_key: &[u8]) -> bool {
        (self.from.is_empty() || self.from.as_slice() < object_key)
            && (self.is_complete || directory_key <= self.up_to.as_slice())
    }

    /// Returns whether the range was listed after `looked_at`. A name that was seen then and is missing from the range has been
    /// removed since.
    pub(crate) fn is_newer_than(&self, looked_at: Moment) -> bool {
        (self.pages > 0 || self.is_complete) && self.since > looked_at
    }

    /// Returns whether the range answers what directly follows `sort_key`: an entry in the range, or the end of the
    /// directory.
    pub(crate) fn continues_after(&self, sort_key: &[u8]) -> bool {
        (self.pages > 0 || self.is_complete)
            && self.from.as_slice() <= sort_key
            && (self.is_complete || sort_key < self.up_to.as_slice())
    }
}

impl Directory {
    pub(crate) fn listed_range(&self) -> ListedRange {
        self.lock().clone()
    }

    /// Returns the change counter. Read it before a page is requested, and pass it to [`Directory::note_page`].
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Records that a name is probed because the range does not answer for it.
    pub(crate) fn note_probe(&self) {
        self.probes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether lookups may extend a range of `pages` pages by one more.
    pub(crate) fn may_list_more(&self, pages: u32) -> bool {
        pages < LOOKUP_PAGES + self.probes.load(Ordering::Relaxed) / PROBES_PER_PAGE
    }

    /// Records a page requested at `at`: the entries after `after`, up to `end` or to the end of the directory. The
    /// page extends the range if it directly follows, otherwise it becomes the range. `changes` is the change counter
    /// from before the request.
    pub(crate) fn note_page(&self, after: &[u8], end: Option<&[u8]>, at: Moment, changes: u64) {
        let mut known = self.lock();
        let extends = known.pages > 0 && !known.is_complete && known.up_to == after;
        if !extends {
            self.probes.store(0, Ordering::Relaxed);
            *known = ListedRange { from: after.to_vec(), since: at, ..ListedRange::default() };
        }
        known.has_missed_change |= self.changes() != changes;
        known.pages += 1;
        known.is_complete = end.is_none();
        known.up_to = end.unwrap_or_default().to_vec();
    }

    /// Records that the directory was created here and had been empty at `at`, unless something changed in it already.
    fn mark_complete(&self, at: Moment) {
        let mut known = self.lock();
        if self.changes() == 0 {
            *known = ListedRange { is_complete: true, since: at, ..ListedRange::default() };
        }
    }

    /// Excludes sort keys up to this one from the range, because the entry there was evicted.
    pub(crate) fn forget_up_to(&self, sort_key: &[u8]) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        let mut known = self.lock();
        if known.is_complete || sort_key < known.up_to.as_slice() {
            known.from = sort_key.max(&known.from).to_vec();
        } else if sort_key == known.up_to.as_slice() {
            *known = ListedRange::default();
        }
    }

    /// Returns the number of times that the range was forgotten. If a name is missing from the tables and this number has
    /// changed since before the lookup, an eviction may have removed the name.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// Forgets the range. A page that is being listed counts as missing a change.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        *self.lock() = ListedRange::default();
    }

    fn lock(&self) -> MutexGuard<'_, ListedRange> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory in which a name is about to be looked up and created, as it was before the lookup.
#[derive(Debug)]
pub(crate) struct ParentBefore {
    directory: Arc<Directory>,
    changes: u64,
    /// When the lookup began.
    pub(crate) at: Moment,
}

/// The listing states of directories. The least recently used ones are dropped.
#[derive(Debug)]
pub(crate) struct Directories {
    /// Whether state is kept. In a volume named by inode the tables are complete for every directory.
    keeps_state: bool,
    known: Mutex<HashMap<Ino, Arc<Directory>>>,
    /// Sequence number of the next use.
    uses: AtomicU64,
    /// When any directory was last marked stale, in nanoseconds since the mount began.
    stale_at: AtomicU64,
    /// When all directories were last marked stale, in nanoseconds since the mount began.
    all_stale_at: AtomicU64,
}

impl Directories {
    pub(crate) fn new(keeps_state: bool) -> Self {
        Self {
            keeps_state,
            known: Mutex::default(),
            uses: AtomicU64::new(0),
            stale_at: AtomicU64::new(0),
            all_stale_at: AtomicU64::new(0),
        }
    }

    /// Returns the listing state of a directory, a new one if none is known.
    pub(crate) fn get(&self, ino: Ino) -> Arc<Directory> {
        if !self.keeps_state {
            return Arc::default();
        }
        let mut known = self.lock();
        if known.len() >= DIRECTORIES_MAX && !known.contains_key(&ino) {
            self.make_room(&mut known);
        }
        let directory = known.entry(ino).or_default().clone();
        directory.used_at.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        directory
    }

    /// Returns the state of a directory before a name in it is looked up, for [`Directories::mark_empty`].
    pub(crate) fn before_lookup(&self, parent: Ino, now: Moment) -> ParentBefore {
        let directory = self.get(parent);
        let changes = directory.changes();
        ParentBefore { directory, changes, at: now }
    }

    /// Records that a directory that was created here was empty when its name was seen to be free, unless since `before`
    /// something changed in it or, while it was not yet known, in the directory above.
    pub(crate) fn mark_empty(&self, created: Ino, before: &ParentBefore, free_at: Moment) {
        if before.directory.changes() == before.changes {
            self.get(created).mark_complete(free_at);
        }
    }

    /// Drops the less recently used half of the unused states. If a dropped directory was marked stale, all directories are
    /// stale up to that time.
    fn make_room(&self, known: &mut HashMap<Ino, Arc<Directory>>) {
        let used_at = |directory: &Arc<Directory>| directory.used_at.load(Ordering::Relaxed);
        let mut uses: Vec<u64> = known.values().map(used_at).collect();
        let half = uses.len() / 2;
        let (_, median, _) = uses.select_nth_unstable(half);
        let median = *median;
        known.retain(|_, directory| {
            let stays = used_at(directory) >= median || Arc::strong_count(directory) > 1;
            if !stays {
                let stale_at = directory.stale_at.load(Ordering::SeqCst);
                self.all_stale_at.fetch_max(stale_at, Ordering::SeqCst);
            }
            stays
        });
    }

    /// Records a change in a directory: a page that is being listed may not show it.
    pub(crate) fn note_change(&self, ino: Ino) {
        if let Some(directory) = self.lock().get(&ino) {
            directory.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Marks everything seen in a directory as stale, because unknown changes may have happened there. The next lookup asks the
    /// bucket.
    pub(crate) fn mark_stale(&self, ino: Ino, now: Moment) {
        let directory = self.get(ino);
        directory.stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        self.stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        directory.forget();
    }

    /// Marks everything seen in all directories as stale.
    pub(crate) fn mark_all_stale(&self, now: Moment) {
        self.all_stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        self.stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        self.lock().values().for_each(|directory| directory.forget());
    }

    /// Returns whether an observation made in a directory at `seen_at` has been marked stale since.
    pub(crate) fn is_marked_stale(&self, ino: Ino, seen_at: Moment) -> bool {
        let since = |stale_at: &AtomicU64| seen_at.nanos <= stale_at.load(Ordering::SeqCst);
        since(&self.stale_at)
            && (since(&self.all_stale_at)
                || self.lock().get(&ino).is_some_and(|directory| since(&directory.stale_at)))
    }

    /// Drops the listing state of a directory.
    pub(crate) fn remove(&self, ino: Ino) {
        self.lock().remove(&ino);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Arc<Directory>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment { mount: 1, nanos: 1_000 };
    const TTL: Duration = Duration::from_secs(5);

    #[test]
    fn consecutive_pages_form_one_range() {
        let dir = Directory::default();
        dir.note_page(b"", Some(b"m"), NOW, 0);
        assert!(dir.listed_range().covers(b"a", b"a/"));
        assert!(!dir.listed_range().covers(b"m", b"m/"), "the directory m/ sorts after m");
        dir.note_page(b"m", None, NOW, 0);
        assert!(dir.listed_range().covers(b"z", b"z/") && dir.listed_range().covers(b"a", b"a/"));
        assert_eq!(dir.listed_range().pages, 2);
    }

    #[test]
    fn a_page_elsewhere_begins_a_new_range() {
        let dir = Directory::default();
        dir.note_page(b"", Some(b"c"), NOW, 0);
        dir.note_page(b"p", Some(b"r"), NOW, 0);
        assert!(!dir.listed_range().covers(b"a", b"a/"));
        assert!(dir.listed_range().covers(b"q", b"q/"));
        assert!(dir.listed_range().continues_after(b"p") && !dir.listed_range().continues_after(b"r"));
    }

    #[test]
    fn the_beginning_of_a_range_can_be_forgotten() {
        let dir = Directory::default();
        dir.note_page(b"", Some(b"m"), NOW, 0);
        dir.forget_up_to(b"f");
        dir.forget_up_to(b"c");
        assert!(!dir.listed_range().covers(b"f", b"f/") && dir.listed_range().covers(b"g", b"g/"));
        assert!(dir.listed_range().continues_after(b"f") && !dir.listed_range().continues_after(b"c"));
        dir.note_page(b"m", None, NOW, 0);
        assert!(dir.listed_range().covers(b"x", b"x/") && !dir.listed_range().covers(b"a", b"a/"));
        dir.note_page(b"", Some(b"m"), NOW, 0);
        dir.forget_up_to(b"x");
        assert!(dir.listed_range().covers(b"a", b"a/"), "x is not in the range");
        dir.forget_up_to(b"m");
        assert!(!dir.listed_range().covers(b"a", b"a/"));
    }

    #[test]
    fn a_page_listed_during_a_change_is_listed_again() {
        let dir = Directory::default();
        let changes = dir.changes();
        dir.forget();
        dir.note_page(b"", None, NOW, changes);
        assert!(dir.listed_range().is_fresh_for(NOW, NOW, TTL), "a request from before the change");
        let later = Moment { nanos: NOW.nanos + 1, ..NOW };
        assert!(
            !dir.listed_range().is_fresh_for(later, later, TTL)
                && !dir.listed_range().is_recent(later, later, TTL)
        );
        dir.note_page(b"", None, later, dir.changes());
        assert!(dir.listed_range().is_fresh(later, TTL));
    }

    #[test]
    fn probes_pay_for_further_pages_of_one_range() {
        let dir = Directory::default();
        dir.note_page(b"", Some(b"a"), NOW, 0);
        assert!(dir.may_list_more(LOOKUP_PAGES - 1) && !dir.may_list_more(LOOKUP_PAGES));
        (0..PROBES_PER_PAGE).for_each(|_| dir.note_probe());
        dir.note_page(b"a", Some(b"b"), NOW, 0);
        assert!(dir.may_list_more(LOOKUP_PAGES) && !dir.may_list_more(LOOKUP_PAGES + 1));
        dir.note_page(b"", Some(b"a"), NOW, 0);
        assert!(!dir.may_list_more(LOOKUP_PAGES), "a new range has a new budget");
    }

    /// Regression: every directory that was ever created or listed stayed in memory, even after its removal. Ten million
    /// temporary directories took 2.6 GB beyond the memory limit.
    #[test]
    fn the_number_of_directories_is_bounded() {
        let directories = Directories::new(true);
        let held = directories.get(Ino(1));
        held.note_page(b"", None, NOW, 0);
        directories.mark_stale(Ino(2), NOW);
        for number in 3..3 * DIRECTORIES_MAX as u64 {
            directories.get(Ino(number)).note_page(b"", None, NOW, 0);
            assert!(directories.lock().len() <= DIRECTORIES_MAX);
        }
        assert!(directories.get(Ino(1)).listed_range().is_complete, "the state is in use");
        assert!(
            directories.get(Ino(3 * DIRECTORIES_MAX as u64 - 1)).listed_range().is_complete,
            "the newest stays"
        );
        assert!(!directories.get(Ino(3)).listed_range().is_complete);
        assert!(directories.is_marked_stale(Ino(2), NOW), "a dropped state stays stale");
    }

    /// Regression: a directory was taken for empty as of the end of its creation, although an object had been put into it through the
    /// endpoint shortly before.
    #[test]
    fn a_created_directory_was_empty_when_its_name_was_looked_up() {
        let directories = Directories::new(true);
        let before = directories.before_lookup(Ino(1), NOW);
        directories.mark_empty(Ino(2), &before, before.at);
        let created = directories.get(Ino(2)).listed_range();
        assert!(created.is_fresh(NOW, TTL) && created.covers(b"new", b"new/"));
        let put_at = Moment { nanos: NOW.nanos + 1, ..NOW };
        assert!(!created.is_newer_than(put_at), "an object seen since then is news");
        let before = directories.before_lookup(Ino(1), NOW);
        directories.note_change(Ino(1));
        directories.mark_empty(Ino(3), &before, before.at);
        assert!(
            !directories.get(Ino(3)).listed_range().is_complete,
            "an object may have been put below the name"
        );
    }

    #[test]
    fn a_volume_named_by_inode_keeps_no_listing_state() {
        let directories = Directories::new(false);
        directories.get(Ino(5)).mark_complete(NOW);
        assert_eq!(directories.lock().len(), 0);
    }

    #[test]
    fn a_listed_range_expires() {
        let dir = Directory::default();
        assert!(!dir.listed_range().is_fresh(NOW, TTL));
        dir.mark_complete(NOW);
        assert!(dir.listed_range().is_fresh(NOW, TTL));
        assert!(!dir.listed_range().is_fresh(NOW, Duration::ZERO));
        assert!(
            dir.listed_range().is_fresh_for(NOW, NOW, Duration::ZERO),
            "a look made for the question answers it"
        );
        assert!(!dir.listed_range().is_fresh(Moment { nanos: NOW.nanos + 5_000_000_000, ..NOW }, TTL));
    }
}
