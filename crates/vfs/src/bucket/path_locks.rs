//! Path locks: shared for a store under a path, exclusive for the move of a tree.
//!
//! Paths are names from the root, joined by `/`. The lock of a tree covers its root and every path below. A lock
//! waits for conflicting locks that were requested earlier, and for no others: paths outside a tree never wait for
//! its move, and a move waits only for stores in its trees and for moves of overlapping trees.
//!
//! Invariants: the paths of one lock are acquired together or not at all. A holder requests no second lock, so waiters cannot
//! form a cycle. Lock order: a file's write state, a path, then keys (`key_locks`) and names (`changes`).

use meta::{FsError, Ino, Name};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{KeyedLocks, ObjectKey, names};
use tokio::sync::Notify;

use crate::base::Base;
use crate::mount::Mount;
use crate::names::Names;
use crate::{Error, Result};

/// Locks of paths, keys and multipart uploads that are being changed.
#[derive(Debug)]
pub(crate) struct ChangeLocks {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) paths: PathLocks,
    /// Keys that are being changed. Storing an object and naming it are two steps, and two changes of one mount under
    /// one key must not take each other's objects for foreign ones. Taken after a file's `write_state` and path.
    pub(in crate::bucket) key_locks: KeyedLocks<ObjectKey>,
    /// Keys that Tenon's S3 endpoint changes, locked until the namespace shows the outcome. Taken before any other
    /// lock.
    pub(in crate::bucket) endpoint_key_locks: KeyedLocks<ObjectKey>,
    /// Multipart uploads that are being changed, by upload id.
    pub(in crate::bucket) upload_locks: KeyedLocks<ObjectKey>,
}

impl ChangeLocks {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            paths: PathLocks::new(base.mount.rules.follows_bucket),
            key_locks: KeyedLocks::default(),
            endpoint_key_locks: KeyedLocks::default(),
            upload_locks: KeyedLocks::default(),
        })
    }

    /// Returns the locks of keys that are about to change.
    pub(crate) fn key_locks(&self) -> &KeyedLocks<ObjectKey> {
        &self.key_locks
    }

    /// Returns the locks of multipart uploads that are being changed.
    pub(crate) fn upload_locks(&self) -> &KeyedLocks<ObjectKey> {
        &self.upload_locks
    }

    /// Returns the locks of keys that Tenon's S3 endpoint changes.
    pub(crate) fn endpoint_key_locks(&self) -> &KeyedLocks<ObjectKey> {
        &self.endpoint_key_locks
    }
}

/// The held and the waiting locks of paths.
#[derive(Debug)]
pub(crate) struct PathLocks {
    /// Whether keys are paths; otherwise the locks cover no path.
    covers_paths: bool,
    state: Mutex<State>,
    /// Notified when a lock is released.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Held and waiting locks for stores, by number in the order of request, each with its paths.
    stores: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Held and waiting locks for moves, each with the roots of its trees.
    trees: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Number of the next lock.
    next: u64,
    /// Number of completed tree moves. A path that was resolved before the last one may be outdated.
    moves: u64,
}

/// A lock of paths, held or waiting. Released when dropped.
#[derive(Debug)]
pub(crate) struct PathLock<'l> {
    /// The locks to which this one belongs, and its number in their queue.
    locks: &'l PathLocks,
    number: u64,
}

impl PathLocks {
    fn new(covers_paths: bool) -> Self {
        Self { covers_paths, state: Mutex::default(), freed: Notify::new() }
    }

    /// Locks paths under which objects are to be stored or removed. `find_paths` resolves them, and is called again if
    /// a tree was moved meanwhile.
    pub(crate) async fn store(&self, find_paths: impl Fn() -> Result<Vec<Vec<u8>>>) -> Result<PathLock<'_>> {
        self.lock(find_paths, false).await
    }

    /// Locks trees for a move: no other store or move runs in them.
    pub(crate) async fn move_trees(
        &self,
        find_paths: impl Fn() -> Result<Vec<Vec<u8>>>,
    ) -> Result<PathLock<'_>> {
        self.lock(find_paths, true).await
    }

    async fn lock(
        &self,
        find_paths: impl Fn() -> Result<Vec<Vec<u8>>>,
        is_tree: bool,
    ) -> Result<PathLock<'_>> {
        loop {
            let moves = self.state().moves;
            let paths = if self.covers_paths { find_paths()? } else { Vec::new() };
            let lock = self.enqueue(paths, is_tree);
            if lock.granted().await == moves {
                return Ok(lock);
            }
        }
    }

    fn enqueue(&self, paths: Vec<Vec<u8>>, is_tree: bool) -> PathLock<'_> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let locks = if is_tree { &mut state.trees } else { &mut state.stores };
        locks.insert(number, paths);
        PathLock { locks: self, number }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathLock<'_> {
    /// Waits until no earlier lock conflicts. Returns the number of completed tree moves.
    async fn granted(&self) -> u64 {
        loop {
            let freed = self.locks.freed.notified();
            {
                let state = self.locks.state();
                if !state.is_blocked(self.number) {
                    return state.moves;
                }
            }
            freed.await;
        }
    }
}

impl State {
    /// Returns whether a lock must wait for one that was requested earlier.
    fn is_blocked(&self, number: u64) -> bool {
        let earlier_trees = || self.trees.range(..number).flat_map(|(_, roots)| roots);
        if let Some(paths) = self.stores.get(&number) {
            return paths.iter().any(|path| earlier_trees().any(|root| is_in(path, root)));
        }
        let mut earlier_stores = self.stores.range(..number).flat_map(|(_, paths)| paths);
        let Some(roots) = self.trees.get(&number) else { return false };
        earlier_stores.any(|path| roots.iter().any(|root| is_in(path, root)))
            || roots
                .iter()
                .any(|root| earlier_trees().any(|earlier| is_in(root, earlier) || is_in(earlier, root)))
    }
}

