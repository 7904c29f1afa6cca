//! Where the tasks of an engine run, and how callers wait for their answers: a thread of the engine, or the runtime of a simulation.
//!
//! Callers of an engine are synchronous. They wait without blocking the runtime that they are on: a thread of a multi-threaded runtime first
//! hands its other tasks to another thread.

use meta::EngineError;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// A task of an engine.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The runtime of a simulation: it runs the tasks of engines in simulated time.
pub trait TaskRunner: Send + Sync {
    /// Starts a task.
    fn spawn(&self, task: Task);

    /// Blocks the caller until `is_answered` is set, the simulation ends, or a time has passed.
    fn wait(&self, is_answered: &Arc<AtomicBool>, reason: WaitReason);
}

/// The reason for which a caller of an engine waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// A call of the database.
    Call,
    /// A commit, which may wait until other sessions have applied it.
    Commit,
    /// The changes of other sessions, which this one has not applied yet.
    Acknowledgement,
    /// The end of the engine, for this time at most.
    End(Duration),
}

/// The place where the tasks of an engine run.
pub(crate) enum Tasks {
    /// A runtime with one thread; `None` after its end.
    Thread(Option<Runtime>),
    /// The runtime of a simulation.
    Simulated(Arc<dyn TaskRunner>),
}

impl Tasks {
    /// Starts a thread.
    pub(crate) fn start_thread() -> std::io::Result<Self> {
        // One thread: the tasks of a call and of its connection run on it in turn, without switching threads.
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("meta-remote").enable_all().build();
        Ok(Self::Thread(Some(runtime?)))
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Thread(Some(runtime)) => drop(runtime.spawn(task)),
            Self::Thread(None) => {}
            Self::Simulated(runner) => runner.spawn(Box::pin(task)),
        }
    }

    /// Returns a channel for the answer to a caller.
    pub(crate) fn channel<T>(&self) -> (Answer<T>, Outcome<T>) {
        let (sender, receiver) = mpsc::sync_channel(1);
        let is_answered = Arc::new(AtomicBool::new(false));
        let runner = match self {
            Self::Thread(_) => None,
            Self::Simulated(runner) => Some(runner.clone()),
        };
        let answer = Answer { sender: Some(sender), is_answered: is_answered.clone() };
        (answer, Outcome { receiver, is_answered, runner })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // The last owner may be a task of the runtime itself, which cannot wait for the end of its thread.
        if let Self::Thread(runtime) = self
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}

/// The sender of the answer to a caller. Dropping it without an answer lets the caller fail.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    sender: Option<mpsc::SyncSender<T>>,
    is_answered: Arc<AtomicBool>,
}

impl<T> Answer<T> {
    /// Answers the caller. Does nothing if the caller no longer waits.
    pub(crate) fn send(mut self, answer: T) {
        if let Some(sender) = self.sender.take() {
            // The caller may have given up.
            let _ = sender.send(answer);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.sender = None;
        self.is_answered.store(true, Ordering::Release);
    }
}

/// The receiver of an answer.
pub(crate) struct Outcome<T> {
    receiver: mpsc::Receiver<T>,
    is_answered: Arc<AtomicBool>,
    runner: Option<Arc<dyn TaskRunner>>,
}

impl<T> Outcome<T> {
    /// Waits for the answer, without blocking a multi-threaded runtime that the caller is on. Fails with [`EngineError::Uncertain`] if the
    /// tasks of the engine end first.
    pub(crate) fn receive(&self, reason: WaitReason) -> Result<T, EngineError> {
        let received = match &self.runner {
            Some(runner) => {
                runner.wait(&self.is_answered, reason);
                self.receiver.try_recv().ok()
            }
            None if is_on_multi_thread_runtime() => tokio::task::block_in_place(|| self.receiver.recv()).ok(),
            None => self.receiver.recv().ok(),
        };
        let ended = || EngineError::Uncertain("the I/O thread of the metadata engine has ended".into());
        received.ok_or_else(ended)
    }

    /// Waits for the end of the engine for a time.
    pub(crate) fn wait(&self, timeout: Duration) {
        match &self.runner {
            Some(runner) => runner.wait(&self.is_answered, WaitReason::End(timeout)),
            None => drop(self.receiver.recv_timeout(timeout)),
        }
    }
}

impl<T> fmt::Debug for Outcome<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome").finish_non_exhaustive()
    }
}

fn is_on_multi_thread_runtime() -> bool {
    Handle::try_current().is_ok_and(|now| now.runtime_flavor() == RuntimeFlavor::MultiThread)
}
