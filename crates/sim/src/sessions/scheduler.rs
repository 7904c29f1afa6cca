//! Threads that take turns, so that synchronous calls can wait in simulated time.
//!
//! Calls of an engine block their thread, so each mount runs on threads of its own, here called actors. At any time exactly one thread runs:
//! the simulation's, which runs the tasks of all engines and the database, or that of one actor. An actor runs until all its tasks wait, or
//! until a call waits for an engine. Time advances only when no actor can run.
//!
//! A call may wait while its thread holds a mutex of the mount. So the other actor of the mount does not run meanwhile: it could wait for that
//! mutex, and that wait would never end. Waits for mounts to apply changes, also those of commits, are the exception: background work on this
//! or another mount ends them, and needs no mutex that is held meanwhile.
//!
//! Invariants: one thread runs at a time; the clock of an actor's runtime never runs ahead of the simulation's.

use meta_remote::{Task, TaskRunner, WaitReason};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;

/// Interval in simulated time at which actors look at their timers.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Number of times that an actor looks for tasks that can run before it ends its turn.
const ROUNDS_PER_TURN: usize = 6;

/// Maximum real time of a turn. A longer one waits for something that only another actor can do.
const TURN_MAX: Duration = Duration::from_secs(20);

/// The number of an actor.
pub(super) type ActorId = usize;

/// A job of an actor: makes a task, on the actor's thread.
pub(super) type Job = Box<dyn FnOnce() -> Task + Send>;

thread_local! {
    /// The actor whose thread this is.
    static CURRENT: Cell<Option<ActorId>> = const { Cell::new(None) };
}

/// Gives turns to actors.
pub(super) struct Scheduler {
    state: Mutex<State>,
    /// Wakes the simulation's thread when an actor ends its turn.
    turn_ended: Condvar,
    /// The runtime that runs the tasks of engines.
    runtime: Handle,
    began_at: Instant,
}

struct State {
    /// The actor whose turn it is; `None` while the simulation's thread runs.
    turn: Option<ActorId>,
    now: Instant,
    is_ending: bool,
    actors: BTreeMap<ActorId, Actor>,
    threads: Vec<JoinHandle<()>>,
    /// The problem that ended an actor.
    failure: Option<String>,
}

struct Actor {
    status: Status,
    jobs: VecDeque<Job>,
    /// The other actor of the mount.
    sibling: ActorId,
    /// Whether the actor ends after its next turn.
    is_stopping: bool,
    /// The actor's runtime; `None` before its first turn.
    runtime: Option<Handle>,
    ticked_at: Instant,
    wake: Arc<Condvar>,
}

enum Status {
    /// All tasks of the actor wait.
    Idle,
    /// A call waits for an answer, or until a time.
    Blocked {
        is_answered: Arc<AtomicBool>,
        until: Option<Instant>,
        is_call: bool,
    },
    Ended,
}

impl Scheduler {
    /// Makes a scheduler for engines whose tasks run on this runtime.
    pub(super) fn new(runtime: Handle, now: Instant) -> Arc<Self> {
        let state = State {
            turn: None,
            now,
            is_ending: false,
            actors: BTreeMap::new(),
            threads: Vec::new(),
            failure: None,
        };
        Arc::new(Self { state: Mutex::new(state), turn_ended: Condvar::new(), runtime, began_at: now })
    }

    /// Returns the simulated time.
    pub(super) fn now(&self) -> Instant {
        self.lock().now
    }

    /// Returns the simulated time since the scheduler was made.
    pub(super) fn elapsed(&self) -> Duration {
        self.now() - self.began_at
    }

    /// Starts the actors of a mount: for programs, and for background work.
    pub(super) fn start_pair(self: &Arc<Self>) -> [ActorId; 2] {
        let first = self.lock().actors.len();
        let pair = [first, first + 1];
        self.start(pair[0], pair[1]);
        self.start(pair[1], pair[0]);
        pair
    }

    fn start(self: &Arc<Self>, id: ActorId, sibling: ActorId) {
        let mut state = self.lock();
        let actor = Actor {
            status: Status::Idle,
            jobs: VecDeque::new(),
            sibling,
            is_stopping: false,
            runtime: None,
            ticked_at: state.now,
            wake: Arc::new(Condvar::new()),
        };
        state.actors.insert(id, actor);
        let scheduler = self.clone();
        state.threads.push(thread::spawn(move || scheduler.live(id)));
    }

    /// Gives an actor a job for its next turn.
    pub(super) fn give(&self, id: ActorId, job: Job) {
        if let Some(actor) = self.lock().actors.get_mut(&id) {
            actor.jobs.push_back(job);
        }
    }

    /// Ends an actor after its next turn.
    pub(super) fn stop_when_idle(&self, id: ActorId) {
        if let Some(actor) = self.lock().actors.get_mut(&id) {
            actor.is_stopping = true;
        }
    }

    /// Gives turns to actors until none can run before time advances.
    pub(super) fn run_actors(&self, now: Instant) {
        self.lock().now = now;
        loop {
            let ids: Vec<ActorId> = self.lock().actors.keys().copied().collect();
            let mut has_run = false;
            for id in ids {
                let can_run = self.lock().can_run(id, now);
                if can_run {
                    self.take_turn(id);
                    has_run = true;
                }
            }
            if !has_run || self.lock().failure.is_some() {
                return;
            }
        }
    }

