//! What the program does to the bytes of files that it has open: writes, and what becomes of them when they are stored or not.

use super::{Program, Step};
use crate::dual::key_history::{By, Moment, Place, What};
use crate::dual::shared_state::told_bytes;
use crate::files::machine::Mount;
use bytes::Bytes;
use vfs::{Error, Result};

impl Program {
    pub(super) async fn write(&mut self, mount: &Mount, slot: usize) -> Step {
        let data = self.stage.bytes();
        let open = &mut self.open[slot];
        let since = open.since;
        if open.contents.is_empty() || data.is_empty() {
            return self.close(mount, slot).await;
        }
        let longest = open.contents.iter().map(Bytes::len).max().unwrap_or(0);
        let at = match self.stage.below(3) {
            0 => 0,
            1 => longest,
            _ => self.stage.below(longest as u64 + 1) as usize,
        };
        self.stage.tell(format!("program writes #{slot} {at}..{} {}", at + data.len(), told_bytes(&data)));
        let was_known = open.is_dirty && open.is_certain && self.stage.by_path;
        let before = open.before_write(&self.stage);
        if open.may_be_others(&self.stage) {
            open.based_at = self.stage.now();
        }
        open.begins_write(&self.stage, before.iter().map(|old| written(old, at, &data)).collect());
        open.has_moved = false;
        let done = mount.fs.write(open.handle, at as u64, &data).await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        match done {
            Ok(()) => self.reread(mount, slot).await,
            Err(error) if was_known && error.errno() == libc::ESTALE => {
                let key = self.open[slot].key.clone();
                let keys: Vec<&str> = key.as_deref().into_iter().collect();
                self.may_fail(mount, &keys, since, &error)?;
                self.has_lost(slot, before);
                self.give_up(mount, slot).await
            }
            Err(error) => self.write_failed(mount, slot, before, &error).await,
        }
    }

    /// What it was, any one of these, lost to the bucket and is kept.
    fn has_lost(&mut self, slot: usize, contents: Vec<Bytes>) {
        let (stage, open) = (self.stage.clone(), &mut self.open[slot]);
        stage.count("files that lost to the bucket");
        stage.inner.borrow_mut().kept.push((stage.now(), contents));
        open.forget_drafts(&stage, true);
        open.is_dirty = false;
    }

    /// Which of several it is now.
    async fn reread(&mut self, mount: &Mount, slot: usize) -> Step {
        if self.open[slot].contents.len() == 1 {
            return Ok(());
        }
        let first = self.open[slot].contents[0].clone();
        // What was written may hide all of what it went over.
        let is_like_others = self.open[slot].contents[1..].contains(&first);
        {
            let _calm = mount.weather.calm();
            self.read(mount, slot).await?;
        }
        let (now, stage) = (self.stage.now(), self.stage.clone());
        let open = &mut self.open[slot];
        if open.is_stale {
            // The read was refused: what replaced the file's object stays unread, and the next write goes over it.
            open.may_be_replaced(&stage);
        }
        if is_like_others && let Some(key) = &open.key {
            // Or it was deleted before others stored this: it has no name then.
            open.is_certain &= !open.may_be_removed(&stage.inner.borrow().history, key, now);
        }
        if is_like_others || open.contents != [first] {
            open.based_at = now;
        }
        Ok(())
    }

    /// A write that fails may have got so far as any byte of it: what is seen is believed. The look may store it, so others may see
    /// it before that.
    async fn write_failed(&mut self, mount: &Mount, slot: usize, before: Vec<Bytes>, error: &Error) -> Step {
        let (since, key) = (self.open[slot].since, self.open[slot].key.clone());
        let keys: Vec<&str> = key.as_deref().into_iter().collect();
        self.may_fail(mount, &keys, since, error)?;
        let looked = self.stage.now();
        let unknown = key.filter(|key| self.stage.inner.borrow().history.knows(key));
        unknown.iter().for_each(|key| self.stage.inner.borrow_mut().history.is_wild(key));
        let seen = {
            let _calm = mount.weather.calm();
            self.read_all(&mount.fs, self.open[slot].handle).await
        };
        unknown.iter().for_each(|key| self.stage.inner.borrow_mut().history.is_known(key));
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let open = &mut self.open[slot];
        match seen {
            Ok(seen) => {
                let mut may = before;
                may.push(seen);
                open.begins_write(&self.stage, may);
                open.may_show_since(&self.stage, looked);
            }
            Err(_) => {
                let mut inner = self.stage.inner.borrow_mut();
                inner.torn.extend(open.contents.iter().cloned());
                if let Some(key) = &open.key {
                    inner.history.is_wild(key);
                }
            }
        }
        self.give_up(mount, slot).await
    }

    /// Closes a file of which nobody knows what it stores.
    pub(super) async fn give_up(&mut self, mount: &Mount, slot: usize) -> Step {
        self.open[slot].is_certain = false;
        self.close(mount, slot).await
    }

