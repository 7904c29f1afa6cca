//! The queue of the committing task, as its callers see it.

use crate::commit_task::CommitTask;
use crate::database::Database;
use crate::link::Link;
use crate::tasks::{Answer, Outcome, WaitReason};
use meta::{Commit, CommitError, EngineError, LoggedRun, RunRecord, Seqno};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// Time for which closing an engine waits for its last commits and the end of its session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The queue of the committing task. Each entry has a caller that waits, which bounds the length of the queue.
pub(crate) struct Committer<D: Database> {
    link: Arc<Link<D>>,
    /// The queue; `None` once it is closed, upon which the task ends.
    queue: Option<UnboundedSender<Work>>,
    /// Receives a message when the task has ended.
    ended: std::sync::Mutex<Outcome<()>>,
}

/// Work for the committing task, whose connection alone changes the head.
#[derive(Debug)]
pub(crate) enum Work {
    /// A commit, and the time at which its caller began to wait.
    Commit(Box<Commit>, Instant, Answer<Result<Seqno, CommitError>>),
    /// Commits a run whose records are staged.
    AddRun(Box<(LoggedRun, RunRecord)>, Answer<Result<Seqno, CommitError>>),
    /// Registers a consumer; answers false if the log does not reach back to its cursor.
    Register(String, Seqno, Answer<Result<bool, EngineError>>),
    /// Cuts off what the log need not keep.
    Trim(Answer<Result<(), EngineError>>),
    /// Ends the session once the database has lost one of its commits until now.
    Rely(Answer<()>),
}

impl<D: Database> Committer<D> {
    /// Starts the committing task on the I/O thread.
    pub(crate) fn start(link: &Arc<Link<D>>, task: CommitTask<D>) -> Self {
        let (queue, work) = unbounded_channel();
        let (end, ended) = link.channel();
        link.spawn(async move {
            task.run(work).await;
            end.send(());
        });
        Self { link: link.clone(), queue: Some(queue), ended: ended.into() }
    }

    /// Commits, and waits for the outcome.
    pub(crate) fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.ask(|answer| Work::Commit(Box::new(commit), Instant::now(), answer))?
    }

    /// Commits a run whose records are staged, and waits for the outcome.
    pub(crate) fn add_run(&self, run: LoggedRun, record: RunRecord) -> Result<Seqno, CommitError> {
        self.ask(|answer| Work::AddRun(Box::new((run, record)), answer))?
    }

    /// Registers a consumer. Returns false if the log does not reach back to its cursor.
    pub(crate) fn register(&self, consumer: &str, at: Seqno) -> Result<bool, EngineError> {
        self.ask(|answer| Work::Register(consumer.to_owned(), at, answer))?
    }

    /// Has the oldest commits cut off from the log, as far as its limits want it.
    pub(crate) fn trim(&self) -> Result<(), EngineError> {
        self.ask(Work::Trim)?
    }

    /// Has later commits fail once the database has lost one of those until now.
    pub(crate) fn rely_on_commits(&self) -> Result<(), EngineError> {
        self.ask(Work::Rely)
    }

    /// Queues work and waits for the answer.
    fn ask<T>(&self, work: impl FnOnce(Answer<T>) -> Work) -> Result<T, EngineError> {
        let (answer, outcome) = self.link.channel();
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        queue.send(work(answer)).map_err(|_| ended())?;
        outcome.receive(WaitReason::Commit)
    }
}

impl<D: Database> Drop for Committer<D> {
    fn drop(&mut self) {
        self.queue = None;
        if let Ok(ended) = self.ended.get_mut() {
            ended.wait(CLOSE_TIMEOUT);
        }
    }
}

/// Returns the error for work that can no longer be queued.
fn ended() -> EngineError {
    EngineError::Unavailable("the I/O thread of the metadata engine has ended".into())
}
