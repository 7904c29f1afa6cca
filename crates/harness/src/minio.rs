//! The MinIO server: the Go module that has it, its command, its credentials, and the check that it accepts clients.

use crate::server::status_of;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Region of the MinIO servers that are started by this module's command.
pub const REGION: &str = "us-east-1";
/// Path of the readiness probe.
pub const READY: &str = "/minio/health/ready";

/// The Go module of the program. MinIO's last commit is a pseudo-version: the project is archived and its releases are not module versions.
pub const MODULE: &str = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c";

/// The settings of a MinIO with one drive.
#[derive(Debug, Clone)]
pub struct Minio {
    /// Path of the program.
    pub program: PathBuf,
    /// The administrator's access key.
    pub access_key: String,
    /// The administrator's secret key.
    pub secret_key: String,
    /// Additional environment variables, for example the target of notifications.
    pub environment: Vec<(String, String)>,
}

impl Minio {
    /// Returns the environment of the server.
    pub fn environment(&self) -> Vec<(String, String)> {
        let own = [
            ("MINIO_ROOT_USER", self.access_key.as_str()),
            ("MINIO_ROOT_PASSWORD", &self.secret_key),
            ("MINIO_REGION", REGION),
            ("MINIO_BROWSER", "off"),
            ("MINIO_UPDATE", "off"),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        own.chain(self.environment.iter().cloned()).collect()
    }

    /// Returns the arguments of the server with its data in the directory `data` below `dir`.
    pub fn arguments(address: SocketAddr, dir: &Path) -> Vec<String> {
        let data = dir.join("data").display().to_string();
        vec!["server".into(), "--quiet".into(), "--address".into(), address.to_string(), data]
    }

    /// Returns the command that runs the server in the foreground, with all its files below `dir`.
    pub fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(dir).env("HOME", dir).envs(self.environment());
        command.args(Self::arguments(address, dir));
        command
    }
}

/// Returns whether the server accepts clients. It accepts new buckets once it answers 403 to anonymous requests, a moment after it reports
/// "ready".
pub fn is_ready(address: SocketAddr) -> bool {
    status_of(address, READY) == Some(200) && status_of(address, "/") == Some(403)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tests_and_the_testbed_have_one_version() {
        let script = include_str!("../../../scripts/servers");
        assert!(script.lines().any(|line| line.strip_prefix("minio=") == Some(super::MODULE)));
    }
}
