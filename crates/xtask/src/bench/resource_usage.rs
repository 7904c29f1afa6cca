//! Wall time of work, CPU time of a thread, and load of the machine.

use anyhow::{Context, Result};
use harness::Stopwatch;
use std::time::Duration;

pub(super) use harness::process_usage::{cpu_time, memory_peak_bytes, resident_bytes};

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
