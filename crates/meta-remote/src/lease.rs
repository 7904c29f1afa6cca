//! Leases of the sessions that share a volume: rows of the database that each session renews at an interval.
//!
//! A lease says that its session is alive, so that its locks are valid, and how far it has followed the log. A session trusts its own lease for
//! [`TRUST`] after it began the last renewal that succeeded. Another session expires the lease after it has seen it without a renewal for
//! [`EXPIRY`] of its own clock. So neither a step of a clock nor the time of the database matters, only the rates of the clocks.
//!
//! A commit waits for the strict sessions: until each has acknowledged the commit, or its lease is gone.
//!
//! A database that has lost its last changes may have lost a lock, or have a released one again. The session notices this by the beat of its
//! lease, which each change of its locks raises, and begins a new lease.
//!
//! Invariants: a session whose lease was expired finds its row missing, and begins a new lease with a higher epoch; locks of an earlier epoch
//! are void. A strict session's lease exists before it reads anything.

use crate::session::SessionId;
use meta::{Locker, Seqno};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Interval at which a session renews its lease.
pub const RENEWAL: Duration = Duration::from_secs(2);

/// Time after the beginning of a renewal for which a session trusts its lease.
pub(crate) const TRUST: Duration = Duration::from_secs(8);

/// Time without a renewal, as seen by another session, after which that one expires a lease.
pub const EXPIRY: Duration = Duration::from_secs(10);

/// A lease as the database stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The session, and its epoch.
    pub locker: Locker,
    /// The number of the session's connections for locks. Replacements of locks from an earlier connection are refused.
    pub fence: i64,
    /// The number of renewals and of replacements of locks.
    pub beat: i64,
    /// The commit up to which the session has applied the changes of others.
    pub read_to: Seqno,
    /// Whether commits of other sessions wait for this one.
    pub is_strict: bool,
}

/// The leases of all sessions, as this one knows them.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
    /// Wakes the waiters for an acknowledgement of another session or of this one.
    changed: Notify,
    /// Wakes the task that renews the lease.
    due: Notify,
    /// Wakes the follower of the log.
    pub(crate) woken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The lease of this session, when it has one.
    own: Option<Own>,
    is_strict: bool,
    /// The commit up to which the cache of records contains all changes.
    followed: Seqno,
    /// The last commit up to `followed` of which the owner of the engine was notified.
    notified: Seqno,
    /// The commit up to which changes of others are applied.
    acknowledged: Seqno,
    /// The number of times that all leases were read.
    listings: u64,
    others: HashMap<i64, Observed>,
}

/// The lease of this session.
#[derive(Debug, Clone, Copy)]
struct Own {
    locker: Locker,
    /// The end of the time for which this session trusts it.
    until: Instant,
    /// The newest commit when the lease began. Earlier changes of others are not covered by it.
    from: Seqno,
}

/// A lease of another session, and the time at which this renewal of it was seen first.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    since: Instant,
}

impl Leases {
    /// Sets up an engine whose cache is empty, so that all commits up to `known` count as applied.
    pub(crate) fn begin(&self, is_strict: bool, known: Seqno) {
        let mut state = self.lock();
        state.is_strict = is_strict;
        (state.followed, state.notified, state.acknowledged) = (known, known, known);
    }

    /// Returns this session as an owner of locks, while it trusts its lease.
    pub(crate) fn own(&self) -> Option<Locker> {
        self.lock().trusted()
    }

    /// Returns whether cached records may be used: a strict session needs a lease.
    pub(crate) fn allows_cache(&self) -> bool {
        let state = self.lock();
        !state.is_strict || state.trusted().is_some()
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.lock().is_strict
    }

    /// Notes a lease that has begun when `head` was the newest commit.
    pub(crate) fn begun(&self, locker: Locker, head: Seqno, began_at: Instant) {
        self.lock().own = Some(Own { locker, until: began_at + TRUST, from: head });
        self.changed.notify_waiters();
    }

    /// Notes a renewal that began at a time. Returns whether locks may be lost, because the lease is not, or was not, trusted.
    pub(crate) fn renewed(&self, began_at: Instant) -> bool {
        let mut state = self.lock();
        let Some(own) = &mut state.own else { return true };
        let is_lost = own.until <= Instant::now();
        own.until = began_at + TRUST;
        drop(state);
        self.changed.notify_waiters();
        is_lost
    }

    /// Notes that there is no lease. Returns whether there was one.
    pub(crate) fn lose(&self) -> bool {
        self.lock().own.take().is_some()
    }

    /// Returns whether the time has ended for which this session trusts its lease.
    pub(crate) fn has_expired(&self) -> bool {
        self.lock().own.is_some_and(|own| own.until <= Instant::now())
    }

    pub(crate) fn acknowledged(&self) -> Seqno {
        self.lock().acknowledged
    }

    /// Notes that the changes of others up to a commit were dropped from the cache of records. `is_notified` says that the owner of the engine is
    /// notified of the changes, and acknowledges them itself.
    pub(crate) fn followed(&self, to: Seqno, is_notified: bool) {
        let mut state = self.lock();
        state.followed = to;
        if is_notified {
            state.notified = to;
            return;
        }
        let notified = state.notified;
        drop(state);
        self.acknowledge_if(|acknowledged| acknowledged >= notified, notified);
    }

