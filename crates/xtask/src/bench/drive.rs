//! `cargo xtask bench drive`: measures opening a drive with many small objects, listing all of them, and reading some, each on a newly opened
//! drive.
//!
//! The device is read past the page cache (O_DIRECT), so a newly opened drive is cold. The endpoint and its client run in this process. Keys
//! are put in random order, so that the tables of the index overlap as in real use.

use super::resource_usage::{self, timed};
use ::drive::device::{BlockDevice, FileDevice, Io};
use ::drive::{Drive, FormatOptions, OpenOptions};
use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use s3::{Endpoint, EndpointOptions, Limits, Role, Server, User, Users};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{
    Buckets, Entropy, GetOptions, ListRequest, ObjectKey, ObjectStore, Payload, PutOptions, SystemClock,
};
use store_s3::{Credentials, S3Buckets, S3Config};
use tokio::runtime::Runtime;

const BUCKET: &str = "objects";
const BODY: [u8; 100] = [7; 100];

/// Maximum space on the device per object, with the log and two copies of the index.
const DEVICE_BYTES_PER_OBJECT: u64 = 800;
const DEVICE_BYTES_MIN: u64 = 1 << 30;

/// Number of concurrent PUTs; enough for group commits of maximum size.
const CONCURRENT_PUTS: usize = 512;

/// Number of GETs.
const GETS: u64 = 50_000;
/// Number of concurrent GETs in the second measurement of GETs.
const CONCURRENT_GETS: usize = 32;

/// The parsed arguments.
#[derive(Debug, Clone)]
struct Arguments {
    objects: u64,
    index_bytes: usize,
    file: Option<PathBuf>,
}

