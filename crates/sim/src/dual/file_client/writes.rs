//! Ops of the file client on the content of open files: writes, and the outcome of storing them.

use super::{FileClient, StepResult};
use crate::dual::key_history::{Actor, ChangeEffect, KeySet, Moment};
use crate::dual::shared_state::describe_bytes;
use crate::files::machine::Mount;
use bytes::Bytes;
use vfs::{Error, Result};

impl FileClient {
    pub(super) async fn write(&mut self, mount: &Mount, slot: usize) -> StepResult {
        let kernel = self.kernel(mount);
        let data = self.shared.fresh_bytes();
        let open = &mut self.open[slot];
        let since = open.since;
        if open.contents.is_empty() || data.is_empty() {
            return self.close(mount, slot).await;
        }
        let longest = open.contents.iter().map(Bytes::len).max().unwrap_or(0);
        let at = match self.shared.below(3) {
            0 => 0,
            1 => longest,
            _ => self.shared.below(longest as u64 + 1) as usize,
        };
        self.shared.trace_line(format!(
            "file client writes #{slot} {at}..{} {}",
            at + data.len(),
            describe_bytes(&data)
        ));
        let was_certain = open.is_dirty && open.is_certain && self.shared.by_path;
        let before = open.possible_before_write(&self.shared);
        if open.equals_foreign_bytes(&self.shared) {
            open.known_at = self.shared.now();
        }
        open.begin_write(&self.shared, before.iter().map(|old| overwritten(old, at, &data)).collect());
        open.has_moved = false;
        let done = kernel.write(open.handle, at as u64, &data).await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        match done {
            Ok(()) => self.reread(mount, slot).await,
            Err(error) if was_certain && error.errno() == libc::ESTALE => {
                let key = self.open[slot].key.clone();
                let keys: Vec<&str> = key.as_deref().into_iter().collect();
                self.check_failure(mount, &keys, since, &error)?;
                self.record_loss(slot, before);
                self.abandon(mount, slot).await
            }
            Err(error) => self.adopt_failed_write(mount, slot, before, &error).await,
        }
    }

    /// Records that one of these contents lost a conflict to the bucket and is kept.
    fn record_loss(&mut self, slot: usize, contents: Vec<Bytes>) {
        let (shared, open) = (self.shared.clone(), &mut self.open[slot]);
        shared.count("conflicts lost to the bucket");
        shared.inner.borrow_mut().lost_to_bucket.push((shared.now(), contents));
        open.end_states(&shared, true);
        open.is_dirty = false;
    }

    /// Reads the file to find out which of several possible contents it has.
    async fn reread(&mut self, mount: &Mount, slot: usize) -> StepResult {
        if self.open[slot].contents.len() == 1 {
            return Ok(());
        }
        let first = self.open[slot].contents[0].clone();
        // The write may cover all of the old content, so that the result does not show which content it applied to.
        let is_like_others = self.open[slot].contents[1..].contains(&first);
        {
            let _pause = mount.injector.pause_faults();
            self.read(mount, slot).await?;
        }
        let (now, shared) = (self.shared.now(), self.shared.clone());
        let open = &mut self.open[slot];
        if open.is_stale {
            // The read was refused: the object that replaced the file's is unknown, and the next write applies to it.
            open.add_replacements(&shared);
        }
        if is_like_others || open.contents != [first] {
            if let Some(key) = &open.key {
                // The file may also have been deleted, before or after others stored this content. It then has no name.
                open.is_certain &= !open.may_be_removed(&shared.inner.borrow().history, key, now);
            }
            open.known_at = now;
        }
        Ok(())
    }

