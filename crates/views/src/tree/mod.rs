//! One client's directories: a view for each ruleset, with names and directories of its own.
//!
//! Owns what objects are called in a view ([`naming`]), in which of its directories they lie ([`DIRECTORY_PROPERTY`]), how recent
//! a view is, and where a file lies that is made in one ([`Place`]).
//!
//! Refuses: to know which objects match (the handler does), or what a file is.
//!
//! Invariants: a path of a file leads to one object, and every object has one path in each view that shows it; what this client did
//! is seen in its own views at once; a handler that is lost takes nothing away.

mod branch;
mod changing;
mod directory;
mod journal;
mod move_worker;
mod naming;
mod overlay;
mod path_index;
mod place;
mod rename;

use crate::{ObjectName, Ruleset, Shown, Unlisted, ViewError, Views};
use branch::Branch;
pub use changing::Changing;
use events::Sink;
use futures_util::future::join_all;
#[cfg(feature = "fuzz")]
pub use journal::fuzz_moves;
use move_worker::Follower;
pub use naming::{DIRECTORY_PROPERTY, EntryName};
pub use path_index::Entry;
pub use place::Place;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Buckets, Claims, Clock, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// What a tree is made of.
#[derive(Debug)]
pub struct TreeParts {
    /// Who knows which objects match.
    pub views: Arc<dyn Views>,
    /// The views, of different names.
    pub rulesets: Vec<Ruleset>,
    /// For how long what is known is recent, where a ruleset does not say it.
    pub recency: Duration,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where the objects are, which are told of renames.
    pub buckets: Arc<dyn Buckets>,
    /// The handler of this process, if there is one: it is told which objects were told of renames, as nobody else may tell it.
    pub handler: Option<Arc<dyn Sink>>,
    /// Where renames under way are kept, in a directory of this tree's own; in memory only if `None`.
    pub dir: Option<PathBuf>,
}

/// How often somebody sees whether what this client did was believed long enough.
const SETTLED_EVERY: Duration = Duration::from_secs(1);

/// What this client did to an object: what it is like now, or that it is gone.
type News = (ObjectName, Option<Arc<Shown>>);

/// Directories that rulesets fill. Paths are names from the tree's root, in which the views lie by their names.
#[derive(Debug)]
pub struct Tree {
    branches: Arc<BTreeMap<EntryName, Arc<Branch>>>,
    follower: Arc<Follower>,
    following: AbortHandle,
    /// Where the handler says when something changes.
    news: Option<watch::Receiver<u64>>,
    /// The last of its numbers that was followed.
    followed: AtomicU64,
    stirred: Arc<Notify>,
    /// One rename at a time.
    renaming: Claims<()>,
}

/// A directory in which something happened, for who remembers what its names led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// Its path.
    pub directory: Vec<EntryName>,
    /// Names that lead elsewhere by now, or nowhere, or to a file that changed; `None`: any, here and below. Those that led nowhere
    /// before are not among them.
    pub names: Option<Vec<EntryName>>,
}

/// How a view stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewStatus {
    /// The view.
    pub name: String,
    /// How many objects it shows, as far as is known.
    pub objects: usize,
    /// When the handler was last asked with success; `None` if nobody has looked at the view yet.
    pub known: Option<Timestamp>,
    /// The handler does not answer.
    pub lost: Option<Lost>,
    /// Containers that cannot be read, as it last said.
    pub unlisted: Vec<Unlisted>,
}

/// A handler that does not answer. Its clients go on with what they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// When it was first found so.
    pub since: Timestamp,
    /// What it came to the last time.
    pub why: String,
}

/// Why something cannot be done in a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Nothing has this path (`ENOENT`).
    #[error("there is no such file or directory in the view")]
    NotFound,
    /// Something has it (`EEXIST`).
    #[error("something in the view has this name")]
    Exists,
    /// It is not empty (`ENOTEMPTY`).
    #[error("the directory is not empty")]
    NotEmpty,
    /// It is a file (`ENOTDIR`).
    #[error("this is a file")]
    NotDirectory,
    /// It is a directory (`EISDIR`).
    #[error("this is a directory")]
    IsDirectory,
    /// The view could never show it; holds the reason (`EINVAL`).
    #[error("{0}")]
    Invalid(String),
    /// Only a copy and a removal can do it (`EXDEV`).
    #[error("this cannot be renamed in one step")]
    Elsewhere,
    /// Renames cannot be kept (`EIO`).
    #[error("the journal of directories cannot be written: {0}")]
    State(io::Error),
    /// Rulesets say which views there are (`EPERM`).
    #[error("views are made and removed in the file of rulesets")]
    Fixed,
    /// The handler says nothing, and never did (`EIO`).
    #[error(transparent)]
    View(#[from] ViewError),
}

