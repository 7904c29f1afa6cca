//! A file that the program has open, and what is known of it.

use super::key_history::{Actor, ChangeEffect, ChangeId, History, KeySet, Moment};
use super::shared_state::SharedState;
use bytes::Bytes;
use std::collections::BTreeSet;
use vfs::{Handle, Ino};

pub(super) struct OpenFile {
    pub(super) handle: Handle,
    pub(super) ino: Ino,
    /// The key that it has; none once it has no name any more.
    pub(super) key: Option<String>,
    /// Those that it had before: what others stored there may have come along.
    pub(super) former_keys: Vec<String>,
    pub(super) writes: bool,
    /// When it was opened.
    pub(super) since: Moment,
    /// When what its object is was last known to it.
    pub(super) known_at: Moment,
    /// What it reads: one of these. Of one that only reads: nothing until it was read.
    pub(super) contents: Vec<Bytes>,
    /// It was read: of what others store in its place it reads nothing.
    pub(super) has_read: bool,
    /// A read was refused because others replaced the object; the handle stays refused under every later name of the file.
    pub(super) is_stale: bool,
    pub(super) is_dirty: bool,
    /// When its first unstored change began.
    pub(super) dirty_since: Moment,
    /// When its first change of all began at the earliest.
    written_since: Option<Moment>,
    /// Somebody else may have taken its name, or its writes may be lost.
    pub(super) is_certain: bool,
    /// It was made, and not stored since: nothing shows it but files.
    pub(super) is_new: bool,
    /// It may have been stored by a sync of everything.
    pub(super) is_maybe_stored: bool,
    /// It may have been stored on the way to the name that it has, and was not written since: what others store there then is
    /// what it is.
    pub(super) has_moved: bool,
    /// The one file among all, and its states so far, each of which its key may be.
    pub(super) file_number: u64,
    pub(super) state_changes: Vec<ChangeId>,
    state_count: u64,
}

impl OpenFile {
    pub(super) fn new(handle: Handle, ino: Ino, key: &str, writes: bool, since: Moment) -> Self {
        Self {
            handle,
            ino,
            key: Some(key.into()),
            former_keys: Vec::new(),
            writes,
            since,
            known_at: since,
            contents: Vec::new(),
            has_read: false,
            is_stale: false,
            is_dirty: false,
            dirty_since: since,
            written_since: None,
            is_certain: true,
            is_new: false,
            is_maybe_stored: false,
            has_moved: false,
            file_number: since as u64,
            state_changes: Vec::new(),
            state_count: 0,
        }
    }

    /// What a write may go over: what was read, or by path what somebody else has stored since, as long as nothing was written.
    pub(super) fn possible_before_write(&self, shared: &SharedState) -> Vec<Bytes> {
        let mut before = self.contents.clone();
        let others: Vec<Bytes> = match self.key.as_ref().filter(|_| shared.by_path) {
            Some(key) if !self.is_dirty => match shared.possible_contents(key, Actor::Files, self.since) {
                Some(may) => may.into_iter().flatten().collect(),
                None => shared.inner.borrow().history.stored_by_others(key, self.since).into_iter().collect(),
            },
            Some(key) => self.replaced_by(shared, key).into_iter().collect(),
            None => Vec::new(),
        };
        before.extend(others.into_iter().filter(|bytes| !self.contents.contains(bytes)));
        before
    }

    /// Whether others have stored the same bytes as it has since `known_at`: a read cannot tell which of the two it is then.
    pub(super) fn equals_foreign_bytes(&self, shared: &SharedState) -> bool {
        let key = self.key.as_ref().filter(|_| shared.by_path && !self.is_dirty);
        key.is_some_and(|key| {
            let others = shared.inner.borrow().history.stored_by_others(key, self.known_at);
            others.iter().any(|bytes| self.contents.contains(bytes))
        })
    }

    /// What it may be instead of what was written, as that was stored and then somebody else stored this.
    fn replaced_by(&self, shared: &SharedState, key: &str) -> BTreeSet<Bytes> {
        match !self.is_dirty || self.may_have_been_stored(shared) {
            true => shared.inner.borrow().history.stored_by_others(key, self.known_at),
            false => BTreeSet::new(),
        }
    }

    /// What was written may be something else by now.
    pub(super) fn add_replacements(&mut self, shared: &SharedState) {
        let key = self.key.as_ref().filter(|_| shared.by_path && self.is_dirty);
        let others = key.map(|key| self.replaced_by(shared, key)).unwrap_or_default();
        self.is_certain &= others.is_empty();
        self.contents.extend(others);
    }

