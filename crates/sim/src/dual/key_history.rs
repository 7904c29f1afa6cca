//! The changes of each key since all clients last stopped, and the contents that a reader may see.
//!
//! A change takes effect at some moment between its begin and its end. A reader may see the result of each change that began
//! before the end of the read, unless a later change replaced it: one that surely took effect, began after the end of the first
//! change, and ended before the read began.
//!
//! Invariant: the possible contents always include the correct ones. Where the outcome is unknown, they include more.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The content of a key; `None`: no object.
pub(super) type Content = Option<Bytes>;

/// A time of the world's clock, in nanoseconds. All times are distinct.
pub(super) type Moment = i64;

/// Index of a change within a round.
pub(super) type ChangeId = usize;

/// Time after which a rename surely survives a power loss: the 50 ms of S81, and as much for the sync itself.
const JOURNAL_SYNC_DELAY: Moment = 50_000_000 + 50_000_000;

/// Maximum number of copies of copies that are followed to their source.
const COPY_CHAIN_MAX: u32 = 4;

/// A writer or reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actor {
    /// The file client, through the file system.
    Files,
    /// A client of the endpoint.
    Endpoint,
    /// The foreign writer, directly in the bucket. The checks after a round read like it.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChangeEffect {
    /// The key gets one of these contents.
    Sets(Vec<Content>),
    /// A rename: the content of each key in `from` moves to the corresponding key of the target.
    Moves { from: KeySet },
    /// At most the attributes change.
    KeepsContent,
}

/// The keys that a change affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeySet {
    Key(String),
    /// All keys with this prefix.
    Prefix(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The change is in progress, or its outcome is unknown.
    Unknown,
    Applied,
    /// The change did not take effect. It may have been visible until its end.
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
    /// For a state of an open file: the number of the file, and of the state within the file.
    file_state: Option<(u64, u64)>,
    survives_power: bool,
    /// The key that the content is copied from. While the change waits in the write-back log, a foreign writer may change that key.
    source: Option<String>,
}

#[derive(Debug)]
pub(super) struct History {
    changes: Vec<Change>,
    /// Contents at the end of the previous round.
    settled: BTreeMap<String, Bytes>,
    /// Time until the file system notices a foreign change, in nanoseconds. `None`, with write-back: file system and endpoint notice it
    /// only when all clients have stopped.
    foreign_delay: Option<Moment>,
    /// Time until the file system notices a change through the endpoint. Zero, unless calls fail with which the mount looks up the
    /// state of a key, or clients disconnect before the mount does so.
    endpoint_delay: Moment,
    /// Changes that ended before this time survive a power loss.
    synced_until: Moment,
    /// Keys with unknown content.
    unknown_keys: BTreeSet<String>,
}

impl KeySet {
    pub(super) fn covers(&self, key: &str) -> bool {
        match self {
            Self::Key(own) => own == key,
            Self::Prefix(prefix) => key.starts_with(prefix.as_str()),
        }
    }

    /// Returns the new name of a key when the keys of `self` are renamed to `to`.
    pub(super) fn key_after(&self, to: &KeySet, key: &str) -> Option<String> {
        // A rename back maps the old name to the new one.
        self.key_before(to, key)
    }

    /// Returns the name that a key had before the keys of `from` were renamed to `self`.
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

    /// Starts a new round from the contents found after all clients have stopped.
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

    /// Ends a change that took effect. If it survives a power loss, so do all changes that ended before it began.
    pub(super) fn complete(&mut self, id: ChangeId, at: Moment, survives_power: bool) {
        let change = &mut self.changes[id];
        (change.ended, change.outcome, change.survives_power) = (Some(at), Outcome::Applied, survives_power);
        if survives_power && change.by != Actor::Foreign {
            self.synced_until = self.synced_until.max(change.begun);
        }
    }

    /// Records that changes that ended before a time survive a power loss.
    pub(super) fn sync_until(&mut self, before: Moment) {
        self.synced_until = self.synced_until.max(before);
    }

