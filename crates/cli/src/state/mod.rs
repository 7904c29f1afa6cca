//! The local state directory of a mount: its lock, and the files in it.
//!
//! Invariant: at most one process holds the lock of a state directory, and the lock file names its pid and mount
//! point. The lock dies with its process, so a crash leaves nothing to clean up by hand.

pub(crate) mod dead_mounts;
pub(crate) mod registry;

use crate::control::client::Client;
use crate::metadata;
use crate::state::registry::LiveMount;
use crate::volume::{self, Volume};
use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use staging::mover::Mover;
use staging::writeback::Writeback;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOCK_FILE: &str = "lock";
/// How long a process that does not answer may take to release its state directory.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for a process that says that it is ending. This is longer than the default of `--drain-timeout`.
const ENDING_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a holder may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of checks of a process that is ending.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The holder of a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// Process id of the daemon.
    pub(crate) pid: u32,
    /// The mount point, or the URL at which the volume is served without a mount.
    pub(crate) mount_point: PathBuf,
    /// Further mount points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<PathBuf>,
    /// The volume.
    pub(crate) volume: String,
}

impl Holder {
    /// Returns the holder for a command of this process, which mounts nothing.
    pub(crate) fn for_command(volume: String) -> Self {
        Self { pid: std::process::id(), mount_point: PathBuf::new(), also: Vec::new(), volume }
    }

    /// Returns all mount points.
    pub(crate) fn mount_points(&self) -> impl Iterator<Item = &Path> {
        [&self.mount_point].into_iter().chain(&self.also).map(PathBuf::as_path)
    }

    /// Returns whether the volume is served as objects only, without a mount.
    pub(crate) fn is_served(&self) -> bool {
        self.mount_point.to_string_lossy().starts_with("http")
    }

    /// Returns whether buckets without files are served, which only S3 clients can access.
    pub(crate) fn serves_buckets(&self) -> bool {
        self.is_served() && (self.volume.starts_with("drive://") || self.volume.starts_with("dirs://"))
    }

    /// Returns whether this exact path is a mount point.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.mount_points().any(|mount_point| mount_point == path)
    }
}

/// A state directory that this process holds until it ends.
#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    /// Whether this process created the directory.
    is_new: bool,
    /// Dropping the file releases the lock.
    _lock: File,
}

impl StateDir {
    /// Locks the directory, and creates it if needed. The error names the holder if there is one.
    pub(crate) fn lock(root: &Path, holder: &Holder) -> Result<Self> {
        let is_new = !root.exists();
        create_private_dir(root)?;
        let lock = open_lock(root)?;
        if !lock_when_free(&lock, root)? {
            bail!("{}", held_message(root, &read_holder(root)?));
        }
        write_holder(&lock, holder).with_context(|| format!("cannot write to {}", root.display()))?;
        // Leftovers of a mount that died hold nothing that was acknowledged.
        leftovers(root).iter().for_each(|leftover| drop(fs::remove_file(leftover)));
        Ok(Self { root: root.to_owned(), is_new, _lock: lock })
    }

    /// Removes the directory if this process created it and it has no names yet: a user who restores a backup to it
    /// must not find an empty directory.
    pub(crate) fn abandon(self) {
        if self.is_new
            && !metadata::exists_in(&self.root)
            && let Err(error) = fs::remove_dir_all(&self.root)
        {
            tracing::warn!("{} stays: {error}", self.root.display());
        }
    }

    /// Returns the path of the directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of changes that the bucket does not have yet.
    pub(crate) fn writeback_dir(&self) -> PathBuf {
        writeback_dir(&self.root)
    }

    /// Returns the journal of renames whose objects have not moved yet.
    pub(crate) fn moves_path(&self) -> PathBuf {
        moves_path(&self.root)
    }

    /// Returns the file for events that a receiver did not accept.
    pub(crate) fn dead_letters(&self, webhook: &str) -> PathBuf {
        self.root.join(format!("webhook-{webhook}.dead.jsonl"))
    }

