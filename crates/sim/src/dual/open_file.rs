//! A file that the file client has open, and its possible states.

use super::key_history::{Actor, ChangeEffect, ChangeId, History, KeySet, Moment};
use super::shared_state::SharedState;
use bytes::Bytes;
use std::collections::BTreeSet;
use vfs::{Handle, Ino};

/// Shortest file that a sync stores in deltas.
const DELTA_FILE_BYTES_MIN: usize = 128 << 10;
/// Shortest part in which a written file is uploaded while it is open.
const PART_BYTES_MIN: usize = 4 << 10;

pub(super) struct OpenFile {
    pub(super) handle: Handle,
    pub(super) ino: Ino,
    /// The current key of the file; `None` once it has no name.
    pub(super) key: Option<String>,
    /// Earlier keys of the file. Objects that others stored there may have moved along with it.
    pub(super) former_keys: Vec<String>,
    pub(super) writes: bool,
    /// When the file was opened.
    pub(super) since: Moment,
    /// When the content of the file's object was last known.
    pub(super) known_at: Moment,
    /// Possible contents; each read must return one of them. Empty for a read-only handle before its first read.
    pub(super) contents: Vec<Bytes>,
    /// The handle was read once. Later reads do not return what others store under the key.
    pub(super) has_read: bool,
    /// A read was refused because others replaced the object. The handle stays refused under each later name of the file.
    pub(super) is_stale: bool,
    pub(super) is_dirty: bool,
    /// Begin of the first unstored change.
    pub(super) dirty_since: Moment,
    /// Earliest begin of the first change.
    written_since: Option<Moment>,
    /// False once another writer may have taken the file's name, or the writes may be lost.
    pub(super) is_certain: bool,
    /// The file was created and not stored since, so that it is visible in the file system only.
    pub(super) is_new: bool,
    /// A sync of the file system may have stored the file.
    pub(super) is_maybe_stored: bool,
    /// The file may have been stored during its rename, or by a read through another handle, and has not been written since. An object
    /// that others store under its key then replaces its content.
    pub(super) has_moved: bool,
    /// Identifies the file in the history. Each state of the file is a change there that its key may show.
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

    /// Returns the contents that a write may apply to: those that were read or, by path, those that others stored, also shortly before
    /// the content was known. Before any write they are possible in any case, later only if the written content may have been stored.
    pub(super) fn possible_before_write(&self, shared: &SharedState) -> Vec<Bytes> {
        let mut before = self.contents.clone();
        let others: Vec<Bytes> = match self.key.as_ref().filter(|_| shared.by_path) {
            Some(key) if !self.is_dirty => match shared.possible_contents(key, Actor::Files, self.since) {
                Some(may) => may.into_iter().flatten().collect(),
                None => {
                    let history = &shared.inner.borrow().history;
                    let keys = self.former_keys.iter().chain([key]);
                    keys.flat_map(|key| history.stored_by_others(key, self.since)).collect()
                }
            },
            Some(key) => {
                let unnoticed_since = shared.inner.borrow().history.unnoticed_since(self.known_at);
                self.replaced_by(shared, key, unnoticed_since).into_iter().collect()
            }
            None => Vec::new(),
        };
        before.extend(others.into_iter().filter(|bytes| !self.contents.contains(bytes)));
        before
    }

    /// Whether others have stored bytes equal to the file's content since `known_at`, so that a read cannot tell the two apart.
    pub(super) fn equals_foreign_bytes(&self, shared: &SharedState) -> bool {
        let key = self.key.as_ref().filter(|_| shared.by_path && !self.is_dirty);
        key.is_some_and(|key| {
            let others = shared.inner.borrow().history.stored_by_others(key, self.known_at);
            others.iter().any(|bytes| self.contents.contains(bytes))
        })
    }

    /// Returns the contents that others may have stored since a time over the written content after that was stored.
    fn replaced_by(&self, shared: &SharedState, key: &str, since: Moment) -> BTreeSet<Bytes> {
        match !self.is_dirty || self.may_have_been_stored(shared) {
            true => shared.inner.borrow().history.stored_by_others(key, since),
            false => BTreeSet::new(),
        }
    }

    /// Adds the contents that may have replaced the written content.
    pub(super) fn add_replacements(&mut self, shared: &SharedState) {
        let key = self.key.as_ref().filter(|_| shared.by_path && self.is_dirty);
        let others = key.map(|key| self.replaced_by(shared, key, self.known_at)).unwrap_or_default();
        self.is_certain &= others.is_empty();
        self.contents.extend(others);
    }

    /// Whether a first read may return `seen` although something else was written.
    pub(super) fn may_read(&self, shared: &SharedState, seen: &Bytes) -> bool {
        let key = self.key.as_ref().filter(|_| shared.by_path && self.writes && !self.has_read);
        let may_have_been_stored = !self.is_dirty || self.may_have_been_stored(shared);
        let history = &shared.inner.borrow().history;
        key.is_some_and(|key| {
            may_have_been_stored && history.stored_by_others(key, self.since).contains(seen)
        })
    }

    /// Whether the written content may have been stored: by a rename of the file, by a sync, or while it was open. A read stores a file whose parts
    /// are already uploaded, and is refused if others replace the object then.
    fn may_have_been_stored(&self, shared: &SharedState) -> bool {
        self.is_maybe_stored || self.may_have_been_stored_unasked(shared)
    }

