//! The registry of mounts: a directory with one link per daemon, named by its pid, to its state directory.
//!
//! The links are hints; the control socket in the state directory is authoritative. A link whose socket does not
//! answer is stale, and is removed by any command that reads it.

use crate::control::client::Client;
use crate::control::holder::{Holder, LiveMount};
use crate::process::environment;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories in which daemons register, the preferred one first.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    dirs: Vec<PathBuf>,
}

/// A registration. Dropping it removes the link.
#[derive(Debug)]
pub(crate) struct Registration(PathBuf);

impl Registry {
    /// Returns the registry of this user: `$XDG_RUNTIME_DIR`, and the usual directories, for daemons that were started
    /// with another environment.
    pub(crate) fn of_user() -> Self {
        let user = rustix::process::getuid();
        let own = environment::variable("XDG_RUNTIME_DIR").map(PathBuf::from);
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

    /// Registers this process; a failure is only logged.
    pub(crate) fn register_or_warn(&self, state: &Path) -> Option<Registration> {
        self.register(state)
            .inspect_err(|error| {
                tracing::warn!(
                    "this process cannot be registered, so `tenon status` does not list it and other commands do not find it: {error:#}"
                );
            })
            .ok()
    }

    /// Returns every volume that a live process mounts or serves, sorted by mount point.
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

    /// Returns the mount that `text` names, by its mount point or its volume.
    pub(crate) fn find(&self, text: &str) -> Result<LiveMount> {
        let path = absolute(text);
        let url = Volume::parse_unchecked(text).map(|volume| volume.url()).unwrap_or_default();
        let is_named = |mount: &LiveMount| mount.holder.is_at(&path) || mount.holder.volume == url;
        match self.mounts().into_iter().find(is_named) {
            Some(mount) => Ok(mount),
            None => bail!("{text} is not mounted; `tenon status` lists the mounts"),
        }
    }

    /// Returns the innermost mount that contains a path, and the bytes of the path inside it. The path must be absolute.
    pub(crate) fn containing(&self, path: &Path) -> Result<(LiveMount, Vec<u8>)> {
        let inside = self.mounts().into_iter().filter_map(|mount| {
            let rests = mount.holder.mount_points().filter_map(|root| path.strip_prefix(root).ok());
            let rest = rests.map(|rest| rest.as_os_str().as_bytes()).min_by_key(|rest| rest.len())?.to_vec();
            Some((mount, rest))
        });
        match inside.min_by_key(|(_, rest)| rest.len()) {
            Some(found) => Ok(found),
            None => bail!("{} is not in a Tenon mount; `tenon status` lists the mounts", path.display()),
        }
    }
}

/// Returns the absolute path without symbolic links, as far as they can be resolved.
pub(crate) fn absolute(text: &str) -> PathBuf {
    let path = Path::new(text);
    path.canonicalize().or_else(|_| resolve_mount_point(path)).unwrap_or_else(|_| text.into())
}

/// Returns the absolute path of a mount point, which may be dead: resolves symbolic links only in the parent, unless the path itself is
/// one.
pub(crate) fn resolve_mount_point(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) if !absolute.is_symlink() => {
            let parent =
                parent.canonicalize().with_context(|| format!("cannot resolve {}", parent.display()))?;
            Ok(parent.join(name))
        }
        _ => absolute.canonicalize().with_context(|| format!("cannot resolve {}", path.display())),
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the paths of the links in a directory of the registry.
fn links(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

fn live_mount(link: PathBuf) -> Option<LiveMount> {
    let state = fs::read_link(&link).ok()?;
    let Some(holder) = Holder::answering(&state) else {
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
