//! `cargo xtask views`: directories that are queries over one large bucket, after the DelveFS paper's Figures 6 and 7, beside the raw S3
//! client and s3fs.
//!
//! One MinIO, one run. A listing is cold when the server was restarted and nothing is mounted; then it includes the start of the
//! mount, whose handler lists the bucket. It is hot when it was done before. MinIO tells the mounts what happens by its webhook.

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
use super::{again_in_release, build, raw_client, visibility};

/// Objects under the prefix that the small view asks for.
const FEW: usize = 100;
/// Requests of the raw client under way.
const AT_ONCE: usize = 64;
/// The paper's metadata benchmark: so many processes with so many empty files each.
const PROCESSES: usize = 8;
const FILES_EACH: usize = 1000;
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

const USAGE: &str = "usage: cargo xtask views [--objects N]     (100,000 objects unless told)";

/// Runs the measurements and prints the tables.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let objects = match arguments {
        [] => 100_000,
        [flag, count] if flag == "--objects" => count.parse().context(USAGE)?,
        _ => bail!("{USAGE}"),
    };
    if cfg!(debug_assertions) {
        return again_in_release(root, "views", arguments);
    }
    let tenon = build(root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let webhook = visibility::Webhook::new()?;
    let mut server = servers::minio_with(&webhook.settings());
    let bucket = raw_client::Bucket::create(&server, BUCKET, &runtime)?;
    eprintln!("{objects} objects ...");
    runtime.block_on(fill(&bucket, objects))?;
    let folder = tempfile::tempdir()?;
    let bench = Bench { tenon, runtime, bucket, folder, objects, webhook };
    bench.webhook.attach(&server, BUCKET)?;
    println!("{objects} objects, one MinIO, two cores for all of it\n");
    println!(
        "| | cold, s | hot, s | the mount's CPU, s | hot: requests of the kernel |\n|---|---|---|---|---|"
    );
    bench.raw_listing(&mut server)?;
    bench.views(&mut server)?;
    bench.small_view(&mut server)?;
    bench.s3fs(&mut server)?;
    println!("\n| {PROCESSES} times {FILES_EACH} empty files | raw, /s | view, /s |\n|---|---|---|");
    bench.metadata(&server)?;
    println!("\n| PUT answered to shown by `ls` | p50, ms | p99, ms | most, ms |\n|---|---|---|---|");
    visibility::measure(&bench.tenon, &server, &bench.webhook, &bench.runtime)
}

/// What a program does with a file.
type Step = fn(&Path) -> std::io::Result<()>;

struct Bench {
    tenon: PathBuf,
    runtime: Runtime,
    bucket: raw_client::Bucket,
    folder: tempfile::TempDir,
    objects: usize,
    webhook: visibility::Webhook,
}

async fn fill(bucket: &raw_client::Bucket, objects: usize) -> Result<()> {
    let few = (0..FEW).map(|number| format!("few-{number:03}"));
    let rest = (FEW..objects).map(|number| format!("many-{number:07}"));
    let puts = few.chain(rest).map(|key| async move { bucket.put_whole(&key, 16, 1).await });
    let done = std::sync::atomic::AtomicUsize::new(0);
    let puts = puts.map(|put| async {
        put.await?;
        let count = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        if count.is_multiple_of(100_000) {
            eprintln!("{count} of {objects}");
        }
        anyhow::Ok(())
    });
    futures_util::stream::iter(puts).buffer_unordered(AT_ONCE).try_collect().await
}

fn row(what: &str, cold: Duration, hot: Option<Duration>) {
    let hot = hot.map_or_else(|| "".to_owned(), |hot| format!("{:.3}", hot.as_secs_f64()));
    println!("| {what} | {:.3} | {hot} | | |", cold.as_secs_f64());
}

/// `ls -l` of a directory of a mount, twice, with what that cost.
fn listings(what: &str, mount: &Mount, name: &str, expected: usize) -> Result<()> {
    let directory = mount.point().join(name);
    let cpu = || resource_usage::cpu(mount.pid());
    let before = cpu()?;
    let (first, between) = (ls(&directory, expected)?, cpu()?);
    let asked = mount.fuse_requests()?;
    let hot = ls(&directory, expected)?;
    let asked = mount.fuse_requests()? - asked;
    let (first_cpu, hot_cpu) = (between - before, cpu()? - between);
    let times = format!("{:.3} | {:.3}", first.as_secs_f64(), hot.as_secs_f64());
    println!("| {what} | {times} | {:.2}, {:.2} | {asked} |", first_cpu.as_secs_f64(), hot_cpu.as_secs_f64());
    Ok(())
}

