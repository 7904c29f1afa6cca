//! What is traced, and what comes of it: the types that recording, metrics, reports and comparisons share.
//!
//! Times are nanoseconds of the kernel's monotonic clock, sizes are bytes, places on a device are sectors of 512
//! bytes. A number that the kernel could not give is a [`Measured::NotAvailable`] with its reason, never a zero.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// Bytes of a sector, the unit of the block layer's addresses.
pub const SECTOR_BYTES: u64 = 512;

/// Chains at least this long give a device's full bandwidth (section 3.2 of the paper, after Conway).
pub const NATURAL_TRANSFER_BYTES: u64 = 4 << 20;

/// What is traced.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The block devices that hold the node's data, such as `/dev/loop3` or `/dev/sda1`; none that is made of others, as by LVM.
    pub devices: Vec<PathBuf>,
    /// Where the file systems on them are mounted; none for a node that writes to the raw device.
    pub mounts: Vec<PathBuf>,
    /// The node's processes: their calls are traced, and those of the threads and children they start later.
    pub processes: Vec<u32>,
    /// How the node names its files, or which regions its raw device has.
    pub naming: Naming,
    /// After so many events the rest are counted as lost; 32 bytes of memory each. 0: the default.
    pub events_max: usize,
}

/// How to tell object data from object metadata.
#[derive(Debug, Clone, Default)]
pub enum Naming {
    /// Every file's content is object data, metadata is in extended attributes: Tenon's directory store.
    #[default]
    Files,
    /// `xl.meta` is object metadata (and holds small objects whole), `.minio.sys` outside `tmp` is index, the rest data.
    Minio,
    /// A raw device: what lies in which of its regions, which do not overlap; sectors in none are not told apart.
    Regions(Vec<Region>),
}

/// A part of a raw device that holds one kind of bytes; of object data, those of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Sectors of 512 bytes.
    pub sectors: Range<u64>,
    /// What is there.
    pub kind: Kind,
}

/// What an I/O is for (section 5.1 of the paper: OD, OM, FSM).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Bytes of objects.
    ObjectData,
    /// The store's description of objects, where it has files or regions of its own.
    ObjectMetadata,
    /// The store's index and settings.
    Index,
    /// Inodes, directories, extended attributes, journal: what the file system marks `REQ_META`, or does for no file.
    FileSystemMetadata,
    /// Not told apart: a file that was gone before its inode could be named, a place on a raw device of which nobody says
    /// what it holds or which holds several kinds, a flush, which is of all that was written.
    Unnamed,
}

impl Kind {
    /// All, in the order of reports.
    pub const ALL: [Kind; 5] =
        [Kind::ObjectData, Kind::ObjectMetadata, Kind::Index, Kind::FileSystemMetadata, Kind::Unnamed];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ObjectData => "object data",
            Kind::ObjectMetadata => "object metadata",
            Kind::Index => "index",
            Kind::FileSystemMetadata => "file-system metadata",
            Kind::Unnamed => "not told apart",
        }
    }
}

/// What a request asks of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Bytes from the device.
    Read,
    /// Bytes to the device.
    Write,
    /// What was written must outlast loss of power.
    Flush,
    /// Sectors are no longer needed.
    Discard,
}

/// A number with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured<T> {
    /// Seen.
    Is {
        /// The number.
        value: T,
        /// The tracepoints or files of the kernel that gave it.
        source: String,
        /// What it stands for, if it is not the thing itself.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        proxy_for: Option<String>,
    },
    /// This kernel does not show it.
    NotAvailable {
        /// Why not, one line.
        why: String,
    },
}

impl<T> Measured<T> {
    /// The number, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Measured::Is { value, .. } => Some(value),
            Measured::NotAvailable { .. } => None,
        }
    }
}

/// A metric, and whether this kernel can give it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// The metric's name in reports.
    pub metric: String,
    /// The tracepoints it is made of, and what it is a proxy for; or why it is not available.
    pub source: Measured<()>,
}

/// What this kernel can show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities(pub Vec<Capability>);

