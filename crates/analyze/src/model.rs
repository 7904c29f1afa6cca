//! Types shared by recording, metrics, reports and comparisons.
//!
//! Times of events are nanoseconds of the kernel's monotonic clock, durations are seconds unless the name ends in
//! `_ns`, sizes are bytes, addresses on a device are sectors of 512 bytes. A number that the kernel does not provide
//! is a [`Measured::NotAvailable`] with its reason, never a zero.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// Bytes of a sector, the unit of the block layer's addresses.
pub const SECTOR_BYTES: u64 = 512;

/// The natural transfer size: a chain of adjacent requests at least this long gets the full bandwidth of a device (section 3.2 of the
/// paper, after Conway).
pub const NATURAL_TRANSFER_BYTES: u64 = 4 << 20;

/// The devices, mounts and processes to trace.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The block devices that hold the node's data, such as `/dev/loop3` or `/dev/sda1`. Devices built on others (LVM, LUKS, RAID) are
    /// refused.
    pub devices: Vec<PathBuf>,
    /// Mount points of the file systems on these devices. Empty for a node that writes to a raw device.
    pub mounts: Vec<PathBuf>,
    /// Pids of the node. Their system calls are traced, and those of the threads and child processes that they start later.
    pub processes: Vec<u32>,
    /// The node's scheme of file names, or the regions of its raw device.
    pub naming: Naming,
    /// Maximum number of events to keep, 32 bytes of memory each; further events are counted as lost. 0 stands for the default.
    pub events_max: usize,
}

/// Rules that tell object data from object metadata.
#[derive(Debug, Clone, Default)]
pub enum Naming {
    /// The content of every file is object data; metadata is in extended attributes. Tenon's directory store.
    #[default]
    Files,
    /// MinIO: `xl.meta` is object metadata (with small objects inline), `.minio.sys` outside `tmp` is index, the rest is object data.
    Minio,
    /// A raw device with these regions, which do not overlap. I/O to other sectors is [`Kind::Unnamed`].
    Regions(Vec<Region>),
}

/// A part of a raw device that holds one kind of data. A region of object data belongs to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Sectors of 512 bytes.
    pub sectors: Range<u64>,
    /// The kind of its data.
    pub kind: Kind,
}

/// The purpose of an I/O (section 5.1 of the paper: OD, OM, FSM).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Content of objects.
    ObjectData,
    /// The store's metadata of objects, if it lies in files or regions of its own.
    ObjectMetadata,
    /// The store's index and settings.
    Index,
    /// Inodes, directories, extended attributes, journal: I/O that the file system marks `REQ_META`, and I/O for no file.
    FileSystemMetadata,
    /// Unknown purpose: I/O for a file that was removed before its name was looked up, I/O to sectors of a raw device outside the known
    /// regions, and flushes, which apply to all that was written.
    Unnamed,
}

impl Kind {
    /// All kinds, in the order of reports.
    pub const ALL: [Kind; 5] =
        [Kind::ObjectData, Kind::ObjectMetadata, Kind::Index, Kind::FileSystemMetadata, Kind::Unnamed];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ObjectData => "object data",
            Kind::ObjectMetadata => "object metadata",
            Kind::Index => "index",
            Kind::FileSystemMetadata => "file-system metadata",
            Kind::Unnamed => "unclassified",
        }
    }
}

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read from the device.
    Read,
    /// Write to the device.
    Write,
    /// Make completed writes durable (flush of the device's cache).
    Flush,
    /// Tell the device that sectors are no longer needed.
    Discard,
}

/// A number with its source, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured<T> {
    /// Available.
    Is {
        /// The number.
        value: T,
        /// The tracepoints or kernel files that it was computed from.
        source: String,
        /// The quantity that it approximates; `None` if it is exact.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        proxy_for: Option<String>,
    },
    /// Not available, mostly because this kernel does not provide it.
    NotAvailable {
        /// The reason, one line.
        why: String,
    },
}

impl<T> Measured<T> {
    /// Returns the number, if it is available.
    pub fn value(&self) -> Option<&T> {
        match self {
            Measured::Is { value, .. } => Some(value),
            Measured::NotAvailable { .. } => None,
        }
    }
}

/// A metric, and whether this kernel can provide it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// The metric's name in reports.
    pub metric: String,
    /// The tracepoints that it is computed from and the quantity that it approximates, or the reason why it is not available.
    pub source: Measured<()>,
}

/// The metrics that this kernel can provide.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities(pub Vec<Capability>);

