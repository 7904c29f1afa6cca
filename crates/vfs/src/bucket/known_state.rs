//! Knowledge of the bucket: listed directories, changes of this mount under way, and changes that other mounts may have made.

use meta::{Ino, Inode, Kind, Moment, Name, Op, Origin};
use std::sync::Arc;
use store::ObjectKey;

use crate::base::Base;
use crate::bucket::changes::Changes;
use crate::bucket::directories::Directories;
use crate::bucket::sharing::Sharing;
use crate::content::Content;
use crate::followers::invalidation::Invalidation;
use crate::layout::LOST_AND_FOUND;
use crate::mount::Mount;
use crate::names::Names;
use crate::{Attr, Result};

/// Cached knowledge of the bucket: listings, changes under way, coordination with other mounts.
#[derive(Debug)]
pub(crate) struct KnownState {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) directories: Directories,
    pub(in crate::bucket) changes: Changes,
    /// State for a bucket that other machines may mount too; `None` if none may.
    pub(in crate::bucket) sharing: Option<Sharing>,
    /// Whether attributes come from objects' headers instead of from the listing.
    pub(in crate::bucket) reads_headers: bool,
}

impl KnownState {
    pub(crate) fn new(base: &Base, sharing: Option<Sharing>, reads_headers: bool) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            directories: Directories::new(base.mount.rules.follows_bucket),
            changes: Changes::new(base.mount.moments.clone(), base.mount.rules.follows_bucket),
            sharing,
            reads_headers,
        })
    }

    /// Returns the coordination with other mounts, if the bucket is shared.
    pub(crate) fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }

    /// Returns whether attributes come from an object's headers (one HEAD each) instead of from the listing.
    pub(crate) fn reads_headers(&self) -> bool {
        self.reads_headers
    }

    /// Returns the names that this mount is changing, or changed lately.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns the listing states of directories.
    pub(crate) fn directories(&self) -> &Directories {
        &self.directories
    }
}

impl KnownState {
    /// Like `is_fresh` for an observation inside a directory, which a hint about the directory may have made stale.
    pub(crate) fn is_trusted(&self, dir: Ino, seen_at: Moment) -> bool {
        self.mount.is_fresh(seen_at) && !self.directories.is_marked_stale(dir, seen_at)
    }

    /// Forgets the cached state of a removed directory. A program that has the directory open may still ask for its attributes,
    /// which the tables no longer have.
    pub(crate) fn forget_removed_directory(&self, directory: &Inode) {
        self.directories.remove(directory.ino);
        let ctime = directory.ctime.max(self.mount.now());
        self.names.references().note_removed(Attr { nlink: 0, ctime, ..Attr::from(directory) });
    }

    /// Removes the name of an inode that was created here and could not be stored. Does nothing if the name leads
    /// elsewhere by now.
    pub(crate) fn roll_back_create(&self, parent: Ino, name: &Name, inode: &Inode) -> Result<()> {
        if self.names.tables().lookup(parent, name)?.is_none_or(|there| there.ino != inode.ino) {
            return Ok(());
        }
        let op = match inode.kind {
            Kind::Directory => Op::Rmdir { parent, name: name.clone() },
            _ => Op::Unlink { parent, name: name.clone(), keep: false },
        };
        self.names.commit(Origin::Other, &op)?;
        self.directories.get(parent).forget();
        Ok(())
    }

    /// Forgets the listing of a directory, because a name in it may lead elsewhere. The next lookup asks the bucket.
    pub(crate) fn forget_listing(&self, dir: Ino, name: &Name) {
        self.directories.get(dir).forget();
        self.names.tell_entry(dir, name.as_bytes());
        self.names.tell(Invalidation::Inode(dir));
    }

    /// Makes the next lookup in a directory ask the bucket, also for names that are known, because a look at a name was not valid.
    pub(crate) fn distrust(&self, dir: Ino, name: &Name) {
        self.directories.mark_stale(dir, self.mount.moment());
        self.forget_listing(dir, name);
    }

    /// Detaches a file from its name, which belongs to a foreign object.
    pub(crate) fn detach_name(&self, inode: &Inode) -> Result<()> {
        if let Some((dir, name)) = &inode.home {
            self.remove_name(*dir, name, inode, self.mount.moment())?;
            self.directories.get(*dir).forget();
        }
        Ok(())
    }

    /// Forgets the cached listings of `lost+found`, which has changed after a conflict about the object at `key`, and of the directory
    /// that it is in: the root, or the key's bucket.
    pub(crate) fn invalidate_lost_and_found(&self, key: &ObjectKey) -> Result<()> {
        let above = match self.mount.layout.joins_buckets() {
            true => self.bucket_of(key)?.unwrap_or(Ino::ROOT),
            false => Ino::ROOT,
        };
        self.directories.get(above).forget();
        if let Some(dir) = self.names.tables().entry(above, &Name::new(LOST_AND_FOUND.as_bytes())?)? {
            self.directories.get(dir.ino).forget();
        }
        Ok(())
    }

    /// Returns the directory that is the bucket of a key.
    fn bucket_of(&self, key: &ObjectKey) -> Result<Option<Ino>> {
        let first = store::names::key_to_path(key).into_iter().next().unwrap_or_default();
        let entry = self.names.tables().entry(Ino::ROOT, &Name::new(&first)?)?;
        Ok(entry.map(|entry| entry.ino))
    }

    /// Returns whether the known state of a file is new enough for an open requested at `asked_at`: within the
    /// revalidation time, or on a shared bucket newer than the request. A directory whose listing took many pages is
    /// trusted longer, but not for an open.
    pub(crate) fn is_recent(&self, parent: Ino, inode: &Inode, asked_at: Moment) -> bool {
        let (now, ttl) = (self.mount.moment(), self.mount.config.metadata_ttl);
        inode.observed_at >= asked_at
            || self.content.has_unpublished_writes(inode.ino)
            || inode.object().is_none()
            || self.sharing.is_none() && self.is_trusted(parent, inode.observed_at)
            || self.sharing.is_none()
                && self.directories.get(parent).listed_range().is_recent(asked_at, now, ttl)
    }
}