/// One request to a device, from the block layer's queue to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Index of the device in the scope.
    pub device: usize,
    /// What is asked.
    pub operation: Operation,
    /// What for.
    pub kind: Kind,
    /// First sector.
    pub sector: u64,
    /// Bytes; 0 for a flush.
    pub size_bytes: u64,
    /// Entered the block layer (`block_bio_queue`), ns.
    pub queued_ns: u64,
    /// Went to the driver (`block_rq_issue`), ns.
    pub issued_ns: u64,
    /// Came back (`block_rq_complete`), ns.
    pub completed_ns: u64,
    /// The file it was for, or else (the top bit set) the thread that asked: what a chain is of.
    pub stream: u64,
    /// On the medium when complete (`F` after the letter of the operation).
    pub forced: bool,
}

impl Request {
    /// Set in the streams that are threads.
    pub(crate) const THREAD_STREAM: u64 = 1 << 63;

    /// Whether the stream is a file.
    pub fn is_of_file(&self) -> bool {
        self.stream & Self::THREAD_STREAM == 0
    }
}

/// A cumulative distribution: of all that was counted, `share` has at most `at_most`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many were counted.
    pub count: u64,
    /// Steps in growing order; the last share is 1.
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

/// Time spent in each layer by the node's calls (Figure 2b), in seconds summed over threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerTimes {
    /// Calls counted.
    pub calls: u64,
    /// In calls before the file system's first tracepoint, and in calls that never reached it.
    pub vfs_seconds: f64,
    /// From the file system's first tracepoint on, less what is below.
    pub file_system_seconds: f64,
    /// From queue to issue.
    pub block_seconds: f64,
    /// From issue to completion.
    pub device_seconds: f64,
}

impl LayerTimes {
    /// All layers.
    pub fn total_seconds(&self) -> f64 {
        self.vfs_seconds + self.file_system_seconds + self.block_seconds + self.device_seconds
    }
}

/// [`LayerTimes`] of one family of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallLayers {
    /// `read`, `write`, `flush`, `names` (open, stat, rename, list, attributes) or `ring` (io_uring).
    pub family: String,
    /// The times.
    pub times: LayerTimes,
}

/// Requests of one kind and operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindOfIo {
    /// What for.
    pub kind: Kind,
    /// What.
    pub operation: Operation,
    /// Requests to the device.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From queue to issue, seconds summed over requests.
    pub queued_seconds: f64,
    /// From issue to completion, seconds summed over requests.
    pub device_seconds: f64,
    /// Sizes of requests.
    pub sizes: Distribution,
}

/// Runs of requests with adjacent sectors in the order of submission (section 3.2): of object data, each object by itself
/// (a file; on a raw device a region).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chains {
    /// Read or write.
    pub operation: Operation,
    /// Lengths of each object's own: several that read one object at once make chains of their own.
    pub per_stream: Distribution,
    /// Lengths as the device sees all requests, whoever asks, of every kind.
    pub global: Distribution,
    /// Share of the object data's chains, by their number, that are at least the natural transfer size, from 0 to 1.
    pub natural: f64,
    /// Share of the object data's bytes that lie in chains of at least the natural transfer size, from 0 to 1.
    pub bytes_in_natural: f64,
}

/// Where on the device I/O went, and when (Figure 4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// The device.
    pub device: String,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Time of the first column's left edge, ns from the start of the trace.
    pub begin_ns: u64,
    /// Nanoseconds that a column stands for.
    pub column_ns: u64,
    /// Columns, left to right.
    pub columns: usize,
    /// Rows, the lowest address first.
    pub rows: usize,
    /// Cells that saw I/O.
    pub cells: Vec<HeatCell>,
}

/// Bytes moved in one cell of a [`Heatmap`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeatCell {
    /// From 0.
    pub column: u32,
    /// From 0.
    pub row: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// What the kernel's caches did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Caches {
    /// Names that the dentry cache did not have.
    pub dentry_misses: Measured<u64>,
    /// Inodes that the inode cache did not have.
    pub inode_misses: Measured<u64>,
    /// Pages of files brought into the page cache for reading or writing.
    pub page_insertions: Measured<u64>,
    /// Pages that left the page cache.
    pub page_evictions: Measured<u64>,
    /// Reads that found pages missing, of all reads through the page cache, from 0 to 1.
    pub page_miss_ratio: Measured<f64>,
}