    /// Ends a change whose outcome is unknown.
    pub(super) fn mark_uncertain(&mut self, id: ChangeId, at: Moment) {
        self.changes[id].ended = Some(at);
    }

    /// Ends a change that did not take effect but may have been visible.
    pub(super) fn mark_failed(&mut self, id: ChangeId, at: Moment) {
        (self.changes[id].ended, self.changes[id].outcome) = (Some(at), Outcome::Failed);
    }

    /// Records the key from which the content of a change was copied.
    pub(super) fn set_source(&mut self, id: ChangeId, source: &str) {
        self.changes[id].source = Some(source.into());
    }

    pub(super) fn set_file_state(&mut self, id: ChangeId, file: u64, number: u64) {
        self.changes[id].file_state = Some((file, number));
    }

    /// Sets the begin of a change.
    pub(super) fn set_begin(&mut self, id: ChangeId, at: Moment) {
        self.changes[id].begun = at;
    }

    /// Marks the content of a key as unknown.
    pub(super) fn mark_unknown(&mut self, key: &str) {
        self.unknown_keys.insert(key.into());
    }

    /// Marks keys as unknown to which changes that were in progress since a time may have taken what was stored under a key.
    pub(super) fn mark_targets_unknown(&mut self, source: &str, since: Moment) {
        let takes = |change: &&Change| {
            change.source.as_deref() == Some(source) && change.ended.is_none_or(|at| at > since)
        };
        let target = |change: &Change| match &change.target {
            KeySet::Key(key) => Some(key.clone()),
            KeySet::Prefix(_) => None,
        };
        let targets: Vec<String> = self.changes.iter().filter(takes).filter_map(target).collect();
        self.unknown_keys.extend(targets);
    }

    /// Ends the unknown state of a key after a read.
    pub(super) fn clear_unknown(&mut self, key: &str) {
        self.unknown_keys.remove(key);
    }

    pub(super) fn is_known(&self, key: &str) -> bool {
        !self.unknown_keys.contains(key)
    }

    /// Makes the outcome of all unsynced changes unknown after a power loss. Returns the time before which changes
    /// survived.
    pub(super) fn lose_power(&mut self) -> Moment {
        let synced_until = self.synced_until;
        for change in &mut self.changes {
            if !change.survives_power && change.ended.is_none_or(|at| at > synced_until) {
                (change.ended, change.outcome) = (None, Outcome::Unknown);
            }
        }
        synced_until
    }

    /// Makes the outcome of recent renames unknown after a power loss: the journal of moves is durable only some time after a rename.
    pub(super) fn lose_recent_moves(&mut self, crashed_at: Moment) {
        let is_recent = |change: &Change| change.ended.is_none_or(|at| at + JOURNAL_SYNC_DELAY > crashed_at);
        let recent = self.changes.iter().filter(|change| is_recent(change));
        let moves = recent.filter(|change| matches!(change.effect, ChangeEffect::Moves { .. }));
        let begins: BTreeSet<Moment> = moves.map(|change| change.begun).collect();
        for change in self.changes.iter_mut().filter(|change| begins.contains(&change.begun)) {
            (change.ended, change.outcome) = (None, Outcome::Unknown);
        }
    }

    /// Returns the contents that a read between two times may see; `None`: any content.
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

    /// Returns the contents that a key may have when all clients have stopped.
    pub(super) fn possible_final_contents(&self, key: &str) -> Option<BTreeSet<Content>> {
        self.possible_contents(key, Actor::Foreign, (Moment::MAX, Moment::MAX))
    }

    /// Returns all keys that have or may have had content.
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

    /// Whether one of these actors may have changed a key or its attributes since a time.
    pub(super) fn may_have_changed(&self, key: &str, by: &[Actor], since: Moment) -> bool {
        self.changes_of(key, by, since).next().is_some()
    }

    /// Whether the foreign writer may have changed a key since a time, or shortly before it, so that the file system had not noticed.
    pub(super) fn may_have_changed_unnoticed(&self, key: &str, since: Moment) -> bool {
        self.may_have_changed(key, &[Actor::Foreign], self.unnoticed_since(since))
    }

