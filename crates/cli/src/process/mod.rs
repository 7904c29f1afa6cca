//! The process: its version, clock, environment, memory, descriptors, signals, files, logs and service manager, and its start in the
//! background. Also writes times as text. Knows nothing of volumes.

pub(crate) mod allocator;
pub(crate) mod context;
pub(crate) mod daemon;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod logging;
pub(crate) mod rfc3339;
pub(crate) mod service_manager;
pub(crate) mod signals;

use anyhow::{Context, Result};
use std::time::Duration;
use tokio::runtime::Runtime;

/// This program's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Maximum time that the end of the process waits for its threads, of which one may hang in a system call.
const THREADS_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the runtime that carries out asynchronous work.
pub(crate) fn runtime() -> Result<Runtime> {
    Runtime::new().context("cannot start threads; check the limit on processes (`ulimit -u`)")
}

/// Ends all tasks, and waits at most [`THREADS_TIMEOUT`] for their threads, so that none has the metadata engine open
/// when the process exits: RocksDB aborts if a thread uses it while its global state is torn down.
pub(crate) fn shut_down_runtime(runtime: Runtime) {
    runtime.shutdown_timeout(THREADS_TIMEOUT);
}
