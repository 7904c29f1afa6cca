//! Interrupted runs: the next run goes on, and nothing is left of a run that was killed.

use crate::bench_run::{BenchRun, has_process_in};
use crate::fake::Fake;
use crate::packages::install;
use bench::{Catalog, Platform, Results, RunError};
use harness::Stopwatch;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn a_stopped_run_continues_where_it_ended() {
    let bench_run = BenchRun::new(vec![Fake::good().target()], Platform::directory());
    let (is_stopped, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    let stopped = bench_run.run_until(&is_stopped, &|| {
        if begun.fetch_add(1, Ordering::Relaxed) == 2 {
            is_stopped.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(stopped, Err(RunError::Stopped)));
    bench_run.check_nothing_is_left();
    let earlier = Results::read(&bench_run.results_path()).unwrap();
    assert_eq!(earlier.len(), 3);
    let records = bench_run.run();
    assert_eq!(records.len(), 6);
    assert_eq!(records[..3], earlier);
}

/// Variables that make [`a_run_to_kill`] do something: the directory of the run, and its package.
const DIR: &str = "TENON_BENCH_TEST_RUN";
const PACKAGE: &str = "TENON_BENCH_TEST_PACKAGE";
const KILLS: usize = 20;
/// A kill of a package with two mounts and a loop device takes ten seconds.
const LOOP_DEVICE_KILLS: usize = 5;
/// Repeats of a run that is killed: no machine finishes them before the last kill.
const ENDLESS_REPEATS: u32 = 10_000;
/// Time without a trace after which nothing is left. A mount that the kernel had begun may appear late, and a cleanup process that had just
/// been started is not known.
const QUIET: Duration = Duration::from_secs(3);
/// Maximum wait for what a slow machine does.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs in a process of its own, which [`KilledRun`] starts and kills.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent process passes a directory and a package")]
fn a_run_to_kill() {
    let (Ok(dir), Ok(package)) = (std::env::var(DIR), std::env::var(PACKAGE)) else { return };
    drop(run_in(Path::new(&dir), &package).run_until(&AtomicBool::new(false), &|| {}));
}

/// Returns a run that does not end by itself.
fn run_in(dir: &Path, package: &str) -> BenchRun {
    let (target, platform) = match package {
        "fake" => (Fake::good().target(), Platform::directory()),
        name => (Catalog::shipped().unwrap().targets(name).unwrap().remove(0), Platform::minio()),
    };
    // A file is written and read back, so that a session has two mounts.
    let mut bench_run = BenchRun::in_directory(dir, vec![target], platform).jobs(&["job1", "job2"]);
    bench_run.plan.repeats = ENDLESS_REPEATS;
    bench_run.plan.limits.mount = PATIENCE;
    bench_run.plan.limits.unmount = PATIENCE;
    bench_run
}

/// A run that is killed again and again.
struct KilledRun {
    package: &'static str,
    bench_run: BenchRun,
    dir: tempfile::TempDir,
}

impl KilledRun {
    fn new(package: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { package, bench_run: run_in(dir.path(), package), dir }
    }

    fn start(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "resume::a_run_to_kill"])
            .env(DIR, self.dir.path())
            .env(PACKAGE, self.package)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn measured(&self) -> usize {
        Results::read(&self.bench_run.results_path()).unwrap_or_default().len()
    }

    /// Starts the run, waits for `moment`, and kills it. Returns the time until then.
    fn kill_at(&self, moment: impl Fn(Duration) -> bool) -> Duration {
        let (mut child, running) = (self.start(), Stopwatch::start());
        while !moment(running.elapsed()) {
            assert!(running.elapsed() < PATIENCE, "the run measures nothing");
            thread::sleep(Duration::from_millis(2));
        }
        let span = running.elapsed();
        let cleanup = cleanup_processes_of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_removed(&self.bench_run, child.id(), &cleanup);
        self.bench_run.check_nothing_is_left();
        assert_eq!(control_groups_of(child.id()), Vec::<PathBuf>::new());
        span
    }

    /// Kills the run at random moments of its first two sessions. Each run goes on where the one before was killed, and so does one that
    /// may end.
    fn check(mut self, kills: usize) {
        // The kills take as long as this machine needs for two sessions.
        let span = self.kill_at(|_| self.measured() >= 4);
        let mut measured = self.measured();
        for _ in 0..kills {
            let moment = span.mul_f64(RandomState::new().hash_one(()) as f64 / u64::MAX as f64);
            self.kill_at(|running| running >= moment);
            assert!(self.measured() >= measured, "results are lost");
            measured = self.measured();
        }
        self.bench_run.plan.repeats = measured as u32 / 2 + 2;
        let records = self.bench_run.run();
        assert!(records.len() > measured);
        let rates = records.iter().filter(|record| record.outcome.measurement().is_some());
        assert_eq!(rates.count(), records.len(), "{records:?}");
    }
}

#[test]
fn nothing_is_left_after_a_kill() {
    KilledRun::new("fake").check(KILLS);
}

/// A package with two mounts, of which one is on a loop device of a file on the other.
#[test]
fn no_loop_device_is_left_after_a_kill() {
    install("s3backer");
    KilledRun::new("s3backer").check(LOOP_DEVICE_KILLS);
}

/// Returns the control groups that a process of the testbed made.
fn control_groups_of(pid: u32) -> Vec<PathBuf> {
    fn below(dir: &Path, prefix: &str) -> Vec<PathBuf> {
        let dirs = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let dirs = dirs.filter(|path| path.is_dir() && !path.is_symlink());
        dirs.flat_map(|path| {
            match path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) {
                true => vec![path],
                false => below(&path, prefix),
            }
        })
        .collect()
    }
    below(Path::new("/sys/fs/cgroup"), &format!("tenon-bench-{pid}-"))
}

/// Returns the state of a process and its parent (proc_pid_stat(5)), if it exists.
fn stat_of(pid: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit(") ").next()?.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Returns the cleanup processes of a process of the testbed.
fn cleanup_processes_of(parent: u32) -> Vec<u32> {
    let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    let is_cleanup = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        stat_of(*pid).is_some_and(|(_, own)| own == parent) && line.ends_with(b"tenon-cleanup\0")
    };
    pids.filter(is_cleanup).collect()
}

/// Waits until the cleanup processes of a killed run, the process `pid`, have done their work.
fn wait_until_removed(bench_run: &BenchRun, pid: u32, cleanup: &[u32]) {
    let scratch = bench_run.plan.scratch.display().to_string();
    let works = |pid: &u32| stat_of(*pid).is_some_and(|(state, _)| state != "Z");
    let is_left = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&scratch)
            || has_process_in(&scratch)
            || !control_groups_of(pid).is_empty()
            || std::fs::read_dir(&scratch).is_ok_and(|dir| dir.count() > 0)
            || cleanup.iter().any(works)
    };
    let (waiting, mut quiet) = (Stopwatch::start(), Stopwatch::start());
    while quiet.elapsed() < QUIET && waiting.elapsed() < PATIENCE {
        if is_left() {
            quiet = Stopwatch::start();
        }
        thread::sleep(Duration::from_millis(20));
    }
}