/// One request to a device, from entering the block layer to its completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Index of the device in the scope.
    pub device: usize,
    /// Operation.
    pub operation: Operation,
    /// Purpose.
    pub kind: Kind,
    /// First sector.
    pub sector: u64,
    /// Bytes; 0 for a flush.
    pub size_bytes: u64,
    /// Time when it entered the block layer (`block_bio_queue`), ns.
    pub queued_ns: u64,
    /// Time when it went to the driver (`block_rq_issue`), ns.
    pub issued_ns: u64,
    /// Time when it completed (`block_rq_complete`), ns.
    pub completed_ns: u64,
    /// Id of the file that it belongs to; without a file, the id of the submitting thread with the top bit set. On a
    /// file system, adjacent requests with one id form a chain.
    #[serde(rename = "stream")]
    pub file_or_thread: u64,
    /// Whether the data is on the medium at completion (FUA).
    pub forced: bool,
}

impl Request {
    /// Bit of [`file_or_thread`](Self::file_or_thread) that is set in ids of threads.
    pub(crate) const THREAD: u64 = 1 << 63;

    /// Returns whether the request belongs to a file.
    pub fn is_of_file(&self) -> bool {
        self.file_or_thread & Self::THREAD == 0
    }
}

/// A cumulative distribution. Each step tells which share of the values is at most `at_most`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Steps in ascending order; the last share is 1.
    pub steps: Vec<Step>,
}

/// A step of a [`Distribution`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The value, in bytes.
    pub at_most: u64,
    /// From 0 to 1.
    pub share: f64,
}

/// Time that the node's calls spend in each layer (Figure 2b), in seconds summed over threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerTimes {
    /// Number of calls.
    pub calls: u64,
    /// Time in VFS: until the file system's first tracepoint in a call; the whole call if there is none.
    pub vfs_seconds: f64,
    /// Time in the file system: from its first tracepoint to the end of the call, without block layer and device.
    pub file_system_seconds: f64,
    /// Time in the block layer: from queue to issue.
    pub block_seconds: f64,
    /// Time on the device: from issue to completion.
    pub device_seconds: f64,
}

impl LayerTimes {
    /// Returns the sum over all layers.
    pub fn total_seconds(&self) -> f64 {
        self.vfs_seconds + self.file_system_seconds + self.block_seconds + self.device_seconds
    }
}

/// [`LayerTimes`] of one family of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallLayers {
    /// `read`, `write`, `flush`, `names` (open, close, stat, make, rename, remove, list, truncate, attributes) or
    /// `ring` (io_uring).
    pub family: String,
    /// Times of these calls.
    pub times: LayerTimes,
}

/// Requests of one kind and operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindOfIo {
    /// Purpose.
    pub kind: Kind,
    /// Operation.
    pub operation: Operation,
    /// Number of requests.
    pub requests: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Time from queue to issue, seconds summed over requests.
    pub queued_seconds: f64,
    /// Time from issue to completion, seconds summed over requests.
    pub device_seconds: f64,
    /// Sizes of requests.
    pub sizes: Distribution,
}

/// Lengths of chains: sequences of requests with adjacent sectors, in the order of issue (section 3.2).
///
/// An object is a file, or on a raw device a region of object data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chains {
    /// Read or write.
    pub operation: Operation,
    /// Lengths of the chains within each object's data. Concurrent readers of one object have separate chains.
    pub per_stream: Distribution,
    /// Lengths of the chains among all requests to the device, of every kind and source.
    pub global: Distribution,
    /// Share of the chains of object data that have at least the natural transfer size, from 0 to 1.
    pub natural: f64,
    /// Share of the bytes of object data in chains of at least the natural transfer size, from 0 to 1.
    pub bytes_in_natural: f64,
}

/// I/O by time and by address on the device (Figure 4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// Name of the device.
    pub device: String,
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// Time at the left edge of the first column, ns from the start of the trace.
    pub begin_ns: u64,
    /// Duration of a column, ns.
    pub column_ns: u64,
    /// Number of columns, left to right.
    pub columns: usize,
    /// Number of rows, the lowest address first.
    pub rows: usize,
    /// Cells with I/O.
    pub cells: Vec<HeatCell>,
}

/// Bytes moved in one cell of a [`Heatmap`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeatCell {
    /// Column, from 0.
    pub column: u32,
    /// Row, from 0.
    pub row: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Activity of the kernel's caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Caches {
    /// Name lookups that missed the dentry cache.
    pub dentry_misses: Measured<u64>,
    /// Inodes that missed the inode cache.
    pub inode_misses: Measured<u64>,
    /// Pages of files inserted into the page cache.
    pub page_insertions: Measured<u64>,
    /// Pages of files removed from the page cache.
    pub page_evictions: Measured<u64>,
    /// Share of the reads through the page cache that found a page missing, from 0 to 1.
    pub page_miss_ratio: Measured<f64>,
}

