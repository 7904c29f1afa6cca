//! The follower of the op log: reads committed ops, and notifies front ends of what to drop from their caches.
//!
//! The follower has a cursor only while ops are unread. A commit that may make caches stale notes the range of the log
//! in which it is; ops of the only front end are not noted, unless they fail half-way, so they cost no read. A turn
//! reads one page of the log. Turns are taken by a task that the commit starts unless one is at work, and by every front end that asks for
//! its next invalidation, so that nothing depends on a runtime.
//!
//! Invariants: an op is read after it is committed; turns do not overlap; a range of the log that was cut off before it was read, or
//! that cannot be read, ends in [`Invalidation::Everything`].

use bytes::Bytes;
use meta::{
    Applied, Effect, FsError, Ino, Inode, LogError, LoggedOp, Op, OpContext, Origin, SeenName, Seqno,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::runtime::Handle;

use super::invalidation::Invalidation;
use super::op_invalidations::{invalidations, lost_names, may_invalidate};
use crate::names::Names;

/// Ops to read in one turn.
const PAGE_OPS: usize = 512;

/// The follower's state: the unread part of the op log, and changes of views to deliver.
#[derive(Debug, Default)]
pub(crate) struct OpLogFollower {
    undelivered: Mutex<Undelivered>,
    /// Held during a turn, and while front ends must not be notified of ops.
    turn: Mutex<()>,
    /// Whether a task takes turns until nothing is unread.
    has_task: AtomicBool,
    views: ViewChanges,
    others: OtherSessions,
}

/// The commits that the next turn delivers. A turn takes all of it at once, so that it acknowledges exactly what it delivers.
#[derive(Debug, Default)]
struct Undelivered {
    /// The unread part of the op log.
    range: Option<LogRange>,
    /// Whether anything may have changed.
    everything: bool,
    /// The last commit of other sessions that the engine has announced.
    announced: Option<Seqno>,
}

/// A change of other sessions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Foreign<'l> {
    /// An op.
    Op(&'l LoggedOp),
    /// Anything: their ops cannot be read, or the engine has lost commits.
    Everything,
}

/// A function that applies a change of other sessions to this mount.
type TakeIn = Box<dyn Fn(Foreign<'_>) + Send + Sync>;

/// Changes of other sessions: the function that applies them before front ends are notified, and whether some are still to be delivered.
#[derive(Default)]
struct OtherSessions {
    take_in: OnceLock<TakeIn>,
    /// Whether reads may show changes that the engine has not announced yet.
    is_news_coming: AtomicBool,
}

impl fmt::Debug for OtherSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherSessions").finish_non_exhaustive()
    }
}

/// Changes of views, the other kind of change that front ends are notified of.
#[derive(Default)]
struct ViewChanges {
    /// The function that notifies front ends of them.
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
    /// Whether front ends must be notified of their own ops too.
    has_failures: bool,
}

impl Undelivered {
    /// Adds a range to the unread part, which then has all commits from the first to the last one.
    fn add(&mut self, range: LogRange) {
        self.range = Some(match self.range {
            Some(known) => LogRange {
                after: known.after.min(range.after),
                to: known.to.max(range.to),
                has_failures: known.has_failures || range.has_failures,
            },
            None => range,
        });
    }
}

impl OpLogFollower {
    /// Has front ends notified of the commits after `after`, which were not made through this file system.
    pub(crate) fn follow_commits_after(names: &Names, after: Seqno) {
        if names.front_ends().count() > 0 {
            let to = names.tables().engine().head();
            follow(names, LogRange { after, to, has_failures: false });
        }
    }

    /// Keeps front ends from being notified of ops until the guard is dropped. A front end that is notified of an op asks for the
    /// changed state at once, so the caller puts that in place first.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the function that notifies front ends of changes of views.
    pub(crate) fn serve_views(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.views.tell.get_or_init(|| Box::new(tell));
    }

    /// Sets the function that applies the changes of other sessions.
    pub(super) fn serve_other_sessions(&self, take_in: impl Fn(Foreign<'_>) + Send + Sync + 'static) {
        self.others.take_in.get_or_init(|| Box::new(take_in));
    }

    /// Makes the next turn notify front ends of changes of views again, as queues may have room then.
    pub(crate) fn await_room(&self) {
        self.views.awaits_room.store(true, Ordering::Release);
    }

    /// Notifies front ends of changes of views, if some wait for room in a queue.
    fn tell_views(&self) {
        if self.views.awaits_room.swap(false, Ordering::AcqRel)
            && let Some(tell) = self.views.tell.get()
        {
            tell();
        }
    }

    /// Notes that reads may show changes of other sessions that the engine will announce next.
    pub(super) fn expect_news(&self) {
        self.others.is_news_coming.store(true, Ordering::Release);
    }

    /// Returns whether reads may show changes that no turn has delivered yet.
    pub(super) fn is_behind(&self) -> bool {
        self.others.is_news_coming.load(Ordering::Acquire) || self.has_work() || self.turn.try_lock().is_err()
    }

    /// Returns whether a turn has something to deliver.
    fn has_work(&self) -> bool {
        let undelivered = self.undelivered();
        undelivered.range.is_some() || undelivered.everything
    }

    fn undelivered(&self) -> MutexGuard<'_, Undelivered> {
        self.undelivered.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.commit_together_if(&self.context(origin), &[], ops)
    }

