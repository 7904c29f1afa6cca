//! `cargo xtask figures`: the paper's Figures 2 to 5, measured here and drawn as SVG.
//!
//! One MinIO; files are written and read in records of 4 MiB. Streams are measured beside the raw client with 1, 2, 4
//! and 8 parts at a time; random writes by mapping, with an fsync after each or with write-back; renames by naming, until
//! the call returns and until a client of the bucket finds the new names.

use anyhow::{Context as _, Result, bail, ensure};
use servers::S3Server;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

use super::content::{Comparison, Content};
use super::mount::Mount;
use super::plot::{Figure, Scale, Series};
use super::resource_usage::timed;
use super::{build, raw_client, small_operations};

/// Programs read and write so much at once.
const RECORD_BYTES: u64 = 4 << 20;
const MIB: u64 = 1 << 20;
/// Parts that the raw client has under way.
const PARTS: [usize; 4] = [1, 2, 4, 8];

const USAGE: &str = "usage: cargo xtask figures [--quick] [--renames] [--out FOLDER] [--tenon FILE]

  --quick    files of up to 256 MiB and directories of up to 100 files
  --renames  Figure 5 only
  --tenon    this program, and not a build of the checkout";

/// A rename that other clients do not see by then is lost.
const SEEN_WITHIN: Duration = Duration::from_secs(600);
/// Between two questions whether it is seen.
const PAUSE: Duration = Duration::from_millis(2);

/// A volume's layout, with the flags that make and mount it.
#[derive(Debug, Clone, Copy)]
struct Layout {
    name: &'static str,
    format: &'static [&'static str],
    mount: &'static [&'static str],
}

const BY_PATH: Layout = Layout { name: "by path", format: &[], mount: &[] };
const BY_INODE: Layout = Layout { name: "by inode", format: &["--naming", "inode"], mount: &[] };
const CHUNKED_1: Layout =
    Layout { name: "1 MiB chunks", format: &["--mapping", "chunked", "--chunk-size", "1MiB"], mount: &[] };
const CHUNKED_4: Layout =
    Layout { name: "4 MiB chunks", format: &["--mapping", "chunked", "--chunk-size", "4MiB"], mount: &[] };

impl Layout {
    fn write_back(self) -> Self {
        Self { mount: &["--writeback"], ..self }
    }
}

struct Lab {
    tenon: PathBuf,
    server: S3Server,
    runtime: Runtime,
    file_mib: Vec<u64>,
    dir_files: Vec<u64>,
    buckets: usize,
}

/// Measures, draws, and prints the figures as tables.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let flags = Flags::parse(root, arguments)?;
    if cfg!(debug_assertions) {
        return super::again_in_release(root, "figures", arguments);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (is_quick, out) = (flags.is_quick, &flags.out);
    let mut lab = Lab {
        tenon: flags.tenon.map_or_else(|| build(root), Ok)?,
        server: servers::minio(),
        runtime,
        file_mib: if is_quick { vec![64, 128, 256] } else { vec![64, 128, 256, 512, 1024] },
        dir_files: if is_quick { vec![1, 10, 100] } else { vec![1, 10, 100, 1000] },
        buckets: 0,
    };
    let mut figures = Vec::new();
    if !flags.are_renames {
        let (reads, writes) = lab.streams()?;
        figures.extend([reads, writes, lab.random_writes()?]);
    }
    figures.extend([lab.file_renames()?, lab.directory_renames()?]);
    if !flags.are_renames {
        figures.push(lab.rates()?);
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for figure in &figures {
        fs::write(out.join(format!("{}.svg", figure.name)), figure.svg())?;
        println!("{}", figure.table());
    }
    Ok(())
}

struct Flags {
    is_quick: bool,
    are_renames: bool,
    out: PathBuf,
    tenon: Option<PathBuf>,
}

impl Flags {
    fn parse(root: &Path, arguments: &[String]) -> Result<Self> {
        let out = root.join("docs/figures");
        let mut flags = Self { is_quick: false, are_renames: false, out, tenon: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => flags.is_quick = true,
                "--renames" => flags.are_renames = true,
                "--out" => flags.out = PathBuf::from(rest.next().context(USAGE)?),
                "--tenon" => flags.tenon = Some(PathBuf::from(rest.next().context(USAGE)?)),
                _ => bail!("{USAGE}"),
            }
        }
        Ok(flags)
    }
}

