//! Progress of a run, with an estimate of the time that is left.

use crate::plan::{Cell, Session};
use crate::workload::{Job, Scale};
use harness::Stopwatch;
use std::time::Duration;

/// Bytes that take about as long as one operation.
const OPERATION_BYTES: u64 = 64 << 10;

/// The state of a run, for progress output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Number of the cell, from 1.
    pub number: usize,
    /// Number of cells that this run measures.
    pub of: usize,
    /// The cell that begins.
    pub cell: Cell,
    /// Estimate of the time that is left; `None` before the first cell has ended.
    pub left: Option<Duration>,
}

/// The estimate: the work that is done took the time since the start.
#[derive(Debug)]
pub(super) struct Estimate {
    started: Stopwatch,
    /// Work of the whole run.
    all: u64,
    /// Work that is done.
    done: u64,
}

impl Estimate {
    pub(super) fn new(sessions: &[Session], scale: &Scale) -> Self {
        let steps = sessions.iter().flat_map(|session| &session.steps);
        Self { started: Stopwatch::start(), all: steps.map(|step| weight(&step.job, scale)).sum(), done: 0 }
    }

    /// Records that a job has ended, or was left out.
    pub(super) fn record_end(&mut self, job: &Job, scale: &Scale) {
        self.done += weight(job, scale);
    }

    /// Returns the estimated time that is left; `None` before the first step is done.
    pub(super) fn left(&self) -> Option<Duration> {
        let share_left = self.all.saturating_sub(self.done) as f64 / self.done as f64;
        (self.done > 0).then(|| self.started.elapsed().mul_f64(share_left))
    }
}

/// Returns a number that grows with the time that a job takes.
fn weight(job: &Job, scale: &Scale) -> u64 {
    job.bytes(scale) + job.operations(scale).max(1) * OPERATION_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Grid;
    use crate::workload::Workload;

    #[test]
    fn time_left_follows_the_work_that_is_left() {
        let (workload, names) = (Workload::paper().unwrap(), ["one".to_owned()]);
        let grid = Grid { platforms: &names, targets: &names, workload: &workload, repeats: 1 };
        let mut estimate = Estimate::new(&grid.sessions(&Default::default()), &Scale::SMALL);
        assert_eq!(estimate.left(), None);
        for job in &workload.jobs {
            estimate.record_end(job, &Scale::SMALL);
            assert!(estimate.left().is_some());
        }
        assert_eq!(estimate.left(), Some(Duration::ZERO));
    }
}
