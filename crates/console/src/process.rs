//! The interface between the pages and the process that they show.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The facts and operations of a process. The implementations carry operations out as commands of `tenon` do.
#[async_trait::async_trait]
pub trait Process: Send + Sync + 'static {
    /// Returns the name of what the process serves, such as the URL of its volume.
    fn name(&self) -> String;

    /// Returns which pages the process has contents for.
    fn abilities(&self) -> Abilities;

    /// Returns the state of the process, in the order in which it is shown.
    fn report(&self) -> Vec<Section>;

    /// Returns the values of all metrics by the names of their samples with their labels, such as `name{label="value"}`.
    fn samples(&self) -> BTreeMap<String, f64>;

    /// Returns the unresolved conflicts, the oldest first.
    async fn conflicts(&self) -> Vec<Conflict>;

    /// Resolves the conflict with an id. The error is one line for the user, as for the operations below.
    async fn resolve_conflict(&self, id: &str, keep: Keep) -> Result<(), String>;

    /// Returns the batches that are open, or merged and not forgotten.
    async fn batches(&self) -> Result<Vec<Batch>, String>;

    /// Returns a page of the refused changes of a merged batch, from an index on; empty if there are no further ones.
    async fn refused_changes(&self, batch: &str, from: u64) -> Result<Vec<RefusedChange>, String>;

    /// Drops an open batch with its changes, or forgets a merged one with the list of its refused changes.
    async fn discard_batch(&self, id: &str) -> Result<(), String>;

    /// Returns the views.
    fn views(&self) -> Vec<View>;

    /// Returns the rulesets of the views as YAML; empty without views.
    fn rulesets(&self) -> String;

    /// Returns the drives.
    fn drives(&self) -> Vec<Drive>;

    /// Reads everything on the drives and repairs what can be repaired. `objects` is the number of objects read so far.
    /// Returns an outcome for each drive.
    async fn scrub(&self, objects: Arc<AtomicU64>) -> Result<Vec<ScrubOutcome>, String>;

    /// Returns the path of the log file; `None` if the log goes to standard error.
    fn log_file(&self) -> Option<PathBuf>;
}

/// The pages that a process has contents for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abilities {
    /// Whether there is a namespace of files, which can have conflicts.
    pub files: bool,
    /// Whether the files are mounted on this machine, so that there can be batches.
    pub mounted: bool,
    /// Whether there are drives.
    pub drives: bool,
}

/// Facts about one part of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Title of the part.
    pub title: String,
    /// The facts.
    pub facts: Vec<Fact>,
}

/// A fact: a label and a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The label.
    pub label: String,
    /// The value.
    pub value: String,
    /// Whether the value needs attention.
    pub tone: Tone,
}

/// The attention that a fact or a notice needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// No attention.
    #[default]
    Plain,
    /// No attention: all is as it should be.
    Good,
    /// Some attention.
    Warning,
    /// An operator must act.
    Failure,
}

/// An unresolved conflict: two sides claim one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Id of the conflict.
    pub id: String,
    /// Path of the file, lossy where it is not text.
    pub path: String,
    /// Key that both sides claim.
    pub key: String,
    /// Time when the conflict was found (RFC 3339).
    pub at: String,
    /// Policy that was applied.
    pub policy: String,
    /// Location of the file's bytes; `None` if the file was replaced before its object moved to its new name.
    pub file: Option<Side>,
    /// Location of the bucket's bytes; `None` if the object was deleted.
    pub bucket: Option<Side>,
    /// Whether all bytes of the file were kept. Otherwise nothing is left of it, or some ranges are zeros.
    pub all_bytes_kept: bool,
    /// Whether the path refuses writes until the conflict is resolved.
    pub blocks: bool,
}

/// Location of one side of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Key of the object.
    pub key: String,
    /// Etag of the object when it was stored.
    pub etag: String,
}

/// The side of a conflict that gets the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The bucket's object.
    Bucket,
    /// The file that was written here.
    File,
    /// Both, as two files.
    Both,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Id of the batch.
    pub id: String,
    /// Path of the directory whose changes it collects; `None` if the directory is gone.
    pub path: Option<String>,
    /// Time when the batch began (RFC 3339).
    pub began: String,
    /// State of the batch: `mounted`, `suspended`, `submitted`, `merging`, `lost` or `merged`.
    pub state: String,
    /// Number of changes: of a mounted batch those so far, of a merged one those that were added; otherwise 0.
    pub changes: u64,
    /// Number of changes that the merge refused; 0 before the merge.
    pub refused: u64,
}

/// A change of a batch that the merge refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedChange {
    /// Index of the change in the batch.
    pub index: u64,
    /// The change, as text.
    pub change: String,
    /// Reason of the refusal.
    pub reason: String,
    /// Path of the file that keeps the bytes of the change; `None` if there is none.
    pub kept_as: Option<String>,
}

/// A view: a directory with the objects that match a ruleset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Name of the view's directory.
    pub name: String,
    /// Number of objects in the view.
    pub objects: u64,
    /// Reasons why the view may be out of date or incomplete; empty if it is current.
    pub problems: Vec<String>,
}

/// A drive: objects on a device or an array of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Id of the drive.
    pub id: String,
    /// Length of the drive in bytes.
    pub len_bytes: u64,
    /// Free space in bytes.
    pub available_bytes: u64,
    /// Length of a zone in bytes.
    pub zone_bytes: u64,
    /// Length of the log that the drive would read when it is opened after a crash, in bytes.
    pub log_bytes: u64,
    /// The zones, in order.
    pub zones: Vec<Zone>,
    /// The devices of an array; empty without one.
    pub members: Vec<Member>,
}

/// The use of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// No data: the zone is free, or set aside for the log.
    Free,
    /// Runs of long objects and of the index; the bytes in use.
    Runs(u64),
    /// Frames of the log with small objects; the bytes of objects that still exist.
    Pack(u64),
}

/// A device of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of the device; empty if it is missing.
    pub device: String,
    /// State of the device: `in sync`, `stale` or `missing`.
    pub state: String,
    /// Whether the device is in sync.
    pub is_in_sync: bool,
}

/// The outcome of the scrub of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubOutcome {
    /// Number of objects read, older versions and parts of uploads included.
    pub objects: u64,
    /// Length of these objects in bytes.
    pub bytes: u64,
    /// Number of blocks that were repaired since the last scrub or the opening of the drive.
    pub repaired: u64,
    /// Damage that could not be repaired, one line each.
    pub damaged: Vec<String>,
}
