//! What the kernel says while a workload runs.
//!
//! Owns two tracing instances of its own: one of the node's threads (their calls and lock waits, chosen by the kernel
//! by thread, with the threads and children they start), one of the devices and file systems (chosen by device, whoever
//! does it). The kernel stamps every event with its monotonic clock, marks of phases too, so nobody here reads a clock.
//!
//! Refuses: to change anything of the kernel's outside its own instances; to stop the workload when events come too
//! fast: what has no room is counted as lost.

mod block_device;
pub(crate) mod capabilities;
mod classifier;
mod correlator;
mod event;
mod procfs;
mod reader;
mod ring_buffer;
mod syscalls;
mod tracefs;

pub(crate) use correlator::{Call, Counted, Point};
pub(crate) use syscalls::Family;

use crate::model::{Capabilities, CpuTime, Naming, Region, Request, Scope, TraceError};
use block_device::{Device, mounts_of, open_all, types_of};
use classifier::Kinds;
use correlator::Known;
use event::{Decoder, Event, MARK, Meaning, OF_DEVICES, OF_THREADS};
use reader::{BUFFER_KIB, Budget, Readers, SUB_BUFFER_KIB};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tracefs::{Instance, Tracefs};

/// Events kept if the scope does not say: a GiB of memory.
const EVENTS_MAX: usize = 32 << 20;

/// Thread numbers handed to the kernel in one write.
const THREADS_PER_WRITE: usize = 200;

/// Starts recordings.
#[derive(Debug)]
pub struct Recorder;

impl Recorder {
    /// Which metrics this kernel can give, and from what.
    pub fn probe() -> Capabilities {
        match Tracefs::open() {
            Ok(tracefs) => capabilities::probe(&tracefs),
            Err(error) => capabilities::nothing(&error.to_string()),
        }
    }

    /// That a scope can be traced.
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub fn check(scope: &Scope) -> Result<(), TraceError> {
        mounts_of(&scope.mounts, &open_all(&scope.devices)?)?;
        Tracefs::open()?;
        threads_of(&scope.processes).map(drop)
    }

    /// Begins to trace.
    ///
    /// # Errors
    /// [`TraceError::NoTracefs`] without root or tracefs, [`TraceError::Scope`] for a device that is none.
    pub fn start(scope: Scope) -> Result<Recording, TraceError> {
        let devices = open_all(&scope.devices)?;
        let tracefs = Tracefs::open()?;
        tracefs.remove_abandoned();
        let mounts = mounts_of(&scope.mounts, &devices)?;
        let budget = Arc::new(Budget {
            left: AtomicUsize::new(if scope.events_max == 0 { EVENTS_MAX } else { scope.events_max }),
            refused: AtomicU64::new(0),
        });
        let of_devices = Traced::devices(&tracefs, &devices, &budget)?;
        let of_threads = match scope.processes.is_empty() {
            true => None,
            false => Some(Traced::threads(&tracefs, &scope.processes, &budget)?),
        };
        // As the kernel shows what a descriptor is.
        let within = scope.mounts.iter().chain(&scope.devices);
        let within: Vec<PathBuf> = within.map(|path| path.canonicalize().unwrap_or(path.clone())).collect();
        let open_files = scope
            .processes
            .iter()
            .flat_map(|process| {
                procfs::open_files(*process, &within).into_iter().map(|file| (*process, file))
            })
            .collect();
        let recording = Recording {
            capabilities: capabilities::probe(&tracefs),
            cpu: procfs::cpu(&scope.processes),
            phases: Mutex::default(),
            of_devices,
            of_threads,
            devices,
            mounts,
            open_files,
            processes: scope.processes,
            naming: scope.naming,
            budget,
        };
        recording.mark("")?;
        Ok(recording)
    }
}

/// A trace being made; dropped, it is taken down and what it saw is gone.
#[derive(Debug)]
pub struct Recording {
    of_devices: Traced,
    of_threads: Option<Traced>,
    devices: Vec<Device>,
    mounts: Vec<(u8, PathBuf)>,
    processes: Vec<u32>,
    open_files: HashSet<(u32, i32)>,
    naming: Naming,
    capabilities: Capabilities,
    cpu: CpuTime,
    phases: Mutex<Vec<String>>,
    budget: Arc<Budget>,
}

impl Recording {
    /// A phase of this name begins here, and the one before it ends.
    pub fn mark(&self, phase: &str) -> Result<(), TraceError> {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        self.of_devices.instance.set("trace_marker", &format!("{MARK}{}", phases.len()))?;
        phases.push(phase.to_owned());
        Ok(())
    }

