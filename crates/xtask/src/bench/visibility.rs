//! From the answer to a PUT to the moment at which `ls` of a view shows the object: through a mount's own endpoint, and through MinIO,
//! which tells the mount by its webhook.

use anyhow::{Context, Result, ensure};
use servers::S3Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::runtime::Runtime;

use super::mount::Mount;
use super::raw_client::{Bucket, Call};
use super::resource_usage::timed;

/// Objects of each way.
const OBJECTS: usize = 500;
/// One that is not seen by then is lost.
const PATIENCE: Duration = Duration::from_secs(10);
const BUCKET: &str = "visible";
const RULES: &str = "fresh:\n  container: visible\n  object: '*-fresh-*'\n";
/// Of the endpoint's one user.
const KEYS: (&str, &str) = ("BENCH", "benchbenchbench");

/// Where MinIO sends what happens.
pub(super) struct Webhook {
    address: String,
    url: String,
}

impl Webhook {
    /// At a port that is free now.
    pub(super) fn new() -> Result<Self> {
        let address = format!("{}/minio", servers::free_address());
        Ok(Self { url: format!("http://{address}"), address })
    }

    /// For the server.
    pub(super) fn settings(&self) -> [(&str, &str); 2] {
        [("MINIO_NOTIFY_WEBHOOK_ENABLE_TENON", "on"), ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_TENON", &self.url)]
    }

    /// For a mount.
    pub(super) fn flags(&self) -> String {
        format!("--events=webhook://{}", self.address)
    }

    /// Has a bucket say what happens in it.
    pub(super) fn attach(&self, server: &S3Server, bucket: &str) -> Result<()> {
        let keys = format!("http://{}:{}@", server.access_key(), server.secret_key());
        let said = Command::new(servers::program("mc"))
            .env("MC_HOST_m", server.endpoint().replace("http://", &keys))
            .args(["--quiet", "event", "add", &format!("m/{bucket}"), "arn:minio:sqs::TENON:webhook"])
            .args(["--event", "put,delete"])
            .output()
            .context("cannot run mc")?;
        ensure!(said.status.success(), "mc event add: {}", String::from_utf8_lossy(&said.stderr));
        Ok(())
    }
}

/// Prints a row for each way.
pub(super) fn measure(tenon: &Path, server: &S3Server, webhook: &Webhook, runtime: &Runtime) -> Result<()> {
    let bucket = Bucket::create(server, BUCKET, runtime)?;
    webhook.attach(server, BUCKET)?;
    let folder = tempfile::tempdir()?;
    let (rules, users) = (folder.path().join("rules.yaml"), folder.path().join("users.toml"));
    std::fs::write(&rules, RULES)?;
    std::fs::write(&users, format!("[[user]]\naccess_key = \"{}\"\nsecret_key = \"{}\"\n", KEYS.0, KEYS.1))?;
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("a path in UTF-8");
    let (rules, users, events) = (text(&rules)?, text(&users)?, webhook.flags());
    let flags = ["--views", &rules, &events, "--serve", "127.0.0.1:0", "--users", &users];
    let mount = Mount::of(tenon, server, BUCKET, &[], &flags)?;
    let directory = mount.point().join(".views/fresh");
    ensure!(names(&directory)? == 0, "the view is not empty");
    let endpoint = Bucket::at(mount.endpoint()?, KEYS, BUCKET, runtime)?;
    let ways =
        [("through the endpoint", "endpoint", &endpoint), ("through MinIO's webhook", "webhook", &bucket)];
    for (shown, way, bucket) in ways {
        let mut times = Vec::with_capacity(OBJECTS);
        for number in 0..OBJECTS {
            times.push(put_and_see(bucket, &format!("{way}-fresh-{number:04}"), &directory, runtime)?);
        }
        times.sort_unstable();
        let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
        println!("| {shown} | {:.2} | {:.2} | {:.2} |", at(50), at(99), at(100));
    }
    mount.end()
}

fn put_and_see(bucket: &Bucket, name: &str, directory: &Path, runtime: &Runtime) -> Result<Duration> {
    let before = names(directory)?;
    runtime.block_on(bucket.call_one(Call::Put, name))?;
    let ((), took) = timed(|| see(directory, before + 1))?;
    ensure!(directory.join(name).exists(), "'{name}' is listed and not found");
    Ok(took)
}

/// Lists until there are so many.
fn see(directory: &Path, expected: usize) -> Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        let (count, took) = timed(|| names(directory))?;
        if count == expected {
            return Ok(());
        }
        waited += took;
        ensure!(waited < PATIENCE, "{count} of {expected} objects are seen");
    }
}

fn names(directory: &Path) -> Result<usize> {
    Ok(std::fs::read_dir(directory)?.count())
}
