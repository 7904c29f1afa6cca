//! What a volume named by path and its [mover](store::mover) say to each other.
//!
//! The mover shows objects under their new keys at once and moves them in the background. It hears from here when it may,
//! and by what an object is known that got new headers nobody heard of; and it says when an object has another tag where it
//! arrived.

use meta::{Dentry, Extent, Ino, Inode, Kind, Name, Op, RenameHow, Stored};
use std::sync::Arc;
use store::mover::{Keeper, Mover, MoverOptions, Renamed};
use store::{ETag, Entropy, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, StoreError};

use crate::bucket::headers;
use crate::bucket::observe::KnownPath;
use crate::config::Config;
use crate::layout::lost_key;
use crate::{Filesystem, Result};

/// The store that a volume named by path sees, over a bucket.
pub(crate) fn open(
    store: &Arc<dyn ObjectStore>,
    entropy: &Arc<Entropy>,
    config: &Config,
) -> Result<Arc<Mover>> {
    let prefix = config.prefix.clone();
    let options = MoverOptions {
        copies_at_once: config.write_back,
        is_shared: config.is_shared,
        // A path too long to be kept aside under its name stays where it was, as the newer one.
        lost: Arc::new(move |key, unique| lost_key(&prefix, key, unique).unwrap_or_else(|_| key.clone())),
    };
    Ok(Mover::open(&config.moves_path, store.clone(), options, entropy.clone())?)
}

impl Filesystem {
    /// Objects move after the names that say so, and are known by their files.
    pub(crate) fn install_mover_callbacks(&self) {
        let Some(mover) = &self.mover else { return };
        let me = || self.me.clone();
        let (makes_safe, knows, has_arrived, has_left, is_void) = (me(), me(), me(), me(), me());
        mover.kept_by(Keeper {
            make_safe: Box::new(move || {
                let me = makes_safe.upgrade();
                Box::pin(async move {
                    let closed = || StoreError::Unavailable("the volume is closed".into());
                    let synced = me.ok_or_else(closed)?.sync_names().await;
                    synced.map_err(|error| StoreError::Unavailable(error.to_string()))
                })
            }),
            knows: Box::new(move |key, found| {
                knows.upgrade().is_some_and(|me| me.is_known_object(key, found).unwrap_or(false))
            }),
            has_arrived: Box::new(move |key, given, there| {
                if let Some(me) = has_arrived.upgrade()
                    && let Err(error) = me.update_moved_etag(key, given, there)
                {
                    // It is found out by the next look, as if somebody else had stored it.
                    tracing::debug!(%key, %error, "the new tag of an object is not known");
                }
            }),
            has_left: Box::new(move |object| {
                if let Some(me) = has_left.upgrade() {
                    // Who cannot be told finds it gone when it is opened.
                    me.forget_moved_object(object).ok();
                }
            }),
            is_void: Box::new(move |from, to| {
                if let Some(me) = is_void.upgrade() {
                    if let Some(sharing) = &me.sharing {
                        sharing.mark_void(to);
                    }
                    for key in [from, to] {
                        // Who cannot be told looks again in time.
                        me.forget_listing_of(key).ok();
                    }
                }
            }),
            judge: self.judge(),
        });
    }

    /// What is at a key is to be looked at again.
    pub(crate) fn forget_listing_of(&self, key: &ObjectKey) -> Result<()> {
        if let Some(known) = self.known_path(key)? {
            self.directories.get(known.dir).forget();
        }
        Ok(())
    }

    /// An object that was renamed is gone from its old key: who looked there before saw what has left.
    fn forget_moved_object(&self, object: &ObjectRef) -> Result<()> {
        let Some(KnownPath { dir, next: Some(name), is_last: true }) = self.known_path(&object.key)? else {
            return Ok(());
        };
        drop(self.changes.begin(dir, &name));
        // A file that was being made there when the last mount died is gone, and so is one whose rename the names lost and the
        // journal did not. The look under way does not count for its name: the directory is looked at again.
        let local = self.names.lookup(dir, &self.visible_name(dir, &name)?)?;
        let is_gone = |local: &Inode| local.object().is_none_or(|known| known.etag == object.etag);
        if local.is_some_and(|local| is_gone(&local) && !self.is_open(local.ino)) {
            self.directories.get(dir).forget();
        }
        Ok(())
    }

    /// An object has another tag where it was moved to.
    fn update_moved_etag(&self, key: &ObjectKey, given: &ETag, there: &ETag) -> Result<()> {
        let inode = match self.layout.owner(key) {
            Some(ino) => Some(self.names.inode(ino)?),
            None => self.known_object(key)?,
        };
        let Some(inode) = inode else { return Ok(()) };
        let lies_there = |extent: &Extent| {
            extent.object.etag == *given
                && extent.object.key.as_ref().map_or(self.layout.owner(key).is_none(), |own| own == key)
        };
        let with_tag = |extent: &Extent| match lies_there(extent) {
            true => {
                Extent { object: Stored { etag: there.clone(), ..extent.object.clone() }, ..extent.clone() }
            }
            false => extent.clone(),
        };
        let (inode, stored) = self.names.content(inode.ino)?;
        if !stored.iter().any(lies_there) {
            return Ok(());
        }
        let (ino, size_bytes) = (inode.ino, inode.size_bytes);
        let base = inode.object().map(|object| object.etag.clone());
        let content = stored.iter().map(with_tag).collect();
        self.names.commit(&self.ctx(), &Op::Publish { ino, base, content, size_bytes, mtime: None })?;
        self.references.change_etag(ino, given, there);
        self.blocks.has_tag(ino, given, there);
        match self.files.get(ino) {
            Some(file) => file.repin(|| self.pin_of(ino)),
            None => Ok(()),
        }
    }

