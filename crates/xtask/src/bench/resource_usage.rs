//! Wall time, CPU time and memory of a process, and load of the machine, read from `/proc`.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::time::Duration;

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

/// Returns the CPU time that a process has used, in user and system mode.
pub(super) fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process has ended")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // proc(5) counts from 1: the name is field 2, utime 14, stime 15. `fields` begins with field 3.
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// Returns the CPU time that this thread has used.
pub(super) fn thread_cpu_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").context("cannot read the CPU time")?;
    let nanos = stat.split(' ').next().unwrap_or_default().parse().context("cannot read the CPU time")?;
    Ok(Duration::from_nanos(nanos))
}

/// Returns the maximum resident size that a process has had, in bytes.
pub(super) fn memory_peak_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmHWM:")
}

/// Runs `work` and measures its wall time. Only benchmarks may read the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(super) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = std::time::Instant::now();
    let value = work()?;
    Ok((value, start.elapsed()))
}

/// Returns the resident size of a process, in bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// Reads a size from `/proc/PID/status`.
fn status_bytes(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0 kB");
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024)
}

/// Returns the load average over the last minute. Figures measured on a busy machine mean less.
pub(super) fn load_average() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").context("cannot read the load average")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}
