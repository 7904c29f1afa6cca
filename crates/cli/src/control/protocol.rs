//! Messages of the control socket. Fields are added, never changed.

use super::batch_protocol::{BatchAnswer, BatchInfo, BatchRequest};
use super::cache_messages::{DiskCacheReport, SharedCacheReport, WarmUp};
pub(crate) use super::conflict_messages::{Conflict, Side};
pub(crate) use super::drive_messages::{Rebuild, Scrubbed};
use super::event_reports::{FeedReport, HintReport};
use super::live_messages::{Activity, TraceBatch, TraceFilter};
use super::profile_row::ProfileRow;
use super::verification_protocol::{VerificationAnswer, VerifierRequest};
use crate::process::rfc3339::rfc3339;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A request of a command to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Return the status of the mount.
    Status,
    /// Store pending changes, then unmount and end. With several mount points, unmount one of them.
    Unmount {
        /// The mount point, its bytes in hexadecimal; none means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mount_point_hex: Option<String>,
        /// Detach at once even if files are open; open files keep working until they are closed.
        lazy: bool,
        /// How long to wait for pending uploads.
        patience_secs: u64,
    },
    /// Find the object of a path in the mount.
    Locate {
        /// The path from the mount's root. Its bytes are in hexadecimal, as names need not be text.
        path_hex: String,
    },
    /// Find the path of an object in the mount.
    PathOf {
        /// The object's key, its bytes in hexadecimal.
        key_hex: String,
    },
    /// Fill the disk cache with the files at and below a path.
    WarmUp {
        /// The path from the mount's root, as in `Locate`.
        path_hex: String,
    },
    /// Return a directory's quota.
    Quota {
        /// The path from the mount's root, as in `Locate`.
        path_hex: String,
        /// The change to make first, if any.
        change: Option<QuotaChange>,
    },
    /// Return the samples of all metrics.
    Metrics {
        /// How long to measure the times of the kernel's requests from now on, in seconds.
        #[serde(default)]
        measure_secs: u64,
    },
    /// Record the operations of programs by process.
    Profile {
        /// How long to record, in seconds.
        secs: u64,
    },
    /// Report operations until the client disconnects.
    Trace(TraceFilter),
    /// Report the activity of each interval until the client disconnects.
    Activity {
        /// Length of an interval in milliseconds.
        interval_ms: u64,
    },
    /// Check the invariants of the metadata in use.
    Check,
    /// Find content that no file refers to, and delete it unless `dry_run` is set.
    CollectGarbage {
        /// Only return the keys.
        dry_run: bool,
    },
    /// Dump the metadata, as of one moment, to a file. Done when the bucket has the content that it refers to.
    Dump {
        /// Absolute path of a file that does not exist yet, its bytes in hexadecimal.
        file_hex: String,
        /// How long to wait until the bucket has the content.
        patience_secs: u64,
    },
    /// Make files of objects that other programs stored in a volume named by inode.
    Import,
    /// Rebuild the missing member of an array that the process has open.
    Rebuild(Rebuild),
    /// Scrub the drives that the process has open.
    Scrub {
        /// Bytes to read per second at most; none means no limit.
        bytes_per_sec: Option<u64>,
    },
    /// Begin, end, list or discard batches.
    Batch(BatchRequest),
    /// Take and return batches as a verifier.
    Verification(VerifierRequest),
    /// List the unresolved conflicts.
    Conflicts,
    /// Resolve a conflict.
    ResolveConflict {
        /// Id of the conflict.
        id: String,
        /// The side to keep.
        keep: Keep,
    },
}

impl Request {
    /// Returns whether the request observes the process for a while. Such requests end when the client disconnects.
    pub(crate) fn is_observing(&self) -> bool {
        matches!(self, Self::Profile { .. } | Self::Trace(_) | Self::Activity { .. })
    }
}

