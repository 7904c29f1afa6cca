//! Ops of the file client on names: removals, renames and directories, and their effect on open files.

use super::{CALLER, DIRS, FileClient, StepResult, parent, parent_of_existing};
use crate::dual::key_history::{Actor, ChangeEffect, KeySet};
use crate::files::machine::Mount;
use vfs::{Error, Result};

impl FileClient {
    pub(super) async fn unlink(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let key = self.shared.random_key();
        self.trace_line(format!("unlinks '{key}'"));
        let since = self.shared.now();
        let id = self.shared.begin_set(Actor::Files, &key, None);
        let unlinked = async {
            let (dir, name) = parent_of_existing(&kernel, &key).await?;
            kernel.unlink(dir, name.as_bytes()).await
        };
        let unlinked = unlinked.await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let is_done = unlinked.is_ok();
        match &unlinked {
            Ok(()) if self.may_hide_object(&key) => self.shared.mark_uncertain(id),
            Ok(()) => self.shared.complete(id, self.shared.by_path && !self.shared.write_back),
            Err(_) => self.shared.mark_uncertain(id),
        }
        self.drop_names(&KeySet::Key(key.clone()), is_done, false);
        match unlinked {
            Ok(()) => Ok(()),
            Err(error) => self.check_failure(mount, &[&key], since, &error),
        }
    }

    /// Whether the name of a file that is not an object yet may hide an object of the foreign writer, which its removal leaves.
    fn may_hide_object(&self, key: &str) -> bool {
        let history = &self.shared.inner.borrow().history;
        let mut hiding = self.open.iter().filter(|open| open.is_new && open.key.as_deref() == Some(key));
        self.shared.by_path && hiding.any(|open| history.may_have_changed_unnoticed(key, open.since))
    }

    /// Records that open files have lost their name, or may have lost it if the op failed. If it was a rename that is cancelled later,
    /// what a sync stored of such a file is back.
    fn drop_names(&mut self, place: &KeySet, has_succeeded: bool, is_rename: bool) {
        let shared = self.shared.clone();
        for open in &mut self.open {
            let Some(key) = open.key.clone().filter(|key| place.covers(key)) else { continue };
            open.is_certain = false;
            if has_succeeded {
                shared.inner.borrow_mut().open_keys.retain(|open| *open != key);
                open.end_states(&shared, !(is_rename && open.is_maybe_stored));
                open.key = None;
            }
        }
    }

    pub(super) async fn rename(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let (from, to) = (self.shared.random_key(), self.shared.random_key());
        if from == to || from.starts_with(&format!("{to}/")) || to.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        self.trace_line(format!("renames '{from}' to '{to}'"));
        let ends = (KeySet::Key(from.clone()), KeySet::Key(to.clone()));
        let renamed = async {
            let source = parent_of_existing(&kernel, &from).await?;
            let target = parent(&kernel, &to).await?;
            let (source, target) = ((source.0, source.1.as_bytes()), (target.0, target.1.as_bytes()));
            // A directory that another client has made meanwhile would be renamed in place of the file.
            if kernel.lookup(source.0, source.1).await?.kind == vfs::Kind::Directory {
                return Err(Error::Namespace(meta::FsError::IsDirectory));
            }
            kernel.rename(source, target, 0).await
        };
        self.rename_with(mount, ends, (&from, &to), renamed).await
    }

    pub(super) async fn rename_directory(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let (from, to) = (DIRS[self.below(DIRS.len())], DIRS[self.below(DIRS.len())]);
        if from == to || from.starts_with(&format!("{to}/")) || to.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        self.trace_line(format!("renames the directory '{from}' to '{to}'"));
        let ends = (KeySet::Prefix(format!("{from}/")), KeySet::Prefix(format!("{to}/")));
        let renamed = async {
            let source = parent(&kernel, from).await?;
            let target = parent(&kernel, to).await?;
            if kernel.lookup(source.0, source.1.as_bytes()).await?.kind != vfs::Kind::Directory {
                return Ok(false);
            }
            let (source, target) = ((source.0, source.1.as_bytes()), (target.0, target.1.as_bytes()));
            kernel.rename(source, target, 0).await.map(|()| true)
        };
        Box::pin(self.rename_tree(mount, ends, (from, to), renamed)).await
    }

    async fn rename_tree(
        &mut self,
        mount: &Mount,
        ends: (KeySet, KeySet),
        (from, to): (&str, &str),
        renamed: impl Future<Output = Result<bool>>,
    ) -> StepResult {
        let mut was_directory = true;
        let renamed = async {
            was_directory = renamed.await?;
            match was_directory {
                true => Ok(()),
                // A file has the directory's name. It was not renamed.
                false => Err(Error::Namespace(meta::FsError::NotDirectory)),
            }
        };
        self.rename_with(mount, ends, (from, to), renamed).await
    }

