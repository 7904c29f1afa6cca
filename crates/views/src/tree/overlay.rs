//! The content of a view: the state that the handler reported, overlaid with this client's own changes that the
//! handler has not confirmed yet.

use super::moves::{Move, with_pending_move};
use super::naming::directory_of;
use super::path_index::PathIndex;
use super::stale::Stale;
use crate::{ObjectName, PackedObject};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use store::Timestamp;

/// Time during which this client's change takes precedence over a handler that says otherwise, because events take
/// time. Afterwards the handler's state counts.
const LOCAL_PRECEDENCE: Duration = Duration::from_secs(10);

/// An index of what the view shows, and the local changes in it.
#[derive(Debug)]
pub(super) struct Overlay {
    pub(super) index: PathIndex,
    pending: HashMap<ObjectName, PendingChange>,
    /// Times at which the precedence of pending changes ends, in the order of the changes. A change may have been
    /// confirmed or replaced since.
    expiries: VecDeque<(Timestamp, ObjectName)>,
    /// Objects that this client is changing.
    in_progress: HashMap<ObjectName, InProgress>,
    /// Moves of objects whose directory property has not been rewritten yet.
    moves: HashMap<ObjectName, Move>,
    /// Whether the whole content was replaced since the last `take_stale`.
    is_replaced: bool,
}

/// Changes of an object by this client that are in progress.
#[derive(Debug, Default)]
struct InProgress {
    changes: usize,
    /// The last state that the handler reported since the first of these changes began; the inner `None` is absence.
    remote: Option<Option<PackedObject>>,
}

/// A change of an object by this client that the handler has not confirmed.
#[derive(Debug)]
struct PendingChange {
    /// The object after the change; `None` if the view does not show it any more.
    shown: Option<PackedObject>,
    /// The last state that the handler reported since the change; the inner `None` is absence.
    remote: Option<Option<PackedObject>>,
    expires_at: Timestamp,
}

impl Overlay {
    pub(super) fn new(index: PathIndex, moves: &[Move]) -> Self {
        let moves =
            moves.iter().map(|object_move| (object_move.object.clone(), object_move.clone())).collect();
        let (pending, expiries, in_progress) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self { index, pending, expiries, in_progress, moves, is_replaced: false }
    }

    /// Applies a state that the handler reports: the object, or `None` if it does not match. It is shown at once unless
    /// it contradicts a pending local change.
    pub(super) fn apply_remote(&mut self, object: &ObjectName, remote: Option<PackedObject>) {
        if let Some(in_progress) = self.in_progress.get_mut(object) {
            in_progress.remote = Some(remote.clone());
        }
        if let Some(pending) = self.pending.get_mut(object) {
            if !confirms(&remote, &pending.shown) {
                pending.remote = Some(remote);
                return;
            }
            self.pending.remove(object);
        }
        self.show(object, remote);
    }

    /// Notes that this client begins to change an object.
    pub(super) fn begin_change(&mut self, object: &ObjectName) {
        self.in_progress.entry(object.clone()).or_default().changes += 1;
    }

    /// Notes that a change has ended. If it took effect, `apply_local` was called before.
    pub(super) fn end_change(&mut self, object: &ObjectName) {
        let Some(in_progress) = self.in_progress.get_mut(object) else { return };
        in_progress.changes = in_progress.changes.saturating_sub(1);
        if in_progress.changes == 0 {
            self.in_progress.remove(object);
        }
    }

    /// Applies a change by this client. If the object is gone, its directory stays. A state that the handler reported
    /// while the change was in progress may be later than the change; it is shown when this change expires.
    pub(super) fn apply_local(&mut self, object: &ObjectName, shown: Option<PackedObject>, now: Timestamp) {
        let meanwhile = self.in_progress.get(object).and_then(|in_progress| in_progress.remote.clone());
        match &shown {
            Some(shown) => self.put(shown.clone()),
            None => self.index.remove_and_keep_directory(object),
        }
        let expires_at = now.after(LOCAL_PRECEDENCE);
        self.expiries.push_back((expires_at, object.clone()));
        let before = self.pending.remove(object).and_then(|before| before.remote);
        let remote = meanwhile.or(before);
        self.pending.insert(object.clone(), PendingChange { shown, remote, expires_at });
    }

