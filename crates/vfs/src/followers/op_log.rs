//! The follower of the op log: reads committed ops, and tells front ends what to drop from their caches.
//!
//! It has a cursor only while ops are unread. A commit that may make caches stale notes the range of the log in which it is; ops of the
//! only front end are never noted, so they cost no read. A turn reads one page of the log. Turns are taken by a task that the
//! commit starts, and by every front end that asks for its next invalidation, so that nothing depends on a runtime.
//!
//! Invariants: an op is read after it is committed; turns do not overlap; a range of the log that was cut off before it was read, or
//! that cannot be read, ends in [`Invalidation::Everything`].

use bytes::Bytes;
use meta::{Applied, Effect, FsError, Ino, LogError, LoggedOp, Op, OpContext, Origin, Seqno};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::invalidation::Invalidation;
use super::op_invalidations::{invalidations, lost_names, may_invalidate};
use crate::names::Names;

/// Ops to read in one turn.
const PAGE_OPS: usize = 512;

/// The unread part of the log.
#[derive(Debug, Default)]
pub(crate) struct OpLogFollower {
    unread: Mutex<Option<LogRange>>,
    /// Held during a turn, and while ops must not be told.
    turn: Mutex<()>,
    views: ViewChanges,
}

/// Changes of views, the other kind of change that front ends are told of.
#[derive(Default)]
struct ViewChanges {
    tell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Whether changes wait for room in a queue.
    awaits_room: AtomicBool,
}

impl fmt::Debug for ViewChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewChanges").field("awaits_room", &self.awaits_room).finish_non_exhaustive()
    }
}

/// The commits after one and up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogRange {
    after: Seqno,
    to: Seqno,
    /// Whether front ends must be told of their own ops too.
    has_failures: bool,
}

impl OpLogFollower {
    /// Adds a range to the unread part, which then has all commits from the first to the last one.
    fn note(&self, range: LogRange) {
        let mut unread = self.unread();
        *unread = Some(match *unread {
            Some(known) => LogRange {
                after: known.after.min(range.after),
                to: known.to.max(range.to),
                has_failures: known.has_failures || range.has_failures,
            },
            None => range,
        });
    }

    /// Keeps front ends from being told of ops until the guard is dropped. What they ask for next must be in place by then.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what tells front ends of changes of views.
    pub(crate) fn serve_views(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.views.tell.get_or_init(|| Box::new(tell));
    }

    /// Has changes of views told again in the next turn, when queues may have room.
    pub(crate) fn await_room(&self) {
        self.views.awaits_room.store(true, Ordering::Release);
    }

    fn tell_views(&self) {
        if self.views.awaits_room.swap(false, Ordering::AcqRel)
            && let Some(tell) = self.views.tell.get()
        {
            tell();
        }
    }

    fn unread(&self) -> MutexGuard<'_, Option<LogRange>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    /// Applies an op and commits it.
    pub(crate) fn commit(&self, origin: Origin, op: &Op) -> Result<Applied, FsError> {
        let mut applied = self.commit_all(origin, std::slice::from_ref(op))?;
        applied.pop().unwrap_or_else(|| Err(FsError::Corrupt("a commit without a result".into())))
    }

    /// Applies ops in one commit. If an op fails, nothing is committed and its error is returned.
    pub(crate) fn commit_together(&self, origin: Origin, ops: &[Op]) -> Result<Vec<Applied>, FsError> {
        self.commit_together_at(&self.context(origin), ops)
    }

    /// Like `commit_together`, at a time that the caller has read already.
    pub(crate) fn commit_together_at(
        &self,
        context: &OpContext,
        ops: &[Op],
    ) -> Result<Vec<Applied>, FsError> {
        self.followed(
            context.origin,
            ops,
            || self.tables().commit_together(context, ops),
            |applied| Some(applied),
        )
    }

    /// Applies ops in one commit. An op that fails changes nothing, and its error is the result in its place.
    pub(crate) fn commit_all(
        &self,
        origin: Origin,
        ops: &[Op],
    ) -> Result<Vec<Result<Applied, FsError>>, FsError> {
        let commit = || self.tables().commit_all(&self.context(origin), ops);
        self.followed(origin, ops, commit, |result| result.as_ref().ok())
    }

    /// Runs a commit, and has the follower read it if front ends may have to drop something. `applied` returns the outcome of an op
    /// from its result.
    fn followed<T>(
        &self,
        origin: Origin,
        ops: &[Op],
        commit: impl FnOnce() -> Result<Vec<T>, FsError>,
        applied: impl Fn(&T) -> Option<&Applied>,
    ) -> Result<Vec<T>, FsError> {
        if !self.front_ends().must_be_told(origin) || !ops.iter().any(may_invalidate) {
            return commit();
        }
        let engine = self.tables().engine();
        let after = engine.head();
        let outcome = commit();
        for (op, result) in ops.iter().zip(outcome.iter().flatten()) {
            let Some(applied) = applied(result) else { continue };
            // They are remembered until they are told: a front end that has to drop everything must find them.
            for (ino, (parent, name)) in lost_names(op, &Effect::of(op, applied)) {
                self.references().note_lost_name(ino, parent, name);
            }
        }
        // A commit that failed may have been applied nevertheless.
        self.follow(LogRange { after, to: engine.head(), has_failures: false });
        outcome
    }

