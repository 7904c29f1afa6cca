//! What was done to each key since everybody last stopped, and what may be seen there.
//!
//! A change takes effect at some moment between its beginning and its end. So a key may show what a change left that
//! began before one looks, unless another change that is surely done began after the first one's end and ended before.
//!
//! Invariant: what may be seen never leaves out what is right; where nobody knows, it is more.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// What a key shows; `None`: nothing.
pub(super) type Content = Option<Bytes>;

/// A moment of the world's clock, in nanoseconds. No two are the same.
pub(super) type Moment = i64;

/// A change among all of a round.
pub(super) type ChangeId = usize;

/// A copy of a copy waits for the first: so many are followed.
const SOURCES_MAX: u32 = 4;

/// Who changes, or looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The program, through the file system.
    Files,
    /// A client of the endpoint.
    Endpoint,
    /// Somebody else, in the bucket itself.
    Stranger,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// The key has one of these.
    Becomes(Vec<Content>),
    /// What was below the first is below the second, or one key is another.
    Moves { from: Place },
    /// Its attributes, at most.
    Stays,
}

/// Keys that a change is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Key(String),
    /// All keys that begin so.
    Below(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Not ended, or nobody knows.
    Doubtful,
    Done,
    /// It may have been seen until its end, and not after.
    Vain,
}

#[derive(Debug, Clone)]
struct Change {
    by: By,
    place: Place,
    what: What,
    begun: Moment,
    ended: Option<Moment>,
    outcome: Outcome,
    /// One of several states of an open file, by the file and their order.
    draft: Option<(u64, u64)>,
    survives_power: bool,
    /// The key whose bytes these are: while it waits in a log, a stranger may take them.
    source: Option<String>,
}

#[derive(Debug)]
pub(super) struct History {
    changes: Vec<Change>,
    start: BTreeMap<String, Bytes>,
    /// A stranger's change is noticed so much later, in nanoseconds; `None`: when everybody has stopped.
    notice: Option<Moment>,
    /// The same of the endpoint's changes for who uses files: none, unless calls fail by which the mount asks what became
    /// of a key.
    endpoint_notice: Moment,
    /// Changes that ended before survive the loss of power.
    synced: Moment,
    /// Keys of which nobody knows what they are.
    wild: BTreeSet<String>,
}

impl Place {
    pub(super) fn covers(&self, key: &str) -> bool {
        match self {
            Self::Key(own) => own == key,
            Self::Below(prefix) => key.starts_with(prefix.as_str()),
        }
    }

    /// The key that a key is when what was here is at `to`.
    pub(super) fn after(&self, to: &Place, key: &str) -> Option<String> {
        // The same the other way round.
        self.before(to, key)
    }

    /// The key that a key was before what was at `from` came here.
    fn before(&self, from: &Place, key: &str) -> Option<String> {
        match (self, from) {
            (Self::Key(to), Self::Key(from)) if to == key => Some(from.clone()),
            (Self::Below(to), Self::Below(from)) => {
                key.strip_prefix(to.as_str()).map(|rest| format!("{from}{rest}"))
            }
            _ => None,
        }
    }
}

impl History {
    pub(super) fn new(notice: Option<Moment>, endpoint_notice: Moment) -> Self {
        let (changes, start, wild) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { changes, start, notice, endpoint_notice, synced: 0, wild }
    }

    /// Everybody has stopped, and this is what is there.
    pub(super) fn settle(&mut self, found: BTreeMap<String, Bytes>, at: Moment) {
        *self = Self { start: found, synced: at, ..Self::new(self.notice, self.endpoint_notice) };
    }

    pub(super) fn begin(&mut self, by: By, place: Place, what: What, begun: Moment) -> ChangeId {
        let (ended, outcome) = (None, Outcome::Doubtful);
        self.changes.push(Change {
            by,
            place,
            what,
            begun,
            ended,
            outcome,
            draft: None,
            survives_power: false,
            source: None,
        });
        self.changes.len() - 1
    }

