//! The threads that carry out operations, and the two ways to wait for an operation: blocking, or by a callback.
//!
//! Invariant: no thread waits for an operation while it holds Python's global interpreter lock (GIL).

use crate::answer::Answer;
use crate::failure::Failure;
use pyo3::exceptions::PyRuntimeError;
use pyo3::{Py, PyAny, PyErr, PyResult, Python};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Interval at which a blocked caller handles signals, such as that of Ctrl-C.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(100);

/// The runtime of this process. A forked process inherits the value without its threads, and makes a runtime of its own.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// Returns the runtime of this process. It is never dropped, because a forked process cannot end the threads of its parent.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    let mut shared = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some((owner, runtime)) = *shared
        && owner == pid
    {
        return Ok(runtime);
    }
    let started = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("tenon").build();
    let started =
        started.map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let runtime = Box::leak(Box::new(started));
    *shared = Some((pid, runtime));
    Ok(runtime)
}

/// Carries out `work`. Without `done`, blocks and returns the value. With `done`, returns `None` at once, and calls
/// `done(value, error)` at the end.
///
/// A signal handler that raises ends the wait, not the work.
pub(crate) fn run<T, F>(py: Python<'_>, done: Option<Py<PyAny>>, work: F) -> PyResult<Py<PyAny>>
where
    F: Future<Output = Result<T, Failure>> + Send + 'static,
    T: Answer,
{
    match done {
        None => wait(py, work)?.into_object(py),
        Some(done) => {
            runtime()?.spawn(async move { report(&done, work.await) });
            Ok(py.None())
        }
    }
}

/// Blocks until `work` ends.
pub(crate) fn wait<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    F: Future<Output = Result<T, Failure>> + Send + 'static,
    T: Send + 'static,
{
    let runtime = runtime()?;
    let mut work: Pin<Box<F>> = Box::pin(work);
    // The first poll runs in the caller's thread: an operation that caches answer completes there.
    let polled = py.detach(|| {
        let _inside = runtime.enter();
        work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    });
    if let Poll::Ready(outcome) = polled {
        return Ok(outcome?);
    }
    let mut task = runtime.spawn(work);
    loop {
        let waiting = async { tokio::time::timeout(SIGNALS_INTERVAL, &mut task).await };
        match py.detach(|| runtime.block_on(waiting)) {
            Ok(Ok(outcome)) => return Ok(outcome?),
            Ok(Err(error)) => return Err(PyRuntimeError::new_err(error.to_string())),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Blocks until `work` ends, which may borrow from the caller. Signals wait until then.
pub(crate) fn wait_borrowing<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = Result<T, Failure>> + Send,
) -> PyResult<T> {
    let runtime = runtime()?;
    Ok(py.detach(|| runtime.block_on(work))?)
}

/// Calls `done` with the outcome. Python prints an exception that `done` raises, because no caller could handle it.
fn report<T: Answer>(done: &Py<PyAny>, outcome: Result<T, Failure>) {
    Python::attach(|py| {
        let outcome = outcome.map_err(PyErr::from).and_then(|value| value.into_object(py));
        let called = match outcome {
            Ok(value) => done.call1(py, (value, py.None())),
            Err(error) => done.call1(py, (py.None(), error)),
        };
        if let Err(error) = called {
            error.write_unraisable(py, None);
        }
    });
}
