//! The runner: sessions one after another, each outcome appended to the results. All effects of the testbed are here.

mod endpoint;
mod mounted;
mod program;
mod run_error;
mod run_plan;
mod second_client;
mod session;
mod transfer;

pub use run_error::RunError;
pub use run_plan::{Limits, Programs, RunPlan};

use crate::outcome::{Failure, Outcome};
use crate::package::Target;
use crate::plan::{Cell, Session};
use crate::results::{Record, Results};
use endpoint::Endpoint;
use harness::{CleanupAction, CleanupProcess};
use session::{SessionRun, all_failed, probe};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Runtime;

/// The state of a run, for progress output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Number of the cell, from 1.
    pub number: usize,
    /// Number of cells that this run measures.
    pub of: usize,
    /// The cell that begins.
    pub cell: Cell,
}

/// Measures every cell that has no result yet, and appends each outcome. `is_stopped` ends the run after the cell that runs.
///
/// # Errors
/// If the platform or the machine fails, the results cannot be written, or the run is stopped.
pub fn run(
    plan: &RunPlan,
    programs: &Programs,
    results: &mut Results,
    progress: &dyn Fn(&Progress),
    is_stopped: &AtomicBool,
) -> Result<(), RunError> {
    let runtime = Runtime::new().map_err(RunError::Runtime)?;
    let sessions = plan.sessions(results);
    let mut run = Run {
        plan,
        programs,
        progress,
        is_stopped,
        endpoints: BTreeMap::new(),
        probed: BTreeMap::new(),
        cells: sessions.iter().map(Session::cells).sum(),
        number: 0,
        dir: plan.scratch.join(format!("tenon-bench-{}", std::process::id())),
        sessions: 0,
        runtime: &runtime,
    };
    let mut cleanup = CleanupProcess::new()?;
    cleanup.register(&CleanupAction::Remove(&run.dir))?;
    std::fs::create_dir_all(&run.dir).map_err(harness::file_error(&run.dir))?;
    let ended = sessions.iter().try_for_each(|session| run.session(session, results));
    drop(run);
    ended
}

/// The state of a run.
struct Run<'a> {
    plan: &'a RunPlan,
    programs: &'a Programs,
    progress: &'a dyn Fn(&Progress),
    is_stopped: &'a AtomicBool,
    /// Platforms that were started, by name.
    endpoints: BTreeMap<String, Endpoint>,
    /// Versions of the targets' programs, or why there are none, by target.
    probed: BTreeMap<String, Result<Option<String>, Failure>>,
    cells: usize,
    number: usize,
    dir: PathBuf,
    sessions: usize,
    runtime: &'a Runtime,
}

impl Run<'_> {
    fn session(&mut self, session: &Session, results: &mut Results) -> Result<(), RunError> {
        let (Some(target), Some(platform)) =
            (self.plan.target(&session.target), self.plan.platform(&session.platform))
        else {
            return Ok(());
        };
        self.sessions += 1;
        let probed =
            self.probed.entry(session.target.clone()).or_insert_with(|| probe(target, self.programs));
        let version = match probed.clone() {
            Ok(version) => version,
            Err(failure) => return self.record_all(session, target, &failure, results),
        };
        if !self.endpoints.contains_key(&session.platform) {
            let dir = self.dir.join(&session.platform);
            let endpoint = Endpoint::start(platform, self.plan, self.programs, &dir, self.runtime)?;
            self.endpoints.insert(session.platform.clone(), endpoint);
        }
        let Some(endpoint) = self.endpoints.get(&session.platform) else { return Ok(()) };
        let bucket = format!("tenon-bench-{}-{}", std::process::id(), self.sessions);
        let place = (self.dir.join(format!("session-{}", self.sessions)), bucket.as_str());
        let begun = SessionRun::begin(target, endpoint, self.plan, self.programs, place, self.runtime);
        let mut running = match begun {
            Ok(running) => running,
            Err(failure) => return self.record_all(session, target, &failure, results),
        };
        let mut ended = Ok(());
        for step in &session.steps {
            if self.is_stopped.load(Ordering::Relaxed) {
                ended = Err(RunError::Stopped);
                break;
            }
            if step.is_recorded {
                self.number += 1;
                let (number, of, cell) = (self.number, self.cells, session.cell(&step.job.name));
                (self.progress)(&Progress { number, of, cell });
            }
            let outcome = running.run(step);
            if step.is_recorded {
                let cell = session.cell(&step.job.name);
                results.append(record(self.plan, target, version.clone(), cell, outcome))?;
            }
        }
        running.end(endpoint.direct.as_ref());
        ended
    }

    fn record_all(
        &mut self,
        session: &Session,
        target: &Target,
        failure: &Failure,
        results: &mut Results,
    ) -> Result<(), RunError> {
        for (job, outcome) in all_failed(session, failure) {
            self.number += 1;
            results.append(record(self.plan, target, None, session.cell(&job), outcome))?;
        }
        Ok(())
    }
}

fn record(plan: &RunPlan, target: &Target, version: Option<String>, cell: Cell, outcome: Outcome) -> Record {
    Record {
        cell,
        title: target.title().to_owned(),
        version,
        parameters: target.version.parameters.clone(),
        conditions: plan.conditions(),
        outcome,
    }
}
