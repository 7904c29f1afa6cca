//! A control group that holds all processes of one program, to measure and to end them. Programs that leave their process group stay in it.

use crate::{CleanupAction, CleanupProcess, Error, file_error};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

/// A control group. The cleanup process kills its processes and removes it.
#[derive(Debug)]
pub struct ControlGroup(Hierarchy);

#[derive(Debug)]
enum Hierarchy {
    /// Version 2: one directory.
    Unified(PathBuf),
    /// Version 1: one directory for each controller.
    Legacy { cpu: PathBuf, memory: PathBuf },
}

/// The resources that the processes of a group used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time since the creation of the group; zero if it cannot be read.
    pub cpu: Duration,
    /// Maximum memory since the creation of the group, page cache included; `None` if the kernel does not measure it.
    pub memory_peak_bytes: Option<u64>,
}

impl ControlGroup {
    /// Creates a group. Returns `None` if this machine has no control groups, or this process may not create one below their root.
    ///
    /// # Errors
    /// If the cleanup process has ended, or the group cannot be created, for example because it exists already.
    pub fn create(name: &str, cleanup: &mut CleanupProcess) -> Result<Option<Self>, Error> {
        let Some(hierarchy) = Hierarchy::probe(name) else { return Ok(None) };
        for dir in hierarchy.dirs() {
            cleanup.register(&CleanupAction::RemoveGroup(dir))?;
            fs::create_dir(dir).map_err(file_error(dir))?;
        }
        Ok(Some(Self(hierarchy)))
    }

    /// Returns the files (`cgroup.procs`) to which the pid of a process is written to add it to the group.
    pub fn members(&self) -> Vec<PathBuf> {
        self.0.dirs().into_iter().map(|dir| dir.join("cgroup.procs")).collect()
    }

    /// Returns the resources used so far, by processes that ended too.
    pub fn usage(&self) -> Usage {
        match &self.0 {
            Hierarchy::Unified(dir) => Usage {
                cpu: Duration::from_micros(cpu_stat_micros(&read(dir, "cpu.stat"))),
                memory_peak_bytes: read(dir, "memory.peak").trim().parse().ok(),
            },
            Hierarchy::Legacy { cpu, memory } => Usage {
                cpu: Duration::from_nanos(read(cpu, "cpuacct.usage").trim().parse().unwrap_or(0)),
                memory_peak_bytes: read(memory, "memory.max_usage_in_bytes").trim().parse().ok(),
            },
        }
    }

    /// Returns whether the group has a process.
    pub fn has_processes(&self) -> bool {
        self.members().first().is_some_and(|file| fs::read(file).is_ok_and(|pids| !pids.is_empty()))
    }

    /// Kills the processes that the group has now.
    pub fn kill(&self) {
        let pids = self.members().first().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        for pid in pids.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)) {
            // The process may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Hierarchy {
    /// Returns the directories of a group of this name, which need not exist; `None` if this process may not create them.
    fn probe(name: &str) -> Option<Self> {
        let root = Path::new(ROOT);
        let hierarchy = match root.join("cgroup.controllers").exists() {
            true => Self::Unified(root.join(name)),
            false => {
                Self::Legacy { cpu: root.join("cpuacct").join(name), memory: root.join("memory").join(name) }
            }
        };
        let is_writable = |dir: &&Path| {
            let parent = dir.parent().unwrap_or(root);
            rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).is_ok()
        };
        hierarchy.dirs().iter().all(is_writable).then_some(hierarchy)
    }

    fn dirs(&self) -> Vec<&Path> {
        match self {
            Self::Unified(dir) => vec![dir],
            Self::Legacy { cpu, memory } => vec![cpu, memory],
        }
    }
}

/// Returns a command that adds itself to control groups, by their `cgroup.procs` files, and then becomes the program.
pub fn command_in_groups(groups: &[PathBuf], program: &Path) -> Command {
    const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@""#;
    if groups.is_empty() {
        return Command::new(program);
    }
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", JOIN, "tenon-group"]).args(groups).arg("--").arg(program);
    shell
}

fn cpu_stat_micros(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn read(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_from_cpu_stat() {
        assert_eq!(cpu_stat_micros("usage_usec 1234\nuser_usec 1000\n"), 1234);
        assert_eq!(cpu_stat_micros(""), 0);
    }

    /// A process that leaves its session still counts, and ends with the group.
    #[test]
    fn a_group_measures_and_ends_processes_of_other_sessions() {
        let mut cleanup = CleanupProcess::new().unwrap();
        let name = format!("tenon-group-test-{}", std::process::id());
        let Some(group) = ControlGroup::create(&name, &mut cleanup).unwrap() else { return };
        let mut command = command_in_groups(&group.members(), Path::new("/bin/sh"));
        let script = "setsid sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 600' & sleep 0.1";
        assert!(command.args(["-c", script]).status().unwrap().success());
        assert!(group.has_processes());
        assert!(group.usage().cpu > Duration::ZERO);
        let dir = group.members()[0].parent().unwrap().to_owned();
        drop(cleanup);
        assert!(!dir.exists());
    }
}