    /// It is done; whether it survives the loss of power, with all that was done before it.
    pub(super) fn done(&mut self, id: ChangeId, at: Moment, survives_power: bool) {
        let change = &mut self.changes[id];
        (change.ended, change.outcome, change.survives_power) = (Some(at), Outcome::Done, survives_power);
        if survives_power && change.by != By::Stranger {
            self.synced = self.synced.max(change.begun);
        }
    }

    /// Everything that was done before a moment survives the loss of power.
    pub(super) fn all_synced(&mut self, before: Moment) {
        self.synced = self.synced.max(before);
    }

    /// Whether it happened nobody knows; it does not any more.
    pub(super) fn doubt(&mut self, id: ChangeId, at: Moment) {
        self.changes[id].ended = Some(at);
    }

    /// It did not happen, but may have been seen.
    pub(super) fn in_vain(&mut self, id: ChangeId, at: Moment) {
        (self.changes[id].ended, self.changes[id].outcome) = (Some(at), Outcome::Vain);
    }

    /// It is made of what another key has.
    pub(super) fn is_made_of(&mut self, id: ChangeId, source: &str) {
        self.changes[id].source = Some(source.into());
    }

    pub(super) fn is_state_of(&mut self, id: ChangeId, file: u64, number: u64) {
        self.changes[id].draft = Some((file, number));
    }

    /// It may have happened since.
    pub(super) fn began_at(&mut self, id: ChangeId, at: Moment) {
        self.changes[id].begun = at;
    }

    /// From now on nobody knows what a key is.
    pub(super) fn is_wild(&mut self, key: &str) {
        self.wild.insert(key.into());
    }

    /// Somebody has looked.
    pub(super) fn is_known(&mut self, key: &str) {
        self.wild.remove(key);
    }

    pub(super) fn knows(&self, key: &str) -> bool {
        !self.wild.contains(key)
    }

    /// The machine lost power: of what was not synced nobody knows whether it is there. What was done before this moment
    /// was.
    pub(super) fn lose_power(&mut self) -> Moment {
        let synced = self.synced;
        for change in &mut self.changes {
            if !change.survives_power && change.ended.is_none_or(|at| at > synced) {
                (change.ended, change.outcome) = (None, Outcome::Doubtful);
            }
        }
        synced
    }

    /// What somebody who looks from one moment to another may see of a key; `None`: anything.
    pub(super) fn may_be(
        &self,
        key: &str,
        reader: By,
        (since, until): (Moment, Moment),
    ) -> Option<BTreeSet<Content>> {
        let mut found = BTreeSet::new();
        self.collect(key, reader, (since, until), Moment::MAX, &mut found)?;
        Some(found)
    }

    /// What a key may be when everybody has stopped.
    pub(super) fn may_end(&self, key: &str) -> Option<BTreeSet<Content>> {
        self.may_be(key, By::Stranger, (Moment::MAX, Moment::MAX))
    }

    /// Every key that is, or ever was, anything.
    pub(super) fn keys(&self) -> BTreeSet<String> {
        let mut keys: BTreeSet<String> = self.start.keys().cloned().collect();
        for change in &self.changes {
            match (&change.place, &change.what) {
                (Place::Key(key), _) => drop(keys.insert(key.clone())),
                (to @ Place::Below(_), What::Moves { from }) => {
                    let moved: Vec<String> = keys.iter().filter_map(|key| from.before(to, key)).collect();
                    keys.extend(moved);
                }
                _ => {}
            }
        }
        keys
    }

    /// Whether somebody of these may have changed a key, or its attributes, since a moment.
    pub(super) fn is_touched(&self, key: &str, by: &[By], since: Moment) -> bool {
        self.touching(key, by, since).next().is_some()
    }

    /// Whether one of these writers ever touched the object that lies here now, also under the names it had before renames.
    pub(super) fn is_touched_under_any_name(&self, key: &str, by: &[By]) -> bool {
        self.is_touched_before(key, by, Moment::MAX)
    }

    fn is_touched_before(&self, key: &str, by: &[By], until: Moment) -> bool {
        let renames = self.changes.iter().filter(|change| change.begun < until);
        let names = renames.filter_map(|change| match &change.what {
            What::Moves { from } => Some((change.place.before(from, key)?, change.begun)),
            _ => None,
        });
        self.is_touched(key, by, 0)
            || names.into_iter().any(|(name, at)| self.is_touched_before(&name, by, at))
    }

