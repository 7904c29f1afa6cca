//! The local state directory of a mount: who holds it, and the files in it.
//!
//! Invariant: at most one process holds the lock of a state directory; it is the one whose pid and mount point
//! the lock file names. The lock dies with its process, so a crash leaves nothing to clean by hand.

use crate::control::client::Client;
use crate::metadata;
use crate::registry::Mount;
use crate::volume::{self, Volume};
use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::mover::Mover;
use store::writeback::Writeback;

const LOCK_FILE: &str = "lock";
/// How long a mount that has left its state directory may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// How long one is waited for that says that it ends: longer than it stores what is pending, unless it was told otherwise.
const ENDING_WITHIN: Duration = Duration::from_secs(90);
/// How long such a process may take to say so.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Time between two looks at a process that ends.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Who holds a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// The daemon's process.
    pub(crate) pid: u32,
    /// Where it mounts, or the URL at which it serves without mounting.
    pub(crate) mount_point: PathBuf,
    /// Where else it mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<PathBuf>,
    /// What it mounts.
    pub(crate) volume: String,
}

impl Holder {
    /// A command of this process that mounts nothing.
    pub(crate) fn alone(volume: String) -> Self {
        Self { pid: std::process::id(), mount_point: PathBuf::new(), also: Vec::new(), volume }
    }

    /// Everywhere it mounts.
    pub(crate) fn mount_points(&self) -> impl Iterator<Item = &Path> {
        [&self.mount_point].into_iter().chain(&self.also).map(PathBuf::as_path)
    }

    /// Whether it serves the volume as objects, without mounting it.
    pub(crate) fn is_served(&self) -> bool {
        self.mount_point.to_string_lossy().starts_with("http")
    }

    /// Whether it serves buckets that have no files, so that only S3 clients can ask it for anything.
    pub(crate) fn serves_buckets(&self) -> bool {
        self.is_served() && (self.volume.starts_with("drive://") || self.volume.starts_with("dirs://"))
    }

    /// Whether it mounts exactly there.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.mount_points().any(|mount_point| mount_point == path)
    }
}

/// A state directory that this process holds until it ends.
#[derive(Debug)]
pub(crate) struct State {
    root: PathBuf,
    /// The directory was not there before.
    is_new: bool,
    /// Dropping it gives the lock up.
    _lock: File,
}

impl State {
    /// Takes the directory, making it if need be; the error names the holder if there is one.
    pub(crate) fn take(root: &Path, holder: &Holder) -> Result<Self> {
        let is_new = !root.exists();
        make_private(root)?;
        let lock = open_lock(root)?;
        if !lock_when_free(&lock, root)? {
            bail!("{}", held_message(root, &read_holder(root)?));
        }
        write_holder(&lock, holder).with_context(|| format!("cannot write to {}", root.display()))?;
        // Nobody was promised what a mount that died left here.
        leftovers(root).iter().for_each(|leftover| drop(fs::remove_file(leftover)));
        Ok(Self { root: root.to_owned(), is_new, _lock: lock })
    }

    /// Takes the directory away if this process made it and it has no names yet: whoever restores a backup to where it was must
    /// not find an empty directory there.
    pub(crate) fn abandon(self) {
        if self.is_new
            && !metadata::is_in(&self.root)
            && let Err(error) = fs::remove_dir_all(&self.root)
        {
            tracing::warn!("{} stays: {error}", self.root.display());
        }
    }

    /// The directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where changes wait that the bucket does not have yet.
    pub(crate) fn writeback_dir(&self) -> PathBuf {
        writeback_dir(&self.root)
    }

    /// What was renamed and has not moved in the bucket yet.
    pub(crate) fn moves_path(&self) -> PathBuf {
        moves_path(&self.root)
    }

    /// Where events go that a receiver did not take.
    pub(crate) fn dead_letters(&self, webhook: &str) -> PathBuf {
        self.root.join(format!("webhook-{webhook}.dead.jsonl"))
    }

    /// Where files that are edited at random live; empty between mounts.
    pub(crate) fn cache_dir(&self) -> PathBuf {
        cache_dir(&self.root)
    }
}

/// Where files that are edited at random live, in the state directory `root`.
pub(crate) fn cache_dir(root: &Path) -> PathBuf {
    root.join("cache")
}

/// Where the log of a background mount goes unless told otherwise.
pub(crate) fn log_file(root: &Path) -> PathBuf {
    root.join("log")
}

/// The directory for `volume` unless the user names one: inside an embedded volume, else below the user's state.
/// `endpoint` keeps buckets of the same name on different servers apart.
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

/// Who holds the directory and answers; `None` if nobody does.
pub(crate) fn holder(root: &Path) -> Option<Holder> {
    crate::control::socket::connect(root).ok()?;
    read_holder(root).ok()
}

/// Opens something in a state directory that is ours: a process that still has it open is one that ends.
pub(crate) fn when_free<T, E>(open: impl Fn() -> Result<T, E>, is_busy: impl Fn(&E) -> bool) -> Result<T, E> {
    store::when_free(ENDS_WITHIN, open, is_busy)
}

/// Where a state directory keeps changes that the bucket does not have yet.
pub(crate) fn writeback_dir(root: &Path) -> PathBuf {
    root.join("writeback")
}

/// Where a state directory keeps what was renamed and has not moved in the bucket yet.
pub(crate) fn moves_path(root: &Path) -> PathBuf {
    root.join("moves")
}

