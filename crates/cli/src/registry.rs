//! Which mounts there are: a directory with one link per daemon, named by its pid, to its state directory.
//!
//! The links are hints; the control socket of the state directory is the truth. A link behind which nobody
//! answers is stale and is removed by whoever sees it.

use crate::control::client::Client;
use crate::state::{self, Holder};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Where daemons register, the preferred place first.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    places: Vec<PathBuf>,
}

/// A mount that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its state directory.
    pub(crate) state: PathBuf,
    /// What its lock says, without the directories that were taken away since.
    pub(crate) holder: Holder,
}

/// A registration; dropping it takes the link away.
#[derive(Debug)]
pub(crate) struct Registration(PathBuf);

impl Registry {
    /// `runtime_dir` is the user's (`$XDG_RUNTIME_DIR`); a daemon started with another environment is found too.
    pub(crate) fn new(runtime_dir: Option<OsString>) -> Self {
        let user = rustix::process::getuid();
        let own = runtime_dir.filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let system = user.is_root().then(|| PathBuf::from("/run"));
        let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
        let mut places: Vec<PathBuf> = own.into_iter().chain(system).chain([usual]).collect();
        places.dedup();
        Self { places: places.into_iter().map(|dir| dir.join("tenon")).collect() }
    }

    /// Makes this process's mount known.
    pub(crate) fn register(&self, state: &Path) -> Result<Registration> {
        let place = self.places.first().context("there is no runtime directory")?;
        fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
        let link = place.join(std::process::id().to_string());
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(state, &link)
            .with_context(|| format!("cannot make {}", link.display()))?;
        Ok(Registration(link))
    }

    /// Every mount that is alive, by mount point.
    pub(crate) fn mounts(&self) -> Vec<Mount> {
        let mut mounts: Vec<Mount> =
            self.places.iter().flat_map(|place| links(place)).filter_map(alive).collect();
        mounts.sort_by(|a, b| a.holder.mount_point.cmp(&b.holder.mount_point));
        mounts.dedup();
        mounts
    }

    /// The mount at exactly this mount point.
    pub(crate) fn at(&self, mount_point: &Path) -> Option<Mount> {
        self.mounts().into_iter().find(|mount| mount.holder.is_at(mount_point))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn links(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

fn alive(link: PathBuf) -> Option<Mount> {
    let state = fs::read_link(&link).ok()?;
    let Some(holder) = state::holder(&state) else {
        let _ = fs::remove_file(&link);
        return None;
    };
    Some(without_left(Mount { state, holder }))
}

/// Of several directories some may have been taken away, which only the daemon knows.
fn without_left(mut mount: Mount) -> Mount {
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
    use crate::state::State;

    #[test]
    fn mounts_appear_and_stale_links_go() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry { places: vec![dir.path().join("run")] };
        let holder = Holder { pid: 1, mount_point: "/mnt/x".into(), also: Vec::new(), volume: "v".into() };
        let state = State::take(&dir.path().join("state"), &holder).unwrap();
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
