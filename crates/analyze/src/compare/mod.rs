//! Comparison of several systems under the same workloads.
//!
//! Owns the order of measurements: round by round, workload by workload, system by system. Measurements that are
//! compared with each other are thus only minutes apart, and an interrupted comparison has complete rounds. Workloads
//! that need the same objects share a fresh store, and so do those on an aged store; every other workload gets its
//! own. Times come from rounds without a trace; an additional round is traced.
//!
//! Refuses to stop when one system fails: the failure is recorded in the result.
//!
//! Invariant: after each system's turn the caller receives the comparison so far. A later run resumes a comparison that it is given, but only
//! under the same conditions.

mod goals;
mod markdown;
mod measure;
mod median;
mod opening;
mod rows;
mod table;

pub use goals::{Goal, Verdict, goals};
pub use markdown::{Markdown, markdown};
pub use measure::{Measurement, Probe, Watched};
pub use opening::opening;
pub use table::table;

use crate::model::{Capabilities, SystemResult, WorkloadResult};
use crate::setup::{Backing, FIO_MISSING, FioPoint, Programs, Running, SetupError, Sweep, System};
use crate::trace::Recorder;
use crate::workload::{Caches, GeneratorCost, Load, Scale, Workload, load_average, prepare};
use harness::MemoryLimit;
use median::SortedRounds;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Clock, Entropy};

/// The plan of a comparison.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Systems to compare.
    pub systems: Vec<System>,
    /// Workloads to run.
    pub workloads: Vec<Workload>,
    /// The conditions that all measurements share.
    pub conditions: Conditions,
    /// Number of rounds without a trace. Workloads on an aged store run in the first round only.
    pub rounds: usize,
    /// Directory for the backing file of the loop devices.
    pub scratch: PathBuf,
    /// Whether to run an additional round under a trace.
    pub is_traced: bool,
    /// The fio sweep of Figure 2a, if it is wanted.
    pub sweep: Option<Sweep>,
}

/// Conditions that must be equal for measurements to be comparable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Sizes and numbers of operations.
    pub scale: Scale,
    /// Total size of the devices of a system, in bytes.
    pub device_bytes: u64,
    /// Memory limit of each server, page cache included, in bytes.
    pub memory_bytes: u64,
    /// Build of Tenon: its version and a hash of the program.
    pub build: String,
    /// Processors, memory and kernel.
    pub machine: String,
}

/// The results of a comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// Conditions of all measurements.
    pub conditions: Conditions,
    /// Description of the memory limit.
    pub memory: String,
    /// Load average over one minute, before the first measurement and after the last.
    pub load_average: [f64; 2],
    /// CPU cost of generating and checking objects in the client.
    pub generator: GeneratorCost,
    /// Metrics that the kernel can provide.
    pub capabilities: Capabilities,
    /// All measurements.
    pub cells: Vec<Cell>,
    /// Failed measurements.
    pub failures: Vec<Failure>,
    /// Results of the fio sweep (Figure 2a), or the reason why there are none.
    pub fio: Result<Vec<FioPoint>, String>,
}

/// The measurement of one workload on one system in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// System.
    pub system: System,
    /// Workload.
    pub workload: Workload,
    /// Round, from 0. Always 0 for the traced round.
    pub round: usize,
    /// Whether the round was traced. Times of a traced round are not used.
    pub is_traced: bool,
    /// State of the caches of server and kernel when the run began.
    pub caches: Caches,
    /// The measurement.
    pub measured: Measurement,
}

/// The failure of a system in a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// System.
    pub system: System,
    /// Workload.
    pub workload: Workload,
    /// Round, from 0.
    pub round: usize,
    /// Whether the round was traced.
    pub is_traced: bool,
    /// Reason, one line.
    pub reason: String,
}

/// A callback that reports progress, one line for each measurement.
pub type Progress<'a> = &'a dyn Fn(&str);

/// A callback that stores a comparison that is not complete yet.
pub type Keep<'a> = &'a dyn Fn(&Comparison) -> Result<(), SetupError>;

type ClockAndEntropy = (Arc<dyn Clock>, Arc<Entropy>);