    /// Has a range of the log read soon: by a task, or without a runtime by the front ends when they ask.
    fn follow(&self, range: LogRange) {
        self.follower().note(range);
        self.front_ends().wake();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let me = self.weak();
        runtime.spawn(async move {
            while me.upgrade().is_some_and(|names| names.follow_page()) {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Takes a turn: tells front ends what a page of the log makes stale, and what waits for room. Returns whether more is unread.
    pub(super) fn follow_page(&self) -> bool {
        let turn = Turn { names: self, _exclusive: self.follower().hold() };
        self.follower().tell_views();
        let range = self.follower().unread().take();
        range.is_some_and(|range| turn.tell_page(range))
    }
}

/// A change of a front end. If it does not succeed after a commit, it is partly made, and the front end does not know how far: it is told of
/// all ops since the change began, also of its own.
#[derive(Debug)]
pub(crate) struct FrontEndChange<'n> {
    names: &'n Names,
    /// The newest commit when the change began; `None` once it has succeeded.
    began_after: Option<Seqno>,
}

impl<'n> FrontEndChange<'n> {
    pub(crate) fn begin(names: &'n Names) -> Self {
        Self { names, began_after: Some(names.tables().engine().head()) }
    }

    /// Ends the change: the front end knows all of it.
    pub(crate) fn succeed(mut self) {
        self.began_after = None;
    }
}

impl Drop for FrontEndChange<'_> {
    fn drop(&mut self) {
        let Some(after) = self.began_after else { return };
        let to = self.names.tables().engine().head();
        if to > after && self.names.front_ends().count() > 0 {
            self.names.follow(LogRange { after, to, has_failures: true });
        }
    }
}

/// A turn of the follower.
struct Turn<'n> {
    names: &'n Names,
    _exclusive: MutexGuard<'n, ()>,
}

impl Turn<'_> {
    /// Tells front ends what the first page of a range makes stale. Returns whether the range goes on.
    fn tell_page(&self, range: LogRange) -> bool {
        let page = match self.names.tables().engine().log_after(range.after, PAGE_OPS) {
            Ok(page) => page,
            Err(error) => {
                match error {
                    LogError::Lagged { .. } => tracing::debug!(
                        "the op log was cut off before it was read: kernels drop their caches"
                    ),
                    error => tracing::warn!(%error, "the op log cannot be read: kernels drop their caches"),
                }
                self.names.tell(Invalidation::Everything);
                return false;
            }
        };
        let last = page.last().map(|logged| logged.seqno);
        let is_news = |logged: &&LoggedOp| range.has_failures || self.is_news(logged);
        self.tell_ops(page.iter().filter(|logged| logged.seqno <= range.to).filter(is_news));
        let Some(last) = last.filter(|last| *last < range.to) else { return false };
        self.names.follower().note(LogRange { after: last, ..range });
        true
    }

    /// Tells front ends what ops make stale, each drop once.
    fn tell_ops<'l>(&self, ops: impl Iterator<Item = &'l LoggedOp>) {
        let (mut drops, mut lost) = (Drops::default(), Vec::new());
        for logged in ops {
            drops.extend(invalidations(&logged.op, &logged.effect));
            lost.extend(lost_names(&logged.op, &logged.effect));
        }
        if self.names.tell_all(drops.into_ordered()) {
            for (ino, (parent, name)) in lost {
                self.names.references().forget_lost_name(ino, parent, name);
            }
        }
    }

    /// Returns whether a front end must be told of a logged op. Ops of other mounts of a shared engine always are.
    fn is_news(&self, logged: &LoggedOp) -> bool {
        logged.context.at.mount != self.names.tables().mount()
            || self.names.front_ends().must_be_told(logged.context.origin)
    }
}

/// The drops of a page of the log.
#[derive(Debug, Default)]
struct Drops {
    entries: BTreeSet<(Ino, Bytes)>,
    /// Inodes, each with whether its data is to be dropped too.
    inodes: BTreeMap<Ino, bool>,
    others: Vec<Invalidation>,
}

impl Drops {
    fn extend(&mut self, all: Vec<Invalidation>) {
        for one in all {
            match one {
                Invalidation::Entry { parent, name } => {
                    self.entries.insert((parent, name));
                }
                Invalidation::Inode(ino) => {
                    self.inodes.insert(ino, true);
                }
                Invalidation::Attributes(ino) => {
                    self.inodes.entry(ino).or_insert(false);
                }
                other => self.others.push(other),
            }
        }
    }

    /// Returns the drops, names before inodes.
    fn into_ordered(self) -> impl Iterator<Item = Invalidation> {
        let entries = self.entries.into_iter().map(|(parent, name)| Invalidation::Entry { parent, name });
        let inodes = self.inodes.into_iter().map(|(ino, has_data)| match has_data {
            true => Invalidation::Inode(ino),
            false => Invalidation::Attributes(ino),
        });
        entries.chain(inodes).chain(self.others)
    }
}
