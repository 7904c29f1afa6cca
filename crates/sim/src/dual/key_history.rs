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
const COPY_CHAIN_MAX: u32 = 4;

/// Who changes, or looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actor {
    /// The program, through the file system.
    Files,
    /// A client of the endpoint.
    Endpoint,
    /// Somebody else, in the bucket itself.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChangeEffect {
    /// The key has one of these.
    Sets(Vec<Content>),
    /// What was below the first is below the second, or one key is another.
    Moves { from: KeySet },
    /// Its attributes, at most.
    KeepsContent,
}

/// Keys that a change is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeySet {
    Key(String),
    /// All keys that begin so.
    Prefix(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Not ended, or nobody knows.
    Unknown,
    Applied,
    /// It may have been seen until its end, and not after.
    Failed,
}

#[derive(Debug, Clone)]
struct Change {
    by: Actor,
    target: KeySet,
    effect: ChangeEffect,
    begun: Moment,
    ended: Option<Moment>,
    outcome: Outcome,
    /// One of several states of an open file, by the file and their order.
    file_state: Option<(u64, u64)>,
    survives_power: bool,
    /// The key whose bytes these are: while it waits in a log, a stranger may take them.
    source: Option<String>,
}

#[derive(Debug)]
pub(super) struct History {
    changes: Vec<Change>,
    settled: BTreeMap<String, Bytes>,
    /// A stranger's change is noticed so much later, in nanoseconds; `None`: when everybody has stopped.
    foreign_delay: Option<Moment>,
    /// The same of the endpoint's changes for who uses files: none, unless calls fail by which the mount asks what became
    /// of a key.
    endpoint_delay: Moment,
    /// Changes that ended before survive the loss of power.
    synced_until: Moment,
    /// Keys of which nobody knows what they are.
    unknown_keys: BTreeSet<String>,
}

impl KeySet {
    pub(super) fn covers(&self, key: &str) -> bool {
        match self {
            Self::Key(own) => own == key,
            Self::Prefix(prefix) => key.starts_with(prefix.as_str()),
        }
    }

    /// The key that a key is when what was here is at `to`.
    pub(super) fn key_after(&self, to: &KeySet, key: &str) -> Option<String> {
        // The same the other way round.
        self.key_before(to, key)
    }

    /// The key that a key was before what was at `from` came here.
    fn key_before(&self, from: &KeySet, key: &str) -> Option<String> {
        match (self, from) {
            (Self::Key(to), Self::Key(from)) if to == key => Some(from.clone()),
            (Self::Prefix(to), Self::Prefix(from)) => {
                key.strip_prefix(to.as_str()).map(|rest| format!("{from}{rest}"))
            }
            _ => None,
        }
    }
}

impl History {
    pub(super) fn new(foreign_delay: Option<Moment>, endpoint_delay: Moment) -> Self {
        let (changes, settled, unknown_keys) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { changes, settled, foreign_delay, endpoint_delay, synced_until: 0, unknown_keys }
    }

    /// Everybody has stopped, and this is what is there.
    pub(super) fn reset(&mut self, found: BTreeMap<String, Bytes>, at: Moment) {
        *self =
            Self { settled: found, synced_until: at, ..Self::new(self.foreign_delay, self.endpoint_delay) };
    }

    pub(super) fn begin(
        &mut self,
        by: Actor,
        target: KeySet,
        effect: ChangeEffect,
        begun: Moment,
    ) -> ChangeId {
        let (ended, outcome) = (None, Outcome::Unknown);
        self.changes.push(Change {
            by,
            target,
            effect,
            begun,
            ended,
            outcome,
            file_state: None,
            survives_power: false,
            source: None,
        });
        self.changes.len() - 1
    }

    /// It is done; whether it survives the loss of power, with all that was done before it.
    pub(super) fn complete(&mut self, id: ChangeId, at: Moment, survives_power: bool) {
        let change = &mut self.changes[id];
        (change.ended, change.outcome, change.survives_power) = (Some(at), Outcome::Applied, survives_power);
        if survives_power && change.by != Actor::Foreign {
            self.synced_until = self.synced_until.max(change.begun);
        }
    }

    /// Everything that was done before a moment survives the loss of power.
    pub(super) fn sync_until(&mut self, before: Moment) {
        self.synced_until = self.synced_until.max(before);
    }

