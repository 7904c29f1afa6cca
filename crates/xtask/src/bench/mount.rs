//! A Tenon mount, for measurements.

use anyhow::{Context, Result, ensure};
use servers::S3Server;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount with its own state directory, which is empty at the start; unmounted on drop.
#[derive(Debug)]
pub(super) struct Mount {
    tenon: PathBuf,
    folder: tempfile::TempDir,
    pid: u32,
    /// `None` for a mount that has views only.
    volume: Option<String>,
    flags: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

fn counters(status: &serde_json::Value, field: &str) -> BTreeMap<String, u64> {
    let counts = status.get(field).and_then(serde_json::Value::as_object);
    counts.into_iter().flatten().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
}

impl Mount {
    /// Mounts a bucket with the flags of `tenon mount`. If there are flags of `tenon format`, it formats a volume in the bucket first.
    pub(super) fn mount_volume(
        tenon: &Path,
        server: &S3Server,
        bucket: &str,
        format: &[&str],
        flags: &[&str],
    ) -> Result<Self> {
        let volume = format!("s3://{bucket}");
        let mut mount = Self::unmounted(tenon, server, Some(volume.clone()), flags)?;
        if !format.is_empty() {
            let output = mount.command(&["format", &volume]).args(format).output()?;
            let errors = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "tenon format failed: {errors}");
        }
        mount.start()?;
        Ok(mount)
    }

    /// Mounts the views of a ruleset file, without a volume.
    pub(super) fn mount_views(tenon: &Path, server: &S3Server, rules: &Path, flags: &[&str]) -> Result<Self> {
        let rules = rules.to_str().context("the path is not UTF-8")?;
        let flags = [&["--views", rules], flags].concat();
        let mut mount = Self::unmounted(tenon, server, None, &flags)?;
        mount.start()?;
        Ok(mount)
    }

    fn unmounted(tenon: &Path, server: &S3Server, volume: Option<String>, flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("mnt"))?;
        Ok(Self {
            tenon: tenon.to_owned(),
            folder,
            pid: 0,
            volume,
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            environment: vec![
                ("AWS_ACCESS_KEY_ID", server.access_key().to_owned()),
                ("AWS_SECRET_ACCESS_KEY", server.secret_key().to_owned()),
                ("AWS_ENDPOINT_URL", server.endpoint()),
                ("AWS_REGION", server.region().to_owned()),
            ],
        })
    }

    /// Unmounts and mounts again with the same state directory, so that no file content is in memory.
    pub(super) fn remount(mut self) -> Result<Self> {
        self.pid = 0;
        self.run_umount()?;
        self.start()?;
        Ok(self)
    }

    fn start(&mut self) -> Result<()> {
        let state = self.folder.path().join("state");
        let mut mounting = self.command(&["mount"]);
        mounting.args(&self.volume).arg(self.point()).arg("--state-dir").arg(state).args(&self.flags);
        ensure!(mounting.status()?.success(), "tenon mount failed");
        let pid = self
            .status()?
            .get("pid")
            .and_then(serde_json::Value::as_u64)
            .context("tenon status shows no pid")?;
        self.pid = u32::try_from(pid)?;
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.tenon);
        command.args(words).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns the daemon's pid.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn status(&self) -> Result<serde_json::Value> {
        let output = Command::new(&self.tenon).arg("status").arg(self.point()).arg("--json").output()?;
        ensure!(output.status.success(), "tenon status failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Returns the URL of the mount's endpoint.
    pub(super) fn endpoint(&self) -> Result<String> {
        let status = self.status()?;
        Ok(status
            .get("endpoint")
            .and_then(serde_json::Value::as_str)
            .context("tenon status shows no endpoint")?
            .to_owned())
    }

    /// Returns the number of FUSE requests so far.
    pub(super) fn fuse_requests(&self) -> Result<u64> {
        Ok(counters(&self.status()?, "fuse_requests").values().sum())
    }

    fn run_umount(&self) -> Result<()> {
        let status = Command::new(&self.tenon).arg("umount").arg(self.point()).status()?;
        ensure!(status.success(), "tenon umount failed");
        Ok(())
    }

    pub(super) fn unmount(mut self) -> Result<()> {
        self.pid = 0;
        self.run_umount()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.pid != 0
            && let Err(error) = self.run_umount()
        {
            eprintln!("{error:#}");
        }
    }
}
