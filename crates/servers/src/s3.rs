//! MinIO and versitygw servers.

use crate::program;
use crate::server::{Server, ServerSpec};
use harness::minio::{Minio, REGION, is_ready};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const ACCESS_KEY: &str = "tenon-tests";
const SECRET_KEY: &str = "not-a-secret-but-long-enough";

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

/// Starts a MinIO with additional environment variables, for example the target of its notifications.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn minio_with(environment: &[(&str, &str)]) -> S3Server {
    S3Server(Server::launch(Box::new(Minio {
        program: program::program("minio"),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        environment: to_owned_pairs(environment),
    })))
}

/// Starts a versitygw over a directory. It keeps metadata in extended attributes and has no versioning.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn versitygw() -> S3Server {
    versitygw_with(&[])
}

/// Starts a versitygw with additional environment variables, for example the target of its notifications.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn versitygw_with(environment: &[(&str, &str)]) -> S3Server {
    let environment = to_owned_pairs(environment);
    S3Server(Server::launch(Box::new(Versitygw { program: program::program("versitygw"), environment })))
}

/// Returns the MinIO that all tests of this process share, started at first use. Each test makes a bucket of its own.
pub fn shared_minio() -> &'static S3Server {
    static SHARED: OnceLock<S3Server> = OnceLock::new();
    SHARED.get_or_init(minio)
}

/// Returns the versitygw that all tests of this process share, started at first use. Each test makes a bucket of its own.
pub fn shared_versitygw() -> &'static S3Server {
    static SHARED: OnceLock<S3Server> = OnceLock::new();
    SHARED.get_or_init(versitygw)
}

impl S3Server {
    /// Returns the URL `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the administrator's access key.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// Returns the administrator's secret key.
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// Returns the region to sign requests for.
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

impl ServerSpec for Minio {
    fn name(&self) -> &'static str {
        "minio"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        Minio::command(self, address, dir)
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        is_ready(address)
    }
}

#[derive(Debug)]
struct Versitygw {
    program: PathBuf,
    environment: Vec<(String, String)>,
}

impl ServerSpec for Versitygw {
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
            // Without --keep-alive versitygw closes the connection after each response.
            .args(["--quiet", "--keep-alive", "--region", REGION, "--port", &address.to_string()])
            .args(["--health", "/health", "posix"])
            .arg(dir.join("data"));
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        has_status(address, "/health", "200") && has_status(address, "/", "403")
    }
}

fn to_owned_pairs(environment: &[(&str, &str)]) -> Vec<(String, String)> {
    environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Whether a request without credentials gets the status `expected`.
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

    fn check_lifecycle(mut server: S3Server, health: &str) {
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
    fn minio_stops_with_its_handle() {
        check_lifecycle(minio(), "/minio/health/ready");
    }

    #[test]
    fn versitygw_stops_with_its_handle() {
        check_lifecycle(versitygw(), "/health");
    }
}