impl Conditions {
    /// Describes this machine: processors, memory, kernel.
    pub fn this_machine() -> String {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = text("/proc/cpuinfo");
        let is_model_name = |line: &&str| line.starts_with("model name");
        let model = info
            .lines()
            .find(is_model_name)
            .and_then(|line| line.split_once(": "))
            .map_or("processor", |(_, name)| name);
        let count = info.lines().filter(|line| line.starts_with("processor")).count();
        let memory = text("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        let gib = memory.unwrap_or_default().div_ceil(1 << 20);
        format!("{count} × {model}, {gib} GiB, Linux {}", text("/proc/sys/kernel/osrelease").trim())
    }
}

impl Plan {
    /// Makes all measurements that are not in `earlier` yet. If the future is dropped, everything that was set up is removed.
    ///
    /// # Errors
    /// If a precondition of all measurements is missing: root, disk space, programs, or the same conditions as in
    /// `earlier`. Also if `fio` or `keep` fails. Failures of single systems are recorded in the comparison.
    pub async fn run(
        &self,
        programs: &Programs,
        (clock, entropy): (Arc<dyn Clock>, Arc<Entropy>),
        progress: Progress<'_>,
        earlier: Option<Comparison>,
        keep: Keep<'_>,
    ) -> Result<Comparison, SetupError> {
        if earlier.as_ref().is_some_and(|earlier| earlier.conditions != self.conditions) {
            return Err(SetupError::OtherConditions);
        }
        programs.check(&self.systems)?;
        let clock_and_entropy = (clock, entropy);
        let mut comparison = earlier.map_or_else(|| self.new_comparison(), Ok)?;
        // Failed measurements are repeated.
        comparison.failures.clear();
        let missing: Vec<(Session, System)> = self
            .turns()
            .filter_map(|(session, system)| Some((session.without_measured(system, &comparison)?, system)))
            .collect();
        let wants_fio = self.sweep.is_some() && comparison.fio.is_err();
        if missing.is_empty() && !wants_fio {
            return Ok(comparison);
        }
        Backing::check(&self.scratch, self.conditions.device_bytes)?;
        progress("writing the backing file of the devices");
        let backing = Backing::new(&self.scratch, self.conditions.device_bytes)?;
        if wants_fio {
            comparison.fio = self.run_fio(&backing, progress).await?;
        }
        let turns = missing.len();
        for (turn, (session, system)) in missing.into_iter().enumerate() {
            let progress_of_turn = |text: &str| progress(&format!("{} of {turns}: {text}", turn + 1));
            let results =
                self.run_session(&session, system, &backing, programs, &clock_and_entropy, &progress_of_turn);
            results.await.into_iter().for_each(|result| comparison.add(result));
            comparison.load_average[1] = current_load()?;
            keep(&comparison)?;
        }
        Ok(comparison)
    }

    fn new_comparison(&self) -> Result<Comparison, SetupError> {
        let load = current_load()?;
        Ok(Comparison {
            conditions: self.conditions.clone(),
            memory: MemoryLimit::probe().about(self.conditions.memory_bytes),
            load_average: [load, load],
            generator: crate::workload::Content::new(self.conditions.scale.seed).cost(),
            capabilities: Recorder::probe(),
            cells: Vec::new(),
            failures: Vec::new(),
            fio: Err("not requested".to_owned()),
        })
    }

    fn turns(&self) -> impl Iterator<Item = (Session, System)> {
        self.sessions().into_iter().flat_map(|session| {
            self.systems_in_order(session.round).into_iter().map(move |system| (session.clone(), system))
        })
    }

    async fn run_fio(
        &self,
        backing: &Backing,
        progress: Progress<'_>,
    ) -> Result<Result<Vec<FioPoint>, String>, SetupError> {
        let Some(sweep) = &self.sweep else { return Ok(Err("not requested".to_owned())) };
        progress("fio: raw device against file system");
        Ok(sweep.run(backing).await?.ok_or_else(|| FIO_MISSING.to_owned()))
    }

    /// Returns the sessions in order. The traced round comes second, so that an interrupted comparison has a round of each sort.
    fn sessions(&self) -> Vec<Session> {
        let traced = self.is_traced.then_some((0, true));
        let rounds =
            std::iter::once((0, false)).chain(traced).chain((1..self.rounds).map(|round| (round, false)));
        let of_round = |(round, is_traced): (usize, bool)| {
            let workloads = self.groups().into_iter().filter(move |group| round == 0 || !group[0].is_aged());
            workloads.map(move |workloads| Session { workloads, round, is_traced }).collect::<Vec<_>>()
        };
        rounds.flat_map(of_round).collect()
    }

    /// Groups the workloads that share a store: those that need the same objects, and those on an aged store, as ageing takes long.
    fn groups(&self) -> Vec<Vec<Workload>> {
        use Workload::{Enumerate, Get4K, Get64K, Get64KCold, ReadOnly, ReadWrite};
        let scale = &self.conditions.scale;
        let can_share = |one: Workload, other: Workload| match (one, other) {
            (ReadOnly, ReadWrite) | (Get64K, Get64KCold) => true,
            // A listing returns every object, so the store must not have other ones.
            (Get4K, Enumerate) => {
                scale.enumerated_bytes == 4 << 10 && scale.enumerated >= scale.small_operations
            }
            (one, other) => one.is_aged() && other.is_aged(),
        };
        let mut groups: Vec<Vec<Workload>> = Vec::new();
        for &workload in &self.workloads {
            match groups.iter_mut().find(|group| can_share(group[0], workload)) {
                Some(group) => group.push(workload),
                None => groups.push(vec![workload]),
            }
        }
        groups
    }

