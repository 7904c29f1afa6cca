//! Group commit: the first waiting task commits for all tasks that queued while the device was busy.

use super::KeyGuard;
use crate::engine::{Engine, Prepared};
use crate::error::{Error, Result};
use crate::policy::Purpose;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The queue of changes to commit, and the lock of the task that commits them.
#[derive(Debug, Default)]
pub(super) struct Committer {
    queue: Arc<Queue>,
    commit_lock: Arc<tokio::sync::Mutex<()>>,
}

/// The commits that wait for the committer, in order.
#[derive(Debug, Default)]
struct Queue(Mutex<QueueState>);

/// The state of the queue: its commits, and the number of the last one that was added.
#[derive(Debug, Default)]
struct QueueState {
    commits: VecDeque<QueuedCommit>,
    last: u64,
}

/// A commit in the queue.
#[derive(Debug)]
struct QueuedCommit {
    number: u64,
    prepared: Prepared,
    reply: CommitReply,
}

/// The channel for the outcome, and the key locks held until it is known.
#[derive(Debug)]
struct CommitReply {
    locks: Vec<KeyGuard>,
    done: oneshot::Sender<Result<()>>,
}

impl Committer {
    /// Makes changes durable and visible, or fails. After an error of the device or an abortion, the changes may be
    /// found at the next opening; after any other error they did not happen. If the future is dropped earlier, they may
    /// or may not happen, and the locks are held until that is decided.
    pub(super) async fn commit(
        &self,
        engine: &Arc<Engine>,
        prepared: Prepared,
        locks: Vec<KeyGuard>,
    ) -> Result<()> {
        let (done, mut answer) = oneshot::channel();
        let _ticket = self.queue.push(prepared, CommitReply { locks, done });
        // Lets other tasks queue their changes for the same commit.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            answered = &mut answer => return answered.unwrap_or_else(|error| Err(Error::aborted(&error))),
            commit_lock = self.commit_lock.clone().lock_owned() => {
                let (engine, queue) = (engine.clone(), self.queue.clone());
                // Runs to its end even if this task is cancelled, because other tasks wait for the outcome.
                let ended = store::blocking(move || {
                    queue.commit(&engine);
                    drop(commit_lock);
                    Ok(())
                });
                if let Err(error) = ended.await {
                    return Err(Error::aborted(&error));
                }
            }
        }
        answer.await.unwrap_or_else(|error| Err(Error::aborted(&error)))
    }
}

/// A place in the queue. Dropping it withdraws the changes, unless a commit has taken them.
struct QueueTicket<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        self.queue.lock().commits.retain(|queued| queued.number != self.number);
    }
}

impl Queue {
    /// Adds a commit at the end of the queue.
    fn push(&self, prepared: Prepared, reply: CommitReply) -> QueueTicket<'_> {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.commits.push_back(QueuedCommit { number, prepared, reply });
        QueueTicket { queue: self, number }
    }

    /// Commits all queued changes, in as few frames as possible.
    fn commit(&self, engine: &Engine) {
        loop {
            let (mut batch, replies): (Vec<_>, Vec<_>) = self
                .take(engine.policy.frame_bytes_fitting(engine.log.published().size()))
                .into_iter()
                .map(|queued| (queued.prepared, queued.reply))
                .unzip();
            if batch.is_empty() {
                return;
            }
            let usage = engine.usage();
            if engine.policy.needs_zone_from_checkpoint(usage.space, usage.log)
                && let Err(error) = engine.checkpoint()
            {
                tracing::warn!(%error, "few zones are free for the log, and a checkpoint that could free one failed; commits continue until no zone is left, and the next commit tries the checkpoint again");
            }
            let outcome = engine.commit(&mut batch);
            let outcomes: Vec<_> = match outcome {
                // Commits the changes one by one: those that free space may succeed where others do not.
                Err(Error::Full | Error::IndexUnwritable(_)) => {
                    batch.into_iter().map(|one| commit_one(engine, one)).collect()
                }
                outcome => replies.iter().map(|_| outcome.clone()).collect(),
            };
            assert_eq!(replies.len(), outcomes.len(), "each caller gets one outcome");
            for (reply, outcome) in replies.into_iter().zip(outcomes) {
                reply.send(outcome);
            }
        }
    }

    /// Takes changes from the front of the queue, up to `len_bytes_max` bytes of a frame, but at least one.
    fn take(&self, len_bytes_max: u64) -> Vec<QueuedCommit> {
        let mut state = self.lock();
        let mut taken = Vec::new();
        let mut len_bytes = 0;
        while let Some(next) = state.commits.front() {
            len_bytes += next.prepared.frame_bytes();
            if !taken.is_empty() && len_bytes > len_bytes_max {
                break;
            }
            taken.extend(state.commits.pop_front());
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommitReply {
    /// Releases the locks of the commit, and sends its outcome to the caller.
    fn send(self, outcome: Result<()>) {
        drop(self.locks);
        // The receiver is gone if the caller was cancelled.
        let _unheard = self.done.send(outcome);
    }
}

/// Commits one change. If it frees space and the drive is full, makes a checkpoint first, which frees the zones without live bytes.
fn commit_one(engine: &Engine, one: Prepared) -> Result<()> {
    let frees = one.purpose == Purpose::Frees;
    let mut batch = vec![one];
    match engine.commit(&mut batch) {
        Err(Error::Full) if frees => {
            engine.checkpoint()?;
            engine.commit(&mut batch)
        }
        outcome => outcome,
    }
}