    /// What others than the program may have stored under a key since a moment.
    pub(super) fn stored_by_others(&self, key: &str, since: Moment) -> BTreeSet<Bytes> {
        let contents = |change: &Change| match &change.what {
            What::Becomes(contents) => contents.iter().flatten().cloned().collect(),
            What::Moves { .. } | What::Stays => Vec::new(),
        };
        self.touching(key, &[By::Endpoint, By::Stranger], since).flat_map(contents).collect()
    }

    /// Whether something was done to a key of which nobody knows whether it happened.
    pub(super) fn is_doubtful(&self, key: &str) -> bool {
        let is_doubtful = |change: &Change| {
            change.outcome == Outcome::Doubtful && change.ended.is_some() && change.place.covers(key)
        };
        self.changes.iter().any(is_doubtful)
    }

    /// Whether a change that somebody of these surely made lies between two moments; `but`: other than this.
    pub(super) fn is_changed_between(
        &self,
        key: &str,
        by: &[By],
        but: &What,
        (since, until): (Moment, Moment),
    ) -> bool {
        self.touching(key, by, since).any(|change| {
            change.outcome == Outcome::Done
                && change.what != What::Stays
                && change.what != *but
                && change.begun > since
                && change.ended.is_some_and(|at| at < until)
        })
    }

    /// Whether somebody may have deleted a key since a moment, or may still.
    pub(super) fn may_be_deleted(&self, key: &str, by: By, since: Moment) -> bool {
        let deletes = |what: &What| matches!(what, What::Becomes(contents) if contents.contains(&None));
        self.touching(key, &[by], since).any(|change| deletes(&change.what))
    }

    /// Whether a change that may leave this may have happened between two moments, others than some.
    pub(super) fn may_become(
        &self,
        key: &str,
        wanted: &Content,
        (since, until): (Moment, Moment),
        but: &[ChangeId],
    ) -> bool {
        let is_it = |what: &What| match what {
            What::Becomes(contents) => contents.contains(wanted),
            What::Moves { .. } => true,
            What::Stays => false,
        };
        let changes = self.changes.iter().enumerate().filter(|(id, _)| !but.contains(id));
        changes
            .filter(|(_, change)| change.place.covers(key) && is_it(&change.what))
            .any(|(_, change)| change.begun < until && change.ended.is_none_or(|at| at > since))
    }

