//! Connects a volume named by path with its [mover](staging::mover).
//!
//! The mover shows objects under their new keys at once and moves them in the background. It asks this module when it may
//! start, and whether an object whose headers were stored again is still the same file. It reports back when an object has
//! another etag at its destination.

use meta::{Dentry, Extent, Ino, Inode, Kind, Name, Op, Origin, RenameHow, Stored};
use staging::mover::{MoveObserver, Mover, MoverOptions, Renamed};
use staging::writeback::{UnfinishedRename, Writeback};
use std::sync::{Arc, Weak};
use store::{ETag, Entropy, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, StoreError};

use crate::Result;
use crate::base::Base;
use crate::bucket::conflicts::resolve::ConflictResolver;
use crate::bucket::headers;
use crate::bucket::known_state::KnownState;
use crate::bucket::parts::BucketParts;
use crate::config::Config;
use crate::content::Content;
use crate::layout::{KeySpace, etag, stored_at};
use crate::mount::Mount;
use crate::names::Names;
use crate::names::inodes::{KnownPath, commit_on_content, is_one_object_beside};

/// Keeps renames whose objects have not moved in the bucket yet, and the names, in agreement.
#[derive(Debug)]
pub struct Moves {
    pub(in crate::bucket) me: Weak<Self>,
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) known: Arc<KnownState>,
    pub(in crate::bucket) resolver: Arc<ConflictResolver>,
    pub(in crate::bucket) mover: Option<Arc<Mover>>,
}

impl Moves {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        resolver: &Arc<ConflictResolver>,
        mover: Option<Arc<Mover>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            resolver: resolver.clone(),
            mover,
        })
    }
}

/// Opens the mover: the store that a volume named by path uses, over a bucket.
pub(crate) fn open(
    store: &Arc<dyn ObjectStore>,
    entropy: &Arc<Entropy>,
    config: &Config,
) -> Result<Arc<Mover>> {
    let (prefix, joins_buckets) = (config.prefix.clone(), config.joins_buckets);
    let options = MoverOptions {
        copies_at_once: config.write_back,
        is_shared: config.is_shared,
        // If the volume's prefix leaves no space for a key in `lost+found`, this is the key itself, which the mover
        // refuses: the move stays pending.
        lost: Arc::new(move |key, unique| {
            let keys = KeySpace { prefix: &prefix, record: None, joins_buckets };
            keys.lost_key(key, unique).unwrap_or_else(|_| key.clone())
        }),
    };
    Ok(Mover::open(&config.moves_path, store.clone(), options, entropy.clone())?)
}

impl Moves {
    /// Returns the store that renames; `None` in a volume named by inode, where renames move no objects.
    pub(crate) fn mover(&self) -> Option<&Arc<Mover>> {
        self.mover.as_ref()
    }

    /// Installs the callbacks of the mover. Objects move only after the renames are durable, and are identified by their files.
    pub(crate) fn install_mover_callbacks(&self) {
        let Some(mover) = &self.mover else { return };
        let me = || self.me.clone();
        let (me_for_make_safe, me_for_knows, me_for_has_arrived, me_for_has_left, me_for_is_void) =
            (me(), me(), me(), me(), me());
        mover.set_observer(MoveObserver {
            make_safe: Box::new(move || {
                let me = me_for_make_safe.upgrade();
                Box::pin(async move {
                    let closed = || StoreError::Unavailable("the volume is closed".into());
                    let synced = me.ok_or_else(closed)?.names.sync_names().await;
                    synced.map_err(|error| StoreError::Unavailable(error.to_string()))
                })
            }),
            knows: Box::new(move |key, found| {
                me_for_knows.upgrade().is_some_and(|me| me.is_known_object(key, found).unwrap_or(false))
            }),
            has_arrived: Box::new(move |key, given, there| {
                let Some(me) = me_for_has_arrived.upgrade() else { return false };
                let is_known = me.take_over_etag(key, given, there);
                if !is_known {
                    // Another client may have stored the object just before its directory was renamed. On an error the name is revalidated
                    // when its TTL expires.
                    me.distrust(key).ok();
                }
                is_known
            }),
            has_left: Box::new(move |object| {
                if let Some(me) = me_for_has_left.upgrade() {
                    // On an error the object is found missing when it is opened.
                    me.known.forget_moved_object(object).ok();
                }
            }),
            is_void: Box::new(move |from, to| {
                if let Some(me) = me_for_is_void.upgrade() {
                    if let Some(sharing) = me.known.sharing() {
                        sharing.mark_void(to);
                    }
                    for key in [from, to] {
                        // On an error the name is revalidated when its TTL expires.
                        me.known.forget_listing_of(key).ok();
                    }
                }
            }),
            conflicts: self.resolver.callbacks(),
        });
    }

