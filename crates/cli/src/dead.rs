//! Mounts whose process died: the kernel still has them, and nobody answers in them.

use crate::registry::Mount;
use anyhow::anyhow;
use std::fmt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// A mount that does not answer within this time hangs, and is not dead.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// A mount whose process is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dead(fuse::Mounted);

/// The dead mount at exactly this path.
pub(crate) fn at(path: &Path) -> Option<Dead> {
    fuse::mounted_at(path).ok()?.filter(is_dead).map(Dead)
}

/// All dead mounts, those aside whose process answers.
pub(crate) fn all(living: &[Mount]) -> Vec<Dead> {
    let mounts = fuse::mounts().unwrap_or_default().into_iter();
    let is_living = |path: &Path| living.iter().any(|mount| mount.holder.is_at(path));
    mounts.filter(|mounted| !is_living(&mounted.mount_point)).filter(is_dead).map(Dead).collect()
}

/// Asks on a thread of its own, which stays if the mount hangs.
fn is_dead(mounted: &fuse::Mounted) -> bool {
    let (answer, answers) = mpsc::channel();
    let path = mounted.mount_point.clone();
    let ask = move || {
        // The receiver is gone once the mount has taken too long.
        let _ = answer.send(fuse::is_dead(&path));
    };
    let asked = std::thread::Builder::new().spawn(ask);
    asked.is_ok() && answers.recv_timeout(ANSWERS_WITHIN).unwrap_or(false)
}

impl Dead {
    /// As the error of a command that asks for this mount.
    pub(crate) fn error(&self) -> anyhow::Error {
        anyhow!("{self}")
    }

    /// As one JSON object.
    pub(crate) fn json(&self) -> String {
        let (path, volume) = (self.0.mount_point.to_string_lossy(), self.0.source.to_string_lossy());
        serde_json::json!({ "mount_point": path, "volume": volume, "dead": true }).to_string()
    }
}

impl fmt::Display for Dead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, volume) = (self.0.mount_point.display(), self.0.source.to_string_lossy());
        write!(
            f,
            "{path}  {volume}  dead: its process ended; `tenon mount {volume} {path}` takes it over, `tenon umount {path}` takes it away"
        )
    }
}