impl Tree {
    /// The views of some rulesets; none is asked for before somebody looks at it. Renames that were under way go on, for as long as
    /// the tree is there.
    ///
    /// # Errors
    /// If the directory cannot be read or written, or is damaged.
    pub async fn start(parts: TreeParts) -> io::Result<Self> {
        let (clock, dir, handler) = (parts.clock.clone(), parts.dir.clone(), parts.handler.clone());
        let follower = Arc::new(Follower::open(parts.buckets.clone(), handler, clock, dir).await?);
        let (moves, stirred) = (follower.moves(), Arc::new(Notify::new()));
        let branch = |ruleset: &Ruleset| {
            let name = ruleset.name.as_bytes().into();
            let branch = Branch::new(Arc::new(ruleset.clone()), &parts, stirred.clone(), &moves);
            (name, Arc::new(branch))
        };
        let branches: Arc<BTreeMap<_, _>> = Arc::new(parts.rulesets.iter().map(branch).collect());
        let (mover, trees) = (follower.clone(), branches.clone());
        let follow = move || mover.clone().run(trees.clone());
        let following = tokio::spawn(store::supervise("moves of views", follow)).abort_handle();
        let news = parts.views.news();
        let (followed, renaming) = (AtomicU64::new(0), Claims::default());
        Ok(Self { branches, follower, following, news, followed, stirred, renaming })
    }

    /// Asks for all views, as if somebody looked at each. What fails is met by who does.
    pub async fn look_at_all(&self) {
        join_all(self.branches.values().map(Branch::refresh)).await;
    }

    /// What is under a path.
    ///
    /// # Errors
    /// If the handler has never answered.
    pub async fn find(&self, path: &[&[u8]]) -> Result<Option<Entry>, TreeError> {
        let Some((name, path)) = path.split_first() else { return Ok(Some(Entry::Directory)) };
        let Some(branch) = self.branches.get(*name) else { return Ok(None) };
        // Rulesets say that the view itself is there.
        if path.is_empty() {
            return Ok(Some(Entry::Directory));
        }
        branch.refresh().await?;
        Ok(branch.find(path))
    }

