//! Benchmark of the engine in memory and of the engine on disk over both of its table layers: operations per second, and CPU time of the
//! process per operation. The figures in decisions 0015 and 0078 are its output.
//!
//! `cargo run --release -p meta-disk --example engines -- [DIRECTORY [FILES]]`

use meta::{Engine, Ino, Kind, MemoryEngine, Moment, Name, Namespace, Op, OpContext, Origin};
use meta_disk::{DiskEngine, EngineOptions, TableLayer};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, thread};
use store::Timestamp;

const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

/// Files in a directory.
const DIR_FILES: u64 = 100;

/// Number of synced creates. It is low because each waits for the disk.
const SYNCED: u64 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let folder = args.next().map_or_else(|| env::temp_dir().join("tenon-engines"), PathBuf::from);
    let files: u64 = args.next().map_or(Ok(200_000), |text| text.parse())?;
    println!("{:<36} {:^26} {:^26} {:^26}", "ops per second, CPU µs per op", "memory", "RocksDB", "LSM");
    for threads in [1, 8] {
        let memory = measure(Arc::new(MemoryEngine::default()), files, threads);
        let rocks = on_disk(&folder, TableLayer::RocksDb, |engine| measure(engine, files, threads))?;
        let lsm = on_disk(&folder, TableLayer::Lsm, |engine| measure(engine, files, threads))?;
        for (((what, memory), (_, rocks)), (_, lsm)) in memory.into_iter().zip(rocks).zip(lsm) {
            println!("{what:<36} {memory} {rocks} {lsm}");
        }
    }
    Ok(())
}

fn on_disk<T>(
    folder: &Path,
    layer: TableLayer,
    run: impl FnOnce(Arc<dyn Engine>) -> T,
) -> Result<T, Box<dyn Error>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let engine = Arc::new(DiskEngine::open(folder, EngineOptions { layer, ..EngineOptions::default() })?);
    let outcome = run(engine);
    fs::remove_dir_all(folder)?;
    Ok(outcome)
}

/// A line of the result for one engine.
type Line = (String, Cost);

fn measure(engine: Arc<dyn Engine>, files: u64, threads: u64) -> Vec<Line> {
    let namespace = &namespace(&engine);
    let each = files / threads;
    let dirs = &dirs(namespace, threads, each.div_ceil(DIR_FILES));
    let by_all = |what: &str, ops: u64, work: &(dyn Fn(u64) + Sync)| {
        let cost = Cost::of(ops, || {
            thread::scope(|scope| (0..threads).for_each(|thread| drop(scope.spawn(move || work(thread)))));
        });
        (format!("{what}, {threads} thread{}", if threads == 1 { "" } else { "s" }), cost)
    };
    let dir_of = |thread: u64, n: u64| dirs[thread as usize][(n / DIR_FILES) as usize];
    let mut lines = vec![
        by_all("create", each * threads, &|thread| {
            for n in 0..each {
                create(namespace, dir_of(thread, n), n, Kind::File);
            }
        }),
        by_all("look up with attributes", each * threads, &|thread| {
            for n in 0..each {
                let n = n.wrapping_mul(7919) % each;
                assert!(namespace.lookup(dir_of(thread, n), &name(n)).is_ok_and(|found| found.is_some()));
            }
        }),
        by_all("look up missing names", each * threads, &|thread| {
            for n in 0..each {
                assert!(
                    namespace.lookup(dir_of(thread, n), &name(n + files)).is_ok_and(|found| found.is_none())
                );
            }
        }),
        by_all("list with attributes, per entry", each * threads, &|thread| {
            dirs[thread as usize].iter().for_each(|dir| list(namespace, *dir));
        }),
        by_all("remove", each * threads, &|thread| {
            for n in 0..each {
                let op = Op::Unlink { parent: dir_of(thread, n), name: name(n), keep: false };
                assert!(namespace.commit(&CONTEXT, &op).is_ok());
            }
        }),
    ];
    lines.push(by_all("create and sync", SYNCED / threads * threads, &|thread| {
        for n in 0..SYNCED / threads {
            create(namespace, dir_of(thread, 0), n, Kind::File);
            assert!(engine.sync().is_ok());
        }
    }));
    lines
}

fn namespace(engine: &Arc<dyn Engine>) -> Namespace {
    match Namespace::new(engine.clone(), &CONTEXT) {
        Ok(namespace) => namespace,
        Err(error) => panic!("cannot open the namespace: {error}"),
    }
}

/// Creates `count` directories for each thread.
fn dirs(namespace: &Namespace, threads: u64, count: u64) -> Vec<Vec<Ino>> {
    let of_thread = |thread| {
        (0..count).map(|n| create(namespace, Ino::ROOT, thread * count + n, Kind::Directory)).collect()
    };
    (0..threads).map(of_thread).collect()
}

fn name(n: u64) -> Name {
    match Name::new(format!("file-{n:08}").as_bytes()) {
        Ok(name) => name,
        Err(error) => panic!("invalid name: {error}"),
    }
}

fn create(namespace: &Namespace, parent: Ino, n: u64, kind: Kind) -> Ino {
    let ino = namespace.allocate(parent, 1)[0];
    let op = Op::Create {
        parent,
        name: name(n),
        ino,
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        umask: 0,
        rdev: 0,
        target: None,
    };
    assert!(namespace.commit(&CONTEXT, &op).is_ok());
    ino
}

fn list(namespace: &Namespace, dir: Ino) {
    let entries = namespace.entries(dir, None, usize::MAX).unwrap_or_default();
    let inos: Vec<Ino> = entries.iter().map(|(_, dentry)| dentry.ino).collect();
    assert!(namespace.inodes(&inos).is_ok_and(|inodes| inodes.iter().flatten().count() == inos.len()));
}

/// The time that a number of operations took.
struct Cost {
    ops: f64,
    wall_s: f64,
    cpu_s: f64,
}

impl Cost {
    fn of(ops: u64, work: impl FnOnce()) -> Self {
        let (wall, cpu) = (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
        work();
        let (wall_s, cpu_s) = (seconds(ClockId::Monotonic) - wall, seconds(ClockId::ProcessCPUTime) - cpu);
        Self { ops: ops as f64, wall_s, cpu_s }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>12.0} {:>12.2}", self.ops / self.wall_s, self.cpu_s * 1e6 / self.ops)
    }
}

fn seconds(clock: ClockId) -> f64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    tv_sec as f64 + tv_nsec as f64 * 1e-9
}
