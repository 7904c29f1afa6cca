//! One run over all systems: the same workloads in turn, round by round, and what follows from them as ratios.
//!
//! Owns the order: round by round, workload by workload, system by system, so that what is compared was measured within
//! minutes of each other, and a run that is cut off has whole rounds. Workloads that begin with the same objects share a
//! fresh file system; all others begin on one of their own. Times are of rounds without a trace; one more round is traced.
//!
//! Refuses: to end because one system fails: that is a line of the result.
//!
//! Invariant: after every system's turn the comparison so far is handed to the caller, and a comparison that is handed
//! back goes on where it ended, under the same conditions only.

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
use crate::setup::{
    Backing, FIO_MISSING, FioPoint, MemoryLimit, Programs, Running, SetupError, Sweep, System,
};
use crate::trace::Recorder;
use crate::workload::{Caches, GeneratorCost, Load, Scale, Workload, load_average, prepare};
use median::ByTime;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Clock, Entropy};

/// What to compare.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which systems.
    pub systems: Vec<System>,
    /// Which workloads.
    pub workloads: Vec<Workload>,
    /// The conditions that all measurements share.
    pub conditions: Conditions,
    /// How often everything is measured without a trace; what is aged only once.
    pub rounds: usize,
    /// Where the file under the devices goes.
    pub scratch: PathBuf,
    /// Whether everything is done once more under a trace.
    pub is_traced: bool,
    /// Figure 2a, if it is wanted.
    pub sweep: Option<Sweep>,
}

/// Conditions that must be equal for measurements to be comparable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// How much is done.
    pub scale: Scale,
    /// Length of the devices together, in bytes.
    pub device_bytes: u64,
    /// Memory for each server and the pages it has cached, in bytes.
    pub memory_bytes: u64,
    /// Tenon's build: its version and a digest of the program.
    pub build: String,
    /// Processors, memory and kernel.
    pub machine: String,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// The conditions that all measurements shared.
    pub conditions: Conditions,
    /// How memory was limited.
    pub memory: String,
    /// Processes that wanted to run over the minute before the first measurement, and the last.
    pub load_average: [f64; 2],
    /// What the load itself costs the client.
    pub generator: GeneratorCost,
    /// The counters that the kernel provides.
    pub capabilities: Capabilities,
    /// Everything that was measured.
    pub cells: Vec<Cell>,
    /// What could not be measured.
    pub failures: Vec<Failure>,
    /// Figure 2a; or why not.
    pub fio: Result<Vec<FioPoint>, String>,
}

/// One workload on one system in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Which system.
    pub system: System,
    /// Which workload.
    pub workload: Workload,
    /// From 0; of a traced round 0.
    pub round: usize,
    /// Whether it was under a trace. A traced round is no figure of speed.
    pub is_traced: bool,
    /// Content of the caches of server and kernel when the run began.
    pub caches: Caches,
    /// What was measured.
    pub measured: Measurement,
}

/// A system that failed in a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// Which system.
    pub system: System,
    /// In which workload.
    pub workload: Workload,
    /// From 0.
    pub round: usize,
    /// Whether it was under a trace.
    pub is_traced: bool,
    /// Why, in a line.
    pub reason: String,
}

/// Reports progress: a line for each cell.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Keeps a comparison that is not complete yet.
pub type Keep<'a> = &'a dyn Fn(&Comparison) -> Result<(), SetupError>;

type World = (Arc<dyn Clock>, Arc<Entropy>);

