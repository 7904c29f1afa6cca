//! `cargo xtask torn-reads`: searches for torn reads. An S3 client replaces an object in a loop while threads open and read its file. Each
//! version is one number repeated, so a read that returns different numbers is torn.
//!
//! Scenarios: `bucket` (a bucket of `tenon serve` over a directory, mounted by path), `path` and `inode` (a mount's own endpoint, with a volume
//! named by path or by inode), `drive` (a bucket on an object drive, mounted by path). A read that fails with ESTALE detected the replacement
//! of its object; it is counted separately and is not torn.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Buckets as _, Entropy, ObjectKey, ObjectStore, Payload, PutOptions, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};
use tokio::runtime::Runtime;

const USAGE: &str = "usage: cargo xtask torn-reads [--reads N] [--tenon BINARY] [bucket|path|inode|drive]...";
const SCENARIOS: [&str; 4] = ["bucket", "path", "inode", "drive"];
const KEY: &str = "tenon-torn-reads";
const SECRET: &str = "not-a-secret-but-long-enough";
const BUCKET: &str = "torn";
const OBJECT: &str = "object";
const OBJECT_BYTES: usize = 1 << 20;
/// Size of a read call; an object takes eight.
const CALL_BYTES: usize = 128 << 10;
const READERS: usize = 2;
/// Maximum number of reads between two replacements.
const READS_MAX: u64 = 50;
const ESTALE: i32 = 116;

/// The counts of all readers.
#[derive(Debug, Default)]
struct ReadCounts {
    reads: AtomicU64,
    /// Reads that returned another version than the reader's previous read.
    replacements: AtomicU64,
    torn: AtomicU64,
    stale: AtomicU64,
    is_over: AtomicBool,
}

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let (mut reads, mut tenon, mut wanted) = (100_000, None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--reads" => reads = rest.next().context(USAGE)?.parse().context(USAGE)?,
            "--tenon" => tenon = Some(PathBuf::from(rest.next().context(USAGE)?)),
            name if SCENARIOS.contains(&name) => wanted.push(name),
            _ => bail!(USAGE),
        }
    }
    let tenon = match tenon {
        Some(tenon) => std::path::absolute(tenon)?,
        None => crate::bench::build_release(root)?,
    };
    let wanted = if wanted.is_empty() { SCENARIOS.to_vec() } else { wanted };
    let mut torn = 0;
    for scenario in wanted {
        let counts = measure(&tenon, scenario, reads).with_context(|| scenario.to_owned())?;
        let [reads, replacements, torn_here, stale] =
            [&counts.reads, &counts.replacements, &counts.torn, &counts.stale]
                .map(|count| count.load(Ordering::Relaxed));
        println!(
            "{scenario}: {reads} reads, {replacements} replacements seen, {torn_here} torn, {stale} ESTALE"
        );
        torn += torn_here;
    }
    ensure!(torn == 0, "{torn} torn reads");
    Ok(())
}

fn measure(tenon: &Path, scenario: &str, reads: u64) -> Result<ReadCounts> {
    let runtime = Runtime::new()?;
    let mount = TestMount::new(tenon, scenario)?;
    let bucket = runtime.block_on(mount.bucket())?;
    runtime.block_on(put(&*bucket, 0))?;
    mount.mount_if_served()?;
    let (counts, path) = (ReadCounts::default(), mount.file());
    let is_over = || counts.is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(|| read(&path, &counts, reads))).collect();
        let outcome = (1..).take_while(|_| !is_over()).try_for_each(|number: u64| {
            runtime.block_on(put(&*bucket, number))?;
            let until = counts.reads.load(Ordering::Relaxed) + number % READS_MAX;
            while counts.reads.load(Ordering::Relaxed) < until && !is_over() {
                std::thread::yield_now();
            }
            anyhow::Ok(())
        });
        counts.is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        outcome
    })?;
    Ok(counts)
}

async fn put(bucket: &dyn ObjectStore, number: u64) -> Result<()> {
    let body = number.to_le_bytes().repeat(OBJECT_BYTES / 8);
    bucket.put(&ObjectKey::try_from(OBJECT)?, Payload::from(body), PutOptions::default()).await?;
    Ok(())
}

