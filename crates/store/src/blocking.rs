//! Work that blocks its thread.

use crate::cause::{current_cause, step_for};
use std::io;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that blocks, such as device I/O, on a thread for blocking work. A single-threaded runtime, which a
/// simulator or a test uses, runs it in place, so that the order of events depends only on the seed.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    let cause = current_cause();
    let work = move || step_for(cause.as_ref(), work);
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
