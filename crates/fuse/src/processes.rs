//! The processes that make requests: id and program of a thread's process, as `/proc` shows them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of threads that are remembered.
const THREADS_MAX: usize = 10_000;
/// Time after which a thread is looked up again: a thread may run another program, and thread ids are used again.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(200);
/// Name of the kernel's own requests, and of programs that are invisible in this PID namespace.
pub(crate) const UNKNOWN_PROGRAM: &str = "(kernel)";

/// A process that makes requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id; 0 for the kernel itself, and for processes of other PID namespaces.
    pub id: u32,
    /// Name of the program.
    pub program: Arc<str>,
}

/// The processes of threads, each with the time when it was looked up.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<HashMap<u32, (Instant, Process)>>);

impl Processes {
    /// Returns a thread's process; id 0 for the kernel, and for a thread that `/proc` does not show. The thread must be waiting for a reply, or
    /// have made a request shortly before.
    pub(crate) fn of_thread(&self, thread: u32) -> Process {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, process)) = known.get(&thread).filter(|(at, _)| at.elapsed() < LOOKUP_INTERVAL) {
            return process.clone();
        }
        let (id, program) = process_of(thread).unwrap_or((0, UNKNOWN_PROGRAM.to_owned()));
        let process = Process { id, program: program.into() };
        if known.len() >= THREADS_MAX {
            known.clear();
        }
        known.insert(thread, (Instant::now(), process.clone()));
        process
    }
}

/// Returns id and program of a thread's process (proc_pid_status(5)); `None` if `/proc` does not show the thread.
pub(crate) fn process_of(thread: u32) -> Option<(u32, String)> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let program = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some((process, program.trim_end().to_owned()))
}
