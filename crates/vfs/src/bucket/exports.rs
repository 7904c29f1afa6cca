//! Background export: stores changed attributes, metadata and tags with their objects, and moves files to their paths.
//!
//! An attribute that changed after its file was stored is exported by copying the object onto itself with new headers. The
//! caller does not wait, several changes of one file are exported as one copy, and the number of concurrent copies is bounded.
//! One task does this, and runs only while exports are pending. The task also stores files at their path that could not be
//! stored there before.

use futures_util::StreamExt as _;
use meta::{Ino, Inode, Kind, Op};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use store::{CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, StoreError};

use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::fail_fast::Unanswered as _;
use crate::layout::stored;
use crate::outcomes::Outcomes;
use crate::{Error, Filesystem, Result};

/// Interval of the exporter. An inode is exported after a full interval without changes.
const TICK: Duration = Duration::from_millis(300);
/// Files to export concurrently.
const EXPORTED_AT_ONCE: usize = 16;
/// Maximum inodes in the exporter's window. Further pending inodes are only in the tables.
const WINDOW: usize = 4096;
/// Inodes that `sync` reads from the tables in one step.
const BATCH: usize = 1024;

/// The exporter's window on pending exports: inodes whose attributes are newer than the headers of their objects. The tables
/// contain all pending inodes.
#[derive(Debug, Default)]
pub(crate) struct Exports(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    /// Pending inodes, each with the tick in which it last changed.
    inodes: BTreeMap<Ino, u64>,
    tick: u64,
    has_exporter: bool,
    /// Whether the window had no space for some inodes, so that the tables must be walked from the beginning.
    is_overfull: bool,
    /// Progress of a walk of the tables.
    walk: Option<Walk>,
}

/// A walk of the tables: the last inode read.
#[derive(Debug, Clone, Copy)]
struct Walk(Option<Ino>);

impl Exports {
    /// Adds a changed inode. Returns true if the caller must start an exporter.
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

    /// Schedules a retry of a failed export, after the inodes for which the window had no space. Returns true if the caller
    /// must start an exporter.
    fn retry_later(&self, ino: Ino) -> bool {
        if self.is_behind() { self.start_walk() } else { self.insert(ino) }
    }

    /// Requests a walk of the tables. Returns true if the caller must start an exporter.
    fn start_walk(&self) -> bool {
        let mut window = self.lock();
        window.is_overfull = true;
        !std::mem::replace(&mut window.has_exporter, true)
    }

    /// Returns whether there are pending inodes outside the window.
    fn is_behind(&self) -> bool {
        let window = self.lock();
        window.is_overfull || window.walk.is_some()
    }

    /// Returns the inode after which to read the tables, and the free space of the window. `None` if there is nothing to read,
    /// or less than half of the window is free.
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

    /// Adds inodes read from the tables to the window. If they are fewer than `room`, the walk is complete.
    fn refill(&self, found: &[Ino], room: usize) {
        let mut window = self.lock();
        let tick = window.tick;
        for ino in found {
            window.inodes.entry(*ino).or_insert(tick);
        }
        window.walk = found.last().filter(|_| found.len() >= room).map(|last| Walk(Some(*last)));
    }

    /// Begins a tick. Returns the inodes that did not change in the previous tick, or `None` if nothing is pending and the
    /// exporter ends.
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

