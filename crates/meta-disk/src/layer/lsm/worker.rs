//! A background thread that runs a job each time it is woken.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// A thread with a job. Dropping it ends the thread after the job in progress.
pub(super) struct Worker {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// The requests to the thread of a worker, and their notification.
#[derive(Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

/// The requests to the thread of a worker.
#[derive(Default)]
struct State {
    is_due: bool,
    must_stop: bool,
}

impl Worker {
    /// Starts a thread that runs `job` after each [`Worker::wake`].
    pub(super) fn start(name: &str, mut job: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let signal = Arc::new(Signal::default());
        let of_thread = signal.clone();
        let run = move || {
            while of_thread.wait() {
                job();
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { signal, thread: Some(thread) })
    }

    /// Lets the job run once more.
    pub(super) fn wake(&self) {
        self.signal.lock().is_due = true;
        self.signal.changed.notify_one();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.signal.lock().must_stop = true;
        self.signal.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Signal {
    /// Waits until the job is due. Returns false if the thread must end.
    fn wait(&self) -> bool {
        let is_idle = |state: &mut State| !state.is_due && !state.must_stop;
        let mut state = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        state.is_due = false;
        !state.must_stop
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
