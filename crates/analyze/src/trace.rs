//! What the kernel says while a workload runs.
//!
//! Owns two tracing instances of its own: one of the node's threads (their calls and lock waits, chosen by the kernel
//! by thread, with the threads and children they start), one of the devices and file systems (chosen by device, whoever
//! does it). The kernel stamps every event with its monotonic clock, marks of phases too, so nobody here reads a clock.
//!
//! Refuses: to change anything of the kernel's outside its own instances; to stop the workload when events come too
//! fast: what has no room is counted as lost.

mod calls;
mod digest;
mod event;
mod names;
mod node;
pub(crate) mod probe;
mod reader;
mod ring;
mod tracefs;

pub(crate) use calls::Family;
pub(crate) use digest::{Call, Counted, Point};

use crate::model::{Capabilities, CpuTime, Naming, Request, SECTOR_BYTES, Scope, TraceError};
use digest::Known;
use event::{Decoder, MARK, OF_DEVICES, OF_THREADS};
use names::Kinds;
use reader::{BUFFER_KIB, Budget, Readers, SUB_BUFFER_KIB};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
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
            Ok(tracefs) => probe::probe(&tracefs),
            Err(error) => probe::nothing(&error.to_string()),
        }
    }

    /// Begins to trace.
    ///
    /// # Errors
    /// [`TraceError::NoTracefs`] without root or tracefs, [`TraceError::Scope`] for a device that is none.
    pub fn start(scope: Scope) -> Result<Recording, TraceError> {
        if scope.devices.is_empty() {
            return Err(TraceError::Scope("no device to trace: give those that hold the node's data".into()));
        }
        let tracefs = Tracefs::open()?;
        tracefs.remove_abandoned();
        let devices = scope.devices.iter().map(|path| Device::open(path)).collect::<Result<Vec<_>, _>>()?;
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
        let within: Vec<&Path> = scope.mounts.iter().chain(&scope.devices).map(PathBuf::as_path).collect();
        let open_files = scope
            .processes
            .iter()
            .flat_map(|process| node::open_files(*process, &within).into_iter().map(|file| (*process, file)))
            .collect();
        let recording = Recording {
            capabilities: probe::probe(&tracefs),
            cpu: node::cpu(&scope.processes),
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

    /// Ends the recording, and walks the file systems to name the inodes it saw.
    pub fn stop(self) -> Result<Trace, TraceError> {
        self.mark("")?;
        let cpu_after = node::cpu(&self.processes);
        let process_of = node::processes_of_threads(&self.processes);
        let mut events = Vec::new();
        let mut lost = 0;
        for traced in [Some(self.of_devices), self.of_threads].into_iter().flatten() {
            lost += traced.finish(&mut events)?;
        }
        lost += self.budget.refused.load(Ordering::Relaxed);
        // Runs in order, one for each processor: the stable sort merges them.
        events.sort_by_key(|event| event.at_ns);
        let kinds = Kinds::find(&self.naming, &self.mounts, &digest::files_seen(&events));
        let first_process = self.processes.first().copied().unwrap_or(0);
        let known = Known { kinds, process_of, first_process, open_files: self.open_files };
        let digested = digest::digest(&events, known);
        let names = self.phases.into_inner().unwrap_or_else(PoisonError::into_inner);
        let phases = digested
            .marks
            .iter()
            .map(|(phase, at_ns)| (names.get(*phase as usize).cloned().unwrap_or_default(), *at_ns));
        let phases: Vec<(String, u64)> = phases.collect();
        Ok(Trace {
            lost,
            begin_ns: phases.first().map_or(0, |(_, at_ns)| *at_ns),
            end_ns: phases.last().map_or(0, |(_, at_ns)| *at_ns),
            requests: digested.requests,
            calls: digested.calls,
            points: digested.points,
            phases,
            file_systems: types_of(&self.mounts, &self.devices),
            devices: self.devices.into_iter().map(|device| (device.name, device.size_bytes)).collect(),
            capabilities: self.capabilities,
            cpu: cpu_after.since(&self.cpu),
            has_node: !self.processes.is_empty(),
        })
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
        let numbers: Vec<u32> = devices.iter().map(|device| device.number).collect();
        for (event, _, field) in OF_DEVICES.iter().filter(|(event, ..)| tracefs.has(event)) {
            let filter = field.map_or(String::new(), |field| any_of(field, &numbers));
            instance.enable(event, &filter)?;
        }
        Self::begin(instance, Decoder::new(tracefs, OF_DEVICES, numbers)?, budget)
    }

    /// What these processes' threads do.
    fn threads(tracefs: &Tracefs, processes: &[u32], budget: &Arc<Budget>) -> Result<Self, TraceError> {
        let instance = tracefs.instance()?;
        prepare(&instance)?;
        instance.set("options/event-fork", "1")?;
        // Twice, as threads may start before the kernel follows their parents.
        for _ in 0..2 {
            let threads: Vec<u32> = processes.iter().flat_map(|process| node::threads(*process)).collect();
            if threads.is_empty() {
                return Err(TraceError::Scope(format!(
                    "no process {processes:?}: start the node before its trace"
                )));
            }
            for some in threads.chunks(THREADS_PER_WRITE) {
                let text: Vec<String> = some.iter().map(u32::to_string).collect();
                instance.set("set_event_pid", &text.join(" "))?;
            }
        }
        for (event, ..) in OF_THREADS.iter().filter(|(event, ..)| tracefs.has(event)) {
            let filter = if event.starts_with("raw_syscalls/") { calls::filter() } else { String::new() };
            instance.enable(event, &filter)?;
        }
        Self::begin(instance, Decoder::new(tracefs, OF_THREADS, Vec::new())?, budget)
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

/// A block device of the scope.
#[derive(Debug)]
struct Device {
    name: String,
    /// As the kernel's events write it: major above 20 bits of minor.
    number: u32,
    /// As `stat` writes it.
    stat_number: u64,
    size_bytes: u64,
}

impl Device {
    fn open(path: &Path) -> Result<Self, TraceError> {
        let unusable = |why: String| TraceError::Scope(format!("{}: {why}", path.display()));
        let meta = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
        if !meta.file_type().is_block_device() {
            return Err(unusable("not a block device; give the device that holds the node's data".into()));
        }
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let described = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        if described.join("partition").exists() {
            return Err(unusable(
                "a partition; its requests are traced under its disk's number: give the disk".into(),
            ));
        }
        let sectors =
            fs::read_to_string(described.join("size")).map_err(|error| unusable(error.to_string()))?;
        let sectors: u64 = sectors.trim().parse().map_err(|_| unusable("the kernel gives no size".into()))?;
        Ok(Self {
            name: path.display().to_string(),
            number: major << 20 | minor,
            stat_number: meta.rdev(),
            size_bytes: sectors * SECTOR_BYTES,
        })
    }
}

/// The index of each mount's device.
fn mounts_of(mounts: &[PathBuf], devices: &[Device]) -> Result<Vec<(u8, PathBuf)>, TraceError> {
    mounts
        .iter()
        .map(|mount| {
            let unusable = |why: String| TraceError::Scope(format!("{}: {why}", mount.display()));
            let number = fs::metadata(mount).map_err(|error| unusable(error.to_string()))?.dev();
            let device = devices.iter().position(|device| device.stat_number == number);
            let device = device.ok_or_else(|| unusable("not on a device of the scope".into()))?;
            Ok((device as u8, mount.clone()))
        })
        .collect()
}

/// The types of the file systems mounted there.
fn types_of(mounts: &[(u8, PathBuf)], devices: &[Device]) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let type_of = |number: &str| {
        table.lines().find_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            (mount.split(' ').nth(2)? == number)
                .then(|| file_system.split(' ').next().unwrap_or("").to_owned())
        })
    };
    mounts
        .iter()
        .filter_map(|(device, _)| devices.get(usize::from(*device)))
        .filter_map(|device| type_of(&format!("{}:{}", device.number >> 20, device.number & 0xf_ffff)))
        .collect()
}
