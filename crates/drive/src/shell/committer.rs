//! Group commit: whoever comes first commits for all who came while the device was busy.

use crate::core::{Core, Prepared};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// What waits to be committed, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Committer {
    queue: Arc<Queue>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Queue(Mutex<VecDeque<Waiting>>);

#[derive(Debug)]
struct Waiting {
    prepared: Prepared,
    done: oneshot::Sender<Result<()>>,
}

impl Committer {
    /// Returns when the changes are durable and seen, or did not happen.
    pub(super) async fn commit(&self, core: &Arc<Core>, prepared: Prepared) -> Result<()> {
        let (done, mut answer) = oneshot::channel();
        self.queue.lock().push_back(Waiting { prepared, done });
        tokio::select! {
            biased;
            answered = &mut answer => return answered.unwrap_or_else(|_| Err(given_up())),
            turn = self.turn.clone().lock_owned() => {
                let (core, queue) = (core.clone(), self.queue.clone());
                // Also if who began this does not wait for its end, the others get their answers.
                let ended = store::blocking(move || {
                    queue.commit(&core);
                    drop(turn);
                    Ok(())
                });
                if ended.await.is_err() {
                    return Err(given_up());
                }
            }
        }
        answer.await.unwrap_or_else(|_| Err(given_up()))
    }
}

impl Queue {
    /// Commits all that waits, in as few frames as hold it.
    fn commit(&self, core: &Core) {
        loop {
            let (batch, done): (Vec<_>, Vec<_>) = self
                .take(core.frame_bytes_max())
                .into_iter()
                .map(|waiting| (waiting.prepared, waiting.done))
                .unzip();
            if batch.is_empty() {
                return;
            }
            let outcome = core.commit(batch);
            for waiting in done {
                // Who does not wait any more needs no answer.
                let _unheard = waiting.send(outcome.clone());
            }
        }
    }

    /// The first that wait, up to so many bytes of a frame.
    fn take(&self, len_bytes_max: u64) -> Vec<Waiting> {
        let mut queue = self.lock();
        let mut taken = Vec::new();
        let mut len_bytes = 0;
        while let Some(next) = queue.front() {
            len_bytes += next.prepared.frame_bytes();
            if !taken.is_empty() && len_bytes > len_bytes_max {
                break;
            }
            taken.extend(queue.pop_front());
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn given_up() -> Error {
    Error::Failed("a commit was given up".into())
}
