//! The runner: sessions one after another, each outcome appended to the results. Only the runner and `actions` start processes, servers and
//! mounts.

mod copies;
mod cost;
mod endpoint;
mod file_tasks;
mod foreign_programs;
mod meters;
mod mounted;
mod preparation;
mod program;
mod progress;
mod recovery;
mod replay;
mod run_error;
mod run_plan;
mod second_client;
mod session;
mod signing_proxy;
mod transfer;

pub(crate) use endpoint::{Endpoint, EndpointOptions};
pub(crate) use mounted::{MountCommands, Mounted};
pub(crate) use preparation::{make_directories, surroundings, variables};
pub(crate) use program::{Surroundings, kill_group, wait_within};
pub(crate) use recovery::remove_journaled;

pub use cost::Cost;
pub use progress::Progress;
pub use run_error::RunError;
pub use run_plan::{Limits, Method, Programs, RunPlan};

use crate::journal::{Journal, JournaledBucket};
use crate::outcome::{Failure, Outcome};
use crate::package::Target;
use crate::plan::{Cell, Session};
use crate::platform::Environment;
use crate::probe::{Finding, TrialLimits, Trials};
use crate::results::{Record, Results};
use crate::workload::Job;
use harness::{CleanupAction, CleanupProcess, MemoryFiller};
use progress::Estimate;
use session::{SessionRun, all_failed, find_version};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Runtime;

/// The title of a target, with its features or the reason why they could not be tried.
pub type Probed = (String, Result<Vec<Finding>, Failure>);

/// A step of a probe.
#[derive(Debug, Clone, Copy)]
pub enum ProbeEvent<'a> {
    /// A feature of the target with this title was tried.
    Tried(&'a str, &'a Finding),
    /// A target is done.
    Ended(&'a Probed),
}

/// Measures every cell that has no result yet, and appends each outcome. Buckets that an earlier run has left on an endpoint are removed
/// before; `environment` finds their credentials. `is_stopped` ends the run after the cell that runs.
///
/// # Errors
/// If the platform or the machine fails, the results cannot be written, or the run is stopped.
pub fn run(
    plan: &RunPlan,
    programs: &Programs,
    results: &mut Results,
    environment: Environment<'_>,
    progress: &dyn Fn(&Progress),
    is_stopped: &AtomicBool,
) -> Result<(), RunError> {
    let runtime = Runtime::new().map_err(RunError::Runtime)?;
    let mut journal = Journal::open(&plan.state)?;
    remove_journaled(&mut journal, environment, &runtime, |bucket| bucket.is_temporary)?;
    let sessions = plan.sessions(results);
    let mut run = Run::new(plan, programs, journal, Observer { progress, is_stopped }, &sessions, &runtime);
    let _cleanup = run.make_directory()?;
    let ended = sessions.iter().try_for_each(|session| run.session(session, results));
    // The servers end before the directory is removed.
    drop(run);
    ended
}

/// Tries every feature of each target on the first platform, and reports each step to `observe`. The plan's time limit of a job is that of
/// a feature.
///
/// # Errors
/// If the platform or the machine fails.
pub fn probe_all(
    plan: &RunPlan,
    programs: &Programs,
    observe: &dyn Fn(ProbeEvent<'_>),
) -> Result<(), RunError> {
    let runtime = Runtime::new().map_err(RunError::Runtime)?;
    let is_stopped = AtomicBool::new(false);
    let journal = Journal::open(&plan.state)?;
    let mut run = Run::new(
        plan,
        programs,
        journal,
        Observer { progress: &|_| {}, is_stopped: &is_stopped },
        &[],
        &runtime,
    );
    let _cleanup = run.make_directory()?;
    let Some(platform) = plan.platforms.first() else { return Ok(()) };
    let probed = plan.targets.iter().try_for_each(|target| {
        observe(ProbeEvent::Ended(&run.probe(target, &platform.name, observe)?));
        Ok(())
    });
    drop(run);
    probed
}

/// The caller of a run, who sees its progress and may stop it.
#[derive(Clone, Copy)]
struct Observer<'a> {
    progress: &'a dyn Fn(&Progress),
    is_stopped: &'a AtomicBool,
}