impl Conditions {
    /// Says what this machine is: processors, memory, kernel.
    pub fn this_machine() -> String {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = text("/proc/cpuinfo");
        let named = |line: &&str| line.starts_with("model name");
        let model =
            info.lines().find(named).and_then(|line| line.split_once(": ")).map_or("processor", |it| it.1);
        let count = info.lines().filter(|line| line.starts_with("processor")).count();
        let memory = text("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        let gib = memory.unwrap_or_default().div_ceil(1 << 20);
        format!("{count} × {model}, {gib} GiB, Linux {}", text("/proc/sys/kernel/osrelease").trim())
    }
}

impl Plan {
    /// Measures everything that `earlier` does not have.
    ///
    /// # Errors
    /// What no system can be measured without: root, space, programs, the same conditions as before. Dropped in the
    /// middle, it gives everything back.
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
        let world = (clock, entropy);
        let mut comparison = earlier.map_or_else(|| self.begun(), Ok)?;
        // A failed measurement is tried again.
        comparison.failures.clear();
        let missing: Vec<(Session, System)> = self
            .turns()
            .filter_map(|(session, system)| Some((session.without(system, &comparison)?, system)))
            .collect();
        let wants_fio = self.sweep.is_some() && comparison.fio.is_err();
        if missing.is_empty() && !wants_fio {
            return Ok(comparison);
        }
        Backing::check(&self.scratch, self.conditions.device_bytes)?;
        progress("writing the file under the devices");
        let backing = Backing::new(&self.scratch, self.conditions.device_bytes)?;
        if wants_fio {
            comparison.fio = self.fio(&backing, progress).await?;
        }
        let turns = missing.len();
        for (turn, (session, system)) in missing.into_iter().enumerate() {
            let tell = |text: &str| progress(&format!("{} of {turns}: {text}", turn + 1));
            let running = self.session(&session, system, &backing, programs, &world, &tell);
            running.await.into_iter().for_each(|ended| comparison.add(ended));
            comparison.load_average[1] = loaded()?;
            keep(&comparison)?;
        }
        Ok(comparison)
    }

    fn begun(&self) -> Result<Comparison, SetupError> {
        let load = loaded()?;
        Ok(Comparison {
            conditions: self.conditions.clone(),
            memory: MemoryLimit::probe().about(self.conditions.memory_bytes),
            load_average: [load, load],
            generator: crate::workload::Content::new(self.conditions.scale.seed).cost(),
            capabilities: Recorder::probe(),
            cells: Vec::new(),
            failures: Vec::new(),
            fio: Err("not asked for".to_owned()),
        })
    }

    fn turns(&self) -> impl Iterator<Item = (Session, System)> {
        self.sessions().into_iter().flat_map(|session| {
            self.in_turn(session.round).into_iter().map(move |system| (session.clone(), system))
        })
    }

    async fn fio(
        &self,
        backing: &Backing,
        progress: Progress<'_>,
    ) -> Result<Result<Vec<FioPoint>, String>, SetupError> {
        let Some(sweep) = &self.sweep else { return Ok(Err("not asked for".to_owned())) };
        progress("fio: raw device against file system");
        Ok(sweep.run(backing).await?.ok_or_else(|| FIO_MISSING.to_owned()))
    }

    /// Round by round, the traced one after the first, so that what is cut off has one of both.
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

    /// Workloads that begin with the same objects, and those on an aged store, which is long in the making.
    fn groups(&self) -> Vec<Vec<Workload>> {
        use Workload::{Enumerate, Get4K, Get64K, Get64KCold, ReadOnly, ReadWrite};
        let scale = &self.conditions.scale;
        let fits = |one: Workload, other: Workload| match (one, other) {
            (ReadOnly, ReadWrite) | (Get64K, Get64KCold) => true,
            // A listing finds what there is: the others must not have more.
            (Get4K, Enumerate) => {
                scale.enumerated_bytes == 4 << 10 && scale.enumerated >= scale.small_operations
            }
            (one, other) => one.is_aged() && other.is_aged(),
        };
        let mut groups: Vec<Vec<Workload>> = Vec::new();
        for &workload in &self.workloads {
            match groups.iter_mut().find(|group| fits(group[0], workload)) {
                Some(group) => group.push(workload),
                None => groups.push(vec![workload]),
            }
        }
        groups
    }

    /// Another system begins in every round.
    fn in_turn(&self, round: usize) -> Vec<System> {
        let mut systems = self.systems.clone();
        systems.rotate_left(round % self.systems.len().max(1));
        systems
    }

