//! The task that commits: one group after another, each in one round trip.
//!
//! Invariants: a group is sent again only after its session says that the database has not applied it and cannot apply it any more; when the
//! database has lost commits that it had answered, all caches are dropped before the next commit.

use crate::applied::{Applied, MergedRow};
use crate::commit_trouble::CommitTrouble;
use crate::committer::Work;
use crate::database::{Connection as _, Database, Transaction};
use crate::error::Failure;
use crate::group::Group;
use crate::lease::Lease;
use crate::link::{Attempts, Link};
use crate::log::LogSize;
use crate::run::number_of;
use crate::session::{HEARTBEAT, SessionId, SessionState, rolled_back};
use crate::tasks::Answer;
use meta::{Commit, CommitError, EngineError, LogCap, LoggedRun, RunRecord, Seqno};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

/// Maximum time for adding a run. Other commits wait meanwhile.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// Minimum time for an attempt at a commit that has waited behind others for longer than its budget.
const BUDGET_MIN: Duration = Duration::from_secs(1);

/// Maximum wait of a commit for strict sessions. Must exceed the time until the lease of a dead session has expired.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(30);

/// Minimum groups between two cuts of the log, unless a reader of the log asks for one.
const GROUPS_BETWEEN_TRIMS: u32 = 256;

/// Maximum commits to cut off at a time, so that the head is locked briefly.
const COMMITS_PER_TRIM: i64 = 4096;

/// The task, and the state of its session.
pub(crate) struct CommitTask<D: Database> {
    link: Arc<Link<D>>,
    log_cap: LogCap,
    /// The number of the session.
    id: SessionId,
    is_exclusive: bool,
    /// The session as this task knows it: since its last answer, or its last connection.
    session: SessionState,
    /// The last group that the database must not lose.
    relied_on: i64,
    /// Whether the database has lost that group. The session gets no connection any more.
    is_rolled_back: bool,
    /// The connection on which the session was resumed; `None` after it is lost.
    connection: Option<Arc<D::Connection>>,
    /// The size of the log as of the last answer.
    log_size: LogSize,
    /// Groups since the log was last cut.
    groups_since_trim: u32,
    /// Whether commits fail.
    trouble: CommitTrouble,
}

impl<D: Database> CommitTask<D> {
    /// Creates the task of a session that was resumed on this connection.
    pub(crate) fn new(
        link: Arc<Link<D>>,
        log_cap: LogCap,
        id: SessionId,
        is_exclusive: bool,
        session: SessionState,
        connection: D::Connection,
    ) -> Self {
        link.learn_head(session.head);
        let log_size = LogSize::default();
        let connection = Some(Arc::new(connection));
        let (relied_on, is_rolled_back, groups_since_trim) = (0, false, 0);
        Self {
            link,
            log_cap,
            id,
            is_exclusive,
            session,
            relied_on,
            is_rolled_back,
            connection,
            log_size,
            groups_since_trim,
            trouble: CommitTrouble::default(),
        }
    }

    /// Returns the number of the session.
    pub(crate) fn session(&self) -> SessionId {
        self.id
    }

    /// Does what comes through the queue until the queue is closed, and ends the session.
    pub(crate) async fn run(mut self, mut queue: UnboundedReceiver<Work>) {
        let mut waiting = VecDeque::new();
        loop {
            while let Ok(next) = queue.try_recv() {
                waiting.push_back(next);
            }
            if !waiting.is_empty() {
                self.do_first(&mut waiting).await;
                self.trim_if_due().await;
                continue;
            }
            match timeout(HEARTBEAT, queue.recv()).await {
                Ok(Some(next)) => waiting.push_back(next),
                Ok(None) => break,
                Err(_) => self.show_alive().await,
            }
        }
        self.end_session().await;
    }

    /// Does the first work that waits, with the commits after it that can be decided together.
    async fn do_first(&mut self, waiting: &mut VecDeque<Work>) {
        let Some(first) = waiting.pop_front() else { return };
        match first {
            Work::Commit(commit, since, answer) => {
                let (group, answers) = take_group(*commit, answer, waiting);
                let budget = self.link.budget().saturating_sub(since.elapsed()).max(BUDGET_MIN);
                let (outcomes, awaited) = self.commit_all(group, budget).await;
                self.answer(outcomes.into_iter().zip(answers).collect(), awaited);
            }
            Work::AddRun(run, answer) => {
                let (outcome, awaited) = self.add_run(run.0, run.1).await;
                self.answer(vec![(outcome, answer)], awaited);
            }
            Work::Register(consumer, at, answer) => {
                let register = |connection: Arc<D::Connection>| {
                    let consumer = consumer.clone();
                    async move { connection.register(&consumer, at).await }
                };
                answer.send(self.repeat(register).await);
            }
            Work::Trim(answer) => {
                answer.send(self.trim().await);
            }
            Work::Rely(answer) => {
                self.relied_on = self.session.last_group;
                answer.send(());
            }
        }
    }

