//! What is known of directories' listings.
//!
//! A directory is learned page by page in the order of its listing. ListedRange is one stretch of that order: inside it
//! the namespace tables are the whole truth, a name that is not there does not exist; outside it they hold what
//! happens to be known.
//!
//! Texts are keys and common prefixes relative to the directory, so a sub-directory `a` is the sort_key `a/`.

use meta::{Ino, Moment};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::turns::Turns;

/// Lookups in a directory list at most so many pages, one each; names beyond are asked for one by one.
pub(crate) const LOOKUP_PAGES_MAX: u32 = 8;

/// Directories of which something is kept, about 16 MiB of them.
const DIRECTORIES_MAX: usize = 1 << 16;

/// One directory's state.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Taken while a page is fetched, so that many lookups share it.
    pub(crate) listing: Turns,
    known: Mutex<ListedRange>,
    /// Counts how often it was forgotten, in part or whole.
    forgotten: AtomicU64,
    /// Counts how often all of it was, as something in it has changed.
    changes: AtomicU64,
    /// What was seen in it until then is not believed any more, in nanoseconds.
    stale_at: AtomicU64,
    /// The number of its last use.
    used_at: AtomicU64,
}

/// The known stretch: after `from`, up to and with `up_to` (to the end if complete).
#[derive(Debug, Clone, Default)]
pub(crate) struct ListedRange {
    pub(crate) from: Vec<u8>,
    pub(crate) up_to: Vec<u8>,
    pub(crate) is_complete: bool,
    /// When its oldest page was listed.
    since: Moment,
    pub(crate) pages: u32,
    /// Something changed while a page was listed, which may not show it: who asked before may still have it, and nobody else.
    has_missed_change: bool,
}

impl ListedRange {
    /// Whether the stretch can still be believed. What took many pages to learn is believed in proportion longer,
    /// so that listing never takes more than a share of the requests.
    pub(crate) fn is_fresh(&self, now: Moment, ttl: Duration) -> bool {
        (self.pages > 0 || self.is_complete)
            && !self.has_missed_change
            && now.since(self.since) < ttl * (self.pages / LOOKUP_PAGES_MAX).max(1)
    }

    /// The same for who asked at `asked_at`: what was listed since then is fresh however short the time.
    pub(crate) fn is_fresh_for(&self, asked_at: Moment, now: Moment, ttl: Duration) -> bool {
        self.is_fresh(now, ttl) || (self.pages > 0 || self.is_complete) && self.since >= asked_at
    }

    /// Whether it was listed no longer ago than the revalidation time, or since `asked_at`.
    pub(crate) fn is_recent(&self, asked_at: Moment, now: Moment, ttl: Duration) -> bool {
        self.since >= asked_at || !self.has_missed_change && now.since(self.since) < ttl
    }

    /// Whether a name with these texts, as object and as directory, is inside the stretch.
    pub(crate) fn covers(&self, object_key: &[u8], directory_key: &[u8]) -> bool {
        (self.from.is_empty() || self.from.as_slice() < object_key)
            && (self.is_complete || directory_key <= self.up_to.as_slice())
    }

    /// Whether the stretch was listed after `looked_at`: what was seen then and is not there now has gone since.
    pub(crate) fn is_newer_than(&self, looked_at: Moment) -> bool {
        (self.pages > 0 || self.is_complete) && self.since > looked_at
    }

    /// Whether the stretch goes on right after `sort_key`.
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

    /// What to give [`Directory::learned`], from before the page is listed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// A page was listed: what follows `after`, up to `end` or to the directory's end.
    pub(crate) fn note_page(&self, after: &[u8], end: Option<&[u8]>, at: Moment, changes: u64) {
        let mut known = self.lock();
        let extends = known.pages > 0 && !known.is_complete && known.up_to == after;
        if !extends {
            *known = ListedRange { from: after.to_vec(), since: at, ..ListedRange::default() };
        }
        known.has_missed_change |= self.changes() != changes;
        known.pages += 1;
        known.is_complete = end.is_none();
        known.up_to = end.unwrap_or_default().to_vec();
    }

    /// The directory is new and ours: all that is in it is known, unless somebody has been there already.
    pub(crate) fn mark_complete(&self, at: Moment) {
        let mut known = self.lock();
        if self.changes() == 0 {
            *known = ListedRange { is_complete: true, since: at, ..ListedRange::default() };
        }
    }

    /// An entry with this sort_key is evicted: what is known begins after it at the earliest.
    pub(crate) fn forget_up_to(&self, sort_key: &[u8]) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        let mut known = self.lock();
        if known.is_complete || sort_key < known.up_to.as_slice() {
            known.from = sort_key.max(&known.from).to_vec();
        } else if sort_key == known.up_to.as_slice() {
            *known = ListedRange::default();
        }
    }

    /// How often it was forgotten. Whoever finds a name missing in the tables, and this is another number than
    /// before, may have missed an eviction.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        *self.lock() = ListedRange::default();
    }

    fn lock(&self) -> MutexGuard<'_, ListedRange> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The directories that something is known of, the least recently used ones left out.
