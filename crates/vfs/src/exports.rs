//! Attributes, metadata and tags on their way to objects, and files on their way to their paths.
//!
//! An attribute changed after its file was stored is exported by copying the object onto itself with new headers:
//! not in the caller's way, many changes of one file as one copy, a bounded number of files at a time. One task
//! does it, and only while something waits. So is a file stored at its path that could not be before.

use futures_util::StreamExt as _;
use meta::{Ino, Inode, Kind};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, StoreError};

use crate::headers;
use crate::layout::stored;
use crate::metadata::Described;
use crate::{Error, Filesystem, Result};

/// How often the exporter looks; what has been left alone for a whole turn is exported.
const TURN: Duration = Duration::from_millis(300);
/// Files exported at the same time.
const EXPORTED_AT_ONCE: usize = 16;

/// Inodes whose headers are older than their attributes.
#[derive(Debug, Default)]
pub(crate) struct Exports(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// By inode: the exporter's turn in which it was last changed.
    inodes: BTreeMap<Ino, u64>,
    turn: u64,
    has_exporter: bool,
}

impl Exports {
    /// Notes a change; true if an exporter has to be started.
    fn insert(&self, ino: Ino) -> bool {
        let mut waiting = self.lock();
        let turn = waiting.turn;
        waiting.inodes.insert(ino, turn);
        !std::mem::replace(&mut waiting.has_exporter, true)
    }

    /// Begins a turn: the inodes that were left alone in the one before; `None` if nothing waits and the exporter
    /// ends.
    fn next_turn(&self) -> Option<Vec<Ino>> {
        let mut waiting = self.lock();
        if waiting.inodes.is_empty() {
            waiting.has_exporter = false;
            return None;
        }
        let turn = waiting.turn;
        waiting.turn += 1;
        Some(waiting.inodes.iter().filter(|(_, changed)| **changed < turn).map(|(ino, _)| *ino).collect())
    }

    pub(crate) fn remove(&self, ino: Ino) -> bool {
        self.lock().inodes.remove(&ino).is_some()
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.lock().inodes.contains_key(&ino)
    }