/// Figure 5 by itself, for a measurement of several parts.
pub(crate) fn renames(tenon: &Path, is_quick: bool) -> Result<[Figure; 2]> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut lab = Lab {
        tenon: tenon.to_owned(),
        server: servers::minio(),
        runtime,
        file_mib: if is_quick { vec![64, 128, 256] } else { vec![64, 128, 256, 512, 1024] },
        dir_files: if is_quick { vec![1, 10, 100] } else { vec![1, 10, 100, 1000] },
        buckets: 0,
    };
    Ok([lab.file_renames()?, lab.directory_renames()?])
}

impl Lab {
    fn bucket(&mut self) -> Result<raw_client::Bucket> {
        self.buckets += 1;
        raw_client::Bucket::create(&self.server, &format!("figures-{}", self.buckets), &self.runtime)
    }

    /// A volume in a bucket of its own, mounted.
    fn mount(&mut self, layout: Layout) -> Result<(raw_client::Bucket, Mount)> {
        let bucket = self.bucket()?;
        let mount = Mount::of(&self.tenon, &self.server, &bucket.name, layout.format, layout.mount)?;
        Ok((bucket, mount))
    }

    /// Figures 2 and 3: MiB/s by size.
    fn streams(&mut self) -> Result<(Figure, Figure)> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for parts in PARTS {
            let bucket = self.bucket()?;
            let name = format!("raw client, {parts} parts");
            let (mut read, mut written) = (Vec::new(), Vec::new());
            for &mib in &self.file_mib {
                eprintln!("{name}, {mib} MiB");
                let key = format!("stream/{mib}");
                written.push(rate(mib, || self.runtime.block_on(bucket.put_whole(&key, mib * MIB, parts)))?);
                read.push(rate(mib, || self.runtime.block_on(bucket.get_whole(&key, mib * MIB, parts)))?);
            }
            bucket.empty(&self.runtime)?;
            reads.push(Series { name: name.clone(), values: read });
            writes.push(Series { name, values: written });
        }
        for layout in [BY_PATH, CHUNKED_4, BY_INODE.write_back()] {
            let is_write_back = !layout.mount.is_empty();
            let name = format!("Tenon, {}{}", layout.name, if is_write_back { ", write-back" } else { "" });
            let (bucket, mut mount) = self.mount(layout)?;
            let (mut read, mut written) = (Vec::new(), Vec::new());
            for &mib in &self.file_mib {
                eprintln!("{name}, {mib} MiB");
                let path = mount.point().join(format!("stream-{mib}"));
                written.push(rate(mib, || write_stream(&path, mib * MIB))?);
            }
            for &mib in &self.file_mib {
                mount = mount.again()?;
                let path = mount.point().join(format!("stream-{mib}"));
                read.push(rate(mib, || read_stream(&path, mib * MIB))?);
            }
            mount.end()?;
            bucket.empty(&self.runtime)?;
            writes.push(Series { name: name.clone(), values: written });
            if !is_write_back {
                reads.push(Series { name, values: read });
            }
        }
        let x = self.file_mib.iter().map(|mib| format!("{mib} MiB")).collect::<Vec<_>>();
        let figure = |name: &str, title: &str, series| Figure {
            name: name.into(),
            title: title.into(),
            x_label: "size of the file".into(),
            y_label: "MiB/s".into(),
            x: x.clone(),
            series,
            scale: Scale::Linear,
        };
        Ok((figure("figure-2", "Streaming reads", reads), figure("figure-3", "Streaming writes", writes)))
    }

    /// Figure 4: MiB/s by mapping, writing every record of a file once in random order.
    fn random_writes(&mut self) -> Result<Figure> {
        let layouts = [BY_INODE, CHUNKED_1, CHUNKED_4];
        let modes: [(&str, bool, bool); 3] = [
            ("an fsync after each", false, true),
            ("one close at the end", false, false),
            ("write-back, one fsync at the end", true, false),
        ];
        let mib = 256;
        let mut series = Vec::new();
        for (name, write_back, sync_each) in modes {
            let mut values = Vec::new();
            for layout in layouts {
                eprintln!("random writes, {}, {name}", layout.name);
                let (bucket, mount) = self.mount(if write_back { layout.write_back() } else { layout })?;
                let path = mount.point().join("random");
                write_stream(&path, mib * MIB)?;
                values.push(rate(mib, || write_random(&path, mib * MIB, sync_each, write_back))?);
                let mount = mount.again()?;
                read_random(&mount.point().join("random"), mib * MIB)?;
                mount.end()?;
                bucket.empty(&self.runtime)?;
            }
            series.push(Series { name: name.into(), values });
        }
        Ok(Figure {
            name: "figure-4".into(),
            title: "4 MiB writes in random order, over a stored file of 256 MiB".into(),
            x_label: "mapping".into(),
            y_label: "MiB/s".into(),
            x: vec!["whole".into(), "1 MiB chunks".into(), "4 MiB chunks".into()],
            series,
            scale: Scale::Linear,
        })
    }

    /// Figure 5, left: milliseconds by size.
    fn file_renames(&mut self) -> Result<Figure> {
        let sizes = self.file_mib.clone();
        let series = self.renames(&sizes, |path, mib| write_stream(path, mib * MIB), |name, _| (name, 1))?;
        Ok(Figure {
            name: "figure-5-file".into(),
            title: "Rename of a file".into(),
            x_label: "size of the file".into(),
            y_label: "ms".into(),
            x: sizes.iter().map(|mib| format!("{mib} MiB")).collect(),
            series,
            scale: Scale::Log,
        })
    }

    /// Figure 5, right: milliseconds by number of files of 1 MiB.
    fn directory_renames(&mut self) -> Result<Figure> {
        let counts = self.dir_files.clone();
        let make = |path: &Path, count| {
            fs::create_dir(path)?;
            (0..count).try_for_each(|file| write_stream(&path.join(file.to_string()), MIB))
        };
        let series = self.renames(&counts, make, |name, count| (format!("{name}/"), count))?;
        Ok(Figure {
            name: "figure-5-directory".into(),
            title: "Rename of a directory with files of 1 MiB".into(),
            x_label: "files".into(),
            y_label: "ms".into(),
            x: counts.iter().map(ToString::to_string).collect(),
            series,
            scale: Scale::Log,
        })
    }

    /// Milliseconds of the rename of what `make` makes of each size, by naming: until the call returns, and by path until
    /// the bucket has as many objects below the new prefix as `expected` says. By inode the bucket has no names.
    fn renames(
        &mut self,
        sizes: &[u64],
        make: impl Fn(&Path, u64) -> Result<()>,
        expected: impl Fn(String, u64) -> (String, u64),
    ) -> Result<Vec<Series>> {
        let mut series = Vec::new();
        for layout in [BY_PATH, BY_INODE] {
            let (bucket, mount) = self.mount(layout)?;
            let (mut returned, mut seen) = (Vec::new(), Vec::new());
            for &size in sizes {
                eprintln!("rename of {size}, {}", layout.name);
                let (name, renamed) = (format!("{size}"), format!("{size}-new"));
                let (from, to) = (mount.point().join(name), mount.point().join(&renamed));
                make(&from, size)?;
                let (prefix, count) = expected(renamed, size);
                let (wall, further) = timed(|| {
                    let ((), wall) = timed(|| Ok(fs::rename(&from, &to)?))?;
                    if layout.format.is_empty() {
                        self.runtime.block_on(until_seen(&bucket, &prefix, count))?;
                    }
                    Ok(wall)
                })?;
                returned.push(wall.as_secs_f64() * 1000.0);
                seen.push(further.as_secs_f64() * 1000.0);
            }
            mount.end()?;
            bucket.empty(&self.runtime)?;
            let name = layout.name;
            series.push(Series { name: format!("{name}, until the call returns"), values: returned });
            if layout.format.is_empty() {
                series.push(Series { name: format!("{name}, until the bucket has it"), values: seen });
            }
        }
        Ok(series)
    }

    /// Beyond the paper: what programs do many times a second.
    fn rates(&mut self) -> Result<Figure> {
        let mut series = Vec::new();
        for layout in [BY_INODE, BY_INODE.write_back(), CHUNKED_4.write_back()] {
            let is_write_back = !layout.mount.is_empty();
            let name = format!("{}{}", layout.name, if is_write_back { ", write-back" } else { "" });
            eprintln!("rates, {name}");
            let (bucket, mount) = self.mount(layout)?;
            let point = mount.point();
            let one = small_operations::creates(&point, 1)?;
            let eight = small_operations::creates(&point, 8)?;
            let values = vec![small_operations::sqlite_commits(&point)?, one, eight];
            mount.end()?;
            bucket.empty(&self.runtime)?;
            series.push(Series { name, values });
        }
        Ok(Figure {
            name: "rates".into(),
            title: "What programs do many times".into(),
            x_label: "what".into(),
            y_label: "a second".into(),
            x: vec!["SQLite commits".into(), "files made".into(), "by 8 threads".into()],
            series,
            scale: Scale::Log,
        })
    }
}

