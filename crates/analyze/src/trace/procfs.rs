//! The processes of a node and their threads, as `/proc` shows them.

use crate::model::CpuTime;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's own threads are children of this one.
const KTHREADD: u32 = 2;

/// `USER_HZ`, the unit of times in `/proc`: 100 on every architecture that Tenon is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// The threads of a process, itself among them.
pub(super) fn threads(process: u32) -> Vec<u32> {
    numbers(Path::new(&format!("/proc/{process}/task")))
}

/// Which process each thread belongs to.
pub(super) fn processes_of_threads(processes: &[u32]) -> HashMap<u32, u32> {
    processes.iter().flat_map(|process| threads(*process).into_iter().map(|tid| (tid, *process))).collect()
}

/// The descriptors of a process that are files within `mounts`, or one of `devices`.
pub(super) fn open_files(process: u32, within: &[PathBuf]) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| {
            fs::read_link(entry.path()).is_ok_and(|path| within.iter().any(|top| path.starts_with(top)))
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Processor time until now: of the processes with the children they waited for, and of the kernel's threads.
pub(super) fn cpu(processes: &[u32]) -> CpuTime {
    let mut sum = CpuTime::default();
    for process in processes {
        if let Some(stat) = Stat::of(*process) {
            sum.node_user_seconds += stat.user_seconds;
            sum.node_system_seconds += stat.system_seconds;
        }
    }
    for process in numbers(Path::new("/proc")) {
        if let Some(stat) = Stat::of(process).filter(|stat| stat.parent == KTHREADD) {
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
    /// proc_pid_stat(5): the fields after the name in brackets, which may hold anything.
    fn of(process: u32) -> Option<Self> {
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

fn numbers(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