    /// Removes an inode from the window. It stays in the tables.
    pub(crate) fn remove(&self, ino: Ino) {
        self.lock().inodes.remove(&ino);
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem {
    /// Records in the tables that an inode's attributes must be exported, and schedules the export. The record survives a
    /// crash, and `sync` reads it.
    pub(crate) fn export_later(&self, ino: Ino) -> Result<()> {
        if !self.layout.follows_paths() || !self.has_headers(&self.names.inode(ino)?)? {
            return Ok(());
        }
        self.names.commit(&self.ctx(), &Op::AwaitExport { ino })?;
        self.export_soon(ino)
    }

    /// Adds the record of a pending export to `ops`, so that it is committed together with the change of attributes. The caller
    /// must then call [`Filesystem::export_soon`].
    pub(crate) fn with_export(&self, ino: Ino, mut ops: Vec<Op>) -> Result<Vec<Op>> {
        if self.layout.follows_paths() && self.has_headers(&self.names.inode(ino)?)? {
            ops.push(Op::AwaitExport { ino });
        }
        Ok(ops)
    }

    /// Schedules the export of an inode that has a record in the tables.
    pub(crate) fn export_soon(&self, ino: Ino) -> Result<()> {
        // Pending writes export the attributes when they are published.
        let is_dirty = self.files.get(ino).is_some_and(|file| file.pending().is_dirty);
        if !is_dirty && self.awaits_export(ino) && self.exports.insert(ino) {
            self.start_exporter();
        }
        Ok(())
    }

    /// Returns whether an inode has an object whose headers hold its attributes.
    fn has_headers(&self, inode: &Inode) -> Result<bool> {
        let is_stored = inode.object().is_some() || inode.kind == Kind::Directory;
        Ok(is_stored && inode.ino != Ino::ROOT && self.has_path_key(inode)?)
    }

    /// Returns whether an inode's attributes are newer than the headers of its object. Returns true if the tables cannot be
    /// read.
    pub(crate) fn awaits_export(&self, ino: Ino) -> bool {
        self.layout.follows_paths() && !matches!(self.names.waiting_export(ino), Ok(None))
    }

    /// Returns the number of inodes with pending exports.
    pub(crate) fn exports_waiting(&self) -> usize {
        let (mut after, mut count) = (None, 0);
        while let Ok(found) = self.names.waiting_exports(after, BATCH)
            && let Some(last) = found.last()
        {
            (after, count) = (Some(*last), count + found.len());
        }
        count
    }

    /// Resumes exports that were pending when the last mount ended.
    pub(crate) fn resume_exports(&self) -> Result<()> {
        let waits = !self.config.read_only && !self.names.waiting_exports(None, 1)?.is_empty();
        if waits && self.exports.start_walk() {
            self.start_exporter();
        }
        Ok(())
    }

    /// Exports all pending inodes. Tries all of them, unless the store stops answering. Returns the first error.
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
            if outcome.as_ref().is_err_and(Error::is_unanswered) {
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
            Err(error) => tracing::warn!(%error, "cannot read the list of pending attribute exports"),
        }
    }

    async fn try_export(&self, ino: Ino) {
        if let Err(error) = self.export_now(ino).await {
            tracing::warn!(%ino, %error, "cannot export attributes to the object's headers; will retry");
        }
    }

    /// Exports an inode's attributes now, if an export is pending.
    pub(crate) async fn export_now(&self, ino: Ino) -> Result<()> {
        if !self.layout.follows_paths() {
            return Ok(());
        }
        self.exports.remove(ino);
        // Read this before the attributes: a later change has another number, and its record stays.
        let Some(change) = self.names.waiting_export(ino)? else { return Ok(()) };
        let outcome = loop {
            match self.export(ino).await {
                Err(Error::Store(StoreError::Invalid(why))) if self.drop_refused_pending(ino, &why)? => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(true) => self.note_exported(ino, Some(change)),
            Ok(false) => Ok(()),
            Err(error) => {
                if self.exports.retry_later(ino) {
                    self.start_exporter();
                }
                Err(error)
            }
        }
    }

    /// Removes the record of a pending export up to this change, after the object's headers were stored.
    pub(crate) fn note_exported(&self, ino: Ino, change: Option<u64>) -> Result<()> {
        let Some(change) = change else { return Ok(()) };
        self.names.commit(&self.ctx(), &Op::Exported { ino, change })?;
        self.export_soon(ino)
    }

    /// Exports an inode. Returns false if the file has unpublished writes: its attributes are stored together with them later.
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
            let mut work = file.write_state.lock().await;
            match work.is_published() {
                true if inode.is_beside() || inode.is_ahead() => {
                    match self.try_show_at_path(&file, &mut work).await {
                        // Another client's object is at the path and this file's bytes are in `lost+found`, or the server does
                        // not support such keys.
                        Err(Error::Stale(_) | Error::Store(StoreError::InvalidKey { .. })) => Ok(true),
                        shown => shown.map(|()| true),
                    }
                }
                true => self.copy_onto_itself(&file).await.map(|()| work.rebase_on_pin(&file)).map(|()| true),
                false => Ok(false),
            }
        };
        file.close().await?;
        outcome
    }