    async fn rename_with(
        &mut self,
        mount: &Mount,
        (from, to): (KeySet, KeySet),
        keys: (&str, &str),
        renamed: impl Future<Output = Result<()>>,
    ) -> StepResult {
        let since = self.shared.now();
        let mut ids = Vec::new();
        {
            let history = &mut self.shared.inner.borrow_mut().history;
            ids.push(history.begin(
                Actor::Files,
                to.clone(),
                ChangeEffect::Moves { from: from.clone() },
                since,
            ));
            ids.push(history.begin(Actor::Files, from.clone(), ChangeEffect::Sets(vec![None]), since));
        }
        let renamed = renamed.await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let is_done = renamed.is_ok();
        for id in ids {
            match is_done {
                true => self.shared.complete(id, self.shared.by_path && !self.shared.write_back),
                false => self.shared.mark_uncertain(id),
            }
        }
        self.forget_hidden_by_new_files(&from, &to);
        self.drop_names(&to, is_done, true);
        self.move_open_files(&from, &to, is_done);
        match renamed {
            Ok(()) => {
                self.shared.count("renames");
                Ok(())
            }
            Err(error) => self.check_failure(mount, &[keys.0, keys.1], since, &error),
        }
    }

    /// Marks the keys of open files that were never stored as unknown, before a rename from or to them. The mount does not notice what others
    /// store there, so the rename leaves it, or conflicts with it.
    fn forget_hidden_by_new_files(&self, from: &KeySet, to: &KeySet) {
        let new = self.open.iter().filter(|open| self.shared.by_path && open.is_new);
        for key in new.filter_map(|open| open.key.as_deref()) {
            if from.covers(key) || to.covers(key) {
                self.shared.inner.borrow_mut().history.mark_unknown(key);
            }
        }
    }

    /// Moves open files to their new key after a rename.
    fn move_open_files(&mut self, from: &KeySet, to: &KeySet, has_succeeded: bool) {
        let (shared, now) = (self.shared.clone(), self.shared.now());
        for open in &mut self.open {
            let Some(key) = open.key.clone().filter(|key| from.covers(key)) else { continue };
            let Some(moved) = from.key_after(to, &key) else { continue };
            if !has_succeeded {
                // It is unknown under which key the file will be stored.
                open.is_certain = false;
                open.note_possible_conflict(&shared);
                let history = &mut shared.inner.borrow_mut().history;
                history.mark_unknown(&key);
                history.mark_unknown(&moved);
                continue;
            }
            open.end_states(&shared, true);
            open.add_replacements(&shared);
            let mut inner = shared.inner.borrow_mut();
            inner.open_keys.iter_mut().filter(|open| **open == key).for_each(|open| open.clone_from(&moved));
            drop(inner);
            let is_lost = match shared.by_path {
                // A deletion of the old name that is in progress deletes the file under its new name too.
                true => shared.inner.borrow().history.may_be_deleted(&key, Actor::Endpoint, open.known_at),
                // Another file may have had the name by then, and moved instead.
                false => {
                    shared.inner.borrow().history.may_have_changed(&key, &[Actor::Endpoint], open.known_at)
                }
            };
            open.is_certain &= !is_lost;
            open.former_keys.push(key);
            open.key = Some(moved);
            // The rename may have stored the file.
            open.known_at = now;
            open.dirty_since = now;
            if open.is_dirty {
                let contents = open.contents.clone();
                open.begin_write(&shared, contents);
                open.has_moved = shared.by_path;
            }
        }
    }

    pub(super) async fn make_directory(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let (path, since) = (DIRS[self.below(DIRS.len())], self.shared.now());
        self.trace_line(format!("makes the directory '{path}'"));
        let made = async {
            let (dir, name) = parent(&kernel, path).await?;
            kernel.mkdir(CALLER, dir, name.as_bytes(), 0o755).await
        };
        match made.await {
            Ok(_) => Ok(()),
            Err(_) if mount.injector.has_crashed() => Ok(()),
            Err(error) => self.check_failure(mount, &[path], since, &error),
        }
    }

    pub(super) async fn remove_directory(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let (path, since) = (DIRS[self.below(DIRS.len())], self.shared.now());
        self.trace_line(format!("removes the directory '{path}'"));
        let removed = async {
            let (dir, name) = parent(&kernel, path).await?;
            kernel.rmdir(dir, name.as_bytes()).await
        };
        match removed.await {
            Ok(()) => Ok(()),
            Err(_) if mount.injector.has_crashed() => Ok(()),
            Err(error) => self.check_failure(mount, &[path], since, &error),
        }
    }
}
