//! What the program does to names: removals, renames, directories; and what that means for files it has open.

use super::{CALLER, DIRS, Program, Step, parent, parent_of_known};
use crate::dual::key_history::{By, Place, What};
use crate::files::machine::Mount;
use vfs::{Error, Result};

impl Program {
    pub(super) async fn unlink(&mut self, mount: &Mount) -> Step {
        let key = self.stage.key();
        self.tell(format!("unlinks '{key}'"));
        let since = self.stage.now();
        let id = self.stage.becomes(By::Files, &key, None);
        let unlinked = async {
            let (dir, name) = parent_of_known(&mount.fs, &key).await?;
            mount.fs.unlink(dir, name.as_bytes()).await
        };
        let unlinked = unlinked.await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let is_done = unlinked.is_ok();
        match &unlinked {
            Ok(()) => self.stage.done(id, self.stage.by_path && !self.stage.write_back),
            Err(_) => self.stage.doubt(id),
        }
        self.loses_name(&Place::Key(key.clone()), is_done);
        match unlinked {
            Ok(()) => Ok(()),
            Err(error) => self.may_fail(mount, &[&key], since, &error),
        }
    }

    /// What is open has no name any more, or may have none.
    fn loses_name(&mut self, place: &Place, surely: bool) {
        let stage = self.stage.clone();
        for open in &mut self.open {
            let Some(key) = open.key.clone().filter(|key| place.covers(key)) else { continue };
            open.is_certain = false;
            if surely {
                stage.inner.borrow_mut().open.retain(|open| *open != key);
                open.forget_drafts(&stage, true);
                open.key = None;
            }
        }
    }

    pub(super) async fn rename(&mut self, mount: &Mount) -> Step {
        let (from, to) = (self.stage.key(), self.stage.key());
        if from == to || from.starts_with(&format!("{to}/")) || to.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        self.tell(format!("renames '{from}' to '{to}'"));
        let ends = (Place::Key(from.clone()), Place::Key(to.clone()));
        let renamed = async {
            let source = parent_of_known(&mount.fs, &from).await?;
            let target = parent(&mount.fs, &to).await?;
            let (source, target) = ((source.0, source.1.as_bytes()), (target.0, target.1.as_bytes()));
            mount.fs.rename(source, target, 0).await
        };
        self.moves(mount, ends, (&from, &to), renamed).await
    }

    pub(super) async fn rename_directory(&mut self, mount: &Mount) -> Step {
        let (from, to) = (DIRS[self.below(DIRS.len())], DIRS[self.below(DIRS.len())]);
        if from == to || from.starts_with(&format!("{to}/")) || to.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        self.tell(format!("renames the directory '{from}' to '{to}'"));
        let ends = (Place::Below(format!("{from}/")), Place::Below(format!("{to}/")));
        let renamed = async {
            let source = parent(&mount.fs, from).await?;
            let target = parent(&mount.fs, to).await?;
            if mount.fs.lookup(source.0, source.1.as_bytes()).await?.kind != vfs::Kind::Directory {
                return Ok(false);
            }
            let (source, target) = ((source.0, source.1.as_bytes()), (target.0, target.1.as_bytes()));
            mount.fs.rename(source, target, 0).await.map(|()| true)
        };
        Box::pin(self.moves_tree(mount, ends, (from, to), renamed)).await
    }

    async fn moves_tree(
        &mut self,
        mount: &Mount,
        ends: (Place, Place),
        (from, to): (&str, &str),
        renamed: impl Future<Output = Result<bool>>,
    ) -> Step {
        let mut was_directory = true;
        let renamed = async {
            was_directory = renamed.await?;
            match was_directory {
                true => Ok(()),
                // What has the name is a file, and was not touched.
                false => Err(Error::Namespace(meta::FsError::NotDirectory)),
            }
        };
        self.moves(mount, ends, (from, to), renamed).await
    }

    async fn moves(
        &mut self,
        mount: &Mount,
        (from, to): (Place, Place),
        keys: (&str, &str),
        renamed: impl Future<Output = Result<()>>,
    ) -> Step {
        let since = self.stage.now();
        let mut ids = Vec::new();
        {
            let history = &mut self.stage.inner.borrow_mut().history;
            ids.push(history.begin(By::Files, to.clone(), What::Moves { from: from.clone() }, since));
            ids.push(history.begin(By::Files, from.clone(), What::Becomes(vec![None]), since));
        }
        let renamed = renamed.await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let is_done = renamed.is_ok();
        for id in ids {
            match is_done {
                true => self.stage.done(id, self.stage.by_path && !self.stage.write_back),
                false => self.stage.doubt(id),
            }
        }
        self.loses_name(&to, is_done);
        self.follow(&from, &to, is_done);
        match renamed {
            Ok(()) => {
                self.stage.count("renames");
                Ok(())
            }
            Err(error) => self.may_fail(mount, &[keys.0, keys.1], since, &error),
        }
    }

    /// What is open goes where its name went.
    fn follow(&mut self, from: &Place, to: &Place, surely: bool) {
        let (stage, now) = (self.stage.clone(), self.stage.now());
        for open in &mut self.open {
            let Some(key) = open.key.clone().filter(|key| from.covers(key)) else { continue };
            let Some(moved) = from.after(to, &key) else { continue };
            if !surely {
                // Where it will be stored nobody knows.
                open.is_certain = false;
                let history = &mut stage.inner.borrow_mut().history;
                history.is_wild(&key);
                history.is_wild(&moved);
                continue;
            }
            open.forget_drafts(&stage, true);
            open.may_be_replaced(&stage);
            let mut inner = stage.inner.borrow_mut();
            inner.open.iter_mut().filter(|open| **open == key).for_each(|open| open.clone_from(&moved));
            drop(inner);
            let is_lost = match stage.by_path {
                // A deletion of the old name that is still under way deletes the file, wherever it is by then.
                true => stage.inner.borrow().history.may_be_deleted(&key, By::Endpoint, open.based_at),
                // The name may be another's by now, which moved.
                false => stage.inner.borrow().history.is_touched(&key, &[By::Endpoint], open.based_at),
            };
            open.is_certain &= !is_lost;
            open.former.push(key);
            open.key = Some(moved);
            // It may have been stored on the way.
            open.based_at = now;
            open.dirty_since = now;
            if open.is_dirty {
                let contents = open.contents.clone();
                open.begins_write(&stage, contents);
                open.has_moved = stage.by_path;
            }
        }
    }

    pub(super) async fn make_directory(&mut self, mount: &Mount) -> Step {
        let (path, since) = (DIRS[self.below(DIRS.len())], self.stage.now());
        self.tell(format!("makes the directory '{path}'"));
        let made = async {
            let (dir, name) = parent(&mount.fs, path).await?;
            mount.fs.mkdir(CALLER, dir, name.as_bytes(), 0o755).await
        };
        match made.await {
            Ok(_) => Ok(()),
            Err(_) if mount.weather.has_crashed() => Ok(()),
            Err(error) => self.may_fail(mount, &[path], since, &error),
        }
    }

    pub(super) async fn remove_directory(&mut self, mount: &Mount) -> Step {
        let (path, since) = (DIRS[self.below(DIRS.len())], self.stage.now());
        self.tell(format!("removes the directory '{path}'"));
        let removed = async {
            let (dir, name) = parent(&mount.fs, path).await?;
            mount.fs.rmdir(dir, name.as_bytes()).await
        };
        match removed.await {
            Ok(()) => Ok(()),
            Err(_) if mount.weather.has_crashed() => Ok(()),
            Err(error) => self.may_fail(mount, &[path], since, &error),
        }
    }
}
