//! Kernel traces recorded while a workload runs.
//!
//! Owns two ftrace instances. One traces the system calls, io_uring requests and lock waits of the node's threads, if
//! processes are given; the kernel filters it by thread and adds the threads and child processes that they start. The
//! other traces the devices and their file systems; the kernel filters it by device, whatever thread causes the
//! event. The kernel timestamps every event and every phase marker with its monotonic clock, so this module reads no
//! clock.
//!
//! Refuses to change kernel state outside its own instances (but mounts tracefs where it is not mounted), and to slow
//! the workload down when events arrive too fast: events that do not fit into the buffers are counted as lost.

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

pub(crate) use correlator::{Call, Count, CountedEvent};
pub(crate) use syscalls::Family;

use crate::model::{Capabilities, CpuTime, Naming, Region, Request, Scope, TraceError};
use block_device::{Device, mounts_of, open_all, types_of};
use classifier::IoClassifier;
use correlator::NodeInfo;
use event::{DEVICE_TRACEPOINTS, Decoder, Event, EventType, MARKER_PREFIX, THREAD_TRACEPOINTS};
use reader::{BUFFER_KIB, Budget, Readers, SUB_BUFFER_KIB};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tracefs::{Instance, Tracefs};

/// Default limit on the events kept in memory: 1 GiB of them.
const EVENTS_MAX: usize = 32 << 20;

/// Thread ids passed to the kernel in one write to `set_event_pid`.
const THREADS_PER_WRITE: usize = 200;

/// Starts recordings.
#[derive(Debug)]
pub struct Recorder;

impl Recorder {
    /// Returns which metrics this kernel can provide, and from which tracepoints.
    pub fn probe() -> Capabilities {
        match Tracefs::open() {
            Ok(tracefs) => capabilities::probe(&tracefs),
            Err(error) => capabilities::none_available(&error.to_string()),
        }
    }

    /// Checks that a scope can be traced.
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub fn check(scope: &Scope) -> Result<(), TraceError> {
        mounts_of(&scope.mounts, &open_all(&scope.devices)?)?;
        Tracefs::open()?;
        threads_of(&scope.processes).map(drop)
    }