    /// Ends the recording, and names what it saw as its scope says.
    pub fn stop(self) -> Result<Trace, TraceError> {
        Ok(self.end()?.digest())
    }

    /// Ends the recording. The node may end then, so that what it has on its device can be asked for.
    pub fn end(self) -> Result<Recorded, TraceError> {
        self.mark("")?;
        let cpu_after = procfs::cpu(&self.processes);
        let process_of = procfs::processes_of_threads(&self.processes);
        let mut events = Vec::new();
        let mut lost = 0;
        for traced in [Some(self.of_devices), self.of_threads].into_iter().flatten() {
            lost += traced.finish(&mut events)?;
        }
        lost += self.budget.refused.load(Ordering::Relaxed);
        // Runs in order, one for each processor: the stable sort merges them.
        events.sort_by_key(|event| event.at_ns);
        block_device::within(&self.devices, &mut events);
        Ok(Recorded {
            events,
            lost,
            process_of,
            first_process: self.processes.first().copied(),
            open_files: self.open_files,
            phases: self.phases.into_inner().unwrap_or_else(PoisonError::into_inner),
            file_systems: types_of(&self.mounts, &self.devices),
            devices: self.devices.into_iter().map(|device| (device.size_bytes(), device.name)).collect(),
            mounts: self.mounts,
            naming: self.naming,
            capabilities: self.capabilities,
            cpu: cpu_after.since(&self.cpu),
        })
    }
}

/// What was recorded, and not looked at yet.
#[derive(Debug)]
pub struct Recorded {
    events: Vec<Event>,
    lost: u64,
    process_of: HashMap<u32, u32>,
    first_process: Option<u32>,
    open_files: HashSet<(u32, i32)>,
    phases: Vec<String>,
    file_systems: Vec<String>,
    /// Size in bytes and name.
    devices: Vec<(u64, String)>,
    mounts: Vec<(u8, PathBuf)>,
    naming: Naming,
    capabilities: Capabilities,
    cpu: CpuTime,
}

impl Recorded {
    /// Named by what is known now, instead of what was when the recording began.
    #[must_use]
    pub fn named(self, naming: Naming) -> Self {
        Self { naming, ..self }
    }

    /// Walks the file systems to name the inodes that were seen, and makes of events what they say.
    pub fn digest(self) -> Trace {
        let kinds = Kinds::find(&self.naming, &self.mounts, &correlator::files_seen(&self.events));
        let regions = kinds.regions.clone();
        let known = Known {
            kinds,
            process_of: self.process_of,
            first_process: self.first_process.unwrap_or(0),
            open_files: self.open_files,
        };
        let digested = correlator::digest(&self.events, known);
        let phases = digested
            .marks
            .iter()
            .map(|(phase, at_ns)| (self.phases.get(*phase as usize).cloned().unwrap_or_default(), *at_ns));
        let phases: Vec<(String, u64)> = phases.collect();
        Trace {
            lost: self.lost,
            begin_ns: phases.first().map_or(0, |(_, at_ns)| *at_ns),
            end_ns: phases.last().map_or(0, |(_, at_ns)| *at_ns),
            requests: digested.requests,
            calls: digested.calls,
            points: digested.points,
            phases,
            regions,
            file_systems: self.file_systems,
            devices: self.devices.into_iter().map(|(size_bytes, name)| (name, size_bytes)).collect(),
            capabilities: self.capabilities,
            cpu: self.cpu,
            has_node: self.first_process.is_some(),
        }
    }
}

impl CpuTime {
    fn since(&self, before: &Self) -> Self {
        // A worker that ended took its time with it.
        Self {
            node_user_seconds: (self.node_user_seconds - before.node_user_seconds).max(0.0),
            node_system_seconds: (self.node_system_seconds - before.node_system_seconds).max(0.0),
            kernel_workers_seconds: (self.kernel_workers_seconds - before.kernel_workers_seconds).max(0.0),
        }
    }
}

/// What was recorded, digested: requests, calls, counts.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Events that the kernel or the readers had no room for.
    pub lost: u64,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) requests: Vec<Request>,
    pub(crate) calls: Vec<Call>,
    pub(crate) points: Vec<Point>,
    /// Of a raw device, in its order.
    pub(crate) regions: Vec<Region>,
    /// Name and beginning, in the order of time.
    pub(crate) phases: Vec<(String, u64)>,
    /// Name and size in bytes.
    pub(crate) devices: Vec<(String, u64)>,
    pub(crate) capabilities: Capabilities,
    pub(crate) cpu: CpuTime,
    /// Whether a node's threads were traced.
    pub(crate) has_node: bool,
    /// The types of the file systems in scope, such as `xfs`.
    pub(crate) file_systems: Vec<String>,
}