    /// Like `commit_together`, at a time that the caller has read already. Fails with `NotFound` unless the names still refer to the
    /// inodes that the caller has seen.
    pub(crate) fn commit_together_if(
        &self,
        context: &OpContext,
        names: &[SeenName],
        ops: &[Op],
    ) -> Result<Vec<Applied>, FsError> {
        let commit = || self.tables().commit_together_if(context, names, ops);
        self.followed(context.origin, ops, commit, |applied| Some(applied))
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
        let commit = || store::measure_commit(commit);
        if !self.front_ends().must_be_told(origin) || !ops.iter().any(may_invalidate) {
            return commit();
        }
        let engine = self.tables().engine();
        let after = engine.head();
        let outcome = commit();
        // A commit that failed may have been applied nevertheless. Most ops that note what the bucket has find it unchanged.
        let mut is_shown = outcome.is_err();
        for (op, result) in ops.iter().zip(outcome.iter().flatten()) {
            let Some(applied) = applied(result) else { continue };
            let effect = Effect::of(op, applied);
            is_shown = is_shown || !invalidations(op, &effect).is_empty();
            // Names that inodes lost are remembered until front ends are notified: a front end that has to drop
            // everything must find them.
            for (ino, (parent, name)) in lost_names(op, &effect) {
                self.references().note_lost_name(ino, parent, name);
            }
        }
        if is_shown {
            follow(self, LogRange { after, to: engine.head(), has_failures: false });
        }
        outcome
    }

    /// Takes a turn: notifies front ends of what a page of the log makes stale, and of what waits for room. Returns whether more is unread.
    pub(super) fn follow_page(&self) -> bool {
        let turn = Turn { names: self, _exclusive: self.follower().hold() };
        self.follower().tell_views();
        let Undelivered { range, everything, announced } =
            std::mem::take(&mut *self.follower().undelivered());
        if everything {
            turn.tell_everything();
        }
        match (range.and_then(|range| turn.tell_page(range)), announced) {
            (Some(rest), announced) => {
                let mut undelivered = self.follower().undelivered();
                undelivered.add(rest);
                // The engine may have announced more meanwhile.
                undelivered.announced = undelivered.announced.or(announced);
                true
            }
            (None, Some(announced)) => {
                self.tables().engine().acknowledge(announced);
                false
            }
            (None, None) => false,
        }
    }
}

/// Commits an op of this mount that stores the content of `seen` in other objects. Fails with `StaleBase` if the inode
/// has other content by now.
pub(crate) fn commit_rewrite(names: &Names, seen: &Inode, op: &Op) -> Result<Applied, FsError> {
    let context = names.context(Origin::FrontEnd);
    let commit = || Ok(vec![names.tables().commit_rewrite(&context, seen, op)?]);
    let mut applied =
        names.followed(context.origin, std::slice::from_ref(op), commit, |applied| Some(applied))?;
    applied.pop().ok_or_else(|| FsError::Corrupt("a commit without a result".into()))
}

/// Notes commits that are to be read soon.
fn note_commits(names: &Names, range: LogRange) {
    names.follower().undelivered().add(range);
    names.front_ends().wake();
}

/// Has commits of other sessions read soon, by a task on `runtime`.
pub(super) fn follow_others(names: &Names, (after, to): (Seqno, Seqno), runtime: &Handle) {
    let mut undelivered = names.follower().undelivered();
    undelivered.add(LogRange { after, to, has_failures: false });
    undelivered.announced = undelivered.announced.max(Some(to));
    drop(undelivered);
    names.front_ends().wake();
    start_task(names, runtime);
    names.follower().others.is_news_coming.store(false, Ordering::Release);
}

/// Has front ends notified soon, by a task on `runtime`, that anything may have changed.
pub(super) fn follow_everything(names: &Names, to: Seqno, runtime: &Handle) {
    let mut undelivered = names.follower().undelivered();
    undelivered.everything = true;
    // The database may have lost commits that the engine has announced.
    undelivered.announced = Some(to);
    drop(undelivered);
    names.follower().others.is_news_coming.store(false, Ordering::Release);
    names.front_ends().wake();
    start_task(names, runtime);
}

