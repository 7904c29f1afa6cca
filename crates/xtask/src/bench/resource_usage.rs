//! Wall time of work, CPU time of a thread, and load of the machine.

use anyhow::{Context, Result};
use harness::Stopwatch;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) use harness::process_usage::{cpu_time, memory_peak_bytes, resident_bytes};

/// The measurement of a job on a mount or with the raw client.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) wall: Duration,
    /// CPU time of the daemon; for the raw client, that of this process.
    pub(super) cpu: Duration,
    /// The daemon's maximum resident size; 0 for the raw client.
    pub(super) memory_peak_bytes: u64,
    pub(super) store_requests: BTreeMap<String, u64>,
    pub(super) fuse_requests: BTreeMap<String, u64>,
}

/// Returns the CPU time that this thread has used.
pub(super) fn thread_cpu_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").context("cannot read the CPU time")?;
    let nanos = stat.split(' ').next().unwrap_or_default().parse().context("cannot read the CPU time")?;
    Ok(Duration::from_nanos(nanos))
}

/// Runs `work` and measures its wall time.
pub(super) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let watch = Stopwatch::start();
    let value = work()?;
    Ok((value, watch.elapsed()))
}

/// Returns the load average over the last minute. Figures measured on a busy machine mean less.
pub(super) fn load_average() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").context("cannot read the load average")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}
