//! A program that serves on a loopback port, with a directory of its own.

use crate::free_address::free_address;
use crate::reaper::Reaper;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a starting server is asked, and for how long in all.
const POLL_PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(180);

/// Somebody else can take a port between finding it free and the server's bind.
const PORT_TRIES: u32 = 5;

/// What differs from one server to the next.
pub(crate) trait Kind: Debug + Send + Sync {
    /// What it is called in errors and names of directories.
    fn name(&self) -> &'static str;

    /// What starts it in the foreground, with all that it keeps below `dir`.
    fn command(&self, address: SocketAddr, dir: &Path) -> Command;

    /// Whether it is ready for clients.
    fn answers(&self, address: SocketAddr) -> bool;
}

/// A running server. Dropping it kills it and removes its directory.
#[derive(Debug)]
pub struct Server {
    kind: Box<dyn Kind>,
    address: SocketAddr,
    dir: PathBuf,
    child: Option<Child>,
    reaper: Reaper,
}

impl Server {
    /// Starts one on a free port.
    pub(crate) fn launch(kind: Box<dyn Kind>) -> Self {
        let dir = fresh_dir(kind.name());
        let mut server =
            Self { kind, address: free_address(), reaper: Reaper::for_dir(&dir), dir, child: None };
        for _ in 0..PORT_TRIES {
            if server.start() {
                return server;
            }
            server.stop();
            server.address = free_address();
        }
        panic!("{} does not start: {}", server.kind.name(), server.log());
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it keeps what it keeps.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills it as a crash would; port and data stay reserved for [`Server::restart`].
    pub fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.send("-KILL");
        let Some(mut child) = self.child.take() else { return };
        self.reaper.watch(None);
        child.wait().unwrap_or_else(|error| panic!("cannot wait for {}: {error}", self.kind.name()));
    }

    /// Starts it again on the same port and data, stopping it first if it runs.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn restart(&mut self) {
        self.stop();
        assert!(self.start(), "{} does not come back: {}", self.kind.name(), self.log());
    }

    /// Stops it in the middle of whatever it does: its kernel goes on taking connections and bytes.
    ///
    /// # Panics
    /// If it does not run.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        assert!(self.send(signal), "cannot signal {}", self.kind.name());
    }

    /// Signals the server with all the processes that it started; false if there is none.
    fn send(&self, signal: &str) -> bool {
        let Some(pid) = self.pid() else { return false };
        let script = "kill \"$0\" \"$1\"";
        let sent = Command::new("/bin/sh")
            .args(["-c", script, signal, &format!("-{pid}")])
            .stderr(Stdio::null())
            .status();
        sent.is_ok_and(|status| status.success())
    }

    /// Whether it runs and answers.
    fn start(&mut self) -> bool {
        use std::os::unix::process::CommandExt;
        let log =
            std::fs::File::create(self.dir.join("log")).unwrap_or_else(|error| panic!("no log: {error}"));
        let errors = log.try_clone().unwrap_or_else(|error| panic!("no log: {error}"));
        let mut command = self.kind.command(self.address, &self.dir);
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", self.kind.name()));
        self.reaper.watch(Some(child.id()));
        self.wait_until_it_answers(child)
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for a program")]
    fn wait_until_it_answers(&mut self, child: Child) -> bool {
        let child = self.child.insert(child);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let answers = self.kind.answers(self.address);
            // Asked in this order: if our process is alive after an answer, the answer is its own.
            if !matches!(child.try_wait(), Ok(None)) {
                return false;
            }
            if answers {
                return true;
            }
            std::thread::sleep(POLL_PAUSE);
        }
        false
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The reaper, dropped after this, kills what this cannot.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn fresh_dir(name: &str) -> PathBuf {
    let template = std::env::temp_dir().join(format!("tenon-{name}-XXXXXX"));
    let made = Command::new("mktemp").arg("-d").arg(&template).output();
    let made = made.unwrap_or_else(|error| panic!("no mktemp: {error}"));
    assert!(made.status.success(), "no directory like {}", template.display());
    let dir = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim_end());
    std::fs::create_dir(dir.join("data"))
        .unwrap_or_else(|error| panic!("no directory {}: {error}", dir.display()));
    dir
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a killed test leaves behind: a pipe that ends.
    #[test]
    fn the_reaper_kills_what_it_watches_and_removes_the_directory() {
        use std::os::unix::process::CommandExt;
        let dir = fresh_dir("reaper");
        let mut watched = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut reaper = Reaper::for_dir(&dir);
        reaper.watch(Some(watched.id()));
        drop(reaper);
        assert!(!watched.wait().unwrap().success());
        assert!(!dir.exists());
    }
}
