//! Benchmark of a batch: creates in a private namespace, its progress, seal, verification, and the time for which a merge holds the commit turn.
//!
//! `cargo run --release -p batch --example creates -- [DIRECTORY [FILES [rocksdb|lsm [replay]]]]`

use batch::{JobOptions, PrivateNamespace, Progress, Proof, SealedBatch, Terms};
use meta::access::Caller;
use meta::{Commit, Engine, Ino, Kind, Moment, Name, Namespace, Op, OpContext, Origin};
use meta_disk::{DiskEngine, EngineOptions, TableLayer};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, thread};
use store::Timestamp;

const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };
const DIRS: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let folder = args.next().map_or_else(|| env::temp_dir().join("tenon-creates"), PathBuf::from);
    let files: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let layers = match args.next().as_deref() {
        Some("rocksdb") => vec![TableLayer::RocksDb],
        Some("lsm") => vec![TableLayer::Lsm],
        _ => vec![TableLayer::RocksDb, TableLayer::Lsm],
    };
    for layer in layers {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        measure(&folder, layer, files)?;
    }
    Ok(fs::remove_dir_all(&folder)?)
}

fn measure(folder: &std::path::Path, layer: TableLayer, files: u64) -> Result<(), Box<dyn Error>> {
    println!("{layer:?}, {files} files in {DIRS} directories");
    let options = EngineOptions { layer, ..EngineOptions::default() };
    let engine = Arc::new(DiskEngine::open(&folder.join("engine"), options)?);
    engine.register("reader", engine.head())?;
    let namespace = Namespace::new(engine.clone(), &CONTEXT)?;
    let lease = batch::begin(&namespace, &CONTEXT, Ino::ROOT)?.lease;
    let dir = folder.join("job");
    let mut job = PrivateNamespace::begin(&dir, engine.snapshot()?, lease.clone(), JobOptions::default())?;
    timed("create", files, || create_all(&mut job, files))??;
    // More work than the counters of `create`, as the log is decoded.
    let progress = timed("count the ops of the log", files, || Progress::read(&batch::log_path(&dir)))??;
    timed("read the progress 100 times", 100, || read_progress(&progress))?;
    let batch = timed("seal", files, || job.seal())??;
    let caller = Caller { uid: 0, gid: 0, groups: Box::default() };
    let terms = Terms {
        caller,
        lease,
        at: CONTEXT.at,
        times: CONTEXT.now..=CONTEXT.now,
        content: None,
        packs: None,
        keeps_refused: false,
        submitted: CONTEXT.now,
    };
    let is_done = AtomicBool::new(false);
    let (longest, merged) = thread::scope(|scope| {
        let commits = scope.spawn(|| longest_commit(&engine, &is_done));
        let merged = timed("verify and merge", files, || merge(&engine, &batch, &terms, folder));
        is_done.store(true, Ordering::Release);
        (commits.join(), merged)
    });
    println!("  {:<28} {:>9.1} ms", "longest interactive commit", longest.unwrap_or(f64::NAN) * 1e3);
    let (accepted, refused) = merged??;
    assert!(accepted == files + DIRS && refused == 0, "{accepted} accepted, {refused} refused");
    timed("read the log", files, || read_log(&*engine))??;
    Ok(())
}

fn create_all(job: &mut PrivateNamespace, files: u64) -> Result<(), Box<dyn Error>> {
    let mut dirs = Vec::new();
    for nr in 0..DIRS {
        dirs.push(create(job, Ino::ROOT, nr, Kind::Directory)?);
    }
    for nr in 0..files {
        create(job, dirs[(nr / (files / DIRS).max(1)).min(DIRS - 1) as usize], nr, Kind::File)?;
    }
    Ok(())
}

fn create(job: &mut PrivateNamespace, parent: Ino, nr: u64, kind: Kind) -> Result<Ino, Box<dyn Error>> {
    // Names in random order.
    let name = Name::new(format!("file-{:016x}", nr.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_bytes())?;
    let ino = job.allocate(parent).ok_or("the lease is used up")?;
    let op =
        Op::Create { parent, name, ino, kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target: None };
    job.apply(&CONTEXT, &op)?;
    Ok(ino)
}

/// Reads the progress as often as `tenon batch watch` does in 100 s.
fn read_progress(progress: &Progress) {
    for _ in 0..100 {
        let (largest, others) = progress.largest_directories(20);
        assert!(largest.len() == 20 && others > 0 && progress.totals().files > 0);
    }
}

fn merge(
    engine: &DiskEngine,
    batch: &SealedBatch,
    terms: &Terms,
    scratch: &std::path::Path,
) -> Result<(u64, usize), Box<dyn Error>> {
    let proof = env::args().nth(4).map_or(Proof::Reduced, |_| Proof::Replay);
    let merged = batch::merge(engine, batch, terms, scratch, proof)?;
    assert_eq!(merged.proof, Some(proof));
    Ok((merged.accepted, merged.refused.len()))
}

/// Commits small changes until `is_done`, and returns the longest time that one took, in seconds.
fn longest_commit(engine: &DiskEngine, is_done: &AtomicBool) -> f64 {
    let mut longest: f64 = 0.0;
    while !is_done.load(Ordering::Acquire) {
        let begin = seconds(ClockId::Monotonic);
        let puts = vec![(b"Zbenchmark".to_vec(), b"1"[..].into())];
        if engine.commit(Commit { puts, ..Commit::default() }).is_err() {
            return f64::NAN;
        }
        longest = longest.max(seconds(ClockId::Monotonic) - begin);
        thread::sleep(std::time::Duration::from_millis(1));
    }
    longest
}

fn read_log(engine: &dyn Engine) -> Result<(), Box<dyn Error>> {
    let mut cursor = engine.cursor("reader")?;
    loop {
        let page = engine.log_after(cursor, 1000)?;
        let Some(last) = page.last() else { return Ok(()) };
        cursor = last.seqno;
        engine.advance("reader", cursor)?;
    }
}

/// Runs a step, and prints its duration and its CPU time.
fn timed<T>(what: &str, ops: u64, step: impl FnOnce() -> T) -> Result<T, Box<dyn Error>> {
    let (wall, cpu) = (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
    let done = step();
    let (wall, cpu) = (seconds(ClockId::Monotonic) - wall, seconds(ClockId::ProcessCPUTime) - cpu);
    println!("  {what:<28} {wall:>9.2} s  {cpu:>9.2} CPU s  {:>9.2} µs each", wall * 1e6 / ops as f64);
    Ok(done)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
