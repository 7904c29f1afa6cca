//! A server process on a free port of the loopback interface.

use crate::control_group::command_in_groups;
use crate::{CleanupAction, CleanupProcess, Error, Stopwatch, file_error};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The specification of a server process.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Name of the system in errors.
    pub name: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// Working directory, which also has the log.
    pub dir: PathBuf,
    /// Address on which the server listens.
    pub address: SocketAddr,
    /// Path of a readiness probe that returns 200; `None` if it is enough that `/` returns 403.
    pub ready: Option<&'static str>,
    /// Files of control groups to which the server's pid is written.
    pub groups: Vec<PathBuf>,
}

/// A running server. Dropping it kills it; the cleanup process does so if this process is killed.
#[derive(Debug)]
pub struct Server {
    spec: ServerSpec,
    child: Child,
}

impl Server {
    /// Starts the server and waits until it accepts requests.
    ///
    /// # Errors
    /// [`Error::NotServing`] if the program cannot be started, ends, or does not accept requests within a minute. Other errors if the log
    /// cannot be created, or the cleanup process has ended.
    pub fn start(spec: ServerSpec, cleanup: &mut CleanupProcess) -> Result<Self, Error> {
        let log = spec.log_path();
        let out = File::options().create(true).append(true).open(&log).map_err(file_error(&log))?;
        let errors = out.try_clone().map_err(file_error(&log))?;
        let mut command = spec.command();
        command.stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        let failed = |error: std::io::Error| Error::NotServing {
            system: spec.name.clone(),
            reason: format!("{}: {error}", spec.program.display()),
        };
        let child = command.spawn().map_err(failed)?;
        cleanup.register(&CleanupAction::Kill(child.id()))?;
        let mut server = Self { spec, child };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server with SIGTERM, as an operator does, so that its data is complete. Kills it after a timeout.
    ///
    /// # Errors
    /// If the cleanup process has ended.
    pub fn stop(mut self, cleanup: &mut CleanupProcess) -> Result<ServerSpec, Error> {
        let group = rustix::process::Pid::from_child(&self.child);
        // Fails if the server has already ended by itself.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let waiting = Stopwatch::start();
        while matches!(self.child.try_wait(), Ok(None)) {
            if waiting.elapsed() > STOP_TIMEOUT {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        cleanup.unregister(&CleanupAction::Kill(self.child.id()))?;
        Ok(self.spec.clone())
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let waiting = Stopwatch::start();
        while waiting.elapsed() < START_TIMEOUT {
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
        Err(Error::NotServing { system: self.spec.name.clone(), reason: self.spec.last_log_lines() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Kill and reap the child here; the cleanup process waits until the rest of its process group is gone.
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
        let mut command = command_in_groups(&self.groups, &self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.dir);
        command
    }

    /// Returns whether the server accepts requests. Buckets can be created once it answers anonymous requests with 403.
    fn is_ready(&self) -> bool {
        let probe_succeeds = |path| status_of(self.address, path).is_some_and(|status| status == 200);
        self.ready.is_none_or(probe_succeeds) && status_of(self.address, "/") == Some(403)
    }

    /// Returns the last three lines of the log that are not empty.
    fn last_log_lines(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }
}

/// Sends a GET and returns the status of the response; `None` if no response comes within seconds.
pub(crate) fn status_of(address: SocketAddr, path: &str) -> Option<u16> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..12]).ok()?.parse().ok()
}
