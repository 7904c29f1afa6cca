//! Names that this mount is changing, or changed lately.
//!
//! A change of a name and of its object are two steps. A look at the bucket (a listing or HEAD) that ran meanwhile may
//! show the state before the change. Such a look is not valid for these names: it must not bring back a removed object,
//! nor take an object that is being stored here for another client's.

use meta::{Ino, Moment, Name};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

use crate::moments::Moments;

/// Maximum names in the table. When it is full, names that are not being changed are forgotten, and every look from before then
/// is invalid for all names.
const NAMES_MAX: usize = 1 << 16;

/// Maximum steps of [`Changes::let_waiters_pass`]: callers may come without end, and the task that lets them pass must
/// go on.
const PASSES_MAX: usize = 48;
/// The number of first steps, which only yield to other tasks.
const YIELDS_MAX: usize = 32;
/// The pause of each later step.
const PASS: Duration = Duration::from_millis(1);

/// Directory and name.
type DentryKey = (Ino, Name);

/// The names that this mount is changing, and those that it changed last.
#[derive(Debug)]
pub(crate) struct Changes {
    moments: Arc<Moments>,
    /// Whether there are looks at the bucket that a change could make invalid; otherwise no name is recorded.
    records_names: bool,
    known: Mutex<ChangeTable>,
    /// Number of callers that wait for the lock of the table.
    waiting: AtomicUsize,
    /// Notified when a change ends.
    settled: Notify,
}

#[derive(Debug, Default)]
struct ChangeTable {
    /// Names that are being changed, or were changed lately.
    names: HashMap<DentryKey, Change>,
    /// When settled names were last forgotten. No look from before this moment is valid.
    forgotten_at: Option<Moment>,
}

impl ChangeTable {
    /// Forgets the names that are not being changed if the table is full.
    fn forget_settled_if_full(&mut self, now: Moment) {
        if self.names.len() >= NAMES_MAX {
            self.names.retain(|_, change| change.under_way > 0);
            self.forgotten_at = Some(now);
        }
    }
}

/// The changes of one name.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    /// Number of changes that have begun and not ended.
    under_way: usize,
    /// When the last change ended.
    ended_at: Moment,
    /// When an object with this name was last moved away. Looks from before may still show that object, but are valid for a directory.
    object_left_at: Moment,
}

/// The changes of names at a moment in which none can begin or end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrozenChanges<'c>(&'c ChangeTable);

/// The part of the state of a name that a look at the bucket proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    /// The object and the directory that it shows, or their absence.
    Whole,
    /// Only whether there is a directory.
    DirectoryOnly,
    /// Nothing.
    Nothing,
}

impl FrozenChanges<'_> {
    /// Returns what a look made at `looked_at` proves about a name.
    pub(crate) fn validity(self, parent: Ino, name: &Name, looked_at: Moment) -> Validity {
        let ChangeTable { names, forgotten_at } = self.0;
        if forgotten_at.is_some_and(|at| looked_at <= at) {
            return Validity::Nothing;
        }
        let change = if names.is_empty() { None } else { names.get(&(parent, name.clone())) };
        match change {
            Some(change) if change.under_way > 0 || change.ended_at >= looked_at => Validity::Nothing,
            Some(change) if change.object_left_at >= looked_at => Validity::DirectoryOnly,
            _ => Validity::Whole,
        }
    }

    /// Returns whether a look made at `looked_at` is valid for a name.
    pub(crate) fn is_valid_look(self, parent: Ino, name: &Name, looked_at: Moment) -> bool {
        self.validity(parent, name, looked_at) == Validity::Whole
    }

    /// Returns whether a look made at `looked_at` proves whether there is a directory with this name.
    pub(crate) fn is_valid_look_for_directory(self, parent: Ino, name: &Name, looked_at: Moment) -> bool {
        self.validity(parent, name, looked_at) != Validity::Nothing
    }
}

/// A name that is being changed. The change ends when this guard is dropped.
#[derive(Debug)]
pub(crate) struct ChangeGuard<'c> {
    changes: &'c Changes,
    key: DentryKey,
}

impl Changes {
    pub(crate) fn new(moments: Arc<Moments>, records_names: bool) -> Self {
        let (known, waiting) = Default::default();
        Self { moments, records_names, known, waiting, settled: Notify::new() }
    }

