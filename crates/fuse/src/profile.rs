//! Operations and their times by process.

use crate::operations::Operation;
use crate::processes::{UNKNOWN_PROGRAM, process_of};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of threads of programs that are told apart. The requests of further ones count as those of the kernel.
const THREADS_MAX: usize = 10_000;

/// Operations by process.
#[derive(Debug, Default)]
pub(crate) struct Profile(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The process of each thread.
    threads: HashMap<u32, u32>,
    /// The name of each process's program.
    programs: HashMap<u32, String>,
    totals: HashMap<(u32, Operation), Totals>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    count: u64,
    total: Duration,
    longest: Duration,
}

/// The requests of one process for one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRow {
    /// Process id; 0 for the kernel itself, and for processes of other PID namespaces.
    pub process: u32,
    /// Name of the program.
    pub program: String,
    /// Operation.
    pub operation: Operation,
    /// Number of requests.
    pub count: u64,
    /// Sum of the times from the requests to their replies.
    pub total: Duration,
    /// Longest of these times.
    pub longest: Duration,
}

impl Profile {
    /// Finds out which process a thread belongs to, at its first request. The thread must be waiting for a reply.
    pub(crate) fn note_process(&self, thread: u32) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.threads.contains_key(&thread) || inner.threads.len() >= THREADS_MAX {
            return;
        }
        let (process, program) = process_of(thread).unwrap_or((0, UNKNOWN_PROGRAM.to_owned()));
        inner.threads.insert(thread, process);
        inner.programs.insert(process, program);
    }

    /// Records an answered request.
    pub(crate) fn record(&self, thread: u32, operation: Operation, took: Duration) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let process = inner.threads.get(&thread).copied().unwrap_or(0);
        let totals = inner.totals.entry((process, operation)).or_default();
        totals.count += 1;
        totals.total += took;
        totals.longest = totals.longest.max(took);
    }

    /// Returns the totals by process and operation, the longest total time first.
    pub(crate) fn rows(&self) -> Vec<ProfileRow> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let program =
            |process: u32| inner.programs.get(&process).map_or(UNKNOWN_PROGRAM, String::as_str).to_owned();
        let row = |(&(process, operation), totals): (&(u32, Operation), &Totals)| ProfileRow {
            process,
            program: program(process),
            operation,
            count: totals.count,
            total: totals.total,
            longest: totals.longest,
        };
        let mut rows: Vec<ProfileRow> = inner.totals.iter().map(row).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.total), row.process, row.operation));
        rows
    }
}
