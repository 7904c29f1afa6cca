//! The database as mounts reach it: [`meta_remote::Database`] over a link with faults.
//!
//! A request is a message that arrives after a delay, in the order of its connection, also after its sender has given up. The answer is another
//! message. Both can be lost with their connection.

use super::network::{LinkState, NetworkLink, OpenMark};
use super::server::ServerState;
use meta::{
    DentryWithInode, EngineError, KeyRange, LockChange, LogCap, MemoryEngine, Reader as _, Rows, Seqno,
    StoredLocks, Versioned,
};
use meta_remote::{
    Applied, Changes, Connection, Database, Failure, Lease, Listener, LogPage, LogState, Notice, OpenError,
    Position, Reads, RunLimits, ScanRange, SessionId, SessionState, StagedRecords, Transaction,
};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

/// Time after which a connection attempt without an answer fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The database over the link of a mount.
#[derive(Clone)]
pub(super) struct SimulatedDatabase {
    link: Arc<NetworkLink>,
    /// Whether the database sends notifications.
    has_notifications: bool,
}

/// A connection. Its user may hold several references.
#[derive(Clone)]
pub(super) struct SimulatedConnection {
    link: Arc<NetworkLink>,
    /// The server's process, and the closings of the link when it connected.
    since: (u64, u64),
    open: Arc<OpenMark>,
    /// The arrival of the last request.
    last_arrival: Arc<Mutex<Instant>>,
}

impl SimulatedDatabase {
    pub(super) fn new(link: Arc<NetworkLink>, has_notifications: bool) -> Self {
        Self { link, has_notifications }
    }

    async fn open(&self) -> Result<SimulatedConnection, OpenError> {
        let refused =
            |reason: &str| OpenError::Connect { host: "database".into(), reason: reason.to_owned() };
        let until = Instant::now() + CONNECT_TIMEOUT;
        let answered = async {
            sleep(self.link.draw_delay()).await;
            self.link.pass().await
        };
        match tokio::time::timeout_at(until, answered).await {
            Ok(true) => {}
            Ok(false) => return Err(refused("connection refused")),
            Err(_) => return Err(refused("no answer in time")),
        }
        let incarnation = self.link.network.incarnation().ok_or_else(|| refused("connection refused"))?;
        Ok(SimulatedConnection {
            link: self.link.clone(),
            since: (incarnation, self.link.closings()),
            open: Arc::default(),
            last_arrival: Arc::new(Mutex::new(Instant::now())),
        })
    }
}

fn lost() -> Failure {
    Failure::Lost("connection lost".into())
}

fn unsupported<T>() -> Result<T, Failure> {
    Err(Failure::Refused(EngineError::Unavailable("runs are not simulated".into())))
}

impl SimulatedConnection {
    /// Sends a request, and waits for the answer. Fails if the connection is lost; the request may arrive nevertheless.
    async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut ServerState) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.call_and_tell(act, |_| None).await
    }

    /// Like [`Self::call`]. Before it answers, the server sends the notification that `tell` returns.
    async fn call_and_tell<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut ServerState) -> T + Send + 'static,
        tell: impl FnOnce(&T) -> Option<(SessionId, Notice)> + Send + 'static,
    ) -> Result<T, Failure> {
        if !self.is_open() {
            return Err(lost());
        }
        let (sender, answered) = oneshot::channel();
        let (connection, arrival) = (self.clone(), self.next_arrival());
        tokio::spawn(async move {
            sleep_until(arrival).await;
            if !connection.link.pass().await {
                return;
            }
            let network = &connection.link.network;
            let Some(answer) = network.act(connection.since.0, act) else { return };
            if let Some((from, notice)) = tell(&answer) {
                network.notify(from, notice);
            }
            if connection.link.draw_loss() {
                network.count("lost answers");
                connection.link.note_fault();
                connection.open.close();
                return;
            }
            sleep(connection.link.draw_delay()).await;
            if connection.link.pass().await && connection.is_open() {
                // The caller may have given up.
                let _ = sender.send(answer);
            }
        });
        answered.await.map_err(|_| {
            self.open.close();
            lost()
        })
    }

    /// Returns the arrival of a request that is sent now, after all earlier ones of the connection.
    fn next_arrival(&self) -> Instant {
        let mut last = self.last_arrival.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (Instant::now() + self.link.draw_delay()).max(*last + Duration::from_millis(1));
        *last
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&MemoryEngine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Failure> {
        self.call(|state| read(&state.engine())).await?.map_err(Failure::Refused)
    }
}

