//! The task that commits: one group after another, each in one round trip.
//!
//! Invariants: a group is sent again only after its session says that the database has not applied it and cannot apply it any more; when the
//! database has lost commits that it had answered, nothing is committed any more.

use crate::committer::{Answer, Work};
use crate::connection::Connection;
use crate::error::Failure;
use crate::group::{Group, as_stored};
use crate::link::{Attempts, Link};
use crate::log::LogSize;
use crate::reads::{column, seqno};
use crate::session::{self, HEARTBEAT, Outcome, SessionId, SessionState};
use crate::transaction::{RunAddition, Transaction, send};
use meta::{Commit, CommitError, EngineError, LogCap, LoggedRun, RunRecord, Seqno};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// Time in which a run can be added, during which other commits wait.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// Groups after which a log that no reader asks for is cut off.
const GROUPS_BETWEEN_TRIMS: u32 = 256;

/// Maximum commits to cut off at a time, so that the head is locked briefly.
const COMMITS_PER_TRIM: i64 = 4096;

pub(crate) struct CommitTask {
    link: Arc<Link>,
    log_cap: LogCap,
    id: SessionId,
    /// The session as this task knows it: since its last answer, or its last connection.
    session: SessionState,
    connection: Option<Arc<Connection>>,
    /// The failure after which nothing is committed any more.
    stopped: Option<EngineError>,
    log_size: LogSize,
    groups_since_trim: u32,
}