    /// Returns the key under which the mount shows the object that is stored at a key; `None` if an unfinished move deletes that object.
    pub fn visible_key(&self, stored_at: &ObjectKey) -> Option<ObjectKey> {
        match &self.mover {
            Some(mover) => mover.visible_key(stored_at),
            None => Some(stored_at.clone()),
        }
    }

    /// Returns whether the object that the mount shows under a key may still be stored at another key.
    pub fn is_moving(&self, key: &ObjectKey) -> bool {
        self.mover.as_ref().is_some_and(|mover| mover.is_moving(key))
    }

    /// Connects the write-back log below the store: conflicts of its uploads are decided here, and the names take over the etag of an
    /// uploaded object, so that they know it when the log has forgotten the provisional one.
    pub fn connect_writeback(&self, log: &Writeback) {
        if let Err(error) = self.finish_renames(&log.unfinished_renames()) {
            tracing::warn!(%error, "files that were being renamed when the last mount ended may have their old names too");
        }
        log.set_conflict_callbacks(self.resolver.callbacks());
        let me = self.me.clone();
        log.set_etag_observer(move |key, given, there| {
            let Some(me) = me.upgrade() else { return false };
            // An object that waits for its deletion has no name. It is known by the etag that the names had.
            if let Some(mover) = &me.mover
                && mover.is_deleting(&ObjectRef::new(key.clone(), there.clone()))
            {
                return true;
            }
            // If the object is still to move, the names have it under its new key.
            let is_known = me.visible_key(key).is_some_and(|key| {
                // A name whose content has changed since needs the etag no more.
                me.take_over_etag(&key, given, there)
                    || me.inode_of_object(&key).is_ok_and(|known| known.is_some())
            });
            if is_known && let Some(mover) = &me.mover {
                mover.renew_etag(key, given, there);
            }
            is_known
        });
    }

    /// Ends the renames that a kill interrupted after the log had their copies: gives the objects their new names if that was not committed,
    /// and deletes them at their old keys. A copy may have replaced an object, so it cannot be undone.
    fn finish_renames(&self, renames: &[UnfinishedRename]) -> Result<()> {
        let Some(mover) = &self.mover else { return Ok(()) };
        for rename in renames {
            let UnfinishedRename { from, copy, .. } = rename;
            let is_renamed = || {
                let inode = self.inode_of_object(&copy.key).ok().flatten();
                inode.is_some_and(|inode| etag(&inode).is_some_and(|etag| rename.has_copy(etag)))
            };
            for etag in rename.old_etags() {
                if is_renamed() {
                    break;
                }
                let (old, new) = (from.key.as_bytes(), copy.key.as_bytes());
                let ops = self.lost_rename(old, new, Some(etag), Some(copy))?;
                if !ops.is_empty() {
                    self.names.commit_together(Origin::Other, &ops)?;
                }
            }
            if is_renamed() {
                mover.delete_later(from)?;
            }
        }
        Ok(())
    }

    /// Like `update_etag`; logs an error.
    fn take_over_etag(&self, key: &ObjectKey, given: &ETag, there: &ETag) -> bool {
        self.update_etag(key, given, there).unwrap_or_else(|error| {
            // The next look finds the new etag, as if another client had stored the object.
            tracing::debug!(%key, %error, "cannot record the new etag of an object; it will look as if another client had stored it");
            true
        })
    }

    /// Records the etag `there` of an object under a key, in place of `given`, which the names have: the object was moved to the key, or
    /// uploaded from the write-back log. Returns whether the names had this object by this key.
    fn update_etag(&self, key: &ObjectKey, given: &ETag, there: &ETag) -> Result<bool> {
        let Some(Inode { ino, .. }) = self.inode_of_object(key)? else { return Ok(false) };
        let lies_there = |extent: &Extent| {
            extent.object.etag == *given
                && extent
                    .object
                    .key
                    .as_ref()
                    .map_or(self.mount.layout.content_owner(key).is_none(), |own| own == key)
        };
        let with_tag = |extent: &Extent| match lies_there(extent) {
            true => {
                Extent { object: Stored { etag: there.clone(), ..extent.object.clone() }, ..extent.clone() }
            }
            false => extent.clone(),
        };
        let with_new_etag = || {
            let (inode, stored) = self.names.tables().content(ino)?;
            if !stored.iter().any(lies_there) {
                return Ok(Vec::new());
            }
            let size_bytes = inode.size_bytes;
            let base = inode.object().map(|object| object.etag.clone());
            let content = stored.iter().map(with_tag).collect();
            Ok(vec![Op::Publish { ino, base, content, size_bytes, mtime: None }])
        };
        if commit_on_content(&self.names, Origin::Bookkeeping, with_new_etag)?.is_none() {
            return Ok(false);
        }
        self.content.change_etag(ino, given, there)?;
        Ok(true)
    }