    /// Starts a recording.
    ///
    /// # Errors
    /// [`TraceError::NoTracefs`] without root or tracefs; [`TraceError::Scope`] if a device of the scope is not a
    /// usable block device, a mount is on none of the devices, or no process exists; [`TraceError::File`] or
    /// [`TraceError::Format`] if a kernel file cannot be used.
    pub fn start(scope: Scope) -> Result<Recording, TraceError> {
        let devices = open_all(&scope.devices)?;
        let tracefs = Tracefs::open()?;
        tracefs.remove_abandoned();
        let mounts = mounts_of(&scope.mounts, &devices)?;
        let budget = Arc::new(Budget {
            remaining: AtomicUsize::new(if scope.events_max == 0 { EVENTS_MAX } else { scope.events_max }),
            dropped: AtomicU64::new(0),
        });
        let of_devices = ActiveInstance::for_devices(&tracefs, &devices, &budget)?;
        let of_threads = match scope.processes.is_empty() {
            true => None,
            false => Some(ActiveInstance::for_threads(&tracefs, &scope.processes, &budget)?),
        };
        // `/proc/PID/fd` shows canonical paths.
        let roots = scope.mounts.iter().chain(&scope.devices);
        let roots: Vec<PathBuf> = roots.map(|path| path.canonicalize().unwrap_or(path.clone())).collect();
        let open_files = scope
            .processes
            .iter()
            .flat_map(|process| procfs::open_files(*process, &roots).into_iter().map(|file| (*process, file)))
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

/// A trace in progress. Dropping it removes the tracing instances and discards the events.
#[derive(Debug)]
pub struct Recording {
    of_devices: ActiveInstance,
    of_threads: Option<ActiveInstance>,
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
    /// Ends the current phase and begins one with this name.
    pub fn mark(&self, phase: &str) -> Result<(), TraceError> {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        self.of_devices.instance.set("trace_marker", &format!("{MARKER_PREFIX}{}", phases.len()))?;
        phases.push(phase.to_owned());
        Ok(())
    }

    /// Ends the recording and analyzes its events, with the naming of its scope.
    pub fn stop(self) -> Result<Trace, TraceError> {
        Ok(self.end()?.digest())
    }

    /// Ends the recording without analyzing it. The node may be stopped afterwards, for example to read the layout of its device.
    pub fn end(self) -> Result<Recorded, TraceError> {
        self.mark("")?;
        let cpu_after = procfs::cpu(&self.processes);
        let process_of = procfs::processes_of_threads(&self.processes);
        let mut events = Vec::new();
        let mut lost = 0;
        for instance in [Some(self.of_devices), self.of_threads].into_iter().flatten() {
            lost += instance.finish(&mut events)?;
        }
        lost += self.budget.dropped.load(Ordering::Relaxed);
        // Each processor's events are already in time order; the stable sort merges these runs.
        events.sort_by_key(|event| event.at_ns);
        block_device::keep_own_sectors(&self.devices, &mut events);
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

/// A finished recording whose events are not analyzed yet.
#[derive(Debug)]
pub struct Recorded {
    events: Vec<Event>,
    lost: u64,
    process_of: HashMap<u32, u32>,
    first_process: Option<u32>,
    open_files: HashSet<(u32, i32)>,
    phases: Vec<String>,
    file_systems: Vec<String>,
    /// (size in bytes, name)
    devices: Vec<(u64, String)>,
    mounts: Vec<(u8, PathBuf)>,
    naming: Naming,
    capabilities: Capabilities,
    cpu: CpuTime,
}

impl Recorded {
    /// Replaces the naming that the scope had when the recording began.
    #[must_use]
    pub fn named(self, naming: Naming) -> Self {
        Self { naming, ..self }
    }

    /// Walks the mounted file systems to find the files of the traced inodes, and turns the events into requests, calls and counts.
    pub fn digest(self) -> Trace {
        let classifier =
            IoClassifier::new(&self.naming, &self.mounts, &correlator::traced_files(&self.events));
        let regions = classifier.regions.clone();
        let node = NodeInfo {
            classifier,
            process_of: self.process_of,
            first_process: self.first_process.unwrap_or(0),
            open_files: self.open_files,
        };
        let activity = correlator::correlate(&self.events, node);
        let phases = activity
            .markers
            .iter()
            .map(|(phase, at_ns)| (self.phases.get(*phase as usize).cloned().unwrap_or_default(), *at_ns));
        let phases: Vec<(String, u64)> = phases.collect();
        Trace {
            lost: self.lost,
            begin_ns: phases.first().map_or(0, |(_, at_ns)| *at_ns),
            end_ns: phases.last().map_or(0, |(_, at_ns)| *at_ns),
            requests: activity.requests,
            calls: activity.calls,
            counts: activity.counts,
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
        // A kernel worker that ended is no longer in the second sum, so the difference can be negative.
        Self {
            node_user_seconds: (self.node_user_seconds - before.node_user_seconds).max(0.0),
            node_system_seconds: (self.node_system_seconds - before.node_system_seconds).max(0.0),
            kernel_workers_seconds: (self.kernel_workers_seconds - before.kernel_workers_seconds).max(0.0),
        }
    }
}

/// An analyzed recording: requests, calls and counts.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Events dropped because a kernel buffer was full or the limit of the scope was reached.
    pub lost: u64,
    /// Time of the first phase marker, ns.
    pub(crate) begin_ns: u64,
    /// Time of the last phase marker, with which the recording ended, ns.
    pub(crate) end_ns: u64,
    pub(crate) requests: Vec<Request>,
    pub(crate) calls: Vec<Call>,
    pub(crate) counts: Vec<Count>,
    /// Regions of a raw device, ordered by sector.
    pub(crate) regions: Vec<Region>,
    /// (name, start in ns), in time order.
    pub(crate) phases: Vec<(String, u64)>,
    /// (name, size in bytes)
    pub(crate) devices: Vec<(String, u64)>,
    pub(crate) capabilities: Capabilities,
    pub(crate) cpu: CpuTime,
    /// Whether a node's threads were traced.
    pub(crate) has_node: bool,
    /// The types of the file systems in scope, such as `xfs`.
    pub(crate) file_systems: Vec<String>,
}

impl Trace {
    /// Returns the requests to the traced devices in the order of issue, for [`crate::metrics::what_if`].
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns start and end of a phase in ns, or `None` if the phase was never marked.
    pub(crate) fn phase(&self, name: &str) -> Option<(u64, u64)> {
        let index = self.phases.iter().position(|(phase, _)| phase == name)?;
        let end = self.phases.get(index + 1).map_or(self.end_ns, |(_, begin)| *begin);
        Some((self.phases[index].1, end))
    }
}

/// A tracing instance with the threads that read its buffers.
#[derive(Debug)]
struct ActiveInstance {
    // Dropped first: the kernel does not remove an instance while its files are open.
    readers: Readers,
    instance: Instance,
}

impl ActiveInstance {
    /// Traces all I/O to the devices and their file systems, whatever process causes it.
    fn for_devices(tracefs: &Tracefs, devices: &[Device], budget: &Arc<Budget>) -> Result<Self, TraceError> {
        let instance = tracefs.create_instance()?;
        configure(&instance)?;
        let disks: Vec<u32> = devices.iter().map(|device| device.disk).collect();
        let numbers: Vec<u32> = devices.iter().map(|device| device.number).collect();
        for (event, event_type, field) in DEVICE_TRACEPOINTS.iter().filter(|(event, ..)| tracefs.has(event)) {
            let wanted = if matches!(event_type, EventType::Io(_)) { &disks } else { &numbers };
            let filter = field.map_or(String::new(), |field| filter_any(field, wanted));
            instance.enable(event, &filter)?;
        }
        Self::start(instance, Decoder::new(tracefs, DEVICE_TRACEPOINTS, disks, numbers)?, budget)
    }

    /// Traces system calls and lock waits of the threads of these processes.
    fn for_threads(tracefs: &Tracefs, processes: &[u32], budget: &Arc<Budget>) -> Result<Self, TraceError> {
        let instance = tracefs.create_instance()?;
        configure(&instance)?;
        instance.set("options/event-fork", "1")?;
        // Twice: a thread may start before the kernel follows its parent.
        for _ in 0..2 {
            for chunk in threads_of(processes)?.chunks(THREADS_PER_WRITE) {
                let text: Vec<String> = chunk.iter().map(u32::to_string).collect();
                instance.set("set_event_pid", &text.join(" "))?;
            }
        }
        for (event, ..) in THREAD_TRACEPOINTS.iter().filter(|(event, ..)| tracefs.has(event)) {
            let filter = if event.starts_with("raw_syscalls/") { syscalls::filter() } else { String::new() };
            instance.enable(event, &filter)?;
        }
        Self::start(instance, Decoder::new(tracefs, THREAD_TRACEPOINTS, Vec::new(), Vec::new())?, budget)
    }

    fn start(instance: Instance, decoder: Decoder, budget: &Arc<Budget>) -> Result<Self, TraceError> {
        let readers = Readers::start(&instance, decoder, budget)?;
        instance.set("tracing_on", "1")?;
        Ok(Self { readers, instance })
    }

    /// Stops tracing, appends the events and returns the number of lost ones.
    fn finish(self, into: &mut Vec<event::Event>) -> Result<u64, TraceError> {
        self.instance.set("tracing_on", "0")?;
        self.readers.finish(into);
        self.instance.lost_records()
    }
}

/// Returns the threads of these processes. Fails if processes are given and none of them exists.
fn threads_of(processes: &[u32]) -> Result<Vec<u32>, TraceError> {
    let threads: Vec<u32> = processes.iter().flat_map(|process| procfs::threads(*process)).collect();
    if threads.is_empty() && !processes.is_empty() {
        return Err(TraceError::Scope(format!("no process {processes:?}: start the node before the trace")));
    }
    Ok(threads)
}

fn configure(instance: &Instance) -> Result<(), TraceError> {
    instance.set("tracing_on", "0")?;
    instance.set("trace_clock", "mono")?;
    // Kernels before 6.8 have sub-buffers of one page only and no such setting.
    let _ = instance.set("buffer_subbuf_size_kb", &SUB_BUFFER_KIB.to_string());
    instance.set("buffer_size_kb", &BUFFER_KIB.to_string())
}

/// Returns a kernel event filter that accepts any of these values of a field.
fn filter_any(field: &str, numbers: &[u32]) -> String {
    numbers.iter().map(|number| format!("{field} == {number}")).collect::<Vec<_>>().join(" || ")
}
