//! Names that this mount is changing, or changed a moment ago.
//!
//! Objects and names change one after the other, and a listing that was under way meanwhile shows what was. Such a
//! look does not count for these names: it neither brings back what is going nor takes what is coming for a
//! stranger's.

use meta::{Ino, Name};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Clock, Timestamp};
use tokio::sync::Notify;

/// A look that took longer, retries included, does not count.
const LOOK_MAX: Duration = Duration::from_secs(120);
/// Old entries are dropped when there are so many.
const SWEEP_AT: usize = 4096;

/// Directory and name.
type Place = (Ino, Name);

#[derive(Debug)]
pub(crate) struct Changes {
    clock: Arc<dyn Clock>,
    names: Mutex<HashMap<Place, Change>>,
    settled: Notify,
}

#[derive(Debug, Clone, Copy, Default)]
struct Change {
    under_way: usize,
    ended_at: Timestamp,
}

/// A name being changed; it has settled when this is dropped.
#[derive(Debug)]
pub(crate) struct Changing<'c> {
    changes: &'c Changes,
    place: Place,
}

impl Changes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, names: Mutex::default(), settled: Notify::new() }
    }

    pub(crate) fn begin(&self, parent: Ino, name: &Name) -> Changing<'_> {
        let place = (parent, name.clone());
        self.lock().entry(place.clone()).or_default().under_way += 1;
        Changing { changes: self, place }
    }

    /// Does something while no change begins or ends; it is told how to ask whether a look counts for a name.
    pub(crate) fn frozen<T>(&self, work: impl FnOnce(&dyn Fn(Ino, &Name, Timestamp) -> bool) -> T) -> T {
        let names = self.lock();
        let now = self.clock.now();
        work(&|parent, name, looked_at| {
            if now.since(looked_at) >= LOOK_MAX {
                return false;
            }
            let change = if names.is_empty() { None } else { names.get(&(parent, name.clone())) };
            change.is_none_or(|change| change.under_way == 0 && change.ended_at < looked_at)
        })
    }

    /// Waits until nobody changes a name.
    pub(crate) async fn settled(&self, parent: Ino, name: &Name) {
        let place = (parent, name.clone());
        loop {
            let settled = self.settled.notified();
            if self.lock().get(&place).is_none_or(|change| change.under_way == 0) {
                return;
            }
            settled.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Change>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut names = self.changes.lock();
        let now = self.changes.clock.now();
        if names.len() >= SWEEP_AT {
            names.retain(|_, change| change.under_way > 0 || now.since(change.ended_at) < LOOK_MAX);
        }
        if let Some(change) = names.get_mut(&self.place) {
            change.under_way -= 1;
            change.ended_at = now;
        }
        drop(names);
        self.changes.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::SystemClock;

    #[tokio::test]
    async fn looks_from_before_the_end_do_not_count() {
        let clock = Arc::new(SystemClock);
        let changes = Changes::new(clock.clone());
        let name = Name::new(b"a").unwrap();
        let counts = |at| changes.frozen(|counts| counts(Ino::ROOT, &name, at));
        assert!(counts(clock.now()));
        let (first, second) = (changes.begin(Ino::ROOT, &name), changes.begin(Ino::ROOT, &name));
        drop(first);
        let during = clock.now();
        assert!(!counts(Timestamp(i64::MAX)), "one is still under way");
        assert!(futures_util::poll!(std::pin::pin!(changes.settled(Ino::ROOT, &name))).is_pending());
        drop(second);
        changes.settled(Ino::ROOT, &name).await;
        assert!(!counts(during) && counts(Timestamp(i64::MAX)));
    }
}