    /// Whether it happened nobody knows; it does not any more.
    pub(super) fn mark_uncertain(&mut self, id: ChangeId, at: Moment) {
        self.changes[id].ended = Some(at);
    }

    /// It did not happen, but may have been seen.
    pub(super) fn mark_failed(&mut self, id: ChangeId, at: Moment) {
        (self.changes[id].ended, self.changes[id].outcome) = (Some(at), Outcome::Failed);
    }

    /// It is made of what another key has.
    pub(super) fn set_source(&mut self, id: ChangeId, source: &str) {
        self.changes[id].source = Some(source.into());
    }

    pub(super) fn set_file_state(&mut self, id: ChangeId, file: u64, number: u64) {
        self.changes[id].file_state = Some((file, number));
    }

    /// It may have happened since.
    pub(super) fn set_begin(&mut self, id: ChangeId, at: Moment) {
        self.changes[id].begun = at;
    }

    /// From now on nobody knows what a key is.
    pub(super) fn mark_unknown(&mut self, key: &str) {
        self.unknown_keys.insert(key.into());
    }

    /// Somebody has looked.
    pub(super) fn clear_unknown(&mut self, key: &str) {
        self.unknown_keys.remove(key);
    }

    pub(super) fn is_known(&self, key: &str) -> bool {
        !self.unknown_keys.contains(key)
    }

    /// The machine lost power: of what was not synced nobody knows whether it is there. What was done before this moment
    /// was.
    pub(super) fn lose_power(&mut self) -> Moment {
        let synced_until = self.synced_until;
        for change in &mut self.changes {
            if !change.survives_power && change.ended.is_none_or(|at| at > synced_until) {
                (change.ended, change.outcome) = (None, Outcome::Unknown);
            }
        }
        synced_until
    }

    /// What somebody who looks from one moment to another may see of a key; `None`: anything.
    pub(super) fn possible_contents(
        &self,
        key: &str,
        reader: Actor,
        (since, until): (Moment, Moment),
    ) -> Option<BTreeSet<Content>> {
        let mut found = BTreeSet::new();
        self.collect_contents(key, reader, (since, until), Moment::MAX, &mut found)?;
        Some(found)
    }

    /// What a key may be when everybody has stopped.
    pub(super) fn possible_final_contents(&self, key: &str) -> Option<BTreeSet<Content>> {
        self.possible_contents(key, Actor::Foreign, (Moment::MAX, Moment::MAX))
    }

    /// Every key that is, or ever was, anything.
    pub(super) fn keys(&self) -> BTreeSet<String> {
        let mut keys: BTreeSet<String> = self.settled.keys().cloned().collect();
        for change in &self.changes {
            match (&change.target, &change.effect) {
                (KeySet::Key(key), _) => drop(keys.insert(key.clone())),
                (to @ KeySet::Prefix(_), ChangeEffect::Moves { from }) => {
                    let moved: Vec<String> = keys.iter().filter_map(|key| from.key_before(to, key)).collect();
                    keys.extend(moved);
                }
                _ => {}
            }
        }
        keys
    }

    /// Whether somebody of these may have changed a key, or its attributes, since a moment.
    pub(super) fn may_have_changed(&self, key: &str, by: &[Actor], since: Moment) -> bool {
        self.changes_of(key, by, since).next().is_some()
    }

    /// Whether one of these writers ever touched the object that lies here now, also under the names it had before renames.
    pub(super) fn may_have_changed_under_any_name(&self, key: &str, by: &[Actor]) -> bool {
        self.may_have_changed_before(key, by, Moment::MAX)
    }

    fn may_have_changed_before(&self, key: &str, by: &[Actor], until: Moment) -> bool {
        let renames = self.changes.iter().filter(|change| change.begun < until);
        let names = renames.filter_map(|change| match &change.effect {
            ChangeEffect::Moves { from } => Some((change.target.key_before(from, key)?, change.begun)),
            _ => None,
        });
        self.may_have_changed(key, by, 0)
            || names.into_iter().any(|(name, at)| self.may_have_changed_before(&name, by, at))
    }

    /// What others than the program may have stored under a key since a moment.
    pub(super) fn stored_by_others(&self, key: &str, since: Moment) -> BTreeSet<Bytes> {
        let contents = |change: &Change| match &change.effect {
            ChangeEffect::Sets(contents) => contents.iter().flatten().cloned().collect(),
            ChangeEffect::Moves { .. } | ChangeEffect::KeepsContent => Vec::new(),
        };
        self.changes_of(key, &[Actor::Endpoint, Actor::Foreign], since).flat_map(contents).collect()
    }