    /// Answers commits after the sessions that they wait for. Later commits do not wait meanwhile.
    ///
    /// Without the database, this session sees neither the acknowledgements of others nor the end of their leases. So the wait ends after
    /// [`ACKNOWLEDGED_WITHIN`], and the commits then fail as uncertain (S658).
    fn answer(&self, answers: Vec<(Result<Seqno, CommitError>, CommitAnswer)>, awaited: Awaited) {
        let newest = answers.iter().filter_map(|(outcome, _)| outcome.as_ref().ok()).max().copied();
        let send = move |has_waited: bool| {
            for (outcome, answer) in answers {
                answer.send(if has_waited { outcome } else { outcome.and(Err(unacknowledged())) });
            }
        };
        let Some(newest) = newest.filter(|newest| awaited.is_any(*newest)) else { return send(true) };
        let link = self.link.clone();
        self.link.spawn(async move {
            let acknowledged = async {
                match awaited {
                    Awaited::Sessions(strict) => link.leases().wait_for(&strict, newest).await,
                    Awaited::Unknown => link.leases().wait_for_all(newest).await,
                }
            };
            send(timeout(ACKNOWLEDGED_WITHIN, acknowledged).await.is_ok());
        });
    }

    /// Returns the strict sessions of others that a transaction has found.
    fn awaited(&self, applied: &Result<Applied, Failure>) -> Awaited {
        match applied {
            Ok(applied) if applied.now.is_none() && !self.is_exclusive => Awaited::Unknown,
            // Checks alone change nothing.
            Ok(applied) if applied.now.is_some_and(|(head, _)| head == applied.outcome.base) => {
                Awaited::Sessions(Vec::new())
            }
            Ok(applied) => {
                let others = applied.strict.iter().filter(|lease| lease.locker.session != self.id.0);
                let others: Vec<Lease> = others.copied().collect();
                self.link.leases().note_strict(&others);
                Awaited::Sessions(others)
            }
            Err(_) => Awaited::Sessions(Vec::new()),
        }
    }

    /// Commits a group. Returns the answers to its commits, and the sessions that they wait for.
    async fn commit_all(
        &mut self,
        group: Group,
        budget: Duration,
    ) -> (Vec<Result<Seqno, CommitError>>, Awaited) {
        if group.count() == 0 {
            return (Vec::new(), Awaited::Sessions(Vec::new()));
        }
        let transaction = Transaction::Group(group);
        let outcome = self.apply(&transaction, budget).await;
        let Transaction::Group(group) = transaction else { unreachable!("a group stays one") };
        if outcome.as_ref().is_err_and(Failure::concerns_one_commit) && group.count() > 1 {
            // The other commits must not fail because of one of them: each is committed alone.
            let (mut answers, mut awaited) =
                (Vec::with_capacity(group.count()), Awaited::Sessions(Vec::new()));
            for alone in group.split() {
                let (more, also) = Box::pin(self.commit_all(alone, budget)).await;
                answers.extend(more);
                awaited = awaited.and(also);
            }
            return (answers, awaited);
        }
        let answer = |(number, commit): (i32, &Commit)| {
            let applied = outcome.as_ref().map_err(|failure| failure.clone().into_engine_error())?;
            applied.outcome.answer(number, commit.is_check())
        };
        let answers: Vec<_> = group.numbered().map(answer).collect();
        let awaited = self.awaited(&outcome);
        self.take_into_cache(&group, &answers, outcome.map(|applied| applied.merged).unwrap_or_default());
        (answers, awaited)
    }

    /// Takes the outcome of commits into the cache, before they are answered.
    fn take_into_cache(&self, group: &Group, answers: &[Result<Seqno, CommitError>], merged: Vec<MergedRow>) {
        let rows = self.link.rows();
        rows.merge(merged);
        for ((_, commit), answer) in group.numbered().zip(answers) {
            match answer {
                Ok(at) => rows.commit(commit, *at),
                Err(_) => rows.forget(commit),
            }
        }
    }