#[derive(Debug)]
pub(crate) struct Directories {
    /// Whether anything is kept: in a volume named by inode the tables are the whole truth of every directory.
    keeps_state: bool,
    known: Mutex<HashMap<Ino, Arc<Directory>>>,
    /// Counts uses.
    uses: AtomicU64,
    /// When any of them was last doubted, and when all were, in nanoseconds.
    stale_at: AtomicU64,
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

    /// Forgets the less recently used half of the directories that nobody is using. What was doubted in one of them is
    /// doubted everywhere from now on.
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

    /// Something changed in a directory: a page that is being listed may not show it.
    pub(crate) fn note_change(&self, ino: Ino) {
        if let Some(directory) = self.lock().get(&ino) {
            directory.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Things may have changed in a directory, nobody knows what: whoever looks at something in it asks the bucket.
    pub(crate) fn mark_stale(&self, ino: Ino, now: Moment) {
        let directory = self.get(ino);
        directory.stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        self.stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        directory.forget();
    }

    /// The same of all directories.
    pub(crate) fn mark_all_stale(&self, now: Moment) {
        self.all_stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        self.stale_at.fetch_max(now.nanos, Ordering::SeqCst);
        self.lock().values().for_each(|directory| directory.forget());
    }

    /// Whether what was seen in a directory at a time is doubted since.
    pub(crate) fn is_marked_stale(&self, ino: Ino, seen_at: Moment) -> bool {
        let since = |stale_at: &AtomicU64| seen_at.nanos <= stale_at.load(Ordering::SeqCst);
        since(&self.stale_at)
            && (since(&self.all_stale_at)
                || self.lock().get(&ino).is_some_and(|directory| since(&directory.stale_at)))
    }

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
    fn pages_that_follow_each_other_are_one_stretch() {
        let dir = Directory::default();
        dir.note_page(b"", Some(b"m"), NOW, 0);
        assert!(dir.listed_range().covers(b"a", b"a/"));
        assert!(!dir.listed_range().covers(b"m", b"m/"), "the directory m/ comes after m");
        dir.note_page(b"m", None, NOW, 0);
        assert!(dir.listed_range().covers(b"z", b"z/") && dir.listed_range().covers(b"a", b"a/"));
        assert_eq!(dir.listed_range().pages, 2);
    }

    #[test]
    fn a_page_elsewhere_begins_a_new_stretch() {
        let dir = Directory::default();
        dir.note_page(b"", Some(b"c"), NOW, 0);
        dir.note_page(b"p", Some(b"r"), NOW, 0);
        assert!(!dir.listed_range().covers(b"a", b"a/"));
        assert!(dir.listed_range().covers(b"q", b"q/"));
        assert!(dir.listed_range().continues_after(b"p") && !dir.listed_range().continues_after(b"r"));
    }

    #[test]
    fn the_beginning_of_a_stretch_can_be_forgotten() {
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
        assert!(dir.listed_range().covers(b"a", b"a/"), "it was not in the stretch");
        dir.forget_up_to(b"m");
        assert!(!dir.listed_range().covers(b"a", b"a/"));
    }

    #[test]
    fn what_changed_while_a_page_was_listed_is_asked_for_again() {
        let dir = Directory::default();
        let changes = dir.changes();
        dir.forget();
        dir.note_page(b"", None, NOW, changes);
        assert!(dir.listed_range().is_fresh_for(NOW, NOW, TTL), "who asked before that");
        let later = Moment { nanos: NOW.nanos + 1, ..NOW };
        assert!(
            !dir.listed_range().is_fresh_for(later, later, TTL)
                && !dir.listed_range().is_recent(later, later, TTL)
        );
        dir.note_page(b"", None, later, dir.changes());
        assert!(dir.listed_range().is_fresh(later, TTL));
    }

    /// Every directory that was ever made or listed stayed in memory, also when it had been removed: ten million temporary
    /// directories took 2.6 GB beyond the memory limit.
    #[test]
    fn any_number_of_directories_is_bounded() {
        let directories = Directories::new(true);
        let held = directories.get(Ino(1));
        held.note_page(b"", None, NOW, 0);
        directories.mark_stale(Ino(2), NOW);
        for number in 3..3 * DIRECTORIES_MAX as u64 {
            directories.get(Ino(number)).note_page(b"", None, NOW, 0);
            assert!(directories.lock().len() <= DIRECTORIES_MAX);
        }
        assert!(directories.get(Ino(1)).listed_range().is_complete, "somebody uses it");
        assert!(
            directories.get(Ino(3 * DIRECTORIES_MAX as u64 - 1)).listed_range().is_complete,
            "the newest stays"
        );
        assert!(!directories.get(Ino(3)).listed_range().is_complete);
        assert!(directories.is_marked_stale(Ino(2), NOW), "what is forgotten is not trusted again");
    }

    #[test]
    fn nothing_is_kept_of_directories_in_a_volume_named_by_inode() {
        let directories = Directories::new(false);
        directories.get(Ino(5)).mark_complete(NOW);
        assert_eq!(directories.lock().len(), 0);
    }

    #[test]
    fn what_is_known_ages() {
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
