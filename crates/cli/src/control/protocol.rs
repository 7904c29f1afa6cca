//! What is said over the control socket. Fields are added, never changed.

use crate::handling::{FeedReport, HintReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a command asks of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// How the mount is.
    Status,
    /// Store what is pending, then unmount and end; of several directories, take one away.
    Unmount {
        /// Which directory, its bytes in hexadecimal; none means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mount_point_hex: Option<String>,
        /// Detach at once even if files are open; they stay usable until closed.
        lazy: bool,
        /// How long pending uploads may take.
        patience_secs: u64,
    },
    /// The object of a path inside the mount.
    Locate {
        /// The path from the mount's root; its bytes in hexadecimal, as names need not be text.
        path_hex: String,
    },
    /// The path of an object in the mount.
    PathOf {
        /// The object's key; its bytes in hexadecimal.
        key_hex: String,
    },
    /// A directory's quota.
    Quota {
        /// The path from the mount's root, as in `Locate`.
        path_hex: String,
        /// What to change before.
        change: Option<QuotaChange>,
    },
    /// Run the invariants over the live tables.
    Check,
    /// Find content that no file has, and delete it unless that is only to be counted.
    CollectGarbage {
        /// Only count.
        dry_run: bool,
    },
    /// Write the names, as they are at one moment, to a file; done when the bucket has what they name.
    Backup {
        /// An absolute path where nothing is yet, its bytes in hexadecimal.
        file_hex: String,
        /// How long what is not in the bucket may take to get there.
        patience_secs: u64,
    },
    /// Make files of what somebody else stored in a volume named by inode.
    Import,
    /// Make a device the missing member of an array that the process has open.
    Rebuild(Rebuild),
    /// Scrub the drives that the process has open.
    Scrub {
        /// Bytes to read per second at most; none is no limit.
        bytes_per_sec: Option<u64>,
    },
    /// The conflicts that nobody has resolved.
    Conflicts,
    /// Resolve a conflict.
    ResolveConflict {
        /// Which.
        id: String,
        /// What stays of it.
        keep: Keep,
    },
}

/// What the daemon says; a request is answered by any number of `Progress` and one other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// Still at it.
    Progress(Pending),
    /// To `Status`.
    Status(Box<Status>),
    /// To `Unmount`: the mount is gone; the daemon ends, which closes the connection, unless others stay.
    Unmounted {
        /// The volume is mounted at other directories still, and the daemon goes on.
        #[serde(default)]
        goes_on: bool,
        /// Changes left in the write-back log.
        #[serde(default)]
        backlog_changes: u64,
    },
    /// To `Unmount`: programs still use the mount.
    Busy,
    /// To `Locate`.
    Located(Located),
    /// To `PathOf`.
    PathOf {
        /// From the mount's root, lossy where it is not text; none if no file has the object.
        path: Option<String>,
    },
    /// To `Quota`: as it is now; none where the directory has none of its own.
    Quota {
        /// Limits and usage.
        quota: Option<Quota>,
    },
    /// To `Check`: what is broken, one line each.
    Checked {
        /// Empty when all invariants hold.
        violations: Vec<String>,
    },
    /// To `CollectGarbage`.
    Collected {
        /// Keys of content that no file has, escaped where they are not text.
        keys: Vec<String>,
    },
    /// To `Backup`.
    BackedUp {
        /// Records in the file.
        records: u64,
    },
    /// To `Import`.
    Imported {
        /// The files' paths, lossy where they are not text.
        paths: Vec<String>,
    },
    /// To `Scrub`, while it is under way.
    Scrubbing {
        /// Objects read so far.
        objects: u64,
    },
    /// To `Rebuild`, while it is under way.
    Rebuilding {
        /// How much of the device is done.
        percent: u64,
    },
    /// To `Rebuild`.
    Rebuilt {
        /// The outcome of the scrub before, if there was one.
        scrubbed: Option<Scrubbed>,
        /// The number of the member that the device is.
        member: usize,
        /// Rows that could not be computed.
        rows_lost: u64,
    },
    /// To `Scrub`, for each drive.
    Scrubbed {
        /// The outcome, by drive.
        drives: Vec<Scrubbed>,
    },
    /// To `Conflicts`.
    Conflicts {
        /// The oldest first.
        conflicts: Vec<Conflict>,
    },
    /// To `ResolveConflict`.
    Resolved,
    /// The request failed.
    Failed {
        /// One line.
        reason: String,
    },
}

