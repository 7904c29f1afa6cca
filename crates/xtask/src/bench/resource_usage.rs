//! Wall time, CPU time and memory of a process, from `/proc`.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one side of a job took.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) wall: Duration,
    /// CPU of the process that serves: the daemon, or this one for the raw client.
    pub(super) cpu: Duration,
    /// The daemon's largest resident size; 0 for the raw client.
    pub(super) memory_peak_bytes: u64,
    pub(super) store_requests: BTreeMap<String, u64>,
    pub(super) fuse_requests: BTreeMap<String, u64>,
}

/// CPU time a process has used, in user and system mode.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // After the name: utime is field 14 and stime 15 of proc(5), which counts from 1 with the name as 2.
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// CPU time this thread has used.
pub(super) fn cpu_of_thread() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").context("cannot read the CPU time")?;
    let nanos = stat.split(' ').next().unwrap_or_default().parse().context("cannot read the CPU time")?;
    Ok(Duration::from_nanos(nanos))
}

/// The largest resident size a process has had, in bytes.
pub(super) fn memory_peak_bytes(pid: u32) -> Result<u64> {
    size_of_process(pid, "VmHWM:")
}

/// Runs and takes the wall time. Benchmarks are the one place that may read the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(super) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = std::time::Instant::now();
    let value = work()?;
    Ok((value, start.elapsed()))
}

/// The resident size of a process, in bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64> {
    size_of_process(pid, "VmRSS:")
}

fn size_of_process(pid: u32, what: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or("0 kB");
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024)
}

/// How many processes want to run, over the last minute: figures of a machine that does other things say less.
pub(super) fn load_average() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").context("cannot read the load")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}
