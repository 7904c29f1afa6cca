//! Messages about batches on the control socket. Fields are added, never changed.

use serde::{Deserialize, Serialize};

/// A request about batches. Paths are in hexadecimal, as names need not be text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "batch", rename_all = "kebab-case")]
pub(crate) enum BatchRequest {
    /// Put a subtree into batch mode.
    Begin {
        /// The path of the directory from the mount's root.
        path_hex: String,
        /// The mount point.
        mount_point_hex: String,
    },
    /// End the batch of a subtree, and merge it.
    End {
        /// As in `Begin`.
        path_hex: String,
        /// How long to wait for pending uploads.
        patience_secs: u64,
        /// Whether to merge in the background, so that the answer is `Submitted`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lazy: bool,
    },
    /// List the batches that are open, or merged and not forgotten.
    List,
    /// Report the progress of a batch.
    Progress {
        /// Id of the batch; none for the only open one.
        id: Option<String>,
        /// Maximum number of directories.
        directories: usize,
    },
    /// List the first refused ops of a batch from an index on.
    Conflicts {
        /// Id of the batch.
        id: String,
        /// The least index.
        from: u64,
    },
    /// Make a refused op again, on the present names.
    Retry {
        /// Id of the batch.
        id: String,
        /// Index of the op.
        index: u64,
    },
    /// Remove the record of a refused op.
    Forget {
        /// Id of the batch.
        id: String,
        /// Index of the op.
        index: u64,
    },
    /// Drop an open batch, or forget one that has ended, with its refused ops.
    Discard {
        /// Id of the batch.
        id: String,
    },
}

/// An answer about batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "batch", rename_all = "kebab-case")]
pub(crate) enum BatchAnswer {
    /// Answer to `Begin`.
    Begun {
        /// Id of the batch.
        id: String,
        /// Whether an open batch was mounted again.
        resumed: bool,
        /// Id of the last batch of the directory, if it has expired.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expired: Option<String>,
    },
    /// Answer to `End`.
    Merged {
        /// Id of the batch.
        id: String,
        /// Number of ops that were added.
        accepted: u64,
        /// Number of ops that were refused, or added under another name.
        refused: u64,
        /// Whether an earlier call had merged the batch already.
        earlier: bool,
        /// The name of the server that has verified the batch, if it was another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verifier: Option<String>,
    },
    /// Answer to `End` with `lazy`.
    Submitted {
        /// Id of the batch.
        id: String,
    },
    /// Answer to `List`.
    Batches {
        /// The batches, by id.
        batches: Vec<BatchInfo>,
    },
    /// Answer to `Progress`.
    Progress {
        /// The progress.
        progress: Box<BatchProgress>,
    },
    /// Answer to `Conflicts`: some refused ops, by index; none at the end.
    Conflicts {
        /// The refused ops.
        conflicts: Vec<BatchConflict>,
    },
    /// Answer to `Retry` and `Forget`.
    Resolved {
        /// The op, as text.
        op: String,
    },
    /// Answer to `Discard`.
    Discarded,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchInfo {
    /// Its id.
    pub(crate) id: String,
    /// Path of the directory from the mount's root, lossy where it is not text; none if the directory is gone.
    pub(crate) path: Option<String>,
    /// Time of the beginning.
    pub(crate) began: String,
    /// `mounted`, `submitted`, `merging`, `suspended`, `lost`, `merged` or `expired`; `busy` while a batch is being begun or ended.
    pub(crate) state: String,
    /// Time of the merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) merged: Option<String>,
    /// Time of the last change of an open or expired batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_change: Option<String>,
    /// Time at which an open batch expires if nothing is written to it; none if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<String>,
    /// Seconds until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in_secs: Option<u64>,
    /// Time at which the batch expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expired: Option<String>,
    /// Why the last attempt failed to merge a batch in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    /// Ops so far of an open or expired batch; ops that were added by a merge.
    pub(crate) ops: u64,
    /// Refused ops.
    #[serde(default)]
    pub(crate) refused: u64,
}

/// Returns a path from the mount's root as text for users.
pub(crate) fn path_text(path: Option<&str>) -> String {
    path.map_or("(removed)".to_owned(), |path| format!("/{path}"))
}

/// The progress of a batch. Counts only grow, and are those of some recent moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchProgress {
    /// The batch.
    pub(crate) batch: BatchInfo,
    /// Files that were created.
    pub(crate) files: u64,
    /// Directories that were created.
    pub(crate) directories: u64,
    /// Names that were removed.
    pub(crate) removed: u64,
    /// Renames.
    pub(crate) renames: u64,
    /// Contents that were stored.
    pub(crate) writes: u64,
    /// Length of these contents, in bytes.
    pub(crate) bytes: u64,
    /// The directories in which most was stored.
    pub(crate) largest: Vec<BatchDirectory>,
    /// Number of other directories with changes.
    pub(crate) other_directories: u64,
}

impl BatchProgress {
    /// Returns the progress of a batch of which only the record is known.
    pub(crate) fn unknown(batch: BatchInfo) -> Self {
        let (files, directories, removed, renames, writes, bytes) = Default::default();
        let (largest, other_directories) = Default::default();
        Self { batch, files, directories, removed, renames, writes, bytes, largest, other_directories }
    }
}

/// Counts and sizes of a directory in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchDirectory {
    /// Path from the mount's root, lossy where it is not text; none if the directory is gone.
    pub(crate) path: Option<String>,
    /// Names that were added.
    pub(crate) added: u64,
    /// Names that were removed.
    pub(crate) removed: u64,
    /// Length of the contents that were stored, in bytes.
    pub(crate) bytes: u64,
}

/// A refused op.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchConflict {
    /// Index of the op in the batch.
    pub(crate) index: u64,
    /// The op, as text.
    pub(crate) op: String,
    /// The reason.
    pub(crate) why: String,
    /// Path from the mount's root of the file that keeps the bytes, lossy where it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept_as: Option<String>,
}
