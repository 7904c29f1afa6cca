//! `cargo xtask bench`: the six jobs of the object file-system studies, over a mount and over the raw S3 client.
//!
//! One MinIO, one run: each job is done by the raw client (`store`'s, with parallel parts and ranges) and then by
//! threads on a Tenon mount, so that the ratio is what counts, whatever else the machine does. Writes end when the
//! bucket holds every byte; reads start cold, with a fresh mount and an empty state directory, and every byte is
//! compared. Memory is in use before each measurement, see [`memory_filler`].

pub(crate) mod brokers;
mod content;
mod drive;
mod events;
pub(crate) mod figures;
mod memory_filler;
mod mount;
pub(crate) mod plot;
mod raw_client;
mod report;
mod resource_usage;
mod small_operations;
mod sst;
pub(crate) mod views;
mod visibility;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

use resource_usage::Measured;

/// How much is moved.
#[derive(Debug, Clone, Copy)]
struct Scale {
    big_files: usize,
    big_bytes: u64,
    small_files: usize,
    small_bytes: u64,
    rounds: usize,
    fresh_memory: bool,
}

/// One of the six.
#[derive(Debug, Clone, Copy)]
struct Job {
    name: &'static str,
    writes: bool,
    small: bool,
    threads: usize,
}

/// Jobs that read use what the job before has written.
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

    /// Names in a directory of the job's own.
    fn paths(&self, scale: &Scale) -> Vec<String> {
        let folder = match (self.small, self.threads) {
            (true, _) => "small",
            (false, 1) => "one",
            (false, _) => "many",
        };
        (0..self.files(scale)).map(|file| format!("{folder}/{file:05}")).collect()
    }
}

/// Both sides of one job in one round.
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

  --objects       1,000,000 if not given; --file is filled if it is not there, and stays
  --quick         64 MiB files and 1,024 small ones instead of 256 MiB and 4,096
  --fresh-memory  do not put free memory to use before each measurement";

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
        return again_in_release(root, "bench", arguments);
    }
    let tenon = build(root)?;
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

/// A debug build of the raw client would flatter the mount.
pub(crate) fn again_in_release(root: &Path, command: &str, arguments: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["run", "--quiet", "--release", "-p", "xtask", "--", command])
        .args(arguments)
        .current_dir(root);
    let status = cargo.status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the benchmark failed") }
}

/// The release binary of the same checkout.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "-p", "cli"]).current_dir(root);
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("the release build failed");
    }
    let here = std::env::current_exe().context("cannot find this program")?;
    let beside = here.with_file_name("tenon");
    if beside.is_file() { Ok(beside) } else { bail!("no tenon beside {}", here.display()) }
}

fn measure_all(tenon: &Path, scale: &Scale) -> Result<Vec<Row>> {
    let server = servers::minio();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tenon.parent().context("a program lies in a folder")?;
    let mut filler = if scale.fresh_memory { None } else { Some(memory_filler::Filler::new(folder)?) };
    let mut fill = || filler.as_mut().map_or(Ok(()), memory_filler::Filler::fill);
    let mut rows = Vec::new();
    for round in 0..scale.rounds {
        let raw_bucket = raw_client::Bucket::create(&server, &format!("raw-{round}"), &runtime)?;
        let mount_bucket = raw_client::Bucket::create(&server, &format!("mount-{round}"), &runtime)?;
        for job in JOBS {
            eprintln!("round {} of {}, job {}", round + 1, scale.rounds, job.name);
            fill()?;
            let raw = raw_bucket.run(&job, scale, &runtime)?;
            fill()?;
            let mount = mount::run(tenon, &server, &mount_bucket, &job, scale, &runtime)?;
            rows.push(Row { job, raw, mount });
        }
        raw_bucket.empty(&runtime)?;
        mount_bucket.empty(&runtime)?;
    }
    Ok(rows)
}
