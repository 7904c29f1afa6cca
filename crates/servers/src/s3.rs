//! MinIO and versitygw.

use crate::program;
use crate::reaper::Reaper;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const ACCESS_KEY: &str = "tenon-tests";
const SECRET_KEY: &str = "not-a-secret-but-long-enough";
const REGION: &str = "us-east-1";

/// How often a starting server is asked, and how long in all: [`POLLS`] × [`POLL_PAUSE`] = 30 s.
const POLLS: u32 = 1500;
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Somebody else can take a port between finding it free and the server's bind.
const PORT_TRIES: u32 = 5;

/// A running S3 server with a directory of its own. Dropping it kills the server and removes the directory.
#[derive(Debug)]
pub struct S3Server {
    kind: Kind,
    program: PathBuf,
    address: SocketAddr,
    dir: PathBuf,
    child: Option<Child>,
    reaper: Reaper,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Minio,
    Versitygw,
}

/// Starts a MinIO with one drive.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn minio() -> S3Server {
    S3Server::launch(Kind::Minio)
}

/// Starts a versitygw over a directory, its metadata in extended attributes, without versions.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn versitygw() -> S3Server {
    S3Server::launch(Kind::Versitygw)
}

/// The one MinIO of this test process, started at first use; take a bucket of your own.
pub fn shared_minio() -> &'static S3Server {
    static SHARED: OnceLock<S3Server> = OnceLock::new();
    SHARED.get_or_init(minio)
}

/// The one versitygw of this test process, started at first use; take a bucket of your own.
pub fn shared_versitygw() -> &'static S3Server {
    static SHARED: OnceLock<S3Server> = OnceLock::new();
    SHARED.get_or_init(versitygw)
}

impl S3Server {
    /// `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The access key that may do everything.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// Its secret.
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// The region requests are to be signed for.
    pub fn region(&self) -> &'static str {
        REGION
    }

    /// Where the server keeps its objects.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The server's process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the server as a crash would; port and data stay reserved for [`S3Server::restart`].
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.reaper.watch(None);
        child.kill().unwrap_or_else(|error| panic!("cannot kill {}: {error}", self.kind.name()));
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

    /// Stops the server in the middle of whatever it does: its kernel goes on taking connections and bytes.
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
        let pid = self.pid().map(|pid| pid.to_string()).unwrap_or_default();
        let sent = Command::new("/bin/sh").args(["-c", "kill \"$0\" \"$1\"", signal, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "cannot signal {}", self.kind.name());
    }

    fn launch(kind: Kind) -> Self {
        let dir = fresh_dir(kind.name());
        let mut server = Self {
            kind,
            program: program::program(kind.name()),
            address: free_port(),
            reaper: Reaper::for_dir(&dir),
            dir,
            child: None,
        };
        for _ in 0..PORT_TRIES {
            if server.start() {
                return server;
            }
            server.stop();
            server.address = free_port();
        }
        panic!("{} does not start: {}", kind.name(), server.log());
    }

    /// Whether it runs and answers.
    fn start(&mut self) -> bool {
        let log =
            std::fs::File::create(self.dir.join("log")).unwrap_or_else(|error| panic!("no log: {error}"));
        let errors = log.try_clone().unwrap_or_else(|error| panic!("no log: {error}"));
        let mut command = self.kind.command(&self.program, self.address, &self.dir);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.program));
        self.reaper.watch(Some(child.id()));
        self.wait_until_it_answers(child)
    }

    fn wait_until_it_answers(&mut self, child: Child) -> bool {
        let child = self.child.insert(child);
        for _ in 0..POLLS {
            let answers = answers(self.address, self.kind.health_path(), "200")
                && answers(self.address, "/", self.kind.stranger_status());
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

impl Drop for S3Server {
    fn drop(&mut self) {
        // The reaper, dropped after this, kills what this cannot.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Minio => "minio",
            Self::Versitygw => "versitygw",
        }
    }

    fn health_path(self) -> &'static str {
        match self {
            Self::Minio => "/minio/health/ready",
            Self::Versitygw => "/health",
        }
    }

    /// What `GET /` without credentials gets once buckets can be made: MinIO is "ready" a moment earlier.
    fn stranger_status(self) -> &'static str {
        match self {
            Self::Minio | Self::Versitygw => "403",
        }
    }

    fn command(self, program: &Path, address: SocketAddr, dir: &Path) -> Command {
        let data = dir.join("data");
        let address = address.to_string();
        let mut command = Command::new(program);
        command.env("HOME", dir).current_dir(dir);
        match self {
            Self::Minio => command
                .env("MINIO_ROOT_USER", ACCESS_KEY)
                .env("MINIO_ROOT_PASSWORD", SECRET_KEY)
                .env("MINIO_REGION", REGION)
                .env("MINIO_BROWSER", "off")
                .env("MINIO_UPDATE", "off")
                .args(["server", "--quiet", "--address", &address])
                .arg(data),
            Self::Versitygw => command
                .env("ROOT_ACCESS_KEY", ACCESS_KEY)
                .env("ROOT_SECRET_KEY", SECRET_KEY)
                // Without --keep-alive it closes the connection after every answer.
                .args(["--quiet", "--keep-alive", "--region", REGION, "--port", &address, "--health"])
                .args([self.health_path(), "posix"])
                .arg(data),
        };
        command
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

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no free port: {error}"));
    listener.local_addr().unwrap_or_else(|error| panic!("no free port: {error}"))
}

/// Whether a request without credentials gets this status.
fn answers(address: SocketAddr, path: &str, expected: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status.ends_with(expected.as_bytes()))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live_and_die(mut server: S3Server) {
        let (endpoint, dir) = (server.endpoint(), server.data_dir());
        assert!(answers(server.address, server.kind.health_path(), "200"));
        std::fs::write(dir.join("kept"), b"").unwrap();
        server.stop();
        assert!(!answers(server.address, server.kind.health_path(), "200"));
        server.restart();
        assert_eq!(server.endpoint(), endpoint);
        assert!(dir.join("kept").exists());
        let (address, path) = (server.address, server.kind.health_path());
        drop(server);
        assert!(!answers(address, path, "200"));
        assert!(!dir.exists());
    }

    #[test]
    fn minio_lives_and_dies_with_its_handle() {
        live_and_die(minio());
    }

    #[test]
    fn versitygw_lives_and_dies_with_its_handle() {
        live_and_die(versitygw());
    }

    /// What a killed test leaves behind: a pipe that ends.
    #[test]
    fn the_reaper_kills_what_it_watches_and_removes_the_directory() {
        let dir = fresh_dir("reaper");
        let mut watched = Command::new("sleep").arg("600").spawn().unwrap();
        let mut reaper = Reaper::for_dir(&dir);
        reaper.watch(Some(watched.id()));
        drop(reaper);
        assert!(!watched.wait().unwrap().success());
        assert!(!dir.exists());
    }
}
