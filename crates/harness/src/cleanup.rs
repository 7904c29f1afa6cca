//! Cleanup actions (kill, unmount, detach, remove), registered before the resource exists and executed by a separate process.
//!
//! A shell reads registered actions from a pipe, one per line. When the pipe is closed, it executes them in reverse order. The pipe is
//! closed when the [`CleanupProcess`] is dropped, and also when this process is killed. So there is only one cleanup path, and every normal
//! end tests it.

use crate::{Error, run_program};
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

const SCRIPT: &str = r#"
trap '' INT TERM HUP PIPE
undo=
while IFS= read -r line; do
  case $line in
    gone\ *) undo=$(printf '%s\n' "$undo" | grep -vxF -- "${line#gone }") ;;
    *) undo=$(printf '%s\n%s' "$line" "$undo") ;;
  esac
done
# Tries a command for so many tenths of a second.
patiently() {
  tries=$1
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.1
  done
}
# A process that has ended may wait for its parent for long; it is gone all the same.
is_gone() {
  ! cat /proc/[0-9]*/stat | sed 's/.*) //' | awk -v group="$1" '$3 == group && $1 !~ /[ZX]/ { found = 1 } END { exit !found }'
}
has_no_process() { [ ! -e "$1" ] || { xargs -r kill -9 <"$1/cgroup.procs"; rmdir -- "$1"; }; }
is_unmounted() { umount -- "$1" || ! mountpoint -q -- "$1"; }
has_no_mount_below() {
  for point in $(awk -v dir="$1/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac); do
    umount $2 -- "$(printf '%b' "$point")"
  done
  for device in $(losetup --noheadings --output NAME,BACK-FILE | awk -v dir="$1/" 'index($2, dir) == 1 { print $1 }'); do
    losetup -d "$device"
  done
  ! grep -qF -- " $1/" /proc/self/mountinfo
}
is_detached() {
  for device in $(losetup --noheadings --output NAME --associated "$1"); do losetup -d "$device"; done
  [ -z "$(losetup --noheadings --output NAME --associated "$1")" ]
}
printf '%s\n' "$undo" | while IFS= read -r line; do
  what=${line%% *} which=${line#* }
  case $what in
    kill) kill -9 "-$which"; patiently 300 is_gone "$which" ;;
    group) patiently 300 has_no_process "$which" ;;
    umount) patiently 300 is_unmounted "$which" || umount -l -- "$which" ;;
    below) patiently 300 has_no_mount_below "$which" || has_no_mount_below "$which" -l ;;
    detach) patiently 300 is_detached "$which" ;;
    # Other cleanup processes may have mounts below to give up before.
    remove) patiently 1800 rm -rf --one-file-system -- "$which" ;;
  esac || echo "could not $what $which" >&3
done
"#;