/// A device to make a member of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rebuild {
    /// The array's devices as they were named, some of which it has.
    pub(crate) devices: Vec<String>,
    /// The new device: an absolute path, its bytes in hexadecimal.
    pub(crate) device_hex: String,
    /// Also if there is something else on it.
    pub(crate) force: bool,
    /// Without a scrub before.
    pub(crate) no_scrub: bool,
    /// Bytes to read per second at most; none is no limit.
    pub(crate) bytes_per_sec: Option<u64>,
}

/// The outcome of the scrub of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Scrubbed {
    /// Objects that were read.
    pub(crate) objects: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Blocks of devices that were written anew.
    pub(crate) mended: u64,
    /// Damage that stays, one line each.
    pub(crate) damaged: Vec<String>,
}

/// A change of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum QuotaChange {
    /// These are the limits.
    Set {
        /// Of lengths of files together.
        bytes: Option<u64>,
        /// Of inodes.
        files: Option<u64>,
    },
    /// There is none.
    Remove,
}

/// What a directory may hold, and does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quota {
    /// The limit of lengths of files together.
    pub(crate) bytes: Option<u64>,
    /// Their sum.
    pub(crate) bytes_used: u64,
    /// The limit of inodes.
    pub(crate) files: Option<u64>,
    /// Their number.
    pub(crate) files_used: u64,
}

/// What stays of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keep {
    /// What the bucket had.
    Bucket,
    /// What was written in the file.
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

/// A conflict that nobody has resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Conflict {
    /// Tells it from others.
    pub(crate) id: String,
    /// The file's path, lossy where it is not text.
    pub(crate) path: String,
    /// The key that both sides wanted, escaped where it is not text.
    pub(crate) key: String,
    /// When it was found (RFC 3339).
    pub(crate) at: String,
    /// By which it was settled.
    pub(crate) policy: String,
    /// Where the bytes that were written here are.
    pub(crate) file: Option<Side>,
    /// Where the bucket's are; none if the object was deleted.
    pub(crate) bucket: Option<Side>,
    /// Whether the file's bytes are all there.
    pub(crate) complete: bool,
    /// Whether the path takes no writes.
    pub(crate) blocks: bool,
}

/// Where one side's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Side {
    /// The object's key, escaped where it is not text.
    pub(crate) key: String,
    /// Its etag when it was stored.
    pub(crate) etag: String,
}

impl Conflict {
    /// Whether what was written here has the name.
    pub(crate) fn is_file_named(&self) -> bool {
        self.file.as_ref().map_or(self.complete, |side| side.key == self.key)
    }
}

impl From<&vfs::Conflict> for Conflict {
    fn from(conflict: &vfs::Conflict) -> Self {
        let side = |side: &vfs::Side| Side { key: side.key.to_string(), etag: side.etag.to_string() };
        Self {
            id: conflict.id.clone(),
            path: String::from_utf8_lossy(&conflict.path).into_owned(),
            key: conflict.key.to_string(),
            at: rfc3339(conflict.at),
            policy: conflict.policy.to_string(),
            file: conflict.file.as_ref().map(side),
            bucket: conflict.bucket.as_ref().map(side),
            complete: conflict.is_complete,
            blocks: conflict.blocks(),
        }
    }
}