/// Returns whether a path is the root of a tree or is below it.
fn is_in(path: &[u8], root: &[u8]) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| root.is_empty() || rest.first().is_none_or(|byte| *byte == b'/'))
}

impl Drop for PathLock<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.state();
        state.stores.remove(&self.number);
        if state.trees.remove(&self.number).is_some() {
            state.moves += 1;
        }
        drop(state);
        self.locks.freed.notify_waiters();
    }
}

/// Path locks of files and names. An inode without a name has no path.
impl ChangeLocks {
    /// Locks the path of a file or directory; locks nothing for an inode without a name.
    pub(crate) async fn lock_path(&self, ino: Ino) -> Result<PathLock<'_>> {
        let home = || match self.names.tables().inode(ino) {
            Ok(inode) => Ok(inode.home),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(Error::from(error)),
        };
        self.paths.store(|| self.paths_of(home()?.as_ref())).await
    }

    /// Locks the paths of directory entries.
    pub(crate) async fn lock_entries(&self, entries: &[&(Ino, Name)]) -> Result<PathLock<'_>> {
        self.paths.store(|| self.paths_of(entries.iter().copied())).await
    }

    /// Locks the paths of object keys.
    pub(crate) async fn lock_keys(&self, keys: &[&ObjectKey]) -> Result<PathLock<'_>> {
        let path = |key: &&ObjectKey| {
            let inside = key.as_bytes().strip_prefix(self.mount.config.prefix.as_slice())?;
            let mut path = names::key_to_path(&ObjectKey::try_from(inside).ok()?);
            path.pop_if(|last| last.is_empty());
            Some(path.join(&b'/'))
        };
        self.paths.store(|| Ok(keys.iter().filter_map(path).collect())).await
    }

    /// Locks the source and the destination tree of a directory rename.
    pub(crate) async fn lock_trees(&self, from: &(Ino, Name), to: &(Ino, Name)) -> Result<PathLock<'_>> {
        self.paths.move_trees(|| self.paths_of([from, to])).await
    }

    /// Returns the paths of directory entries. Leaves out those whose directory is gone.
    fn paths_of<'e>(&self, entries: impl IntoIterator<Item = &'e (Ino, Name)>) -> Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        for (dir, name) in entries {
            match self.names.tables().path(*dir) {
                Ok(above) => {
                    let names = above.iter().chain([name]).map(Name::as_bytes);
                    paths.push(names.collect::<Vec<_>>().join(&b'/'));
                }
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt as _, poll};
    use std::cell::Cell;
    use std::pin::pin;

    fn paths(paths: &[&str]) -> Result<Vec<Vec<u8>>> {
        Ok(paths.iter().map(|path| path.as_bytes().to_vec()).collect())
    }

    #[tokio::test]
    async fn a_move_waits_only_for_stores_in_its_tree() {
        let locks = PathLocks::new(true);
        let slow = locks.store(|| paths(&["a/b/c"])).await.unwrap();
        drop(locks.move_trees(|| paths(&["a/bb", "d"])).now_or_never().unwrap().unwrap());
        let mut moving = pin!(locks.move_trees(|| paths(&["a/b", "d"])));
        assert!(poll!(&mut moving).is_pending());
        // A later store in the tree waits for the move; stores elsewhere do not.
        let mut later = pin!(locks.store(|| paths(&["d/x"])));
        assert!(poll!(&mut later).is_pending());
        for path in ["", "a", "a/bc", "d2", "e/f"] {
            drop(locks.store(|| paths(&[path])).now_or_never().unwrap().unwrap());
        }
        drop(slow);
        let moving = moving.await.unwrap();
        assert!(poll!(&mut later).is_pending());
        drop(moving);
        later.await.unwrap();
        let state = locks.state();
        assert_eq!(state.stores.len() + state.trees.len(), 0);
    }

    #[tokio::test]
    async fn moves_of_overlapping_trees_are_serialized() {
        let locks = PathLocks::new(true);
        let first = locks.move_trees(|| paths(&["a", "c/a"])).await.unwrap();
        let mut crossing = pin!(locks.move_trees(|| paths(&["c", "a/c"])));
        assert!(poll!(&mut crossing).is_pending());
        drop(first);
        drop(crossing.await.unwrap());
    }

    /// A store that waited for a move of a directory above it has another path afterwards.
    #[tokio::test]
    async fn a_path_is_resolved_again_after_a_move() {
        let locks = PathLocks::new(true);
        let has_moved = Cell::new(false);
        let moving = locks.move_trees(|| paths(&["a", "b"])).await.unwrap();
        let mut store = pin!(locks.store(|| paths(&[if has_moved.get() { "b/x" } else { "a/x" }])));
        assert!(poll!(&mut store).is_pending());
        has_moved.set(true);
        drop(moving);
        let store = store.await.unwrap();
        assert_eq!(locks.state().stores[&store.number], paths(&["b/x"]).unwrap());
    }

    /// A store that is cancelled while it waits must not block later ones.
    #[tokio::test]
    async fn a_dropped_waiter_is_removed() {
        let locks = PathLocks::new(true);
        let store = locks.store(|| paths(&["a/x"])).await.unwrap();
        {
            let mut moving = pin!(locks.move_trees(|| paths(&["a"])));
            assert!(poll!(&mut moving).is_pending());
        }
        drop(locks.store(|| paths(&["a/y"])).now_or_never().unwrap().unwrap());
        drop(store);
    }
}
