//! Attributes, metadata and tags on their way to objects, and files on their way to their paths.
//!
//! An attribute changed after its file was stored is exported by copying the object onto itself with new headers:
//! not in the caller's way, many changes of one file as one copy, a bounded number of files at a time. One task
//! does it, and only while something waits. So is a file stored at its path that could not be before.

use futures_util::StreamExt as _;
use meta::{Ino, Inode, Kind, Op};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use store::{CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, StoreError};

use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::layout::stored;
use crate::ops::Outcomes;
use crate::turns::Silence as _;
use crate::{Error, Filesystem, Result};

/// How often the exporter looks; what has been left alone for a whole tick is exported.
const TICK: Duration = Duration::from_millis(300);
/// Files exported at the same time.
const EXPORTED_AT_ONCE: usize = 16;
/// Inodes in the exporter's window. Further ones wait in the tables alone.
const WINDOW: usize = 4096;
/// Inodes that `sync` reads from the tables in one step.
const BATCH: usize = 1024;

/// The exporter's window on the inodes whose headers are older than their attributes. The tables have all of them.
#[derive(Debug, Default)]
pub(crate) struct Exports(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    /// By inode: the exporter's tick in which it was last changed.
    inodes: BTreeMap<Ino, u64>,
    tick: u64,
    has_exporter: bool,
    /// Inodes wait in the tables for which the window had no room: the tables are to be walked from the beginning.
    is_overfull: bool,
    /// How far a walk of the tables is.
    walk: Option<Walk>,
}

/// A walk of the tables: the last inode that it has seen.
#[derive(Debug, Clone, Copy)]
struct Walk(Option<Ino>);

impl Exports {
    /// Notes a change; true if an exporter has to be started.
    fn insert(&self, ino: Ino) -> bool {
        let mut window = self.lock();
        let tick = window.tick;
        if window.inodes.len() < WINDOW || window.inodes.contains_key(&ino) {
            window.inodes.insert(ino, tick);
        } else {
            window.is_overfull = true;
        }
        !std::mem::replace(&mut window.has_exporter, true)
    }

    /// Notes that an export failed: it is repeated after those for which the window had no room.
    fn retry_later(&self, ino: Ino) -> bool {
        if self.is_behind() { self.start_walk() } else { self.insert(ino) }
    }

    /// Has the tables walked; true if an exporter has to be started.
    fn start_walk(&self) -> bool {
        let mut window = self.lock();
        window.is_overfull = true;
        !std::mem::replace(&mut window.has_exporter, true)
    }

    /// Whether inodes wait that are not in the window.
    fn is_behind(&self) -> bool {
        let window = self.lock();
        window.is_overfull || window.walk.is_some()
    }

    /// The inode after which to read the tables, and how many the window has room for; `None` where there is nothing to
    /// read, or hardly any room.
    fn next_walk(&self) -> Option<(Option<Ino>, usize)> {
        let mut window = self.lock();
        let room = WINDOW - window.inodes.len();
        if room < WINDOW / 2 {
            return None;
        }
        if window.walk.is_none() && std::mem::take(&mut window.is_overfull) {
            window.walk = Some(Walk(None));
        }
        window.walk.map(|Walk(after)| (after, room))
    }

    /// Takes up what was read of the tables; fewer than there was room for are the last.
    fn refill(&self, found: &[Ino], room: usize) {
        let mut window = self.lock();
        let tick = window.tick;
        for ino in found {
            window.inodes.entry(*ino).or_insert(tick);
        }
        window.walk = found.last().filter(|_| found.len() >= room).map(|last| Walk(Some(*last)));
    }

    /// Begins a tick: the inodes that were left alone in the one before; `None` if nothing waits and the exporter
    /// ends.
    fn next_tick(&self) -> Option<Vec<Ino>> {
        let mut window = self.lock();
        if window.inodes.is_empty() && !window.is_overfull && window.walk.is_none() {
            window.has_exporter = false;
            return None;
        }
        let tick = window.tick;
        window.tick += 1;
        Some(window.inodes.iter().filter(|(_, changed)| **changed < tick).map(|(ino, _)| *ino).collect())
    }