    /// Adopts the content after a failed write, which may have written any prefix of its data. Reading the file back may store it, so that
    /// others may see the content before it is in the history.
    async fn adopt_failed_write(
        &mut self,
        mount: &Mount,
        slot: usize,
        before: Vec<Bytes>,
        error: &Error,
    ) -> StepResult {
        let kernel = self.kernel(mount);
        let (since, key) = (self.open[slot].since, self.open[slot].key.clone());
        let keys: Vec<&str> = key.as_deref().into_iter().collect();
        self.check_failure(mount, &keys, since, error)?;
        let looked = self.shared.now();
        let unknown = key.filter(|key| self.shared.inner.borrow().history.is_known(key));
        unknown.iter().for_each(|key| self.shared.inner.borrow_mut().history.mark_unknown(key));
        let seen = {
            let _pause = mount.injector.pause_faults();
            self.read_all(&kernel, self.open[slot].handle).await
        };
        let open = &mut self.open[slot];
        if mount.injector.has_crashed() {
            // The key stays unknown.
            self.shared.inner.borrow_mut().partial_writes.extend(open.contents.iter().cloned());
            return Ok(());
        }
        unknown.iter().for_each(|key| self.shared.inner.borrow_mut().history.clear_unknown(key));
        match seen {
            Ok(seen) => {
                let mut may = before;
                may.push(seen);
                open.begin_write(&self.shared, may);
                open.set_state_begin(&self.shared, looked);
            }
            Err(_) => {
                let mut inner = self.shared.inner.borrow_mut();
                inner.partial_writes.extend(open.contents.iter().cloned());
                if let Some(key) = &open.key {
                    inner.history.mark_unknown(key);
                }
            }
        }
        self.abandon(mount, slot).await
    }

    /// Closes a file whose stored content is unknown.
    pub(super) async fn abandon(&mut self, mount: &Mount, slot: usize) -> StepResult {
        self.open[slot].is_certain = false;
        self.close(mount, slot).await
    }

    pub(super) async fn fsync(&mut self, mount: &Mount, slot: usize) -> StepResult {
        let kernel = self.kernel(mount);
        self.trace_line(format!("fsyncs #{slot}"));
        let began = self.shared.now();
        let synced = kernel.fsync(self.open[slot].handle).await;
        self.record_store(mount, slot, began, synced, true).await
    }

    /// Closes a file and forgets it.
    pub(super) async fn close(&mut self, mount: &Mount, slot: usize) -> StepResult {
        let kernel = self.kernel(mount);
        self.trace_line(format!("closes #{slot}"));
        let began = self.shared.now();
        let handle = self.open[slot].handle;
        let flushed = kernel.flush(handle).await;
        let closed = flushed.and(kernel.release(handle).await);
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let outcome = self.record_store(mount, slot, began, closed, false).await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let mut open = self.open.remove(slot);
        open.end_states(&self.shared, false);
        let now = self.shared.now();
        if let Some(key) = &open.key {
            self.shared.inner.borrow_mut().in_deltas.entry(key.clone()).and_modify(|until| *until = now);
        }
        if open.writes {
            self.forget_open_key(open.key.as_deref());
        }
        outcome
    }