/// What is not in the store yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Open files with changes that are not stored.
    pub(crate) dirty_files: u64,
    /// Bytes held for writing.
    pub(crate) write_bytes: u64,
    /// Attribute changes waiting to be exported.
    pub(crate) exports: u64,
    /// Renames whose objects have not all moved.
    #[serde(default)]
    pub(crate) renames: u64,
    /// Changes in the write-back log.
    #[serde(default)]
    pub(crate) backlog_changes: u64,
    /// Their bytes.
    #[serde(default)]
    pub(crate) backlog_bytes: u64,
    /// Those of them that the bucket refuses for good.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) refused_changes: u64,
    /// Damaged ranges of the write-back log, and damaged files of it that are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) damaged: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Where a file's bytes lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Located {
    /// The object's key, escaped where it is not text; none for a directory that only its contents name.
    pub(crate) key: Option<String>,
    /// The object as a URL of the store.
    pub(crate) url: Option<String>,
    /// The object's etag, once it is stored.
    pub(crate) etag: Option<String>,
    /// Length in bytes.
    pub(crate) size_bytes: u64,
    /// The inode number in the mount.
    pub(crate) ino: u64,
    /// Every range of the file that an object holds.
    #[serde(default)]
    pub(crate) content: Vec<Piece>,
}

/// A range of a file, and the object that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Where it begins in the file, in bytes.
    pub(crate) offset: u64,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// The object's key, escaped where it is not text.
    pub(crate) key: String,
    /// The object's etag.
    pub(crate) etag: String,
    /// Where it begins in the object, in bytes.
    pub(crate) object_offset: u64,
}

/// A mount at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The daemon's process.
    pub(crate) pid: u32,
    /// What is mounted.
    pub(crate) volume: String,
    /// Where; empty if it is only served as objects.
    pub(crate) mount_point: String,
    /// Where else.
    #[serde(default)]
    pub(crate) also: Vec<String>,
    /// Where its objects are served, if they are.
    #[serde(default)]
    pub(crate) endpoint: Option<String>,
    /// The daemon's version.
    pub(crate) version: String,
    /// How long it has been mounted.
    pub(crate) uptime_secs: u64,
    /// Whether changes are refused.
    pub(crate) read_only: bool,
    /// Whether the process ends: it stores what is pending, and the volume cannot be reached through it any more.
    #[serde(default)]
    pub(crate) ending: bool,
    /// Its state directory.
    #[serde(default)]
    pub(crate) state_dir: String,
    /// Its log; none where that is standard error.
    #[serde(default)]
    pub(crate) log_file: Option<String>,
    /// Whether the names are in the state directory alone, so that its loss is theirs.
    #[serde(default)]
    pub(crate) names_only_here: bool,
    /// The server of the bucket, where one was named.
    #[serde(default)]
    pub(crate) server: Option<String>,
    /// Whether it serves buckets that have no namespace of files.
    #[serde(default)]
    pub(crate) is_buckets: bool,
    /// The room of the drive or disk with the objects, in bytes: all, and what is free; none where nobody knows.
    #[serde(default)]
    pub(crate) room_bytes: Option<(u64, u64)>,
    /// Whether other machines may mount the bucket too (`--shared`).
    #[serde(default)]
    pub(crate) shared: bool,
    /// Files and directories that are open.
    pub(crate) open_handles: u64,
    /// What is not in the store yet.
    pub(crate) pending: Pending,
    /// Objects that have followed renames since the mount began.
    #[serde(default)]
    pub(crate) objects_moved: u64,
    /// Why what was renamed could not move when it was last tried.
    #[serde(default)]
    pub(crate) move_failure: Option<String>,
    /// Bytes of file data cached for reading.
    pub(crate) read_bytes: u64,
    /// Bytes of metadata in memory.
    pub(crate) metadata_bytes: u64,
    /// About the bytes of what views know of objects, which the bound does not cover.
    #[serde(default)]
    pub(crate) views_bytes: u64,
    /// Inodes the kernel knows.
    pub(crate) kernel_inodes: u64,
    /// The bound on memory.
    pub(crate) memory_limit_bytes: u64,
    /// Whose bytes have the name after a conflict.
    #[serde(default)]
    pub(crate) conflict_policy: String,
    /// Conflicts that nobody has resolved.
    #[serde(default)]
    pub(crate) conflicts: u64,
    /// What the background lister does; none where it is off.
    #[serde(default)]
    pub(crate) lister: Option<Lister>,
    /// Requests to the store, by operation.
    pub(crate) store_requests: BTreeMap<String, u64>,
    /// Requests from the kernel, by operation.
    pub(crate) fuse_requests: BTreeMap<String, u64>,
    /// What receivers of events got, by their names.
    #[serde(default)]
    pub(crate) webhooks: BTreeMap<String, Webhook>,
    /// Changes that nobody was told of.
    #[serde(default)]
    pub(crate) events_lost: u64,
    /// The views that it shows.
    #[serde(default)]
    pub(crate) views: Vec<View>,
    /// Objects of renamed directories of views that the store refuses to move, each with the reason.
    #[serde(default)]
    pub(crate) moves_refused: Vec<String>,
    /// Where it hears what happens to objects.
    #[serde(default)]
    pub(crate) event_sources: Vec<EventSource>,
}

