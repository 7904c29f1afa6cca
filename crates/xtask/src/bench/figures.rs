//! `cargo xtask figures`: measures Figures 2 to 5 of the ObjectFS paper and draws them as SVG.
//!
//! One MinIO serves all measurements. Files are written and read in records of 4 MiB. Streams are compared with the raw client with 1, 2, 4 and
//! 8 parts in flight. Random writes are measured by mapping, with an fsync after each write or with write-back. Renames are measured by naming,
//! until the call returns and until a client of the bucket finds the new names.

use ::bench::JobFile;
use ::bench::content::{Content, ContentChecker};
use ::bench::raw_client::Bucket;
use anyhow::{Context as _, Result, bail, ensure};
use servers::S3Server;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

use super::mount::Mount;
use super::plot::{Figure, Scale, Series};
use super::resource_usage::timed;
use super::{build_release, raw_bucket, small_operations};

/// Size of a read or write call.
const RECORD_BYTES: u64 = 4 << 20;
const MIB: u64 = 1 << 20;
/// Parts that the raw client has in flight.
const PARTS: [usize; 4] = [1, 2, 4, 8];

const USAGE: &str = "usage: cargo xtask figures [--quick] [--renames] [--out FOLDER] [--tenon FILE]

  --quick    measure files of up to 256 MiB and directories of up to 100 files
  --renames  measure Figure 5 only
  --out      write the figures to this directory (default docs/figures)
  --tenon    measure this program (default: a build of the checkout)";

/// Time after which a rename that is not visible to other clients counts as failed.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between two checks of visibility.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A volume layout, with the flags of `tenon format` and `tenon mount` for it.
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

/// The programs and sizes of the measurements.
struct FigureBench {
    tenon: PathBuf,
    server: S3Server,
    runtime: Runtime,
    file_mib: Vec<u64>,
    dir_files: Vec<u64>,
    /// Number of buckets created so far.
    buckets: usize,
}

/// Measures and draws the figures, and prints them as tables.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let flags = Flags::parse(root, arguments)?;
    if cfg!(debug_assertions) {
        return super::rerun_in_release(root, "figures", arguments);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (is_quick, out) = (flags.is_quick, &flags.out);
    let mut bench = FigureBench {
        tenon: flags.tenon.map_or_else(|| build_release(root), Ok)?,
        server: servers::minio(),
        runtime,
        file_mib: if is_quick { vec![64, 128, 256] } else { vec![64, 128, 256, 512, 1024] },
        dir_files: if is_quick { vec![1, 10, 100] } else { vec![1, 10, 100, 1000] },
        buckets: 0,
    };
    let mut figures = Vec::new();
    if !flags.only_renames {
        let (reads, writes) = bench.streams()?;
        figures.extend([reads, writes, bench.random_writes()?]);
    }
    figures.extend([bench.file_renames()?, bench.directory_renames()?]);
    if !flags.only_renames {
        figures.push(bench.small_operations()?);
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
    only_renames: bool,
    out: PathBuf,
    tenon: Option<PathBuf>,
}

impl Flags {
    fn parse(root: &Path, arguments: &[String]) -> Result<Self> {
        let out = root.join("docs/figures");
        let mut flags = Self { is_quick: false, only_renames: false, out, tenon: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => flags.is_quick = true,
                "--renames" => flags.only_renames = true,
                "--out" => flags.out = PathBuf::from(rest.next().context(USAGE)?),
                "--tenon" => flags.tenon = Some(PathBuf::from(rest.next().context(USAGE)?)),
                _ => bail!("{USAGE}"),
            }
        }
        Ok(flags)
    }
}

/// Measures Figure 5 only, for `cargo xtask measure`.
pub(crate) fn renames(tenon: &Path, is_quick: bool) -> Result<[Figure; 2]> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut bench = FigureBench {
        tenon: tenon.to_owned(),
        server: servers::minio(),
        runtime,
        file_mib: if is_quick { vec![64, 128, 256] } else { vec![64, 128, 256, 512, 1024] },
        dir_files: if is_quick { vec![1, 10, 100] } else { vec![1, 10, 100, 1000] },
        buckets: 0,
    };
    Ok([bench.file_renames()?, bench.directory_renames()?])
}