    /// What a key leads to, as far as it is known: a file, or the directory whose marker it is.
    fn known_object(&self, key: &ObjectKey) -> Result<Option<Inode>> {
        let Some(known) = self.known_path(key)?.filter(|known| known.is_last) else { return Ok(None) };
        match known.next {
            Some(name) => Ok(self.names.lookup(known.dir, &self.visible_name(known.dir, &name)?)?),
            None => Ok(Some(self.names.inode(known.dir)?)),
        }
    }

    /// Whether an object is the file that its key leads to, by what its headers say.
    fn is_known_object(&self, key: &ObjectKey, found: &ObjectMeta) -> Result<bool> {
        let inode = self.known_object(key)?;
        Ok(inode.is_some_and(|inode| headers::matches_inode(&inode, found)))
    }

    /// What a mount that ended had renamed goes on moving.
    pub(crate) fn resume_moves(&self) -> Result<()> {
        let Some(mover) = &self.mover else { return Ok(()) };
        self.replay_renames(&mover.pending())?;
        mover.resume();
        Ok(())
    }

    /// What the journal of moves says was renamed has its new name, also where the loss of power took that from the names: the
    /// bucket shows it there, and knows neither further names nor extended attributes.
    fn replay_renames(&self, renamed: &[Renamed]) -> Result<()> {
        for Renamed { from, to, etag } in renamed {
            let (Some(from), Some(to)) = (self.dentry_of_key(from)?, self.dentry_of_key(to)?) else {
                continue;
            };
            let Some(inode) = self.names.lookup(from.0, &from.1)? else { continue };
            let is_same = match etag {
                Some(etag) => inode.object().is_some_and(|object| object.etag == *etag),
                // One that was made since has nothing in it yet.
                None => inode.object().is_some() || !self.names.entries(inode.ino, None, 1)?.is_empty(),
            };
            let op = match self.names.entry(to.0, &to.1)? {
                _ if !is_same => continue,
                None => Op::Rename { from, to, how: RenameHow::NoReplace, keep: false },
                // The key was handed on to another of its names.
                Some(entry) if entry.ino == inode.ino => {
                    Op::HandOn { ino: inode.ino, parent: to.0, name: to.1 }
                }
                // Names that lost the rename lost all that came after it: what they have there is what it replaced.
                Some(entry) if self.may_replace(&inode, entry)? => {
                    Op::Rename { from, to, how: RenameHow::Replace, keep: false }
                }
                Some(_) => continue,
            };
            self.names.commit(&self.ctx(), &op)?;
        }
        Ok(())
    }

    /// Whether a rename may replace an entry by an inode: a file by a file, an empty directory by a directory.
    fn may_replace(&self, inode: &Inode, entry: Dentry) -> Result<bool> {
        let is_directory = entry.kind == Kind::Directory;
        let is_empty = !is_directory || self.names.entries(entry.ino, None, 1)?.is_empty();
        Ok(inode.is_dir() == is_directory && is_empty)
    }

    /// The name of a key, or of what keys begin with, if the way there is known.
    fn dentry_of_key(&self, text: &[u8]) -> Result<Option<(Ino, Name)>> {
        let Ok(key) = ObjectKey::new(text.strip_suffix(b"/").unwrap_or(text).to_vec()) else {
            return Ok(None);
        };
        let known = self.known_path(&key)?.filter(|known| known.is_last);
        Ok(known.and_then(|known| Some((known.dir, known.next?))))
    }

    /// Returns when what was renamed so far survives the loss of power.
    pub(crate) async fn sync_move_journal(&self) -> Result<()> {
        match &self.mover {
            Some(mover) => Ok(mover.sync_journal().await?),
            None => Ok(()),
        }
    }

    /// Returns when what was renamed lies in the bucket where it shows here, or could not be moved there for now. A mount that
    /// only reads moves nothing.
    pub async fn moves_rest(&self) {
        if let Some(mover) = self.active_mover() {
            mover.rests().await;
        }
    }

    /// Returns when everything that was renamed lies in the bucket where it shows here.
    pub async fn moves_end(&self) {
        if let Some(mover) = self.active_mover() {
            mover.arrived().await;
        }
    }

    /// Who moves objects here.
    fn active_mover(&self) -> Option<&Mover> {
        self.mover.as_deref().filter(|_| !self.config.read_only)
    }

    /// How many bytes of the journal of moves survive the loss of power: for simulators, which take the rest away.
    pub fn moves_synced_bytes(&self) -> u64 {
        self.mover.as_ref().map_or(0, |mover| mover.synced())
    }
}