/// A view, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Its directory's name.
    pub(crate) name: String,
    /// How many objects it shows, as far as is known.
    pub(crate) objects: u64,
    /// Why its handler does not answer.
    pub(crate) lost: Option<String>,
    /// Buckets that cannot be read, and why.
    pub(crate) unlisted: Vec<String>,
}

/// A source of events, and what came from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventSource {
    /// Which.
    pub(crate) url: String,
    /// Messages that came.
    pub(crate) messages: u64,
    /// What they said of objects.
    pub(crate) hints: u64,
    /// Messages that nobody could read.
    pub(crate) unreadable: u64,
    /// Failures of it.
    pub(crate) failures: u64,
    /// Whether it answered when it was last asked.
    pub(crate) connected: bool,
    /// How old the newest hint of the last messages was when it was heard, in milliseconds.
    pub(crate) lag_ms: u64,
    /// Messages that it has and nobody has received; `None` where it does not tell.
    pub(crate) waiting: Option<u64>,
    /// What came of its hints in views.
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
    /// Everywhere it is mounted.
    pub(crate) fn mount_points(&self) -> impl Iterator<Item = &str> {
        let all = [&self.mount_point].into_iter().chain(&self.also);
        all.map(String::as_str).filter(|path| !path.is_empty())
    }
}

/// What a receiver of events got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Webhook {
    /// Events that wait or are on their way.
    pub(crate) queued: u64,
    /// Events that it took.
    pub(crate) sent: u64,
    /// Requests that were repeated.
    pub(crate) retried: u64,
    /// Events among the dead letters.
    pub(crate) failed: u64,
    /// Events that are lost.
    pub(crate) dropped: u64,
}

/// In words, for `tenon status`.
impl fmt::Display for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queued, sent, retried, failed, dropped } = self;
        write!(f, "{sent} sent, {queued} queued, {retried} retried, {failed} failed, {dropped} dropped")
    }
}

/// What the background lister does, and has done since the mount began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lister {
    /// Time for each request, in milliseconds.
    pub(crate) every_ms: u64,
    /// Whether it waits, as nobody has asked the mount anything for a while.
    pub(crate) idle: bool,
    /// The directory where it is, lossy where it is not text.
    pub(crate) dir: String,
    /// When the last full round ended (RFC 3339).
    pub(crate) finished_at: Option<String>,
    /// Requests.
    pub(crate) requests: u64,
    /// Names that were found changed or gone.
    pub(crate) changes: u64,
}

impl Lister {
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

/// In words, for progress and summaries.
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
    /// Whether everything is stored.
    pub(crate) fn is_empty(self) -> bool {
        self.dirty_files == 0 && self.exports == 0 && self.renames == 0 && self.backlog_changes == 0
    }
}

/// What [`store::hex`] made of bytes that need not be text.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn rfc3339(at: store::Timestamp) -> String {
    jiff::Timestamp::from_second(at.secs()).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count was sent and never printed, so that a damaged log looked like a sound one.
    #[test]
    fn s445_damage_of_the_log_is_shown_also_where_everything_is_stored() {
        let damaged = Pending { damaged: 2, ..Pending::default() };
        let text =
            "everything is stored; 2 damaged parts of the write-back log are kept as *.damaged (see the log)";
        assert_eq!(damaged.to_string(), text);
    }

    #[test]
    fn messages_are_lines_that_say_their_kind() {
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
