//! Time from the response to a PUT until a listing of a view shows the object: through the mount's own endpoint, and through MinIO, which
//! notifies the mount by a webhook.

use ::bench::raw_client::{Bucket, Call};
use anyhow::{Context, Result, ensure};
use servers::S3Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::runtime::Runtime;

use super::mount::Mount;
use super::raw_bucket;
use super::resource_usage::timed;

/// Number of objects for each path.
const OBJECTS: usize = 500;
/// Time after which an object that is not listed counts as failed.
const TIMEOUT: Duration = Duration::from_secs(10);
const BUCKET: &str = "visible";
const RULES: &str = "fresh:\n  container: visible\n  object: '*-fresh-*'\n";
/// Credentials of the endpoint's only user.
const KEYS: (&str, &str) = ("BENCH", "benchbenchbench");

/// The webhook receiver that MinIO notifies.
pub(super) struct Webhook {
    address: String,
    url: String,
}

impl Webhook {
    /// Chooses a free port.
    pub(super) fn new() -> Result<Self> {
        let address = format!("{}/minio", servers::free_address());
        Ok(Self { url: format!("http://{address}"), address })
    }

    /// Returns MinIO's environment variables for the webhook.
    pub(super) fn settings(&self) -> [(&str, &str); 2] {
        [("MINIO_NOTIFY_WEBHOOK_ENABLE_TENON", "on"), ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_TENON", &self.url)]
    }

    /// Returns the flag of `tenon mount`.
    pub(super) fn flag(&self) -> String {
        format!("--events=webhook://{}", self.address)
    }

    /// Configures a bucket to send its events to the webhook.
    pub(super) fn attach(&self, server: &S3Server, bucket: &str) -> Result<()> {
        let credentials = format!("http://{}:{}@", server.access_key(), server.secret_key());
        let output = Command::new(servers::program("mc"))
            .env("MC_HOST_m", server.endpoint().replace("http://", &credentials))
            .args(["--quiet", "event", "add", &format!("m/{bucket}"), "arn:minio:sqs::TENON:webhook"])
            .args(["--event", "put,delete"])
            .output()
            .context("cannot run mc")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mc event add failed: {errors}");
        Ok(())
    }
}

/// Measures both paths and prints a row for each.
pub(super) fn measure(tenon: &Path, server: &S3Server, webhook: &Webhook, runtime: &Runtime) -> Result<()> {
    let bucket = raw_bucket::create(server, BUCKET, runtime)?;
    webhook.attach(server, BUCKET)?;
    let folder = tempfile::tempdir()?;
    let (rules, users) = (folder.path().join("rules.yaml"), folder.path().join("users.toml"));
    std::fs::write(&rules, RULES)?;
    std::fs::write(&users, format!("[[user]]\naccess_key = \"{}\"\nsecret_key = \"{}\"\n", KEYS.0, KEYS.1))?;
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("the path is not UTF-8");
    let (rules, users, events) = (text(&rules)?, text(&users)?, webhook.flag());
    let flags = ["--views", &rules, &events, "--serve", "127.0.0.1:0", "--users", &users];
    let mount = Mount::mount_volume(tenon, server, BUCKET, &[], &flags)?;
    let directory = mount.point().join(".views/fresh");
    ensure!(count_entries(&directory)? == 0, "the view is not empty");
    let endpoint = raw_bucket::open(&mount.endpoint()?, KEYS, BUCKET, runtime)?;
    let paths =
        [("through the endpoint", "endpoint", &endpoint), ("through MinIO's webhook", "webhook", &bucket)];
    for (title, prefix, bucket) in paths {
        let mut times = Vec::with_capacity(OBJECTS);
        for number in 0..OBJECTS {
            times.push(time_to_visible(bucket, &format!("{prefix}-fresh-{number:04}"), &directory, runtime)?);
        }
        times.sort_unstable();
        let percentile =
            |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
        println!("| {title} | {:.2} | {:.2} | {:.2} |", percentile(50), percentile(99), percentile(100));
    }
    mount.unmount()
}

/// Puts an object and returns the time until the directory lists it.
fn time_to_visible(bucket: &Bucket, name: &str, directory: &Path, runtime: &Runtime) -> Result<Duration> {
    let before = count_entries(directory)?;
    runtime.block_on(bucket.call_one(Call::Put, name))?;
    let ((), took) = timed(|| wait_until_listed(directory, before + 1))?;
    ensure!(directory.join(name).exists(), "'{name}' is listed, but cannot be opened");
    Ok(took)
}

/// Lists the directory until it has `expected` entries.
fn wait_until_listed(directory: &Path, expected: usize) -> Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        let (count, took) = timed(|| count_entries(directory))?;
        if count == expected {
            return Ok(());
        }
        waited += took;
        ensure!(waited < TIMEOUT, "only {count} of {expected} objects are listed");
    }
}

fn count_entries(directory: &Path) -> Result<usize> {
    Ok(std::fs::read_dir(directory)?.count())
}