    /// Takes an inode out of the window. The tables still have it.
    pub(crate) fn remove(&self, ino: Ino) {
        self.lock().inodes.remove(&ino);
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem {
    /// Exports an inode's attributes once they have been left alone for a while. The tables note it, so that neither a
    /// crash nor `sync` forgets it.
    pub(crate) fn export_later(&self, ino: Ino) -> Result<()> {
        if !self.layout.follows_paths() || !self.has_headers(&self.names.inode(ino)?)? {
            return Ok(());
        }
        self.names.commit(&self.ctx(), &Op::AwaitExport { ino })?;
        self.export_soon(ino)
    }

    /// Adds the note that an inode's export waits to the op that changes its attributes: both are one commit. To be
    /// followed by [`Filesystem::export_soon`].
    pub(crate) fn with_export(&self, ino: Ino, mut ops: Vec<Op>) -> Result<Vec<Op>> {
        if self.layout.follows_paths() && self.has_headers(&self.names.inode(ino)?)? {
            ops.push(Op::AwaitExport { ino });
        }
        Ok(ops)
    }

    /// Hands an inode whose export is noted in the tables to the exporter.
    pub(crate) fn export_soon(&self, ino: Ino) -> Result<()> {
        // Writes take them along when they are published.
        let is_dirty = self.files.get(ino).is_some_and(|file| file.pending().is_dirty);
        if !is_dirty && self.awaits_export(ino) && self.exports.insert(ino) {
            self.start_exporter();
        }
        Ok(())
    }

    /// Whether an inode has an object with headers that say what its attributes are.
    fn has_headers(&self, inode: &Inode) -> Result<bool> {
        let is_stored = inode.object().is_some() || inode.kind == Kind::Directory;
        Ok(is_stored && inode.ino != Ino::ROOT && self.has_path_key(inode)?)
    }

    /// Whether an inode's attributes are newer than the headers of its object, as far as the tables can be read.
    pub(crate) fn awaits_export(&self, ino: Ino) -> bool {
        self.layout.follows_paths() && !matches!(self.names.waiting_export(ino), Ok(None))
    }

    /// How many inodes' attributes are newer than the headers of their objects.
    pub(crate) fn exports_waiting(&self) -> usize {
        let (mut after, mut count) = (None, 0);
        while let Ok(found) = self.names.waiting_exports(after, BATCH)
            && let Some(last) = found.last()
        {
            (after, count) = (Some(*last), count + found.len());
        }
        count
    }

    /// Exports what waited when the last mount ended.
    pub(crate) fn resume_exports(&self) -> Result<()> {
        let waits = !self.config.read_only && !self.names.waiting_exports(None, 1)?.is_empty();
        if waits && self.exports.start_walk() {
            self.start_exporter();
        }
        Ok(())
    }

    /// Exports everything that waits. Tries all, unless the store does not answer; returns the first error.
    pub(crate) async fn export_all(&self) -> Result<()> {
        let (mut after, mut outcome) = (None, Ok(()));
        if self.config.read_only {
            return outcome;
        }
        loop {
            let found = self.names.waiting_exports(after, BATCH)?;
            let Some(last) = found.last() else { return outcome };
            after = Some(*last);
            let outcomes = Outcomes::default();
            let export = |ino: Ino| {
                let outcomes = &outcomes;
                async move { outcomes.add(self.export_now(ino)).await }
            };
            futures_util::stream::iter(found).for_each_concurrent(EXPORTED_AT_ONCE, export).await;
            outcome = outcome.and(outcomes.into_result());
            if outcome.as_ref().is_err_and(Error::is_silence) {
                return outcome;
            }
        }
    }

    fn start_exporter(&self) {
        let me = self.me.clone();
        tokio::spawn(store::supervise("export of attributes", move || run_exporter(me.clone())));
    }

    /// Fills the window from the tables.
    fn walk_exports(&self) {
        let Some((after, room)) = self.exports.next_walk() else { return };
        match self.names.waiting_exports(after, room) {
            Ok(found) => self.exports.refill(&found, room),
            Err(error) => tracing::warn!(%error, "attributes that wait to be exported cannot be read"),
        }
    }

    async fn try_export(&self, ino: Ino) {
        if let Err(error) = self.export_now(ino).await {
            tracing::warn!(%ino, %error, "attributes could not be exported to the object's headers; they are tried again");
        }
    }

    /// Exports an inode's attributes now, if they wait.
    pub(crate) async fn export_now(&self, ino: Ino) -> Result<()> {
        if !self.layout.follows_paths() {
            return Ok(());
        }
        self.exports.remove(ino);
        // Read before the attributes: a later change has another number, and its note stays.
        let Some(change) = self.names.waiting_export(ino)? else { return Ok(()) };
        let outcome = loop {
            match self.export(ino).await {
                Err(Error::Store(StoreError::Invalid(why))) if self.drop_refused_pending(ino, &why)? => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(true) => self.exported(ino, Some(change)),
            Ok(false) => Ok(()),
            Err(error) => {
                if self.exports.retry_later(ino) {
                    self.start_exporter();
                }
                Err(error)
            }
        }
    }

    /// The object's headers say what the attributes were after the change with this number, if any waited.
    pub(crate) fn exported(&self, ino: Ino, change: Option<u64>) -> Result<()> {
        let Some(change) = change else { return Ok(()) };
        self.names.commit(&self.ctx(), &Op::Exported { ino, change })?;
        self.export_soon(ino)
    }

    /// Whether it is done; a file with unpublished writes is stored with its attributes later.
    async fn export(&self, ino: Ino) -> Result<bool> {
        let Ok(inode) = self.names.inode(ino) else {
            self.renamed.forget(ino);
            return Ok(true);
        };
        if inode.kind == Kind::Directory {
            return self.export_directory(&inode).await.map(|()| true);
        }
        let file = self.open_file(ino)?;
        let outcome = {
            let mut work = file.work.lock().await;
            match work.is_published() {
                true if inode.is_beside() || inode.is_ahead() => {
                    match self.try_to_show(&file, &mut work).await {
                        // Somebody else's object is there, and ours is in `lost+found`; or the server has no such keys.
                        Err(Error::Stale(_) | Error::Store(StoreError::InvalidKey { .. })) => Ok(true),
                        shown => shown.map(|()| true),
                    }
                }
                true => self.copy_onto_itself(&file).await.map(|()| work.follow(&file)).map(|()| true),
                false => Ok(false),
            }
        };
        file.close().await?;
        outcome
    }

    async fn copy_onto_itself(&self, file: &crate::content::open_file::OpenFile) -> Result<()> {
        let _path = self.lock_path(file.ino).await?;
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
                if file.has_tried(&meta.attributes, meta.size_bytes)
                    || headers::matches_inode(&inode, &meta) =>
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
        let had = self.with_tags_if_pending(&inode, &described).await?;
        let wanted = self.updated_description(&inode, had.clone())?;
        file.tries(&wanted.attributes, described.size_bytes);
        match self.redescribe(&described, &had, &wanted).await {
            Ok(object) => {
                if object.etag != old.etag {
                    self.relocate(&inode, &stored(&object))?;
                    // The bytes are the same: what was read of them need not be read again.
                    self.references.change_etag(inode.ino, &old.etag, &object.etag);
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
        let _path = self.lock_path(inode.ino).await?;
        let _claim = self.claims.claim(&marker.object.key).await;
        let had = self.with_tags_if_pending(inode, &marker).await?;
        let wanted = self.updated_description(inode, had.clone())?;
        let object = self.redescribe(&marker, &had, &wanted).await?;
        self.publish(inode, &object, 0, None)?;
        self.retag(inode, &object.key, &had, &wanted).await
    }

    /// What an object has; its tags are only asked for where some wait.
    async fn with_tags_if_pending(&self, inode: &Inode, meta: &ObjectMeta) -> Result<Described> {
        match self.has_pending_tags(inode.ino)? {
            true => Ok(self.read_description(meta).await?),
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
        self.metadata_cache.forget(inode.ino);
        if wanted.tags != had.tags {
            self.store.set_tags(key, wanted.tags.clone()).await?;
        }
        match self.clear_stored_pending(inode.ino, wanted)? {
            true => self.export_later(inode.ino),
            false => {
                self.renamed.forget(inode.ino);
                Ok(())
            }
        }
    }
}

/// Exports what waits, tick by tick, until nothing waits any more.
async fn run_exporter(me: Weak<Filesystem>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(me) = me.upgrade() else { return };
        me.walk_exports();
        let Some(due) = me.exports.next_tick() else { return };
        let export = |ino| me.try_export(ino);
        futures_util::stream::iter(due).for_each_concurrent(EXPORTED_AT_ONCE, export).await;
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
        assert_eq!(exports.next_tick(), Some(vec![]), "nothing was left alone for a whole tick yet");
        exports.insert(Ino(3));
        assert_eq!(exports.next_tick(), Some(vec![Ino(2)]));
        exports.remove(Ino(2));
        assert_eq!(exports.next_tick(), Some(vec![Ino(3)]));
        exports.remove(Ino(3));
        assert_eq!(exports.next_tick(), None);
        assert!(exports.insert(Ino(4)), "the next change starts another");
    }

    /// `chmod -R` on ten million files held ten million entries in memory.
    #[test]
    fn the_window_is_bounded_and_the_tables_are_walked_for_the_rest() {
        let exports = Exports::default();
        let all: Vec<Ino> = (2..2 + 3 * WINDOW as u64).map(Ino).collect();
        for ino in &all {
            exports.insert(*ino);
        }
        let mut exported = std::collections::BTreeSet::new();
        for _ in 0..20 {
            if let Some((after, room)) = exports.next_walk() {
                let left = all.iter().filter(|ino| !exported.contains(*ino) && Some(**ino) > after);
                exports.refill(&left.copied().take(room).collect::<Vec<_>>(), room);
            }
            let Some(due) = exports.next_tick() else { break };
            assert!(exports.lock().inodes.len() <= WINDOW);
            for ino in due {
                exports.remove(ino);
                exported.insert(ino);
            }
        }
        assert_eq!(exported.len(), all.len());
        assert_eq!(exports.next_tick(), None, "the exporter ends");
    }
}