/// The cells of a run.
struct Tally {
    cells: usize,
    /// Number of the cell that runs, from 1.
    number: usize,
    estimate: Estimate,
}

/// The state of a run.
struct Run<'a> {
    plan: &'a RunPlan,
    programs: &'a Programs,
    journal: Journal,
    observer: Observer<'a>,
    /// Platforms that were started, by name.
    endpoints: BTreeMap<String, Endpoint>,
    /// Versions of the targets' programs, or why there are none, by target.
    versions: BTreeMap<String, Result<Option<String>, Failure>>,
    tally: Tally,
    memory_filler: Option<MemoryFiller>,
    dir: PathBuf,
    /// Random part of the names of the run's buckets.
    name: u32,
    /// Number of sessions that have begun.
    sessions: usize,
    runtime: &'a Runtime,
}

impl<'a> Run<'a> {
    fn new(
        plan: &'a RunPlan,
        programs: &'a Programs,
        journal: Journal,
        observer: Observer<'a>,
        sessions: &[Session],
        runtime: &'a Runtime,
    ) -> Self {
        Self {
            plan,
            programs,
            journal,
            observer,
            endpoints: BTreeMap::new(),
            versions: BTreeMap::new(),
            tally: Tally {
                cells: sessions.iter().map(Session::cells).sum(),
                number: 0,
                estimate: Estimate::new(sessions, &plan.scale),
            },
            memory_filler: None,
            dir: plan.scratch.join(format!("tenon-bench-{}", std::process::id())),
            name: RandomState::new().hash_one(()) as u32,
            sessions: 0,
            runtime,
        }
    }

    /// Makes the directory of the run, and returns the process that removes it.
    fn make_directory(&mut self) -> Result<CleanupProcess, RunError> {
        let mut cleanup = CleanupProcess::new()?;
        cleanup.register(&CleanupAction::Remove(&self.dir))?;
        std::fs::create_dir_all(&self.dir).map_err(harness::file_error(&self.dir))?;
        if self.plan.method.fills_memory {
            self.memory_filler = Some(MemoryFiller::new(&self.dir).map_err(harness::file_error(&self.dir))?);
        }
        Ok(cleanup)
    }

    /// Runs a session and records its results.
    fn session(&mut self, session: &Session, results: &mut Results) -> Result<(), RunError> {
        let (plan, programs, runtime) = (self.plan, self.programs, self.runtime);
        let Some(target) = plan.target(&session.target) else { return Ok(()) };
        let probed = self.versions.entry(session.target.clone());
        let version = match probed.or_insert_with(|| find_version(target, programs)).clone() {
            Ok(version) => version,
            Err(failure) => return self.record_all(session, target, &failure, results),
        };
        self.start_endpoint(&session.platform)?;
        let place = self.next_place(&session.platform)?;
        let bucket = place.1.clone();
        let Some(endpoint) = self.endpoints.remove(&session.platform) else { return Ok(()) };
        let begun = SessionRun::begin(target, &endpoint, plan, programs, place, runtime);
        let ended = match begun {
            Ok(running) => self.run_jobs(session, target, version, running, results),
            Err(failure) => self.record_all(session, target, &failure, results),
        };
        let removed = self.remove_bucket(&session.platform, &endpoint, &bucket);
        self.endpoints.insert(session.platform.clone(), endpoint);
        ended.and(removed)
    }

    /// Runs the jobs of a session that has begun.
    fn run_jobs(
        &mut self,
        session: &Session,
        target: &Target,
        version: Option<String>,
        mut running: SessionRun<'_>,
        results: &mut Results,
    ) -> Result<(), RunError> {
        for step in &session.steps {
            if self.observer.is_stopped.load(Ordering::Relaxed) {
                return Err(RunError::Stopped);
            }
            if step.is_recorded {
                self.tally.number += 1;
                let (number, of, cell) = (self.tally.number, self.tally.cells, session.cell(&step.job.name));
                (self.observer.progress)(&Progress { number, of, cell, left: self.tally.estimate.left() });
            }
            if let Some(filler) = &mut self.memory_filler {
                filler.fill().map_err(harness::file_error(&self.dir))?;
            }
            let outcome = running.run(step);
            self.tally.estimate.record_end(&step.job, &self.plan.scale);
            if step.is_recorded {
                let cell = session.cell(&step.job.name);
                results.append(record(self.plan, target, &step.job, version.clone(), cell, outcome))?;
            }
        }
        Ok(())
    }

