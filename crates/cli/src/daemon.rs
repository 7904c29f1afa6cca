//! Going to the background: the parent runs this program again, detached, and waits until it is ready.
//!
//! Running anew instead of forking means that no thread, lock or runtime is cut in half. Until it is ready the
//! daemon keeps the parent's standard error, so its one error line reaches the user; its standard output is a
//! pipe to the parent, on which it says [`READY`].

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

/// The hidden flag that tells the daemon what it is.
const CHILD_FLAG: &str = "--daemon-child";
const READY: &str = "ready";

/// Starts the daemon with the same arguments; returns when it is ready or has failed.
pub(crate) fn start(argv: &[OsString]) -> Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program to run it in the background")?;
    let mut child = Command::new(program)
        .args(argv.iter().skip(1))
        .arg(CHILD_FLAG)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the background process; try -f")?;
    if child.stdout.take().is_some_and(becomes_ready) { Ok(ExitCode::SUCCESS) } else { failed(child) }
}

fn becomes_ready(stdout: ChildStdout) -> bool {
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).is_ok() && line.trim_end() == READY
}

/// The daemon has said what was wrong if it ended by itself.
fn failed(mut child: Child) -> Result<ExitCode> {
    let status = child.wait().context("cannot wait for the background process")?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code != 0 => Ok(ExitCode::from(code)),
        _ => bail!("the background process ended before it was ready ({status}); try -f"),
    }
}

/// Leaves the terminal and the session of the parent.
pub(crate) fn detach() -> Result<()> {
    rustix::process::setsid().map(drop).context("cannot start a session")
}

/// Tells the parent that all is well; lets go of its standard output and of the directory it was started in, so
/// that neither is kept busy. No relative path may be used after this.
pub(crate) fn announce() -> Result<()> {
    std::env::set_current_dir("/").context("cannot change to /")?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).context("the waiting parent is gone")?;
    let null = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(&null).context("cannot close standard output")
}
