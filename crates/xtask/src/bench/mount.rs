//! The same jobs by threads on a mount.

use anyhow::{Context, Result, ensure};
use servers::S3Server;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::runtime::Runtime;

use super::content::{Comparison, Content};
use super::resource_usage::{self, Measured};
use super::{Job, Scale, raw_client};

/// Programs read and write in calls of this size.
const CALL_BYTES: usize = 1 << 20;

/// A mount of a bucket with an empty state directory; unmounted on drop.
#[derive(Debug)]
pub(super) struct Mount {
    tenon: PathBuf,
    folder: tempfile::TempDir,
    pid: u32,
    /// `None`: a mount of views alone.
    volume: Option<String>,
    flags: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

pub(super) fn run(
    tenon: &Path,
    server: &S3Server,
    bucket: &raw_client::Bucket,
    job: &Job,
    scale: &Scale,
    runtime: &Runtime,
) -> Result<Measured> {
    let mount = Mount::new(tenon, server, &bucket.name)?;
    let before = resource_usage::cpu(mount.pid)?;
    let (_, wall) = resource_usage::timed(|| {
        in_threads(&mount.point(), job, scale)?;
        if job.writes { bucket.must_hold(job, scale, runtime) } else { Ok(()) }
    })?;
    let status = mount.status()?;
    let measured = Measured {
        wall,
        cpu: resource_usage::cpu(mount.pid)? - before,
        memory_peak_bytes: resource_usage::memory_peak_bytes(mount.pid)?,
        store_requests: counts(&status, "store_requests"),
        fuse_requests: counts(&status, "fuse_requests"),
    };
    mount.end()?;
    Ok(measured)
}

fn in_threads(point: &Path, job: &Job, scale: &Scale) -> Result<()> {
    let paths = job.paths(scale);
    if job.writes {
        let folder = Path::new(&paths[0]).parent().context("a job has a folder")?;
        std::fs::create_dir_all(point.join(folder))?;
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..job.threads)
            .map(|thread| {
                let mine: Vec<_> = paths.iter().enumerate().skip(thread).step_by(job.threads).collect();
                scope.spawn(move || {
                    mine.into_iter().try_for_each(|(file, path)| one(&point.join(path), file, job, scale))
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

fn one(path: &Path, file: usize, job: &Job, scale: &Scale) -> Result<()> {
    let bytes = job.file_bytes(scale);
    let outcome = if job.writes { write(path, file, bytes) } else { read(path, file, bytes) };
    outcome.with_context(|| path.display().to_string())
}

fn write(path: &Path, file: usize, bytes: u64) -> Result<()> {
    let mut content = Content::new(bytes);
    let mut target = File::create(path)?;
    let mut at = 0;
    while at < bytes {
        let block = content.block(file, at, bytes - at);
        target.write_all(block)?;
        at += block.len() as u64;
    }
    // The close stores the file; std swallows its error, so that the bucket is looked at afterwards.
    drop(target);
    Ok(())
}

fn read(path: &Path, file: usize, bytes: u64) -> Result<()> {
    let mut source = File::open(path)?;
    let mut comparison = Comparison::new(Content::new(bytes), file, 0);
    let mut buffer = vec![0; CALL_BYTES];
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        ensure!(comparison.holds(&buffer[..count]), "came back with other bytes");
    }
    ensure!(comparison.end() == bytes, "ended early");
    Ok(())
}

fn counts(status: &serde_json::Value, field: &str) -> BTreeMap<String, u64> {
    let counts = status.get(field).and_then(serde_json::Value::as_object);
    counts.into_iter().flatten().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
}

impl Mount {
    fn new(tenon: &Path, server: &S3Server, bucket: &str) -> Result<Self> {
        Self::of(tenon, server, bucket, &[], &[])
    }

    /// A volume made with the flags of `tenon format`, where there are any, and mounted with those of `tenon mount`.
    pub(super) fn of(
        tenon: &Path,
        server: &S3Server,
        bucket: &str,
        format: &[&str],
        flags: &[&str],
    ) -> Result<Self> {
        let volume = format!("s3://{bucket}");
        let mut mount = Self::unmounted(tenon, server, Some(volume.clone()), flags)?;
        if !format.is_empty() {
            let made = mount.command(&["format", &volume]).args(format).output()?;
            ensure!(made.status.success(), "tenon format failed: {}", String::from_utf8_lossy(&made.stderr));
        }
        mount.start()?;
        Ok(mount)
    }

    /// Views alone, of the rulesets in a file.
    pub(super) fn of_views(tenon: &Path, server: &S3Server, rules: &Path, flags: &[&str]) -> Result<Self> {
        let rules = rules.to_str().context("a path in UTF-8")?;
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

    /// Unmounts, and mounts with the same state: nothing of the files is in memory.
    pub(super) fn again(mut self) -> Result<Self> {
        self.pid = 0;
        self.unmount()?;
        self.start()?;
        Ok(self)
    }

    fn start(&mut self) -> Result<()> {
        let state = self.folder.path().join("state");
        let mut mounting = self.command(&["mount"]);
        mounting.args(&self.volume).arg(self.point()).arg("--state-dir").arg(state).args(&self.flags);
        ensure!(mounting.status()?.success(), "tenon mount failed");
        let pid =
            self.status()?.get("pid").and_then(serde_json::Value::as_u64).context("status without pid")?;
        self.pid = u32::try_from(pid)?;
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.tenon);
        command.args(words).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The daemon's process.
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

    /// The address of its endpoint, where it has one.
    pub(super) fn endpoint(&self) -> Result<String> {
        let status = self.status()?;
        Ok(status.get("endpoint").and_then(serde_json::Value::as_str).context("no endpoint")?.to_owned())
    }

    /// The kernel's requests so far.
    pub(super) fn fuse_requests(&self) -> Result<u64> {
        Ok(counts(&self.status()?, "fuse_requests").values().sum())
    }

    fn unmount(&self) -> Result<()> {
        let status = Command::new(&self.tenon).arg("umount").arg(self.point()).status()?;
        ensure!(status.success(), "tenon umount failed");
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.pid = 0;
        self.unmount()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.pid != 0
            && let Err(error) = self.unmount()
        {
            eprintln!("{error:#}");
        }
    }
}