    /// Returns the directory for files that are edited at random; it is empty between mounts.
    pub(crate) fn cache_dir(&self) -> PathBuf {
        cache_dir(&self.root)
    }
}

/// Returns the directory for files that are edited at random, in the state directory `root`.
pub(crate) fn cache_dir(root: &Path) -> PathBuf {
    root.join("cache")
}

/// Returns the default log file of a background mount.
pub(crate) fn log_file(root: &Path) -> PathBuf {
    root.join("log")
}

/// Returns the default state directory of `volume`: inside an embedded volume, otherwise below the user's state
/// directory. `endpoint` distinguishes buckets of the same name on different servers.
pub(crate) fn default_dir(volume: &Volume, endpoint: Option<&str>, states: &Path) -> PathBuf {
    match volume {
        Volume::Embedded { root } => root.join(volume::STATE_DIR),
        Volume::S3 { bucket, .. } => states.join(dir_name(bucket, volume, endpoint)),
        Volume::Buckets { .. } | Volume::Drive { .. } | Volume::Directories { .. } => {
            states.join(dir_name(&volume.bucket_name(), volume, endpoint))
        }
        Volume::Directory { root } => {
            let name = root.file_name().map_or("root".into(), |name| name.to_string_lossy());
            states.join(dir_name(&name, volume, endpoint))
        }
    }
}

/// Returns the holder of the directory, if it answers.
pub(crate) fn holder(root: &Path) -> Option<Holder> {
    crate::control::socket::connect(root).ok()?;
    read_holder(root).ok()
}

/// Opens something in a state directory that this process holds. A process that still has it open is ending, so this
/// retries for a while.
pub(crate) fn retry_while_busy<T, E>(
    open: impl Fn() -> Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<T, E> {
    store::when_free(RELEASE_TIMEOUT, open, is_busy)
}

/// Returns where a state directory keeps changes that the bucket does not have yet.
pub(crate) fn writeback_dir(root: &Path) -> PathBuf {
    root.join("writeback")
}

/// Returns where a state directory keeps renames whose objects have not moved yet.
pub(crate) fn moves_path(root: &Path) -> PathBuf {
    root.join("moves")
}

/// Refuses a state directory with changes that the bucket does not have yet.
pub(crate) fn check_no_backlog(root: &Path) -> Result<()> {
    let dir = writeback_dir(root);
    let waiting = Writeback::waiting_in(&dir);
    match waiting.with_context(|| format!("cannot read {}", dir.display()))? {
        0 => Ok(()),
        count => bail!(
            "{count} changes in {} are not in the bucket yet; mount with --writeback to upload them",
            dir.display()
        ),
    }
}

/// Refuses a state directory with renames whose objects have not all moved.
pub(crate) fn check_no_moves(root: &Path) -> Result<()> {
    let path = moves_path(root);
    let moving = Mover::waiting_in(&path);
    match moving.with_context(|| format!("cannot read {}", path.display()))? {
        0 => Ok(()),
        count => {
            bail!("{count} renames are not finished in the bucket yet; mount the volume to finish them")
        }
    }
}

/// Locks the directory for a command, without writing a holder. Refuses a directory with pending changes.
pub(crate) fn lock_for_command(root: &Path) -> Result<File> {
    let lock = open_lock(root)?;
    if !lock_when_free(&lock, root)? {
        bail!("the state in {} is in use by a mount that does not answer; stop it first", root.display());
    }
    check_no_backlog(root)?;
    check_no_moves(root)?;
    Ok(lock)
}

/// Returns the files that only a live mount needs, for a directory that no process holds.
pub(crate) fn leftovers(root: &Path) -> Vec<PathBuf> {
    let cached = fs::read_dir(root.join("cache")).into_iter().flatten();
    let cached = cached.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let socket = root.join(crate::control::socket::SOCKET_FILE);
    cached.chain(socket.exists().then_some(socket)).collect()
}

fn held_message(root: &Path, holder: &Holder) -> String {
    let (root, pid, volume) = (root.display(), holder.pid, &holder.volume);
    let at = holder.mount_point.display();
    if holder.is_served() {
        return format!(
            "the state in {root} is in use: process {pid} serves {volume} at {at}; stop it first (`kill {pid}`), or give another --state-dir"
        );
    }
    let places: Vec<String> = holder.mount_points().map(|path| path.display().to_string()).collect();
    let umounts: Vec<String> = places.iter().map(|place| format!("`tenon umount {place}`")).collect();
    format!(
        "the state in {root} is in use: process {pid} mounts {volume} at {}; {} first, or give another --state-dir",
        places.join(" and "),
        umounts.join(" and ")
    )
}

/// Creates the directory for its owner only: the cache and the log contain names and bytes.
fn create_private_dir(root: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root).with_context(|| {
        format!("cannot make the state directory {}; choose another with --state-dir", root.display())
    })
}

