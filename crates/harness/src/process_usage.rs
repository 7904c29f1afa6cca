//! CPU time and memory of one process, read from `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// Length of a clock tick in `/proc` (`USER_HZ`), in milliseconds; the same on every architecture of Linux.
const TICK_MS: u64 = 10;

/// Returns the CPU time that a process has used, in user and system mode.
///
/// # Errors
/// If the process has ended.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // proc(5) counts from 1: the name is field 2, utime 14, stime 15. `fields` begins with field 3.
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * TICK_MS))
}

/// Returns the maximum resident size that a process has had, in bytes.
///
/// # Errors
/// If the process has ended.
pub fn memory_peak_bytes(pid: u32) -> io::Result<u64> {
    status_bytes(pid, "VmHWM:")
}

/// Returns the resident size of a process, in bytes.
///
/// # Errors
/// If the process has ended.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// Reads a size from `/proc/PID/status`, in bytes; 0 if the field is missing, as in that of a process that has ended and was not awaited.
fn status_bytes(pid: u32, field: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0 kB");
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_cpu_time_and_memory() {
        let pid = std::process::id();
        while cpu_time(pid).unwrap().is_zero() {}
        assert!(resident_bytes(pid).unwrap() > 0);
        assert!(memory_peak_bytes(pid).unwrap() >= resident_bytes(pid).unwrap() / 2);
        assert!(cpu_time(u32::MAX).is_err());
    }
}
