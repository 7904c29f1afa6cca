//! The holder of a session's lease: renews it, expires those of sessions that have died, and replaces locks.
//!
//! Locks and renewals use one connection. A new connection raises the fence of the lease, so that a replacement of locks that is still on its way
//! on a lost one is not applied: a lost answer can be asked for again.

use crate::database::{Connection as _, Database};
use crate::error::{Failure, OpenError};
use crate::lease::{Lease, Leases, RENEWAL};
use crate::link::{Attempts, Link};
use crate::session::SessionId;
use meta::{EngineError, LockChange, Locker, News, StoredLocks};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

/// The holder of the lease of a session.
pub(crate) struct LeaseHolder<D: Database> {
    link: Arc<Link<D>>,
    session: SessionId,
    held: Mutex<Held<D::Connection>>,
    /// The greatest beat of a request that the database has answered. If it has a lower one, it has lost changes.
    answered: AtomicI64,
}

/// The lease as the holder knows it.
struct Held<C> {
    /// The connection, on which the fence of the lease is this one's.
    connection: Option<Arc<C>>,
    lease: Lease,
    /// Whether the database may have the lease.
    is_stored: bool,
    /// The commit that was acknowledged to other sessions last.
    notified: meta::Seqno,
}

impl<D: Database> LeaseHolder<D> {
    /// Begins the lease of a session, whose cache is empty.
    pub(crate) async fn begin(
        link: Arc<Link<D>>,
        session: SessionId,
        is_strict: bool,
    ) -> Result<Arc<Self>, OpenError> {
        let locker = Locker { session: session.0, epoch: 0 };
        let lease = Lease { locker, fence: 0, beat: 0, read_to: link.head(), is_strict };
        let held = Held { connection: None, lease, is_stored: false, notified: link.head() };
        let holder = Self { link, session, held: Mutex::new(held), answered: AtomicI64::new(0) };
        let mut held = holder.held.lock().await;
        holder.connect(&mut held).await?;
        // The cache is empty, so all commits before the lease count as applied.
        holder.leases().begin(is_strict, holder.link.head());
        drop(held);
        Ok(Arc::new(holder))
    }

    fn leases(&self) -> &Leases {
        self.link.leases()
    }