/// A message of the daemon. A request is answered by any number of progress messages and one other message; `Trace` and `Activity` are
/// answered again and again, until the client disconnects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// Progress of a request.
    Progress(Pending),
    /// Answer to `Status`.
    Status(Box<Status>),
    /// Answer to `Unmount`: the directory is unmounted. The daemon ends, which closes the connection, unless other
    /// mount points stay.
    Unmounted {
        /// Whether the volume is still mounted on other directories, and the daemon continues.
        #[serde(default)]
        goes_on: bool,
        /// Changes left in the write-back log.
        #[serde(default)]
        backlog_changes: u64,
    },
    /// Answer to `Unmount`: programs still use the mount.
    Busy,
    /// Answer to `Locate`.
    Located(Located),
    /// Answer to `PathOf`.
    PathOf {
        /// Path from the mount's root, lossy where it is not text; none if no file has the object.
        path: Option<String>,
    },
    /// Progress of `WarmUp`.
    WarmingUp(WarmUp),
    /// Answer to `WarmUp`.
    WarmedUp(WarmUp),
    /// Answer to `Quota`: the quota as it is now; none if the directory has none of its own.
    Quota {
        /// Limits and usage.
        quota: Option<Quota>,
    },
    /// Answer to `Metrics`.
    Metrics {
        /// Values by the names of samples with their labels, as in the text for monitoring systems.
        samples: BTreeMap<String, f64>,
    },
    /// Answer to `Profile`.
    Profile {
        /// Operations by process, the longest total time first for each mount point.
        rows: Vec<ProfileRow>,
    },
    /// Answers to `Trace`.
    Traced(TraceBatch),
    /// Answers to `Activity`.
    Activity(Activity),
    /// Answer to `Check`: violated invariants, one line each.
    Checked {
        /// Empty when all invariants hold.
        violations: Vec<String>,
    },
    /// Answer to `CollectGarbage`.
    Collected {
        /// Keys of content that no file refers to, escaped where they are not text.
        keys: Vec<String>,
        /// The packs that were rewritten before.
        #[serde(default)]
        packs: RewrittenPacks,
        /// Whether a batch is open. Then content that files used is kept.
        #[serde(default)]
        is_batch_open: bool,
    },
    /// Answer to `Dump`.
    Dumped {
        /// Records in the file.
        records: u64,
    },
    /// Answer to `Import`.
    Imported {
        /// Paths of the files, lossy where they are not text.
        paths: Vec<String>,
    },
    /// Answer to `Batch`.
    Batch(BatchAnswer),
    /// Answer to `Verification`.
    Verification(VerificationAnswer),
    /// Progress of `Scrub`.
    Scrubbing {
        /// Objects read so far.
        objects: u64,
    },
    /// Progress of `Rebuild`.
    Rebuilding {
        /// Percentage of the device that is rebuilt.
        percent: u64,
    },
    /// Answer to `Rebuild`.
    Rebuilt {
        /// Outcome of the preceding scrub, if there was one.
        scrubbed: Option<Scrubbed>,
        /// Number of the member that the device has become.
        member: usize,
        /// Rows that could not be computed.
        rows_lost: u64,
    },
    /// Answer to `Scrub`.
    Scrubbed {
        /// Outcome for each drive.
        drives: Vec<Scrubbed>,
    },
    /// Answer to `Conflicts`.
    Conflicts {
        /// The conflicts, the oldest first.
        conflicts: Vec<Conflict>,
    },
    /// Answer to `ResolveConflict`.
    Resolved,
    /// The request failed.
    Failed {
        /// The reason, in one line.
        reason: String,
    },
}

/// A change of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum QuotaChange {
    /// Set these limits.
    Set {
        /// Limit on the total length of all files, in bytes.
        bytes: Option<u64>,
        /// Limit on the number of inodes.
        files: Option<u64>,
    },
    /// Remove all limits.
    Remove,
}

/// Limits and usage of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quota {
    /// Limit on the total length of all files, in bytes.
    pub(crate) bytes: Option<u64>,
    /// Total length of all files, in bytes.
    pub(crate) bytes_used: u64,
    /// Limit on the number of inodes.
    pub(crate) files: Option<u64>,
    /// Number of inodes.
    pub(crate) files_used: u64,
}

/// The side of a conflict to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keep {
    /// The bucket's object.
    Bucket,
    /// The file that was written here.
    File,
    /// Both, as two files.
    Both,
}

impl From<Keep> for vfs::Keep {
    fn from(keep: Keep) -> Self {
        match keep {
            Keep::Bucket => Self::Bucket,
            Keep::File => Self::File,
            Keep::Both => Self::Both,
        }
    }
}

/// Packs of which files used less than half, and that are rewritten by a garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RewrittenPacks {
    /// Number of packs.
    pub(crate) count: u64,
    /// Their length, in bytes.
    pub(crate) size_bytes: u64,
    /// The bytes of them that files use.
    pub(crate) used_bytes: u64,
}

