//! Creates and removes files, singly and in runs, until it is killed, and prints the names of the created files. `tests/crash.rs` kills it.
//!
//! `crasher PATH LAYER`; the layer is `lsm` or `tables` (RocksDB).

use meta::{
    Engine, Ino, Kind, LogCap, Moment, Name, Namespace, Op, OpContext, Origin, RunRecord, Seqno, Staged,
    namespace,
};
use meta_disk::{DiskEngine, EngineOptions, TableLayer};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::{env, io, thread};
use store::Timestamp;

const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let usage = "crasher PATH LAYER";
    let (path, layer) = arguments.next().zip(arguments.next()).ok_or(usage)?;
    let layer = if layer == "lsm" { TableLayer::Lsm } else { TableLayer::RocksDb };
    let log_cap = LogCap::UNLIMITED;
    let engine =
        DiskEngine::open(Path::new(&path), EngineOptions { log_cap, layer, ..EngineOptions::default() })?;
    engine.register("all", Seqno(0))?;
    let engine = Arc::new(engine);
    let namespace = Namespace::new(engine.clone(), &CONTEXT)?;
    let begin = engine.head().0;
    let run = |thread: u64| {
        let prefix = format!("{begin}-{thread}");
        let outcome = if thread < 3 {
            work(&namespace, &*engine, &prefix)
        } else {
            add_runs(&namespace, &*engine, &prefix)
        };
        outcome.map_err(|error| error.to_string())
    };
    let (run, threads) = (&run, 0..4);
    thread::scope(|scope| {
        let threads: Vec<_> = threads.map(|thread| scope.spawn(move || run(thread))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?);
        Ok(ended.collect::<Result<(), String>>()?)
    })
}

/// Creates files, removes every second one, and syncs after every 16.
fn work(namespace: &Namespace, engine: &dyn Engine, prefix: &str) -> Result<(), Box<dyn Error>> {
    for n in 0.. {
        let text = format!("{prefix}-{n}");
        let (name, create) = create(namespace, &text)?;
        namespace.commit(&CONTEXT, &create)?;
        writeln!(io::stdout(), "{text}")?;
        if n % 2 == 0 {
            namespace.commit(&CONTEXT, &Op::Unlink { parent: Ino::ROOT, name, keep: false })?;
        }
        if n % 16 == 0 {
            engine.sync()?;
        }
    }
    Ok(())
}

/// Returns a new name in the root, and the op that creates it.
fn create(namespace: &Namespace, text: &str) -> Result<(Name, Op), Box<dyn Error>> {
    let name = Name::new(text.as_bytes())?;
    let (parent, kind) = (Ino::ROOT, Kind::File);
    let ino = namespace.allocate(parent, 1)[0];
    let create = Op::Create {
        parent,
        name: name.clone(),
        ino,
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        umask: 0,
        rdev: 0,
        target: None,
    };
    Ok((name, create))
}

/// Files of a run: enough rows for a table file.
const RUN_FILES: usize = 2500;

/// Creates files in runs, with their log.
fn add_runs(namespace: &Namespace, engine: &dyn Engine, prefix: &str) -> Result<(), Box<dyn Error>> {
    for n in 0.. {
        let mut txn = Staged::new(engine);
        for file in 0..RUN_FILES {
            let (_, op) = create(namespace, &format!("{prefix}-{n}-{file}"))?;
            let applied = namespace::apply(&mut txn, &CONTEXT, &op)?;
            txn.keep_op(&CONTEXT, &op, &applied);
        }
        let commit = txn.into_commit();
        let mut run = engine.begin_run()?;
        for (key, value) in &commit.puts {
            run.put(key, value)?;
        }
        for record in &commit.ops {
            run.log(record)?;
        }
        let record = RunRecord { conditions: commit.conditions, merges: commit.merges };
        run.finish()?.ingest(&record)?;
        writeln!(io::stdout(), "{prefix}-{n}-{}", RUN_FILES - 1)?;
    }
    Ok(())
}
