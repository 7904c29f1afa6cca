//! `cargo xtask bench`: the six jobs of the object file-system studies, on a mount and with the raw S3 client.
//!
//! One MinIO serves the whole run. Each job is done by the raw client (`store`'s, with parallel parts and ranges) and then by threads on a
//! Tenon mount; their ratio is the result, as it depends little on other load of the machine. A write ends when the bucket has every byte.
//! Reads begin cold, with a fresh mount and an empty state directory, and compare every byte. Free memory is put to use before each
//! measurement, see [`memory_filler`].

pub(crate) mod brokers;
mod drive;
mod events;
pub(crate) mod figures;
mod memory_filler;
mod mount;
pub(crate) mod plot;
mod raw_bucket;
mod report;
mod resource_usage;
mod small_operations;
mod sst;
pub(crate) mod views;
mod visibility;

use ::bench::raw_client::Bucket;
use ::bench::{JobFile, Operation};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::runtime::Runtime;

use memory_filler::MemoryFiller;
use resource_usage::Measured;

/// Numbers and sizes of files.
#[derive(Debug, Clone, Copy)]
struct Scale {
    big_files: usize,
    big_bytes: u64,
    small_files: usize,
    small_bytes: u64,
    rounds: usize,
    /// Whether to skip the [`memory_filler`].
    fresh_memory: bool,
}

/// One of the six jobs.
#[derive(Debug, Clone, Copy)]
struct Job {
    name: &'static str,
    writes: bool,
    small: bool,
    threads: usize,
}

/// The jobs in order; a reading job reads the files of the job before it.
const JOBS: [Job; 6] = [
    Job { name: "1 sequential write, 1 writer", writes: true, small: false, threads: 1 },
    Job { name: "2 sequential read, 1 reader, cold", writes: false, small: false, threads: 1 },
    Job { name: "3 sequential write, 8 writers", writes: true, small: false, threads: 8 },
    Job { name: "4 sequential read, 8 readers, cold", writes: false, small: false, threads: 8 },
    Job { name: "5 small-file write, 16 writers", writes: true, small: true, threads: 16 },
    Job { name: "6 small-file read, 16 readers, cold", writes: false, small: true, threads: 16 },
];

impl Job {
    fn files(&self, scale: &Scale) -> usize {
        if self.small { scale.small_files } else { scale.big_files }
    }

    fn file_bytes(&self, scale: &Scale) -> u64 {
        if self.small { scale.small_bytes } else { scale.big_bytes }
    }

    fn bytes(&self, scale: &Scale) -> u64 {
        self.files(scale) as u64 * self.file_bytes(scale)
    }

    fn operation(&self) -> Operation {
        if self.writes { Operation::Write } else { Operation::Read }
    }

    /// Returns the files of each thread.
    fn shares(&self, scale: &Scale) -> Vec<Vec<JobFile>> {
        let size_bytes = self.file_bytes(scale);
        let files = self.paths(scale).into_iter().enumerate();
        let files: Vec<JobFile> = files.map(|(number, path)| JobFile { number, path, size_bytes }).collect();
        let share = |thread| files.iter().skip(thread).step_by(self.threads).cloned().collect();
        (0..self.threads).map(share).collect()
    }

    /// Returns the paths of the job's files, in its own directory.
    fn paths(&self, scale: &Scale) -> Vec<String> {
        let folder = match (self.small, self.threads) {
            (true, _) => "small",
            (false, 1) => "one",
            (false, _) => "many",
        };
        (0..self.files(scale)).map(|file| format!("{folder}/{file:05}")).collect()
    }
}

/// The measurements of one job in one round.
#[derive(Debug)]
struct Row {
    job: Job,
    raw: Measured,
    mount: Measured,
}

const USAGE: &str = "\
usage: cargo xtask bench events [SCENARIO...]
       cargo xtask bench sst
       cargo xtask bench drive [--objects N] [--index-mib N] [--file FILE]
       cargo xtask bench [--quick] [--rounds N] [--fresh-memory] [--json] [--out FILE]

  --objects       number of objects (default 1,000,000)
  --file          use this drive and keep it; it is created if it does not exist
  --quick         write files of 64 MiB and 1,024 small files instead of 256 MiB and 4,096
  --fresh-memory  do not fill free memory before each measurement";