    /// Records the outcome of storing the writes of an open file.
    pub(super) async fn record_store(
        &mut self,
        mount: &Mount,
        slot: usize,
        began: Moment,
        outcome: Result<()>,
        is_sync: bool,
    ) -> StepResult {
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let now = self.shared.now();
        let (shared, open) = (self.shared.clone(), &mut self.open[slot]);
        if let Some(key) = open.key.clone().filter(|_| is_sync && open.may_be_in_deltas(&shared)) {
            shared.inner.borrow_mut().in_deltas.insert(key, Moment::MAX);
        }
        if let Some(key) = open.key.as_ref().filter(|_| open.is_dirty && !shared.by_path) {
            // By inode an open file moves with its name.
            shared.inner.borrow_mut().history.mark_targets_unknown(key, open.since);
        }
        let Some(key) = open.key.clone().filter(|_| open.writes) else {
            let since = open.since;
            return match outcome {
                Ok(()) => Ok(()),
                Err(error) => self.check_failure(mount, &[], since, &error),
            };
        };
        let others = [Actor::Endpoint, Actor::Foreign];
        let is_disputed = {
            let history = &shared.inner.borrow().history;
            // A deletion that was not noticed when the content was read takes the name from the file later.
            history.may_have_changed(&key, &others, history.unnoticed_since(open.known_at))
        };
        match outcome {
            Ok(()) if !open.is_dirty => Ok(()),
            // A conflict is reported by the close (S52), unless the file was stored as a whole before the others changed its object.
            Ok(()) if is_sync && is_disputed && open.may_be_in_deltas(&shared) => {
                open.is_maybe_stored = true;
                Ok(())
            }
            Ok(()) => {
                open.check_no_overwrite(&shared, &key, began)?;
                let is_changed = |but| {
                    let history = &shared.inner.borrow().history;
                    history.has_change_between(&key, &[Actor::Endpoint], &but, (open.known_at, began))
                };
                // A deletion has no effect on a file that is not an object yet.
                let but =
                    if open.is_new { ChangeEffect::Sets(vec![None]) } else { ChangeEffect::KeepsContent };
                let loses_name = is_changed(but);
                open.is_certain &= !(open.is_new
                    && open.may_be_published(&shared)
                    && is_changed(ChangeEffect::KeepsContent));
                let may_be_removed = open.may_be_removed(&shared.inner.borrow().history, &key, now);
                let contents: Vec<_> = open.contents.iter().cloned().map(Some).collect();
                // By inode a new empty file consists of its name only, which is synced a moment later.
                let is_name =
                    open.is_new && !shared.by_path && contents.iter().flatten().all(Bytes::is_empty);
                let id = shared.begin(Actor::Files, KeySet::Key(key.clone()), ChangeEffect::Sets(contents));
                open.store_as(&shared, id);
                let is_replaced = open.is_replaced(&shared, &key, began);
                let is_over = loses_name && !shared.by_path && open.is_certain || is_replaced;
                match (is_over, is_disputed || !open.is_certain) {
                    (true, _) => {
                        open.state_changes.push(id);
                        open.end_states(&shared, true);
                    }
                    (_, true) => shared.mark_uncertain(id),
                    (false, false) => shared.complete(id, is_sync || !shared.write_back && !is_name),
                }
                (open.is_dirty, open.is_maybe_stored, open.known_at) = (false, false, now);
                (open.has_moved, open.is_new) = (false, false);
                if is_replaced {
                    // The next read shows the current content.
                    open.contents.clear();
                }
                // Another file may have the name by now: by inode after any change of others, by path after a deletion.
                open.is_certain &= !is_disputed || shared.by_path && !may_be_removed;
                shared.count("files stored");
                Ok(())
            }
            Err(error) => {
                let (since, is_conflict) = (open.since, open.is_certain && error.errno() == libc::ESTALE);
                let contents = open.contents.clone();
                if is_conflict && open.is_dirty && shared.by_path {
                    self.record_loss(slot, contents);
                }
                let open = &mut self.open[slot];
                let may = if error.errno() == libc::EIO { None } else { Some(key.as_str()) };
                open.is_dirty &= error.errno() != libc::ESTALE;
                let former_keys = open.former_keys.clone();
                if error.errno() == libc::ESTALE {
                    open.forget_disputed_former_keys(&shared);
                }
                let keys: Vec<&str> = may.into_iter().chain(former_keys.iter().map(String::as_str)).collect();
                self.check_failure(mount, &keys, since, &error)?;
                match is_sync {
                    true => Box::pin(self.abandon(mount, slot)).await,
                    false => Ok(()),
                }
            }
        }
    }
}

fn overwritten(old: &Bytes, at: usize, data: &Bytes) -> Bytes {
    let mut content = old.to_vec();
    content.resize(content.len().max(at + data.len()), 0);
    content[at..at + data.len()].copy_from_slice(data);
    content.into()
}
