//! A file with a trace that `tenon bench` replays.
//!
//! A line is a step, with the process, the time that it took and the store's requests, which the replay ignores. Operations that cannot
//! be replayed, and those that failed, are comments.

use super::steps::Steps;
use crate::control::live_messages::{TracedCall, TracedProcess, TracedRequest};
use crate::metadata;
use crate::process::rfc3339::rfc3339;
use anyhow::{Context, Result};
use bench::TraceStep;
use serde::Serialize;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// Number of operations that are kept to sort them by their arrival: they are reported in the order of their replies.
const SORTED_OPERATIONS: usize = 65_536;

/// The file while it is written.
pub(super) struct Recording {
    path: PathBuf,
    file: BufWriter<File>,
    /// Operations that are not written yet, as an earlier one may still be reported.
    waiting: BinaryHeap<Reverse<ByArrival>>,
    steps: Steps,
    /// Number of steps written.
    step_count: u64,
    /// Number of operations written as comments.
    other_count: u64,
}

/// A step with further facts about it.
#[derive(Serialize)]
struct RecordedStep<'a> {
    #[serde(flatten)]
    step: &'a TraceStep,
    took_us: u64,
    process: &'a TracedProcess,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    requests: &'a [TracedRequest],
}

impl Recording {
    /// Creates the file, and replaces one that exists.
    pub(super) fn create(path: &Path, volume: &str) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut file = BufWriter::new(file);
        writeln!(file, "# Recorded by tenon trace from {volume} at {}", rfc3339(metadata::now()))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            waiting: BinaryHeap::new(),
            steps: Steps::default(),
            step_count: 0,
            other_count: 0,
        })
    }

    /// Adds an operation. Writes the first one that waits once there are enough to sort.
    pub(super) fn add(&mut self, call: TracedCall) -> Result<()> {
        self.waiting.push(Reverse(ByArrival(call)));
        match self.waiting.len() > SORTED_OPERATIONS {
            true => self.write_first(),
            false => Ok(()),
        }
    }

    /// Writes the operations that wait. Returns a summary.
    pub(super) fn finish(mut self) -> Result<String> {
        while !self.waiting.is_empty() {
            self.write_first()?;
        }
        self.file.flush().with_context(|| format!("cannot write {}", self.path.display()))?;
        let (steps, others) = (self.step_count, self.other_count);
        Ok(format!(
            "{steps} steps, and {others} operations that are not replayed as steps, are in {}",
            self.path.display()
        ))
    }

    /// Writes the operation that arrived first of those that wait.
    fn write_first(&mut self) -> Result<()> {
        let Some(Reverse(ByArrival(call))) = self.waiting.pop() else { return Ok(()) };
        let steps = self.steps.of(&call);
        let mut lines = Vec::with_capacity(steps.len());
        for step in &steps {
            lines.push(serde_json::to_string(&RecordedStep {
                step,
                took_us: call.took_us,
                process: &call.process,
                requests: &call.requests,
            })?);
        }
        if lines.is_empty() {
            lines.push(format!("# {}", serde_json::to_string(&call)?));
            self.other_count += 1;
        }
        self.step_count += steps.len() as u64;
        for line in lines {
            writeln!(self.file, "{line}").with_context(|| format!("cannot write {}", self.path.display()))?;
        }
        Ok(())
    }
}

/// An operation, ordered by its arrival.
struct ByArrival(TracedCall);

impl PartialEq for ByArrival {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ByArrival {}

impl PartialOrd for ByArrival {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByArrival {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.id.cmp(&other.0.id)
    }
}