    /// Returns the systems in the order of a round; each round begins with another one.
    fn systems_in_order(&self, round: usize) -> Vec<System> {
        let mut systems = self.systems.clone();
        systems.rotate_left(round % self.systems.len().max(1));
        systems
    }

    /// Runs the workloads of a session on a fresh system, until one fails.
    async fn run_session(
        &self,
        session: &Session,
        system: System,
        backing: &Backing,
        programs: &Programs,
        clock_and_entropy: &ClockAndEntropy,
        progress: Progress<'_>,
    ) -> Vec<Result<Cell, Failure>> {
        let mut results = Vec::new();
        let first = session.workloads[0];
        let started = Running::start(
            system,
            backing,
            programs,
            self.conditions.memory_bytes,
            clock_and_entropy.clone(),
        )
        .await;
        let mut running = match started {
            Ok(running) => running,
            Err(error) => return vec![Err(session.failure(system, first, &error))],
        };
        let round_name =
            if session.is_traced { "traced".to_owned() } else { format!("round {}", session.round + 1) };
        let session_context = SessionContext { session, programs, clock_and_entropy };
        progress(&format!("{first} on {system}, {round_name}: preparing"));
        if let Err(error) = self.prepare(&running, &session_context).await {
            return vec![Err(session.failure(system, first, error.as_ref()))];
        }
        for &workload in &session.workloads {
            progress(&format!("{workload} on {system}, {round_name}"));
            let measured = self.measure(workload, &mut running, &session_context).await;
            let (round, is_traced, caches) =
                (session.round, session.is_traced, self.conditions.caches(workload));
            let cell = |measured| Cell { system, workload, round, is_traced, caches, measured };
            let measured = measured.map_err(|error| session.failure(system, workload, error.as_ref()));
            let has_failed = measured.is_err();
            results.push(measured.map(cell));
            if has_failed {
                break;
            }
        }
        results
    }

    fn load(&self, running: &Running, clock_and_entropy: &ClockAndEntropy) -> Result<Load, SetupError> {
        let scale = &self.conditions.scale;
        let clients = running.clients(scale.clients, clock_and_entropy)?;
        Ok(Load::new(clients, "analyze/", scale.seed, scale.verify_every))
    }

    async fn prepare(&self, running: &Running, context: &SessionContext<'_>) -> Result<(), BoxedError> {
        let room_bytes = running.free_bytes()? / 100 * USABLE_PERCENT;
        let load = self.load(running, context.clock_and_entropy)?;
        Ok(prepare(&context.session.workloads, &load, &self.conditions.scale, room_bytes).await?)
    }

    /// Measures a workload: one pass, or for a workload that ends after all objects as many passes as its minimum
    /// duration needs, at most [`PASSES_MAX`]. A traced round has one pass.
    async fn measure(
        &self,
        workload: Workload,
        running: &mut Running,
        context: &SessionContext<'_>,
    ) -> Result<Measurement, BoxedError> {
        let mut measured = self.run_pass(workload, running, context).await?;
        let is_repeated = workload.is_repeated() && !context.session.is_traced;
        while is_repeated
            && measured.done.wall_secs < self.conditions.scale.seconds
            && measured.passes < PASSES_MAX
        {
            measured.add_pass(&self.run_pass(workload, running, context).await?);
        }
        Ok(measured)
    }