    /// Returns the problem that ended an actor.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Ends all actors. Calls that wait fail.
    pub(super) fn end(&self) {
        self.lock().is_ending = true;
        let ids: Vec<ActorId> = self.lock().actors.keys().copied().collect();
        for id in ids {
            if !matches!(self.lock().actors.get(&id).map(|actor| &actor.status), Some(Status::Ended) | None) {
                self.take_turn(id);
            }
        }
        let threads = std::mem::take(&mut self.lock().threads);
        if self.failure().is_none() {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }

    /// Gives an actor a turn, and waits for its end.
    fn take_turn(&self, id: ActorId) {
        let mut state = self.lock();
        if state.failure.is_some() {
            return;
        }
        state.turn = Some(id);
        if let Some(actor) = state.actors.get(&id) {
            actor.wake.notify_one();
        }
        while state.turn.is_some() {
            let (next, timeout) =
                self.turn_ended.wait_timeout(state, TURN_MAX).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.turn.is_some() {
                state.failure =
                    Some(format!("actor {id} does not end its turn: it waits for another thread"));
                return;
            }
        }
    }

    /// Runs an actor on its own thread.
    fn live(self: Arc<Self>, id: ActorId) {
        CURRENT.set(Some(id));
        self.await_turn(id);
        let lived = catch_unwind(AssertUnwindSafe(|| self.take_turns(id)));
        if lived.is_err() {
            self.lock().failure.get_or_insert_with(|| format!("actor {id} panicked; the message is above"));
        }
        self.end_turn(id, Status::Ended);
    }

    fn take_turns(&self, id: ActorId) {
        let Ok(runtime) = Builder::new_current_thread().enable_time().start_paused(true).build() else {
            self.lock().failure = Some("cannot make a runtime".into());
            return;
        };
        while !self.lock().is_ending {
            let (now, jobs) = {
                let mut state = self.lock();
                let now = state.now;
                let Some(actor) = state.actors.get_mut(&id) else { return };
                actor.runtime = Some(runtime.handle().clone());
                actor.ticked_at = now;
                (now, std::mem::take(&mut actor.jobs))
            };
            runtime.block_on(run_turn(now, jobs));
            if self.is_over(id) {
                return;
            }
            self.end_turn(id, Status::Idle);
            self.await_turn(id);
        }
    }

    /// Returns whether an actor ends now.
    fn is_over(&self, id: ActorId) -> bool {
        let state = self.lock();
        let has_stopped = |actor: &Actor| actor.is_stopping && actor.jobs.is_empty();
        state.is_ending || state.actors.get(&id).is_none_or(has_stopped)
    }

    fn end_turn(&self, id: ActorId, status: Status) {
        let mut state = self.lock();
        if let Some(actor) = state.actors.get_mut(&id) {
            actor.status = status;
        }
        state.turn = None;
        self.turn_ended.notify_one();
    }

    fn await_turn(&self, id: ActorId) {
        let mut state = self.lock();
        let Some(wake) = state.actors.get(&id).map(|actor| actor.wake.clone()) else { return };
        while state.turn != Some(id) {
            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the runtime's time catch up, starts jobs, and runs all tasks until they wait.
async fn run_turn(now: Instant, jobs: VecDeque<Job>) {
    catch_up(now);
    for job in jobs {
        tokio::spawn(job());
    }
    for _ in 0..ROUNDS_PER_TURN {
        tokio::task::yield_now().await;
    }
}

/// Lets the time of the thread's runtime, if it is in one, catch up.
fn catch_up(now: Instant) {
    let Some(behind) = Handle::try_current().ok().and_then(|_| now.checked_duration_since(Instant::now()))
    else {
        return;
    };
    if !behind.is_zero() {
        // The first poll moves the clock. What follows is a yield, for which a synchronous caller cannot wait.
        let advancing = std::pin::pin!(tokio::time::advance(behind));
        let _ = advancing.poll(&mut Context::from_waker(Waker::noop()));
    }
}

impl State {
    fn can_run(&self, id: ActorId, now: Instant) -> bool {
        let Some(actor) = self.actors.get(&id) else { return false };
        let holds_mutex = |sibling: &Actor| matches!(sibling.status, Status::Blocked { is_call: true, .. });
        actor.can_run(now) && !self.actors.get(&actor.sibling).is_some_and(holds_mutex)
    }
}

impl Actor {
    fn can_run(&self, now: Instant) -> bool {
        match &self.status {
            Status::Idle => {
                let has_work =
                    self.runtime.as_ref().is_none_or(|runtime| runtime.metrics().global_queue_depth() > 0);
                has_work || self.is_stopping || !self.jobs.is_empty() || now >= self.ticked_at + TICK
            }
            Status::Blocked { is_answered, until, .. } => {
                is_answered.load(Ordering::Acquire) || until.is_some_and(|until| now >= until)
            }
            Status::Ended => false,
        }
    }
}

impl TaskRunner for Scheduler {
    fn spawn(&self, task: Task) {
        self.runtime.spawn(task);
    }

    fn wait(&self, is_answered: &Arc<AtomicBool>, reason: WaitReason) {
        let (is_ending, now) = {
            let state = self.lock();
            (state.is_ending, state.now)
        };
        if is_ending || is_answered.load(Ordering::Acquire) {
            return;
        }
        let id = CURRENT.get();
        assert!(id.is_some(), "an engine is called only by actors");
        let id = id.unwrap_or_default();
        let until = match reason {
            WaitReason::End(timeout) => Some(now + timeout),
            WaitReason::Call | WaitReason::Commit | WaitReason::Acknowledgement => None,
        };
        let is_call = reason == WaitReason::Call;
        self.end_turn(id, Status::Blocked { is_answered: is_answered.clone(), until, is_call });
        self.await_turn(id);
        catch_up(self.now());
    }
}