    /// Whether something was done to a key of which nobody knows whether it happened.
    pub(super) fn has_uncertain_change(&self, key: &str) -> bool {
        let is_uncertain = |change: &Change| {
            change.outcome == Outcome::Unknown && change.ended.is_some() && change.target.covers(key)
        };
        self.changes.iter().any(is_uncertain)
    }

    /// Whether a change that somebody of these surely made lies between two moments; `but`: other than this.
    pub(super) fn has_change_between(
        &self,
        key: &str,
        by: &[Actor],
        but: &ChangeEffect,
        (since, until): (Moment, Moment),
    ) -> bool {
        self.changes_of(key, by, since).any(|change| {
            change.outcome == Outcome::Applied
                && change.effect != ChangeEffect::KeepsContent
                && change.effect != *but
                && change.begun > since
                && change.ended.is_some_and(|at| at < until)
        })
    }

    /// Whether somebody may have deleted a key since a moment, or may still.
    pub(super) fn may_be_deleted(&self, key: &str, by: Actor, since: Moment) -> bool {
        let deletes = |effect: &ChangeEffect| matches!(effect, ChangeEffect::Sets(contents) if contents.contains(&None));
        self.changes_of(key, &[by], since).any(|change| deletes(&change.effect))
    }

    /// Whether a change that may leave this may have happened between two moments, others than some.
    pub(super) fn may_become(
        &self,
        key: &str,
        wanted: &Content,
        (since, until): (Moment, Moment),
        but: &[ChangeId],
    ) -> bool {
        let is_it = |effect: &ChangeEffect| match effect {
            ChangeEffect::Sets(contents) => contents.contains(wanted),
            ChangeEffect::Moves { .. } => true,
            ChangeEffect::KeepsContent => false,
        };
        let changes = self.changes.iter().enumerate().filter(|(id, _)| !but.contains(id));
        changes
            .filter(|(_, change)| change.target.covers(key) && is_it(&change.effect))
            .any(|(_, change)| change.begun < until && change.ended.is_none_or(|at| at > since))
    }