/// Time that the node's threads waited for kernel locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockTime {
    /// Number of waits.
    pub waits: u64,
    /// Time waited, seconds summed over threads.
    pub seconds: f64,
}

/// CPU time between start and end of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// CPU time of the node in user mode, seconds.
    pub node_user_seconds: f64,
    /// CPU time of the node in kernel mode, seconds.
    pub node_system_seconds: f64,
    /// CPU time of all kernel threads of the machine (write-back, journal, loop devices), seconds.
    pub kernel_workers_seconds: f64,
}

/// The metrics of a trace (section 3.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Duration of the trace or phase, seconds.
    pub seconds: f64,
    /// Number of events lost because buffers were full. If it is not 0, all counts are lower bounds.
    pub lost_events: u64,
    /// Time per layer of all calls on files (Figure 2b).
    pub layers: Measured<LayerTimes>,
    /// Time per layer of each family of calls.
    pub layers_by_call: Vec<CallLayers>,
    /// Requests by purpose (object data, object metadata, index, ...) and operation.
    pub io: Measured<Vec<KindOfIo>>,
    /// Chains of reads and of writes.
    pub chains: Measured<Vec<Chains>>,
    /// One heat map for each device of the scope.
    pub heatmaps: Vec<Heatmap>,
    /// Activity of the kernel's caches.
    pub caches: Caches,
    /// Waits for kernel locks.
    pub locks: Measured<LockTime>,
    /// CPU time of the whole recording, also in the metrics of a phase.
    pub cpu: Measured<CpuTime>,
}

/// The cost of traced requests on a modelled device (Figure 6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// Name of the device model.
    pub device: String,
    /// Source of the model's parameters.
    pub source: String,
    /// Time that the device is busy, in seconds summed over its parallel units (a disk's arm, a flash drive's dies).
    pub busy_seconds: f64,
    /// Time from the arrival of the first request to the last completion in the replay, seconds.
    pub seconds: f64,
    /// Cost of each kind of I/O.
    pub by_kind: Vec<WhatIfKind>,
}

/// The cost of one kind of I/O in a [`WhatIf`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhatIfKind {
    /// Purpose.
    pub kind: Kind,
    /// Number of requests.
    pub requests: u64,
    /// Time in the block layer as measured, seconds summed over requests.
    pub host_seconds: f64,
    /// Time on the modelled device, with the wait for it, seconds summed over requests.
    pub device_seconds: f64,
}

/// Throughput at one point of the fio sweep (Figure 2a).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThroughputPoint {
    /// `raw` or the file system's name.
    pub target: String,
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Number of threads.
    pub threads: u32,
    /// Throughput, bytes per second.
    pub bytes_per_second: f64,
}

/// The result of one workload on one system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// Name of the workload: `enumerate`, `W-O`, `R-O`, `R-W`, or another.
    pub workload: String,
    /// Scale and settings for reports, one line.
    pub scale: String,
    /// Execution time, seconds.
    pub seconds: f64,
    /// Operations that succeeded.
    pub operations: u64,
    /// Bytes of object content transferred.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Latency of operations: (name, seconds), such as `("p50", 0.004)`.
    pub latency: Vec<(String, f64)>,
    /// Metrics of the trace; `None` for an untraced run.
    pub metrics: Option<Metrics>,
    /// Cost of the traced requests on modelled devices.
    pub what_if: Vec<WhatIf>,
}

/// The results of one system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemResult {
    /// Name, such as `MinIO on XFS`.
    pub system: String,
    /// Properties to state with the results, such as version, device, memory limit and durability: (name, value).
    pub about: Vec<(String, String)>,
    /// Metrics that the kernel could provide during the runs.
    pub capabilities: Capabilities,
    /// Results of the fio sweep of Figure 2a on this system's kind of device, if it ran.
    pub throughput: Vec<ThroughputPoint>,
    /// Results of its workloads.
    pub workloads: Vec<WorkloadResult>,
}

/// Reasons why a trace or report cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Tracefs is missing or may not be used.
    #[error("{path}: {source}; run as root, and mount tracefs: mount -t tracefs tracefs /sys/kernel/tracing")]
    NoTracefs {
        /// Path that was tried.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A kernel file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The scope cannot be traced; the message tells why and what to do.
    #[error("{0}")]
    Scope(String),
    /// A kernel file has an unknown format.
    #[error("{path}: {what}")]
    Format {
        /// Path.
        path: PathBuf,
        /// Description of the problem.
        what: String,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        })
    }
}