fn open_lock(root: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(root.join(LOCK_FILE))
        .with_context(|| {
            format!("cannot use the state directory {}; choose another with --state-dir", root.display())
        })
}

/// State of the process that holds a state directory.
enum HolderState {
    /// The process does not answer: it was killed, or has only its last files to close.
    Silent,
    /// The process stores pending changes, and ends.
    Ending(Holder),
    /// The process continues.
    Running,
}

fn query_holder(root: &Path) -> HolderState {
    let Some(holder) = holder(root) else { return HolderState::Silent };
    let mount = LiveMount { state: root.to_owned(), holder: holder.clone() };
    let client = Client::connect(&mount).and_then(|client| client.with_timeout(ANSWER_TIMEOUT));
    match client.and_then(|mut client| client.status()) {
        Ok(status) if status.ending => HolderState::Ending(holder),
        Err(error) if is_closed(&error) => HolderState::Silent,
        _ => HolderState::Running,
    }
}

/// Returns whether the connection was closed, and did not merely time out.
fn is_closed(error: &anyhow::Error) -> bool {
    let of_socket = error.root_cause().downcast_ref::<std::io::Error>();
    of_socket.is_some_and(|error| !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Takes the lock, unless a process has it that continues to run. Waits, within bounds, for a process that is ending.
fn lock_when_free(lock: &File, root: &Path) -> Result<bool> {
    let (mut silent, mut ending) = (Duration::ZERO, Duration::ZERO);
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => {
                return Err(
                    anyhow!(error).context(format!("cannot lock the state directory {}", root.display()))
                );
            }
        }
        match query_holder(root) {
            HolderState::Silent if silent < RELEASE_TIMEOUT => silent += POLL_INTERVAL,
            HolderState::Ending(holder) if ending < ENDING_TIMEOUT => {
                if ending.is_zero() {
                    eprintln!(
                        "tenon: waiting for process {}, which stores the pending changes of {} and ends",
                        holder.pid, holder.volume
                    );
                }
                ending += POLL_INTERVAL;
            }
            _ => return Ok(false),
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Waits until the process that holds the state directory has ended.
///
/// # Errors
/// The process has not ended after a while.
pub(crate) fn wait_until_free(root: &Path) -> Result<()> {
    let Ok(lock) = File::open(root.join(LOCK_FILE)) else { return Ok(()) };
    match lock_when_free(&lock, root)? {
        true => Ok(()),
        // Another process has taken the directory meanwhile.
        false if matches!(query_holder(root), HolderState::Running) => Ok(()),
        false => bail!("the process that used {} has not ended yet; its log says why", root.display()),
    }
}

fn write_holder(mut lock: &File, holder: &Holder) -> Result<()> {
    let mut text = serde_json::to_vec(holder)?;
    text.push(b'\n');
    lock.rewind()?;
    lock.write_all(&text)?;
    lock.set_len(text.len() as u64)?;
    Ok(())
}

fn read_holder(root: &Path) -> Result<Holder> {
    let mut text = String::new();
    File::open(root.join(LOCK_FILE))
        .and_then(|mut file| file.read_to_string(&mut text))
        .with_context(|| format!("cannot read the lock in {}", root.display()))?;
    serde_json::from_str(&text).map_err(|_| {
        anyhow!("the state in {} is in use by a process that is just starting; try again", root.display())
    })
}

fn dir_name(shown: &str, volume: &Volume, endpoint: Option<&str>) -> String {
    let identity = format!("{}\n{}", volume.url(), endpoint.unwrap_or_default());
    let shown: String =
        shown.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(40).collect();
    format!("{shown}-{:016x}", fnv1a(identity.as_bytes()))
}

/// FNV-1a: gives the same name for the same volume in every build and on every machine.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a line so that the file has the old or the new text after a crash, and the new one once this returns.
pub(crate) fn write_durably(path: &Path, text: &str) -> std::io::Result<()> {
    write_with_mode(path, text, 0o666)
}

/// Like [`write_durably`], for a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    write_with_mode(path, text, 0o600)
}

/// Returns the text of a file that only its owner may read. Refuses a file that others can read.
pub(crate) fn read_secret(path: &Path) -> Result<String> {
    let shown = path.display();
    let mode = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.mode();
    if mode & 0o077 != 0 {
        bail!("{shown} holds a secret but others can read it; run `chmod 600 {shown}`");
    }
    fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))
}