impl FigureBench {
    fn create_bucket(&mut self) -> Result<Bucket> {
        self.buckets += 1;
        raw_bucket::create(&self.server, &format!("figures-{}", self.buckets), &self.runtime)
    }

    /// Creates a volume in a new bucket and mounts it.
    fn mount_new(&mut self, layout: Layout) -> Result<(Bucket, Mount)> {
        let bucket = self.create_bucket()?;
        let mount =
            Mount::mount_volume(&self.tenon, &self.server, bucket.name(), layout.format, layout.mount)?;
        Ok((bucket, mount))
    }

    /// Measures Figures 2 and 3: MiB/s of streams by file size.
    fn streams(&mut self) -> Result<(Figure, Figure)> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for parts in PARTS {
            let bucket = self.create_bucket()?;
            let name = format!("raw client, {parts} parts");
            let (mut read, mut written) = (Vec::new(), Vec::new());
            for &mib in &self.file_mib {
                eprintln!("{name}, {mib} MiB");
                let file = JobFile {
                    number: 0,
                    path: format!("stream/{mib}"),
                    size_bytes: mib * MIB,
                    rewritten: None,
                };
                written.push(rate(mib, || Ok(self.runtime.block_on(bucket.write(&file, parts))?))?);
                read.push(rate(mib, || Ok(self.runtime.block_on(bucket.read(&file, parts))?))?);
            }
            self.runtime.block_on(bucket.remove_all())?;
            reads.push(Series { name: name.clone(), values: read });
            writes.push(Series { name, values: written });
        }
        for layout in [BY_PATH, CHUNKED_4, BY_INODE.write_back()] {
            let is_write_back = !layout.mount.is_empty();
            let name = format!("Tenon, {}{}", layout.name, if is_write_back { ", write-back" } else { "" });
            let (bucket, mut mount) = self.mount_new(layout)?;
            let (mut read, mut written) = (Vec::new(), Vec::new());
            for &mib in &self.file_mib {
                eprintln!("{name}, {mib} MiB");
                let path = mount.point().join(format!("stream-{mib}"));
                written.push(rate(mib, || write_stream(&path, mib * MIB))?);
            }
            for &mib in &self.file_mib {
                mount = mount.remount()?;
                let path = mount.point().join(format!("stream-{mib}"));
                read.push(rate(mib, || read_stream(&path, mib * MIB))?);
            }
            mount.unmount()?;
            self.runtime.block_on(bucket.remove_all())?;
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

    /// Measures Figure 4: MiB/s by mapping, when every record of a file is written once in random order.
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
                let (bucket, mount) =
                    self.mount_new(if write_back { layout.write_back() } else { layout })?;
                let path = mount.point().join("random");
                write_stream(&path, mib * MIB)?;
                values.push(rate(mib, || write_random(&path, mib * MIB, sync_each, write_back))?);
                let mount = mount.remount()?;
                read_random(&mount.point().join("random"), mib * MIB)?;
                mount.unmount()?;
                self.runtime.block_on(bucket.remove_all())?;
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

    /// Measures Figure 5, left: time of a file's rename by size.
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

    /// Measures Figure 5, right: time of a directory's rename by its number of files of 1 MiB.
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

    /// Measures renames by naming, in milliseconds. `make` creates what is renamed for each size. Each rename is timed until the call returns;
    /// for naming by path also until the bucket has the number of objects below the new prefix that `expected` returns. With naming by inode
    /// the bucket has no names.
    fn renames(
        &mut self,
        sizes: &[u64],
        make: impl Fn(&Path, u64) -> Result<()>,
        expected: impl Fn(String, u64) -> (String, u64),
    ) -> Result<Vec<Series>> {
        let mut series = Vec::new();
        for layout in [BY_PATH, BY_INODE] {
            let (bucket, mount) = self.mount_new(layout)?;
            let (mut returned, mut visible) = (Vec::new(), Vec::new());
            for &size in sizes {
                eprintln!("rename of {size}, {}", layout.name);
                let (name, renamed) = (format!("{size}"), format!("{size}-new"));
                let (from, to) = (mount.point().join(name), mount.point().join(&renamed));
                make(&from, size)?;
                let (prefix, count) = expected(renamed, size);
                let (call_time, visible_time) = timed(|| {
                    let ((), call_time) = timed(|| Ok(fs::rename(&from, &to)?))?;
                    if layout.format.is_empty() {
                        self.runtime.block_on(wait_until_visible(&bucket, &prefix, count))?;
                    }
                    Ok(call_time)
                })?;
                returned.push(call_time.as_secs_f64() * 1000.0);
                visible.push(visible_time.as_secs_f64() * 1000.0);
            }
            mount.unmount()?;
            self.runtime.block_on(bucket.remove_all())?;
            let name = layout.name;
            series.push(Series { name: format!("{name}, until the call returns"), values: returned });
            if layout.format.is_empty() {
                series.push(Series { name: format!("{name}, until the bucket has it"), values: visible });
            }
        }
        Ok(series)
    }

    /// Measures rates of small operations, which the paper does not have.
    fn small_operations(&mut self) -> Result<Figure> {
        let mut series = Vec::new();
        for layout in [BY_INODE, BY_INODE.write_back(), CHUNKED_4.write_back()] {
            let is_write_back = !layout.mount.is_empty();
            let name = format!("{}{}", layout.name, if is_write_back { ", write-back" } else { "" });
            eprintln!("small operations, {name}");
            let (bucket, mount) = self.mount_new(layout)?;
            let point = mount.point();
            let one = small_operations::file_creations(&point, 1)?;
            let eight = small_operations::file_creations(&point, 8)?;
            let values = vec![small_operations::sqlite_commits(&point)?, one, eight];
            mount.unmount()?;
            self.runtime.block_on(bucket.remove_all())?;
            series.push(Series { name, values });
        }
        Ok(Figure {
            name: "rates".into(),
            title: "Rates of small operations".into(),
            x_label: "operation".into(),
            y_label: "per second".into(),
            x: vec!["SQLite commits".into(), "file creations".into(), "by 8 threads".into()],
            series,
            scale: Scale::Log,
        })
    }
}

/// Waits until the bucket has `count` objects below a prefix.
async fn wait_until_visible(bucket: &Bucket, prefix: &str, count: u64) -> Result<()> {
    let visible = async {
        while bucket.count(prefix).await? < usize::try_from(count)? {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(VISIBLE_TIMEOUT, visible)
        .await
        .with_context(|| format!("{prefix} is not in the bucket"))?
}

/// Returns the MiB/s of `work`.
fn rate(mib: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let ((), wall) = timed(work)?;
    Ok(mib as f64 / wall.as_secs_f64())
}

/// Returns the record at an offset of file 0.
fn record(at: u64, bytes: u64) -> Vec<u8> {
    Content::new(bytes).pieces(0_usize, at, (at + RECORD_BYTES).min(bytes)).concat()
}

/// Writes a file. Returns when it is closed and its attributes can be read, which is after its upload.
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
    let mut checker = ContentChecker::new(Content::new(bytes), 0_usize, 0);
    let mut buffer = vec![0; RECORD_BYTES as usize];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => ensure!(checker.check_next(&buffer[..count]), "{} has wrong bytes", path.display()),
        }
    }
    ensure!(checker.position() == bytes, "{} is too short", path.display());
    Ok(())
}

/// Returns the offsets of a file's records in a random order that is the same in every run.
fn shuffled_offsets(bytes: u64) -> Vec<u64> {
    let entropy = store::Entropy::new(4);
    let mut order: Vec<u64> = (0..bytes / RECORD_BYTES).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, entropy.below(at as u64 + 1) as usize);
    }
    order.into_iter().map(|number| number * RECORD_BYTES).collect()
}

/// Returns the new content of a record: rotated, so that it differs from the old content.
fn new_record(at: u64, bytes: u64) -> Vec<u8> {
    let mut record = record(at, bytes);
    record.rotate_left(4096);
    record
}

fn write_random(path: &Path, bytes: u64, sync_each: bool, sync_at_end: bool) -> Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    for at in shuffled_offsets(bytes) {
        file.write_all_at(&new_record(at, bytes), at)?;
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
        ensure!(buffer == new_record(at, bytes), "{} has wrong bytes at {at}", path.display());
    }
    Ok(())
}