/// Time that the node's threads waited for the kernel's locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockTime {
    /// Waits.
    pub waits: u64,
    /// Seconds summed over threads.
    pub seconds: f64,
}

/// Processor time between start and stop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// The node in its own code, seconds.
    pub node_user_seconds: f64,
    /// The node in the kernel, seconds.
    pub node_system_seconds: f64,
    /// The kernel's own threads (write-back, journal, loop devices) of the whole machine, seconds.
    pub kernel_workers_seconds: f64,
}

/// What a trace says (section 3.2's metrics).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Length of the trace or phase, seconds.
    pub seconds: f64,
    /// Events that the kernel or the reader had no room for: above 0, counts are lower bounds.
    pub lost_events: u64,
    /// Time per layer of all calls that did I/O (Figure 2b).
    pub layers: Measured<LayerTimes>,
    /// The same by family of calls.
    pub layers_by_call: Vec<CallLayers>,
    /// Requests by kind and operation.
    pub io: Measured<Vec<KindOfIo>>,
    /// Chains of reads and of writes.
    pub chains: Measured<Vec<Chains>>,
    /// One map for each device of the scope.
    pub heatmaps: Vec<Heatmap>,
    /// Caches.
    pub caches: Caches,
    /// Locks.
    pub locks: Measured<LockTime>,
    /// Processor time; of the whole recording, also where the rest is of a phase.
    pub cpu: Measured<CpuTime>,
}

/// What the same requests would cost on a device of given parameters (Figure 6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// The model's name.
    pub device: String,
    /// Where its parameters are from.
    pub source: String,
    /// Seconds that the device is busy, summed over its parts that work at once.
    pub busy_seconds: f64,
    /// From the first request's arrival to the last's end if each is sent when the trace sent it, seconds.
    pub seconds: f64,
    /// By kind.
    pub by_kind: Vec<WhatIfKind>,
}

/// A kind's part of a [`WhatIf`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhatIfKind {
    /// What for.
    pub kind: Kind,
    /// Requests.
    pub requests: u64,
    /// Time in the block layer as measured, seconds summed over requests.
    pub host_seconds: f64,
    /// Time on the modelled device, waiting for it included, seconds summed over requests.
    pub device_seconds: f64,
}

/// Throughput of one cell of the thread sweep (Figure 2a).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThroughputPoint {
    /// `raw` or the file system's name.
    pub target: String,
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

/// One workload on one system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// `enumerate`, `W-O`, `R-O`, `R-W`, or another.
    pub workload: String,
    /// Scale and settings, for people: one line.
    pub scale: String,
    /// Execution time, seconds.
    pub seconds: f64,
    /// Operations that succeeded.
    pub operations: u64,
    /// Bytes of objects moved.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Latency of operations: (name, seconds), such as `("p50", 0.004)`.
    pub latency: Vec<(String, f64)>,
    /// What the trace said; absent for an untraced run.
    pub metrics: Option<Metrics>,
    /// The same requests on modelled devices.
    pub what_if: Vec<WhatIf>,
}

/// A system compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemResult {
    /// Such as `MinIO on XFS`.
    pub system: String,
    /// What is stated of it: version, device, memory for caches, when it flushes. (name, value)
    pub about: Vec<(String, String)>,
    /// What the kernel could show while it ran.
    pub capabilities: Capabilities,
    /// Figure 2a's sweep, if one ran on its device.
    pub throughput: Vec<ThroughputPoint>,
    /// Its workloads.
    pub workloads: Vec<WorkloadResult>,
}

/// Why there is no trace or report.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The kernel's tracing directory is not there or not ours to use.
    #[error(
        "{path}: {source}; tracing needs root, and tracefs mounted: mount -t tracefs tracefs /sys/kernel/tracing"
    )]
    NoTracefs {
        /// What was tried.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file of the kernel could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is to be traced is not what it should be.
    #[error("{0}")]
    Scope(String),
    /// The kernel says something in a form that is not known.
    #[error("{path}: {what}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// What was found.
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
