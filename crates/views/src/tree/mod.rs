//! The directories of one client: a view for each ruleset, with the names and subdirectories in it.
//!
//! Owns the names of objects in a view (`naming`), the directory that each lies in ([`DIRECTORY_PROPERTY`]), when
//! the handler is asked for changes, and the place of new files ([`Place`]).
//!
//! Refuses: to know which objects match (the handler does), or what a file is.
//!
//! Invariants: a path of a file leads to one object, and every object has one path in each view that shows it;
//! changes by this client are visible in its own views at once; a handler that does not answer removes nothing from
//! the views.

mod branch;
mod changing;
mod directory;
mod journal;
mod memory;
mod move_worker;
mod moves;
mod naming;
mod object_slots;
mod overlay;
mod path_index;
mod place;
mod rename;
mod sorted_slots;
mod stale;
mod tree_error;
mod view_status;

use crate::{ObjectName, PackedObject, Ruleset, Shown, Views};
use branch::{Branch, BranchParts};
pub use changing::Changing;
use events::Sink;
use futures_util::future::join_all;
#[cfg(feature = "fuzz")]
pub use journal::fuzz_moves;
use memory::ViewsMemory;
use move_worker::MoveWorker;
pub use naming::{DIRECTORY_PROPERTY, EntryName};
pub use path_index::Entry;
pub use place::Place;
pub use stale::Stale;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Buckets, Clock, KeyedLocks};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
pub use tree_error::TreeError;
pub use view_status::{HandlerOutage, ViewStatus};

/// The dependencies and settings of a [`Tree`].
#[derive(Debug)]
pub struct TreeParts {
    /// The event handler, which knows which objects match.
    pub views: Arc<dyn Views>,
    /// The rulesets of the views; their names differ.
    pub rulesets: Vec<Ruleset>,
    /// Maximum age of a view's content before the handler is asked again, for rulesets that do not set it.
    pub recency: Duration,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The buckets, in which moves rewrite the directory property of objects.
    pub buckets: Arc<dyn Buckets>,
    /// The handler of this process, if there is one. It gets a hint of every object that a move rewrote, because
    /// there may be no other event of it.
    pub handler: Option<Arc<dyn Sink>>,
    /// Directory of the journal of moves, for this tree only; `None` keeps it in memory.
    pub dir: Option<PathBuf>,
    /// Maximum memory of all views, in bytes; `None` is unlimited. A view that needs more is not shown, or not brought up to date.
    pub memory_max_bytes: Option<usize>,
}

/// Interval between checks for local changes that have expired.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Directories that rulesets fill. The root holds one directory for each view. A path is a list of names from the
/// root.
#[derive(Debug)]
pub struct Tree {
    branches: Arc<BTreeMap<EntryName, Arc<Branch>>>,
    move_worker: Arc<MoveWorker>,
    move_task: AbortHandle,
    /// Counter that changes with every change at the handler, if the handler has one.
    change_counter: Option<watch::Receiver<u64>>,
    /// Value of that counter at the last `follow`.
    followed_count: AtomicU64,
    stale_notify: Arc<Notify>,
    /// Held during a rename, so that one runs at a time.
    renaming: KeyedLocks<()>,
}

impl Tree {
    /// Starts the views of rulesets. The handler is asked for a view when a user first looks at it. Moves in the
    /// journal are continued while the tree exists.
    ///
    /// # Errors
    /// If the directory cannot be read or written, or its journal is of an unknown format or of an older version and
    /// damaged.
    pub async fn start(parts: TreeParts) -> io::Result<Self> {
        let (clock, dir, handler) = (parts.clock.clone(), parts.dir.clone(), parts.handler.clone());
        let move_worker = Arc::new(MoveWorker::open(parts.buckets.clone(), handler, clock, dir).await?);
        let (moves, stale_notify) = (move_worker.moves(), Arc::new(Notify::new()));
        let memory = Arc::new(ViewsMemory::new(parts.memory_max_bytes.unwrap_or(usize::MAX)));
        let branch = |ruleset: &Ruleset| {
            let name = ruleset.name.as_bytes().into();
            let branch = BranchParts {
                ruleset: Arc::new(ruleset.clone()),
                views: parts.views.clone(),
                recency: parts.recency,
                clock: parts.clock.clone(),
                stale_notify: stale_notify.clone(),
                memory: memory.clone(),
                has_shared_records: parts.handler.is_some(),
            };
            (name, Arc::new(Branch::new(branch, &moves)))
        };
        let branches: Arc<BTreeMap<_, _>> = Arc::new(parts.rulesets.iter().map(branch).collect());
        let (worker, worker_branches) = (move_worker.clone(), branches.clone());
        let run = move || worker.clone().run(worker_branches.clone());
        let move_task = tokio::spawn(store::supervise("moves of views", run)).abort_handle();
        let change_counter = parts.views.change_counter();
        let (followed_count, renaming) = (AtomicU64::new(0), KeyedLocks::default());
        Ok(Self { branches, move_worker, move_task, change_counter, followed_count, stale_notify, renaming })
    }

