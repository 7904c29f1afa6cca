//! Threads, open files and CPU time of the node's processes, read from `/proc`.

use crate::model::CpuTime;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Pid of `kthreadd`, the parent of all kernel threads.
const KTHREADD: u32 = 2;

/// `USER_HZ`, the unit of CPU times in `/proc`: 100 on every architecture that Tenon is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the thread ids of a process, the main thread included.
pub(super) fn threads(process: u32) -> Vec<u32> {
    numeric_entries(Path::new(&format!("/proc/{process}/task")))
}

/// Returns the process of each thread of these processes.
pub(super) fn processes_of_threads(processes: &[u32]) -> HashMap<u32, u32> {
    processes.iter().flat_map(|process| threads(*process).into_iter().map(|tid| (tid, *process))).collect()
}

/// Returns the open descriptors of a process whose paths are one of `roots` or lie below one.
pub(super) fn open_files(process: u32, roots: &[PathBuf]) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| {
            fs::read_link(entry.path()).is_ok_and(|path| roots.iter().any(|root| path.starts_with(root)))
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the CPU time used until now by the processes, with the children that they waited for, and by all kernel threads.
pub(super) fn cpu(processes: &[u32]) -> CpuTime {
    let mut sum = CpuTime::default();
    for process in processes {
        if let Some(stat) = Stat::read(*process) {
            sum.node_user_seconds += stat.user_seconds;
            sum.node_system_seconds += stat.system_seconds;
        }
    }
    for process in numeric_entries(Path::new("/proc")) {
        if let Some(stat) = Stat::read(process).filter(|stat| stat.parent == KTHREADD) {
            sum.kernel_workers_seconds += stat.user_seconds + stat.system_seconds;
        }
    }
    sum
}

struct Stat {
    parent: u32,
    user_seconds: f64,
    system_seconds: f64,
}

impl Stat {
    /// Reads proc_pid_stat(5). The fields are counted from the last closing bracket, as the name in brackets may contain anything.
    fn read(process: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let seconds = |field: usize| -> Option<f64> {
            Some(fields.get(field)?.parse::<f64>().ok()? / TICKS_PER_SECOND)
        };
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            user_seconds: seconds(11)? + seconds(13)?,
            system_seconds: seconds(12)? + seconds(14)?,
        })
    }
}

fn numeric_entries(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