/// Returns when so many objects are below a prefix.
async fn until_seen(bucket: &raw_client::Bucket, prefix: &str, count: u64) -> Result<()> {
    let seen = async {
        while bucket.count(prefix).await? < usize::try_from(count)? {
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(SEEN_WITHIN, seen).await.with_context(|| format!("{prefix} is not in the bucket"))?
}

fn rate(mib: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let ((), wall) = timed(work)?;
    Ok(mib as f64 / wall.as_secs_f64())
}

fn record(at: u64, bytes: u64) -> Vec<u8> {
    Content::new(bytes).pieces(0, at, (at + RECORD_BYTES).min(bytes)).concat()
}

/// Ends when the file is closed and its attributes can be read, which is after the flush.
fn write_stream(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    for at in (0..bytes).step_by(RECORD_BYTES as usize) {
        file.write_all(&record(at, bytes))?;
    }
    drop(file);
    ensure!(fs::metadata(path)?.len() == bytes, "{} is not complete", path.display());
    Ok(())
}

fn read_stream(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::open(path)?;
    let mut comparison = Comparison::new(Content::new(bytes), 0, 0);
    let mut buffer = vec![0; RECORD_BYTES as usize];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => ensure!(comparison.holds(&buffer[..count]), "{} has other bytes", path.display()),
        }
    }
    ensure!(comparison.end() == bytes, "{} ended early", path.display());
    Ok(())
}