impl CommitTask {
    /// Creates the task of a session that was resumed on this connection.
    pub(crate) fn new(
        link: Arc<Link>,
        log_cap: LogCap,
        id: SessionId,
        session: SessionState,
        connection: Connection,
    ) -> Self {
        link.learn_head(session.head);
        let log_size = LogSize::default();
        let connection = Some(Arc::new(connection));
        Self { link, log_cap, id, session, connection, stopped: None, log_size, groups_since_trim: 0 }
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
            Work::Commit(commit, answer) => {
                let (commits, answers) = take_group(*commit, answer, waiting);
                for (outcome, answer) in self.commit_all(commits).await.into_iter().zip(answers) {
                    // A caller waits until it is answered.
                    let _ = answer.send(outcome);
                }
            }
            Work::AddRun(run, answer) => {
                let _ = answer.send(self.add_run(&run.0, &run.1).await);
            }
            Work::Register(consumer, at, answer) => {
                let register = |connection: &Connection| connection.statements.register.clone();
                let registered = self.repeat_locked(register, &[&consumer, &as_stored(at)]).await;
                let _ = answer.send(registered.map(|rows| !rows.is_empty()));
            }
            Work::Trim(answer) => {
                let _ = answer.send(self.trim().await);
            }
        }
    }

    /// Commits commits that can be decided together. Returns their answers in the same order.
    async fn commit_all(&mut self, commits: Vec<Commit>) -> Vec<Result<Seqno, CommitError>> {
        let mut group = Group::default();
        let numbers: Vec<_> = commits.iter().map(|commit| group.add(commit)).collect();
        if group.count() == 0 {
            return numbers.into_iter().map(|number| Ok(number.map(|_| Seqno(0))?)).collect();
        }
        let outcome = self.apply(&group, self.link.budget()).await;
        if matches!(outcome, Err(Failure::Merge(_))) && commits.len() > 1 {
            // A merge of one commit is impossible, and the others must not fail with it.
            let mut answers = Vec::with_capacity(commits.len());
            for commit in commits {
                answers.extend(Box::pin(self.commit_all(vec![commit])).await);
            }
            return answers;
        }
        let answer = |(number, commit): (Result<i32, EngineError>, &Commit)| {
            let outcome = outcome.as_ref().map_err(|failure| failure.clone().into_engine_error())?;
            outcome.answer(number?, commit.is_check())
        };
        numbers.into_iter().zip(&commits).map(answer).collect()
    }

    async fn add_run(&mut self, run: &LoggedRun, record: &RunRecord) -> Result<Seqno, CommitError> {
        let addition = RunAddition::new(run, record)?;
        let outcome = self.apply(&addition, RUN_TIMEOUT).await.map_err(Failure::into_engine_error)?;
        outcome.answer(addition.number(), false)
    }

    /// Applies a group, at most once.
    async fn apply(&mut self, group: &impl Transaction, budget: Duration) -> Result<Outcome, Failure> {
        let mut attempts = Attempts::begin(budget);
        // The number of the group once it has been sent and its answer is lost.
        let mut in_doubt = None;
        loop {
            let failure = match self.connected(&attempts).await {
                Ok(connection) => {
                    if in_doubt == Some(self.session.last_group) {
                        return Ok(self.session.outcome.clone());
                    }
                    let number = self.session.last_group + 1;
                    self.link.count_round_trip();
                    let sent = send(&connection, group, self.id, self.session.generation, number);
                    match attempts.within(sent).await {
                        Ok(row) => return self.learn(number, &row),
                        Err(Failure::Lost(reason)) => {
                            tracing::warn!(
                                "the answer to a metadata commit is lost ({reason}); its outcome is looked up"
                            );
                            in_doubt = Some(number);
                            self.connection = None;
                            Failure::Lost(reason)
                        }
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::Lost(_) | Failure::Aborted(_) if attempts.pause().await => {}
                // The next connection learns the number of the last group from the session, whatever became of this one.
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
    fn learn(&mut self, number: i64, row: &Row) -> Result<Outcome, Failure> {
        let outcome = session::outcome(row)?;
        if let Some(head) = column::<Option<i64>>(row, 2)? {
            self.link.learn_head(seqno(head));
            self.log_size =
                LogSize { ops: column(row, 3)?, bytes: column(row, 4)?, run_bytes: column(row, 5)? };
        }
        self.groups_since_trim = self.groups_since_trim.saturating_add(1);
        self.session.last_group = number;
        self.session.outcome = outcome.clone();
        Ok(outcome)
    }

    /// Returns the connection, on which the session has been resumed.
    async fn connected(&mut self, attempts: &Attempts) -> Result<Arc<Connection>, Failure> {
        if let Some(stopped) = &self.stopped {
            return Err(Failure::Refused(stopped.clone()));
        }
        if let Some(open) = self.connection.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(open.clone());
        }
        self.connection = None;
        let (link, id) = (&self.link, self.id);
        let resumed = async {
            let connection =
                link.endpoint().connect().await.map_err(|error| Failure::Lost(error.to_string()))?;
            let state = session::resume(&connection, id).await?;
            Ok((Arc::new(connection), state))
        };
        let (connection, state) = attempts.within(resumed).await?;
        self.require_nothing_lost(&state)?;
        self.link.learn_head(state.head);
        self.session = state;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Stops if the database has lost commits that it had answered, as after a failover to a standby that lagged.
    fn require_nothing_lost(&mut self, state: &SessionState) -> Result<(), Failure> {
        let known = self.link.head();
        if state.head >= known && state.last_group >= self.session.last_group {
            return Ok(());
        }
        let error = EngineError::Corrupt(format!(
            "the database has lost commits: its newest is {}, this mount knows {}; unmount the volume and mount it again",
            state.head.0, known.0
        ));
        tracing::error!("{error}");
        self.stopped = Some(error.clone());
        Err(Failure::Refused(error))
    }

    /// Runs a statement that can be repeated, with the head locked, within the budget.
    async fn repeat_locked(
        &mut self,
        statement: impl Fn(&Connection) -> Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, EngineError> {
        let mut attempts = Attempts::begin(self.link.budget());
        loop {
            let failure = match self.connected(&attempts).await {
                Ok(connection) => {
                    self.link.count_round_trip();
                    match attempts.within(connection.run_locked(&statement(&connection), parameters)).await {
                        Ok(rows) => return Ok(rows),
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

    /// Cuts the log off while commits go on, so that it does not grow without readers.
    async fn trim_if_due(&mut self) {
        if self.groups_since_trim < GROUPS_BETWEEN_TRIMS || !self.log_size.exceeds(&self.log_cap) {
            return;
        }
        if let Err(error) = self.trim().await {
            tracing::warn!("the log of the metadata engine cannot be cut off: {error}");
        }
    }

    async fn trim(&mut self) -> Result<(), EngineError> {
        self.groups_since_trim = 0;
        let limits = self.log_cap;
        let stored = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
        let (tail, bytes, run_bytes) =
            (stored(limits.tail_ops as u64), stored(limits.bytes_max), stored(limits.run_bytes_max));
        let trim = |connection: &Connection| connection.statements.trim.clone();
        self.repeat_locked(trim, &[&tail, &bytes, &run_bytes, &COMMITS_PER_TRIM]).await?;
        Ok(())
    }

    async fn show_alive(&mut self) {
        let Some(connection) = &self.connection else { return };
        // A failure is seen by the next commit, which connects again.
        let _ = timeout(HEARTBEAT, session::show_alive(connection, self.id)).await;
    }

    async fn end_session(self) {
        let Some(connection) = self.connection.filter(|_| self.stopped.is_none()) else { return };
        if let Err(failure) = session::end(&connection, self.id).await {
            tracing::debug!("the session of the metadata engine was not ended: {failure:?}");
        }
    }
}

/// Commits that can be decided together, and where their callers wait.
type CommitsWithAnswers = (Vec<Commit>, Vec<Answer<Result<Seqno, CommitError>>>);

/// Takes the commits that can be decided together with the first one, as long as they are next in the queue.
fn take_group(
    first: Commit,
    answer: Answer<Result<Seqno, CommitError>>,
    waiting: &mut VecDeque<Work>,
) -> CommitsWithAnswers {
    let mut group = Group::default();
    let _ = group.add(&first);
    let (mut commits, mut answers) = (vec![first], vec![answer]);
    while let Some(Work::Commit(commit, answer)) =
        waiting.pop_front_if(|next| matches!(next, Work::Commit(commit, _) if group.has_room_for(commit)))
    {
        // A commit that the group refuses is refused again when it is committed.
        let _ = group.add(&commit);
        commits.push(*commit);
        answers.push(answer);
    }
    (commits, answers)
}