    pub(crate) fn all(&self) -> Vec<Ino> {
        self.lock().inodes.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().inodes.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem {
    /// Exports an inode's attributes once they have been left alone for a while.
    pub(crate) fn export_later(&self, ino: Ino) -> Result<()> {
        if !self.layout.follows_paths() {
            return Ok(());
        }
        let inode = self.names.inode(ino)?;
        let is_stored =
            self.has_path_key(&inode)? && (inode.object().is_some() || inode.kind == Kind::Directory);
        // Writes take them along when they are published.
        let is_dirty = self.files.get(ino).is_some_and(|file| file.pending().is_dirty);
        if !is_stored || ino == Ino::ROOT || is_dirty || !self.exports.insert(ino) {
            return Ok(());
        }
        let me = self.me.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TURN).await;
                let Some(me) = me.upgrade() else { return };
                let Some(due) = me.exports.next_turn() else { return };
                futures_util::stream::iter(due)
                    .for_each_concurrent(EXPORTED_AT_ONCE, |ino| me.try_export(ino))
                    .await;
            }
        });
        Ok(())
    }

    async fn try_export(&self, ino: Ino) {
        if let Err(error) = self.export_now(ino).await {
            tracing::warn!(%ino, %error, "attributes could not be exported to the object's headers; they are tried again");
        }
    }

    /// Exports an inode's attributes now, if they wait.
    pub(crate) async fn export_now(&self, ino: Ino) -> Result<()> {
        if !self.exports.remove(ino) {
            return Ok(());
        }
        let outcome = loop {
            match self.export(ino).await {
                Err(Error::Store(StoreError::Invalid(why))) if self.refuse_waiting(ino, &why)? => {}
                outcome => break outcome,
            }
        };
        if outcome.is_err() {
            self.export_later(ino)?;
        }
        outcome
    }

    async fn export(&self, ino: Ino) -> Result<()> {
        let Ok(inode) = self.names.inode(ino) else {
            self.renamed.forget(ino);
            return Ok(());
        };
        if inode.kind == Kind::Directory {
            return self.export_directory(&inode).await;
        }
        let file = self.open_file(ino)?;
        let outcome = {
            let mut work = file.work.lock().await;
            match work.is_published() {
                true if inode.is_beside() || inode.is_ahead() => {
                    match self.try_to_show(&file, &mut work).await {
                        // Somebody else's object is there, and ours is in `lost+found`; or the server has no such keys.
                        Err(Error::Stale(_) | Error::Store(StoreError::InvalidKey { .. })) => Ok(()),
                        shown => shown,
                    }
                }
                true => self.copy_onto_itself(&file).await.map(|()| work.follow(&file)),
                false => Ok(()),
            }
        };
        self.close_file(&file).await?;
        outcome
    }

    async fn copy_onto_itself(&self, file: &crate::open_file::OpenFile) -> Result<()> {
        let _moves = self.moves.read().await;
        let Some(object) = self.object(&self.names.inode(file.ino)?)? else { return Ok(()) };
        // Else who looks at what the endpoint stored there meanwhile would take it for this.
        let _claim = self.claims.claim(&object.key).await;
        let inode = self.names.inode(file.ino)?;
        let Some(old) = self.object(&inode)?.filter(|_| inode.home.is_some()) else { return Ok(()) };
        self.ensure_volume_record().await?;
        let described = match self.store.head(&old.key).await {
            Ok(meta) if meta.object.etag == old.etag => meta,
            // An earlier attempt got there.
            Ok(meta)
                if file.has_tried(&meta.attributes, meta.size_bytes) || headers::are_of(&inode, &meta) =>
            {
                self.relocate(&inode, &stored(&meta.object))?;
                file.repin(|| self.pin_of(inode.ino))?;
                meta
            }
            Ok(_) | Err(StoreError::NotFound(_)) => {
                file.forget_tried();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (old, inode) = (described.object.clone(), self.names.inode(file.ino)?);
        let had = self.with_waiting_tags(&inode, &described).await?;
        let wanted = self.to_store_with(&inode, had.clone())?;
        file.tries(&wanted.attributes, described.size_bytes);
        match self.redescribe(&described, &had, &wanted).await {
            Ok(object) => {
                if object.etag != old.etag {
                    self.relocate(&inode, &stored(&object))?;
                    // The bytes are the same: what was read of them need not be read again.
                    self.references.has_tag(inode.ino, &old.etag, &object.etag);
                    self.blocks.has_tag(inode.ino, &old.etag, &object.etag);
                }
                file.repin(|| self.pin_of(inode.ino))?;
                file.forget_tried();
                self.retag(&inode, &old.key, &had, &wanted).await
            }
            // Somebody stored other bytes meanwhile; their headers are theirs.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                file.forget_tried();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A directory's marker is an object like any other, if there is one.
    async fn export_directory(&self, inode: &Inode) -> Result<()> {
        let marker = match self.object(inode)? {
            Some(object) => self.store.find(&object.key).await?,
            None => None,
        };
        let Some(marker) = marker.filter(|marker| marker.size_bytes > 0) else {
            return self.store_new(inode, bytes::Bytes::new(), Precondition::None).await;
        };
        let _moves = self.moves.read().await;
        let _claim = self.claims.claim(&marker.object.key).await;
        let had = self.with_waiting_tags(inode, &marker).await?;
        let wanted = self.to_store_with(inode, had.clone())?;
        let object = self.redescribe(&marker, &had, &wanted).await?;
        self.publish(inode, &object, 0, None)?;
        self.retag(inode, &object.key, &had, &wanted).await
    }

    /// What an object has; its tags are only asked for where some wait.
    async fn with_waiting_tags(&self, inode: &Inode, meta: &ObjectMeta) -> Result<Described> {
        match self.has_waiting_tags(inode.ino)? {
            true => Ok(self.with_tags(meta).await?),
            false => Ok(meta.attributes.clone().into()),
        }
    }

    /// Stores other headers with an object by copying it onto itself.
    async fn redescribe(
        &self,
        there: &ObjectMeta,
        had: &Described,
        wanted: &Described,
    ) -> Result<ObjectRef, StoreError> {
        let old = &there.object;
        if wanted.attributes == had.attributes {
            return Ok(old.clone());
        }
        let attributes = Some(wanted.attributes.clone());
        let options = CopyOptions { attributes, ..CopyOptions::default() };
        match self.store.copy(old, &old.key, options).await {
            // Only the answer may have been lost, or the copy made twice: the object has another tag then.
            Err(error) => {
                let stored = self.already_stored(&old.key, &wanted.attributes, there.size_bytes).await;
                stored.unwrap_or(None).ok_or(error)
            }
            copied => copied,
        }
    }

    /// Stores other tags with an object that has its headers: it is described as its inode wants it then.
    async fn retag(&self, inode: &Inode, key: &ObjectKey, had: &Described, wanted: &Described) -> Result<()> {
        self.known.forget(inode.ino);
        if wanted.tags != had.tags {
            self.store.set_tags(key, wanted.tags.clone()).await?;
        }
        match self.settle_waiting(inode.ino, wanted)? {
            true => self.export_later(inode.ino),
            false => {
                self.renamed.forget(inode.ino);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_changing_waits_and_the_last_one_ends_the_exporter() {
        let exports = Exports::default();
        assert!(exports.insert(Ino(2)), "the first change starts an exporter");
        assert!(!exports.insert(Ino(3)));
        assert_eq!(exports.next_turn(), Some(vec![]), "nothing was left alone for a whole turn yet");
        exports.insert(Ino(3));
        assert_eq!(exports.next_turn(), Some(vec![Ino(2)]));
        assert!(exports.remove(Ino(2)));
        assert_eq!(exports.next_turn(), Some(vec![Ino(3)]));
        assert!(exports.remove(Ino(3)));
        assert_eq!(exports.next_turn(), None);
        assert!(exports.insert(Ino(4)), "the next change starts another");
    }
}