    /// Like `may_have_been_stored`, without a sync.
    fn may_have_been_stored_unasked(&self, shared: &SharedState) -> bool {
        self.has_moved || self.is_stale || self.may_be_published(shared)
    }

    /// Whether a sync stores only what was written, apart from the object of the file, so that it does not conflict with what others have stored.
    pub(super) fn may_be_in_deltas(&self, shared: &SharedState) -> bool {
        shared.by_path && self.contents.iter().any(|bytes| bytes.len() >= DELTA_FILE_BYTES_MIN)
    }

    /// Records a read of the file through another handle. It stores what was written if parts of it are already uploaded.
    pub(super) fn note_read_by_others(&mut self, shared: &SharedState) {
        let may_have_parts = || self.contents.iter().any(|bytes| bytes.len() >= PART_BYTES_MIN);
        self.has_moved |= self.is_dirty && shared.by_path && may_have_parts();
    }

    /// Records that a conflict may have set the written content aside. If the file was new, another client's object has its name then, and
    /// the file is empty.
    pub(super) fn note_possible_conflict(&mut self, shared: &SharedState) {
        if self.is_dirty && shared.by_path {
            self.has_moved = true;
            self.contents.extend(self.is_new.then(Bytes::new));
        }
    }

    /// Whether the file may have been stored while open, because its first write is older than the publish interval. The age is measured
    /// by the wall clock, so that a change of that clock may make any file due.
    pub(super) fn may_be_published(&self, shared: &SharedState) -> bool {
        let is_due = |(since, after)| shared.has_clock_jumps() || shared.now() - since >= after;
        self.written_since.zip(shared.publish_interval).is_some_and(is_due)
    }

    /// Begins a write that leaves one of `contents`. Must be called before the write, as the key may show them from now on.
    pub(super) fn begin_write(&mut self, shared: &SharedState, contents: Vec<Bytes>) {
        let now = shared.now();
        // The open itself may have truncated the file.
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

    /// Moves the begin of the last state back to a time at which it may already have been visible.
    pub(super) fn set_state_begin(&self, shared: &SharedState, since: Moment) {
        if let Some(id) = self.state_changes.last() {
            shared.inner.borrow_mut().history.set_begin(*id, since);
        }
    }

    /// Records that a change stores the current content. The change began with the first unstored write.
    pub(super) fn store_as(&mut self, shared: &SharedState, id: ChangeId) {
        self.add_state(shared, id);
        shared.inner.borrow_mut().history.set_begin(id, self.dirty_since);
    }

    fn add_state(&mut self, shared: &SharedState, id: ChangeId) {
        self.state_count += 1;
        shared.inner.borrow_mut().history.set_file_state(id, self.file_number, self.state_count);
    }

    /// Checks that the file did not overwrite what others stored since it was opened: by path the bucket wins.
    pub(super) fn check_no_overwrite(
        &self,
        shared: &SharedState,
        key: &str,
        began: Moment,
    ) -> Result<(), String> {
        let is_overwritten = self.is_certain && self.was_changed_by_others(shared, key, began);
        match is_overwritten && !self.may_have_been_stored(shared) {
            true => Err(format!("'{key}' overwrote what others had stored since it was opened")),
            false => Ok(()),
        }
    }

    /// Whether the file was stored and others have surely replaced its object since.
    pub(super) fn is_replaced(&self, shared: &SharedState, key: &str, began: Moment) -> bool {
        self.may_have_been_stored_unasked(shared)
            && self.is_certain
            && self.was_changed_by_others(shared, key, began)
    }

    /// Whether others have surely stored something under the key since `known_at`, in a volume by path.
    fn was_changed_by_others(&self, shared: &SharedState, key: &str, began: Moment) -> bool {
        // With write-back a foreign change is noticed only when the waiting change is uploaded.
        let others: &[Actor] =
            if shared.write_back { &[Actor::Endpoint] } else { &[Actor::Endpoint, Actor::Foreign] };
        let history = &shared.inner.borrow().history;
        shared.by_path
            && history.has_change_between(key, others, &ChangeEffect::KeepsContent, (self.known_at, began))
            && !self.may_be_removed(history, key, shared.now())
            && !history.may_have_been_dropped(key)
    }

    /// Whether the key may have been deleted since `known_at`. The file then has no name, and overwrites nothing.
    pub(super) fn may_be_removed(&self, history: &History, key: &str, until: Moment) -> bool {
        history.may_become(key, &None, (self.known_at, until), &[])
    }

    /// Marks former keys under which others may have stored something as unknown: their object may have stayed there at the rename, which
    /// is then cancelled.
    pub(super) fn forget_disputed_former_keys(&self, shared: &SharedState) {
        let history = &mut shared.inner.borrow_mut().history;
        for key in self.former_keys.iter().filter(|_| shared.by_path) {
            if history.may_have_changed(key, &[Actor::Endpoint, Actor::Foreign], self.since) {
                history.mark_unknown(key);
            }
        }
    }

    /// Ends all states of the file. `have_failed`: none of them took effect.
    pub(super) fn end_states(&mut self, shared: &SharedState, have_failed: bool) {
        for id in self.state_changes.drain(..) {
            match have_failed {
                true => shared.mark_failed(id),
                false => shared.mark_uncertain(id),
            }
        }
    }
}
