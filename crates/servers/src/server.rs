//! A server process on a loopback port, with a directory of its own.

use harness::{CleanupAction, CleanupProcess, Stopwatch};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Pause between two readiness checks of a starting server, and the time limit for its start.
const POLL_PAUSE: Duration = Duration::from_millis(20);
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// Attempts with another port: another process can take a port after the check that the port is free.
const PORT_ATTEMPTS: u32 = 5;

/// The properties that distinguish one kind of server from another.
pub(crate) trait ServerSpec: Debug + Send + Sync {
    /// Returns the name for errors and directories.
    fn name(&self) -> &'static str;

    /// Builds the command that runs the server in the foreground, with all its files below `dir`.
    fn command(&self, address: SocketAddr, dir: &Path) -> Command;

    /// Whether the server accepts clients.
    fn is_ready(&self, address: SocketAddr) -> bool;
}

/// A running server. Dropping it kills the process and removes its directory.
#[derive(Debug)]
pub struct Server {
    spec: Box<dyn ServerSpec>,
    address: SocketAddr,
    dir: PathBuf,
    child: Option<Child>,
    cleanup: CleanupProcess,
}

impl Server {
    /// Starts the server on a free port.
    pub(crate) fn launch(spec: Box<dyn ServerSpec>) -> Self {
        let dir = fresh_dir(spec.name());
        let mut server = Self { spec, address: free_address(), cleanup: cleanup_of(&dir), dir, child: None };
        for _ in 0..PORT_ATTEMPTS {
            if server.start() {
                return server;
            }
            server.stop();
            server.address = free_address();
        }
        panic!("{} did not start; its log: {}", server.spec.name(), server.log());
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the directory of the server's data.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the process id while the server runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the server with SIGKILL. Port and data stay reserved for [`Server::restart`].
    pub fn stop(&mut self) {
        // The server may have ended by itself.
        let _ = self.send("-KILL");
        let Some(mut child) = self.child.take() else { return };
        self.register(|cleanup| cleanup.unregister(&CleanupAction::Kill(child.id())));
        child.wait().unwrap_or_else(|error| panic!("cannot wait for {}: {error}", self.spec.name()));
    }

    /// Starts the server again on the same port and data, and stops it first if it runs.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub fn restart(&mut self) {
        self.stop();
        assert!(self.start(), "{} did not restart; its log: {}", self.spec.name(), self.log());
    }

    /// Keeps a copy of the data as it is on disk. The server is restarted.
    pub fn keep_data(&mut self) {
        self.stop();
        copy(&self.data_dir(), &self.kept_data());
        self.restart();
    }

    /// Kills the server, and starts it again with the data that was kept last: what it has done since is lost, as after a failover.
    pub fn go_back(&mut self) {
        self.stop();
        copy(&self.kept_data(), &self.data_dir());
        self.restart();
    }

    fn kept_data(&self) -> PathBuf {
        self.data_dir().with_file_name("kept-data")
    }

    /// Stops the server with SIGSTOP. Its kernel still accepts connections and buffers bytes.
    ///
    /// # Panics
    /// Panics if the server does not run.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Resumes the server after [`Server::freeze`].
    ///
    /// # Panics
    /// Panics if the server does not run.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        assert!(self.send(signal), "cannot send a signal to {}: it does not run", self.spec.name());
    }

    /// Sends a signal to the server's process group. Returns false if there is none.
    fn send(&self, signal: &str) -> bool {
        let Some(pid) = self.pid() else { return false };
        let script = "kill \"$0\" \"$1\"";
        let sent = Command::new("/bin/sh")
            .args(["-c", script, signal, &format!("-{pid}")])
            .stderr(Stdio::null())
            .status();
        sent.is_ok_and(|status| status.success())
    }

    /// Starts the process and returns whether it answers.
    fn start(&mut self) -> bool {
        use std::os::unix::process::CommandExt;
        let log = std::fs::File::create(self.dir.join("log"))
            .unwrap_or_else(|error| panic!("cannot create the log: {error}"));
        let errors = log.try_clone().unwrap_or_else(|error| panic!("cannot open the log: {error}"));
        let mut command = self.spec.command(self.address, &self.dir);
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", self.spec.name()));
        self.register(|cleanup| cleanup.register(&CleanupAction::Kill(child.id())));
        self.wait_until_ready(child)
    }

    fn wait_until_ready(&mut self, child: Child) -> bool {
        let child = self.child.insert(child);
        let waiting = Stopwatch::start();
        while waiting.elapsed() < START_TIMEOUT {
            let is_ready = self.spec.is_ready(self.address);
            // The check comes before `try_wait`: if our process still runs after an answer, the answer is from our process.
            if !matches!(child.try_wait(), Ok(None)) {
                return false;
            }
            if is_ready {
                return true;
            }
            std::thread::sleep(POLL_PAUSE);
        }
        false
    }

    fn register(&mut self, change: impl FnOnce(&mut CleanupProcess) -> Result<(), harness::Error>) {
        change(&mut self.cleanup).unwrap_or_else(|error| panic!("{error}"));
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The cleanup process ends after this and kills the other processes of the group.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Replaces a directory by a copy of another one.
fn copy(from: &Path, to: &Path) {
    match std::fs::remove_dir_all(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            panic!("cannot remove {}: {error}", to.display())
        }
        _ => {}
    }
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "cannot copy {}", from.display());
}

/// Returns an address on the loopback interface on which nothing listens.
///
/// # Panics
/// Panics if there is none.
pub fn free_address() -> SocketAddr {
    harness::free_address().unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a cleanup process that removes `dir` at the end.
pub(crate) fn cleanup_of(dir: &Path) -> CleanupProcess {
    let started = CleanupProcess::new().and_then(|mut cleanup| {
        cleanup.register(&CleanupAction::Remove(dir))?;
        Ok(cleanup)
    });
    started.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn fresh_dir(name: &str) -> PathBuf {
    let template = std::env::temp_dir().join(format!("tenon-{name}-XXXXXX"));
    let made = Command::new("mktemp").arg("-d").arg(&template).output();
    let made = made.unwrap_or_else(|error| panic!("cannot run mktemp: {error}"));
    assert!(made.status.success(), "mktemp could not make a directory like {}", template.display());
    let dir = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim_end());
    std::fs::create_dir(dir.join("data"))
        .unwrap_or_else(|error| panic!("cannot make a directory in {}: {error}", dir.display()));
    dir
}
