//! The caches of front ends: which entries they hold, and which they must drop.

use meta::Ino;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::Attr;
use crate::base::Base;
use crate::content::Content;
use crate::followers::front_ends::{InvalidationQueue, QUEUE_MAX, push_invalidations};
use crate::followers::invalidation::Invalidation;
use crate::mount::Mount;
use crate::names::Names;

/// Invalidation of the caches of front ends.
#[derive(Debug)]
pub struct KernelCaches {
    mount: Arc<Mount>,
    names: Arc<Names>,
    content: Arc<Content>,
}

impl KernelCaches {
    pub(crate) fn new(base: &Base) -> Self {
        Self { mount: base.mount.clone(), names: base.names.clone(), content: base.content.clone() }
    }

    /// Returns how long a front end may cache entries and attributes.
    pub fn ttl(&self) -> Duration {
        self.mount.ttl()
    }

    /// Subscribes to invalidations of a front end's caches from now on. Each front end has its own subscription.
    pub fn invalidations(&self) -> InvalidationQueue {
        self.names.listen(QUEUE_MAX)
    }

    /// Does what [`invalidations`](Self::invalidations) does, with a queue of this length, so that a simulator can fill it.
    pub fn invalidations_in(&self, queue_max: usize) -> InvalidationQueue {
        self.names.listen(queue_max)
    }

    /// Waits until front ends have dropped their cached attributes of an inode.
    pub async fn forget_attributes(&self, ino: Ino) {
        self.names.deliver(&[Invalidation::Attributes(ino)]).await;
    }

    /// Waits until front ends have dropped their cached bytes of a range, which was written past their cache.
    pub async fn forget_bytes(&self, ino: Ino, range: Range<u64>) {
        self.names.deliver(&[Invalidation::Bytes(ino, range)]).await;
    }

    /// Returns the attributes that this mount shows of an inode now, unpublished writes included, without asking the bucket. `None` if
    /// the inode is gone.
    pub fn shown_attributes(&self, ino: Ino) -> Option<Attr> {
        self.names.tables().inode(ino).ok().map(|inode| self.content.attr(inode))
    }

    /// Returns whether a front end must not cache these attributes: its page cache holds pages of an older version, whose
    /// readers would mistake the end of the newer version for theirs. The namespace has the newer length shortly before the
    /// open file is pinned to the newer bytes, so a length different from the open file's counts as well.
    pub fn misleads_readers(&self, attr: &Attr) -> bool {
        self.content.files().get(attr.ino).is_some_and(|file| {
            file.has_older_readers()
                || !file.pending().is_edited
                    && file.pin().0.is_some_and(|pin| pin.size_bytes != attr.size_bytes)
        })
    }

    /// Returns whether handles are open that read an older version through the page cache.
    pub fn has_older_readers(&self, ino: Ino) -> bool {
        self.content.files().get(ino).is_some_and(|file| file.has_older_readers())
    }

    /// Returns what a front end must drop after an [`Invalidation::Everything`]: attributes, data and names of a
    /// bounded number of the inodes that front ends hold, starting after `after`. Also returns the last of these
    /// inodes, to continue from; `None` if there are no more.
    pub fn everything_held(&self, after: Option<Ino>) -> Option<(Ino, Vec<Invalidation>)> {
        self.names.invalidations_after(after, |inode, invalidations| {
            push_invalidations(inode, invalidations);
            invalidations.push(Invalidation::Inode(inode.ino));
        })
    }

    /// Like `everything_held`, after an [`Invalidation::Directory`]: for the inodes with a name in this directory.
    pub fn held_in(&self, dir: Ino, after: Option<Ino>) -> Option<(Ino, Vec<Invalidation>)> {
        self.names.invalidations_after(after, |inode, invalidations| {
            // Another name of an inode with several names may be in the directory.
            let is_inside = inode.home.as_ref().is_some_and(|(parent, _)| *parent == dir);
            let has_more = !inode.is_dir() && inode.nlink > 1;
            if is_inside || has_more || inode.ino == dir {
                push_invalidations(inode, invalidations);
                invalidations.push(Invalidation::Inode(inode.ino));
            }
        })
    }
}