    async fn session(
        &self,
        session: &Session,
        system: System,
        backing: &Backing,
        programs: &Programs,
        world: &World,
        progress: Progress<'_>,
    ) -> Vec<Result<Cell, Failure>> {
        let mut ended = Vec::new();
        let first = session.workloads[0];
        let started =
            Running::start(system, backing, programs, self.conditions.memory_bytes, world.clone()).await;
        let mut running = match started {
            Ok(running) => running,
            Err(error) => return vec![Err(session.failed(system, first, &error))],
        };
        let how =
            if session.is_traced { "traced".to_owned() } else { format!("round {}", session.round + 1) };
        let of_session = Of { session, programs, world };
        progress(&format!("{first} on {system}, {how}: preparing"));
        if let Err(error) = self.prepare(&running, &of_session).await {
            return vec![Err(session.failed(system, first, error.as_ref()))];
        }
        for &workload in &session.workloads {
            progress(&format!("{workload} on {system}, {how}"));
            let measured = self.measured(workload, &mut running, &of_session).await;
            let (round, is_traced, caches) =
                (session.round, session.is_traced, self.conditions.caches(workload));
            let cell = |measured| Cell { system, workload, round, is_traced, caches, measured };
            let measured = measured.map_err(|error| session.failed(system, workload, error.as_ref()));
            let has_failed = measured.is_err();
            ended.push(measured.map(cell));
            if has_failed {
                break;
            }
        }
        ended
    }

    fn load(&self, running: &Running, world: &World) -> Result<Load, SetupError> {
        let scale = &self.conditions.scale;
        let clients = running.clients(scale.clients, world)?;
        Ok(Load::new(clients, "analyze/", scale.seed, scale.verify_every))
    }

    async fn prepare(&self, running: &Running, of: &Of<'_>) -> Result<(), Failed> {
        let room_bytes = running.free_bytes()? / 100 * USABLE_PERCENT;
        let load = self.load(running, of.world)?;
        Ok(prepare(&of.session.workloads, &load, &self.conditions.scale, room_bytes).await?)
    }

    /// A workload's passes: one, or of those that end with the objects as many as its time takes.
    async fn measured(
        &self,
        workload: Workload,
        running: &mut Running,
        of: &Of<'_>,
    ) -> Result<Measurement, Failed> {
        let mut measured = self.pass(workload, running, of).await?;
        let is_repeated = workload.is_repeated() && !of.session.is_traced;
        while is_repeated
            && measured.done.wall_secs < self.conditions.scale.seconds
            && measured.passes < PASSES_MAX
        {
            measured.add_pass(&self.pass(workload, running, of).await?);
        }
        Ok(measured)
    }

    async fn pass(
        &self,
        workload: Workload,
        running: &mut Running,
        of: &Of<'_>,
    ) -> Result<Measurement, Failed> {
        let is_traced = of.session.is_traced;
        let mut scale = self.conditions.scale.clone();
        if is_traced {
            // A trace of 20 s has more events than are kept; its counts are of the least number of operations.
            scale.seconds = 0.0;
        }
        let load = match self.conditions.caches(workload) {
            Caches::Cold => {
                running.restart_cold()?;
                self.load(running, of.world)?
            }
            Caches::Hot => {
                let load = self.load(running, of.world)?;
                workload.warm(&load, &scale).await?;
                load
            }
            Caches::AsPrepared | Caches::Unused => self.load(running, of.world)?,
        };
        running.settle()?;
        let probe = Probe::start(running.pid(), running.scope(), is_traced)?;
        let done = workload.perform(&load, &scale).await?;
        let watched = probe.stop(done)?;
        let settle_secs = running.settle()?.as_secs_f64();
        let naming = if is_traced { running.naming(of.programs)? } else { None };
        let (mut measured, _) = watched.digest(naming);
        measured.settle_secs = Some(settle_secs);
        Ok(measured)
    }
}

