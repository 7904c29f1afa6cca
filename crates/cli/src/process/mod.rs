//! The process: its version, clock, environment, memory, descriptors, signals, files and logs. Knows nothing of volumes.

pub(crate) mod allocator;
pub(crate) mod context;
pub(crate) mod daemon;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod logging;
pub(crate) mod signals;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

/// This program's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Starts the runtime that carries out asynchronous work.
pub(crate) fn runtime() -> Result<Runtime> {
    Runtime::new().context("cannot start threads; check the limit on processes (`ulimit -u`)")
}