    /// Renews the lease until the other end of `ended` is dropped.
    pub(crate) async fn run(self: Arc<Self>, mut ended: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return,
                () = self.leases().due() => {}
            }
            let attempts = Attempts::begin(RENEWAL);
            let mut held = self.held.lock().await;
            if let Err(failure) = attempts.within(self.renew(&mut held)).await {
                tracing::debug!("the lease of this session cannot be renewed: {failure:?}");
                held.connection = None;
            }
            drop(held);
            if self.leases().has_expired() && self.leases().lose() {
                self.report_loss();
            }
        }
    }

    fn report_loss(&self) {
        tracing::error!(
            "the lease of this mount in the database has expired, or the database has lost changes of it: other machines may have taken its locks, so calls on files with locks fail until they are closed"
        );
        self.link.watchers().notify(News::LocksLost);
    }

    /// Renews the lease, and expires those of sessions that have died.
    async fn renew(&self, held: &mut Held<D::Connection>) -> Result<(), Failure> {
        let connection = self.connected(held).await?;
        let began_at = Instant::now();
        held.lease.beat += 1;
        held.lease.read_to = self.leases().acknowledged();
        let notifies = held.lease.is_strict && held.lease.read_to > held.notified;
        let Some(all) = self.send_renewal(&connection, &held.lease, notifies).await? else {
            // Another session has expired it, or the database has lost changes of it.
            held.is_stored = false;
            return self.store(held, &connection).await;
        };
        held.notified = held.lease.read_to;
        if self.leases().renewed(began_at) {
            // Calls may have failed meanwhile as if the locks were lost, so the locks are given up.
            held.is_stored = false;
            return self.store(held, &connection).await;
        }
        for dead in self.leases().take_in(self.session, all, began_at) {
            tracing::warn!(
                "the session {} has died: its locks are released, and commits wait for it no longer",
                dead.locker.session
            );
            connection.expire_lease(&dead).await?;
        }
        Ok(())
    }

    /// Renews the lease in the database. Returns all leases; `None` if it does not have the lease as this session left it.
    async fn send_renewal(
        &self,
        connection: &D::Connection,
        lease: &Lease,
        notifies: bool,
    ) -> Result<Option<Vec<Lease>>, Failure> {
        let all = connection.renew_lease(lease, self.answered.load(Ordering::Acquire), notifies).await?;
        if all.is_some() {
            self.answered.fetch_max(lease.beat, Ordering::AcqRel);
        }
        Ok(all)
    }

    /// Stores a new lease with the next epoch.
    async fn store(&self, held: &mut Held<D::Connection>, connection: &D::Connection) -> Result<(), Failure> {
        let is_first = held.lease.locker.epoch == 0;
        if self.leases().lose() {
            self.report_loss();
        }
        let began_at = Instant::now();
        held.lease.locker.epoch += 1;
        held.lease.beat += 1;
        held.lease.read_to = self.leases().acknowledged();
        let head = connection.begin_lease(&held.lease).await?;
        self.answered.fetch_max(held.lease.beat, Ordering::AcqRel);
        held.is_stored = true;
        self.link.learn_head(head);
        if !is_first && held.lease.is_strict {
            // Commits did not wait for this session while it had no lease.
            self.link.rows().clear(head);
            self.leases().woken.notify_one();
        }
        self.leases().begun(held.lease.locker, head, began_at);
        Ok(())
    }

    /// Connects, and raises the fence of the lease.
    async fn connect(&self, held: &mut Held<D::Connection>) -> Result<Arc<D::Connection>, OpenError> {
        held.connection = None;
        let connection = Arc::new(self.link.database().connect_committing(self.session, false).await?);
        held.lease.fence += 1;
        let failed = |failure: Failure| OpenError::Engine(failure.into_engine_error());
        let began_at = Instant::now();
        held.lease.beat += 1;
        let is_renewed = held.is_stored
            && self.send_renewal(&connection, &held.lease, false).await.map_err(failed)?.is_some();
        if !is_renewed || self.leases().renewed(began_at) {
            held.is_stored = false;
            self.store(held, &connection).await.map_err(failed)?;
        }
        held.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Returns the open connection; connects if there is none.
    async fn connected(&self, held: &mut Held<D::Connection>) -> Result<Arc<D::Connection>, Failure> {
        if let Some(open) = held.connection.as_ref().filter(|open| open.is_open()) {
            return Ok(open.clone());
        }
        self.connect(held).await.map_err(|error| Failure::Lost(error.to_string()))
    }

    /// Makes a call about locks, within the budget. After a lost answer `ask` is called again, on another connection.
    async fn repeat<T, F>(&self, ask: impl Fn(Arc<D::Connection>, Lease) -> F) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut attempts = Attempts::begin(self.link.budget());
        loop {
            let connected = async {
                let mut held = self.held.lock().await;
                let connection = self.connected(&mut held).await?;
                held.lease.beat += 1;
                Ok((connection, held.lease))
            };
            let failure = match attempts.within(connected).await {
                Err(failure) => failure,
                Ok((connection, lease)) => {
                    self.link.count_round_trip();
                    match attempts.within(ask(connection.clone(), lease)).await {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => {
                            if matches!(failure, Failure::Lost(_)) {
                                self.forget(&connection).await;
                            }
                            failure
                        }
                    }
                }
            };
            match failure {
                Failure::Lost(_) | Failure::Aborted(_) if attempts.pause().await => {}
                failure => return Err(failure.into_engine_error()),
            }
        }
    }

    /// Forgets a lost connection.
    async fn forget(&self, lost: &Arc<D::Connection>) {
        let mut held = self.held.lock().await;
        if held.connection.as_ref().is_some_and(|open| Arc::ptr_eq(open, lost)) {
            held.connection = None;
        }
    }

    pub(crate) fn locks_of(self: &Arc<Self>, ino: u64) -> Result<StoredLocks, EngineError> {
        let holder = self.clone();
        self.link.wait_for(async move {
            holder.repeat(|connection, _| async move { connection.locks_of(ino).await }).await
        })?
    }

    /// Replaces the locks of a file. Fails if the lease has expired, or has another epoch than the caller knows.
    pub(crate) fn replace_locks(
        self: &Arc<Self>,
        change: LockChange<'_>,
    ) -> Result<(bool, StoredLocks), EngineError> {
        let locker = self.leases().own().ok_or_else(expired)?;
        let (seen, new) = (change.seen.map(<[u8]>::to_vec), change.new.map(<[u8]>::to_vec));
        let (ino, wakes) = (change.ino, change.wakes);
        let (holder, own) = (self.clone(), Arc::new((seen, new)));
        self.link.wait_for(async move {
            let replace = |connection: Arc<D::Connection>, lease: Lease| {
                let (holder, own) = (holder.clone(), own.clone());
                async move {
                    if lease.locker != locker {
                        return Err(Failure::Refused(expired()));
                    }
                    let change = LockChange { ino, seen: own.0.as_deref(), new: own.1.as_deref(), wakes };
                    let replaced = connection.replace_locks(&lease, change).await?;
                    if replaced.is_some() {
                        holder.answered.fetch_max(lease.beat, Ordering::AcqRel);
                    }
                    // An attempt whose answer was lost may have replaced them.
                    replaced
                        .map(|(is_new, now)| (is_new || now.held == own.1, now))
                        .ok_or_else(|| Failure::Refused(expired()))
                }
            };
            holder.repeat(replace).await
        })?
    }
}

fn expired() -> EngineError {
    EngineError::Unavailable("the lease of this mount has expired".into())
}