impl Conditions {
    /// Returns the state of the caches when a workload begins: hot if its data fits into half of the memory.
    fn caches(&self, workload: Workload) -> Caches {
        match workload.caches() {
            Caches::Hot if workload.read_bytes(&self.scale) > self.memory_bytes / 2 => Caches::AsPrepared,
            caches => caches,
        }
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Passes at most of a workload that ends with its objects.
const PASSES_MAX: usize = 10;

/// Beyond it file systems and servers refuse; what is aged takes its shares of this (`docs/analyze.md` has the product).
const USABLE_PERCENT: u64 = 90;

fn loaded() -> Result<f64, SetupError> {
    load_average().map_err(|source| SetupError::File { path: "/proc/loadavg".into(), source })
}

/// Workloads on one fresh system.
#[derive(Debug, Clone)]
struct Session {
    workloads: Vec<Workload>,
    round: usize,
    is_traced: bool,
}

/// State that the workloads of a session share.
struct Of<'a> {
    session: &'a Session,
    programs: &'a Programs,
    world: &'a World,
}

impl Session {
    /// The workloads that a comparison does not have of a system, if any.
    fn without(mut self, system: System, comparison: &Comparison) -> Option<Self> {
        let (round, is_traced) = (self.round, self.is_traced);
        let is_there = |workload: Workload| {
            comparison.cells.iter().any(|cell| {
                (cell.system, cell.workload, cell.round, cell.is_traced)
                    == (system, workload, round, is_traced)
            })
        };
        self.workloads.retain(|workload| system.differs_in(*workload) && !is_there(*workload));
        (!self.workloads.is_empty()).then_some(self)
    }

    fn failed(&self, system: System, workload: Workload, error: &dyn std::error::Error) -> Failure {
        let (round, is_traced) = (self.round, self.is_traced);
        Failure { system, workload, round, is_traced, reason: error.to_string() }
    }
}

impl Comparison {
    fn add(&mut self, ended: Result<Cell, Failure>) {
        match ended {
            Ok(cell) => self.cells.push(cell),
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Every system that was measured, as reports draw it.
    pub fn results(&self) -> Vec<SystemResult> {
        self.systems().map(|system| self.result(system)).collect()
    }

    /// Every system that was measured.
    fn systems(&self) -> impl Iterator<Item = System> {
        let is_there = |system: &System| self.cells.iter().any(|cell| cell.system == *system);
        System::ALL.into_iter().filter(is_there)
    }

    fn result(&self, system: System) -> SystemResult {
        let about = [
            ("durability", system.durability().to_owned()),
            ("checksums", system.checksums().to_owned()),
            ("memory", self.memory.clone()),
            ("settings", system.settings(self.conditions.memory_bytes)),
        ];
        let is_drawn = |point: &&FioPoint| match system.file_system() {
            Some(file_system) => point.target == file_system.name(),
            None => point.target == "raw",
        };
        let points = self.fio.as_deref().unwrap_or_default();
        SystemResult {
            system: system.title().to_owned(),
            about: about.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            capabilities: self.capabilities.clone(),
            throughput: points.iter().filter(is_drawn).filter_map(FioPoint::throughput).collect(),
            workloads: Workload::ALL.into_iter().filter_map(|w| self.workload(system, w)).collect(),
        }
    }

    /// The middle round's times and the traced round's metrics.
    fn workload(&self, system: System, workload: Workload) -> Option<WorkloadResult> {
        let rounds = cells(&self.cells, system, workload).map(|cell| &cell.measured);
        let median = ByTime::of(rounds).middle()?;
        let traced = self
            .cells
            .iter()
            .find(|cell| cell.is_traced && cell.system == system && cell.workload == workload)
            .map(|cell| cell.measured.clone());
        Some(median.result(workload, &self.conditions.scale, traced.unwrap_or_default()))
    }
}

/// The rounds without a trace.
fn cells(cells: &[Cell], system: System, workload: Workload) -> impl Iterator<Item = &Cell> {
    let is_asked_for =
        move |cell: &&Cell| !cell.is_traced && cell.system == system && cell.workload == workload;
    cells.iter().filter(is_asked_for)
}
