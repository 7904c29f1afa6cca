//! Pending exports: inodes whose attributes, metadata or tags wait to be stored with their objects. A bounded window in
//! memory on the list that the tables keep.

use meta::{Ino, Inode, Moment, Op, Origin};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use store::ObjectMeta;

use crate::Result;
use crate::base::Base;
use crate::bucket::headers;
use crate::bucket::rewrites::Rewrites;
use crate::content::Content;
use crate::layout::stored;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::inodes::commit_on_content;

/// The pending exports, and the function that starts the task that makes them.
#[derive(Debug)]
pub(crate) struct ExportQueue {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    /// Inodes whose attributes wait to be exported, as far as they are in memory.
    pub(in crate::bucket) window: Exports,
    /// The objects that are being copied onto themselves.
    pub(in crate::bucket) rewrites: Rewrites,
    /// The function that starts the exporter's task; set once.
    pub(in crate::bucket) starter: OnceLock<Starter>,
}

impl ExportQueue {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            window: Exports::default(),
            rewrites: Rewrites::default(),
            starter: OnceLock::new(),
        })
    }

    /// Returns the window on pending exports.
    pub(crate) fn window(&self) -> &Exports {
        &self.window
    }

    /// Returns the objects that are being copied onto themselves.
    pub(crate) fn rewrites(&self) -> &Rewrites {
        &self.rewrites
    }
}

/// Inodes to read from the tables at once when the pending exports are counted.
const BATCH: usize = 1024;

/// Maximum inodes in the exporter's window. Further pending inodes are only in the tables.
const WINDOW: usize = 4096;

