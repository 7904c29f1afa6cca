//! The end of everything that was made on the machine, in a process of its own.
//!
//! A small shell holds the reading end of a pipe; each line names one thing to undo. At the pipe's end, which comes
//! when the [`Undertaker`] is dropped and just as well when this process is killed, it undoes them, the last first. So
//! there is one way for everything to end, and it is the one that a normal end tests.

use super::SetupError;
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

const SCRIPT: &str = r#"
trap '' INT TERM HUP
undo=
while IFS= read -r line; do
  case $line in
    gone\ *) undo=$(printf '%s\n' "$undo" | grep -vxF -- "${line#gone }") ;;
    *) undo=$(printf '%s\n%s' "$line" "$undo") ;;
  esac
done
patiently() {
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || return 1
    sleep 0.1
  done
}
is_gone() { ! kill -0 "-$1"; }
has_no_process() { [ ! -e "$1" ] || { xargs -r kill -9 <"$1/cgroup.procs"; rmdir -- "$1"; }; }
is_unmounted() { umount -- "$1" || ! mountpoint -q -- "$1"; }
is_detached() {
  for device in $(losetup --noheadings --output NAME --associated "$1"); do losetup -d "$device"; done
  [ -z "$(losetup --noheadings --output NAME --associated "$1")" ]
}
printf '%s\n' "$undo" | while IFS= read -r line; do
  what=${line%% *} which=${line#* }
  case $what in
    kill) kill -9 "-$which"; patiently is_gone "$which" ;;
    group) patiently has_no_process "$which" ;;
    umount) patiently is_unmounted "$which" || umount -l -- "$which" ;;
    detach) patiently is_detached "$which" ;;
    remove) patiently rm -rf --one-file-system -- "$which" ;;
  esac || echo "could not $what $which" >&3
done
"#;

/// Something to undo; what is not there is undone. So it is told before it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo<'a> {
    /// Kill the group of processes with this leader.
    Kill(u32),
    /// Kill all processes of this control group, and remove it.
    Group(&'a Path),
    /// Unmount this directory, if something is mounted on it.
    Unmount(&'a Path),
    /// Give all loop devices over this file back.
    Detach(&'a Path),
    /// Remove this file or directory with all in it.
    Remove(&'a Path),
}

impl fmt::Display for Undo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(pid) => write!(f, "kill {pid}"),
            Self::Group(dir) => write!(f, "group {}", dir.display()),
            Self::Unmount(dir) => write!(f, "umount {}", dir.display()),
            Self::Detach(file) => write!(f, "detach {}", file.display()),
            Self::Remove(path) => write!(f, "remove {}", path.display()),
        }
    }
}

/// Undoes what it was told, when it is dropped or this process ends.
#[derive(Debug)]
pub(super) struct Undertaker {
    shell: Child,
}

impl Undertaker {
    pub(super) fn new() -> Result<Self, SetupError> {
        // The shell's own errors are of things that are gone already; what it could not do it says on 3.
        let script = format!("exec 3>&1 1>/dev/null 2>/dev/null\n{SCRIPT}");
        let shell = Command::new("/bin/sh")
            .args(["-c", &script, "tenon-analyze-undertaker"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let failed = |error: std::io::Error| SetupError::Failed {
            program: "/bin/sh".to_owned(),
            reason: error.to_string(),
        };
        Ok(Self { shell: shell.map_err(failed)? })
    }

    /// This is to be undone, before everything that it was told until now.
    pub(super) fn will(&mut self, undo: &Undo<'_>) -> Result<(), SetupError> {
        self.say(&undo.to_string())
    }

    /// This was undone already.
    pub(super) fn need_not(&mut self, undo: &Undo<'_>) -> Result<(), SetupError> {
        self.say(&format!("gone {undo}"))
    }

    /// Runs a program to its end. It holds the pipe as well, so that nothing is undone while it still makes something,
    /// though this process may be gone by then.
    pub(super) fn run(&mut self, program: &str, arguments: &[&str]) -> Result<Output, SetupError> {
        let held = self.pipe()?.as_fd().try_clone_to_owned().map_err(|error| gone(&error.to_string()))?;
        super::run(program, arguments, held.into())
    }

    fn pipe(&mut self) -> Result<&mut ChildStdin, SetupError> {
        self.shell.stdin.as_mut().ok_or_else(|| gone("it is gone"))
    }

    fn say(&mut self, line: &str) -> Result<(), SetupError> {
        writeln!(self.pipe()?, "{line}").map_err(|error| gone(&error.to_string()))
    }
}

fn gone(reason: &str) -> SetupError {
    SetupError::Failed { program: "the shell that tears down".to_owned(), reason: reason.to_owned() }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let mut left = String::new();
        if let Some(mut said) = self.shell.stdout.take() {
            // Without what it says there is nothing to report.
            let _ = said.read_to_string(&mut left);
        }
        let _ = self.shell.wait();
        for line in left.lines() {
            tracing::error!("{line}; do it by hand");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last that was made goes first, and what is gone already is left alone.
    #[test]
    fn everything_is_undone_backwards() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("outer dir"), root.path().join("outer dir/inner"));
        let kept = root.path().join("kept");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir(&kept).unwrap();
        let mut sleeper = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut undertaker = Undertaker::new().unwrap();
        undertaker.will(&Undo::Group(&outer)).unwrap();
        undertaker.will(&Undo::Remove(&inner)).unwrap();
        undertaker.will(&Undo::Unmount(&inner)).unwrap();
        undertaker.will(&Undo::Detach(&root.path().join("never made"))).unwrap();
        undertaker.will(&Undo::Remove(&kept)).unwrap();
        undertaker.need_not(&Undo::Remove(&kept)).unwrap();
        undertaker.will(&Undo::Kill(sleeper.id())).unwrap();
        let waited = std::thread::spawn(move || sleeper.wait().unwrap());
        drop(undertaker);
        assert!(!waited.join().unwrap().success());
        assert!(!outer.exists() && kept.exists());
    }
}