    async fn copy_onto_itself(&self, file: &crate::content::open_file::OpenFile) -> Result<()> {
        let _path = self.lock_path(file.ino).await?;
        let Some(object) = self.object(&self.names.inode(file.ino)?)? else { return Ok(()) };
        // The claim keeps the endpoint from storing another object under the key, which would be taken for this one.
        let _claim = self.claims.claim(&object.key).await;
        let inode = self.names.inode(file.ino)?;
        let Some(old) = self.object(&inode)?.filter(|_| inode.home.is_some()) else { return Ok(()) };
        self.ensure_volume_record().await?;
        let described = match self.store.head(&old.key).await {
            Ok(meta) if meta.object.etag == old.etag => meta,
            // An earlier attempt succeeded, but its answer was lost.
            Ok(meta)
                if file.is_unconfirmed_upload(&meta.attributes, meta.size_bytes)
                    || headers::matches_inode(&inode, &meta) =>
            {
                self.relocate(&inode, &stored(&meta.object))?;
                file.repin(|| self.pin_of(inode.ino))?;
                meta
            }
            Ok(_) | Err(StoreError::NotFound(_)) => {
                file.clear_unconfirmed();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (old, inode) = (described.object.clone(), self.names.inode(file.ino)?);
        let had = self.current_description(&inode, &described).await?;
        let wanted = self.updated_description(&inode, had.clone())?;
        file.record_upload(&wanted.attributes, described.size_bytes);
        match self.redescribe(&described, &had, &wanted).await {
            Ok(object) => {
                if object.etag != old.etag {
                    self.relocate(&inode, &stored(&object))?;
                    // The bytes are the same, so cached data stays valid.
                    self.references.change_etag(inode.ino, &old.etag, &object.etag);
                    self.blocks.retag(inode.ino, &old.etag, &object.etag);
                }
                file.repin(|| self.pin_of(inode.ino))?;
                file.clear_unconfirmed();
                self.retag(&inode, &old.key, &had, &wanted).await
            }
            // Another client stored other bytes meanwhile, with their own headers.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                file.clear_unconfirmed();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Exports a directory's attributes to its marker object, if it has one. Otherwise stores a new marker.
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
        let had = self.current_description(inode, &marker).await?;
        let wanted = self.updated_description(inode, had.clone())?;
        let object = self.redescribe(&marker, &had, &wanted).await?;
        self.publish(inode, &object, 0, None)?;
        self.retag(inode, &object.key, &had, &wanted).await
    }

    /// Returns the current metadata of an object. Its tags are requested only if changes of tags are pending.
    async fn current_description(&self, inode: &Inode, meta: &ObjectMeta) -> Result<Described> {
        match self.has_pending_tags(inode.ino)? {
            true => Ok(self.read_description(meta).await?),
            false => Ok(meta.attributes.clone().into()),
        }
    }

    /// Replaces an object's headers by copying it onto itself.
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
            // Perhaps only the answer was lost, or the copy was made twice. Then the object has another etag.
            Err(error) => {
                let stored = self.already_stored(&old.key, &wanted.attributes, there.size_bytes).await;
                stored.unwrap_or(None).ok_or(error)
            }
            copied => copied,
        }
    }

    /// Replaces the tags of an object that has the wanted headers, and clears the pending changes.
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

/// Exports pending inodes, tick by tick, until none are left.
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
    fn changing_inodes_wait_and_the_exporter_ends_after_the_last_one() {
        let exports = Exports::default();
        assert!(exports.insert(Ino(2)), "the first change starts an exporter");
        assert!(!exports.insert(Ino(3)));
        assert_eq!(exports.next_tick(), Some(vec![]), "no inode was unchanged for a whole tick yet");
        exports.insert(Ino(3));
        assert_eq!(exports.next_tick(), Some(vec![Ino(2)]));
        exports.remove(Ino(2));
        assert_eq!(exports.next_tick(), Some(vec![Ino(3)]));
        exports.remove(Ino(3));
        assert_eq!(exports.next_tick(), None);
        assert!(exports.insert(Ino(4)), "the next change starts another");
    }

    /// Regression: `chmod -R` on ten million files kept ten million entries in memory.
    #[test]
    fn the_window_is_bounded_and_the_rest_is_read_from_the_tables() {
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
