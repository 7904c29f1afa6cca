//! The queue of the committing task, as its callers see it.

use crate::commit_task::CommitTask;
use crate::link::{Link, receive};
use meta::{Commit, CommitError, EngineError, LoggedRun, RunRecord, Seqno};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Time for which closing an engine waits for its last commits and the end of its session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a caller waits for its answer.
pub(crate) type Answer<T> = mpsc::SyncSender<T>;

/// The queue of the committing task. Each entry has a caller that waits, which bounds the length of the queue.
#[derive(Debug)]
pub(crate) struct Committer {
    queue: Option<UnboundedSender<Work>>,
    ended: std::sync::Mutex<mpsc::Receiver<()>>,
}

/// Work for the connection that may lock the head.
#[derive(Debug)]
pub(crate) enum Work {
    Commit(Box<Commit>, Answer<Result<Seqno, CommitError>>),
    AddRun(Box<(LoggedRun, RunRecord)>, Answer<Result<Seqno, CommitError>>),
    /// Registers a consumer; answers false if the log does not reach back to its cursor.
    Register(String, Seqno, Answer<Result<bool, EngineError>>),
    /// Cuts off what the log need not keep.
    Trim(Answer<Result<(), EngineError>>),
}

impl Committer {
    /// Starts a task.
    pub(crate) fn start(link: &Arc<Link>, task: CommitTask) -> Self {
        let (queue, work) = unbounded_channel();
        let (end, ended) = mpsc::sync_channel(1);
        link.spawn(async move {
            task.run(work).await;
            let _ = end.send(());
        });
        Self { queue: Some(queue), ended: ended.into() }
    }

    pub(crate) fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.ask(|answer| Work::Commit(Box::new(commit), answer))?
    }

    pub(crate) fn add_run(&self, run: LoggedRun, record: RunRecord) -> Result<Seqno, CommitError> {
        self.ask(|answer| Work::AddRun(Box::new((run, record)), answer))?
    }

    pub(crate) fn register(&self, consumer: &str, at: Seqno) -> Result<bool, EngineError> {
        self.ask(|answer| Work::Register(consumer.to_owned(), at, answer))?
    }

    pub(crate) fn trim(&self) -> Result<(), EngineError> {
        self.ask(Work::Trim)?
    }

    fn ask<T>(&self, work: impl FnOnce(Answer<T>) -> Work) -> Result<T, EngineError> {
        let (answer, outcome) = mpsc::sync_channel(1);
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        queue.send(work(answer)).map_err(|_| ended())?;
        receive(&outcome)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue = None;
        if let Ok(ended) = self.ended.get_mut() {
            let _ = ended.recv_timeout(CLOSE_TIMEOUT);
        }
    }
}

fn ended() -> EngineError {
    EngineError::Unavailable("the I/O thread of the metadata engine has ended".into())
}