    /// Whether who has it open may read this for the first time, though something else was written.
    pub(super) fn may_read(&self, shared: &SharedState, seen: &Bytes) -> bool {
        let key = self.key.as_ref().filter(|_| shared.by_path && self.writes && !self.has_read);
        let may_have_been_stored = !self.is_dirty || self.may_have_been_stored(shared);
        let history = &shared.inner.borrow().history;
        key.is_some_and(|key| {
            may_have_been_stored && history.stored_by_others(key, self.since).contains(seen)
        })
    }

    /// Whether what was written may have been stored on its way to another name, or while it was open.
    fn may_have_been_stored(&self, shared: &SharedState) -> bool {
        self.has_moved || self.may_be_published(shared)
    }

    /// Whether it may have been stored while it was open, as it was written so long ago. The file's age is counted by the
    /// wall clock: setting that clock may make any file due.
    pub(super) fn may_be_published(&self, shared: &SharedState) -> bool {
        let is_due = |(since, after)| shared.has_clock_jumps() || shared.now() - since >= after;
        self.written_since.zip(shared.publish_interval).is_some_and(is_due)
    }

    /// From before a write to it on its key may be one of these.
    pub(super) fn begin_write(&mut self, shared: &SharedState, contents: Vec<Bytes>) {
        let now = shared.now();
        // Who opens it may cut it at once.
        let is_cut = self.contents.is_empty();
        self.written_since.get_or_insert(if is_cut { self.since } else { now });
        if !self.is_dirty {
            (self.is_dirty, self.dirty_since) = (true, now);
        }
        shared.inner.borrow_mut().written.extend(contents.iter().cloned());
        if let Some(key) = self.key.clone() {
            let what = ChangeEffect::Sets(contents.iter().cloned().map(Some).collect());
            let id = shared.begin(Actor::Files, KeySet::Key(key), what);
            self.add_state(shared, id);
            self.state_changes.push(id);
        }
        self.contents = contents;
    }

    /// Its last state may have been seen before it was known.
    pub(super) fn set_state_begin(&self, shared: &SharedState, since: Moment) {
        if let Some(id) = self.state_changes.last() {
            shared.inner.borrow_mut().history.set_begin(*id, since);
        }
    }

    /// What it has now is stored by a change, which began with the first write of it.
    pub(super) fn store_as(&mut self, shared: &SharedState, id: ChangeId) {
        self.add_state(shared, id);
        shared.inner.borrow_mut().history.set_begin(id, self.dirty_since);
    }

    fn add_state(&mut self, shared: &SharedState, id: ChangeId) {
        self.state_count += 1;
        shared.inner.borrow_mut().history.set_file_state(id, self.file_number, self.state_count);
    }

    /// By path the bucket wins: what others stored since the file was opened is not overwritten.
    pub(super) fn check_no_overwrite(
        &self,
        shared: &SharedState,
        key: &str,
        began: Moment,
    ) -> Result<(), String> {
        let may_have_been_stored = self.is_maybe_stored || self.may_have_been_stored(shared);
        match self.was_changed_by_others(shared, key, began) && self.is_certain && !may_have_been_stored {
            true => Err(format!("'{key}' was stored over what others had stored since it was opened")),
            false => Ok(()),
        }
    }

    /// Whether it was stored before, and others have stored something in its place since: nothing of it is there now.
    pub(super) fn is_replaced(&self, shared: &SharedState, key: &str, began: Moment) -> bool {
        self.may_have_been_stored(shared) && self.is_certain && self.was_changed_by_others(shared, key, began)
    }

    /// Whether others have surely stored something by path since what it is was known.
    fn was_changed_by_others(&self, shared: &SharedState, key: &str, began: Moment) -> bool {
        // What waits in a log knows of a stranger's change only when it goes up.
        let others: &[Actor] =
            if shared.write_back { &[Actor::Endpoint] } else { &[Actor::Endpoint, Actor::Foreign] };
        let history = &shared.inner.borrow().history;
        shared.by_path
            && history.has_change_between(key, others, &ChangeEffect::KeepsContent, (self.known_at, began))
            && !self.may_be_removed(history, key, began)
    }

    /// Deleted through the endpoint it has no name any more, and overwrites nothing.
    pub(super) fn may_be_removed(&self, history: &History, key: &str, until: Moment) -> bool {
        history.may_become(key, &None, (self.known_at, until), &[])
    }

    /// Its states are no more than what was stored of them.
    pub(super) fn end_states(&mut self, shared: &SharedState, have_failed: bool) {
        for id in self.state_changes.drain(..) {
            match have_failed {
                true => shared.mark_failed(id),
                false => shared.mark_uncertain(id),
            }
        }
    }
}