    async fn run_pass(
        &self,
        workload: Workload,
        running: &mut Running,
        context: &SessionContext<'_>,
    ) -> Result<Measurement, BoxedError> {
        let is_traced = context.session.is_traced;
        let mut scale = self.conditions.scale.clone();
        if is_traced {
            // A trace of 20 s has more events than are kept, so a traced pass does only the minimum number of operations.
            scale.seconds = 0.0;
        }
        let load = match self.conditions.caches(workload) {
            Caches::Cold => {
                running.restart_cold()?;
                self.load(running, context.clock_and_entropy)?
            }
            Caches::Hot => {
                let load = self.load(running, context.clock_and_entropy)?;
                workload.warm(&load, &scale).await?;
                load
            }
            Caches::AsPrepared | Caches::Unused => self.load(running, context.clock_and_entropy)?,
        };
        running.settle()?;
        let probe = Probe::start(running.pid(), running.scope(), is_traced)?;
        let done = workload.perform(&load, &scale).await?;
        let watched = probe.stop(done)?;
        let settle_secs = running.settle()?.as_secs_f64();
        let naming = if is_traced { running.naming(context.programs)? } else { None };
        let (mut measured, _) = watched.digest(naming);
        measured.settle_secs = Some(settle_secs);
        Ok(measured)
    }
}

impl Conditions {
    /// Returns the state of the caches when a workload begins. A workload is measured hot only if its data fits into half of the memory.
    fn caches(&self, workload: Workload) -> Caches {
        match workload.caches() {
            Caches::Hot if workload.read_bytes(&self.scale) > self.memory_bytes / 2 => Caches::AsPrepared,
            caches => caches,
        }
    }
}

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of passes of a workload that ends after all objects.
const PASSES_MAX: usize = 10;

/// Share of the free space that workloads may use; file systems and servers refuse writes when they are nearly full. The fill levels of ageing
/// are shares of this (`docs/analyze.md`).
const USABLE_PERCENT: u64 = 90;

fn current_load() -> Result<f64, SetupError> {
    Ok(load_average().map_err(harness::file_error(Path::new("/proc/loadavg")))?)
}

/// Workloads that run one after the other on a fresh system.
#[derive(Debug, Clone)]
struct Session {
    workloads: Vec<Workload>,
    round: usize,
    is_traced: bool,
}

/// A session with what is needed to run it.
struct SessionContext<'a> {
    session: &'a Session,
    programs: &'a Programs,
    clock_and_entropy: &'a ClockAndEntropy,
}

impl Session {
    /// Removes the workloads that the comparison already has for a system, and those in which the system cannot differ from a similar one.
    /// Returns `None` if none is left.
    fn without_measured(mut self, system: System, comparison: &Comparison) -> Option<Self> {
        let (round, is_traced) = (self.round, self.is_traced);
        let is_measured = |workload: Workload| {
            comparison.cells.iter().any(|cell| {
                (cell.system, cell.workload, cell.round, cell.is_traced)
                    == (system, workload, round, is_traced)
            })
        };
        self.workloads.retain(|workload| system.differs_in(*workload) && !is_measured(*workload));
        (!self.workloads.is_empty()).then_some(self)
    }

    fn failure(&self, system: System, workload: Workload, error: &dyn std::error::Error) -> Failure {
        let (round, is_traced) = (self.round, self.is_traced);
        Failure { system, workload, round, is_traced, reason: error.to_string() }
    }
}

impl Comparison {
    fn add(&mut self, result: Result<Cell, Failure>) {
        match result {
            Ok(cell) => self.cells.push(cell),
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Returns the results of every measured system, for reports.
    pub fn results(&self) -> Vec<SystemResult> {
        self.systems().map(|system| self.result(system)).collect()
    }

    /// Returns every measured system.
    fn systems(&self) -> impl Iterator<Item = System> {
        let is_measured = |system: &System| self.cells.iter().any(|cell| cell.system == *system);
        System::ALL.into_iter().filter(is_measured)
    }

    fn result(&self, system: System) -> SystemResult {
        let about = [
            ("durability", system.durability().to_owned()),
            ("checksums", system.checksums().to_owned()),
            ("memory", self.memory.clone()),
            ("settings", system.settings(self.conditions.memory_bytes)),
        ];
        let is_on_its_device = |point: &&FioPoint| match system.file_system() {
            Some(file_system) => point.target == file_system.name(),
            None => point.target == "raw",
        };
        let points = self.fio.as_deref().unwrap_or_default();
        SystemResult {
            system: system.title().to_owned(),
            about: about.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            capabilities: self.capabilities.clone(),
            throughput: points.iter().filter(is_on_its_device).filter_map(FioPoint::throughput).collect(),
            workloads: Workload::ALL.into_iter().filter_map(|w| self.workload(system, w)).collect(),
        }
    }

    /// Returns the times of the median round with the metrics of the traced round.
    fn workload(&self, system: System, workload: Workload) -> Option<WorkloadResult> {
        let rounds = untraced_cells(&self.cells, system, workload).map(|cell| &cell.measured);
        let median = SortedRounds::new(rounds).median()?;
        let traced = self
            .cells
            .iter()
            .find(|cell| cell.is_traced && cell.system == system && cell.workload == workload)
            .map(|cell| cell.measured.clone());
        Some(median.result(workload, &self.conditions.scale, traced.unwrap_or_default()))
    }
}

/// Returns the untraced rounds of a workload on a system.
fn untraced_cells(cells: &[Cell], system: System, workload: Workload) -> impl Iterator<Item = &Cell> {
    let is_wanted = move |cell: &&Cell| !cell.is_traced && cell.system == system && cell.workload == workload;
    cells.iter().filter(is_wanted)
}