/// `ls -l`, which must show so many files.
fn ls(directory: &Path, expected: usize) -> Result<Duration> {
    let (output, took) =
        timed(|| Ok(Command::new("ls").arg("-l").arg(directory).stderr(Stdio::inherit()).output()?))?;
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    ensure!(lines == expected + 1, "ls shows {} files of {expected}", lines.saturating_sub(1));
    Ok(took)
}

impl Bench {
    fn raw_listing(&self, server: &mut S3Server) -> Result<()> {
        server.restart();
        let list = || timed(|| self.runtime.block_on(self.bucket.count("")));
        let ((count, cold), (_, hot)) = (list()?, list()?);
        ensure!(count == self.objects, "{count} objects are listed");
        row("raw listing", cold, Some(hot));
        Ok(())
    }

    fn views(&self, server: &mut S3Server) -> Result<()> {
        server.restart();
        let rules = self.rules(RULES)?;
        let flags = self.webhook.flags();
        let (mount, start) = timed(|| Mount::of_views(&self.tenon, server, &rules, &[&flags]))?;
        row("start of the mount", start, None);
        listings("`ls -l` of all", &mount, "all", self.objects)?;
        listings("`ls -l` of 100 among them", &mount, "few", FEW)?;
        println!("| peak MiB | {} | | | |", resource_usage::memory_peak_bytes(mount.pid())? >> 20);
        mount.end()
    }

    fn small_view(&self, server: &mut S3Server) -> Result<()> {
        server.restart();
        let rules = self.rules(FEW_RULES)?;
        let flags = self.webhook.flags();
        let (mount, start) = timed(|| Mount::of_views(&self.tenon, server, &rules, &[&flags]))?;
        row("start of a mount with 100 objects", start, None);
        listings("`ls -l` there", &mount, "few", FEW)?;
        mount.end()
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
            eprintln!("s3fs is not installed: its row is left out");
            return Ok(());
        };
        ensure!(status.success(), "s3fs does not mount");
        let listed = ls(&point, self.objects).and_then(|cold| Ok((cold, ls(&point, self.objects)?)));
        Command::new("fusermount3").arg("-u").arg(&point).status()?;
        let (cold, hot) = listed?;
        row("s3fs: `ls -l` of all, start included", start + cold, Some(hot));
        Ok(())
    }

    fn metadata(&self, server: &S3Server) -> Result<()> {
        let rules = self.rules("made:\n  container: made\n")?;
        raw_client::Bucket::create(server, "made", &self.runtime)?;
        let other = raw_client::Bucket::create(server, "made-raw", &self.runtime)?;
        let mount = Mount::of_views(&self.tenon, server, &rules, &[])?;
        let directory = mount.point().join("made");
        let steps: [(&str, Step, raw_client::Call); 3] = [
            ("create", |path| File::create(path).map(drop), raw_client::Call::Put),
            ("stat", |path| std::fs::metadata(path).map(drop), raw_client::Call::Head),
            ("remove", |path| std::fs::remove_file(path), raw_client::Call::Delete),
        ];
        for (name, step, call) in steps {
            let (_, by_raw) = timed(|| self.runtime.block_on(other.call_each(call, &names(), PROCESSES)))?;
            let (_, by_view) = timed(|| in_threads(&directory, step))?;
            let rate = |took: Duration| (PROCESSES * FILES_EACH) as f64 / took.as_secs_f64();
            println!("| {name} | {:.0} | {:.0} |", rate(by_raw), rate(by_view));
        }
        mount.end()
    }

    fn rules(&self, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join("rules.yaml");
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

fn names() -> Vec<String> {
    let names =
        (0..PROCESSES).flat_map(|process| (0..FILES_EACH).map(move |file| format!("{process}-{file:04}")));
    names.collect()
}

fn in_threads(directory: &Path, step: Step) -> Result<()> {
    let names = names();
    std::thread::scope(|scope| {
        let work = |mine: &[String]| mine.iter().try_for_each(|name| step(&directory.join(name)));
        let threads: Vec<_> = names.chunks(FILES_EACH).map(|mine| scope.spawn(move || work(mine))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| Ok(thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??))
    })
}