    /// Brings all views up to date, as if a user looked at each. An error is part of a view's status, and is returned
    /// to users while the handler has never answered.
    pub async fn refresh_all(&self) {
        join_all(self.branches.values().map(Branch::refresh)).await;
    }

    /// Returns the entry of a path; `None` if there is none.
    ///
    /// # Errors
    /// If the handler has never answered.
    pub async fn find(&self, path: &[&[u8]]) -> Result<Option<Entry>, TreeError> {
        let Some((name, path)) = path.split_first() else { return Ok(Some(Entry::Directory)) };
        let Some(branch) = self.branches.get(*name) else { return Ok(None) };
        // The view's own directory exists whether or not the handler answers.
        if path.is_empty() {
            return Ok(Some(Entry::Directory));
        }
        branch.refresh().await?;
        Ok(branch.find(path))
    }

    /// Returns the entries of a directory after a name, in the order of names: at most `limit`, and none at the end.
    ///
    /// # Errors
    /// [`TreeError::NotFound`], [`TreeError::NotDirectory`], or that the handler has never answered.
    pub async fn list(
        &self,
        directory: &[&[u8]],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(EntryName, Entry)>, TreeError> {
        let Some((_, path)) = directory.split_first() else { return Ok(self.list_views(after, limit)) };
        let branch = self.branch(directory)?;
        // A listing in several calls asks the handler only at the first.
        if after.is_none() {
            branch.refresh().await?;
        }
        branch.list(path, after, limit).ok_or_else(|| match branch.find(path) {
            Some(_) => TreeError::NotDirectory,
            None => TreeError::NotFound,
        })
    }

    /// Returns the bucket, key and metadata for a new file of this path.
    ///
    /// # Errors
    /// [`TreeError::Invalid`] if the view could not show the file; [`TreeError::NotFound`] or
    /// [`TreeError::NotDirectory`] if the parent directory does not exist or is a file; [`TreeError::IsDirectory`] if
    /// the path leads to a directory; [`TreeError::Exists`] if its key belongs to an object that the view shows in
    /// another directory.
    pub async fn place(&self, path: &[&[u8]]) -> Result<Place, TreeError> {
        let branch = self.branch(path)?;
        let Some((name, directory)) = path[1..].split_last() else { return Err(TreeError::IsDirectory) };
        branch.refresh().await?;
        match (branch.find(directory), branch.find(&path[1..])) {
            (None, _) => return Err(TreeError::NotFound),
            (Some(Entry::File(_)), _) => return Err(TreeError::NotDirectory),
            (_, Some(Entry::Directory)) => return Err(TreeError::IsDirectory),
            (_, Some(Entry::File(_)) | None) => {}
        }
        let places = place::places(&branch.ruleset, directory, name).map_err(TreeError::Invalid)?;
        let free = places.into_iter().find(|place| branch.is_free(place));
        free.ok_or(TreeError::Exists)
    }

    /// Makes a directory. It is known to this client only, until an object lies in it.
    ///
    /// # Errors
    /// [`TreeError::Exists`]; [`TreeError::NotFound`] or [`TreeError::NotDirectory`] if the parent directory does not
    /// exist or is a file; [`TreeError::Invalid`] if the ruleset has no directories; [`TreeError::Fixed`] in the
    /// root.
    pub async fn make_directory(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        let (branch, path) = self.branch_and_path(path)?;
        if !branch.ruleset.directories {
            let name = &branch.ruleset.name;
            return Err(TreeError::Invalid(format!(
                "the ruleset '{name}' has no directories (`directories: off`)"
            )));
        }
        branch.refresh().await?;
        branch.change_index(|index| {
            index.expect_vacant(path)?;
            index.make_directory(path);
            Ok(())
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`TreeError::NotFound`], [`TreeError::NotDirectory`], [`TreeError::NotEmpty`], [`TreeError::Fixed`] for a
    /// view.
    pub async fn remove_directory(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        let (branch, path) = self.branch_and_path(path)?;
        branch.refresh().await?;
        branch.change_index(|index| {
            index.expect_empty(path)?;
            index.unmake_directory(path);
            Ok(())
        })
    }

    /// Notes that this client begins to change an object. Until the returned guard is dropped, states of the object
    /// that the handler reports are kept, as they may be later than the change.
    pub fn changing(&self, object: &ObjectName) -> Changing {
        Changing::begin(&self.branches, object)
    }

    /// Notes that this client stored or changed an object. Every view shows it, or not, from now on.
    pub fn notify_stored(&self, shown: Shown) {
        self.apply_local(&shown.name, Some(&PackedObject::from(&shown)));
    }

    /// Notes that this client removed an object.
    pub fn notify_removed(&self, object: &ObjectName) {
        self.apply_local(object, None);
    }

    /// Returns the version of a directory, after bringing the view up to date: no other content of the directory has
    /// the same version.
    ///
    /// # Errors
    /// [`TreeError::NotFound`], or that the handler has never answered.
    pub async fn version(&self, directory: &[&[u8]]) -> Result<u64, TreeError> {
        let Some((_, path)) = directory.split_first() else { return Ok(0) };
        let branch = self.branch(directory)?;
        branch.refresh().await?;
        branch.with_index(|index| index.version(path)).ok_or(TreeError::NotFound)
    }

    /// Waits until names may be stale, then fetches the changes of views that a user has looked at. Must not be
    /// called concurrently.
    pub async fn follow(&self) {
        let followed_count = self.followed_count.load(Ordering::Relaxed);
        let change_at_handler = async {
            match self.change_counter.clone() {
                // The sender is part of the handler, which lives as long as the tree.
                Some(mut counter) => {
                    counter.wait_for(|count| *count != followed_count).await.map_or(0, |count| *count)
                }
                None => std::future::pending().await,
            }
        };
        let expiry = async {
            match self.branches.values().any(|branch| branch.has_pending()) {
                true => tokio::time::sleep(EXPIRY_INTERVAL).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.stale_notify.notified() => {}
            () = expiry => self.branches.values().for_each(|branch| branch.expire_pending()),
            count = change_at_handler => self.followed_count.store(count, Ordering::Relaxed),
        }
        for branch in self.branches.values() {
            branch.follow().await;
        }
    }

    /// Takes the directories with stale names: each once, with at most `limit` names in all. An empty result means
    /// that there are no more.
    pub fn take_stale(&self, limit: usize) -> Vec<Stale> {
        let mut all: Vec<Stale> = Vec::new();
        for branch in self.branches.values() {
            let names: usize = all.iter().map(|stale| stale.names.as_ref().map_or(1, Vec::len)).sum();
            all.extend(branch.take_stale(limit.saturating_sub(names)));
        }
        all
    }

    /// Returns the maximum age of the content of the view in which a path lies; [`Duration::MAX`] for the root.
    pub fn recency(&self, path: &[&[u8]]) -> Duration {
        let branch = path.first().and_then(|name| self.branches.get(*name));
        branch.map_or(Duration::MAX, |branch| branch.recency())
    }

    /// Returns the number of objects whose directory property has not been rewritten yet after a rename.
    pub fn following(&self) -> usize {
        self.move_worker.len()
    }

    /// Returns the objects that the store refuses to move with their directory, with its errors. The views show them
    /// in the new directory. They are tried again when they are moved again, or by the next mount.
    pub fn refused(&self) -> Vec<(ObjectName, String)> {
        self.move_worker.refused()
    }

    /// Returns the memory of the views, in bytes, without the records that they share with the handler of this process: the handler counts
    /// these.
    pub fn own_memory_bytes(&self) -> usize {
        self.branches.values().map(|branch| branch.memory_bytes()).sum()
    }

    /// Returns the status of the views, in the order of their names.
    pub fn status(&self) -> Vec<ViewStatus> {
        self.branches.values().map(|branch| branch.status()).collect()
    }

    /// Applies a change of an object by this client to all views; `None` if the object is gone.
    fn apply_local(&self, object: &ObjectName, shown: Option<&PackedObject>) {
        self.branches.values().for_each(|branch| branch.apply_local(object, shown));
    }

    fn list_views(&self, after: Option<&[u8]>, limit: usize) -> Vec<(EntryName, Entry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.branches.range::<[u8], _>((from, Bound::Unbounded)).map(|(name, _)| name);
        names.take(limit).map(|name| (name.clone(), Entry::Directory)).collect()
    }

    /// Returns the branch of the view in which a path lies, or whose own directory it is.
    fn branch(&self, path: &[&[u8]]) -> Result<&Arc<Branch>, TreeError> {
        let name = path.first().ok_or(TreeError::IsDirectory)?;
        self.branches.get(*name).ok_or(TreeError::NotFound)
    }

    /// Returns the branch of a path inside a view, and the rest of the path. Fails with [`TreeError::Fixed`] for the
    /// root and for a view's own directory.
    fn branch_and_path<'a, 'p>(
        &'a self,
        path: &'p [&'p [u8]],
    ) -> Result<(&'a Arc<Branch>, &'p [&'p [u8]]), TreeError> {
        match path {
            [] | [_] => Err(TreeError::Fixed),
            [name, rest @ ..] => Ok((self.branches.get(*name).ok_or(TreeError::NotFound)?, rest)),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // The next tree continues the moves from the journal.
        self.move_task.abort();
    }
}
