//! The threads of the library, and the wait for an operation in the caller's thread.

use crate::failure::{Failure, Result};
use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::runtime::{Builder, Runtime};

/// The runtime of the process. It is never dropped.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Returns the runtime. Starts its threads at the first call.
fn runtime() -> Result<&'static Runtime> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if RUNTIME.get().is_none() {
        let started = Builder::new_multi_thread().enable_all().thread_name("tenon").build();
        let started =
            started.map_err(|error| Failure::new(libc::EAGAIN, format!("cannot start threads: {error}")))?;
        let _ = RUNTIME.set(started);
    }
    RUNTIME.get().ok_or_else(|| Failure::new(libc::EAGAIN, "cannot start threads"))
}

/// Carries out an operation, and waits for it.
pub(crate) fn wait<T, E: Into<Failure>>(work: impl Future<Output = Result<T, E>>) -> Result<T> {
    let runtime = runtime()?;
    let mut work = pin!(work);
    // The first poll runs in the caller's thread: an operation that caches answer completes there.
    let polled = {
        let _inside = runtime.enter();
        work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    let outcome = match polled {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => runtime.block_on(work),
    };
    outcome.map_err(Into::into)
}