impl Reads for SimulatedConnection {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        let key = key.to_vec();
        self.read(move |engine| engine.get(&key)).await
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, Failure> {
        let keys = keys.to_vec();
        self.read(move |engine| engine.multi_get(&keys)).await
    }

    async fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, Failure> {
        let key = key.to_vec();
        self.read(move |engine| engine.get_dentry(&key)).await
    }

    async fn scan(&self, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
        let range = range.clone();
        self.read(move |engine| scan(engine, &range, limit)).await
    }

    async fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
        let range = range.clone();
        self.read(move |engine| engine.last(&range)).await
    }
}

fn scan(engine: &MemoryEngine, range: &ScanRange, limit: usize) -> Result<Rows, EngineError> {
    let to = range.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    engine.scan(Bound::Included(&range.from), to, limit)
}

/// A view of the records at one moment.
pub(super) struct SimulatedSnapshot(Arc<MemoryEngine>);

impl Reads for SimulatedSnapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        self.0.get(key).map_err(Failure::Refused)
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, Failure> {
        self.0.multi_get(keys).map_err(Failure::Refused)
    }

    async fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, Failure> {
        self.0.get_dentry(key).map_err(Failure::Refused)
    }

    async fn scan(&self, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
        scan(&self.0, range, limit).map_err(Failure::Refused)
    }

    async fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
        self.0.last(range).map_err(Failure::Refused)
    }
}

impl Database for SimulatedDatabase {
    type Connection = SimulatedConnection;
    type Snapshot = SimulatedSnapshot;

    const NAME: &'static str = "simulated";
    const RUN_LIMITS: RunLimits = RunLimits { records: 0, bytes: 0 };
    const VERSION: i32 = 1;

    fn place(&self) -> String {
        "the simulated database".into()
    }

    async fn stored_version(&self) -> Result<Option<i32>, OpenError> {
        Ok(Some(Self::VERSION))
    }

    async fn create(&self) -> Result<(), OpenError> {
        Err(OpenError::Exists(self.place()))
    }

    async fn remove(&self) -> Result<(), OpenError> {
        Err(OpenError::Missing(self.place()))
    }

    async fn connect(&self) -> Result<SimulatedConnection, OpenError> {
        self.open().await
    }

    async fn begin_session(
        &self,
        holder: &str,
        is_exclusive: bool,
    ) -> Result<(SimulatedConnection, SessionId), OpenError> {
        let (connection, holder) = (self.open().await?, holder.to_owned());
        let begun = connection
            .call(move |state| state.begin_session(&holder, is_exclusive, Instant::now()))
            .await
            .map_err(Failure::into_engine_error)?;
        Ok((connection, begun?))
    }

    async fn connect_committing(
        &self,
        _session: SessionId,
        _is_exclusive: bool,
    ) -> Result<SimulatedConnection, OpenError> {
        self.open().await
    }

    async fn connect_listening(
        &self,
        own: SessionId,
        hear: Listener,
    ) -> Result<(SimulatedConnection, bool), OpenError> {
        let connection = self.open().await?;
        if self.has_notifications {
            self.link.network.listen(own, hear, self.link.clone(), connection.since);
        }
        Ok((connection, self.has_notifications))
    }

    async fn snapshot(&self, _session: SessionId) -> Result<(SimulatedSnapshot, Seqno), Failure> {
        let connection = self.open().await.map_err(|error| Failure::Lost(error.to_string()))?;
        connection.call(|state| (SimulatedSnapshot(state.engine()), state.head())).await
    }
}

impl Connection for SimulatedConnection {
    fn is_open(&self) -> bool {
        let now = (self.link.network.incarnation().unwrap_or(u64::MAX), self.link.closings());
        // A link without answers does not show that the server is gone.
        let is_known_lost = now != self.since && self.link.state() != LinkState::Silent;
        !self.open.is_closed() && !is_known_lost
    }

    async fn apply(
        &self,
        transaction: &Transaction,
        session: SessionId,
        generation: i64,
        number: i64,
    ) -> Result<Applied, Failure> {
        let Transaction::Group(group) = transaction else { return unsupported() };
        let group = group.clone();
        let apply =
            move |state: &mut ServerState| state.apply(&group, session, (generation, number), Instant::now());
        let tell = move |applied: &Result<Applied, Failure>| {
            let has_changed = applied
                .as_ref()
                .is_ok_and(|applied| applied.now.is_some_and(|(head, _)| head > applied.outcome.base));
            has_changed.then_some((session, Notice::Commit))
        };
        self.call_and_tell(apply, tell).await?
    }

