//! Commands of packages: their processes, output and time limits.

use crate::outcome::{Failure, Phase};
use harness::{CleanupProcess, ControlGroup, Stopwatch};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Interval at which a process is polled. It bounds the error of the times of mounts and unmounts.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Lines of output that a failure shows.
const OUTPUT_LINES: usize = 3;

/// The surroundings of a package's commands.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// The whole environment: nothing of this process, whose variables may have other credentials and settings.
    pub(crate) environment: BTreeMap<String, String>,
    /// Working directory.
    pub(crate) dir: PathBuf,
    /// File that gets all output.
    pub(crate) log: PathBuf,
    /// Texts that no message shows.
    pub(crate) secrets: Vec<String>,
}

impl Surroundings {
    /// Starts a command in a process group of its own, as a member of control groups.
    pub(crate) fn spawn(&self, words: &[String], groups: &[PathBuf]) -> io::Result<Child> {
        let [program, arguments @ ..] = words else { return Err(io::Error::other("an empty command")) };
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = harness::command_in_groups(groups, Path::new(program));
        command.args(arguments).env_clear().envs(&self.environment).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        command.spawn()
    }

    /// Runs a command to completion.
    pub(crate) fn run(
        &self,
        words: &[String],
        groups: &[PathBuf],
        phase: Phase,
        limit: Duration,
    ) -> Result<(), Failure> {
        let started = self.spawn(words, groups);
        let mut child =
            started.map_err(|error| self.command_failed(phase, &format!("{}: {error}", words[0])))?;
        match wait_within(&mut child, limit) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.command_failed(phase, &self.last_output(&status.to_string()))),
            None => {
                kill_group(&mut child);
                Err(Failure::Hung { phase, seconds: limit.as_secs_f64() })
            }
        }
    }

    /// Runs a command to completion in a control group of its own, which ends with it and with the testbed.
    pub(crate) fn run_alone(&self, words: &[String], phase: Phase, limit: Duration) -> Result<(), Failure> {
        let mut cleanup = CleanupProcess::new().map_err(Failure::testbed)?;
        let group = ControlGroup::create(&group_name(), &mut cleanup).map_err(Failure::testbed)?;
        let members = group.as_ref().map(ControlGroup::members).unwrap_or_default();
        self.run(words, &members, phase, limit)
    }

    /// Returns the failure of a command, without secrets.
    pub(crate) fn command_failed(&self, phase: Phase, reason: &str) -> Failure {
        Failure::Command { phase, reason: mask(reason, &self.secrets) }
    }

    /// Returns the last lines of the log that are not empty, or `otherwise` if there are none.
    pub(crate) fn last_output(&self, otherwise: &str) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => otherwise.to_owned(),
            lines => lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("; "),
        }
    }
}

/// Returns a name that no other group of this machine has.
pub(crate) fn group_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("tenon-bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits until a process ends; `None` after the time limit.
pub(crate) fn wait_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let waiting = Stopwatch::start();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            _ if waiting.elapsed() >= limit => return None,
            _ => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Kills the process group of a process that was started here.
pub(crate) fn kill_group(child: &mut Child) {
    // Errors mean that the processes have ended.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Returns the first line that a command prints; `None` if the line is empty, or the command does not start or does not end within ten seconds.
pub(crate) fn first_line(words: &[String], search_path: &str) -> Option<String> {
    const LIMIT: Duration = Duration::from_secs(10);
    let (program, arguments) = words.split_first()?;
    let mut command = std::process::Command::new(program);
    command
        .env_clear()
        .env("PATH", search_path)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn().ok()?;
    if wait_within(&mut child, LIMIT).is_none() {
        kill_group(&mut child);
        return None;
    }
    let mut text = String::new();
    io::Read::read_to_string(&mut child.stdout.take()?, &mut text).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Replaces secrets in a text.
fn mask(text: &str, secrets: &[String]) -> String {
    let present = secrets.iter().filter(|secret| !secret.is_empty());
    present.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(dir: &Path) -> Surroundings {
        Surroundings {
            environment: [("KEY", "hush"), ("PATH", "/usr/bin:/bin")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            dir: dir.to_owned(),
            log: dir.join("log"),
            secrets: vec!["hush".to_owned()],
        }
    }

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_failure_shows_the_last_output_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(10);
        let failed =
            surroundings(dir.path()).run(&shell("echo the key is $KEY; exit 3"), &[], Phase::Mount, limit);
        let reason = "the key is ***".to_owned();
        assert_eq!(failed, Err(Failure::Command { phase: Phase::Mount, reason }));
        let missing = surroundings(dir.path()).run(&["/no/program".to_owned()], &[], Phase::Mount, limit);
        assert!(missing.unwrap_err().to_string().contains("/no/program"));
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let limit = Duration::from_millis(200);
        let hung = surroundings(dir.path()).run(
            &shell("sleep 600 & echo $! >pid; wait"),
            &[],
            Phase::Unmount,
            limit,
        );
        assert_eq!(hung, Err(Failure::Hung { phase: Phase::Unmount, seconds: 0.2 }));
        let pid = std::fs::read_to_string(dir.path().join("pid")).unwrap();
        let end = Stopwatch::start();
        let is_alive = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        while is_alive() && end.elapsed() < Duration::from_secs(5) {
            thread::sleep(POLL_INTERVAL);
        }
        assert!(!is_alive());
    }

    #[test]
    fn the_first_line_of_a_version_is_read() {
        assert_eq!(first_line(&shell("echo '1.2 '; echo more"), ""), Some("1.2".to_owned()));
        assert_eq!(first_line(&["/no/program".to_owned()], ""), None);
    }
}
