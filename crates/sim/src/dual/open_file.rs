//! A file that the program has open, and what is known of it.

use super::key_history::{By, ChangeId, History, Moment, Place, What};
use super::shared_state::Stage;
use bytes::Bytes;
use std::collections::BTreeSet;
use vfs::{Handle, Ino};

pub(super) struct Open {
    pub(super) handle: Handle,
    pub(super) ino: Ino,
    /// The key that it has; none once it has no name any more.
    pub(super) key: Option<String>,
    /// Those that it had before: what others stored there may have come along.
    pub(super) former: Vec<String>,
    pub(super) writes: bool,
    /// When it was opened.
    pub(super) since: Moment,
    /// When what its object is was last known to it.
    pub(super) based_at: Moment,
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
    pub(super) number: u64,
    pub(super) drafts: Vec<ChangeId>,
    states: u64,
}

impl Open {
    pub(super) fn new(handle: Handle, ino: Ino, key: &str, writes: bool, since: Moment) -> Self {
        Self {
            handle,
            ino,
            key: Some(key.into()),
            former: Vec::new(),
            writes,
            since,
            based_at: since,
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
            number: since as u64,
            drafts: Vec::new(),
            states: 0,
        }
    }

    /// What a write may go over: what was read, or by path what somebody else has stored since, as long as nothing was written.
    pub(super) fn before_write(&self, stage: &Stage) -> Vec<Bytes> {
        let mut before = self.contents.clone();
        let others: Vec<Bytes> = match self.key.as_ref().filter(|_| stage.by_path) {
            Some(key) if !self.is_dirty => match stage.may_be(key, By::Files, self.since) {
                Some(may) => may.into_iter().flatten().collect(),
                None => stage.inner.borrow().history.stored_by_others(key, self.since).into_iter().collect(),
            },
            Some(key) => self.replaced_by(stage, key).into_iter().collect(),
            None => Vec::new(),
        };
        before.extend(others.into_iter().filter(|bytes| !self.contents.contains(bytes)));
        before
    }

    /// Whether others have stored the same bytes as it has since `based_at`: a read cannot tell which of the two it is then.
    pub(super) fn may_be_others(&self, stage: &Stage) -> bool {
        let key = self.key.as_ref().filter(|_| stage.by_path && !self.is_dirty);
        key.is_some_and(|key| {
            let others = stage.inner.borrow().history.stored_by_others(key, self.based_at);
            others.iter().any(|bytes| self.contents.contains(bytes))
        })
    }

    /// What it may be instead of what was written, as that was stored and then somebody else stored this.
    fn replaced_by(&self, stage: &Stage, key: &str) -> BTreeSet<Bytes> {
        match !self.is_dirty || self.was_stored(stage) {
            true => stage.inner.borrow().history.stored_by_others(key, self.based_at),
            false => BTreeSet::new(),
        }
    }

    /// What was written may be something else by now.
    pub(super) fn may_be_replaced(&mut self, stage: &Stage) {
        let key = self.key.as_ref().filter(|_| stage.by_path && self.is_dirty);
        let others = key.map(|key| self.replaced_by(stage, key)).unwrap_or_default();
        self.is_certain &= others.is_empty();
        self.contents.extend(others);
    }

    /// Whether who has it open may read this for the first time, though something else was written.
    pub(super) fn may_turn_out(&self, stage: &Stage, seen: &Bytes) -> bool {
        let key = self.key.as_ref().filter(|_| stage.by_path && self.writes && !self.has_read);
        let was_stored = !self.is_dirty || self.was_stored(stage);
        let history = &stage.inner.borrow().history;
        key.is_some_and(|key| was_stored && history.stored_by_others(key, self.since).contains(seen))
    }

    /// Whether what was written may have been stored on its way to another name, or while it was open.
    fn was_stored(&self, stage: &Stage) -> bool {
        self.has_moved || self.may_be_published(stage)
    }

    /// Whether it may have been stored while it was open, as it was written so long ago. The file's age is counted by the
    /// wall clock: setting that clock may make any file due.
    pub(super) fn may_be_published(&self, stage: &Stage) -> bool {
        let is_due = |(since, after)| stage.sets_clock() || stage.now() - since >= after;
        self.written_since.zip(stage.publishes_after).is_some_and(is_due)
    }

    /// From before a write to it on its key may be one of these.
    pub(super) fn begins_write(&mut self, stage: &Stage, contents: Vec<Bytes>) {
        let now = stage.now();
        // Who opens it may cut it at once.
        let is_cut = self.contents.is_empty();
        self.written_since.get_or_insert(if is_cut { self.since } else { now });
        if !self.is_dirty {
            (self.is_dirty, self.dirty_since) = (true, now);
        }
        stage.inner.borrow_mut().written.extend(contents.iter().cloned());
        if let Some(key) = self.key.clone() {
            let what = What::Becomes(contents.iter().cloned().map(Some).collect());
            let id = stage.begin(By::Files, Place::Key(key), what);
            self.is_state(stage, id);
            self.drafts.push(id);
        }
        self.contents = contents;
    }

    /// Its last state may have been seen before it was known.
    pub(super) fn may_show_since(&self, stage: &Stage, since: Moment) {
        if let Some(id) = self.drafts.last() {
            stage.inner.borrow_mut().history.began_at(*id, since);
        }
    }

    /// What it has now is stored by a change, which began with the first write of it.
    pub(super) fn stores(&mut self, stage: &Stage, id: ChangeId) {
        self.is_state(stage, id);
        stage.inner.borrow_mut().history.began_at(id, self.dirty_since);
    }

    fn is_state(&mut self, stage: &Stage, id: ChangeId) {
        self.states += 1;
        stage.inner.borrow_mut().history.is_state_of(id, self.number, self.states);
    }

    /// By path the bucket wins: what others stored since the file was opened is not overwritten.
    pub(super) fn must_not_overwrite(&self, stage: &Stage, key: &str, began: Moment) -> Result<(), String> {
        let was_stored = self.is_maybe_stored || self.was_stored(stage);
        match self.is_passed(stage, key, began) && self.is_certain && !was_stored {
            true => Err(format!("'{key}' was stored over what others had stored since it was opened")),
            false => Ok(()),
        }
    }

    /// Whether it was stored before, and others have stored something in its place since: nothing of it is there now.
    pub(super) fn is_replaced(&self, stage: &Stage, key: &str, began: Moment) -> bool {
        self.was_stored(stage) && self.is_certain && self.is_passed(stage, key, began)
    }

    /// Whether others have surely stored something by path since what it is was known.
    fn is_passed(&self, stage: &Stage, key: &str, began: Moment) -> bool {
        // What waits in a log knows of a stranger's change only when it goes up.
        let others: &[By] = if stage.write_back { &[By::Endpoint] } else { &[By::Endpoint, By::Stranger] };
        let history = &stage.inner.borrow().history;
        stage.by_path
            && history.is_changed_between(key, others, &What::Stays, (self.based_at, began))
            && !self.may_be_removed(history, key, began)
    }

    /// Deleted through the endpoint it has no name any more, and overwrites nothing.
    pub(super) fn may_be_removed(&self, history: &History, key: &str, until: Moment) -> bool {
        history.may_become(key, &None, (self.based_at, until), &[])
    }

    /// Its states are no more than what was stored of them.
    pub(super) fn forget_drafts(&mut self, stage: &Stage, are_vain: bool) {
        for id in self.drafts.drain(..) {
            match are_vain {
                true => stage.in_vain(id),
                false => stage.doubt(id),
            }
        }
    }
}
