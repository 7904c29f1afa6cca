//! The runner: sessions one after another, each outcome appended to the results. All effects of the testbed are here.

mod endpoint;
mod mounted;
mod program;
mod second_client;
mod session;
mod transfer;

use crate::outcome::{Failure, Outcome};
use crate::package::Target;
use crate::plan::{Cell, Grid, Session};
use crate::platform::Platform;
use crate::results::{Conditions, Record, Results, ResultsError};
use crate::workload::{Scale, Workload};
use endpoint::Endpoint;
use harness::{CleanupAction, CleanupProcess, Shape};
use session::{SessionRun, all_failed, probe};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::StoreError;
use store::s3::ConfigError;
use tokio::runtime::Runtime;

/// Share of the bytes of a cold read that must come from the store.
const COLD_SHARE: f64 = 0.95;

/// What to measure, and how.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Packages with their versions.
    pub targets: Vec<Target>,
    /// Object stores.
    pub platforms: Vec<Platform>,
    /// Jobs.
    pub workload: Workload,
    /// Numbers and sizes of files.
    pub scale: Scale,
    /// Number of repeats.
    pub repeats: u32,
    /// Seed of the order of small files.
    pub seed: u64,
    /// Time limits.
    pub limits: Limits,
    /// The network that the proxy imitates.
    pub shape: Shape,
    /// Whether the kernel's caches are dropped before reads.
    pub drops_caches: bool,
    /// Directory for everything that the run creates.
    pub scratch: PathBuf,
    /// Description of the machine.
    pub machine: String,
}

/// Time limits of the phases of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Formatting and mounting.
    pub mount: Duration,
    /// The job.
    pub job: Duration,
    /// Syncing and unmounting.
    pub unmount: Duration,
}

/// Programs that the testbed itself starts, and where packages' programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Path of Tenon.
    pub tenon: PathBuf,
    /// Path of MinIO, if it is installed.
    pub minio: Option<PathBuf>,
    /// Directories with programs.
    pub search_path: Vec<PathBuf>,
}

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

/// Reasons why a run cannot go on. Failures of a package are outcomes instead.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// MinIO is not installed.
    #[error("program 'minio' not found: install it, or give its path with --minio")]
    NoMinio,
    /// The machine refuses something.
    #[error(transparent)]
    Machine(#[from] harness::Error),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] ConfigError),
    /// The results cannot be read or written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
    /// The run was stopped.
    #[error("stopped; the same command continues the run")]
    Stopped,
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

impl RunPlan {
    /// Returns the conditions of all results.
    pub fn conditions(&self) -> Conditions {
        Conditions {
            machine: self.machine.clone(),
            scale: self.scale,
            seed: self.seed,
            latency_ms: self.shape.latency.as_millis() as u64,
            bandwidth_bytes: self.shape.bandwidth_bytes,
            drops_caches: self.drops_caches,
        }
    }

    fn sessions(&self, results: &Results) -> Vec<Session> {
        let platforms: Vec<String> = self.platforms.iter().map(|platform| platform.name.clone()).collect();
        let targets: Vec<String> = self.targets.iter().map(Target::to_string).collect();
        let grid = Grid {
            platforms: &platforms,
            targets: &targets,
            workload: &self.workload,
            repeats: self.repeats,
        };
        grid.sessions(&results.done())
    }

    fn target(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.to_string() == name)
    }

    fn platform(&self, name: &str) -> Option<&Platform> {
        self.platforms.iter().find(|platform| platform.name == name)
    }
}

impl Programs {
    /// Returns the path of a program.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.search_path.iter().map(|dir| dir.join(name)).find(|file| file.is_file())
    }
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

/// Whether so many bytes from the store are enough for a read of so many bytes without a cache.
fn is_cold(fetched_bytes: u64, read_bytes: u64) -> bool {
    fetched_bytes as f64 >= read_bytes as f64 * COLD_SHARE
}

/// Returns the failure of a cell that the testbed itself could not measure.
fn testbed_failed(error: impl fmt::Display) -> Failure {
    Failure::Testbed { reason: error.to_string() }
}
