//! `cargo xtask views`: measures views (directories that are queries) over a large bucket, after the DelveFS paper's Figures 6 and 7, and the
//! same with the raw S3 client and s3fs.
//!
//! One MinIO serves the whole run. A cold listing follows a restart of the server. On a mount it includes the start of the mount, whose handler
//! lists the bucket. A hot listing is a repeated listing. MinIO notifies the mounts by a webhook.

use ::bench::JobFile;
use ::bench::raw_client::{Bucket, Call};
use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _};
use servers::S3Server;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::runtime::Runtime;

use super::mount::Mount;
use super::resource_usage::{self, timed};
use super::{build_release, raw_bucket, rerun_in_release, visibility};

/// Number of objects in the small view.
const FEW: usize = 100;
/// Number of concurrent requests of the raw client.
const CONCURRENT_REQUESTS: usize = 64;
/// Number of processes of the paper's metadata benchmark.
const PROCESSES: usize = 8;
/// Number of empty files of each process.
const FILES_PER_PROCESS: usize = 1000;
const BUCKET: &str = "views";

const RULES: &str = "\
all:
  container: views
  object: '**'
  size: '<1GiB'
  modified: '>2020-01-01'
few:
  container: views
  object: 'few-*'
";
const FEW_RULES: &str = "\
few:
  container: views
  object: 'few-*'
";

const USAGE: &str = "usage: cargo xtask views [--objects N]     (default 100,000)";

/// Runs the measurements and prints the tables.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let objects = match arguments {
        [] => 100_000,
        [flag, count] if flag == "--objects" => count.parse().context(USAGE)?,
        _ => bail!("{USAGE}"),
    };
    if cfg!(debug_assertions) {
        return rerun_in_release(root, "views", arguments);
    }
    let tenon = build_release(root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let webhook = visibility::Webhook::new()?;
    let mut server = servers::minio_with(&webhook.settings());
    let bucket = raw_bucket::create(&server, BUCKET, &runtime)?;
    eprintln!("putting {objects} objects");
    runtime.block_on(fill(&bucket, objects))?;
    let folder = tempfile::tempdir()?;
    let bench = Bench { tenon, runtime, bucket, folder, objects, webhook };
    bench.webhook.attach(&server, BUCKET)?;
    println!("{objects} objects; one MinIO and all clients on two cores\n");
    println!(
        "| | cold, s | hot, s | CPU of the mount (cold, hot), s | FUSE requests, hot |\n|---|---|---|---|---|"
    );
    bench.raw_listing(&mut server)?;
    bench.views(&mut server)?;
    bench.small_view(&mut server)?;
    bench.s3fs(&mut server)?;
    println!("\n| {PROCESSES} times {FILES_PER_PROCESS} empty files | raw, /s | view, /s |\n|---|---|---|");
    bench.metadata(&server)?;
    println!("\n| response to PUT until listed | p50, ms | p99, ms | max, ms |\n|---|---|---|---|");
    visibility::measure(&bench.tenon, &server, &bench.webhook, &bench.runtime)
}

/// A system call on a file.
type FileCall = fn(&Path) -> std::io::Result<()>;

struct Bench {
    tenon: PathBuf,
    runtime: Runtime,
    bucket: Bucket,
    folder: tempfile::TempDir,
    objects: usize,
    webhook: visibility::Webhook,
}

async fn fill(bucket: &Bucket, objects: usize) -> Result<()> {
    let few = (0..FEW).map(|number| format!("few-{number:03}"));
    let rest = (FEW..objects).map(|number| format!("many-{number:07}"));
    let file = |path| JobFile { number: 0, path, size_bytes: 16, rewritten: None };
    let puts = few.chain(rest).map(|key| async move { bucket.write(&file(key), 1).await });
    let done = std::sync::atomic::AtomicUsize::new(0);
    let puts = puts.map(|put| async {
        put.await?;
        let count = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        if count.is_multiple_of(100_000) {
            eprintln!("{count} of {objects}");
        }
        anyhow::Ok(())
    });
    futures_util::stream::iter(puts).buffer_unordered(CONCURRENT_REQUESTS).try_collect().await
}

fn print_row(name: &str, cold: Duration, hot: Option<Duration>) {
    let hot = hot.map_or_else(|| "".to_owned(), |hot| format!("{:.3}", hot.as_secs_f64()));
    println!("| {name} | {:.3} | {hot} | | |", cold.as_secs_f64());
}

/// Runs `ls -l` on a directory of a mount twice, and prints times, CPU time and FUSE requests.
fn print_listings(title: &str, mount: &Mount, directory: &str, expected: usize) -> Result<()> {
    let directory = mount.point().join(directory);
    let cpu = || resource_usage::cpu_time(mount.pid());
    let before = cpu()?;
    let (first, between) = (ls(&directory, expected)?, cpu()?);
    let requests_before = mount.fuse_requests()?;
    let hot = ls(&directory, expected)?;
    let requests = mount.fuse_requests()? - requests_before;
    let (first_cpu, hot_cpu) = (between - before, cpu()? - between);
    let times = format!("{:.3} | {:.3}", first.as_secs_f64(), hot.as_secs_f64());
    println!(
        "| {title} | {times} | {:.2}, {:.2} | {requests} |",
        first_cpu.as_secs_f64(),
        hot_cpu.as_secs_f64()
    );
    Ok(())
}