/// Measures and prints the results.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let parsed = parse(arguments)?;
    if cfg!(debug_assertions) {
        let all = [&["drive".to_owned()], arguments].concat();
        return super::rerun_in_release(root, "bench", &all);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let folder = tempfile::tempdir_in(program.parent().context("the path of xtask has no directory")?)?;
    let path = parsed.file.clone().unwrap_or_else(|| folder.path().join("drive"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bench = Bench { path, arguments: parsed, runtime };
    if !bench.path.exists() {
        bench.fill()?;
    }
    bench.measure()
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    let mut parsed =
        Arguments { objects: 1_000_000, index_bytes: OpenOptions::default().index_bytes, file: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = rest.next().context(super::USAGE)?;
        match argument.as_str() {
            "--objects" => parsed.objects = value.parse().context(super::USAGE)?,
            "--index-mib" => parsed.index_bytes = value.parse::<usize>().context(super::USAGE)? << 20,
            "--file" => parsed.file = Some(value.into()),
            _ => bail!("{}", super::USAGE),
        }
    }
    Ok(parsed)
}

struct Bench {
    path: PathBuf,
    arguments: Arguments,
    runtime: Runtime,
}

impl Bench {
    fn fill(&self) -> Result<()> {
        let objects = self.arguments.objects;
        let device =
            FileDevice::create(&self.path, (objects * DEVICE_BYTES_PER_OBJECT).max(DEVICE_BYTES_MIN))?;
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        Drive::format(&device, FormatOptions::default(), &Entropy::new(1))?;
        drop(device);
        let drive = self.open()?;
        let ((), time) = timed(|| {
            self.runtime.block_on(async {
                let maintained = drive.clone();
                let maintenance = tokio::spawn(async move { maintained.run_maintenance().await });
                drive.create(BUCKET).await?;
                let bucket = Buckets::open(&drive, BUCKET).await?;
                let puts = stream::iter(0..objects).map(|number| {
                    let bucket = bucket.clone();
                    let put = async move { bucket.put(&key(number), body(), PutOptions::default()).await };
                    async move { anyhow::Ok(tokio::spawn(put).await??) }
                });
                puts.buffer_unordered(CONCURRENT_PUTS).try_for_each(|_| async { Ok(()) }).await?;
                maintenance.abort();
                anyhow::Ok(drive.close().await?)
            })
        })?;
        let us_per_object = time.as_secs_f64() * 1e6 / objects as f64;
        println!(
            "put {objects} objects of {} bytes: {:.1} s, {us_per_object:.1} us per object",
            BODY.len(),
            time.as_secs_f64()
        );
        Ok(())
    }

    fn open(&self) -> Result<Drive> {
        let options = OpenOptions { index_bytes: self.arguments.index_bytes, ..OpenOptions::default() };
        Ok(Drive::open(Io::open(FileDevice::open(&self.path)?), options, Arc::new(SystemClock))?)
    }

    fn measure(&self) -> Result<()> {
        let pid = std::process::id();
        println!(
            "load average {}, index memory {} MiB",
            resource_usage::load_average()?,
            self.arguments.index_bytes >> 20
        );
        let (drive, time) = timed(|| self.open())?;
        let tables: Vec<u64> = drive.info().tables.iter().map(|(len_bytes, _)| len_bytes >> 20).collect();
        println!("open: {:.3} s, tables of {tables:?} MiB", time.as_secs_f64());
        let before = resource_usage::resident_bytes(pid)?;
        self.print_timed("list, library", || self.list(&*self.bucket(&drive)?))?;
        drop(drive);
        let drive = self.open()?;
        self.print_timed("list, HTTP", || self.list_by_http(&drive))?;
        drop(drive);
        for concurrency in [1, CONCURRENT_GETS] {
            let drive = self.open()?;
            let bucket = self.bucket(&drive)?;
            let name = format!("random GET, {concurrency} in flight");
            self.print_timed(&name, || self.runtime.block_on(self.get(bucket.clone(), concurrency)))?;
        }
        let after = resource_usage::resident_bytes(pid)?;
        println!("resident size: {} MiB after opening, {} MiB at the end", before >> 20, after >> 20);
        Ok(())
    }

    /// Runs `work`, which returns a number of objects, and prints its rate and CPU time.
    fn print_timed(&self, name: &str, work: impl FnOnce() -> Result<u64>) -> Result<()> {
        let before = resource_usage::cpu_time(std::process::id())?;
        let (count, time) = timed(work)?;
        let cpu = resource_usage::cpu_time(std::process::id())? - before;
        let us_per_object = cpu.as_secs_f64() * 1e6 / count as f64;
        let rate = count as f64 / time.as_secs_f64();
        println!(
            "{name}: {count} in {:.2} s, {rate:.0} per second, {us_per_object:.2} us of CPU per object",
            time.as_secs_f64()
        );
        Ok(())
    }

    fn bucket(&self, drive: &Drive) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.runtime.block_on(Buckets::open(drive, BUCKET))?)
    }

    /// Lists all objects, page by page.
    fn list(&self, bucket: &dyn ObjectStore) -> Result<u64> {
        let count = self.runtime.block_on(async {
            let (mut count, mut token) = (0, None);
            loop {
                let request = ListRequest { token, limit: 1000, ..ListRequest::default() };
                let page = bucket.list(request).await?;
                count += page.entries.len() as u64;
                match page.next {
                    None => return anyhow::Ok(count),
                    next => token = next,
                }
            }
        })?;
        ensure!(
            count >= self.arguments.objects,
            "the listing has {count} of {} objects",
            self.arguments.objects
        );
        Ok(count)
    }

    fn list_by_http(&self, drive: &Drive) -> Result<u64> {
        let (access, secret) = ("bench", "a-secret-of-a-bench");
        let user = User {
            access_key: access.to_owned(),
            secret_key: secret.to_owned(),
            role: Role::Admin,
            buckets: Vec::new(),
        };
        let options = EndpointOptions {
            md5: false,
            encrypted: false,
            users: Users::new([user])?,
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            webhooks: Default::default(),
        };
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(2)));
        let server = self.runtime.block_on(async {
            let endpoint = Endpoint::new(Arc::new(drive.clone()), options, clock.clone(), entropy.clone());
            let endpoint = endpoint.map_err(anyhow::Error::msg)?;
            anyhow::Ok(Server::start(endpoint, "127.0.0.1:0".parse()?, Limits::default(), None).await?)
        })?;
        let config = S3Config {
            endpoint: Some(server.url()),
            credentials: Credentials::new(access, secret, None)?.into(),
            ..S3Config::default()
        };
        let buckets = S3Buckets::new(config, clock, entropy)?;
        let bucket = self.runtime.block_on(buckets.open(BUCKET))?;
        self.list(&*bucket)
    }

    async fn get(&self, bucket: Arc<dyn ObjectStore>, concurrency: usize) -> Result<u64> {
        let entropy = Entropy::new(3);
        let objects = self.arguments.objects;
        let gets = stream::iter((0..GETS).map(|_| entropy.below(objects))).map(|number| {
            let bucket = bucket.clone();
            let get = async move {
                let object = bucket.get(&key(number), GetOptions::default()).await?;
                object.body.try_fold(0, |len, piece| async move { Ok(len + piece.len()) }).await
            };
            async move { anyhow::Ok(tokio::spawn(get).await??) }
        });
        let check = |len| async move {
            ensure!(len == BODY.len(), "an object has {len} bytes");
            Ok(())
        };
        gets.buffer_unordered(concurrency).try_for_each(check).await?;
        Ok(GETS)
    }
}

/// Returns the key of an object. Hashing the number gives a random order.
fn key(number: u64) -> ObjectKey {
    let text = format!("objects/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ObjectKey::new(text).unwrap_or_else(|_| unreachable!("the key is valid"))
}

fn body() -> Payload {
    BODY.to_vec().into()
}
