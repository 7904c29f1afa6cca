//! Mounts whose process died: the kernel still has them, but no process answers their requests.

use crate::control::holder::LiveMount;
use anyhow::anyhow;
use std::fmt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Timeout of an answer. A mount that exceeds it hangs, but is not considered dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A mount whose process has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadMount(fuse::Mounted);

/// Returns the dead mount at exactly this path.
pub(crate) fn at(path: &Path) -> Option<DeadMount> {
    fuse::mounted_at(path).ok()?.filter(is_dead).map(DeadMount)
}

/// Returns all dead mounts, except at the paths of mounts whose process answers.
pub(crate) fn all(living: &[LiveMount]) -> Vec<DeadMount> {
    let mounts = fuse::mounts().unwrap_or_default().into_iter();
    let is_living = |path: &Path| living.iter().any(|mount| mount.holder.is_at(path));
    mounts.filter(|mounted| !is_living(&mounted.mount_point)).filter(is_dead).map(DeadMount).collect()
}

/// Returns whether a mount is dead. Asks on a thread of its own, which remains if the mount hangs.
fn is_dead(mounted: &fuse::Mounted) -> bool {
    let (answer, answers) = mpsc::channel();
    let path = mounted.mount_point.clone();
    let ask = move || {
        // The receiver is gone once the mount has taken too long.
        let _ = answer.send(fuse::is_dead(&path));
    };
    let asked = std::thread::Builder::new().spawn(ask);
    asked.is_ok() && answers.recv_timeout(ANSWER_TIMEOUT).unwrap_or(false)
}

impl DeadMount {
    /// Returns the error of a command that asks for this mount.
    pub(crate) fn error(&self) -> anyhow::Error {
        anyhow!("{self}")
    }

    /// Returns the mount as one JSON object.
    pub(crate) fn json(&self) -> String {
        let (path, volume) = (self.0.mount_point.to_string_lossy(), self.0.source.to_string_lossy());
        serde_json::json!({ "mount_point": path, "volume": volume, "dead": true }).to_string()
    }
}

impl fmt::Display for DeadMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, volume) = (self.0.mount_point.display(), self.0.source.to_string_lossy());
        write!(
            f,
            "{path}  {volume}  dead: its process ended; `tenon mount {volume} {path}` mounts it again, `tenon umount {path}` unmounts it"
        )
    }
}