    /// Ends the precedence of changes that have expired: shows the states that the handler reported instead, if it
    /// reported any.
    pub(super) fn expire_pending(&mut self, now: Timestamp) {
        while let Some((_, object)) =
            self.expiries.pop_front_if(|(expires_at, _)| has_expired(*expires_at, now))
        {
            // A later change of the object expires later.
            if self.pending.get(&object).is_some_and(|pending| has_expired(pending.expires_at, now))
                && let Some(PendingChange { remote: Some(remote), .. }) = self.pending.remove(&object)
            {
                self.show(&object, remote);
            }
        }
    }

    /// Returns whether a local change may still take precedence over the handler's state.
    pub(super) fn has_pending(&self) -> bool {
        !self.expiries.is_empty()
    }

    /// Replaces the whole state that the handler reported.
    pub(super) fn replace_all(&mut self, mut index: PathIndex) {
        self.index.made_directories().iter().for_each(|path| index.make_directory(path));
        index.continue_versions_of(&self.index);
        // If the view had no content before, no names can be cached anywhere.
        match self.index.has_no_content() {
            true => index.clear_stale(),
            false => self.is_replaced = true,
        }
        self.index = index;
        for (object, in_progress) in &mut self.in_progress {
            in_progress.remote = Some(self.index.get(object));
        }
        for (object, pending) in &mut self.pending {
            pending.remote = Some(self.index.get(object));
            match &pending.shown {
                Some(shown) => self.index.put(shown.clone()),
                None => self.index.remove(object),
            }
        }
        let moves: Vec<ObjectName> = self.moves.keys().cloned().collect();
        moves.iter().for_each(|object| self.reshow(object));
    }

    /// Shows an object in the directory that it is being moved to.
    pub(super) fn begin_move(&mut self, object_move: &Move) {
        self.moves.insert(object_move.object.clone(), object_move.clone());
        self.reshow(&object_move.object);
    }

    /// Ends a move, if it is the object's newest: from now on the object's own property counts. What is shown does
    /// not change here.
    pub(super) fn end_move(&mut self, object_move: &Move) {
        if self.moves.get(&object_move.object).is_some_and(|newest| newest.to == object_move.to) {
            self.moves.remove(&object_move.object);
        }
    }

    /// Takes the directories with stale names: each once, with at most `limit` names in all.
    pub(super) fn take_stale(&mut self, limit: usize) -> Vec<Stale> {
        if !std::mem::take(&mut self.is_replaced) {
            return self.index.take_stale(limit);
        }
        self.index.clear_stale();
        vec![Stale { directory: Vec::new(), names: None }]
    }

    /// Returns whether there are stale names that were not taken yet.
    pub(super) fn has_stale(&self) -> bool {
        self.is_replaced || self.index.has_stale()
    }

    /// Puts a shown object into the directory in which it belongs now.
    fn reshow(&mut self, object: &ObjectName) {
        if let Some(shown) = self.index.get(object) {
            self.put(shown);
        }
    }

    fn show(&mut self, object: &ObjectName, remote: Option<PackedObject>) {
        match remote {
            Some(shown) => self.put(shown),
            None => self.index.remove(object),
        }
    }

    fn put(&mut self, shown: PackedObject) {
        self.index.put(with_pending_move(&self.moves, shown));
    }
}

/// Returns whether a time has passed. A time that is too far ahead counts as passed, too: the clock was set back.
fn has_expired(expires_at: Timestamp, now: Timestamp) -> bool {
    expires_at <= now || now.after(LOCAL_PRECEDENCE) < expires_at
}

/// Returns whether a reported state confirms a local change, or is later than the change.
fn confirms(remote: &Option<PackedObject>, local: &Option<PackedObject>) -> bool {
    match (remote, local) {
        (None, None) => true,
        (Some(remote), Some(local)) => {
            remote.modified() > local.modified()
                || (remote.has_same_etag(local) && directory_of(remote) == directory_of(local))
        }
        _ => false,
    }
}