/// Runs the benchmark and prints the table.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    match arguments.split_first() {
        Some((first, rest)) if first == "events" => return events::run(root, rest),
        Some((first, rest)) if first == "drive" => return drive::run(root, rest),
        Some((first, rest)) if first == "sst" => return sst::run(root, rest),
        _ => {}
    }
    let (scale, json, out) = parse(arguments)?;
    if cfg!(debug_assertions) {
        return rerun_in_release(root, "bench", arguments);
    }
    let tenon = build_release(root)?;
    let rows = measure_all(&tenon, &scale)?;
    let text = if json { report::json(&rows, &scale)? } else { report::table(&rows, &scale) };
    print!("{text}");
    if let Some(path) = out {
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(Scale, bool, Option<PathBuf>)> {
    let mut scale = Scale {
        big_files: 8,
        big_bytes: 256 << 20,
        small_files: 4096,
        small_bytes: 64 << 10,
        rounds: 1,
        fresh_memory: false,
    };
    let (mut json, mut out) = (false, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--quick" => (scale.big_bytes, scale.small_files) = (64 << 20, 1024),
            "--fresh-memory" => scale.fresh_memory = true,
            "--json" => json = true,
            "--rounds" => scale.rounds = rest.next().context(USAGE)?.parse().context(USAGE)?,
            "--out" => out = Some(PathBuf::from(rest.next().context(USAGE)?)),
            _ => bail!("{USAGE}"),
        }
    }
    Ok((scale, json, out))
}

/// Runs the command again in a release build of xtask. A debug build would slow the raw client down, in favour of the mount.
pub(crate) fn rerun_in_release(root: &Path, command: &str, arguments: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["run", "--quiet", "--release", "-p", "xtask", "--", command])
        .args(arguments)
        .current_dir(root);
    let status = cargo.status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the benchmark failed") }
}

/// Builds the release binary of the checkout and returns its path.
pub(crate) fn build_release(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "-p", "cli"]).current_dir(root);
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("the release build failed");
    }
    let xtask = std::env::current_exe().context("cannot find this program")?;
    let tenon = xtask.with_file_name("tenon");
    if tenon.is_file() { Ok(tenon) } else { bail!("no tenon beside {}", xtask.display()) }
}

/// Runs a job with the raw client and measures it.
fn run_raw(bucket: &Bucket, job: &Job, scale: &Scale, runtime: &Runtime) -> Result<Measured> {
    let pid = std::process::id();
    let before = resource_usage::cpu_time(pid)?;
    let transfer = || Ok(runtime.block_on(bucket.transfer(job.operation(), &job.shares(scale)))?);
    let ((), wall) = resource_usage::timed(transfer)?;
    Ok(Measured { wall, cpu: resource_usage::cpu_time(pid)? - before, ..Measured::default() })
}

/// Checks that the bucket has all files of the job at their full size.
fn check_files(bucket: &Bucket, job: &Job, scale: &Scale, runtime: &Runtime) -> Result<()> {
    let paths = job.paths(scale);
    let folder = paths.first().and_then(|path| path.split_once('/')).context("the job has no files")?.0;
    let sizes = runtime.block_on(bucket.sizes(&format!("{folder}/")))?;
    let complete = sizes.values().filter(|size| **size == job.file_bytes(scale)).count();
    anyhow::ensure!(complete == paths.len(), "the bucket has {complete} of {} files", paths.len());
    Ok(())
}

fn measure_all(tenon: &Path, scale: &Scale) -> Result<Vec<Row>> {
    let server = servers::minio();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tenon.parent().context("the path of tenon has no directory")?;
    let mut filler = if scale.fresh_memory { None } else { Some(MemoryFiller::new(folder)?) };
    let mut fill = || filler.as_mut().map_or(Ok(()), MemoryFiller::fill);
    let mut rows = Vec::new();
    for round in 0..scale.rounds {
        let raw_bucket = raw_bucket::create(&server, &format!("raw-{round}"), &runtime)?;
        let mount_bucket = raw_bucket::create(&server, &format!("mount-{round}"), &runtime)?;
        for job in JOBS {
            eprintln!("round {} of {}, job {}", round + 1, scale.rounds, job.name);
            fill()?;
            let raw = run_raw(&raw_bucket, &job, scale, &runtime)?;
            fill()?;
            let mount = mount::run(tenon, &server, &mount_bucket, &job, scale, &runtime)?;
            rows.push(Row { job, raw, mount });
        }
        runtime.block_on(raw_bucket.remove_all())?;
        runtime.block_on(mount_bucket.remove_all())?;
    }
    Ok(rows)
}