    /// Makes the next lookup of a known name ask the bucket, because its key has another object than the one known.
    fn distrust(&self, key: &ObjectKey) -> Result<()> {
        if let Some((dir, name)) = self.names.visible_entry(key)?
            && self.names.tables().entry(dir, &name)?.is_some()
        {
            self.known.distrust(dir, &name);
        }
        Ok(())
    }

    /// Returns the inode whose object is, or was, stored under a key; `None` if the key has no known name.
    fn inode_of_object(&self, key: &ObjectKey) -> Result<Option<Inode>> {
        match self.mount.layout.content_owner(key) {
            Some(ino) => Ok(Some(self.names.tables().inode(ino)?)),
            None => self.known_object(key),
        }
    }

    /// Returns the known inode of a key: a file, or the directory whose marker it is. `None` if the key has no known
    /// name.
    fn known_object(&self, key: &ObjectKey) -> Result<Option<Inode>> {
        let Some(known) = self.names.known_path(key)?.filter(|known| known.is_last) else { return Ok(None) };
        match known.next {
            Some(name) => {
                Ok(self.names.tables().lookup(known.dir, &self.names.visible_name(known.dir, &name)?)?)
            }
            None => Ok(Some(self.names.tables().inode(known.dir)?)),
        }
    }

    /// Returns whether an object belongs to the file at its key, judged by its headers.
    fn is_known_object(&self, key: &ObjectKey, found: &ObjectMeta) -> Result<bool> {
        let inode = self.known_object(key)?;
        Ok(inode.is_some_and(|inode| headers::matches_inode(&inode, found)))
    }

    /// Resumes moves that an earlier mount did not complete.
    pub(crate) fn resume_moves(&self) -> Result<()> {
        let Some(mover) = &self.mover else { return Ok(()) };
        self.replay_renames(&mover.pending())?;
        mover.compare_with_names(|key, etag| self.known_at(key, Some(etag)).map(|known| known.is_some()))?;
        mover.resume();
        Ok(())
    }

