//! A server on a free port of the loopback interface.

use super::cleanup::{Undertaker, Undo};
use super::{SetupError, about};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(60);
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// How to start one.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) dir: PathBuf,
    pub(super) address: SocketAddr,
    /// A path that answers 200 when it is ready for clients, beyond refusing strangers at `/`.
    pub(super) ready: Option<&'static str>,
    /// Where to write its number so that its memory is limited.
    pub(super) group: Option<PathBuf>,
}

/// A running one. It is killed by the undertaker at the latest.
#[derive(Debug)]
pub(super) struct Server {
    recipe: Recipe,
    child: Child,
}

impl Server {
    /// Starts it and waits until it answers.
    pub(super) fn start(recipe: Recipe, undertaker: &mut Undertaker) -> Result<Self, SetupError> {
        let log = recipe.log();
        let out = File::options().create(true).append(true).open(&log).map_err(about(&log))?;
        let errors = out.try_clone().map_err(about(&log))?;
        let mut command = recipe.command();
        command.stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        let failed = |error: std::io::Error| SetupError::NotServing {
            system: recipe.name.clone(),
            reason: format!("{}: {error}", recipe.program.display()),
        };
        let child = command.spawn().map_err(failed)?;
        undertaker.will(&Undo::Kill(child.id()))?;
        let mut server = Self { recipe, child };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as an operator does; its data are whole.
    pub(super) fn stop(mut self, undertaker: &mut Undertaker) -> Result<Recipe, SetupError> {
        let group = rustix::process::Pid::from_child(&self.child);
        // It may have ended by itself.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let end = Instant::now() + STOP_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            std::thread::sleep(POLL_PAUSE);
        }
        undertaker.need_not(&Undo::Kill(self.child.id()))?;
        Ok(self.recipe.clone())
    }

    fn wait_until_it_answers(&mut self) -> Result<(), SetupError> {
        let end = Instant::now() + START_PATIENCE;
        while Instant::now() < end {
            let answers = self.recipe.answers();
            // Asked in this order: if our process is alive after an answer, the answer is its own.
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            if answers {
                return Ok(());
            }
            std::thread::sleep(POLL_PAUSE);
        }
        Err(SetupError::NotServing { system: self.recipe.name.clone(), reason: self.recipe.last_words() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Reaped here, so that the undertaker sees it go.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Recipe {
    fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// By way of a shell that enters the group first: what the server allocates is counted from its first page on.
    fn command(&self) -> Command {
        const ENTER: &str = r#"echo $$ >"$1" && shift && exec "$@""#;
        let mut command = match &self.group {
            Some(group) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", ENTER, "tenon-analyze"]).arg(group).arg(&self.program);
                shell
            }
            None => Command::new(&self.program),
        };
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.dir);
        command
    }

    /// Buckets can be made once it refuses strangers.
    fn answers(&self) -> bool {
        let is_ready = |path| status_of(self.address, path).is_some_and(|status| status == 200);
        self.ready.is_none_or(is_ready) && status_of(self.address, "/") == Some(403)
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }
}

/// The status of an answer to a GET.
fn status_of(address: SocketAddr, path: &str) -> Option<u16> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..12]).ok()?.parse().ok()
}

/// An address on the loopback interface at which nobody listens.
pub(super) fn free_address() -> Result<SocketAddr, SetupError> {
    let found = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    found.map_err(about(Path::new("127.0.0.1")))
}
