//! The same memory for every system: a control group for its processes and the pages they bring into the cache.

use super::cleanup::{Undertaker, Undo};
use super::{SetupError, about};
use std::fs;
use std::path::{Path, PathBuf};

/// How memory is limited here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryLimit {
    /// By a control group of version 2, below this directory.
    Unified(PathBuf),
    /// By one of version 1.
    Legacy(PathBuf),
    /// Not at all, and why.
    None(&'static str),
}

impl MemoryLimit {
    /// What this machine has.
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
        Self::None("this machine has no memory controller for its root's groups")
    }

    /// What is stated of it in reports.
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

    /// Makes a group with this limit; the file to write the number of a process into.
    pub(super) fn group(
        &self,
        name: &str,
        limit_bytes: u64,
        undertaker: &mut Undertaker,
    ) -> Result<Option<PathBuf>, SetupError> {
        let (root, file) = match self {
            Self::Unified(root) => (root, "memory.max"),
            Self::Legacy(root) => (root, "memory.limit_in_bytes"),
            Self::None(_) => return Ok(None),
        };
        let group = root.join(name);
        undertaker.will(&Undo::Group(&group))?;
        fs::create_dir(&group).map_err(about(&group))?;
        let limit = group.join(file);
        fs::write(&limit, limit_bytes.to_string()).map_err(about(&limit))?;
        Ok(Some(group.join("cgroup.procs")))
    }
}