    /// Commits a run whose records are staged.
    async fn add_run(&mut self, run: LoggedRun, record: RunRecord) -> (Result<Seqno, CommitError>, Awaited) {
        let applied = self.apply(&Transaction::Run(run, record), RUN_TIMEOUT).await;
        self.link.rows().clear(self.link.head());
        let awaited = self.awaited(&applied);
        let outcome = applied.map_err(|failure| CommitError::from(failure.into_engine_error()));
        (outcome.and_then(|applied| applied.outcome.answer(number_of(&run), false)), awaited)
    }

    /// Applies a group like [`Self::apply_once`], and reports when groups begin to fail or to succeed.
    async fn apply(&mut self, transaction: &Transaction, budget: Duration) -> Result<Applied, Failure> {
        let outcome = self.apply_once(transaction, budget).await;
        self.trouble.take_in(&outcome);
        outcome
    }

    /// Applies a group at most once, and tries again until the budget ends. If it then cannot find out whether the group was applied, it fails
    /// with [`EngineError::Uncertain`].
    async fn apply_once(&mut self, transaction: &Transaction, budget: Duration) -> Result<Applied, Failure> {
        let mut attempts = Attempts::begin(budget);
        // The number of the group once it has been sent and its answer is lost.
        let mut in_doubt = None;
        loop {
            let failure = match self.connected(&attempts).await {
                Ok(connection) => {
                    if in_doubt == Some(self.session.last_group) {
                        return Ok(Applied {
                            outcome: self.session.outcome.clone(),
                            now: None,
                            merged: Vec::new(),
                            strict: Vec::new(),
                        });
                    }
                    let number = self.session.last_group + 1;
                    self.link.count_round_trip();
                    let sent = connection.apply(transaction, self.id, self.session.generation, number);
                    match attempts.within(sent).await {
                        Ok(applied) => {
                            self.learn(number, &applied);
                            return Ok(applied);
                        }
                        Err(Failure::Lost(reason)) => {
                            tracing::warn!(
                                "the answer to a metadata commit is lost ({reason}); looking up in the database whether it was applied"
                            );
                            in_doubt = Some(number);
                            self.connection = None;
                            self.link.rows().disable();
                            Failure::Lost(reason)
                        }
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::Lost(_) | Failure::Aborted(_) if attempts.pause().await => {}
                // Whether this group was applied stays unknown. The next connection reads the number of the last group, so later ones are
                // right.
                failure if in_doubt.is_some() => {
                    return Err(Failure::Refused(EngineError::Uncertain(
                        failure.into_engine_error().to_string(),
                    )));
                }
                failure => return Err(failure),
            }
        }
    }

    /// Notes the outcome of a group that the database has answered.
    fn learn(&mut self, number: i64, applied: &Applied) {
        if let Some((head, log_size)) = applied.now {
            self.link.learn_head(head);
            self.link.leases().committed(applied.outcome.base, head);
            self.log_size = log_size;
        }
        self.groups_since_trim = self.groups_since_trim.saturating_add(1);
        self.session.last_group = number;
        self.session.outcome = applied.outcome.clone();
    }

    /// Returns the open connection; without one, connects and resumes the session.
    async fn connected(&mut self, attempts: &Attempts) -> Result<Arc<D::Connection>, Failure> {
        if let Some(open) = self.connection.as_ref().filter(|open| open.is_open()) {
            return Ok(open.clone());
        }
        self.connection = None;
        if self.is_rolled_back {
            return Err(Failure::Refused(rolled_back()));
        }
        let (database, id, is_exclusive) = (self.link.database(), self.id, self.is_exclusive);
        let known_generation = self.session.generation;
        let resumed = async {
            let connection = database.connect_committing(id, is_exclusive).await;
            let connection = connection.map_err(|error| Failure::Lost(error.to_string()))?;
            let state = connection.resume(id, known_generation).await?;
            Ok((Arc::new(connection), state))
        };
        let (connection, state) = attempts.within(resumed).await?;
        self.take_in_losses(&state);
        self.link.learn_head(state.head);
        if state.last_group < self.relied_on {
            self.is_rolled_back = true;
            return Err(Failure::Refused(rolled_back()));
        }
        // From now on no transaction of an earlier connection can be applied.
        self.link.rows().enable(self.link.head());
        self.session = state;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Goes back if the database has lost commits that it had answered, as after a failover to a replica that lagged.
    fn take_in_losses(&self, state: &SessionState) {
        let known = self.link.head();
        if state.head >= known && state.last_group >= self.session.last_group {
            return;
        }
        tracing::error!(
            "the database has lost commits: its newest is {}, this mount knows {}; all caches are dropped, and changes of files and names since then are lost",
            state.head.0,
            known.0
        );
        self.link.go_back(state.head);
    }

    /// Makes a call that can be repeated on this task's connection, within the budget.
    async fn repeat<T, F>(&mut self, ask: impl Fn(Arc<D::Connection>) -> F) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut attempts = Attempts::begin(self.link.budget());
        loop {
            let failure = match self.connected(&attempts).await {
                Ok(connection) => {
                    self.link.count_round_trip();
                    match attempts.within(ask(connection)).await {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            if matches!(failure, Failure::Lost(_)) {
                self.connection = None;
            }
            match failure {
                Failure::Lost(_) | Failure::Aborted(_) if attempts.pause().await => {}
                failure => return Err(failure.into_engine_error()),
            }
        }
    }

    /// Removes the oldest commits from the log if it exceeds its limits, so that it does not grow while it has no readers.
    async fn trim_if_due(&mut self) {
        if self.groups_since_trim < GROUPS_BETWEEN_TRIMS || !self.log_size.exceeds(&self.log_cap) {
            return;
        }
        if let Err(error) = self.trim().await {
            tracing::warn!(
                "the log in the database is too large, and its oldest ops cannot be removed; trying again later: {error}"
            );
        }
    }

    /// Removes up to [`COMMITS_PER_TRIM`] of the oldest commits from the log, as far as the limits want it.
    async fn trim(&mut self) -> Result<(), EngineError> {
        self.groups_since_trim = 0;
        let cap = self.log_cap;
        self.repeat(|connection| async move { connection.trim(&cap, COMMITS_PER_TRIM).await }).await
    }

    /// Renews the session's claim to the volume, on a new connection if the last one is lost. A failure is tried again later.
    async fn show_alive(&mut self) {
        let attempts = Attempts::begin(HEARTBEAT);
        let shown = match self.connected(&attempts).await {
            Ok(connection) => attempts.within(connection.show_alive(self.id)).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = shown {
            tracing::debug!("cannot report to the database that this session is alive: {failure:?}");
            self.connection = None;
        }
    }

    /// Ends the session, if there is a connection. Otherwise the session keeps others from exclusive access until its lease has expired.
    async fn end_session(self) {
        let Some(connection) = self.connection else { return };
        if let Err(failure) = connection.end_session(self.id).await {
            tracing::debug!(
                "cannot end the session in the database; until its lease expires, the volume cannot be opened exclusively: {failure:?}"
            );
        }
    }
}

/// The sessions that a commit waits for.
#[derive(Debug)]
enum Awaited {
    /// These ones.
    Sessions(Vec<Lease>),
    /// All strict ones, because the answer of the database is lost.
    Unknown,
}

impl Awaited {
    /// Returns whether a commit has to wait.
    fn is_any(&self, at: Seqno) -> bool {
        match self {
            Self::Sessions(strict) => strict.iter().any(|lease| lease.read_to < at),
            Self::Unknown => true,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Sessions(one), Self::Sessions(other)) => Self::Sessions([one, other].concat()),
            _ => Self::Unknown,
        }
    }
}

/// Returns the error of a commit that the database applied, but that strict sessions may not have applied to their caches.
fn unacknowledged() -> CommitError {
    EngineError::Uncertain("strict mounts have not confirmed the change in time".into()).into()
}

/// The channel for the answer to a commit.
type CommitAnswer = Answer<Result<Seqno, CommitError>>;

/// Takes the commits that can be decided together with the first one, as long as they are next in the queue. Returns the group and the
/// channels for the answers to its commits, in the same order. A commit that no group takes is answered at once.
fn take_group(
    first: Commit,
    answer: CommitAnswer,
    waiting: &mut VecDeque<Work>,
) -> (Group, Vec<CommitAnswer>) {
    let (mut group, mut answers) = (Group::default(), Vec::new());
    let mut next = Some((first, answer));
    while let Some((commit, answer)) = next.take() {
        match group.add(commit) {
            Ok(()) => answers.push(answer),
            Err(error) => answer.send(Err(error.into())),
        }
        let fits = |work: &mut Work| matches!(work, Work::Commit(commit, ..) if group.has_room_for(commit));
        if let Some(Work::Commit(commit, _, answer)) = waiting.pop_front_if(fits) {
            next = Some((*commit, answer));
        }
    }
    (group, answers)
}
