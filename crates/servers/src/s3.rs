//! MinIO and versitygw.

use crate::program;
use crate::server::{Kind, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const ACCESS_KEY: &str = "tenon-tests";
const SECRET_KEY: &str = "not-a-secret-but-long-enough";
const REGION: &str = "us-east-1";

/// A running S3 server.
#[derive(Debug)]
pub struct S3Server(Server);

/// Starts a MinIO with one drive.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn minio() -> S3Server {
    minio_with(&[])
}

/// Starts a MinIO that is also told this by its environment: where it shall send events, say.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn minio_with(environment: &[(&str, &str)]) -> S3Server {
    let environment = owned(environment);
    S3Server(Server::launch(Box::new(Minio { program: program::program("minio"), environment })))
}

/// Starts a versitygw over a directory, its metadata in extended attributes, without versions.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn versitygw() -> S3Server {
    versitygw_with(&[])
}

/// Starts a versitygw that is also told this by its environment: where it shall send events, say.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn versitygw_with(environment: &[(&str, &str)]) -> S3Server {
    let environment = owned(environment);
    S3Server(Server::launch(Box::new(Versitygw { program: program::program("versitygw"), environment })))
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
        format!("http://{}", self.address())
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
}

impl Deref for S3Server {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for S3Server {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}

#[derive(Debug)]
struct Minio {
    program: PathBuf,
    environment: Vec<(String, String)>,
}

impl Kind for Minio {
    fn name(&self) -> &'static str {
        "minio"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(dir)
            .env("HOME", dir)
            .env("MINIO_ROOT_USER", ACCESS_KEY)
            .env("MINIO_ROOT_PASSWORD", SECRET_KEY)
            .env("MINIO_REGION", REGION)
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .args(["server", "--quiet", "--address", &address.to_string()])
            .arg(dir.join("data"));
        command
    }

    fn answers(&self, address: SocketAddr) -> bool {
        // Buckets can be made once it refuses strangers, a moment after it is "ready".
        has_status(address, "/minio/health/ready", "200") && has_status(address, "/", "403")
    }
}

#[derive(Debug)]
struct Versitygw {
    program: PathBuf,
    environment: Vec<(String, String)>,
}

impl Kind for Versitygw {
    fn name(&self) -> &'static str {
        "versitygw"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(dir)
            .env("HOME", dir)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            // Without --keep-alive it closes the connection after every answer.
            .args(["--quiet", "--keep-alive", "--region", REGION, "--port", &address.to_string()])
            .args(["--health", "/health", "posix"])
            .arg(dir.join("data"));
        command
    }

    fn answers(&self, address: SocketAddr) -> bool {
        has_status(address, "/health", "200") && has_status(address, "/", "403")
    }
}

fn owned(environment: &[(&str, &str)]) -> Vec<(String, String)> {
    environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Whether a request without credentials gets this status.
fn has_status(address: SocketAddr, path: &str, expected: &str) -> bool {
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

    fn live_and_die(mut server: S3Server, health: &str) {
        let (endpoint, dir) = (server.endpoint(), server.data_dir());
        assert!(has_status(server.address(), health, "200"));
        std::fs::write(dir.join("kept"), b"").unwrap();
        server.stop();
        assert!(!has_status(server.address(), health, "200"));
        server.restart();
        assert_eq!(server.endpoint(), endpoint);
        assert!(dir.join("kept").exists());
        let address = server.address();
        drop(server);
        assert!(!has_status(address, health, "200"));
        assert!(!dir.exists());
    }

    #[test]
    fn minio_lives_and_dies_with_its_handle() {
        live_and_die(minio(), "/minio/health/ready");
    }

    #[test]
    fn versitygw_lives_and_dies_with_its_handle() {
        live_and_die(versitygw(), "/health");
    }
}