/// The exporter's window on pending exports: inodes whose attributes are newer than the headers of their objects. The tables
/// contain all pending inodes.
#[derive(Debug, Default)]
pub(crate) struct Exports(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    /// Pending inodes, each with the tick in which it last changed.
    inodes: BTreeMap<Ino, u64>,
    /// Number of ticks that have begun.
    tick: u64,
    /// Whether the exporter's task runs, or is about to be started.
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
    pub(super) fn insert(&self, ino: Ino) -> bool {
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
    pub(super) fn retry_later(&self, ino: Ino) -> bool {
        if self.is_behind() { self.start_walk() } else { self.insert(ino) }
    }

    /// Requests a walk of the tables. Returns true if the caller must start an exporter.
    pub(super) fn start_walk(&self) -> bool {
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
    pub(super) fn next_walk(&self) -> Option<(Option<Ino>, usize)> {
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
    pub(super) fn refill(&self, found: &[Ino], room: usize) {
        let mut window = self.lock();
        let tick = window.tick;
        for ino in found {
            window.inodes.entry(*ino).or_insert(tick);
        }
        window.walk = found.last().filter(|_| found.len() >= room).map(|last| Walk(Some(*last)));
    }

    /// Begins a tick. Returns the inodes that did not change in the previous tick, or `None` if nothing is pending and the
    /// exporter ends.
    pub(super) fn next_tick(&self) -> Option<Vec<Ino>> {
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

impl ExportQueue {
    /// Records in the tables that an inode's attributes must be exported, and schedules the export. The record survives
    /// a crash, and `sync` reads it. Does nothing for an inode that has no object with headers.
    pub(crate) fn export_later(&self, ino: Ino) -> Result<()> {
        if !self.mount.rules.exports_attributes
            || !self.names.has_headers(&self.names.tables().inode(ino)?)?
        {
            return Ok(());
        }
        self.names.commit(Origin::Bookkeeping, &Op::AwaitExport { ino })?;
        self.export_soon(ino)
    }

    /// Records in the tables that a file is to be stored at its path, where the bucket has older bytes, and schedules the upload.
    pub(crate) fn store_later(&self, ino: Ino) -> Result<()> {
        self.names.commit(Origin::Bookkeeping, &Op::AwaitExport { ino })?;
        self.retry_later(ino);
        Ok(())
    }

    /// Schedules another attempt of an export that has a record in the tables.
    pub(crate) fn retry_later(&self, ino: Ino) {
        if self.window.retry_later(ino) {
            self.start_exporter();
        }
    }

    /// Schedules the export of an inode that has a record in the tables, unless a commit of its writes will export it.
    pub(crate) fn export_soon(&self, ino: Ino) -> Result<()> {
        // Pending writes export the attributes when they are published.
        let is_dirty = self.content.files().get(ino).is_some_and(|file| file.pending().is_dirty);
        if !is_dirty && self.names.awaits_export(ino) && self.window.insert(ino) {
            self.start_exporter();
        }
        Ok(())
    }

    /// Returns the number of inodes with pending exports.
    pub(crate) fn exports_waiting(&self) -> usize {
        let (mut after, mut count) = (None, 0);
        while let Ok(found) = self.names.tables().waiting_exports(after, BATCH)
            && let Some(last) = found.last()
        {
            (after, count) = (Some(*last), count + found.len());
        }
        count
    }

    /// Resumes exports that were pending when the last mount ended.
    pub(crate) fn resume_exports(&self) -> Result<()> {
        let is_any_pending =
            !self.mount.config.read_only && !self.names.tables().waiting_exports(None, 1)?.is_empty();
        if is_any_pending && self.window.start_walk() {
            self.start_exporter();
        }
        Ok(())
    }

    /// Sets the function that starts the exporter's task.
    pub(crate) fn serve(&self, start: impl Fn() + Send + Sync + 'static) {
        let is_first = self.starter.set(Starter(Box::new(start))).is_ok();
        assert!(is_first, "a queue of exports has one exporter");
    }

    pub(crate) fn start_exporter(&self) {
        if let Some(Starter(start)) = self.starter.get() {
            start();
        }
    }

    /// Makes an object found at the path of an inode the inode's content, if attributes wait to be exported and the object is a copy that
    /// an earlier export made, or was stored in place of the inode's object by a mount. The answer or the commit of this mount's earlier
    /// process was lost, for example by a crash. The inode's attributes are newer than the headers.
    pub(crate) fn adopt_stored(&self, ino: Ino, found: &ObjectMeta, looked_at: Moment) -> Result<()> {
        let inode = self.names.tables().inode(ino)?;
        if inode.is_ahead() || inode.is_beside() || !self.names.awaits_export(ino) {
            return Ok(());
        }
        match headers::has_bytes_of(&inode, found) {
            true => self.adopt_copy(&inode, found),
            false if inode.observed_at < looked_at => self.adopt_successor(&inode, found),
            false => Ok(()),
        }
    }

    /// Records the etag of a copy of an inode's object, which is at the same key.
    pub(crate) fn adopt_copy(&self, inode: &Inode, copy: &ObjectMeta) -> Result<()> {
        self.commit_if_unchanged(inode, Origin::Bookkeeping, || {
            self.names.relocate_op(inode.ino, &stored(&copy.object))
        })?;
        match inode.object() {
            Some(before) => self.content.change_etag(inode.ino, &before.etag, &copy.object.etag),
            None => Ok(()),
        }
    }

    /// Makes an object that was stored in place of an inode's object the inode's content, unless the inode has unpublished writes.
    fn adopt_successor(&self, inode: &Inode, found: &ObjectMeta) -> Result<()> {
        if !headers::replaces_object_of(inode, found) || self.content.has_unpublished_writes(inode.ino) {
            return Ok(());
        }
        let mtime = headers::mtime(&found.attributes);
        // A front end that was told before an open file has the new bytes would mix them with the old ones.
        let _telling_paused = self.names.follower().hold();
        self.commit_if_unchanged(inode, Origin::Other, || {
            self.names.publish_op(inode.ino, &found.object, found.size_bytes, mtime)
        })?;
        match self.content.files().get(inode.ino) {
            Some(file) => file.replace(|| self.names.pin_of(inode.ino)),
            None => Ok(()),
        }
    }

    /// Commits an op on an inode's content, unless that has changed since the inode was read.
    fn commit_if_unchanged(&self, inode: &Inode, origin: Origin, op: impl Fn() -> Result<Op>) -> Result<()> {
        commit_on_content(&self.names, origin, || {
            match self.names.tables().inode(inode.ino)?.content == inode.content {
                true => Ok(vec![op()?]),
                false => Ok(Vec::new()),
            }
        })
        .map(drop)
    }

    /// Removes the record of a pending export, after the object's headers were stored with the inode's `change` and all
    /// before. Later changes stay pending. Does nothing for `None`, which means that no export was pending.
    pub(crate) fn note_exported(&self, ino: Ino, change: Option<u64>) -> Result<()> {
        let Some(change) = change else { return Ok(()) };
        self.names.commit(Origin::Bookkeeping, &Op::Exported { ino, change })?;
        self.export_soon(ino)
    }
}

/// The function that starts the exporter's task.
pub(in crate::bucket) struct Starter(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Starter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Starter")
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