    /// The entries of a directory after a name, in the order of names, at most `limit`; none at the end.
    ///
    /// # Errors
    /// [`TreeError::NotFound`], [`TreeError::NotDirectory`], or that the handler has never answered.
    pub async fn list(
        &self,
        directory: &[&[u8]],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(EntryName, Entry)>, TreeError> {
        let Some((_, path)) = directory.split_first() else { return Ok(self.top(after, limit)) };
        let branch = self.branch(directory)?;
        // What is listed in several steps is as recent as the first.
        if after.is_none() {
            branch.refresh().await?;
        }
        branch.list(path, after, limit).ok_or_else(|| match branch.find(path) {
            Some(_) => TreeError::NotDirectory,
            None => TreeError::NotFound,
        })
    }

    /// Where a file that is made under a path lies, and what it gets.
    ///
    /// # Errors
    /// [`TreeError::Invalid`] if the view could not show it; [`TreeError::NotFound`] or [`TreeError::NotDirectory`] of the directory that it
    /// is made in; [`TreeError::IsDirectory`]; [`TreeError::Exists`] where its key is another object's, which the view shows elsewhere.
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

    /// Makes a directory, which is this client's own until something lies in it.
    ///
    /// # Errors
    /// [`TreeError::Exists`], [`TreeError::NotFound`] or [`TreeError::NotDirectory`] of the one that it is made in, [`TreeError::Invalid`] where
    /// the ruleset has no directories, [`TreeError::Fixed`] beside the views.
    pub async fn make_directory(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        let (branch, path) = self.inside(path)?;
        if !branch.ruleset.directories {
            let name = &branch.ruleset.name;
            return Err(TreeError::Invalid(format!("'{name}' shows no directories (`directories: off`)")));
        }
        branch.refresh().await?;
        branch.change(|names| {
            names.expect_vacant(path)?;
            names.make(path);
            Ok(())
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`TreeError::NotFound`], [`TreeError::NotDirectory`], [`TreeError::NotEmpty`], [`TreeError::Fixed`] for a view.
    pub async fn remove_directory(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        let (branch, path) = self.inside(path)?;
        branch.refresh().await?;
        branch.change(|names| {
            names.expect_empty(path)?;
            names.unmake(path);
            Ok(())
        })
    }

    /// This client begins to change an object: of what it is told until the returned value is dropped, the handler may know more.
    pub fn changing(&self, object: &ObjectName) -> Changing {
        Changing::begin(&self.branches, object)
    }

    /// Takes it that this client stored an object, or changed it: every view shows it, or does not, from now on.
    pub fn told_stored(&self, shown: Shown) {
        self.tell(&[(shown.name.clone(), Some(Arc::new(shown)))]);
    }

    /// Takes it that this client removed an object.
    pub fn told_removed(&self, object: &ObjectName) {
        self.tell(&[(object.clone(), None)]);
    }

    /// A number that another content of a directory never had, as recent as the view must be.
    ///
    /// # Errors
    /// [`TreeError::NotFound`], or that the handler has never answered.
    pub async fn version(&self, directory: &[&[u8]]) -> Result<u64, TreeError> {
        let Some((_, path)) = directory.split_first() else { return Ok(0) };
        let branch = self.branch(directory)?;
        branch.refresh().await?;
        branch.names(|names| names.version(path)).ok_or(TreeError::NotFound)
    }

    /// Waits until something may be stale, and takes what changed in the views that somebody has looked at. For one who waits.
    pub async fn follow(&self) {
        let followed = self.followed.load(Ordering::Relaxed);
        let said = async {
            match self.news.clone() {
                // The handler lives as long as the tree.
                Some(mut news) => news.wait_for(|news| *news != followed).await.map_or(0, |news| *news),
                None => std::future::pending().await,
            }
        };
        let settled = async {
            match self.branches.values().any(|branch| branch.believes()) {
                true => tokio::time::sleep(SETTLED_EVERY).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.stirred.notified() => {}
            () = settled => self.branches.values().for_each(|branch| branch.settle()),
            news = said => self.followed.store(news, Ordering::Relaxed),
        }
        for branch in self.branches.values() {
            branch.follow().await;
        }
    }

    /// The directories in which something happened, each once, with so many names at most; none is the end.
    pub fn take_stale(&self, limit: usize) -> Vec<Stale> {
        let mut all: Vec<Stale> = Vec::new();
        for branch in self.branches.values() {
            let names: usize = all.iter().map(|one| one.names.as_ref().map_or(1, Vec::len)).sum();
            all.extend(branch.take_stale(limit.saturating_sub(names)));
        }
        all
    }

    /// For how long what is known of the view of a path is recent.
    pub fn recency(&self, path: &[&[u8]]) -> Duration {
        let branch = path.first().and_then(|name| self.branches.get(*name));
        branch.map_or(Duration::MAX, |branch| branch.recency())
    }

    /// How many objects do not say yet that they were renamed with their directory.
    pub fn following(&self) -> usize {
        self.follower.len()
    }

    /// Objects that the store refuses to move with their directory, with its words. They are shown here where they were
    /// put, and are tried again when they are moved again or in the next mount.
    pub fn refused(&self) -> Vec<(ObjectName, String)> {
        self.follower.refused()
    }

    /// How the views stand, in the order of their names.
    pub fn status(&self) -> Vec<ViewStatus> {
        self.branches.values().map(|branch| branch.status()).collect()
    }

    fn tell(&self, news: &[News]) {
        self.branches.values().for_each(|branch| branch.tell(news));
    }

    fn top(&self, after: Option<&[u8]>, limit: usize) -> Vec<(EntryName, Entry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.branches.range::<[u8], _>((from, Bound::Unbounded)).map(|(name, _)| name);
        names.take(limit).map(|name| (name.clone(), Entry::Directory)).collect()
    }

    fn branch(&self, path: &[&[u8]]) -> Result<&Arc<Branch>, TreeError> {
        let name = path.first().ok_or(TreeError::IsDirectory)?;
        self.branches.get(*name).ok_or(TreeError::NotFound)
    }

    /// The branch, and the path in it, of what is not a view itself, or beside one.
    fn inside<'a, 'p>(
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
        // What is under way goes on with the next tree.
        self.following.abort();
    }
}
