//! The network between mounts and the database, with fault injection: delays, partitions, lost connections and lost answers; and the server
//! process, which is killed, restarted, and replaced by a replica that lags.

use super::oracle::{Moment, Moments};
use super::server::ServerState;
use crate::Report;
use meta_remote::{Listener, Notice, SessionId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Entropy;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Earlier states of the database that a failover can go back to.
const HISTORY_MAX: usize = 64;

/// The state of the link of one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Requests and answers arrive after a delay.
    Up,
    /// No message arrives, and neither end notices. Messages that were sent may arrive later.
    Silent,
    /// Connections are closed, and new ones are refused.
    Refused,
    /// The machine has died.
    Dead,
}

/// The link of one mount.
pub(super) struct NetworkLink {
    pub(super) network: Arc<Network>,
    state: Mutex<LinkState>,
    /// Number of times that all connections of the link were closed.
    closings: Mutex<u64>,
    changed: Notify,
    /// Out of 1,000 answers and notifications, those that are lost with their connection.
    losses_per_mille: u64,
    /// Maximum delay of a message, in milliseconds.
    delay_ms_max: u64,
    /// Whether the mount may have noticed a fault since this time.
    faulty_at: Mutex<Option<Instant>>,
}

/// The database server, and the links to it.
pub(super) struct Network {
    server: Mutex<Server>,
    entropy: Entropy,
    report: Mutex<Report>,
    moments: Moments,
    /// The beginning of the world.
    began_at: Instant,
    /// Whether nothing is lost any more.
    is_calm: AtomicBool,
}

struct Server {
    state: ServerState,
    is_up: bool,
    /// Number of the server's process. Connections to earlier ones are closed.
    incarnation: u64,
    /// Earlier states, each with the moment at which it was replaced.
    history: VecDeque<(Moment, ServerState)>,
    listeners: Vec<ListenerEntry>,
    faulty_at: Option<Instant>,
}

#[derive(Clone)]
struct ListenerEntry {
    session: SessionId,
    hear: Listener,
    link: Arc<NetworkLink>,
    /// The server's process and the closings of the link when it connected.
    since: (u64, u64),
}

impl Network {
    pub(super) fn new(seed: u64, moments: Moments, began_at: Instant) -> Arc<Self> {
        let server = Server {
            state: ServerState::new(),
            is_up: true,
            incarnation: 0,
            history: VecDeque::new(),
            listeners: Vec::new(),
            faulty_at: None,
        };
        Arc::new(Self {
            server: Mutex::new(server),
            entropy: Entropy::new(seed),
            report: Mutex::default(),
            moments,
            began_at,
            is_calm: AtomicBool::new(false),
        })
    }

    /// Ends all losses of answers and notifications.
    pub(super) fn calm_down(&self) {
        self.is_calm.store(true, Ordering::SeqCst);
    }

    /// Returns the time since the beginning of the world.
    pub(super) fn elapsed(&self) -> Duration {
        Instant::now() - self.began_at
    }

    /// Returns a number below `below`.
    pub(super) fn draw(&self, below: u64) -> u64 {
        self.entropy.below(below)
    }

    pub(super) fn count(&self, what: &'static str) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).count(what);
    }

    pub(super) fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of the server's process; `None` while it is down.
    pub(super) fn incarnation(&self) -> Option<u64> {
        let server = self.lock();
        server.is_up.then_some(server.incarnation)
    }

    /// Lets a process of the server act on its state; `None` if that process has ended.
    pub(super) fn act<T>(&self, incarnation: u64, act: impl FnOnce(&mut ServerState) -> T) -> Option<T> {
        let mut server = self.lock();
        if !server.is_up || server.incarnation != incarnation {
            return None;
        }
        let before = server.state.clone();
        let answer = act(&mut server.state);
        if server.state.head() != before.head() {
            let now = self.moments.fetch_add(1, Ordering::SeqCst) + 1;
            server.history.push_back((now, before));
            if server.history.len() > HISTORY_MAX {
                server.history.pop_front();
            }
        }
        Some(answer)
    }

    /// Kills the server. All connections are lost.
    pub(super) fn kill_server(&self) {
        let mut server = self.lock();
        server.is_up = false;
        server.incarnation += 1;
        server.faulty_at = Some(Instant::now());
        let cut = std::mem::take(&mut server.listeners);
        drop(server);
        cut.iter().for_each(|listener| (listener.hear)(Notice::Commit));
    }

    pub(super) fn start_server(&self) {
        let mut server = self.lock();
        server.is_up = true;
        server.faulty_at = Some(Instant::now());
    }