    /// Whether a key below a prefix may have changed since a time.
    pub(super) fn may_have_changed_below(&self, prefix: &str, since: Moment) -> bool {
        let is_below = |change: &Change| match &change.target {
            KeySet::Key(key) => key.starts_with(prefix),
            KeySet::Prefix(other) => other.starts_with(prefix) || prefix.starts_with(other.as_str()),
        };
        self.changes.iter().any(|change| change.ended.is_none_or(|at| at > since) && is_below(change))
    }

    /// Returns the time since which the file system may not have noticed a change of the foreign writer at a time.
    pub(super) fn unnoticed_since(&self, at: Moment) -> Moment {
        self.foreign_delay.map_or(0, |foreign_delay| at.saturating_sub(foreign_delay))
    }

    /// Whether one of these actors may ever have changed the object that has this key now, also under its names before renames.
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

    /// Returns the contents that the endpoint or the foreign writer may have stored under a key since a time.
    pub(super) fn stored_by_others(&self, key: &str, since: Moment) -> BTreeSet<Bytes> {
        let contents = |change: &Change| match &change.effect {
            ChangeEffect::Sets(contents) => contents.iter().flatten().cloned().collect(),
            ChangeEffect::Moves { .. } | ChangeEffect::KeepsContent => Vec::new(),
        };
        self.changes_of(key, &[Actor::Endpoint, Actor::Foreign], since).flat_map(contents).collect()
    }

    /// Whether a key has an ended change with unknown outcome.
    pub(super) fn has_uncertain_change(&self, key: &str) -> bool {
        let is_uncertain = |change: &Change| {
            change.outcome == Outcome::Unknown && change.ended.is_some() && change.target.covers(key)
        };
        self.changes.iter().any(is_uncertain)
    }

    /// Whether one of these actors surely changed a key's content between two times, by a change other than `but`.
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

    /// Whether an actor may have deleted a key since a time, or has a deletion in progress.
    pub(super) fn may_be_deleted(&self, key: &str, by: Actor, since: Moment) -> bool {
        let deletes = |effect: &ChangeEffect| matches!(effect, ChangeEffect::Sets(contents) if contents.contains(&None));
        self.changes_of(key, &[by], since).any(|change| deletes(&change.effect))
    }

    /// Whether a change between two times may have left this content, other than the changes `but`.
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

    /// Whether a change may set its key to this content.
    pub(super) fn sets_content(&self, id: ChangeId, wanted: &Content) -> bool {
        matches!(&self.changes[id].effect, ChangeEffect::Sets(contents) if contents.contains(wanted))
    }