/// Refuses a state directory with changes that the bucket does not have yet.
pub(crate) fn nothing_waits(root: &Path) -> Result<()> {
    let dir = writeback_dir(root);
    let waiting = Writeback::waiting_in(&dir);
    match waiting.with_context(|| format!("cannot read {}", dir.display()))? {
        0 => Ok(()),
        count => bail!(
            "{count} changes in {} are not in the bucket yet; mount with --writeback, and they go up",
            dir.display()
        ),
    }
}

/// Refuses a state directory with renames whose objects have not all moved.
pub(crate) fn nothing_moves(root: &Path) -> Result<()> {
    let path = moves_path(root);
    let moving = Mover::waiting_in(&path);
    match moving.with_context(|| format!("cannot read {}", path.display()))? {
        0 => Ok(()),
        count => {
            bail!("{count} renames are not finished in the bucket yet; mount the volume, and they will be")
        }
    }
}

/// Holds the directory without saying for whom, which must not have changes that wait.
pub(crate) fn hold(root: &Path) -> Result<File> {
    let lock = open_lock(root)?;
    if !lock_when_free(&lock, root)? {
        bail!("the state in {} is in use by a mount that does not answer; end it first", root.display());
    }
    nothing_waits(root)?;
    nothing_moves(root)?;
    Ok(lock)
}

/// Files in a directory that nobody holds which only a living mount needs.
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

/// Only the owner may look: the cache and the log show names and bytes.
fn make_private(root: &Path) -> Result<()> {
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

/// How the process answers that holds a state directory.
enum Answers {
    /// It does not: it was killed, or has ended but for its last files.
    No,
    /// It stores what is pending, and ends.
    Ending(Holder),
    /// It goes on.
    Living,
}

fn ask_holder(root: &Path) -> Answers {
    let Some(holder) = holder(root) else { return Answers::No };
    let mount = Mount { state: root.to_owned(), holder: holder.clone() };
    let client = Client::connect(&mount).and_then(|client| client.answers_within(ANSWERS_WITHIN));
    match client.and_then(|mut client| client.status()) {
        Ok(status) if status.ending => Answers::Ending(holder),
        Err(error) if is_closed(&error) => Answers::No,
        _ => Answers::Living,
    }
}

/// Whether the connection was closed, rather than left without an answer.
fn is_closed(error: &anyhow::Error) -> bool {
    let of_socket = error.root_cause().downcast_ref::<std::io::Error>();
    of_socket.is_some_and(|error| !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Takes the lock, unless a process has it that goes on. One that ends is waited for, within bounds.
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
        match ask_holder(root) {
            Answers::No if silent < ENDS_WITHIN => silent += LOOK_PAUSE,
            Answers::Ending(holder) if ending < ENDING_WITHIN => {
                if ending.is_zero() {
                    eprintln!(
                        "tenon: waiting for process {}, which stores what is pending of {} and ends",
                        holder.pid, holder.volume
                    );
                }
                ending += LOOK_PAUSE;
            }
            _ => return Ok(false),
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Returns when the process that holds the state directory has ended.
///
/// # Errors
/// It has not after a while.
pub(crate) fn wait_until_free(root: &Path) -> Result<()> {
    let Ok(lock) = File::open(root.join(LOCK_FILE)) else { return Ok(()) };
    match lock_when_free(&lock, root)? {
        true => Ok(()),
        // Another process has taken the directory since.
        false if matches!(ask_holder(root), Answers::Living) => Ok(()),
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

/// FNV-1a: the same name for the same volume on every build and machine.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a line that is there whole or not at all, whatever happens.
pub(crate) fn write_durably(path: &Path, text: &str) -> std::io::Result<()> {
    write_with_mode(path, text, 0o666)
}

/// As [`write_durably`], for nobody else to read.
pub(crate) fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    write_with_mode(path, text, 0o600)
}

/// The text of a file that only its owner may read.
pub(crate) fn read_secret(path: &Path) -> Result<String> {
    let shown = path.display();
    let mode = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.mode();
    if mode & 0o077 != 0 {
        bail!("{shown} holds a secret but others can read it; run `chmod 600 {shown}`");
    }
    fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))
}

/// A file at whose end is written, and which only its owner may read; it is made if it is missing.
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

    fn somebody() -> Holder {
        Holder { pid: 42, mount_point: "/mnt/a".into(), also: Vec::new(), volume: "s3://bucket".into() }
    }

    #[test]
    fn a_second_taker_learns_who_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("state");
        let held = State::take(&root, &somebody()).unwrap();
        assert_eq!(read_holder(&root).unwrap(), somebody());
        let _answers = crate::control::socket::bind(&root).unwrap();
        let refused = State::take(&root, &somebody()).unwrap_err().to_string();
        assert!(refused.contains("process 42") && refused.contains("/mnt/a"), "{refused}");
        drop(held);
        State::take(&root, &somebody()).unwrap();
    }

    /// `umount` and `mount` after `kill -9` were told now and then that the killed one mounts.
    #[test]
    fn who_ends_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = State::take(dir.path(), &somebody()).unwrap();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        State::take(dir.path(), &somebody()).unwrap();
        ending.join().unwrap();
    }

    #[test]
    fn a_shorter_holder_leaves_no_rest_of_a_longer_one() {
        let dir = tempfile::tempdir().unwrap();
        drop(State::take(dir.path(), &Holder { volume: "x".repeat(500), ..somebody() }).unwrap());
        let _held = State::take(dir.path(), &somebody()).unwrap();
        assert_eq!(read_holder(dir.path()).unwrap(), somebody());
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
