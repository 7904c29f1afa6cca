//! Measures creates of files in one directory over a metadata engine, beside a bare client that sends the same commits, which were made beforehand.
//!
//! `metadata ENGINE PASSWORD-FILE [THREADS...]`: a directory for RocksDB, or the URL of a database and a file with its password, `-` if there is none.
//! Prints creates a second and the round trips of each. Makes a volume of its own in the database, and removes it at the end.

use harness::Stopwatch;
use meta::{
    Commit, Engine, Ino, Kind, LogCap, MemoryEngine, Moment, Name, Namespace, Op, OpContext, Origin, Staged,
    namespace,
};
use meta_disk::{DiskEngine, EngineOptions};
use meta_postgres::Postgres;
use meta_redis::Redis;
use meta_remote::{Database, OpenError, RemoteEngine, RemoteOptions};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, thread};
use store::Timestamp;

const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

const USAGE: &str = "metadata DIRECTORY-OR-URL PASSWORD-FILE [THREADS...]";

/// Id of the volume for the measurement.
const VOLUME: &str = "00000000000000000000000000f19e5e";

/// Maximum creates of a thread of the bare client.
const COMMITS_MAX: usize = 20_000;

/// Maximum time of each measurement.
const DURATION: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let place = arguments.next().ok_or(USAGE)?;
    let password = match arguments.next().ok_or(USAGE)?.as_str() {
        "-" => None,
        file => Some(fs::read_to_string(file)?),
    };
    let threads = arguments.map(|number| number.parse()).collect::<Result<Vec<u64>, _>>()?;
    let password = password.as_deref().map(str::trim);
    if place.starts_with("redis") {
        let address = meta_redis::Address::parse(&place)?;
        measure_database(|| Redis::new(&address, password, VOLUME), threads)
    } else if place.contains("://") {
        let address = meta_postgres::Address::parse(&place)?;
        measure_database(|| Postgres::new(&address, password, VOLUME), threads)
    } else {
        let engine = Arc::new(DiskEngine::open(Path::new(&place), EngineOptions::default())?);
        measure(engine, &|| 0, threads)
    }
}

/// Measures a database with these numbers of threads.
fn measure_database<D: Database>(
    describe: impl Fn() -> Result<D, OpenError>,
    threads: Vec<u64>,
) -> Result<(), Box<dyn Error>> {
    RemoteEngine::remove(describe()?)?;
    RemoteEngine::create(describe()?)?;
    let engine = Arc::new(RemoteEngine::open(describe()?, RemoteOptions::default())?);
    measure(engine.clone(), &|| engine.round_trips(), threads)?;
    Ok(RemoteEngine::remove(describe()?)?)
}

/// Measures an engine with these numbers of threads.
fn measure(
    engine: Arc<dyn Engine>,
    round_trips: &dyn Fn() -> u64,
    threads: Vec<u64>,
) -> Result<(), Box<dyn Error>> {
    let namespace = Namespace::new(engine.clone(), &CONTEXT)?;
    let (engine, namespace) = (&engine, &namespace);
    for threads in threads {
        creates(round_trips, threads, "bare client", |thread| {
            let mut commits = commits(namespace, &format!("bare-{threads}-{thread}"))?.into_iter();
            Ok(move |_| match commits.next() {
                Some(commit) => engine.commit(commit).map(|_| true).map_err(|error| error.to_string()),
                None => Ok(false),
            })
        })?;
        creates(round_trips, threads, "creates", |thread| {
            Ok(move |n| {
                let text = format!("{threads}-{thread}-{n}");
                let created = namespace.commit(&CONTEXT, &create(namespace, &text)?);
                created.map(|_| true).map_err(|error| error.to_string())
            })
        })?;
    }
    Ok(())
}

/// Creates files in one directory from several threads. `begin` returns the work of a thread: it creates a file, and returns false if there
/// are no more.
fn creates<W>(
    round_trips: &dyn Fn() -> u64,
    threads: u64,
    what: &str,
    begin: impl Fn(u64) -> Result<W, String>,
) -> Result<(), Box<dyn Error>>
where
    W: FnMut(u64) -> Result<bool, String> + Send,
{
    let work = (0..threads).map(begin).collect::<Result<Vec<_>, _>>()?;
    let (watch, trips, done) = (Stopwatch::start(), round_trips(), AtomicU64::new(0));
    let run = |mut work: W| -> Result<(), String> {
        let mut n = 0;
        while watch.elapsed() < DURATION && work(n)? {
            n += 1;
        }
        done.fetch_add(n, Ordering::Relaxed);
        Ok(())
    };
    thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = work.into_iter().map(|work| scope.spawn(move || run(work))).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    report(what, threads, done.load(Ordering::Relaxed), watch.elapsed(), round_trips() - trips);
    Ok(())
}

/// Makes the commits of many creates, without sending them.
fn commits(namespace: &Namespace, prefix: &str) -> Result<Vec<Commit>, String> {
    let engine = Arc::new(MemoryEngine::new(LogCap::default()));
    let empty = Namespace::new(engine.clone(), &CONTEXT).map_err(|error| error.to_string())?;
    let commit = |n: usize| {
        let mut txn = Staged::new(&**empty.engine());
        let op = create(namespace, &format!("{prefix}-{n}"))?;
        let applied = namespace::apply(&mut txn, &CONTEXT, &op).map_err(|error| error.to_string())?;
        txn.keep_op(&CONTEXT, &op, &applied);
        Ok(txn.into_commit())
    };
    (0..COMMITS_MAX).map(commit).collect()
}

/// Returns the op that creates a file.
fn create(namespace: &Namespace, text: &str) -> Result<Op, String> {
    let (parent, name) = (Ino::ROOT, Name::new(text.as_bytes()).map_err(|error| error.to_string())?);
    Ok(Op::Create {
        parent,
        name,
        ino: namespace.allocate(parent, 1)[0],
        kind: Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        umask: 0,
        rdev: 0,
        target: None,
    })
}

fn report(what: &str, threads: u64, calls: u64, time: Duration, round_trips: u64) {
    let (per_second, trips) = (calls as f64 / time.as_secs_f64(), round_trips as f64 / calls as f64);
    println!("{what:<16} {threads:>3} threads {per_second:>9.0}/s {trips:>6.2} round trips");
}
