//! Measures creates of files in one directory.
//!
//! `figures URL PASSWORD-FILE [THREADS...]`. Prints creates a second and the round trips of each. Makes a volume of its own in the database, and removes it at the end.

use meta::{Ino, Kind, Moment, Name, Namespace, Op, OpContext, Origin};
use meta_postgres::{Address, PostgresEngine, PostgresOptions};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, thread};
use store::Timestamp;

const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

const USAGE: &str = "figures URL PASSWORD-FILE [THREADS...]";

/// Id of the volume for the measurement.
const VOLUME: &str = "00000000000000000000000000f19e5e";

/// Time of each measurement.
const DURATION: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = Address::parse(&arguments.next().ok_or(USAGE)?)?;
    let password = fs::read_to_string(arguments.next().ok_or(USAGE)?)?;
    let password = Some(password.trim());
    let threads = arguments.map(|number| number.parse()).collect::<Result<Vec<u64>, _>>()?;
    PostgresEngine::remove(&address, password, VOLUME)?;
    PostgresEngine::create(&address, password, VOLUME)?;
    let engine = Arc::new(PostgresEngine::open(&address, password, VOLUME, PostgresOptions::default())?);
    let namespace = Namespace::new(engine.clone(), &CONTEXT)?;
    for threads in threads {
        creates(&engine, &namespace, threads)?;
    }
    drop((namespace, engine));
    Ok(PostgresEngine::remove(&address, password, VOLUME)?)
}

/// Creates files in one directory from several threads.
fn creates(engine: &PostgresEngine, namespace: &Namespace, threads: u64) -> Result<(), Box<dyn Error>> {
    let (begun, trips, done) = (now(), engine.round_trips(), AtomicU64::new(0));
    let create_files = |thread: u64| -> Result<(), String> {
        for n in 0.. {
            if (now() - begun) > DURATION {
                break;
            }
            let text = format!("{threads}-{thread}-{n}");
            create(namespace, &text).map_err(|error| error.to_string())?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let create_files = &create_files;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || create_files(thread))).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    report("creates", threads, done.into_inner(), now() - begun, engine.round_trips() - trips);
    Ok(())
}

fn create(namespace: &Namespace, text: &str) -> Result<(), Box<dyn Error>> {
    let (parent, name) = (Ino::ROOT, Name::new(text.as_bytes())?);
    let ino = namespace.allocate(parent, 1)[0];
    let op = Op::Create {
        parent,
        name,
        ino,
        kind: Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        umask: 0,
        rdev: 0,
        target: None,
    };
    namespace.commit(&CONTEXT, &op)?;
    Ok(())
}

fn report(what: &str, threads: u64, calls: u64, time: Duration, round_trips: u64) {
    let (per_second, trips) = (calls as f64 / time.as_secs_f64(), round_trips as f64 / calls as f64);
    println!("{what:<16} {threads:>3} threads {per_second:>9.0}/s {trips:>6.2} round trips");
}

/// Returns the time since the machine was started.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
