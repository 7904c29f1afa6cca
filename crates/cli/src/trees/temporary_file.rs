//! Files that get their names when they are complete, and what killed copies left of them.

use anyhow::{Context as _, Result};
use crc_fast::{CrcAlgorithm, Digest};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Beginning of the names of files that are being written. `tenon sync` removes those that a killed process left in its target.
pub(crate) const TEMPORARY_PREFIX: &str = ".tenon-copy-";

/// Age of a temporary file of another machine after which its copy is taken for dead.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A file that gets its name when it is complete. Removed if it is not renamed.
pub(super) struct TemporaryFile {
    path: PathBuf,
    is_renamed: bool,
}

impl TemporaryFile {
    /// Chooses a new name in the directory of the target, and creates that directory. Does not create the file.
    pub(super) fn for_target(target: &Path) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let dir = target.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMPORARY_PREFIX}{}-{}-{number}", pid_namespace(), std::process::id());
        Ok(Self { path: dir.join(name), is_renamed: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name. Replaces a file that has it.
    pub(super) fn rename_to(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns whether a name is that of a temporary file whose process has ended. A process of another machine or container cannot be looked
/// up: its file counts as abandoned if it was not changed for a day.
pub(crate) fn is_abandoned(name: &str, modified: Option<SystemTime>, now: SystemTime) -> bool {
    let mut parts = name.strip_prefix(TEMPORARY_PREFIX).into_iter().flat_map(|rest| rest.split('-'));
    let (space, process) = (parts.next(), parts.next().and_then(|process| process.parse::<u32>().ok()));
    match process {
        Some(process) if space == Some(pid_namespace()) => !Path::new(&format!("/proc/{process}")).exists(),
        Some(_) => modified.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age > ABANDONED_AFTER)),
        None => false,
    }
}

/// Returns an id of the PID namespace of this process: it differs between machines, boots and containers, whose process ids are unrelated.
fn pid_namespace() -> &'static str {
    static SPACE: LazyLock<String> = LazyLock::new(|| {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
        let container = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        digest.update(container.as_os_str().as_encoded_bytes());
        format!("{:08x}", digest.finalize())
    });
    &SPACE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_killed_copies_are_known() {
        let here = |process: u32| format!("{TEMPORARY_PREFIX}{}-{process}-1", pid_namespace());
        let (long_ago, now) =
            (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
        assert!(is_abandoned(&here(u32::MAX), None, now));
        assert!(!is_abandoned(&here(std::process::id()), Some(long_ago), now));
        assert!(!is_abandoned("file", Some(long_ago), now));
    }

    /// Regression: the process of a copy by another machine was looked up on this one, and its file was removed.
    #[test]
    fn files_of_other_machines_are_abandoned_after_a_day() {
        let elsewhere = format!("{TEMPORARY_PREFIX}elsewhere-{}-1", u32::MAX);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let hours_ago = |hours: u64| now.checked_sub(Duration::from_secs(hours * 3600));
        let is_abandoned = |name, modified| is_abandoned(name, modified, now);
        assert!(!is_abandoned(&elsewhere, hours_ago(23)) && is_abandoned(&elsewhere, hours_ago(25)));
        assert!(!is_abandoned(&elsewhere, None));
    }
}