/// Reads the file in a loop until all readers together have done `reads` reads.
fn read(path: &Path, counts: &ReadCounts, reads: u64) -> Result<()> {
    let (mut last, mut bytes) = (None, Vec::with_capacity(OBJECT_BYTES));
    while !counts.is_over.load(Ordering::Relaxed) {
        match read_once(path, &mut bytes) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(ESTALE) => {
                counts.stale.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Err(error) => {
                counts.is_over.store(true, Ordering::Relaxed);
                return Err(error.into());
            }
        }
        let mut words = bytes.chunks_exact(8);
        let first = words.next().map(<[u8]>::to_vec);
        let is_whole = bytes.len() == OBJECT_BYTES && words.all(|word| first.as_deref() == Some(word));
        counts.torn.fetch_add(u64::from(!is_whole), Ordering::Relaxed);
        counts.replacements.fetch_add(u64::from(last != first), Ordering::Relaxed);
        last = first;
        if counts.reads.fetch_add(1, Ordering::Relaxed) + 1 >= reads {
            counts.is_over.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn read_once(path: &Path, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let (mut file, mut call) = (File::open(path)?, vec![0; CALL_BYTES]);
    bytes.clear();
    loop {
        match file.read(&mut call)? {
            0 => return Ok(()),
            count => bytes.extend_from_slice(&call[..count]),
        }
    }
}

/// A mount, and the endpoint through which its object is replaced.
struct TestMount {
    tenon: PathBuf,
    folder: tempfile::TempDir,
    serving: Option<Child>,
    endpoint: String,
}

impl TestMount {
    fn new(tenon: &Path, scenario: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for name in ["mnt", "home", "run"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let users = folder.path().join("users.toml");
        std::fs::write(&users, format!("[[user]]\naccess_key = \"{KEY}\"\nsecret_key = \"{SECRET}\"\n"))?;
        std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600))?;
        let mut mount = Self { tenon: tenon.to_owned(), folder, serving: None, endpoint: String::new() };
        match scenario {
            "bucket" => {
                let directory = mount.folder.path().join("directory");
                std::fs::create_dir(&directory)?;
                mount.serve(&format!("dirs://{}", directory.display()))?;
            }
            "drive" => {
                mount.tenon(&["drive", "format", "drive.img", "--size", "1GiB"])?;
                let drive = format!("drive://{}", mount.folder.path().join("drive.img").display());
                mount.serve(&drive)?;
            }
            _ => {
                let naming = if scenario == "inode" { "inode" } else { "file-path" };
                mount.tenon(&["format", "volume", "--naming", naming])?;
                let serve = ["--serve", "127.0.0.1:0", "--users", "users.toml", "--directories-as-buckets"];
                mount.tenon(&[&["mount", "volume", "mnt", "--metadata-ttl=0s"][..], &serve].concat())?;
                let status: serde_json::Value =
                    serde_json::from_str(&mount.tenon(&["status", "mnt", "--json"])?)?;
                status["endpoint"]
                    .as_str()
                    .context("tenon status shows no endpoint")?
                    .clone_into(&mut mount.endpoint);
            }
        }
        Ok(mount)
    }

    /// Starts `tenon serve` for a volume; it is stopped on drop.
    fn serve(&mut self, volume: &str) -> Result<()> {
        let mut command =
            self.command(&["serve", volume, "--listen", "127.0.0.1:0", "--users", "users.toml"]);
        let serving = self.serving.insert(command.stdout(Stdio::piped()).spawn()?);
        let mut url = String::new();
        BufReader::new(serving.stdout.take().context("no output")?).read_line(&mut url)?;
        url.trim().clone_into(&mut self.endpoint);
        Ok(())
    }

    /// Mounts the bucket, if it is served by `tenon serve`.
    fn mount_if_served(&self) -> Result<()> {
        if self.serving.is_some() {
            self.tenon(&["mount", &format!("s3://{BUCKET}"), "mnt", "--metadata-ttl=0s"])?;
        }
        Ok(())
    }

    async fn bucket(&self) -> Result<Arc<dyn ObjectStore>> {
        let config = S3Config {
            endpoint: Some(self.endpoint.clone()),
            region: "us-east-1".to_owned(),
            credentials: Credentials::new(KEY, SECRET, None)?.into(),
            ..S3Config::default()
        };
        let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(1)))?;
        buckets.create(BUCKET).await?;
        Ok(buckets.open(BUCKET).await?)
    }

    fn file(&self) -> PathBuf {
        let mount = self.folder.path().join("mnt");
        if self.serving.is_some() { mount.join(OBJECT) } else { mount.join(BUCKET).join(OBJECT) }
    }

    fn tenon(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).output()?;
        ensure!(output.status.success(), "tenon {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.tenon);
        command
            .args(words)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path().join("home"))
            .env("XDG_RUNTIME_DIR", self.folder.path().join("run"))
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", "us-east-1");
        if self.endpoint.is_empty() {
            command.env_remove("AWS_ENDPOINT_URL");
        }
        command
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if let Err(error) = self.tenon(&["umount", "mnt"]) {
            eprintln!("{error:#}");
        }
        if let Some(serving) = &mut self.serving {
            serving.kill().ok();
            serving.wait().ok();
        }
    }
}