/// Changes that are not in the store yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Open files with changes that are not stored.
    pub(crate) dirty_files: u64,
    /// Bytes held for writing.
    pub(crate) write_bytes: u64,
    /// Attribute changes that wait to be stored.
    pub(crate) exports: u64,
    /// Renames whose objects have not all moved.
    #[serde(default)]
    pub(crate) renames: u64,
    /// Changes in the write-back log.
    #[serde(default)]
    pub(crate) backlog_changes: u64,
    /// Length of these changes in bytes.
    #[serde(default)]
    pub(crate) backlog_bytes: u64,
    /// Changes in the log that the bucket refuses for good.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) refused_changes: u64,
    /// Damaged ranges of the write-back log, and its damaged files that are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) damaged: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Location of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Located {
    /// The object's key, escaped where it is not text; none if nothing is stored under a key of the file's own.
    pub(crate) key: Option<String>,
    /// The object as a URL of the store.
    pub(crate) url: Option<String>,
    /// The object's etag, once it is stored.
    pub(crate) etag: Option<String>,
    /// Length in bytes.
    pub(crate) size_bytes: u64,
    /// The inode number in the mount.
    pub(crate) ino: u64,
    /// Ranges of the file, each with the object that holds it.
    #[serde(default)]
    pub(crate) content: Vec<FileExtent>,
}

/// A range of a file, with the object that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileExtent {
    /// Offset of the range in the file, in bytes.
    pub(crate) offset: u64,
    /// Length of the range in bytes.
    pub(crate) len: u64,
    /// The object's key, escaped where it is not text.
    pub(crate) key: String,
    /// The object's etag.
    pub(crate) etag: String,
    /// Offset of the range in the object, in bytes.
    pub(crate) object_offset: u64,
}

/// Status of a mount at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Process id of the daemon.
    pub(crate) pid: u32,
    /// The volume.
    pub(crate) volume: String,
    /// First mount point; empty if the volume is only served as objects.
    pub(crate) mount_point: String,
    /// Further mount points.
    #[serde(default)]
    pub(crate) also: Vec<String>,
    /// URL of the S3 endpoint, if there is one.
    #[serde(default)]
    pub(crate) endpoint: Option<String>,
    /// The daemon's version.
    pub(crate) version: String,
    /// Time since the mount began, in seconds.
    pub(crate) uptime_secs: u64,
    /// Whether changes are refused.
    pub(crate) read_only: bool,
    /// Whether the process is ending: it stores pending changes, and the volume can no longer be reached through it.
    #[serde(default)]
    pub(crate) ending: bool,
    /// URL of the metrics, if they are served.
    #[serde(default)]
    pub(crate) metrics: Option<String>,
    /// URL of the console, if it is served.
    #[serde(default)]
    pub(crate) console: Option<String>,
    /// State directory.
    #[serde(default)]
    pub(crate) state_dir: String,
    /// Log file; none if the log is standard error.
    #[serde(default)]
    pub(crate) log_file: Option<String>,
    /// Whether names are only in the state directory, and lost with it.
    #[serde(default)]
    pub(crate) names_only_here: bool,
    /// State of the backup of the metadata in the bucket; none if it is off.
    #[serde(default)]
    pub(crate) backup: Option<BackupReport>,
    /// The server of the bucket, where one was named.
    #[serde(default)]
    pub(crate) server: Option<String>,
    /// Whether buckets without a namespace of files are served.
    #[serde(default)]
    pub(crate) is_buckets: bool,
    /// Total and free disk space for the objects, in bytes; none if it is unknown.
    #[serde(default)]
    pub(crate) room_bytes: Option<(u64, u64)>,
    /// Whether other machines may mount the bucket too (`--shared`).
    #[serde(default)]
    pub(crate) shared: bool,
    /// Open files and directories.
    pub(crate) open_handles: u64,
    /// Changes that are not in the store yet.
    pub(crate) pending: Pending,
    /// Objects moved after renames since the mount began.
    #[serde(default)]
    pub(crate) objects_moved: u64,
    /// Reason of the last failure to move renamed objects.
    #[serde(default)]
    pub(crate) move_failure: Option<String>,
    /// Bytes of file data cached for reading.
    pub(crate) read_bytes: u64,
    /// Figures of the disk cache; none if there is none.
    #[serde(default)]
    pub(crate) disk_cache: Option<DiskCacheReport>,
    /// Figures of the shared cache; none if there is none.
    #[serde(default)]
    pub(crate) shared_cache: Option<SharedCacheReport>,
    /// Bytes of metadata in memory.
    pub(crate) metadata_bytes: u64,
    /// Failure after which the metadata engine refuses all changes until the volume is mounted again.
    #[serde(default)]
    pub(crate) metadata_failure: Option<String>,
    /// Approximate memory for the views' knowledge of objects, in bytes. It is part of the memory limit.
    #[serde(default)]
    pub(crate) views_bytes: u64,
    /// Inodes that the kernel remembers.
    pub(crate) kernel_inodes: u64,
    /// The memory limit.
    pub(crate) memory_limit_bytes: u64,
    /// Policy for conflicts.
    #[serde(default)]
    pub(crate) conflict_policy: String,
    /// Number of unresolved conflicts.
    #[serde(default)]
    pub(crate) conflicts: u64,
    /// State of the background lister; none if it is off.
    #[serde(default)]
    pub(crate) lister: Option<Lister>,
    /// Requests to the store, by operation.
    pub(crate) store_requests: BTreeMap<String, u64>,
    /// Requests from the kernel, by operation.
    pub(crate) fuse_requests: BTreeMap<String, u64>,
    /// Event counts by webhook receiver.
    #[serde(default)]
    pub(crate) webhooks: BTreeMap<String, Webhook>,
    /// Changes for which no event was sent.
    #[serde(default)]
    pub(crate) events_lost: u64,
    /// State of the views.
    #[serde(default)]
    pub(crate) views: Vec<View>,
    /// Objects in renamed directories of views that the store refuses to move, each with the reason.
    #[serde(default)]
    pub(crate) moves_refused: Vec<String>,
    /// Batches that are open, or have expired and are not forgotten.
    #[serde(default)]
    pub(crate) batches: Vec<BatchInfo>,
    /// State of the event sources.
    #[serde(default)]
    pub(crate) event_sources: Vec<EventSource>,
}

