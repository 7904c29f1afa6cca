//! The local state directory of a mount: its lock, and the files in it.
//!
//! Invariant: at most one process holds the lock of a state directory, and the lock file names its pid and mount
//! point. The lock dies with its process, so a crash leaves nothing to clean up by hand.

pub(crate) mod dead_mounts;
pub(crate) mod default_user;
pub(crate) mod lock;
pub(crate) mod private;
pub(crate) mod registry;

use crate::control::holder::Holder;
use crate::control::socket::SOCKET_FILE;
use crate::volume::{Volume, embedded};
use anyhow::{Context, Result, bail};
use lock::{InUse, RELEASE_TIMEOUT};
use staging::mover::Mover;
use staging::writeback::Writeback;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A state directory that this process holds until it ends.
#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    /// Whether this process created the directory.
    is_new: bool,
    /// Dropping the file releases the lock.
    lock: File,
}

impl StateDir {
    /// Locks the directory, creates it if needed, and removes leftovers of a mount that died. The error names the
    /// holder if there is one.
    pub(crate) fn lock(root: &Path, holder: &Holder) -> Result<Self> {
        let is_new = !root.exists();
        create_private_dir(root)?;
        let lock = lock_as(root, holder)?;
        // Leftovers of a mount that died hold nothing that was acknowledged.
        leftovers(root).iter().for_each(|leftover| drop(fs::remove_file(leftover)));
        Ok(Self { root: root.to_owned(), is_new, lock })
    }

    /// Names the URL at which this process serves the volume in the lock file. Until then, the file names the address of `--listen`, whose
    /// port may be 0. The control socket must not be open yet: other processes read the file only when it answers.
    pub(crate) fn name_url(&self, url: &str) -> Result<()> {
        let holder = Holder { mount_point: url.into(), ..Holder::read(&self.root)? };
        holder
            .write(&self.lock)
            .with_context(|| format!("cannot write the lock file in {}", self.root.display()))
    }

    /// Removes the directory if this process created it and it has no names yet: a user who restores a backup to it
    /// must not find an empty directory.
    pub(crate) fn abandon(self, has_names: bool) {
        if self.is_new
            && !has_names
            && let Err(error) = fs::remove_dir_all(&self.root)
        {
            tracing::warn!("cannot remove the new state directory {}: {error}", self.root.display());
        }
    }

    /// Returns the path of the directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the write-back log: changes that the bucket does not have yet.
    pub(crate) fn writeback_dir(&self) -> PathBuf {
        writeback_dir(&self.root)
    }

    /// Returns the journal of renames whose objects have not moved yet.
    pub(crate) fn moves_path(&self) -> PathBuf {
        moves_path(&self.root)
    }

    /// Returns the directory for files that are edited at random. The next process that locks the state directory
    /// removes what a killed one left in it.
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
        Volume::Embedded { root } => root.join(embedded::STATE_DIR),
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

/// Opens something in a state directory that this process holds. A process that still has it open is ending, so this
/// retries for a while.
pub(crate) fn retry_while_busy<T, E>(
    open: impl Fn() -> Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<T, E> {
    log::when_free(RELEASE_TIMEOUT, open, is_busy)
}

/// Returns where a state directory keeps the write-back log: changes that the bucket does not have yet.
pub(crate) fn writeback_dir(root: &Path) -> PathBuf {
    root.join("writeback")
}

/// Returns where a state directory keeps renames whose objects have not moved yet.
pub(crate) fn moves_path(root: &Path) -> PathBuf {
    root.join("moves")
}

/// Returns how many changes in a state directory the bucket does not have yet.
pub(crate) fn waiting_changes(root: &Path) -> Result<usize> {
    let dir = writeback_dir(root);
    Writeback::waiting_in(&dir).with_context(|| format!("cannot read {}", dir.display()))
}

/// Refuses a state directory with changes that the bucket does not have yet.
pub(crate) fn check_no_backlog(root: &Path) -> Result<()> {
    match waiting_changes(root)? {
        0 => Ok(()),
        count => bail!(
            "{count} changes in {} are not in the bucket yet; mount with --writeback to upload them",
            writeback_dir(root).display()
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

/// Locks the directory for a command that works on a volume. Refuses a directory with pending changes.
pub(crate) fn lock_for_command(root: &Path, volume: &Volume) -> Result<File> {
    let lock = lock_as(root, &Holder::for_command(volume.url()))?;
    check_no_backlog(root)?;
    check_no_moves(root)?;
    Ok(lock)
}

/// Takes the lock of a directory for `holder`. The error names the process that has the lock.
fn lock_as(root: &Path, holder: &Holder) -> Result<File> {
    let Some(lock) = lock::take(root)? else {
        return Err(InUse(lock::held_message(root, &Holder::read(root)?)).into());
    };
    holder.write(&lock).with_context(|| format!("cannot write the lock file in {}", root.display()))?;
    Ok(lock)
}

/// Returns the files that only a live mount needs, for a directory that no process holds.
pub(crate) fn leftovers(root: &Path) -> Vec<PathBuf> {
    let cached = fs::read_dir(cache_dir(root)).into_iter().flatten();
    let cached = cached.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let socket = root.join(SOCKET_FILE);
    cached.chain(socket.exists().then_some(socket)).collect()
}

/// Creates a state directory for its owner only, unless it exists: the cache and the log contain names and bytes.
pub(crate) fn create_private_dir(root: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root).with_context(|| {
        format!("cannot make the state directory {}; choose another with --state-dir", root.display())
    })
}

/// Returns the name of a volume's state directory: readable, and different for different volumes and servers.
fn dir_name(shown: &str, volume: &Volume, endpoint: Option<&str>) -> String {
    let identity = format!("{}\n{}", volume.url(), endpoint.unwrap_or_default());
    let shown: String =
        shown.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(40).collect();
    format!("{shown}-{:016x}", fnv1a(identity.as_bytes()))
}

/// Computes the FNV-1a hash, which gives the same name for the same volume in every build and on every machine.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
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
        assert_eq!(Holder::read(&root).unwrap(), sample_holder());
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
            std::thread::sleep(std::time::Duration::from_millis(200));
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
        assert_eq!(Holder::read(dir.path()).unwrap(), sample_holder());
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