    fn changes_of(&self, key: &str, by: &[Actor], since: Moment) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| {
            by.contains(&change.by) && change.target.covers(key) && change.ended.is_none_or(|at| at > since)
        })
    }

    /// Adds the possible contents of a key to `found`. Returns `None` if any content is possible. `before` is the begin of the rename whose
    /// source is examined: later renames do not count, nor the deletion of the source that began with it.
    fn collect_contents(
        &self,
        key: &str,
        reader: Actor,
        (since, until): (Moment, Moment),
        before: Moment,
        found: &mut BTreeSet<Content>,
    ) -> Option<()> {
        if self.unknown_keys.contains(key)
            || self.may_have_been_dropped(key)
            || self.has_foreign_change_in_move(key)
        {
            return None;
        }
        let is_relevant = |change: &&Change| match change.effect {
            ChangeEffect::Moves { .. } => change.begun < before,
            ChangeEffect::Sets(_) => change.begun != before,
            ChangeEffect::KeepsContent => false,
        };
        let there: Vec<&Change> =
            self.changes.iter().filter(|change| change.target.covers(key)).filter(is_relevant).collect();
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
                    .any(|other| is_seen(other) && !is_undone(other) && self.surely_precedes(change, other))
            };
            if change.begun >= until || is_over || is_replaced() {
                continue;
            }
            match &change.effect {
                ChangeEffect::Sets(contents) => found.extend(contents.iter().cloned()),
                ChangeEffect::Moves { from } => {
                    if until < Moment::MAX && self.may_move_nothing(change, key) {
                        // Until the rename is cancelled, its target shows nothing.
                        found.insert(None);
                    }
                    let window = (change.begun, change.ended.unwrap_or(until).min(until));
                    let key = change.target.key_before(from, key)?;
                    self.collect_contents(&key, Actor::Files, window, change.begun, found)?;
                }
                ChangeEffect::KeepsContent => {}
            }
        }
        Some(())
    }

    /// Whether a foreign change does not replace a change that waits in the write-back log, because a later foreign deletion removed it
    /// again.
    fn is_undone_while_waiting(&self, change: &Change, other: &Change, later: &Change) -> bool {
        let is_deletion = later.effect == ChangeEffect::Sets(vec![None]);
        let are_foreign = other.by == Actor::Foreign && later.by == Actor::Foreign;
        self.foreign_delay.is_none()
            && change.by != Actor::Foreign
            && are_foreign
            && is_deletion
            && later.begun >= other.begun
    }

    /// Whether a foreign writer changed the source or the target of a rename whose objects moved in the background. A change from before
    /// the rename that was not noticed by then counts too, and so does one at the source of an earlier rename of the same object.
    pub(super) fn has_foreign_change_in_move(&self, key: &str) -> bool {
        self.has_foreign_change_in_move_before(key, Moment::MAX)
    }

    fn has_foreign_change_in_move_before(&self, key: &str, before: Moment) -> bool {
        let mut earlier = self.changes.iter().filter(|change| change.begun < before);
        earlier.any(|change| match &change.effect {
            ChangeEffect::Moves { from } => {
                let touched = |key: &str| self.may_have_changed_unnoticed(key, change.begun);
                let came_from = change.target.key_before(from, key);
                from.covers(key) && touched(key)
                    || came_from.is_some_and(|source| {
                        touched(&source)
                            || touched(key)
                            || self.has_foreign_change_in_move_before(&source, change.begun)
                    })
            }
            _ => false,
        })
    }

    /// Whether a rename may have moved nothing, because an unnoticed change had replaced or deleted its source.
    fn may_move_nothing(&self, change: &Change, key: &str) -> bool {
        let Some(source) = self.moved_from(change, key).filter(|_| self.endpoint_delay > 0) else {
            return false;
        };
        let since = change.begun.saturating_sub(self.endpoint_delay);
        self.changes_of(&source, &[Actor::Files, Actor::Endpoint], since)
            .any(|other| other.by == Actor::Endpoint || other.outcome == Outcome::Unknown)
    }

    /// Returns the source key if a change renames a single object to `key`, or `key` if the change is the deletion of a rename's source.
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

    /// Whether a change of a key that waited in the write-back log may have been dropped, because a foreign writer changed the object that
    /// it copies.
    pub(super) fn may_have_been_dropped(&self, key: &str) -> bool {
        self.may_have_lost_source(key, COPY_CHAIN_MAX)
    }

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

    /// Returns the time from which each reader of this kind sees a change.
    fn visible_at(&self, change: &Change, reader: Actor) -> Option<Moment> {
        let ended = change.ended?;
        match (change.by, reader, self.foreign_delay) {
            // Checks after a round read as `Actor::Foreign`, and see all changes at once.
            (Actor::Foreign, Actor::Files, Some(foreign_delay)) => Some(ended.saturating_add(foreign_delay)),
            (Actor::Foreign, Actor::Files | Actor::Endpoint, None) => None,
            (Actor::Endpoint, Actor::Files, _) => Some(ended.saturating_add(self.endpoint_delay)),
            _ => Some(ended),
        }
    }

    /// Whether `change` surely took effect before `other`.
    fn surely_precedes(&self, change: &Change, other: &Change) -> bool {
        if let (Some((file, number)), Some((of, later))) = (change.file_state, other.file_state)
            && file == of
        {
            return later > number;
        }
        self.visible_at(change, other.by).is_some_and(|at| other.begun > at)
    }
}
