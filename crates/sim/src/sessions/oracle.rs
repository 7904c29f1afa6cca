//! The model of the volume that the mounts share: the changes that programs made, when they began and ended, and what may be seen of them.
//!
//! Moments are numbers that rise with each event of any program. A change that ended before another event began is certain to come before it.
//! A change whose outcome its program does not know may have been made at any time since it began, or never.

use crate::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A moment.
pub(super) type Moment = u64;

/// The clock of moments.
pub(super) type Moments = Arc<AtomicU64>;

/// The outcome of a change, as its program knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It changed nothing.
    Failed,
    Unknown,
}

/// A change of something at a time.
#[derive(Debug, Clone, Copy)]
struct Span {
    began: Moment,
    /// The end; `None` if it goes on or its outcome is unknown.
    ended: Option<Moment>,
}

/// The write of a whole file.
#[derive(Debug)]
struct Write {
    tag: u64,
    span: Span,
    /// Whether it certainly changed nothing.
    has_failed: bool,
}

/// A change of the number of files with a name, by one.
#[derive(Debug)]
struct NameChange {
    slot: usize,
    delta: i64,
    span: Span,
    has_failed: bool,
}

/// A lock that a program had for certain from one moment to another.
#[derive(Debug, Clone)]
struct Holding {
    file: usize,
    program: u64,
    is_exclusive: bool,
    from: Moment,
    confirmed: Moment,
}

/// The number of a change that goes on.
#[derive(Debug, Clone)]
pub(super) struct ChangeId(Vec<usize>);

/// The model.
#[derive(Default)]
pub(super) struct Oracle {
    moments: Moments,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writes: BTreeMap<usize, Vec<Write>>,
    names: Vec<NameChange>,
    /// Files with a name of each slot when all was at rest.
    present: BTreeMap<usize, i64>,
    holdings: Vec<Holding>,
    /// The values that programs have certainly counted to under a lock, each with the moment at which it was stored.
    counted: BTreeMap<(usize, u64), Moment>,
    /// Counter and program of each count that its program has not certainly stored under the lock.
    uncertain_counts: BTreeSet<(usize, u64)>,
    /// The moment for each counter at which a file with an uncertain count was closed last.
    published_late: BTreeMap<usize, Moment>,
    /// Links that may have been made, or may still be.
    links: usize,
    /// The moment at which the database went back last.
    went_back: Option<Moment>,
    newest_tag: u64,
    failure: Option<String>,
    report: Report,
}

impl Oracle {
    pub(super) fn moments(&self) -> Moments {
        self.moments.clone()
    }