    /// Notes that the changes of others up to a commit are applied.
    pub(crate) fn acknowledge(&self, to: Seqno) {
        self.acknowledge_if(|_| true, to);
    }

    fn acknowledge_if(&self, is_due: impl Fn(Seqno) -> bool, to: Seqno) {
        let mut state = self.lock();
        // The caches of the engine's owner contain nothing of commits for which there was no notification.
        let to = if to >= state.notified { state.followed } else { to };
        if to <= state.acknowledged || !is_due(state.acknowledged) {
            return;
        }
        state.acknowledged = to;
        let is_awaited = state.is_strict && !state.others.is_empty();
        drop(state);
        self.changed.notify_waiters();
        if is_awaited {
            self.due.notify_one();
        }
    }

    /// Notes an own group of commits that ends at `to`. If this session had applied all commits before the group, the group counts as applied too.
    pub(crate) fn committed(&self, base: Seqno, to: Seqno) {
        let mut state = self.lock();
        if base <= state.acknowledged && to > state.acknowledged {
            state.acknowledged = to;
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Handles a loss of commits by the database.
    pub(crate) fn go_back(&self, head: Seqno) {
        let mut state = self.lock();
        (state.followed, state.notified) = (head, head);
        state.acknowledged = state.acknowledged.min(head);
        // Locks may be lost with the commits, so the next renewal begins another lease.
        state.own = None;
    }

    /// Notes all leases, as they were read at a time. Returns those to expire.
    pub(crate) fn take_in(&self, own: SessionId, all: Vec<Lease>, read_at: Instant) -> Vec<Lease> {
        let (mut state, mut known) = (self.lock(), HashMap::new());
        let mut expired = Vec::new();
        for lease in all.into_iter().filter(|lease| lease.locker.session != own.0) {
            let id = lease.locker.session;
            let is_same =
                |before: &Observed| (before.lease.locker, before.lease.beat) == (lease.locker, lease.beat);
            let since = match state.others.remove(&id) {
                Some(before) if is_same(&before) => {
                    if read_at.saturating_duration_since(before.since) >= EXPIRY {
                        expired.push(lease);
                    }
                    before.since
                }
                _ => Instant::now(),
            };
            known.insert(id, Observed { lease, since });
        }
        state.others = known;
        state.listings += 1;
        drop(state);
        self.changed.notify_waiters();
        expired
    }

    /// Notes how far another session has followed the log.
    pub(crate) fn note_acknowledgement(&self, session: i64, to: Seqno) {
        if let Some(other) = self.lock().others.get_mut(&session) {
            other.lease.read_to = other.lease.read_to.max(to);
        }
        self.changed.notify_waiters();
    }

    /// Adds strict sessions that a commit has found and that are not known yet.
    pub(crate) fn note_strict(&self, found: &[Lease]) {
        let mut state = self.lock();
        for lease in found {
            let (lease, since) = (*lease, Instant::now());
            let known = state.others.entry(lease.locker.session).or_insert(Observed { lease, since });
            known.lease.read_to = known.lease.read_to.max(lease.read_to);
        }
    }

    /// Waits until sessions have acknowledged a commit, or have no lease any more.
    pub(crate) async fn wait_for(&self, sessions: &[Lease], at: Seqno) {
        self.wait_until(|state| {
            sessions.iter().all(|lease| {
                state.others.get(&lease.locker.session).is_none_or(|known| known.lease.read_to >= at)
            })
        })
        .await;
    }

    /// Like `wait_for`, for a commit of which it is not known which strict sessions it has found.
    pub(crate) async fn wait_for_all(&self, at: Seqno) {
        let listings = self.lock().listings;
        self.due.notify_one();
        // The listing that is being read may be older than the commit.
        self.wait_until(|state| {
            state.listings >= listings + 2
                && state.others.values().all(|other| !other.lease.is_strict || other.lease.read_to >= at)
        })
        .await;
    }

    /// Waits until this session has applied the changes of others up to a commit.
    pub(crate) async fn wait_acknowledged(&self, to: Seqno) {
        if self.acknowledged() < to {
            self.woken.notify_one();
            self.wait_until(|state| state.acknowledged >= to).await;
        }
    }

    /// Waits until this session trusts its lease.
    pub(crate) async fn wait_trusted(&self) {
        self.wait_until(|state| state.trusted().is_some()).await;
    }

    async fn wait_until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered first: a change after the look is not missed.
            changed.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the lease is due to be renewed.
    pub(crate) async fn due(&self) {
        let _ = tokio::time::timeout(RENEWAL, self.due.notified()).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn trusted(&self) -> Option<Locker> {
        let own = self.own.filter(|own| Instant::now() < own.until && own.from <= self.acknowledged);
        own.map(|own| own.locker)
    }
}

/// A notification of another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The session has committed.
    Commit,
    /// The session has applied the changes of others up to a commit.
    Acknowledgement {
        /// The session.
        session: i64,
        /// The commit.
        to: Seqno,
    },
    /// The session has released locks of an inode.
    Unlocked(u64),
}

impl Notice {
    /// Returns the text of a notification that `session` sends.
    pub fn text(self, session: SessionId) -> String {
        match self {
            Self::Commit => session.0.to_string(),
            Self::Acknowledgement { to, .. } => format!("{} a {}", session.0, to.0),
            Self::Unlocked(ino) => format!("{} l {ino}", session.0),
        }
    }

    /// Parses a notification. Returns `None` for one of `own`. One of an unknown kind counts as a commit.
    pub fn parse(text: &str, own: SessionId) -> Option<Self> {
        let mut words = text.split(' ');
        let session: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        if session == own.0 {
            return None;
        }
        let (kind, number) = (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()));
        Some(match (kind, number) {
            (Some("a"), Some(to)) => Self::Acknowledgement { session, to: Seqno(to) },
            (Some("l"), Some(ino)) => Self::Unlocked(ino),
            _ => Self::Commit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: SessionId = SessionId(1);

    fn lease(session: i64, beat: i64, read_to: u64) -> Lease {
        let locker = Locker { session, epoch: 1 };
        Lease { locker, fence: 1, beat, read_to: Seqno(read_to), is_strict: true }
    }

    #[test]
    fn notices_are_parsed_as_they_were_sent() {
        let acknowledged = Notice::Acknowledgement { session: 2, to: Seqno(7) };
        for notice in [Notice::Commit, acknowledged, Notice::Unlocked(9)] {
            assert_eq!(Notice::parse(&notice.text(SessionId(2)), OWN), Some(notice));
            assert_eq!(Notice::parse(&notice.text(OWN), OWN), None);
        }
        assert_eq!(Notice::parse("2 later version", OWN), Some(Notice::Commit));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_not_renewed_expires_after_it_was_watched_long_enough() {
        let leases = Leases::default();
        let look = |beat| leases.take_in(OWN, vec![lease(1, 0, 0), lease(2, beat, 0)], Instant::now());
        assert_eq!(look(1), []);
        tokio::time::advance(EXPIRY - Duration::from_secs(1)).await;
        assert_eq!(look(1), []);
        assert_eq!(look(2), [], "a renewal");
        tokio::time::advance(EXPIRY).await;
        assert_eq!(look(2), [lease(2, 2, 0)]);
    }

    /// The holder stops trusting its lease before another session can expire it.
    #[tokio::test(start_paused = true)]
    async fn a_session_trusts_its_lease_for_less_than_others_wait() {
        let (leases, locker) = (Leases::default(), Locker { session: 1, epoch: 1 });
        assert_eq!(leases.own(), None);
        leases.begun(locker, Seqno(0), Instant::now());
        assert_eq!(leases.own(), Some(locker));
        assert!(!leases.renewed(Instant::now()));
        tokio::time::advance(TRUST).await;
        assert_eq!((leases.own(), leases.has_expired()), (None, true));
        assert!(leases.renewed(Instant::now()), "locks may have been lost meanwhile");
        assert!(TRUST + RENEWAL <= EXPIRY);
        // A new lease says nothing about changes before it.
        leases.begun(Locker { epoch: 2, ..locker }, Seqno(9), Instant::now());
        assert_eq!(leases.own(), None);
        leases.followed(Seqno(9), false);
        assert_eq!(leases.own(), Some(Locker { epoch: 2, ..locker }));
    }

    #[tokio::test]
    async fn a_commit_waits_for_acknowledgements_and_for_leases_that_end() {
        let leases = Leases::default();
        let found = [lease(2, 1, 3), lease(3, 1, 3)];
        leases.note_strict(&found);
        let (waiting, ending) = (leases.wait_for(&found, Seqno(5)), async {
            leases.note_acknowledgement(2, Seqno(4));
            leases.note_acknowledgement(2, Seqno(5));
            tokio::task::yield_now().await;
            // The session 3 has ended.
            leases.take_in(OWN, vec![lease(2, 2, 5)], Instant::now());
        });
        tokio::join!(waiting, ending);
    }

    #[test]
    fn a_commit_is_acknowledged_after_its_records_and_the_owner_of_the_engine() {
        let leases = Leases::default();
        leases.begin(true, Seqno(3));
        leases.followed(Seqno(5), true);
        leases.followed(Seqno(7), false);
        assert_eq!(leases.acknowledged(), Seqno(3));
        leases.acknowledge(Seqno(4));
        assert_eq!(leases.acknowledged(), Seqno(4));
        // The owner may have read more of the log than the cache of records has.
        leases.acknowledge(Seqno(9));
        assert_eq!(leases.acknowledged(), Seqno(7));
    }

    #[test]
    fn own_commits_are_taken_in_if_all_before_them_are() {
        let leases = Leases::default();
        leases.begin(true, Seqno(3));
        leases.followed(Seqno(3), false);
        leases.committed(Seqno(3), Seqno(5));
        assert_eq!(leases.acknowledged(), Seqno(5));
        leases.committed(Seqno(6), Seqno(7));
        assert_eq!(leases.acknowledged(), Seqno(5), "the commit 6 is of another session");
    }
}