impl Trace {
    /// The requests of its devices in the order of issue, for [`crate::metrics::what_if`].
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// When a phase began and ended, ns; `None` if it was never marked.
    pub(crate) fn phase(&self, name: &str) -> Option<(u64, u64)> {
        let index = self.phases.iter().position(|(phase, _)| phase == name)?;
        let end = self.phases.get(index + 1).map_or(self.end_ns, |(_, begin)| *begin);
        Some((self.phases[index].1, end))
    }
}

/// A tracing instance and its readers.
#[derive(Debug)]
struct Traced {
    // The readers hold the instance's files open and must go first, or the kernel keeps the instance.
    readers: Readers,
    instance: Instance,
}

impl Traced {
    /// Whatever touches the devices and their file systems.
    fn devices(tracefs: &Tracefs, devices: &[Device], budget: &Arc<Budget>) -> Result<Self, TraceError> {
        let instance = tracefs.instance()?;
        prepare(&instance)?;
        let disks: Vec<u32> = devices.iter().map(|device| device.disk).collect();
        let numbers: Vec<u32> = devices.iter().map(|device| device.number).collect();
        for (event, meaning, field) in OF_DEVICES.iter().filter(|(event, ..)| tracefs.has(event)) {
            let asked_for = if matches!(meaning, Meaning::Io(_)) { &disks } else { &numbers };
            let filter = field.map_or(String::new(), |field| any_of(field, asked_for));
            instance.enable(event, &filter)?;
        }
        Self::begin(instance, Decoder::new(tracefs, OF_DEVICES, disks, numbers)?, budget)
    }

    /// What these processes' threads do.
    fn threads(tracefs: &Tracefs, processes: &[u32], budget: &Arc<Budget>) -> Result<Self, TraceError> {
        let instance = tracefs.instance()?;
        prepare(&instance)?;
        instance.set("options/event-fork", "1")?;
        // Twice, as threads may start before the kernel follows their parents.
        for _ in 0..2 {
            for some in threads_of(processes)?.chunks(THREADS_PER_WRITE) {
                let text: Vec<String> = some.iter().map(u32::to_string).collect();
                instance.set("set_event_pid", &text.join(" "))?;
            }
        }
        for (event, ..) in OF_THREADS.iter().filter(|(event, ..)| tracefs.has(event)) {
            let filter = if event.starts_with("raw_syscalls/") { syscalls::filter() } else { String::new() };
            instance.enable(event, &filter)?;
        }
        Self::begin(instance, Decoder::new(tracefs, OF_THREADS, Vec::new(), Vec::new())?, budget)
    }

    fn begin(instance: Instance, decoder: Decoder, budget: &Arc<Budget>) -> Result<Self, TraceError> {
        let readers = Readers::start(&instance, decoder, budget)?;
        instance.set("tracing_on", "1")?;
        Ok(Self { readers, instance })
    }

    /// Ends the tracing; the answer is what was lost.
    fn finish(self, into: &mut Vec<event::Event>) -> Result<u64, TraceError> {
        self.instance.set("tracing_on", "0")?;
        self.readers.finish(into);
        self.instance.lost()
    }
}

/// The threads of these processes, if there are any processes.
fn threads_of(processes: &[u32]) -> Result<Vec<u32>, TraceError> {
    let threads: Vec<u32> = processes.iter().flat_map(|process| procfs::threads(*process)).collect();
    if threads.is_empty() && !processes.is_empty() {
        return Err(TraceError::Scope(format!("no process {processes:?}: start the node before its trace")));
    }
    Ok(threads)
}

fn prepare(instance: &Instance) -> Result<(), TraceError> {
    instance.set("tracing_on", "0")?;
    instance.set("trace_clock", "mono")?;
    // Kernels before 6.8 have sub-buffers of a page only.
    let _ = instance.set("buffer_subbuf_size_kb", &SUB_BUFFER_KIB.to_string());
    instance.set("buffer_size_kb", &BUFFER_KIB.to_string())
}

/// The kernel's filter for one of several numbers.
fn any_of(field: &str, numbers: &[u32]) -> String {
    numbers.iter().map(|number| format!("{field} == {number}")).collect::<Vec<_>>().join(" || ")
}
