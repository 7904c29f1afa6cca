//! `cargo xtask bench drive`: a drive with many small objects: opening, listing all of it and reading some of it, each just after it was opened.
//!
//! The device is read past the page cache (O_DIRECT), so a drive that was just opened is cold. The endpoint and its client are in
//! this process; keys are stored in no order, so that tables overlap as they do in a life.

use super::resource_usage::{self, timed};
use ::drive::device::{BlockDevice, FileDevice, Io};
use ::drive::{Drive, FormatOptions, OpenOptions};
use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use s3::{Endpoint, EndpointOptions, Limits, Role, Server, User, Users};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::s3::{Credentials, S3Buckets, S3Config};
use store::{
    Buckets, Entropy, GetOptions, ListRequest, ObjectKey, ObjectStore, Payload, PutOptions, SystemClock,
};
use tokio::runtime::Runtime;

const BUCKET: &str = "objects";
const BODY: [u8; 100] = [7; 100];

/// What an object takes of a device at most, with the log and two copies of the index.
const DEVICE_BYTES_EACH: u64 = 800;
const DEVICE_BYTES_MIN: u64 = 1 << 30;

/// So many are stored at the same time: a commit is as large as it can be.
const PUTS_AT_ONCE: usize = 512;

/// So many are read, one after the other and so many at a time.
const GETS: u64 = 50_000;
const GETS_AT_ONCE: usize = 32;

#[derive(Debug, Clone)]
struct Wanted {
    objects: u64,
    index_bytes: usize,
    file: Option<PathBuf>,
}

/// Measures, and says so on standard output.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let wanted = parse(arguments)?;
    if cfg!(debug_assertions) {
        let again = [&["drive".to_owned()], arguments].concat();
        return super::again_in_release(root, "bench", &again);
    }
    let here = std::env::current_exe().context("cannot find this program")?;
    let folder = tempfile::tempdir_in(here.parent().context("a program lies in a folder")?)?;
    let path = wanted.file.clone().unwrap_or_else(|| folder.path().join("drive"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bench = Bench { path, wanted, runtime };
    if !bench.path.exists() {
        bench.fill()?;
    }
    bench.measure()
}

fn parse(arguments: &[String]) -> Result<Wanted> {
    let mut wanted =
        Wanted { objects: 1_000_000, index_bytes: OpenOptions::default().index_bytes, file: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = rest.next().context(super::USAGE)?;
        match argument.as_str() {
            "--objects" => wanted.objects = value.parse().context(super::USAGE)?,
            "--index-mib" => wanted.index_bytes = value.parse::<usize>().context(super::USAGE)? << 20,
            "--file" => wanted.file = Some(value.into()),
            _ => bail!("{}", super::USAGE),
        }
    }
    Ok(wanted)
}

struct Bench {
    path: PathBuf,
    wanted: Wanted,
    runtime: Runtime,
}

impl Bench {
    fn fill(&self) -> Result<()> {
        let objects = self.wanted.objects;
        let device = FileDevice::create(&self.path, (objects * DEVICE_BYTES_EACH).max(DEVICE_BYTES_MIN))?;
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        Drive::format(&device, FormatOptions::default(), &Entropy::new(1))?;
        drop(device);
        let drive = self.open()?;
        let ((), time) = timed(|| {
            self.runtime.block_on(async {
                let kept = drive.clone();
                let keeper = tokio::spawn(async move { kept.keep_up().await });
                drive.create(BUCKET).await?;
                let bucket = Buckets::open(&drive, BUCKET).await?;
                let puts = stream::iter(0..objects).map(|number| {
                    let bucket = bucket.clone();
                    let put = async move { bucket.put(&key(number), body(), PutOptions::default()).await };
                    async move { anyhow::Ok(tokio::spawn(put).await??) }
                });
                puts.buffer_unordered(PUTS_AT_ONCE).try_for_each(|_| async { Ok(()) }).await?;
                keeper.abort();
                anyhow::Ok(drive.close().await?)
            })
        })?;
        let each = time.as_secs_f64() * 1e6 / objects as f64;
        println!(
            "store {objects} objects of {} bytes: {:.1} s, {each:.1} us each",
            BODY.len(),
            time.as_secs_f64()
        );
        Ok(())
    }

    fn open(&self) -> Result<Drive> {
        let options = OpenOptions { index_bytes: self.wanted.index_bytes, ..OpenOptions::default() };
        Ok(Drive::open(Io::open(FileDevice::open(&self.path)?), options, Arc::new(SystemClock))?)
    }

    fn measure(&self) -> Result<()> {
        let own = std::process::id();
        println!(
            "load {}, index memory {} MiB",
            resource_usage::load_average()?,
            self.wanted.index_bytes >> 20
        );
        let (drive, time) = timed(|| self.open())?;
        let tables: Vec<u64> = drive.info().tables.iter().map(|(len_bytes, _)| len_bytes >> 20).collect();
        println!("open: {:.3} s, tables of {tables:?} MiB", time.as_secs_f64());
        let before = resource_usage::resident_bytes(own)?;
        self.timed("list, library", || self.list(&*self.bucket(&drive)?))?;
        drop(drive);
        let drive = self.open()?;
        self.timed("list, HTTP", || self.list_by_http(&drive))?;
        drop(drive);
        for at_once in [1, GETS_AT_ONCE] {
            let drive = self.open()?;
            let bucket = self.bucket(&drive)?;
            let what = format!("GET in no order, {at_once} at once");
            self.timed(&what, || self.runtime.block_on(self.get(bucket.clone(), at_once)))?;
        }
        let after = resource_usage::resident_bytes(own)?;
        println!("resident: {} MiB when it was open, {} MiB at the end", before >> 20, after >> 20);
        Ok(())
    }

    fn timed(&self, what: &str, work: impl FnOnce() -> Result<u64>) -> Result<()> {
        let before = resource_usage::cpu(std::process::id())?;
        let (count, time) = timed(work)?;
        let cpu = resource_usage::cpu(std::process::id())? - before;
        let each_us = cpu.as_secs_f64() * 1e6 / count as f64;
        let rate = count as f64 / time.as_secs_f64();
        println!(
            "{what}: {count} in {:.2} s, {rate:.0} a second, {each_us:.2} us of CPU each",
            time.as_secs_f64()
        );
        Ok(())
    }

    fn bucket(&self, drive: &Drive) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.runtime.block_on(Buckets::open(drive, BUCKET))?)
    }

    /// All objects, page by page.
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
        ensure!(count >= self.wanted.objects, "{count} of {} objects are listed", self.wanted.objects);
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

    async fn get(&self, bucket: Arc<dyn ObjectStore>, at_once: usize) -> Result<u64> {
        let entropy = Entropy::new(3);
        let objects = self.wanted.objects;
        let gets = stream::iter((0..GETS).map(|_| entropy.below(objects))).map(|number| {
            let bucket = bucket.clone();
            let get = async move {
                let object = bucket.get(&key(number), GetOptions::default()).await?;
                object.body.try_fold(0, |len, piece| async move { Ok(len + piece.len()) }).await
            };
            async move { anyhow::Ok(tokio::spawn(get).await??) }
        });
        let read = |len| async move {
            ensure!(len == BODY.len(), "an object of {len} bytes");
            Ok(())
        };
        gets.buffer_unordered(at_once).try_for_each(read).await?;
        Ok(GETS)
    }
}

/// The keys are as good as in no order.
fn key(number: u64) -> ObjectKey {
    let text = format!("objects/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ObjectKey::new(text).unwrap_or_else(|_| unreachable!("it is short"))
}

fn body() -> Payload {
    BODY.to_vec().into()
}
