//! The registry of mounts: a directory with one link per daemon, named by its pid, to its state directory.
//!
//! The links are hints; the control socket in the state directory is authoritative. A link whose socket does not
//! answer is stale, and is removed by any command that reads it.

use crate::control::client::Client;
use crate::state::{self, Holder};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories in which daemons register, the preferred one first.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    dirs: Vec<PathBuf>,
}

/// A live mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveMount {
    /// The state directory.
    pub(crate) state: PathBuf,
    /// Contents of the lock file, without mount points that were unmounted since.
    pub(crate) holder: Holder,
}

/// A registration. Dropping it removes the link.
#[derive(Debug)]
pub(crate) struct Registration(PathBuf);

impl Registry {
    /// Uses the user's `runtime_dir` (`$XDG_RUNTIME_DIR`). Also searches the usual directories, for daemons that were
    /// started with another environment.
    pub(crate) fn new(runtime_dir: Option<OsString>) -> Self {
        let user = rustix::process::getuid();
        let own = runtime_dir.filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let system = user.is_root().then(|| PathBuf::from("/run"));
        let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
        let mut dirs: Vec<PathBuf> = own.into_iter().chain(system).chain([usual]).collect();
        dirs.dedup();
        Self { dirs: dirs.into_iter().map(|dir| dir.join("tenon")).collect() }
    }

    /// Registers this process's mount.
    pub(crate) fn register(&self, state: &Path) -> Result<Registration> {
        let dir = self.dirs.first().context("there is no runtime directory")?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let link = dir.join(std::process::id().to_string());
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(state, &link)
            .with_context(|| format!("cannot make {}", link.display()))?;
        Ok(Registration(link))
    }

    /// Returns every live mount, sorted by mount point.
    pub(crate) fn mounts(&self) -> Vec<LiveMount> {
        let mut mounts: Vec<LiveMount> =
            self.dirs.iter().flat_map(|dir| links(dir)).filter_map(live_mount).collect();
        mounts.sort_by(|a, b| a.holder.mount_point.cmp(&b.holder.mount_point));
        mounts.dedup();
        mounts
    }

    /// Returns the mount at exactly this mount point.
    pub(crate) fn at(&self, mount_point: &Path) -> Option<LiveMount> {
        self.mounts().into_iter().find(|mount| mount.holder.is_at(mount_point))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn links(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

fn live_mount(link: PathBuf) -> Option<LiveMount> {
    let state = fs::read_link(&link).ok()?;
    let Some(holder) = state::holder(&state) else {
        let _ = fs::remove_file(&link);
        return None;
    };
    Some(remove_unmounted(LiveMount { state, holder }))
}

/// Removes the mount points that were unmounted since. Only the daemon knows which these are.
fn remove_unmounted(mut mount: LiveMount) -> LiveMount {
    if mount.holder.also.is_empty() {
        return mount;
    }
    let Ok(status) = Client::connect(&mount).and_then(|mut client| client.status()) else { return mount };
    let is_there = |path: &PathBuf| status.mount_points().any(|there| there == path.display().to_string());
    let all = mount.holder.mount_points().map(Path::to_owned);
    let mut left = all.filter(is_there).collect::<Vec<_>>().into_iter();
    mount.holder.mount_point = left.next().unwrap_or_default();
    mount.holder.also = left.collect();
    mount
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateDir;

    #[test]
    fn mounts_appear_and_stale_links_go() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry { dirs: vec![dir.path().join("run")] };
        let holder = Holder { pid: 1, mount_point: "/mnt/x".into(), also: Vec::new(), volume: "v".into() };
        let state = StateDir::lock(&dir.path().join("state"), &holder).unwrap();
        let socket = crate::control::socket::bind(state.root()).unwrap();
        let registration = registry.register(state.root()).unwrap();
        assert_eq!(registry.at(Path::new("/mnt/x")).unwrap().holder, holder);
        assert_eq!(registry.at(Path::new("/mnt")), None);
        drop(socket);
        assert_eq!(registry.mounts(), []);
        assert_eq!(links(&dir.path().join("run")), [] as [PathBuf; 0]);
        drop(registration);
    }
}
