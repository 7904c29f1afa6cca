//! One run over all systems: the same workloads in turn, round by round, and what follows from them as ratios.
//!
//! Owns the order: workload by workload, round by round, system by system, so that what is compared was measured within
//! minutes of each other; each begins on a fresh file system. Times are of rounds without a trace; one more round is traced.
//!
//! Refuses: to end because one system fails: that is a line of the result.

mod goals;
mod measure;
mod middle;
mod table;

pub use goals::{Goal, Verdict, goals};
pub use measure::{Measurement, Probe, Watched};
pub use table::table;

use crate::model::{SystemResult, WorkloadResult};
use crate::setup::{
    Backing, FIO_MISSING, FioPoint, MemoryLimit, Programs, Running, SetupError, Sweep, System,
};
use crate::trace::Recorder;
use crate::workload::{GeneratorCost, Load, Scale, Workload, load_average};
use middle::ByTime;
use serde::Serialize;
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
    /// How much.
    pub scale: Scale,
    /// How often everything is measured without a trace; what is aged only once.
    pub rounds: usize,
    /// Length of the device, in bytes.
    pub device_bytes: u64,
    /// Memory for each server and the pages it has cached, in bytes.
    pub memory_bytes: u64,
    /// Where the file under the devices goes.
    pub scratch: PathBuf,
    /// Whether everything is done once more under a trace.
    pub is_traced: bool,
    /// Figure 2a, if it is wanted.
    pub sweep: Option<Sweep>,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// How much was done.
    pub scale: Scale,
    /// Length of the device, in bytes.
    pub device_bytes: u64,
    /// How memory was limited.
    pub memory: String,
    /// Processes that wanted to run over the minute before the first measurement, and the last.
    pub load_average: [f64; 2],
    /// What the load itself costs the client.
    pub generator: GeneratorCost,
    /// Everything that was measured.
    pub cells: Vec<Cell>,
    /// What could not be measured.
    pub failures: Vec<Failure>,
    /// Figure 2a; or why not.
    pub fio: Result<Vec<FioPoint>, String>,
    /// What is asked of the drive, and whether it holds.
    pub goals: Vec<Verdict>,
    /// The same as reports draw it.
    pub systems: Vec<SystemResult>,
}

/// One workload on one system in one round.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Which system.
    pub system: System,
    /// Which workload.
    pub workload: Workload,
    /// From 0. A traced round is no figure of speed.
    pub round: usize,
    /// Whether it was under a trace.
    pub is_traced: bool,
    /// What was measured.
    pub measured: Measurement,
}

/// A system that failed in a round.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Which system.
    pub system: System,
    /// In which workload.
    pub workload: Workload,
    /// From 0.
    pub round: usize,
    /// Why, in a line.
    pub reason: String,
}

/// Who is told how far it is: a line for each cell.
pub type Progress<'a> = &'a dyn Fn(&str);

type World = (Arc<dyn Clock>, Arc<Entropy>);

