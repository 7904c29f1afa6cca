//! Interrupted runs: the next run goes on, and nothing is left of a run that was killed.

use crate::bench_run::{BenchRun, has_process_in};
use crate::fake::Fake;
use bench::{Platform, Results, RunError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

/// Name of the variable that makes [`a_run_to_kill`] do something: the directory of the run.
const DIR: &str = "TENON_BENCH_TEST_RUN";
/// Number of kills, and the time between the moments at which they come: one run takes about as long as all of them.
const KILLS: u64 = 20;
const STEP: Duration = Duration::from_millis(60);

/// Runs in a process of its own, which [`nothing_is_left_after_a_kill`] starts and kills.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent process passes a directory")]
fn a_run_to_kill() {
    let Ok(dir) = std::env::var(DIR) else { return };
    drop(run_in(Path::new(&dir)).run_until(&AtomicBool::new(false), &|| {}));
}

fn run_in(dir: &Path) -> BenchRun {
    let mut bench_run = BenchRun::in_directory(dir, vec![Fake::good().target()], Platform::directory());
    bench_run.plan.repeats = KILLS as u32;
    bench_run
}

/// Each run goes on where the one before was killed.
#[test]
fn nothing_is_left_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let bench_run = run_in(dir.path());
    let mut counts = Vec::new();
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "resume::a_run_to_kill"])
            .env(DIR, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(STEP * (kill as u32 + 1));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_removed(&bench_run);
        bench_run.check_nothing_is_left();
        counts.push(Results::read(&bench_run.results_path()).unwrap().len());
    }
    assert!(counts.is_sorted() && counts.last() > counts.first(), "{counts:?}");
}

/// Waits until the cleanup processes of a killed run have done their work.
fn wait_until_removed(bench_run: &BenchRun) {
    let scratch = bench_run.plan.scratch.display().to_string();
    let is_left = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&scratch)
            || has_process_in(&scratch)
            || std::fs::read_dir(&scratch).is_ok_and(|dir| dir.count() > 0)
    };
    // Cleanup processes work side by side, and pause between tries.
    let (waiting, mut quiet) = (harness::Stopwatch::start(), harness::Stopwatch::start());
    while quiet.elapsed() < Duration::from_millis(400) && waiting.elapsed() < Duration::from_secs(20) {
        if is_left() {
            quiet = harness::Stopwatch::start();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