    pub(super) async fn fsync(&mut self, mount: &Mount, slot: usize) -> Step {
        self.tell(format!("fsyncs #{slot}"));
        let began = self.stage.now();
        let synced = mount.fs.fsync(self.open[slot].handle).await;
        self.stored(mount, slot, began, synced, true).await
    }

    /// A file goes from the program's hands, which does not hear of it again.
    pub(super) async fn close(&mut self, mount: &Mount, slot: usize) -> Step {
        self.tell(format!("closes #{slot}"));
        let began = self.stage.now();
        let handle = self.open[slot].handle;
        let flushed = mount.fs.flush(handle).await;
        let closed = flushed.and(mount.fs.release(handle).await);
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let outcome = self.stored(mount, slot, began, closed, false).await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let mut open = self.open.remove(slot);
        open.forget_drafts(&self.stage, false);
        if open.writes {
            self.is_not_open(open.key.as_deref());
        }
        outcome
    }

    /// What became of the writes of an open file, when they were stored or not.
    pub(super) async fn stored(
        &mut self,
        mount: &Mount,
        slot: usize,
        began: Moment,
        outcome: Result<()>,
        is_sync: bool,
    ) -> Step {
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let now = self.stage.now();
        let (stage, open) = (self.stage.clone(), &mut self.open[slot]);
        let Some(key) = open.key.clone().filter(|_| open.writes) else {
            let since = open.since;
            return match outcome {
                Ok(()) => Ok(()),
                Err(error) => self.may_fail(mount, &[], since, &error),
            };
        };
        let others = [By::Endpoint, By::Stranger];
        let is_disputed = stage.inner.borrow().history.is_touched(&key, &others, open.based_at);
        match outcome {
            Ok(()) if !open.is_dirty => Ok(()),
            Ok(()) => {
                open.must_not_overwrite(&stage, &key, began)?;
                let is_changed = |but| {
                    let history = &stage.inner.borrow().history;
                    history.is_changed_between(&key, &[By::Endpoint], &but, (open.based_at, began))
                };
                // A deletion does not see what is no object yet.
                let but = if open.is_new { What::Becomes(vec![None]) } else { What::Stays };
                let loses_name = is_changed(but);
                open.is_certain &= !(open.is_new && open.may_be_published(&stage) && is_changed(What::Stays));
                let may_be_removed = open.may_be_removed(&stage.inner.borrow().history, &key, now);
                let contents: Vec<_> = open.contents.iter().cloned().map(Some).collect();
                // By inode an empty file that was made is a name alone, which is synced a moment later.
                let is_name = open.is_new && !stage.by_path && contents.iter().flatten().all(Bytes::is_empty);
                let id = stage.begin(By::Files, Place::Key(key.clone()), What::Becomes(contents));
                open.stores(&stage, id);
                let is_replaced = open.is_replaced(&stage, &key, began);
                let is_over = loses_name && !stage.by_path && open.is_certain || is_replaced;
                match (is_over, is_disputed || !open.is_certain) {
                    (true, _) => {
                        open.drafts.push(id);
                        open.forget_drafts(&stage, true);
                    }
                    (_, true) => stage.doubt(id),
                    (false, false) => stage.done(id, is_sync || !stage.write_back && !is_name),
                }
                (open.is_dirty, open.is_maybe_stored, open.based_at) = (false, false, now);
                (open.has_moved, open.is_new) = (false, false);
                if is_replaced {
                    // What it is now the next look says.
                    open.contents.clear();
                }
                // Its name may be another's since: by inode whatever was done, by path if it was removed.
                open.is_certain &= !is_disputed || stage.by_path && !may_be_removed;
                stage.count("files stored");
                Ok(())
            }
            Err(error) => {
                let (since, is_known) = (open.since, open.is_certain && error.errno() == libc::ESTALE);
                let contents = open.contents.clone();
                if is_known && open.is_dirty && stage.by_path {
                    self.has_lost(slot, contents);
                }
                let open = &mut self.open[slot];
                let may = if error.errno() == libc::EIO { None } else { Some(key.as_str()) };
                open.is_dirty &= error.errno() != libc::ESTALE;
                let former = open.former.clone();
                let keys: Vec<&str> = may.into_iter().chain(former.iter().map(String::as_str)).collect();
                self.may_fail(mount, &keys, since, &error)?;
                match is_sync {
                    true => Box::pin(self.give_up(mount, slot)).await,
                    false => Ok(()),
                }
            }
        }
    }
}

fn written(old: &Bytes, at: usize, data: &Bytes) -> Bytes {
    let mut content = old.to_vec();
    content.resize(content.len().max(at + data.len()), 0);
    content[at..at + data.len()].copy_from_slice(data);
    content.into()
}