impl Plan {
    /// Runs it all.
    ///
    /// # Errors
    /// What no system can be measured without: root, space, programs. Dropped in the middle, it gives everything back.
    pub async fn run(
        &self,
        programs: &Programs,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
        progress: Progress<'_>,
    ) -> Result<Comparison, SetupError> {
        programs.check(&self.systems)?;
        Backing::check(&self.scratch, self.device_bytes)?;
        let world = (clock, entropy);
        progress("writing the file under the devices");
        let backing = Backing::new(&self.scratch, self.device_bytes)?;
        let begun = loaded()?;
        let mut comparison = Comparison {
            scale: self.scale.clone(),
            device_bytes: self.device_bytes,
            memory: MemoryLimit::probe().about(self.memory_bytes),
            load_average: [begun, begun],
            generator: crate::workload::Content::new(self.scale.seed).cost(),
            cells: Vec::new(),
            failures: Vec::new(),
            fio: self.fio(&backing, progress).await?,
            goals: Vec::new(),
            systems: Vec::new(),
        };
        for session in self.sessions() {
            for system in self.in_turn(session.round) {
                let running = self.session(&session, system, &backing, programs, &world, progress);
                running.await.into_iter().for_each(|ended| comparison.add(ended));
            }
        }
        comparison.load_average[1] = loaded()?;
        comparison.goals = goals(&comparison.cells, comparison.fio.as_deref().unwrap_or_default());
        comparison.systems = self.results(&comparison);
        Ok(comparison)
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

    /// Each workload by itself and round by round; those on an aged store together, for that is long in the making.
    fn sessions(&self) -> Vec<Session> {
        let (aged, fresh): (Vec<Workload>, Vec<Workload>) =
            self.workloads.iter().partition(|workload| workload.is_aged());
        let groups = fresh.into_iter().map(|workload| vec![workload]).chain([aged]);
        let rounds = |is_aged: bool| if is_aged { self.rounds.min(1) } else { self.rounds };
        groups
            .filter(|group| !group.is_empty())
            .flat_map(|workloads| {
                let measured = rounds(workloads[0].is_aged());
                (0..measured + usize::from(self.is_traced)).map(move |round| Session {
                    workloads: workloads.clone(),
                    round,
                    is_traced: round == measured,
                })
            })
            .collect()
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
        let started = Running::start(system, backing, programs, self.memory_bytes, world.clone()).await;
        let mut running = match started {
            Ok(running) => running,
            Err(error) => return vec![Err(session.failed(system, session.workloads[0], &error))],
        };
        for &workload in &session.workloads {
            let how = if session.is_traced { ", traced" } else { "" };
            progress(&format!("{workload} on {system}, round {}{how}", session.round + 1));
            // The objects of the first are there for the second, and ageing makes the store no older than it is.
            let is_fresh = ended.is_empty();
            let measured =
                self.cell(workload, &mut running, is_fresh, session.is_traced, (programs, world)).await;
            let measured = measured.map_err(|error| session.failed(system, workload, error.as_ref()));
            let has_failed = measured.is_err();
            let (round, is_traced) = (session.round, session.is_traced);
            ended.push(measured.map(|measured| Cell { system, workload, round, is_traced, measured }));
            if has_failed {
                break;
            }
        }
        ended
    }

    async fn cell(
        &self,
        workload: Workload,
        running: &mut Running,
        is_fresh: bool,
        is_traced: bool,
        (programs, world): (&Programs, &World),
    ) -> Result<Measurement, Box<dyn std::error::Error + Send + Sync>> {
        let scale = &self.scale;
        let clients = running.clients(scale.clients, world)?;
        let load = Load::new(clients, "analyze/", scale.seed, scale.verify_every);
        if is_fresh {
            let room_bytes = running.free_bytes()? / 100 * USABLE_PERCENT;
            workload.prepare(&load, scale, room_bytes).await?;
        }
        if workload.is_cold() {
            running.restart_cold()?;
        } else {
            running.settle()?;
        }
        let probe = Probe::start(running.pid(), running.scope(), is_traced)?;
        let done = workload.perform(&load, scale).await?;
        let watched = probe.stop(done)?;
        let settle_secs = running.settle()?.as_secs_f64();
        let naming = if is_traced { running.naming(programs)? } else { None };
        let (mut measured, _) = watched.digest(naming);
        measured.settle_secs = Some(settle_secs);
        Ok(measured)
    }

    fn results(&self, comparison: &Comparison) -> Vec<SystemResult> {
        self.systems.iter().map(|system| comparison.result(*system)).collect()
    }
}

/// Beyond it file systems and servers refuse; what is aged takes its shares of this (`docs/analyze.md` has the product).
const USABLE_PERCENT: u64 = 90;

fn loaded() -> Result<f64, SetupError> {
    load_average().map_err(|source| SetupError::File { path: "/proc/loadavg".into(), source })
}

/// Workloads on one fresh system.
#[derive(Debug)]
struct Session {
    workloads: Vec<Workload>,
    round: usize,
    is_traced: bool,
}

impl Session {
    fn failed(&self, system: System, workload: Workload, error: &dyn std::error::Error) -> Failure {
        Failure { system, workload, round: self.round, reason: error.to_string() }
    }
}

impl Comparison {
    fn add(&mut self, ended: Result<Cell, Failure>) {
        match ended {
            Ok(cell) => self.cells.push(cell),
            Err(failure) => self.failures.push(failure),
        }
    }

    fn result(&self, system: System) -> SystemResult {
        let about = [
            ("durability", system.durability().to_owned()),
            ("memory", self.memory.clone()),
            ("device", format!("loop device of {} MiB, direct I/O", self.device_bytes >> 20)),
        ];
        let is_drawn = |point: &&FioPoint| match system.file_system() {
            Some(file_system) => point.target == file_system.name(),
            None => point.target == "raw",
        };
        let points = self.fio.as_deref().unwrap_or_default();
        SystemResult {
            system: system.title().to_owned(),
            about: about.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            capabilities: Recorder::probe(),
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
        Some(median.result(workload, &self.scale, traced.unwrap_or_default()))
    }
}

/// The rounds without a trace.
fn cells(cells: &[Cell], system: System, workload: Workload) -> impl Iterator<Item = &Cell> {
    let is_asked_for =
        move |cell: &&Cell| !cell.is_traced && cell.system == system && cell.workload == workload;
    cells.iter().filter(is_asked_for)
}
