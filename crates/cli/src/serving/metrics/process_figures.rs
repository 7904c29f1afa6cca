//! Figures of this process from `/proc`, under the names that all Prometheus clients use.

use metrics::Collection;

/// Unit of the times in `/proc/PID/stat`: `USER_HZ`, which is 100 on x86-64 and AArch64 (time(7)).
const TICKS_PER_SEC: f64 = 100.0;

/// Adds the figures. One that cannot be read is left out.
pub(super) fn add(collection: &mut Collection) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let times = Times::parse(&stat);
    if let Some(times) = &times {
        collection.add("process_cpu_seconds", &[], times.cpu_ticks as f64 / TICKS_PER_SEC);
        collection.add("process_threads", &[], times.threads as f64);
    }
    let booted = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok());
    if let (Some(times), Some(booted)) = (&times, booted) {
        let started = booted as f64 + times.start_ticks as f64 / TICKS_PER_SEC;
        collection.add("process_start_time_seconds", &[], started);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (name, field) in
        [("process_resident_memory_bytes", "VmRSS:"), ("process_virtual_memory_bytes", "VmSize:")]
    {
        if let Some(kib) = kib_of(&status, field) {
            collection.add(name, &[], kib as f64 * 1024.0);
        }
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        collection.add("process_open_fds", &[], open.count() as f64);
    }
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        collection.add("process_max_fds", &[], limit as f64);
    }
}

/// Fields of proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Times {
    cpu_ticks: u64,
    start_ticks: u64,
    threads: u64,
}

impl Times {
    /// Parses the file. The name of the program, in parentheses, may contain anything.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // The first field here is the third of the manual.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, start_ticks: field(22)?, threads: field(20)? })
    }
}

fn kib_of(status: &str, field: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_may_contain_anything() {
        let stat = "7 (a) b 1 2) S 1 7 7 0 -1 4194560 100 0 0 0 11 22 0 0 20 0 5 0 4711 1000 200";
        assert_eq!(Times::parse(stat), Some(Times { cpu_ticks: 33, start_ticks: 4711, threads: 5 }));
        assert_eq!(Times::parse(""), None);
        assert_eq!(kib_of("Name:\tx\nVmRSS:\t  1234 kB\n", "VmRSS:"), Some(1234));
    }
}
