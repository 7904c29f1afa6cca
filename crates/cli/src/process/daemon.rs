//! Starts the program in the background: the parent runs this program again, detached, and waits until the child is
//! ready.
//!
//! Running the program again, instead of forking, leaves no thread, lock or runtime in a half-copied state. Until it
//! is ready, the daemon keeps the parent's standard error, so that its one error line reaches the user. Its standard
//! output is a pipe to the parent, to which it writes [`READY`].

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

/// Hidden flag that marks the daemon's process.
const CHILD_FLAG: &str = "--daemon-child";
/// Line that the daemon sends when it is ready.
const READY: &str = "ready";

/// Starts the daemon with the same arguments; returns when it is ready or has failed.
pub(crate) fn start(argv: &[OsString]) -> Result<ExitCode> {
    let program =
        std::env::current_exe().context("cannot find this program to run it in the background; try -f")?;
    let mut child = Command::new(program)
        .args(argv.iter().skip(1))
        .arg(CHILD_FLAG)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the background process; try -f")?;
    if child.stdout.take().is_some_and(becomes_ready) { Ok(ExitCode::SUCCESS) } else { report_failure(child) }
}

fn becomes_ready(stdout: ChildStdout) -> bool {
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).is_ok() && line.trim_end() == READY
}

/// Returns the exit code of a daemon that failed. One that exited by itself has printed its error.
fn report_failure(mut child: Child) -> Result<ExitCode> {
    let status = child.wait().context("cannot wait for the background process")?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code != 0 => Ok(ExitCode::from(code)),
        _ => bail!("the background process ended before it was ready ({status}); try -f"),
    }
}

/// Starts a session without the terminal of the parent.
pub(crate) fn detach() -> Result<()> {
    rustix::process::setsid().map(drop).context("cannot start a session")
}

/// Tells the parent that the daemon is ready. Releases the parent's standard output and the working directory, so
/// that neither is kept busy. Relative paths must not be used after this.
pub(crate) fn announce() -> Result<()> {
    std::env::set_current_dir("/").context("cannot change to /")?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}")
        .and_then(|()| stdout.flush())
        .context("cannot report to the parent process, which waits until the mount is ready")?;
    let null = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(&null).context("cannot redirect standard output to /dev/null")
}
