//! A memory limit for each measured system: a control group for its processes and their page cache. Also drops the kernel's caches.

use crate::{CleanupAction, CleanupProcess, Error, file_error};
use std::fs;
use std::path::{Path, PathBuf};

/// The mechanism that limits memory on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Control groups version 2, below this directory.
    Unified(PathBuf),
    /// Control groups version 1, below this directory.
    Legacy(PathBuf),
    /// None, with the reason.
    None(&'static str),
}

impl MemoryLimit {
    /// Determines the mechanism of this machine.
    pub fn probe() -> Self {
        let unified = Path::new("/sys/fs/cgroup");
        let controls = fs::read_to_string(unified.join("cgroup.subtree_control")).unwrap_or_default();
        if controls.split_whitespace().any(|name| name == "memory") {
            return Self::Unified(unified.to_owned());
        }
        let legacy = unified.join("memory");
        if legacy.join("memory.limit_in_bytes").exists() {
            return Self::Legacy(legacy);
        }
        Self::None("this machine has no cgroup memory controller at its root")
    }

    /// Describes the limit for reports.
    pub fn about(&self, limit_bytes: u64) -> String {
        let mib = limit_bytes >> 20;
        match self {
            Self::Unified(_) => format!("{mib} MiB for processes and page cache (cgroup v2 memory.max)"),
            Self::Legacy(_) => {
                format!("{mib} MiB for processes and page cache (cgroup v1 memory.limit_in_bytes)")
            }
            Self::None(why) => format!("not limited: {why}"),
        }
    }

    /// Creates a control group with this limit. Returns the file to which the pid of a process is written to add it; `None` if memory is
    /// not limited.
    ///
    /// # Errors
    /// If the group cannot be created, for example without root.
    pub fn group(
        &self,
        name: &str,
        limit_bytes: u64,
        cleanup: &mut CleanupProcess,
    ) -> Result<Option<PathBuf>, Error> {
        let (root, file) = match self {
            Self::Unified(root) => (root, "memory.max"),
            Self::Legacy(root) => (root, "memory.limit_in_bytes"),
            Self::None(_) => return Ok(None),
        };
        let group = root.join(name);
        cleanup.register(&CleanupAction::RemoveGroup(&group))?;
        fs::create_dir(&group).map_err(file_error(&group))?;
        let limit = group.join(file);
        fs::write(&limit, limit_bytes.to_string()).map_err(file_error(&limit))?;
        Ok(Some(group.join("cgroup.procs")))
    }
}

/// Writes dirty data back, then drops the kernel's page, dentry and inode caches (proc_sys_vm(5)).
///
/// # Errors
/// If the caches cannot be dropped, for example because the process is not root.
pub fn drop_caches() -> Result<(), Error> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    rustix::fs::sync();
    fs::write(path, "3").map_err(file_error(path))
}