    fn changes_of(&self, key: &str, by: &[Actor], since: Moment) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| {
            by.contains(&change.by) && change.target.covers(key) && change.ended.is_none_or(|at| at > since)
        })
    }

    /// `before`: only moves that began before, as a moved key is asked for, and nothing that began just then.
    fn collect_contents(
        &self,
        key: &str,
        reader: Actor,
        (since, until): (Moment, Moment),
        before: Moment,
        found: &mut BTreeSet<Content>,
    ) -> Option<()> {
        if self.unknown_keys.contains(key)
            || self.may_have_lost_source(key, COPY_CHAIN_MAX)
            || self.has_foreign_change_in_move(key)
        {
            return None;
        }
        let is_asked = |change: &&Change| match change.effect {
            ChangeEffect::Moves { .. } => change.begun < before,
            ChangeEffect::Sets(_) => change.begun != before,
            ChangeEffect::KeepsContent => false,
        };
        let there: Vec<&Change> =
            self.changes.iter().filter(|change| change.target.covers(key)).filter(is_asked).collect();
        let is_seen = |other: &Change| {
            other.outcome == Outcome::Applied
                && self.visible_at(other, reader).is_some_and(|at| at < since)
                && !self.may_move_nothing(other, key)
        };
        if !there.iter().any(|other| is_seen(other)) {
            found.insert(self.settled.get(key).cloned());
        }
        for change in &there {
            let is_undone =
                |other: &Change| there.iter().any(|later| self.is_undone_while_waiting(change, other, later));
            let is_over = change.outcome == Outcome::Failed && change.ended.is_some_and(|at| at < since);
            let is_replaced = || {
                there
                    .iter()
                    .any(|other| is_seen(other) && !is_undone(other) && self.surely_follows(change, other))
            };
            if change.begun >= until || is_over || is_replaced() {
                continue;
            }
            match &change.effect {
                ChangeEffect::Sets(contents) => found.extend(contents.iter().cloned()),
                ChangeEffect::Moves { from } => {
                    let window = (change.begun, change.ended.unwrap_or(until).min(until));
                    let key = change.target.key_before(from, key)?;
                    self.collect_contents(&key, Actor::Files, window, change.begun, found)?;
                }
                ChangeEffect::KeepsContent => {}
            }
        }
        Some(())
    }

    /// Whether a change waits in a log while a stranger deletes what he has there, just now or later, and comes after it.
    fn is_undone_while_waiting(&self, change: &Change, other: &Change, later: &Change) -> bool {
        let is_deletion = later.effect == ChangeEffect::Sets(vec![None]);
        let are_foreign = other.by == Actor::Foreign && later.by == Actor::Foreign;
        self.foreign_delay.is_none()
            && change.by != Actor::Foreign
            && are_foreign
            && is_deletion
            && later.begun >= other.begun
    }

    /// Whether a stranger changed a key that objects were on their way from, or to: they follow a rename in the background. What
    /// was changed before and not noticed is found then, too.
    pub(super) fn has_foreign_change_in_move(&self, key: &str) -> bool {
        self.changes.iter().any(|change| match &change.effect {
            ChangeEffect::Moves { from } => {
                let since =
                    self.foreign_delay.map_or(0, |foreign_delay| change.begun.saturating_sub(foreign_delay));
                let touched = |key: &str| self.may_have_changed(key, &[Actor::Foreign], since);
                let came_from = change.target.key_before(from, key);
                from.covers(key) && touched(key)
                    || came_from.is_some_and(|source| touched(&source) || touched(key))
            }
            _ => false,
        })
    }

    /// Whether what a key was renamed from may have been something else by then, and nobody had heard of it: then nothing moves.
    fn may_move_nothing(&self, change: &Change, key: &str) -> bool {
        let Some(source) = self.moved_from(change, key).filter(|_| self.endpoint_delay > 0) else {
            return false;
        };
        let since = change.begun.saturating_sub(self.endpoint_delay);
        self.changes_of(&source, &[Actor::Files, Actor::Endpoint], since)
            .any(|other| other.by == Actor::Endpoint || other.outcome == Outcome::Unknown)
    }

    /// The key whose one object a change moves here, or away from here.
    fn moved_from(&self, change: &Change, key: &str) -> Option<String> {
        let takes_it = |other: &Change| {
            other.begun == change.begun
                && other.effect == ChangeEffect::Moves { from: change.target.clone() }
                && change.target == KeySet::Key(key.into())
        };
        match &change.effect {
            ChangeEffect::Moves { from: from @ KeySet::Key(_) } => change.target.key_before(from, key),
            ChangeEffect::Sets(_) if self.changes.iter().any(takes_it) => Some(key.to_owned()),
            _ => None,
        }
    }

    /// Whether what waits in a log for a key may be made of what a stranger took meanwhile.
    fn may_have_lost_source(&self, key: &str, depth: u32) -> bool {
        let moved = |change: &Change| match &change.effect {
            ChangeEffect::Moves { from } => change.target.key_before(from, key),
            _ => change.source.clone(),
        };
        let changes = self.changes.iter().filter(|change| change.target.covers(key));
        self.foreign_delay.is_none()
            && changes.filter_map(|change| Some((change, moved(change)?))).any(|(change, source)| {
                self.may_have_changed(&source, &[Actor::Foreign], change.begun)
                    || depth > 0 && self.may_have_lost_source(&source, depth - 1)
            })
    }

    /// When a change is seen by everybody who looks like this.
    fn visible_at(&self, change: &Change, reader: Actor) -> Option<Moment> {
        let ended = change.ended?;
        match (change.by, reader, self.foreign_delay) {
            // When everybody has stopped nothing is unnoticed.
            (Actor::Foreign, Actor::Files, Some(foreign_delay)) => Some(ended.saturating_add(foreign_delay)),
            (Actor::Foreign, Actor::Files | Actor::Endpoint, None) => None,
            (Actor::Endpoint, Actor::Files, _) => Some(ended.saturating_add(self.endpoint_delay)),
            _ => Some(ended),
        }
    }

    /// Whether a change surely came after another.
    fn surely_follows(&self, change: &Change, other: &Change) -> bool {
        if let (Some((file, number)), Some((of, later))) = (change.file_state, other.file_state)
            && file == of
        {
            return later > number;
        }
        self.visible_at(change, other.by).is_some_and(|at| other.begun > at)
    }
}