/// Opens a file for appending that only its owner may read. Creates it if it is missing.
pub(crate) fn open_to_append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn write_with_mode(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let staged = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(mode).open(&staged)?;
    writeln!(file, "{}", text.trim_end())?;
    file.sync_all()?;
    fs::rename(&staged, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_holder() -> Holder {
        Holder { pid: 42, mount_point: "/mnt/a".into(), also: Vec::new(), volume: "s3://bucket".into() }
    }

    #[test]
    fn a_second_process_is_told_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("state");
        let held = StateDir::lock(&root, &sample_holder()).unwrap();
        assert_eq!(read_holder(&root).unwrap(), sample_holder());
        let _answers = crate::control::socket::bind(&root).unwrap();
        let refused = StateDir::lock(&root, &sample_holder()).unwrap_err().to_string();
        assert!(refused.contains("process 42") && refused.contains("/mnt/a"), "{refused}");
        drop(held);
        StateDir::lock(&root, &sample_holder()).unwrap();
    }

    /// Regression: after `kill -9`, `umount` and `mount` sometimes failed, as if the killed process still had the
    /// volume mounted.
    #[test]
    fn an_ending_holder_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateDir::lock(dir.path(), &sample_holder()).unwrap();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        StateDir::lock(dir.path(), &sample_holder()).unwrap();
        ending.join().unwrap();
    }

    #[test]
    fn a_shorter_holder_leaves_no_rest_of_a_longer_one() {
        let dir = tempfile::tempdir().unwrap();
        drop(StateDir::lock(dir.path(), &Holder { volume: "x".repeat(500), ..sample_holder() }).unwrap());
        let _lock = StateDir::lock(dir.path(), &sample_holder()).unwrap();
        assert_eq!(read_holder(dir.path()).unwrap(), sample_holder());
    }

    #[test]
    fn the_same_bucket_on_two_servers_has_two_states() {
        let volume = Volume::parse("s3://bucket/p").unwrap();
        let states = Path::new("/s");
        let here = default_dir(&volume, Some("http://a"), states);
        assert_eq!(here, default_dir(&volume, Some("http://a"), states));
        assert_ne!(here, default_dir(&volume, Some("http://b"), states));
        assert!(here.starts_with("/s") && here.to_str().unwrap().contains("bucket-"));
    }
}
