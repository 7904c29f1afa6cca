//! A mounted package: its processes, from the mount until the last one has ended.
//!
//! Invariant: mount point, control group and process group are registered with a cleanup process before they are used, so that nothing is
//! left after kill -9 of the testbed.

use super::program::{POLL_INTERVAL, Surroundings, group_name, kill_group};
use super::run_plan::Limits;
use crate::outcome::{Failure, Phase};
use harness::{CleanupAction, CleanupProcess, ControlGroup, Stopwatch, Usage};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Commands of a mount, with their variables filled in.
#[derive(Debug, Clone)]
pub(crate) struct MountCommands {
    pub(crate) mount: Vec<String>,
    pub(crate) unmount: Vec<String>,
}

impl MountCommands {
    /// Makes the pair of both commands; `None` if one is missing.
    pub(crate) fn of(mount: Option<Vec<String>>, unmount: Option<Vec<String>>) -> Option<Self> {
        Some(Self { mount: mount?, unmount: unmount? })
    }
}

/// A package that is mounted. Dropping it kills its processes and unmounts.
#[derive(Debug)]
pub(crate) struct Mounted {
    point: PathBuf,
    child: Child,
    group: Option<ControlGroup>,
    surroundings: Surroundings,
    /// Duration of the mount.
    pub(crate) mount_span: Duration,
    // Dropped last: it removes what the other fields refer to.
    cleanup: CleanupProcess,
}

impl Mounted {
    /// Mounts, and returns when the mount command has ended and the kernel lists the mount point.
    pub(crate) fn mount(
        point: &Path,
        words: &[String],
        surroundings: &Surroundings,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let mut cleanup = CleanupProcess::new().map_err(Failure::testbed)?;
        cleanup.register(&CleanupAction::UnmountBelow(&surroundings.dir)).map_err(Failure::testbed)?;
        cleanup.register(&CleanupAction::Unmount(point)).map_err(Failure::testbed)?;
        let group = ControlGroup::create(&group_name(), &mut cleanup).map_err(Failure::testbed)?;
        let members = group.as_ref().map(ControlGroup::members).unwrap_or_default();
        let watch = Stopwatch::start();
        let started = surroundings.spawn(words, &members);
        let child = started
            .map_err(|error| surroundings.command_failed(Phase::Mount, &format!("{}: {error}", words[0])))?;
        cleanup.register(&CleanupAction::Kill(child.id())).map_err(Failure::testbed)?;
        let mut mounted = Self {
            point: point.to_owned(),
            child,
            group,
            surroundings: surroundings.clone(),
            mount_span: Duration::ZERO,
            cleanup,
        };
        mounted.wait_until_mounted(watch, limit)?;
        mounted.mount_span = watch.elapsed();
        Ok(mounted)
    }

    fn wait_until_mounted(&mut self, watch: Stopwatch, limit: Duration) -> Result<(), Failure> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if !status.success() => {
                    let reason = self.surroundings.last_output(&status.to_string());
                    return Err(self.surroundings.command_failed(Phase::Mount, &reason));
                }
                Ok(Some(_)) if is_mounted(&self.point) => return Ok(()),
                _ if watch.elapsed() >= limit => {
                    self.kill();
                    return Err(Failure::Hung { phase: Phase::Mount, seconds: limit.as_secs_f64() });
                }
                _ => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Unmounts, and returns the time until the mount point is free and the last process of the package has ended.
    pub(crate) fn unmount(mut self, words: &[String], limits: &Limits) -> Result<(Duration, Usage), Failure> {
        let watch = Stopwatch::start();
        let ended = self.run(words, Phase::Unmount, limits.unmount);
        let ended = ended.and_then(|()| self.wait_until_ended(watch, limits.unmount));
        let (span, usage) = (watch.elapsed(), self.usage());
        match &ended {
            // The process is gone, and its number may be given to another.
            Ok(()) => {
                self.cleanup.unregister(&CleanupAction::Kill(self.child.id())).map_err(Failure::testbed)?
            }
            Err(_) => self.kill(),
        }
        ended.map(|()| (span, usage))
    }

    /// Writes the dirty data of the mount back, in a process of its own, which can be given up.
    pub(crate) fn sync(&mut self, limit: Duration) -> Result<Duration, Failure> {
        let watch = Stopwatch::start();
        let point = self.point.display().to_string();
        let words = ["sync".to_owned(), "--file-system".to_owned(), point];
        let synced = self.run(&words, Phase::Sync, limit);
        synced.map(|()| watch.elapsed()).inspect_err(|_| self.kill())
    }

    /// Runs a command as a member of the control group, so that it ends with the package.
    fn run(&self, words: &[String], phase: Phase, limit: Duration) -> Result<(), Failure> {
        let members = self.group.as_ref().map(ControlGroup::members).unwrap_or_default();
        self.surroundings.run(words, &members, phase, limit)
    }

    fn wait_until_ended(&self, watch: Stopwatch, limit: Duration) -> Result<(), Failure> {
        while is_mounted(&self.point) || self.has_processes() {
            if watch.elapsed() >= limit {
                return Err(Failure::Hung { phase: Phase::Unmount, seconds: limit.as_secs_f64() });
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Kills all processes of the package and detaches the mount point.
    pub(crate) fn kill(&mut self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        kill_group(&mut self.child);
        if is_mounted(&self.point) {
            // Lazily: files may be open. An error leaves the mount to the cleanup process.
            let _ = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        }
        // A package may have a second mount, whose file is a loop device.
        if has_mount_below(&mount_table(), &self.surroundings.dir)
            && let Ok(mut cleanup) = CleanupProcess::new()
        {
            // An error means that the cleanup process has ended; that of the session does the same later.
            let _ = cleanup.register(&CleanupAction::UnmountBelow(&self.surroundings.dir));
        }
    }

    /// Returns whether a process of the package runs; false without control groups, as it is not known then.
    pub(crate) fn has_processes(&self) -> bool {
        self.group.as_ref().is_some_and(ControlGroup::has_processes)
    }

    /// Returns the resources that the package used so far; none without control groups.
    pub(crate) fn usage(&self) -> Usage {
        self.group.as_ref().map(ControlGroup::usage).unwrap_or_default()
    }

    /// Returns whether the kernel lists the mount point.
    pub(crate) fn is_mounted(&self) -> bool {
        is_mounted(&self.point)
    }

    /// Returns whether resources are measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.group.is_some()
    }
}

/// Returns whether something is mounted on a directory. The directory itself is not touched, as a dead mount would block.
fn is_mounted(point: &Path) -> bool {
    has_mount_point(&mount_table(), &point.to_string_lossy())
}

fn mount_table() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// Returns whether a table of mounts has a mount point below a directory.
fn has_mount_below(table: &str, dir: &Path) -> bool {
    let below = format!("{}/", dir.display());
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|point| point.starts_with(&below)))
}

/// Returns whether a table of mounts (proc_pid_mountinfo(5)) has a mount point, its fifth field.
fn has_mount_point(table: &str, point: &str) -> bool {
    let escaped = point.replace('\\', "\\134").replace(' ', "\\040");
    table.lines().any(|line| line.split(' ').nth(4) == Some(escaped.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found() {
        let table = "36 35 98:0 / /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw\n";
        assert!(has_mount_point(table, "/mnt/a b"));
        assert!(!has_mount_point(table, "/mnt/a"));
        assert!(has_mount_below(table, Path::new("/mnt")) && !has_mount_below(table, Path::new("/mnt/a")));
    }
}
