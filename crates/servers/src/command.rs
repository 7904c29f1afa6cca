//! Commands that tests wait for.

use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a command may run: longer than any, so that one that does not end, such as a server
/// that should have been refused, fails its test and not the whole run.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Runs a command to its end, without input.
///
/// # Panics
/// Panics if the command cannot be started, or takes longer than 15 minutes. It is then killed.
pub fn run_to_end(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(LIMIT) else {
        let _is_killed = kill_process(pid, Signal::KILL);
        panic!("still running after {LIMIT:?}: {command:?}");
    };
    output.unwrap_or_else(|error| panic!("cannot read what {command:?} printed: {error}"))
}