    fn touching(&self, key: &str, by: &[By], since: Moment) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| {
            by.contains(&change.by) && change.place.covers(key) && change.ended.is_none_or(|at| at > since)
        })
    }

    /// `before`: only moves that began before, as a moved key is asked for, and nothing that began just then.
    fn collect(
        &self,
        key: &str,
        reader: By,
        (since, until): (Moment, Moment),
        before: Moment,
        found: &mut BTreeSet<Content>,
    ) -> Option<()> {
        if self.wild.contains(key) || self.lacks_source(key, SOURCES_MAX) || self.is_crossed(key) {
            return None;
        }
        let is_asked = |change: &&Change| match change.what {
            What::Moves { .. } => change.begun < before,
            What::Becomes(_) => change.begun != before,
            What::Stays => false,
        };
        let there: Vec<&Change> =
            self.changes.iter().filter(|change| change.place.covers(key)).filter(is_asked).collect();
        let is_seen = |other: &Change| {
            other.outcome == Outcome::Done
                && self.noticed(other, reader).is_some_and(|at| at < since)
                && !self.may_come_to_nothing(other, key)
        };
        if !there.iter().any(|other| is_seen(other)) {
            found.insert(self.start.get(key).cloned());
        }
        for change in &there {
            let passes = |other: &Change| there.iter().any(|later| self.passes(change, other, later));
            let is_over = change.outcome == Outcome::Vain && change.ended.is_some_and(|at| at < since);
            let is_replaced =
                || there.iter().any(|other| is_seen(other) && !passes(other) && self.follows(change, other));
            if change.begun >= until || is_over || is_replaced() {
                continue;
            }
            match &change.what {
                What::Becomes(contents) => found.extend(contents.iter().cloned()),
                What::Moves { from } => {
                    let window = (change.begun, change.ended.unwrap_or(until).min(until));
                    let key = change.place.before(from, key)?;
                    self.collect(&key, By::Files, window, change.begun, found)?;
                }
                What::Stays => {}
            }
        }
        Some(())
    }

    /// Whether a change waits in a log while a stranger deletes what he has there, just now or later, and comes after it.
    fn passes(&self, change: &Change, other: &Change, later: &Change) -> bool {
        let is_deletion = later.what == What::Becomes(vec![None]);
        let are_strangers = other.by == By::Stranger && later.by == By::Stranger;
        self.notice.is_none()
            && change.by != By::Stranger
            && are_strangers
            && is_deletion
            && later.begun >= other.begun
    }

    /// Whether a stranger changed a key that objects were on their way from, or to: they follow a rename in the background. What
    /// was changed before and not noticed is found then, too.
    pub(super) fn is_crossed(&self, key: &str) -> bool {
        self.changes.iter().any(|change| match &change.what {
            What::Moves { from } => {
                let since = self.notice.map_or(0, |notice| change.begun.saturating_sub(notice));
                let touched = |key: &str| self.is_touched(key, &[By::Stranger], since);
                let came_from = change.place.before(from, key);
                from.covers(key) && touched(key)
                    || came_from.is_some_and(|source| touched(&source) || touched(key))
            }
            _ => false,
        })
    }

    /// Whether what a key was renamed from may have been something else by then, and nobody had heard of it: then nothing moves.
    fn may_come_to_nothing(&self, change: &Change, key: &str) -> bool {
        let Some(source) = self.moved_from(change, key).filter(|_| self.endpoint_notice > 0) else {
            return false;
        };
        let since = change.begun.saturating_sub(self.endpoint_notice);
        self.touching(&source, &[By::Files, By::Endpoint], since)
            .any(|other| other.by == By::Endpoint || other.outcome == Outcome::Doubtful)
    }

    /// The key whose one object a change moves here, or away from here.
    fn moved_from(&self, change: &Change, key: &str) -> Option<String> {
        let takes_it = |other: &Change| {
            other.begun == change.begun
                && other.what == What::Moves { from: change.place.clone() }
                && change.place == Place::Key(key.into())
        };
        match &change.what {
            What::Moves { from: from @ Place::Key(_) } => change.place.before(from, key),
            What::Becomes(_) if self.changes.iter().any(takes_it) => Some(key.to_owned()),
            _ => None,
        }
    }

    /// Whether what waits in a log for a key may be made of what a stranger took meanwhile.
    fn lacks_source(&self, key: &str, depth: u32) -> bool {
        let moved = |change: &Change| match &change.what {
            What::Moves { from } => change.place.before(from, key),
            _ => change.source.clone(),
        };
        let changes = self.changes.iter().filter(|change| change.place.covers(key));
        self.notice.is_none()
            && changes.filter_map(|change| Some((change, moved(change)?))).any(|(change, source)| {
                self.is_touched(&source, &[By::Stranger], change.begun)
                    || depth > 0 && self.lacks_source(&source, depth - 1)
            })
    }

    /// When a change is seen by everybody who looks like this.
    fn noticed(&self, change: &Change, reader: By) -> Option<Moment> {
        let ended = change.ended?;
        match (change.by, reader, self.notice) {
            // When everybody has stopped nothing is unnoticed.
            (By::Stranger, By::Files, Some(notice)) => Some(ended.saturating_add(notice)),
            (By::Stranger, By::Files | By::Endpoint, None) => None,
            (By::Endpoint, By::Files, _) => Some(ended.saturating_add(self.endpoint_notice)),
            _ => Some(ended),
        }
    }

    /// Whether a change surely came after another.
    fn follows(&self, change: &Change, other: &Change) -> bool {
        if let (Some((file, number)), Some((of, later))) = (change.draft, other.draft)
            && file == of
        {
            return later > number;
        }
        self.noticed(change, other.by).is_some_and(|at| other.begun > at)
    }
}