/// State of the backup of the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupReport {
    /// Age of the moment as of which the backup is complete, in seconds; none if there is no backup.
    pub(crate) age_secs: Option<u64>,
    /// Age of the newest snapshot in seconds.
    pub(crate) snapshot_age_secs: Option<u64>,
    /// Number of the generation, which increases with each opening; 0 before the first one.
    pub(crate) generation: u32,
    /// Interval of the passes in seconds.
    pub(crate) interval_secs: u64,
    /// Reason why the last pass failed.
    pub(crate) failure: Option<String>,
}

impl BackupReport {
    /// Returns whether the last pass failed, or the backup is older than it should be.
    pub(crate) fn is_late(&self) -> bool {
        self.failure.is_some() || self.age_secs.is_some_and(|age| age > 2 * self.interval_secs + 1)
    }
}

/// State of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Name of the view's directory.
    pub(crate) name: String,
    /// Number of objects in the view, as far as it is known.
    pub(crate) objects: u64,
    /// Reason why the handler does not answer; none if it does.
    pub(crate) lost: Option<String>,
    /// Buckets that cannot be read, each with the reason.
    pub(crate) unlisted: Vec<String>,
}

/// State of an event source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventSource {
    /// URL of the source.
    pub(crate) url: String,
    /// Messages received.
    pub(crate) messages: u64,
    /// Hints in these messages.
    pub(crate) hints: u64,
    /// Messages that could not be read.
    pub(crate) unreadable: u64,
    /// Failures of the source, or of a receiver of its hints.
    pub(crate) failures: u64,
    /// Whether the source answered the last request.
    pub(crate) connected: bool,
    /// Age of the newest hint in the last messages when all its receivers had taken it, in milliseconds.
    pub(crate) lag_ms: u64,
    /// Messages that wait in the source; `None` if the source does not tell.
    pub(crate) waiting: Option<u64>,
    /// Outcomes of the hints in views.
    pub(crate) outcomes: Option<HintReport>,
    /// The last failure.
    pub(crate) last_error: Option<String>,
}

impl From<FeedReport> for EventSource {
    fn from(feed: FeedReport) -> Self {
        Self {
            url: feed.source,
            messages: feed.messages,
            hints: feed.hints,
            unreadable: feed.unreadable,
            failures: feed.failures,
            connected: feed.connected,
            lag_ms: feed.lag_ms,
            waiting: feed.waiting,
            outcomes: feed.outcomes,
            last_error: feed.last_error,
        }
    }
}