/// Runs `ls -l`, which must list `expected` files, and returns its time.
fn ls(directory: &Path, expected: usize) -> Result<Duration> {
    let (output, took) =
        timed(|| Ok(Command::new("ls").arg("-l").arg(directory).stderr(Stdio::inherit()).output()?))?;
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    ensure!(lines == expected + 1, "ls lists {} of {expected} files", lines.saturating_sub(1));
    Ok(took)
}

impl Bench {
    fn raw_listing(&self, server: &mut S3Server) -> Result<()> {
        server.restart();
        let list = || timed(|| Ok(self.runtime.block_on(self.bucket.count(""))?));
        let ((count, cold), (_, hot)) = (list()?, list()?);
        ensure!(count == self.objects, "the listing has {count} of {} objects", self.objects);
        print_row("raw listing", cold, Some(hot));
        Ok(())
    }

    fn views(&self, server: &mut S3Server) -> Result<()> {
        server.restart();
        let rules = self.write_rules(RULES)?;
        let flag = self.webhook.flag();
        let (mount, start) = timed(|| Mount::mount_views(&self.tenon, server, &rules, &[&flag]))?;
        print_row("start of the mount", start, None);
        print_listings("`ls -l` of all", &mount, "all", self.objects)?;
        print_listings("`ls -l` of 100 of them", &mount, "few", FEW)?;
        println!("| peak MiB | {} | | | |", resource_usage::memory_peak_bytes(mount.pid())? >> 20);
        mount.unmount()
    }

    fn small_view(&self, server: &mut S3Server) -> Result<()> {
        server.restart();
        let rules = self.write_rules(FEW_RULES)?;
        let flag = self.webhook.flag();
        let (mount, start) = timed(|| Mount::mount_views(&self.tenon, server, &rules, &[&flag]))?;
        print_row("start of a mount with 100 objects", start, None);
        print_listings("`ls -l` of its view", &mount, "few", FEW)?;
        mount.unmount()
    }

    fn s3fs(&self, server: &mut S3Server) -> Result<()> {
        server.restart();
        let point = self.folder.path().join("s3fs");
        let key = self.folder.path().join("key");
        std::fs::create_dir_all(&point)?;
        std::fs::write(&key, format!("{}:{}", server.access_key(), server.secret_key()))?;
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let mut mounting = Command::new("s3fs");
        mounting.arg(BUCKET).arg(&point).args(["-o", "use_path_request_style"]);
        mounting.arg("-o").arg(format!("url={}", server.endpoint()));
        mounting.arg("-o").arg(format!("passwd_file={}", key.display()));
        let (mounted, start) = timed(|| Ok(mounting.status()))?;
        let Ok(status) = mounted else {
            eprintln!("s3fs is not installed, so its row is left out");
            return Ok(());
        };
        ensure!(status.success(), "s3fs failed to mount");
        let listed = ls(&point, self.objects).and_then(|cold| Ok((cold, ls(&point, self.objects)?)));
        Command::new("fusermount3").arg("-u").arg(&point).status()?;
        let (cold, hot) = listed?;
        print_row("s3fs: `ls -l` of all, with start", start + cold, Some(hot));
        Ok(())
    }

    fn metadata(&self, server: &S3Server) -> Result<()> {
        let rules = self.write_rules("made:\n  container: made\n")?;
        raw_bucket::create(server, "made", &self.runtime)?;
        let raw_bucket = raw_bucket::create(server, "made-raw", &self.runtime)?;
        let mount = Mount::mount_views(&self.tenon, server, &rules, &[])?;
        let directory = mount.point().join("made");
        let calls: [(&str, FileCall, Call); 3] = [
            ("create", |path| File::create(path).map(drop), Call::Put),
            ("stat", |path| std::fs::metadata(path).map(drop), Call::Head),
            ("remove", |path| std::fs::remove_file(path), Call::Delete),
        ];
        for (name, file_call, call) in calls {
            let (_, by_raw) =
                timed(|| Ok(self.runtime.block_on(raw_bucket.call_each(call, &file_names(), PROCESSES))?))?;
            let (_, by_view) = timed(|| call_in_threads(&directory, file_call))?;
            let rate = |took: Duration| (PROCESSES * FILES_PER_PROCESS) as f64 / took.as_secs_f64();
            println!("| {name} | {:.0} | {:.0} |", rate(by_raw), rate(by_view));
        }
        mount.unmount()
    }

    fn write_rules(&self, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join("rules.yaml");
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

fn file_names() -> Vec<String> {
    let names = (0..PROCESSES)
        .flat_map(|process| (0..FILES_PER_PROCESS).map(move |file| format!("{process}-{file:04}")));
    names.collect()
}

fn call_in_threads(directory: &Path, call: FileCall) -> Result<()> {
    let names = file_names();
    std::thread::scope(|scope| {
        let work = |names: &[String]| names.iter().try_for_each(|name| call(&directory.join(name)));
        let threads: Vec<_> =
            names.chunks(FILES_PER_PROCESS).map(|part| scope.spawn(move || work(part))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| Ok(thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??))
    })
}