/// The records of a file in an order that is random and always the same.
fn shuffled(bytes: u64) -> Vec<u64> {
    let entropy = store::Entropy::new(4);
    let mut order: Vec<u64> = (0..bytes / RECORD_BYTES).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, entropy.below(at as u64 + 1) as usize);
    }
    order.into_iter().map(|number| number * RECORD_BYTES).collect()
}

/// What a record of the file holds afterwards: another place's bytes, so that the old ones are told from it.
fn other_record(at: u64, bytes: u64) -> Vec<u8> {
    let mut record = record(at, bytes);
    record.rotate_left(4096);
    record
}

fn write_random(path: &Path, bytes: u64, sync_each: bool, sync_at_end: bool) -> Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    for at in shuffled(bytes) {
        file.write_all_at(&other_record(at, bytes), at)?;
        if sync_each {
            file.sync_data()?;
        }
    }
    if sync_at_end {
        file.sync_data()?;
    }
    drop(file);
    ensure!(fs::metadata(path)?.len() == bytes, "{} is not complete", path.display());
    Ok(())
}

fn read_random(path: &Path, bytes: u64) -> Result<()> {
    let file = File::open(path)?;
    let mut buffer = vec![0; RECORD_BYTES as usize];
    for at in (0..bytes).step_by(RECORD_BYTES as usize) {
        file.read_exact_at(&mut buffer, at)?;
        ensure!(buffer == other_record(at, bytes), "{} has other bytes at {at}", path.display());
    }
    Ok(())
}
