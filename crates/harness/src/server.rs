//! A server process on a free port of the loopback interface.

use super::cleanup::{CleanupAction, CleanupProcess};
use super::{SetupError, file_error};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The specification of a server process.
#[derive(Debug, Clone)]
pub(super) struct ServerSpec {
    /// Name of the system in errors.
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) dir: PathBuf,
    pub(super) address: SocketAddr,
    /// Path of a readiness probe that returns 200; `None` if the check of `/` is enough.
    pub(super) ready: Option<&'static str>,
    /// File of the control group that the server's pid is written to, to limit its memory.
    pub(super) group: Option<PathBuf>,
}

/// A running server. The cleanup process kills it if nothing else does.
#[derive(Debug)]
pub(super) struct Server {
    spec: ServerSpec,
    child: Child,
}

impl Server {
    /// Starts the server and waits until it accepts requests.
    pub(super) fn start(spec: ServerSpec, cleanup: &mut CleanupProcess) -> Result<Self, SetupError> {
        let log = spec.log_path();
        let out = File::options().create(true).append(true).open(&log).map_err(file_error(&log))?;
        let errors = out.try_clone().map_err(file_error(&log))?;
        let mut command = spec.command();
        command.stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        let failed = |error: std::io::Error| SetupError::NotServing {
            system: spec.name.clone(),
            reason: format!("{}: {error}", spec.program.display()),
        };
        let child = command.spawn().map_err(failed)?;
        cleanup.register(&CleanupAction::Kill(child.id()))?;
        let mut server = Self { spec, child };
        server.wait_until_ready()?;
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server with SIGTERM, as an operator does, so that its data is complete. Kills it after a timeout.
    pub(super) fn stop(mut self, cleanup: &mut CleanupProcess) -> Result<ServerSpec, SetupError> {
        let group = rustix::process::Pid::from_child(&self.child);
        // Fails if the server has already ended by itself.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let end = Instant::now() + STOP_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        cleanup.unregister(&CleanupAction::Kill(self.child.id()))?;
        Ok(self.spec.clone())
    }

    fn wait_until_ready(&mut self) -> Result<(), SetupError> {
        let end = Instant::now() + START_TIMEOUT;
        while Instant::now() < end {
            let is_ready = self.spec.is_ready();
            // Checked after the request: if our process is still alive, the response was not from another server on the port.
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            if is_ready {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(SetupError::NotServing { system: self.spec.name.clone(), reason: self.spec.last_log_lines() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Reap the child here; the cleanup process waits until it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerSpec {
    fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Returns the command. With a control group, a shell joins the group and then executes the server, so that all memory of the server is
    /// counted.
    fn command(&self) -> Command {
        const JOIN_GROUP: &str = r#"echo $$ >"$1" && shift && exec "$@""#;
        let mut command = match &self.group {
            Some(group) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", JOIN_GROUP, "tenon-analyze"]).arg(group).arg(&self.program);
                shell
            }
            None => Command::new(&self.program),
        };
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.dir);
        command
    }

    /// Whether the server accepts requests. Buckets can be created once it answers anonymous requests with 403.
    fn is_ready(&self) -> bool {
        let probe_succeeds = |path| status_of(self.address, path).is_some_and(|status| status == 200);
        self.ready.is_none_or(probe_succeeds) && status_of(self.address, "/") == Some(403)
    }

    fn last_log_lines(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }
}

/// Sends a GET and returns the status of the response.
fn status_of(address: SocketAddr, path: &str) -> Option<u16> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..12]).ok()?.parse().ok()
}

/// Returns an address on the loopback interface that is not in use.
pub(super) fn free_address() -> Result<SocketAddr, SetupError> {
    let found = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    found.map_err(file_error(Path::new("127.0.0.1")))
}