impl Status {
    /// Returns all mount points.
    pub(crate) fn mount_points(&self) -> impl Iterator<Item = &str> {
        let all = [&self.mount_point].into_iter().chain(&self.also);
        all.map(String::as_str).filter(|path| !path.is_empty())
    }
}

/// Event counts of a webhook receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Webhook {
    /// Events that wait or are being sent.
    pub(crate) queued: u64,
    /// Events that the receiver accepted.
    pub(crate) sent: u64,
    /// Requests that were retried.
    pub(crate) retried: u64,
    /// Events written to the dead letters.
    pub(crate) failed: u64,
    /// Events that are lost.
    pub(crate) dropped: u64,
}

/// Formats the numbers for `tenon status`.
impl fmt::Display for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queued, sent, retried, failed, dropped } = self;
        write!(f, "{sent} sent, {queued} queued, {retried} retried, {failed} failed, {dropped} dropped")
    }
}

/// State of the background lister, with counts since the mount began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lister {
    /// Interval of requests, in milliseconds.
    pub(crate) every_ms: u64,
    /// Whether the lister pauses, as the mount has not been used for a while.
    pub(crate) idle: bool,
    /// Directory that is being listed, lossy where it is not text.
    pub(crate) dir: String,
    /// Time when the last full round ended (RFC 3339).
    pub(crate) finished_at: Option<String>,
    /// Number of requests.
    pub(crate) requests: u64,
    /// Names that were found changed or gone.
    pub(crate) changes: u64,
}

impl Lister {
    /// Returns the state of the lister; `None` if it is off.
    pub(crate) fn of(status: &vfs::ListerStatus) -> Option<Self> {
        Some(Self {
            every_ms: u64::try_from(status.every?.as_millis()).unwrap_or(u64::MAX),
            idle: status.is_idle,
            dir: String::from_utf8_lossy(&status.dir).into_owned(),
            finished_at: status.finished_at.map(rfc3339),
            requests: status.requests,
            changes: status.changes,
        })
    }
}

/// Formats pending changes for progress and summaries.
impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            f.write_str("everything is stored")?;
        } else {
            write!(f, "{} dirty files, {} attribute exports to store", self.dirty_files, self.exports)?;
        }
        if self.renames > 0 {
            write!(f, ", {} renames to finish in the bucket", self.renames)?;
        }
        if self.backlog_changes > 0 {
            let (changes, bytes) = (self.backlog_changes, self.backlog_bytes);
            write!(f, ", {changes} changes with {bytes} bytes in the write-back log")?;
        }
        if self.refused_changes > 0 {
            write!(f, ", {} of them refused by the bucket (see the log)", self.refused_changes)?;
        }
        if self.damaged > 0 {
            write!(
                f,
                "; {} damaged parts of the write-back log are kept as *.damaged (see the log)",
                self.damaged
            )?;
        }
        Ok(())
    }
}

impl Pending {
    /// Returns whether everything is stored.
    pub(crate) fn is_empty(self) -> bool {
        self.dirty_files == 0 && self.exports == 0 && self.renames == 0 && self.backlog_changes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the count was sent but never printed, so that a damaged log looked sound.
    #[test]
    fn s445_damage_of_the_log_is_shown_even_if_everything_is_stored() {
        let damaged = Pending { damaged: 2, ..Pending::default() };
        let text =
            "everything is stored; 2 damaged parts of the write-back log are kept as *.damaged (see the log)";
        assert_eq!(damaged.to_string(), text);
    }

    #[test]
    fn messages_are_lines_that_name_their_kind() {
        let request = Request::Unmount { mount_point_hex: None, lazy: false, patience_secs: 60 };
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(line, r#"{"request":"unmount","lazy":false,"patience_secs":60}"#);
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        let line = serde_json::to_string(&Answer::Progress(Pending {
            dirty_files: 1,
            write_bytes: 2,
            ..Pending::default()
        }))
        .unwrap();
        assert_eq!(
            line,
            r#"{"answer":"progress","dirty_files":1,"write_bytes":2,"exports":0,"renames":0,"backlog_changes":0,"backlog_bytes":0}"#
        );
    }
}