    async fn resume(&self, session: SessionId, known_generation: i64) -> Result<SessionState, Failure> {
        self.call(move |state| state.resume(session, known_generation)).await?
    }

    async fn show_alive(&self, session: SessionId) -> Result<(), Failure> {
        self.call(move |state| state.show_alive(session, Instant::now())).await
    }

    async fn end_session(&self, session: SessionId) -> Result<(), Failure> {
        self.call(move |state| state.end_session(session)).await
    }

    async fn is_alone(&self, session: SessionId) -> Result<bool, Failure> {
        self.call(move |state| state.is_alone(session, Instant::now())).await
    }

    async fn begin_lease(&self, lease: &Lease) -> Result<Seqno, Failure> {
        let lease = *lease;
        self.call(move |state| state.begin_lease(lease)).await?
    }

    async fn renew_lease(
        &self,
        lease: &Lease,
        answered: i64,
        notifies: bool,
    ) -> Result<Option<Vec<Lease>>, Failure> {
        let lease = *lease;
        let from = SessionId(lease.locker.session);
        let notice = Notice::Acknowledgement { session: from.0, to: lease.read_to };
        self.call_and_tell(
            move |state| state.renew_lease(lease, answered),
            move |_| notifies.then_some((from, notice)),
        )
        .await
    }

    async fn expire_lease(&self, lease: &Lease) -> Result<(), Failure> {
        let (lease, network) = (*lease, self.link.network.clone());
        let is_expired = self.call(move |state| state.expire_lease(lease)).await?;
        if is_expired {
            network.count("expired leases");
        }
        Ok(())
    }

    async fn locks_of(&self, ino: u64) -> Result<StoredLocks, Failure> {
        self.call(move |state| state.locks_of(ino)).await
    }

    async fn replace_locks(
        &self,
        lease: &Lease,
        change: LockChange<'_>,
    ) -> Result<Option<(bool, StoredLocks)>, Failure> {
        let (lease, ino, wakes) = (*lease, change.ino, change.wakes);
        let (seen, new) = (change.seen.map(<[u8]>::to_vec), change.new.map(<[u8]>::to_vec));
        let replace = move |state: &mut ServerState| {
            let change = LockChange { ino, seen: seen.as_deref(), new: new.as_deref(), wakes };
            state.replace_locks(lease, change)
        };
        let from = SessionId(lease.locker.session);
        let tell = move |_: &Option<(bool, StoredLocks)>| wakes.then_some((from, Notice::Unlocked(ino)));
        self.call_and_tell(replace, tell).await
    }

    async fn changes_after(
        &self,
        after: Position,
        session: SessionId,
        limit: i64,
    ) -> Result<Changes, Failure> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.call(move |state| state.changes_after(after, session, limit)).await
    }

    async fn read_log(&self, cursor: Seqno, limit: usize) -> Result<(LogState, LogPage), Failure> {
        self.call(move |state| state.read_log(cursor, limit)).await?
    }

    async fn trim(&self, _cap: &LogCap, _commits_max: i64) -> Result<(), Failure> {
        Ok(())
    }

    async fn register(&self, consumer: &str, at: Seqno) -> Result<bool, Failure> {
        let consumer = consumer.to_owned();
        self.call(move |state| state.register(consumer, at)).await.map(|()| true)
    }

    async fn cursor(&self, consumer: &str) -> Result<(LogState, Option<Seqno>), Failure> {
        let consumer = consumer.to_owned();
        self.call(move |state| (state.log_state(), state.cursor(&consumer))).await
    }

    async fn advance(&self, consumer: &str, to: Seqno) -> Result<bool, Failure> {
        let consumer = consumer.to_owned();
        self.call(move |state| state.advance(&consumer, to)).await
    }

    async fn forget_consumer(&self, consumer: &str) -> Result<(), Failure> {
        let consumer = consumer.to_owned();
        self.call(move |state| state.forget_consumer(&consumer)).await
    }

    async fn reserve(&self) -> Result<Seqno, Failure> {
        unsupported()
    }

    async fn stage_records(&self, _version: Seqno, _records: &StagedRecords) -> Result<(), Failure> {
        unsupported()
    }

    async fn stage_page(&self, _version: Seqno, _number: u32, _page: &[u8]) -> Result<(), Failure> {
        unsupported()
    }

    async fn drop_run(&self, _version: Seqno) -> Result<(), Failure> {
        unsupported()
    }
}