    /// Begins a change of a name, which ends when the guard is dropped.
    pub(crate) fn begin(&self, parent: Ino, name: &Name) -> ChangeGuard<'_> {
        let key = (parent, name.clone());
        if self.records_names {
            self.lock().names.entry(key.clone()).or_default().under_way += 1;
        }
        ChangeGuard { changes: self, key }
    }

    /// Notes that an object was moved away from its name. Looks made until now are not valid for an object with this name.
    pub(crate) fn note_object_left(&self, parent: Ino, name: &Name) {
        if self.records_names {
            let mut known = self.lock();
            let now = self.moments.now();
            known.names.entry((parent, name.clone())).or_default().object_left_at = now;
            known.forget_settled_if_full(now);
        }
    }

    /// Runs `work` while no change can begin or end.
    pub(crate) fn while_frozen<T>(&self, work: impl FnOnce(FrozenChanges<'_>) -> T) -> T {
        work(FrozenChanges(&self.lock()))
    }

    /// Returns whether a look made at `looked_at` is valid for a name.
    pub(crate) fn is_valid_look(&self, parent: Ino, name: &Name, looked_at: Moment) -> bool {
        self.while_frozen(|changes| changes.is_valid_look(parent, name, looked_at))
    }

    /// Waits until no change of a name is under way.
    pub(crate) async fn wait_until_settled(&self, parent: Ino, name: &Name) {
        let key = (parent, name.clone());
        loop {
            let settled = self.settled.notified();
            if self.lock().names.get(&key).is_none_or(|change| change.under_way == 0) {
                return;
            }
            settled.await;
        }
    }

    /// Waits until no caller waits for the lock of the table, at most [`PASSES_MAX`] steps. A task that freezes changes
    /// again and again calls this in between, because a mutex favours the thread that has just released it.
    pub(crate) async fn let_waiters_pass(&self) {
        tokio::task::yield_now().await;
        for pass in 0..PASSES_MAX {
            match self.waiting.load(Ordering::Acquire) {
                0 => return,
                _ if pass < YIELDS_MAX => tokio::task::yield_now().await,
                // The threads of the waiting callers are not running.
                _ => tokio::time::sleep(PASS).await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChangeTable> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        known
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        if !self.changes.records_names {
            return;
        }
        let mut known = self.changes.lock();
        let now = self.changes.moments.now();
        if let Some(change) = known.names.get_mut(&self.key) {
            change.under_way -= 1;
            change.ended_at = now;
        }
        known.forget_settled_if_full(now);
        drop(known);
        self.changes.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::SystemClock;

    /// A moment later than every other moment of the tests.
    const LATER: Moment = Moment { mount: 2, nanos: 0 };

    #[tokio::test]
    async fn looks_made_before_the_end_of_a_change_are_invalid() {
        let clock = Arc::new(Moments::new(Arc::new(SystemClock), 1));
        let changes = Changes::new(clock.clone(), true);
        let name = Name::new(b"a").unwrap();
        let is_valid = |at| changes.is_valid_look(Ino::ROOT, &name, at);
        assert!(is_valid(clock.now()));
        let (first, second) = (changes.begin(Ino::ROOT, &name), changes.begin(Ino::ROOT, &name));
        drop(first);
        let during = clock.now();
        assert!(!is_valid(LATER), "the second change is still under way");
        assert!(
            futures_util::poll!(std::pin::pin!(changes.wait_until_settled(Ino::ROOT, &name))).is_pending()
        );
        drop(second);
        changes.wait_until_settled(Ino::ROOT, &name).await;
        assert!(!is_valid(during) && is_valid(LATER));
    }

    #[tokio::test]
    async fn an_object_that_left_its_name_says_nothing_about_a_directory() {
        let clock = Arc::new(Moments::new(Arc::new(SystemClock), 1));
        let changes = Changes::new(clock.clone(), true);
        let name = Name::new(b"a").unwrap();
        let looked_at = clock.now();
        changes.note_object_left(Ino::ROOT, &name);
        let is_valid_for_directory =
            |at| changes.while_frozen(|changes| changes.is_valid_look_for_directory(Ino::ROOT, &name, at));
        assert!(!changes.is_valid_look(Ino::ROOT, &name, looked_at) && is_valid_for_directory(looked_at));
        assert!(changes.is_valid_look(Ino::ROOT, &name, LATER));
        drop(changes.begin(Ino::ROOT, &name));
        assert!(!is_valid_for_directory(looked_at));
    }

    /// Regression: with a table full of names from the last two minutes, each further name caused a scan of the whole table.
    #[test]
    fn the_table_is_bounded_and_earlier_looks_become_invalid() {
        let clock = Arc::new(Moments::new(Arc::new(SystemClock), 1));
        let changes = Changes::new(clock.clone(), true);
        let name = |number: usize| Name::new(number.to_string().as_bytes()).unwrap();
        let looked_at = clock.now();
        let under_way = changes.begin(Ino::ROOT, &name(0));
        for number in 1..3 * NAMES_MAX {
            drop(changes.begin(Ino::ROOT, &name(number)));
            assert!(changes.lock().names.len() <= NAMES_MAX);
        }
        let is_valid = |number, at| changes.is_valid_look(Ino::ROOT, &name(number), at);
        assert!(!is_valid(1, looked_at) && is_valid(1, clock.now()));
        assert!(!is_valid(0, LATER), "its change is still under way");
        drop(under_way);
        assert!(is_valid(0, LATER));
    }
}
