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
use crate::probe::Finding;
use crate::results::{Record, Results};
use endpoint::Endpoint;
use harness::{CleanupAction, CleanupProcess};
use session::{SessionRun, all_failed, find_version};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Time that a feature gets.
const FEATURE_TIMEOUT: Duration = Duration::from_secs(20);

/// The features of a target, or the reason why they could not be tried.
pub type Probed = (String, Result<Vec<Finding>, Failure>);

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
    let cells = sessions.iter().map(Session::cells).sum();
    let mut run = Run::new(plan, programs, (progress, is_stopped), cells, &runtime);
    let _cleanup = run.make_directory()?;
    let ended = sessions.iter().try_for_each(|session| run.session(session, results));
    // The servers end before the directory is removed.
    drop(run);
    ended
}

/// Tries every feature of each target on the first platform.
///
/// # Errors
/// If the platform or the machine fails.
pub fn probe_all(plan: &RunPlan, programs: &Programs) -> Result<Vec<Probed>, RunError> {
    let runtime = Runtime::new().map_err(RunError::Runtime)?;
    let is_stopped = AtomicBool::new(false);
    let mut run = Run::new(plan, programs, (&|_| {}, &is_stopped), 0, &runtime);
    let _cleanup = run.make_directory()?;
    let Some(platform) = plan.platforms.first() else { return Ok(Vec::new()) };
    let probed = plan.targets.iter().map(|target| run.probe(target, &platform.name)).collect();
    drop(run);
    probed
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
    versions: BTreeMap<String, Result<Option<String>, Failure>>,
    cells: usize,
    number: usize,
    dir: PathBuf,
    sessions: usize,
    runtime: &'a Runtime,
}

impl<'a> Run<'a> {
    fn new(
        plan: &'a RunPlan,
        programs: &'a Programs,
        (progress, is_stopped): (&'a dyn Fn(&Progress), &'a AtomicBool),
        cells: usize,
        runtime: &'a Runtime,
    ) -> Self {
        Self {
            plan,
            programs,
            progress,
            is_stopped,
            endpoints: BTreeMap::new(),
            versions: BTreeMap::new(),
            cells,
            number: 0,
            dir: plan.scratch.join(format!("tenon-bench-{}", std::process::id())),
            sessions: 0,
            runtime,
        }
    }

    /// Makes the directory of the run, and returns the process that removes it.
    fn make_directory(&self) -> Result<CleanupProcess, RunError> {
        let mut cleanup = CleanupProcess::new()?;
        cleanup.register(&CleanupAction::Remove(&self.dir))?;
        std::fs::create_dir_all(&self.dir).map_err(harness::file_error(&self.dir))?;
        Ok(cleanup)
    }

    fn session(&mut self, session: &Session, results: &mut Results) -> Result<(), RunError> {
        let (plan, programs, runtime) = (self.plan, self.programs, self.runtime);
        let Some(target) = plan.target(&session.target) else { return Ok(()) };
        let probed = self.versions.entry(session.target.clone());
        let version = match probed.or_insert_with(|| find_version(target, programs)).clone() {
            Ok(version) => version,
            Err(failure) => return self.record_all(session, target, &failure, results),
        };
        let place = self.next_place();
        self.start_endpoint(&session.platform)?;
        let Some(endpoint) = self.endpoints.get(&session.platform) else { return Ok(()) };
        let begun = SessionRun::begin(target, endpoint, plan, programs, place, runtime);
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
                results.append(record(plan, target, version.clone(), cell, outcome))?;
            }
        }
        running.end(endpoint.direct.as_ref());
        ended
    }

    /// Returns the directory and the bucket's name of the next session.
    fn next_place(&mut self) -> (PathBuf, String) {
        self.sessions += 1;
        let bucket = format!("tenon-bench-{}-{}", std::process::id(), self.sessions);
        (self.dir.join(format!("session-{}", self.sessions)), bucket)
    }

    /// Starts a platform, unless it runs.
    fn start_endpoint(&mut self, name: &str) -> Result<(), RunError> {
        if let Some(platform) = self.plan.platform(name)
            && !self.endpoints.contains_key(name)
        {
            let dir = self.dir.join(name);
            let endpoint = Endpoint::start(platform, self.plan, self.programs, &dir, self.runtime)?;
            self.endpoints.insert(name.to_owned(), endpoint);
        }
        Ok(())
    }

    fn probe(&mut self, target: &Target, platform: &str) -> Result<Probed, RunError> {
        let name = target.title().to_owned();
        if let Err(failure) = find_version(target, self.programs) {
            return Ok((name, Err(failure)));
        }
        let place = self.next_place();
        self.start_endpoint(platform)?;
        let Some(endpoint) = self.endpoints.get(platform) else { return Ok((name, Ok(Vec::new()))) };
        let (plan, programs, runtime) = (self.plan, self.programs, self.runtime);
        let begun = SessionRun::begin(target, endpoint, plan, programs, place, runtime);
        let probed = begun.and_then(|running| {
            let findings = running.probe(FEATURE_TIMEOUT);
            running.end(endpoint.direct.as_ref());
            findings
        });
        Ok((name, probed))
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