    /// Applies renames of the move journal that a power loss removed from the names. The bucket shows the objects at their new
    /// keys, but has neither additional links nor extended attributes.
    fn replay_renames(&self, renamed: &[Renamed]) -> Result<()> {
        for Renamed { from, to, etag } in renamed {
            for place in from {
                let ops = self.lost_rename(place, to, etag.as_ref(), None)?;
                if !ops.is_empty() {
                    self.names.commit_together(Origin::Other, &ops)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the ops that repeat a lost rename in the names: they still have the object or tree at `from`, which the bucket has at `to`, or
    /// will have. Returns none if the names have no such object at `from`. If the object was copied to `to` already, its file gets the copy.
    fn lost_rename(
        &self,
        from: &[u8],
        to: &[u8],
        etag: Option<&ETag>,
        copy: Option<&ObjectRef>,
    ) -> Result<Vec<Op>> {
        let Some((from, inode)) = self.known_at(from, etag)? else { return Ok(Vec::new()) };
        let key = ObjectKey::new(to.to_vec()).ok();
        let moved = key.zip(etag).map(|(key, etag)| ObjectRef::new(key, etag.clone()));
        let Some(to_entry) = self.dentry_of_key(to)? else {
            // The object of a name that is too long for a key. The new name is lost, and the content stays with the old one.
            let is_own = |object: &ObjectRef| self.mount.layout.content_owner(&object.key) == Some(inode.ino);
            return match moved.filter(is_own) {
                Some(object) => Ok(vec![self.names.relocate_op(inode.ino, &stored_at(&object))?]),
                None => Ok(Vec::new()),
            };
        };
        let rename = match self.names.tables().entry(to_entry.0, &to_entry.1)? {
            None => Op::Rename { from, to: to_entry, how: RenameHow::NoReplace, keep: false },
            // The key was passed to another link of the same file.
            Some(entry) if entry.ino == inode.ino && !inode.is_beside() => {
                Op::HandOn { ino: inode.ino, parent: to_entry.0, name: to_entry.1 }
            }
            // If the rename was lost, later changes were lost too: the entry is the one that the rename replaced.
            Some(entry) if self.may_replace(&inode, entry)? => {
                Op::Rename { from, to: to_entry, how: RenameHow::Replace, keep: false }
            }
            Some(_) => return Ok(Vec::new()),
        };
        let publish = match copy.cloned().or_else(|| moved.filter(|_| inode.is_beside())) {
            Some(object) => Some(self.names.publish_op(inode.ino, &object, inode.size_bytes, None)?),
            None => None,
        };
        Ok([rename].into_iter().chain(publish).collect())
    }

    /// Returns the entry and the inode that the names have for a key or prefix with the object of this etag. A directory must have been stored
    /// or have entries: one that was created since is still empty.
    fn known_at(&self, place: &[u8], etag: Option<&ETag>) -> Result<Option<((Ino, Name), Inode)>> {
        let key = ObjectKey::new(place.to_vec()).ok();
        let owner = key.as_ref().and_then(|key| self.mount.layout.content_owner(key));
        if let Some(ino) = owner {
            let Ok(inode) = self.names.tables().inode(ino) else { return Ok(None) };
            let is_there = |object: &Stored| {
                object.key == key && Some(&object.etag) == etag && is_one_object_beside(&inode)
            };
            let home = inode.home.clone().filter(|_| inode.object().is_some_and(is_there));
            return Ok(home.map(|home| (home, inode)));
        }
        let Some(entry) = self.dentry_of_key(place)? else { return Ok(None) };
        let Some(inode) = self.names.tables().lookup(entry.0, &entry.1)? else { return Ok(None) };
        let is_there = match etag {
            // `place` is a prefix. A file that has the name of the directory now is not the renamed inode.
            None if place.ends_with(b"/") && !inode.is_dir() => false,
            Some(etag) => inode.object().is_some_and(|object| object.key.is_none() && object.etag == *etag),
            None => inode.object().is_some() || !self.names.tables().entries(inode.ino, None, 1)?.is_empty(),
        };
        Ok(is_there.then_some((entry, inode)))
    }

    /// Returns whether a rename to an entry may replace it: a file replaces a file, a directory an empty directory.
    fn may_replace(&self, inode: &Inode, entry: Dentry) -> Result<bool> {
        let is_directory = entry.kind == Kind::Directory;
        let is_empty = !is_directory || self.names.tables().entries(entry.ino, None, 1)?.is_empty();
        Ok(inode.is_dir() == is_directory && is_empty)
    }

    /// Returns the directory and name for a key or key prefix, if all directories above are known. A file beside a directory of its name
    /// has another name.
    fn dentry_of_key(&self, text: &[u8]) -> Result<Option<(Ino, Name)>> {
        let Ok(key) = ObjectKey::new(text.strip_suffix(b"/").unwrap_or(text).to_vec()) else {
            return Ok(None);
        };
        if !text.ends_with(b"/") {
            return self.names.visible_entry(&key);
        }
        let known = self.names.known_path(&key)?.filter(|known| known.is_last);
        Ok(known.and_then(|known| Some((known.dir, known.next?))))
    }

    /// Waits until the renames made so far survive a power loss.
    pub(crate) async fn sync_move_journal(&self) -> Result<()> {
        match &self.mover {
            Some(mover) => Ok(mover.sync_journal().await?),
            None => Ok(()),
        }
    }

    /// Waits until each renamed object is at its new key in the bucket, or could not be moved there for now. A read-only mount
    /// moves nothing and does not wait.
    pub async fn wait_until_at_rest(&self) {
        if let Some(mover) = self.active_mover() {
            mover.wait_until_idle().await;
        }
    }

    /// Waits until each renamed object is at its new key in the bucket. A read-only mount does not wait.
    pub async fn wait_until_complete(&self) {
        if let Some(mover) = self.active_mover() {
            mover.wait_until_all_moved().await;
        }
    }

    /// Returns the mover if this mount moves objects.
    fn active_mover(&self) -> Option<&Mover> {
        self.mover.as_deref().filter(|_| !self.mount.config.read_only)
    }

    /// Returns the length of the move journal that survives a power loss, in bytes. Simulators discard the rest.
    pub fn synced_journal_bytes(&self) -> u64 {
        self.mover.as_ref().map_or(0, |mover| mover.synced())
    }
}

impl KnownState {
    /// Forgets the listing of a key's directory, so that the key is looked up again.
    pub(crate) fn forget_listing_of(&self, key: &ObjectKey) -> Result<()> {
        if let Some(known) = self.names.known_path(key)? {
            self.directories.get(known.dir).forget();
        }
        Ok(())
    }

    /// Handles the removal of a renamed object from its old key. An earlier listing may still show it there.
    fn forget_moved_object(&self, object: &ObjectRef) -> Result<()> {
        let Some(KnownPath { dir, next: Some(name), is_last: true }) = self.names.known_path(&object.key)?
        else {
            return Ok(());
        };
        let shown = self.names.visible_name(dir, &name)?;
        for name in [&name, &shown] {
            self.changes.note_object_left(dir, name);
        }
        // A file that was being created at the name when the last mount ended is gone. So is a file whose rename is in the
        // journal but not in the names, which may know it by an earlier version. A look under way may be from before the removal, so
        // the directory is listed again.
        let local = self.names.tables().lookup(dir, &shown)?;
        if local.is_some_and(|local| !self.content.is_open(local.ino)) {
            self.directories.get(dir).forget();
        }
        Ok(())
    }
}
