//! The process that holds a state directory, as its lock file names it.

use super::socket;
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Name of the lock file in a state directory.
pub(crate) const LOCK_FILE: &str = "lock";

/// The holder of a state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// Process id of the daemon.
    pub(crate) pid: u32,
    /// The mount point, or the URL at which the volume is served without a mount; empty while a command that mounts nothing holds the
    /// directory.
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

    /// Returns all mount points. If the volume is only served, this is its URL.
    pub(crate) fn mount_points(&self) -> impl Iterator<Item = &Path> {
        [&self.mount_point].into_iter().chain(&self.also).map(PathBuf::as_path)
    }

    /// Returns whether the holder is a command that mounts and serves nothing.
    pub(crate) fn is_command(&self) -> bool {
        self.mount_point.as_os_str().is_empty()
    }

    /// Returns whether the volume is served as objects only, without a mount.
    pub(crate) fn is_served(&self) -> bool {
        self.mount_point.to_string_lossy().starts_with("http")
    }

    /// Returns whether buckets without a namespace of files are served, which only S3 clients can access.
    pub(crate) fn serves_buckets(&self) -> bool {
        self.is_served() && (self.volume.starts_with("drive://") || self.volume.starts_with("dirs://"))
    }

    /// Says what the process does with the volume, and how to end that.
    pub(crate) fn describe_use(&self) -> String {
        let (pid, volume, at) = (self.pid, &self.volume, self.mount_point.display());
        if self.is_served() {
            return format!("process {pid} serves {volume} at {at}; stop it first (`kill {pid}`)");
        }
        if self.is_command() {
            return format!("process {pid} works on {volume}; try again when it has ended");
        }
        let places: Vec<String> = self.mount_points().map(|path| path.display().to_string()).collect();
        let umounts: Vec<String> = places.iter().map(|place| format!("`tenon umount {place}`")).collect();
        format!("process {pid} mounts {volume} at {}; {} first", places.join(" and "), umounts.join(" and "))
    }

    /// Returns whether this exact path is a mount point.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.mount_points().any(|mount_point| mount_point == path)
    }

    /// Reads the holder from the lock file of a state directory.
    pub(crate) fn read(state_root: &Path) -> Result<Self> {
        let mut text = String::new();
        File::open(state_root.join(LOCK_FILE))
            .and_then(|mut file| file.read_to_string(&mut text))
            .with_context(|| format!("cannot read the lock file in {}", state_root.display()))?;
        serde_json::from_str(&text).map_err(|_| {
            anyhow!(
                "the state in {} is in use, but its lock file does not yet say by which process; try again",
                state_root.display()
            )
        })
    }

    /// Returns the holder of a state directory; `None` if its control socket does not accept a connection.
    pub(crate) fn answering(state_root: &Path) -> Option<Self> {
        socket::connect(state_root).ok()?;
        Self::read(state_root).ok()
    }

    /// Writes the holder to the lock file.
    pub(crate) fn write(&self, mut lock: &File) -> Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        lock.rewind()?;
        lock.write_all(&text)?;
        lock.set_len(text.len() as u64)?;
        Ok(())
    }
}

/// A volume that a live process mounts or serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveMount {
    /// The state directory.
    pub(crate) state: PathBuf,
    /// Contents of the lock file, without mount points that were unmounted since.
    pub(crate) holder: Holder,
}