    /// Returns a new moment.
    pub(super) fn now(&self) -> Moment {
        self.moments.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn count(&self, what: &'static str) {
        self.lock().report.count(what);
    }

    pub(super) fn report(&self) -> Report {
        self.lock().report.clone()
    }

    /// Notes a difference from the model. The first one counts.
    pub(super) fn fail(&self, what: String) {
        self.lock().failure.get_or_insert(what);
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Returns a number for new bytes.
    pub(super) fn new_tag(&self) -> u64 {
        let mut state = self.lock();
        state.newest_tag += 1;
        state.newest_tag
    }

    /// Begins the write of a whole file.
    pub(super) fn begin_write(&self, file: usize, tag: u64) -> ChangeId {
        let span = Span { began: self.now(), ended: None };
        let mut state = self.lock();
        let writes = state.writes.entry(file).or_default();
        writes.push(Write { tag, span, has_failed: false });
        ChangeId(vec![writes.len() - 1])
    }

    pub(super) fn end_write(&self, file: usize, id: &ChangeId, outcome: Outcome) {
        let now = self.now();
        let mut state = self.lock();
        let outcome = state.outcome_of(outcome, |state| {
            id.0.first().and_then(|at| state.writes.get(&file)?.get(*at)).map(|write| write.span.began)
        });
        let write = id.0.first().and_then(|at| state.writes.get_mut(&file)?.get_mut(*at));
        if let Some(write) = write {
            write.span.ended = (outcome == Outcome::Done).then_some(now);
            write.has_failed = outcome == Outcome::Failed;
        }
    }

    /// Checks what a read of a whole file has found that began at a moment.
    pub(super) fn check_read(&self, file: usize, began: Moment, tag: u64) -> Result<(), String> {
        let state = self.lock();
        let writes = state.writes.get(&file).map(Vec::as_slice).unwrap_or_default();
        let found = writes.iter().find(|write| write.tag == tag);
        let Some(found) = found.filter(|found| !found.has_failed) else {
            return Err(format!("file {file} has bytes {tag}, which were not stored"));
        };
        let Some(ended) = found.span.ended else { return Ok(()) };
        let is_between =
            |write: &&Write| write.span.began > ended && write.span.ended.is_some_and(|end| end < began);
        match writes.iter().find(is_between) {
            Some(later) => Err(format!(
                "file {file} has the bytes {tag}, although the bytes {} were stored later, before the read",
                later.tag
            )),
            None => Ok(()),
        }
    }

    /// Begins a change of the numbers of files with names.
    pub(super) fn begin_names(&self, deltas: &[(usize, i64)]) -> ChangeId {
        let span = Span { began: self.now(), ended: None };
        let mut state = self.lock();
        let first = state.names.len();
        let changes = deltas.iter().map(|(slot, delta)| NameChange {
            slot: *slot,
            delta: *delta,
            span,
            has_failed: false,
        });
        state.names.extend(changes);
        ChangeId((first..state.names.len()).collect())
    }

    pub(super) fn end_names(&self, id: &ChangeId, outcome: Outcome) {
        let now = self.now();
        let mut state = self.lock();
        let outcome = state.outcome_of(outcome, |state| {
            id.0.first().and_then(|at| state.names.get(*at)).map(|change| change.span.began)
        });
        for at in &id.0 {
            if let Some(change) = state.names.get_mut(*at) {
                change.span.ended = (outcome == Outcome::Done).then_some(now);
                change.has_failed = outcome == Outcome::Failed;
            }
        }
    }

    /// Notes that a program makes a link from now on.
    pub(super) fn begin_link(&self) {
        self.lock().links += 1;
    }

    /// Notes that the making of a link has certainly failed.
    pub(super) fn withdraw_link(&self) {
        self.lock().links -= 1;
    }

    /// Checks whether a name may be present, or absent, at a look that began at a moment and has just ended.
    pub(super) fn check_name(&self, slot: usize, began: Moment, is_present: bool) -> Result<(), String> {
        let state = self.lock();
        let sure = state.present.get(&slot).copied().unwrap_or_default();
        let (mut least, mut most) = (sure, sure);
        for change in state.names.iter().filter(|change| change.slot == slot && !change.has_failed) {
            let is_sure = change.span.ended.is_some_and(|ended| ended < began);
            least += if is_sure { change.delta } else { change.delta.min(0) };
            most += if is_sure { change.delta } else { change.delta.max(0) };
        }
        let found = i64::from(is_present);
        if (least..=most).contains(&found) {
            return Ok(());
        }
        Err(format!("name {slot} is found {found} times, and must be there {least} to {most} times"))
    }

    /// Checks the names that are present while all programs rest, and takes them over. `tags` are the bytes of all names, in any order.
    pub(super) fn check_at_rest(&self, present: &[bool], tags: &[u64]) -> Result<(), String> {
        let began = self.now();
        present
            .iter()
            .enumerate()
            .try_for_each(|(slot, is_present)| self.check_name(slot, began, *is_present))?;
        let mut counts = BTreeMap::<u64, usize>::new();
        tags.iter().for_each(|tag| *counts.entry(*tag).or_default() += 1);
        let mut state = self.lock();
        let repeated: usize = counts.values().map(|count| count - 1).sum();
        if repeated > state.links {
            return Err(format!(
                "files appear {repeated} times too often, at most {} links were made: {tags:?}",
                state.links
            ));
        }
        state.names.clear();
        state.present = present.iter().enumerate().map(|(slot, found)| (slot, i64::from(*found))).collect();
        Ok(())
    }

    /// Notes that a program has a lock since `from`, as a call that began at `confirmed` shows.
    pub(super) fn confirm_lock(
        &self,
        (file, program, is_exclusive): (usize, u64, bool),
        from: Moment,
        confirmed: Moment,
    ) -> Result<(), String> {
        let mut state = self.lock();
        if state.went_back.is_some_and(|back| back > from) {
            return Ok(());
        }
        let own = Holding { file, program, is_exclusive, from, confirmed };
        let excludes = |other: &&Holding| {
            other.file == file && other.program != program && (other.is_exclusive || is_exclusive)
        };
        let overlaps = |other: &&Holding| other.from < confirmed && from < other.confirmed;
        if let Some(other) = state.holdings.iter().filter(excludes).find(overlaps) {
            return Err(format!("two programs have the lock at once: {own:?} and {other:?}"));
        }
        state.holdings.push(own);
        Ok(())
    }

    /// Checks the value that a program found under an exclusive lock that it has taken at a moment.
    pub(super) fn check_count(
        &self,
        (file, program): (usize, u64),
        taken: Moment,
        found: u64,
    ) -> Result<(), String> {
        let state = self.lock();
        let is_certain = |at: Moment| at < taken && !state.may_be_overwritten(file, program, at);
        let later = state.counted.range((file, found + 1)..(file + 1, 0)).find(|(_, at)| is_certain(**at));
        match later {
            Some(((_, value), _)) => {
                Err(format!("counter {file} is {found} under the lock, and was counted to {value} before"))
            }
            None => Ok(()),
        }
    }

    /// Notes that a program with an exclusive lock begins to store a count.
    pub(super) fn begin_count(&self, file: usize, program: u64) {
        self.lock().uncertain_counts.insert((file, program));
    }

    /// Notes that a program has counted to a value under an exclusive lock that it still had when it had stored it.
    pub(super) fn note_count(
        &self,
        (file, program): (usize, u64),
        value: u64,
        taken: Moment,
    ) -> Result<(), String> {
        let now = self.now();
        let mut state = self.lock();
        state.uncertain_counts.remove(&(file, program));
        if state.went_back.is_some_and(|back| back > taken) {
            return Ok(());
        }
        match state.counted.insert((file, value), now) {
            Some(before) if !state.may_be_overwritten(file, program, before) => {
                Err(format!("two programs have counted to {value} under the lock of counter {file}"))
            }
            _ => Ok(()),
        }
    }

    /// Notes that a program has closed a counter, with this outcome.
    pub(super) fn end_count(&self, file: usize, program: u64, closed: Outcome) {
        let now = self.now();
        let mut state = self.lock();
        // After a close without an answer, the bytes may be published at any time.
        if closed == Outcome::Done && state.uncertain_counts.remove(&(file, program)) {
            state.published_late.insert(file, now);
            state.report.count("counts published late");
        }
    }

    /// Notes that the database has lost all commits since a moment. Changes that ended later may or may not be lost.
    pub(super) fn go_back(&self, to: Moment) {
        let now = self.now();
        let mut state = self.lock();
        state.went_back = Some(now);
        let forget = |span: &mut Span| span.ended = span.ended.filter(|ended| *ended < to);
        state.writes.values_mut().flatten().for_each(|write| forget(&mut write.span));
        state.names.iter_mut().for_each(|change| forget(&mut change.span));
        state.holdings.clear();
        state.counted.clear();
    }

    /// Returns whether the database has ever gone back.
    pub(super) fn has_gone_back(&self) -> bool {
        self.lock().went_back.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether a count that was stored at a moment may have been overwritten by a program that has lost the lock since.
    ///
    /// S666: a mount that loses the lease of its locks publishes writes from before at the close of their file, over those of the next holder
    /// of the lock. The caller holds the lock, so any other program whose count is uncertain has lost it.
    fn may_be_overwritten(&self, file: usize, program: u64, at: Moment) -> bool {
        let is_open = self.uncertain_counts.iter().any(|(other, by)| *other == file && *by != program);
        is_open || self.published_late.get(&file).is_some_and(|late| *late > at)
    }

    /// Returns the outcome of a change. One during which the database went back is unknown.
    fn outcome_of(&self, outcome: Outcome, began: impl FnOnce(&Self) -> Option<Moment>) -> Outcome {
        let is_lost = self.went_back.is_some_and(|back| began(self).is_none_or(|began| began < back));
        if is_lost && outcome == Outcome::Done { Outcome::Unknown } else { outcome }
    }
}