    /// Returns the directory and the bucket's name of the next session. On an endpoint that outlives the testbed, the bucket is journaled.
    fn next_place(&mut self, platform: &str) -> Result<(PathBuf, String), RunError> {
        self.sessions += 1;
        let bucket = format!("tenon-bench-{:08x}-{}", self.name, self.sessions);
        if let Some(platform) = self.plan.platform(platform).filter(|platform| platform.is_foreign()) {
            self.journal.record_creation(JournaledBucket {
                platform: platform.spec.clone(),
                bucket: bucket.clone(),
                is_temporary: true,
            })?;
        }
        Ok((self.dir.join(format!("session-{}", self.sessions)), bucket))
    }

    /// Removes the bucket of a session. What a server that was started here has left is removed with its directory.
    fn remove_bucket(&mut self, platform: &str, endpoint: &Endpoint, bucket: &str) -> Result<(), RunError> {
        let removed = endpoint.remove_bucket(bucket, self.runtime);
        let foreign = self.plan.platform(platform).filter(|platform| platform.is_foreign());
        let Some(platform) = foreign else { return Ok(()) };
        removed.map_err(|error| RunError::LeftBucket(bucket.to_owned(), error))?;
        Ok(self.journal.record_removal(&platform.spec, bucket)?)
    }

    /// Starts a platform, unless it runs.
    fn start_endpoint(&mut self, name: &str) -> Result<(), RunError> {
        if let Some(platform) = self.plan.platform(name)
            && !self.endpoints.contains_key(name)
        {
            let (options, dir) = (self.plan.endpoint_options(), self.dir.join(name));
            let endpoint = Endpoint::start(platform, options, self.programs, &dir, self.runtime)?;
            self.endpoints.insert(name.to_owned(), endpoint);
        }
        Ok(())
    }

    /// Probes the features of one target on a platform.
    fn probe(
        &mut self,
        target: &Target,
        platform: &str,
        observe: &dyn Fn(ProbeEvent<'_>),
    ) -> Result<Probed, RunError> {
        let name = target.title().to_owned();
        if let Err(failure) = find_version(target, self.programs) {
            return Ok((name, Err(failure)));
        }
        self.start_endpoint(platform)?;
        let place = self.next_place(platform)?;
        let bucket = place.1.clone();
        let Some(endpoint) = self.endpoints.remove(platform) else { return Ok((name, Ok(Vec::new()))) };
        let (plan, programs, runtime) = (self.plan, self.programs, self.runtime);
        let begun = SessionRun::begin(target, &endpoint, plan, programs, place, runtime);
        let observe_trial = |finding: &Finding| observe(ProbeEvent::Tried(&name, finding));
        let mut trials = Trials::new(TrialLimits::of_trial(plan.limits.job), &observe_trial);
        let probed = begun.and_then(|running| running.probe(&mut trials));
        let probed = probed.map(|()| trials.into_findings());
        self.remove_bucket(platform, &endpoint, &bucket)?;
        self.endpoints.insert(platform.to_owned(), endpoint);
        Ok((name, probed))
    }

    /// Records a failure as the outcome of each cell of a session that did not begin.
    fn record_all(
        &mut self,
        session: &Session,
        target: &Target,
        failure: &Failure,
        results: &mut Results,
    ) -> Result<(), RunError> {
        for step in &session.steps {
            self.tally.estimate.record_end(&step.job, &self.plan.scale);
        }
        for (job, outcome) in all_failed(session, failure) {
            self.tally.number += 1;
            let cell = session.cell(&job.name);
            results.append(record(self.plan, target, &job, None, cell, outcome))?;
        }
        Ok(())
    }
}

/// Returns the record of a cell's outcome.
fn record(
    plan: &RunPlan,
    target: &Target,
    job: &Job,
    version: Option<String>,
    cell: Cell,
    outcome: Outcome,
) -> Record {
    Record {
        cell,
        title: target.title().to_owned(),
        column: job.column(),
        version,
        parameters: target.version.parameters.clone(),
        conditions: plan.conditions(),
        outcome,
    }
}
