//! The plan of a run: which cells are measured, in which order, and which are left after an interruption.
//!
//! Owns the order. Repeats are the outermost loop, so that the repeats of a package are spread over the whole run, and measurements that
//! are compared with each other are close together.
//!
//! Refuses effects: everything here is a function of its arguments.

use crate::workload::{Job, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The identity of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Repeat, from 0.
    pub repeat: u32,
    /// Name of the platform.
    pub platform: String,
    /// Name of the target: package and version.
    pub target: String,
    /// Name of the job.
    pub job: String,
}

/// A turn of one target on one platform, with one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Repeat, from 0.
    pub repeat: u32,
    /// Name of the platform.
    pub platform: String,
    /// Name of the target.
    pub target: String,
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// A job of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The job.
    pub job: Job,
    /// Whether the outcome is a result. Otherwise the job only writes files that a later job reads.
    pub is_recorded: bool,
}

/// The names of which every combination is measured.
#[derive(Debug, Clone)]
pub struct Grid<'a> {
    /// Platforms, in order.
    pub platforms: &'a [String],
    /// Targets, in order.
    pub targets: &'a [String],
    /// Jobs.
    pub workload: &'a Workload,
    /// Number of repeats.
    pub repeats: u32,
}

impl Grid<'_> {
    /// Returns the sessions that are left when the cells in `done` have results.
    pub fn sessions(&self, done: &BTreeSet<Cell>) -> Vec<Session> {
        let mut sessions = Vec::new();
        for repeat in 0..self.repeats {
            for platform in self.platforms {
                for target in self.targets {
                    sessions.extend(self.session(repeat, platform, target, done));
                }
            }
        }
        sessions
    }

    /// Returns the session with the jobs that are not done yet, and those whose files they need; `None` if all are
    /// done.
    fn session(&self, repeat: u32, platform: &str, target: &str, done: &BTreeSet<Cell>) -> Option<Session> {
        let mut session =
            Session { repeat, platform: platform.to_owned(), target: target.to_owned(), steps: Vec::new() };
        let is_missing = |job: &&Job| !done.contains(&session.cell(&job.name));
        let missing: Vec<&Job> = self.workload.jobs.iter().filter(is_missing).collect();
        let is_needed = |job: &Job| missing.iter().any(|reader| reader.needs().any(|name| name == job.name));
        let steps: Vec<Step> = self
            .workload
            .jobs
            .iter()
            .filter_map(|job| {
                let is_recorded = missing.contains(&job);
                let is_run = is_recorded || is_needed(job);
                is_run.then(|| Step { job: job.clone(), is_recorded })
            })
            .collect();
        session.steps = steps;
        (!session.steps.is_empty()).then_some(session)
    }
}

impl Session {
    /// Returns the cell of one of its jobs.
    pub fn cell(&self, job: &str) -> Cell {
        Cell {
            repeat: self.repeat,
            platform: self.platform.clone(),
            target: self.target.clone(),
            job: job.to_owned(),
        }
    }

    /// Returns the number of results that the session gives.
    pub fn cells(&self) -> usize {
        self.steps.iter().filter(|step| step.is_recorded).count()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "repeat {}, {}, {}, {}", self.repeat + 1, self.platform, self.target, self.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    fn steps(session: &Session) -> Vec<(&str, bool)> {
        session.steps.iter().map(|step| (step.job.name.as_str(), step.is_recorded)).collect()
    }

    #[test]
    fn repeats_are_the_outermost_loop() {
        let workload = Workload::paper().unwrap();
        let (platforms, targets) = (names(&["minio"]), names(&["raw", "tenon"]));
        let grid = Grid { platforms: &platforms, targets: &targets, workload: &workload, repeats: 2 };
        let sessions = grid.sessions(&BTreeSet::new());
        let order: Vec<(u32, &str)> =
            sessions.iter().map(|session| (session.repeat, session.target.as_str())).collect();
        assert_eq!(order, [(0, "raw"), (0, "tenon"), (1, "raw"), (1, "tenon")]);
        assert!(sessions.iter().all(|session| session.cells() == 6));
    }

    /// A reader that is left needs its files again, but the writer's result is kept.
    #[test]
    fn an_interrupted_session_continues_with_what_is_left() {
        let workload = Workload::paper().unwrap();
        let (platforms, targets) = (names(&["minio"]), names(&["raw"]));
        let grid = Grid { platforms: &platforms, targets: &targets, workload: &workload, repeats: 1 };
        let whole = grid.sessions(&BTreeSet::new()).remove(0);
        let done = ["job1", "job2", "job3", "job5"].map(|job| whole.cell(job));
        let left = grid.sessions(&done.into_iter().collect());
        assert_eq!(steps(&left[0]), [("job3", false), ("job4", true), ("job5", false), ("job6", true)]);
        let all = workload.jobs.iter().map(|job| whole.cell(&job.name)).collect();
        assert_eq!(grid.sessions(&all), []);
    }
}
