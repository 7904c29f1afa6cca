//! Volumes of tests: buckets on a real server, and the program `tenon` on them.

use crate::compiler::built;
use servers::{S3Server, run_to_end, shared_minio};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use store::{Buckets as _, Entropy, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};
use tempfile::TempDir;

/// A volume in a bucket of its own.
#[derive(Debug)]
pub(crate) struct TestVolume {
    /// URL of the volume.
    pub(crate) url: String,
    server: &'static S3Server,
    /// Has the state directories, and a mount point.
    home: TempDir,
}

impl TestVolume {
    /// Makes a bucket, which is a volume named by path.
    pub(crate) fn by_path(name: &str) -> Self {
        let server = shared_minio();
        let bucket = format!("capi-{name}");
        let config = S3Config {
            endpoint: Some(server.endpoint()),
            region: server.region().to_owned(),
            credentials: Credentials::new(server.access_key(), server.secret_key(), None).unwrap().into(),
            ..S3Config::default()
        };
        let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(1))).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(buckets.create(&bucket)).unwrap();
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("mnt")).unwrap();
        Self { url: format!("s3://{bucket}"), server, home }
    }

    /// Makes a volume named by inode.
    pub(crate) fn by_inode(name: &str) -> Self {
        let volume = Self::by_path(name);
        volume.tenon(["format", &volume.url, "--naming", "inode"]);
        volume
    }

    /// Returns options of the library to reach the server.
    pub(crate) fn options(&self) -> Vec<String> {
        vec![
            format!("endpoint-url={}", self.server.endpoint()),
            format!("region={}", self.server.region()),
            format!("access-key-id={}", self.server.access_key()),
            format!("secret-access-key={}", self.server.secret_key()),
        ]
    }

    /// Runs a program of the library with state directories of this volume.
    pub(crate) fn run(&self, mut program: Command) -> Output {
        run_to_end(program.env("XDG_STATE_HOME", self.home.path()))
    }

    /// Runs `tenon`, which must succeed. Returns what it printed.
    pub(crate) fn tenon<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        let mut command = Command::new(built("tenon"));
        command
            .args(arguments)
            .env("XDG_STATE_HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.path())
            .env("AWS_ENDPOINT_URL", self.server.endpoint())
            .env("AWS_REGION", self.server.region())
            .env("AWS_ACCESS_KEY_ID", self.server.access_key())
            .env("AWS_SECRET_ACCESS_KEY", self.server.secret_key());
        let output = run_to_end(&mut command);
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    }

    /// Mounts the volume.
    pub(crate) fn mount(&self) -> Mounted<'_> {
        let at = self.home.path().join("mnt");
        self.tenon(["mount", &self.url, &at.to_string_lossy()]);
        Mounted { volume: self, at }
    }

    /// Returns the files that the library has left in its state directories.
    pub(crate) fn private_states(&self) -> usize {
        let private = self.home.path().join("tenon/private");
        std::fs::read_dir(private).map_or(0, Iterator::count)
    }
}

/// A mount, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Mounted<'v> {
    volume: &'v TestVolume,
    at: PathBuf,
}

impl Mounted<'_> {
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.volume.tenon(["umount", &self.at.to_string_lossy()]);
    }
}

/// Returns what a program has printed.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