/// A cleanup action. It succeeds if its resource does not exist, so it can be registered before the resource is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CleanupAction<'a> {
    /// Kill the process group with this leader.
    Kill(u32),
    /// Kill all processes of this control group, and remove it.
    RemoveGroup(&'a Path),
    /// Unmount this directory.
    Unmount(&'a Path),
    /// Unmount everything below this directory, and detach all loop devices of files below it.
    UnmountBelow(&'a Path),
    /// Detach all loop devices of this backing file.
    DetachLoops(&'a Path),
    /// Remove this file or directory, with its contents.
    Remove(&'a Path),
}

impl fmt::Display for CleanupAction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(pid) => write!(f, "kill {pid}"),
            Self::RemoveGroup(dir) => write!(f, "group {}", dir.display()),
            Self::Unmount(dir) => write!(f, "umount {}", dir.display()),
            Self::UnmountBelow(dir) => write!(f, "below {}", dir.display()),
            Self::DetachLoops(file) => write!(f, "detach {}", file.display()),
            Self::Remove(path) => write!(f, "remove {}", path.display()),
        }
    }
}

/// A process that executes the registered actions when this value is dropped or this process ends.
#[derive(Debug)]
pub struct CleanupProcess {
    shell: Child,
}

impl CleanupProcess {
    /// Starts the process.
    ///
    /// # Errors
    /// If `/bin/sh` cannot be started.
    pub fn new() -> Result<Self, Error> {
        // Errors of the commands are ignored, as resources may be gone already. Actions that failed are reported on descriptor 3, which has no
        // reader once this process is killed: a broken pipe must not end the cleanup.
        let script = format!("exec 3>&1 1>/dev/null 2>/dev/null\n{SCRIPT}");
        let shell = Command::new("/bin/sh")
            .args(["-c", &script, "tenon-cleanup"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let failed = |error: std::io::Error| Error::Failed {
            program: "/bin/sh".to_owned(),
            reason: error.to_string(),
        };
        Ok(Self { shell: shell.map_err(failed)? })
    }

    /// Registers an action, to be executed before all actions registered earlier.
    ///
    /// # Errors
    /// If the cleanup process has ended.
    pub fn register(&mut self, action: &CleanupAction<'_>) -> Result<(), Error> {
        self.send(&action.to_string())
    }

    /// Unregisters an action that is no longer needed.
    ///
    /// # Errors
    /// If the cleanup process has ended.
    pub fn unregister(&mut self, action: &CleanupAction<'_>) -> Result<(), Error> {
        self.send(&format!("gone {action}"))
    }

    /// Runs a program to completion. The program inherits the pipe, so cleanup does not begin before it ends, even if this process is
    /// killed.
    ///
    /// # Errors
    /// If the program cannot be run or exits with an error.
    pub fn run(&mut self, program: &str, arguments: &[&str]) -> Result<Output, Error> {
        let pipe = self.pipe()?.as_fd().try_clone_to_owned();
        let pipe = pipe.map_err(|error| process_failed(&error.to_string()))?;
        run_program(program, arguments, pipe.into())
    }

    fn pipe(&mut self) -> Result<&mut ChildStdin, Error> {
        self.shell.stdin.as_mut().ok_or_else(|| process_failed("it has ended"))
    }

    fn send(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.pipe()?, "{line}").map_err(|error| process_failed(&error.to_string()))
    }
}

fn process_failed(reason: &str) -> Error {
    Error::Failed { program: "the cleanup process".to_owned(), reason: reason.to_owned() }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let mut failures = String::new();
        if let Some(mut output) = self.shell.stdout.take() {
            // If the output cannot be read, there is nothing to report.
            let _ = output.read_to_string(&mut failures);
        }
        let _ = self.shell.wait();
        for line in failures.lines() {
            tracing::error!("cleanup failed: {line}; do it by hand");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Actions are executed in reverse order; missing resources and unregistered actions are skipped.
    #[test]
    fn actions_are_executed_in_reverse_order() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("outer dir"), root.path().join("outer dir/inner"));
        let kept = root.path().join("kept");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir(&kept).unwrap();
        let mut sleeper = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut cleanup = CleanupProcess::new().unwrap();
        cleanup.register(&CleanupAction::RemoveGroup(&outer)).unwrap();
        cleanup.register(&CleanupAction::Remove(&inner)).unwrap();
        cleanup.register(&CleanupAction::Unmount(&inner)).unwrap();
        cleanup.register(&CleanupAction::DetachLoops(&root.path().join("never made"))).unwrap();
        cleanup.register(&CleanupAction::Remove(&kept)).unwrap();
        cleanup.unregister(&CleanupAction::Remove(&kept)).unwrap();
        cleanup.register(&CleanupAction::Kill(sleeper.id())).unwrap();
        let waited = std::thread::spawn(move || sleeper.wait().unwrap());
        drop(cleanup);
        assert!(!waited.join().unwrap().success());
        assert!(!outer.exists() && kept.exists());
    }

    /// A regression test: the report of an action that failed ended the cleanup of a process that was killed, because nobody read it, and
    /// what was left kept running. Half a minute passes until the action is given up.
    #[test]
    fn cleanup_goes_on_after_an_action_that_fails_when_nobody_reads_its_report() {
        let root = tempfile::tempdir().unwrap();
        let (kept, full) = (root.path().join("kept"), root.path().join("full"));
        std::fs::create_dir_all(full.join("file")).unwrap();
        std::fs::create_dir(&kept).unwrap();
        let mut cleanup = CleanupProcess::new().unwrap();
        cleanup.register(&CleanupAction::Remove(&kept)).unwrap();
        // No control group: the directory is not empty.
        cleanup.register(&CleanupAction::RemoveGroup(&full)).unwrap();
        drop(cleanup.shell.stdout.take());
        drop(cleanup);
        assert!(!kept.exists() && full.exists());
    }

    /// A file system on a loop device, whose file is on another mount. It needs root.
    #[test]
    fn stacked_mounts_are_unmounted_from_the_top() {
        let root = tempfile::tempdir().unwrap();
        let (lower, upper) = (root.path().join("lower dir"), root.path().join("upper"));
        let mut cleanup = CleanupProcess::new().unwrap();
        cleanup.register(&CleanupAction::UnmountBelow(root.path())).unwrap();
        let script = r#"mkdir "$1" "$2"; mount -t tmpfs test "$1"; truncate -s 20M "$1/file"; mkfs.ext4 -q "$1/file"; mount -o loop "$1/file" "$2""#;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", script, "test"]).args([&lower, &upper]);
        assert!(shell.status().unwrap().success());
        let place = root.path().display().to_string();
        let is_left = || {
            let loops = Command::new("losetup").args(["--list", "--output", "BACK-FILE"]).output().unwrap();
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            mounts.contains(&place) || String::from_utf8(loops.stdout).unwrap().contains(&place)
        };
        assert!(is_left());
        drop(cleanup);
        assert!(!is_left());
    }
}