/// Arranges that a range of the log is read soon: by a task, or without a runtime by the front ends when they ask.
fn follow(names: &Names, range: LogRange) {
    match Handle::try_current() {
        Ok(runtime) => follow_on(names, range, &runtime),
        Err(_) => note_commits(names, range),
    }
}

/// Notes a range of the log, and has a task read it.
fn follow_on(names: &Names, range: LogRange, runtime: &Handle) {
    note_commits(names, range);
    start_task(names, runtime);
}

/// Starts the task that takes turns unless it is at work.
fn start_task(names: &Names, runtime: &Handle) {
    if names.follower().has_task.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut task = FollowerTask(names.weak());
    runtime.spawn(async move {
        while task.take_turn() {
            tokio::task::yield_now().await;
        }
    });
}

/// The task that takes turns. Dropping it, also with its runtime, lets the next commit start another.
struct FollowerTask(Weak<Names>);

impl FollowerTask {
    /// Takes a turn. Returns whether more is unread, also of commits that found this task at work.
    fn take_turn(&mut self) -> bool {
        let Some(names) = self.0.upgrade() else { return false };
        if names.follow_page() {
            return true;
        }
        let follower = names.follower();
        // A swap, so that this task sees what was noted before a commit found it at work.
        follower.has_task.swap(false, Ordering::AcqRel);
        let goes_on = follower.has_work() && !follower.has_task.swap(true, Ordering::AcqRel);
        if !goes_on {
            // Another task may be at work by now, whose mark is not this one's to clear.
            self.0 = Weak::new();
        }
        goes_on
    }
}

impl Drop for FollowerTask {
    fn drop(&mut self) {
        if let Some(names) = self.0.upgrade() {
            names.follower().has_task.store(false, Ordering::Release);
        }
    }
}

/// A change that a front end requested. If it fails after a commit, it is partly made, and the front end does not know
/// how far: it is told of all ops since the change began, also of its own.
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
            follow(self.names, LogRange { after, to, has_failures: true });
        }
    }
}

/// A turn of the follower.
struct Turn<'n> {
    names: &'n Names,
    _exclusive: MutexGuard<'n, ()>,
}

impl Turn<'_> {
    /// Tells front ends what the first page of a range makes stale. Returns the rest of the range, if it goes on.
    fn tell_page(&self, range: LogRange) -> Option<LogRange> {
        let page = match self.names.tables().engine().log_after(range.after, PAGE_OPS) {
            Ok(page) => page,
            Err(error) => {
                match error {
                    LogError::Lagged { .. } => tracing::debug!(
                        "the op log was cut off before it was read: kernels drop their caches"
                    ),
                    error => tracing::warn!(%error, "the op log cannot be read: kernels drop their caches"),
                }
                self.tell_everything();
                return None;
            }
        };
        let last = page.last().map(|logged| logged.seqno);
        let due = || page.iter().filter(|logged| logged.seqno <= range.to);
        if let Some(take_in) = self.names.follower().others.take_in.get() {
            let own = self.names.tables().mount();
            let foreign = due().filter(|logged| logged.context.at.mount != own);
            foreign.for_each(|logged| take_in(Foreign::Op(logged)));
        }
        let is_news = |logged: &&LoggedOp| range.has_failures || self.is_news(logged);
        self.tell_ops(due().filter(is_news));
        last.filter(|last| *last < range.to).map(|last| LogRange { after: last, ..range })
    }

    /// Notifies front ends that anything may be stale, after open files have their newest content.
    fn tell_everything(&self) {
        if let Some(take_in) = self.names.follower().others.take_in.get() {
            take_in(Foreign::Everything);
        }
        self.names.tell(Invalidation::Everything);
    }

    /// Notifies front ends of what ops make stale, each drop once.
    fn tell_ops<'l>(&self, ops: impl Iterator<Item = &'l LoggedOp>) {
        let (mut drops, mut lost) = (Drops::default(), Vec::new());
        for logged in ops {
            drops.extend(invalidations(&logged.op, &logged.effect));
            lost.extend(lost_names(&logged.op, &logged.effect));
        }
        // The lost names of a commit that was not made through this file system are not known yet.
        for (ino, (parent, name)) in &lost {
            self.names.references().note_lost_name(*ino, *parent, name);
        }
        if self.names.tell_all(drops.into_ordered()) {
            for (ino, (parent, name)) in lost {
                self.names.references().forget_lost_name(ino, parent, name);
            }
        }
    }

    /// Returns whether a front end must be notified of a logged op. This is always so for ops of other mounts of a shared
    /// metadata engine.
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
    /// Adds invalidations. Repeated ones count once.
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
