//! Removing objects of a volume named by inode, and directories that were there for them alone.

use meta::{FsError, Ino, Name, Op};
use store::{ObjectKey, Precondition};

use super::put::Change;
use super::{ATTEMPTS_MAX, Way, busy, is_race};
use crate::names::invalidation::Invalidation;
use crate::objects::Objects;
use crate::objects::description::{IMPLICIT, Kept, MARKER, RECORD};
use crate::objects::errors::{about, named};

impl Objects {
    pub(in crate::objects) async fn delete_named(
        &self,
        key: &ObjectKey,
        precondition: &Precondition,
    ) -> store::Result<()> {
        let _claim = self.fs.claims.claim(&self.claimed(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let way = self.way(key)?;
            let is_gone = match &way.last {
                Some(_) => self.delete_object(key, &way, precondition).await?,
                None => self.delete_marker(key, &way, precondition).await?,
            };
            if is_gone {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// False: somebody else was faster.
    async fn delete_object(
        &self,
        key: &ObjectKey,
        way: &Way,
        precondition: &Precondition,
    ) -> store::Result<bool> {
        let taken = self.taken(way).map_err(named(key))?.filter(|(_, inode)| self.is_object(inode));
        let Some((name, inode)) = taken else {
            self.must_hold(key, precondition, None)?;
            return Ok(true);
        };
        let file = match self.fs.open_file(inode.ino) {
            // It went in between.
            Err(crate::Error::Namespace(FsError::NotFound)) => return Ok(false),
            file => file.map_err(about(key))?,
        };
        let outcome = {
            // Nobody publishes other bytes between the look and the commit.
            let _work = file.work.lock().await;
            self.unlink(key, (way.dir, &name), precondition)
        };
        let closed = file.close().await.map_err(about(key));
        let Some(mut change) = outcome? else { return closed.map(|()| false) };
        closed?;
        self.prune(way.dir, &mut change.news).map_err(named(key))?;
        self.fs.invalidations.deliver(change.news).await;
        Ok(true)
    }

    fn unlink(
        &self,
        key: &ObjectKey,
        (parent, name): (Ino, &Name),
        precondition: &Precondition,
    ) -> store::Result<Option<Change>> {
        let there = self.fs.names.lookup(parent, name).map_err(named(key))?;
        self.must_hold(key, precondition, there.as_ref())?;
        let mut change = Change::default();
        change.entry(parent, name);
        match self.fs.names.commit(&self.fs.ctx(), &Op::Unlink { parent, name: name.clone(), keep: true }) {
            Ok(_) => Ok(Some(change)),
            Err(error) if is_race(&error) => Ok(None),
            Err(error) => Err(named(key)(error)),
        }
    }

    /// A directory with something in it goes on without its marker.
    async fn delete_marker(
        &self,
        key: &ObjectKey,
        way: &Way,
        precondition: &Precondition,
    ) -> store::Result<bool> {
        let there = self.there(way).map_err(named(key))?;
        self.must_hold(key, precondition, there.as_ref())?;
        if there.is_none() {
            return Ok(true);
        }
        let mut change = Change::default();
        change.set_xattr(way.dir, IMPLICIT, bytes::Bytes::from_static(b"1"));
        let before = Kept::read(&self.fs.names, way.dir).map_err(named(key))?;
        change.ops.extend(before.gone(way.dir));
        for name in self.fs.names.xattrs(way.dir).map_err(named(key))? {
            if [MARKER, RECORD].contains(&&*name) {
                change.ops.push(Op::RemoveXattr { ino: way.dir, name });
            }
        }
        match self.fs.names.commit_together(&self.fs.ctx(), &change.ops) {
            Ok(_) => {}
            Err(error) if is_race(&error) => return Ok(false),
            Err(error) => return Err(named(key)(error)),
        }
        change.news.push(Invalidation::Attributes(way.dir));
        self.prune(way.dir, &mut change.news).map_err(named(key))?;
        self.fs.invalidations.deliver(change.news).await;
        Ok(true)
    }

    /// Removes a directory that was there for what was in it, if that is nothing any more; and so on upwards.
    pub(in crate::objects) fn prune(
        &self,
        mut dir: Ino,
        news: &mut Vec<Invalidation>,
    ) -> Result<(), FsError> {
        let Ok(base) = self.base_dir() else { return Ok(()) };
        while dir != base && dir != Ino::ROOT {
            let directory = match self.fs.names.inode(dir) {
                Err(FsError::NotFound) => return Ok(()),
                directory => directory?,
            };
            let Some((parent, name)) = directory.home.clone() else { return Ok(()) };
            let mut change = self.pruning(dir, parent, &name)?;
            match self.fs.names.commit_together(&self.fs.ctx(), &change.ops) {
                Ok(_) => self.fs.forget_removed(&directory),
                Err(error) if is_race(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            news.append(&mut change.news);
            dir = parent;
        }
        Ok(())
    }

    /// Fails for a directory that has a marker or anything in it. What lay beside it has its plain name again.
    fn pruning(&self, dir: Ino, parent: Ino, name: &Name) -> Result<Change, FsError> {
        let mut change = Change::default();
        change.entry(parent, name);
        change.ops.push(Op::RemoveXattr { ino: dir, name: IMPLICIT.into() });
        change.ops.push(Op::Rmdir { parent, name: name.clone() });
        let again = self.fs.plain_again(parent, name)?;
        if let Some(Op::Rename { from: (_, beside), .. }) = &again {
            // Whoever asked for this waits until the front end has heard of it.
            change.entry(parent, beside);
        }
        change.ops.extend(again);
        Ok(change)
    }
}
