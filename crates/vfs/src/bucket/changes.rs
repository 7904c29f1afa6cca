//! Names that this mount is changing, or changed a moment ago.
//!
//! Objects and names change one after the other, and a listing that was under way meanwhile shows what was. Such a
//! look does not count for these names: it neither brings back what is going nor takes what is coming for a
//! stranger's.

use meta::{Ino, Moment, Name};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

use crate::moments::Moments;

/// So many names are known; then those that have settled are forgotten, and no look from before is_valid for any name.
const NAMES_MAX: usize = 1 << 16;

/// Directory and name.
type Place = (Ino, Name);

#[derive(Debug)]
pub(crate) struct Changes {
    moments: Arc<Moments>,
    known: Mutex<ChangeTable>,
    settled: Notify,
}

#[derive(Debug, Default)]
struct ChangeTable {
    names: HashMap<Place, Change>,
    /// What had settled by then is forgotten.
    forgotten_at: Option<Moment>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Change {
    under_way: usize,
    ended_at: Moment,
}

/// A name being changed; it has settled when this is dropped.
#[derive(Debug)]
pub(crate) struct Changing<'c> {
    changes: &'c Changes,
    place: Place,
}

impl Changes {
    pub(crate) fn new(moments: Arc<Moments>) -> Self {
        Self { moments, known: Mutex::default(), settled: Notify::new() }
    }

    pub(crate) fn begin(&self, parent: Ino, name: &Name) -> Changing<'_> {
        let place = (parent, name.clone());
        self.lock().names.entry(place.clone()).or_default().under_way += 1;
        Changing { changes: self, place }
    }

    /// Does something while no change begins or ends; it is told how to ask whether a look is_valid for a name.
    pub(crate) fn while_frozen<T>(&self, work: impl FnOnce(&dyn Fn(Ino, &Name, Moment) -> bool) -> T) -> T {
        let ChangeTable { names, forgotten_at } = &*self.lock();
        work(&|parent, name, looked_at| {
            if forgotten_at.is_some_and(|at| looked_at <= at) {
                return false;
            }
            let change = if names.is_empty() { None } else { names.get(&(parent, name.clone())) };
            change.is_none_or(|change| change.under_way == 0 && change.ended_at < looked_at)
        })
    }

    /// Whether a look at a time is_valid for a name.
    pub(crate) fn is_valid_look(&self, parent: Ino, name: &Name, looked_at: Moment) -> bool {
        self.while_frozen(|is_valid| is_valid(parent, name, looked_at))
    }

    /// Waits until nobody changes a name.
    pub(crate) async fn wait_until_settled(&self, parent: Ino, name: &Name) {
        let place = (parent, name.clone());
        loop {
            let settled = self.settled.notified();
            if self.lock().names.get(&place).is_none_or(|change| change.under_way == 0) {
                return;
            }
            settled.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChangeTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut known = self.changes.lock();
        let now = self.changes.moments.now();
        if let Some(change) = known.names.get_mut(&self.place) {
            change.under_way -= 1;
            change.ended_at = now;
        }
        if known.names.len() >= NAMES_MAX {
            known.names.retain(|_, change| change.under_way > 0);
            known.forgotten_at = Some(now);
        }
        drop(known);
        self.changes.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::SystemClock;

    /// Later than every moment of a test.
    const LATER: Moment = Moment { mount: 2, nanos: 0 };

    #[tokio::test]
    async fn looks_from_before_the_end_do_not_count() {
        let clock = Arc::new(Moments::new(Arc::new(SystemClock), 1));
        let changes = Changes::new(clock.clone());
        let name = Name::new(b"a").unwrap();
        let is_valid = |at| changes.while_frozen(|is_valid| is_valid(Ino::ROOT, &name, at));
        assert!(is_valid(clock.now()));
        let (first, second) = (changes.begin(Ino::ROOT, &name), changes.begin(Ino::ROOT, &name));
        drop(first);
        let during = clock.now();
        assert!(!is_valid(LATER), "one is still under way");
        assert!(
            futures_util::poll!(std::pin::pin!(changes.wait_until_settled(Ino::ROOT, &name))).is_pending()
        );
        drop(second);
        changes.wait_until_settled(Ino::ROOT, &name).await;
        assert!(!is_valid(during) && is_valid(LATER));
    }

    /// A table that was full of names from the last two minutes was gone through once for each further one.
    #[test]
    fn any_number_of_names_is_bounded_and_no_look_from_before_counts() {
        let clock = Arc::new(Moments::new(Arc::new(SystemClock), 1));
        let changes = Changes::new(clock.clone());
        let name = |number: usize| Name::new(number.to_string().as_bytes()).unwrap();
        let looked_at = clock.now();
        let under_way = changes.begin(Ino::ROOT, &name(0));
        for number in 1..3 * NAMES_MAX {
            drop(changes.begin(Ino::ROOT, &name(number)));
            assert!(changes.lock().names.len() <= NAMES_MAX);
        }
        let is_valid = |number, at| changes.while_frozen(|is_valid| is_valid(Ino::ROOT, &name(number), at));
        assert!(!is_valid(1, looked_at) && is_valid(1, clock.now()));
        assert!(!is_valid(0, LATER), "it is still under way");
        drop(under_way);
        assert!(is_valid(0, LATER));
    }
}
