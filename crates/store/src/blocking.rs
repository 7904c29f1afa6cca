//! Work that waits for a device.

use std::io;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that waits for a device, on a thread where nobody else waits for it. A runtime of one thread, which is a
/// simulator's or a test's, does it in place: there the order of all that happens depends on nothing but the seed.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