    /// Replaces the state by the one of up to `commits` commits ago. Returns the moment from which on changes are lost; `None` if nothing is lost.
    pub(super) fn go_back(&self, commits: usize) -> Option<Moment> {
        let mut server = self.lock();
        let mut lost_since = None;
        for _ in 0..commits {
            // A mount that was made in the lost time would have to be made again (S660): its session would have ended, or other mounts would
            // get its inode numbers.
            let mounts = server.state.mounts_made();
            let known = server.history.pop_back_if(|(_, state)| state.mounts_made() == mounts);
            let Some((at, state)) = known else { break };
            server.state = state;
            lost_since = Some(at);
        }
        lost_since
    }

    /// Forgets earlier states, so that a failover does not go back to them.
    pub(super) fn forget_history(&self) {
        self.lock().history.clear();
    }

    /// Returns whether the server had a fault at this time or later.
    pub(super) fn was_faulty_since(&self, since: Instant) -> bool {
        let server = self.lock();
        !server.is_up || server.faulty_at.is_some_and(|at| at >= since)
    }

    /// Adds a function that takes notifications for a session.
    pub(super) fn listen(
        &self,
        session: SessionId,
        hear: Listener,
        link: Arc<NetworkLink>,
        since: (u64, u64),
    ) {
        self.lock().listeners.push(ListenerEntry { session, hear, link, since });
    }

    /// Sends a notification of a session to all others. Some are lost.
    pub(super) fn notify(&self, from: SessionId, notice: Notice) {
        let mut server = self.lock();
        let incarnation = server.incarnation;
        server.listeners.retain(|listener| listener.since == (incarnation, listener.link.closings()));
        let listeners = server.listeners.clone();
        drop(server);
        for listener in listeners.into_iter().filter(|listener| listener.session != from) {
            let is_lost = listener.link.draw_loss();
            if is_lost {
                self.count("lost notifications");
                continue;
            }
            tokio::spawn(async move {
                let delay = listener.link.draw_delay();
                sleep(delay).await;
                if listener.link.state() == LinkState::Up {
                    (listener.hear)(notice);
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkLink {
    pub(super) fn new(network: Arc<Network>, losses_per_mille: u64, delay_ms_max: u64) -> Arc<Self> {
        Arc::new(Self {
            network,
            state: Mutex::new(LinkState::Up),
            closings: Mutex::new(0),
            changed: Notify::new(),
            losses_per_mille,
            delay_ms_max,
            faulty_at: Mutex::new(None),
        })
    }

    pub(super) fn state(&self) -> LinkState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state. A link that refuses, or whose machine dies, loses its connections.
    pub(super) fn set(&self, state: LinkState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.note_fault();
        if matches!(state, LinkState::Refused | LinkState::Dead) {
            self.close_all();
        }
        self.changed.notify_waiters();
    }

    /// Ends a cut of the link after a time, unless the machine has died or all faults have ended.
    pub(super) fn end_cut_after(self: &Arc<Self>, cut: LinkState, time: Duration) {
        let link = self.clone();
        tokio::spawn(async move {
            sleep(time).await;
            if link.state() == cut {
                link.set(LinkState::Up);
            }
        });
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        *self.closings.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.note_fault();
    }

    pub(super) fn closings(&self) -> u64 {
        *self.closings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn draw_delay(&self) -> Duration {
        Duration::from_millis(1 + self.network.draw(self.delay_ms_max.max(1)))
    }

    pub(super) fn draw_loss(&self) -> bool {
        !self.network.is_calm.load(Ordering::SeqCst) && self.network.draw(1000) < self.losses_per_mille
    }

    /// Waits until messages pass. Returns false if the machine dies before.
    pub(super) async fn pass(&self) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.state() {
                LinkState::Up => return true,
                LinkState::Dead | LinkState::Refused => return false,
                LinkState::Silent => changed.await,
            }
        }
    }

    /// Notes a fault that the mount may notice from now on.
    pub(super) fn note_fault(&self) {
        *self.faulty_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Returns whether the mount may have noticed a fault of the link or the server since this time.
    pub(super) fn was_faulty_since(&self, since: Instant) -> bool {
        let own = *self.faulty_at.lock().unwrap_or_else(PoisonError::into_inner);
        self.state() != LinkState::Up
            || own.is_some_and(|at| at >= since)
            || self.network.was_faulty_since(since)
    }
}

/// Whether a connection is open, as its user knows.
#[derive(Debug, Default)]
pub(super) struct OpenMark(AtomicBool);

impl OpenMark {
    pub(super) fn close(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
