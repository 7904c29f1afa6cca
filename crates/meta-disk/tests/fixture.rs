//! Helpers to open engines, read their contents, and copy or damage their files.

use meta::{
    Commit, CommitError, Effect, Engine, Ino, LogCap, LoggedOp, Moment, Op, OpContext, OpRecord, Origin,
    Reader, Rows, RunRecord, Seqno,
};
use meta_disk::{DiskEngine, EngineOptions, OpenError, TableLayer};
use std::cell::Cell;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::Timestamp;

pub(crate) const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

/// The consumer for which the whole log is kept.
pub(crate) const ALL: &str = "all";

pub(crate) const WHOLE_LOG: LogCap = LogCap::UNLIMITED;

thread_local! {
    /// The layer that the test on this thread uses.
    static LAYER: Cell<TableLayer> = const { Cell::new(TableLayer::RocksDb) };
}

/// Runs a test over a layer.
pub(crate) fn run_on(layer: TableLayer, test: fn()) {
    LAYER.set(layer);
    test();
}

/// Returns the layer of the test on this thread.
pub(crate) fn layer() -> TableLayer {
    LAYER.get()
}

/// Returns the name of the directory that the layer's files are in.
pub(crate) fn tables_dir() -> &'static str {
    if layer() == TableLayer::Lsm { "lsm" } else { "tables" }
}

/// Returns options with which the engine syncs only on request.
pub(crate) fn options() -> EngineOptions {
    EngineOptions {
        log_cap: WHOLE_LOG,
        sync_interval: Duration::from_secs(3600),
        layer: layer(),
        ..EngineOptions::default()
    }
}

pub(crate) fn open(path: &Path) -> DiskEngine {
    try_open(path).unwrap()
}

/// Opens an engine. Retries while its lock is held: a child process that another test is starting holds a copy of every open file
/// until it executes its program.
pub(crate) fn try_open(path: &Path) -> Result<DiskEngine, OpenError> {
    for _ in 0..100 {
        match DiskEngine::open(path, options()) {
            Err(OpenError::InUse(_)) => std::thread::sleep(Duration::from_millis(20)),
            opened => return opened,
        }
    }
    panic!("{} is still in use after two seconds", path.display());
}

/// Opens an engine that keeps its whole log.
pub(crate) fn open_with_log(path: &Path) -> DiskEngine {
    let engine = open(path);
    if engine.cursor(ALL).is_err() {
        engine.register(ALL, Seqno(0)).unwrap();
    }
    engine
}

/// Returns all keys with their records and versions.
pub(crate) fn table(engine: &dyn Reader) -> Rows {
    engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap()
}

pub(crate) fn log(engine: &dyn Engine) -> Vec<LoggedOp> {
    engine.log_after(Seqno(0), usize::MAX).unwrap()
}

pub(crate) fn put(key: &str, value: &str) -> Commit {
    Commit { puts: vec![(key.into(), value.as_bytes().into())], ..Commit::default() }
}

pub(crate) fn purge(number: u64) -> OpRecord {
    OpRecord { context: CONTEXT, op: Op::Purge { ino: Ino(number) }, effect: Effect::default() }
}

/// Adds a run of this many rows, which logs ops.
pub(crate) fn ingest(
    engine: &dyn Engine,
    rows: usize,
    ops: &[OpRecord],
    record: &RunRecord,
) -> Result<Seqno, CommitError> {
    let mut run = engine.begin_run().unwrap();
    for nr in 0..rows {
        run.put(format!("r{nr:06}").as_bytes(), nr.to_string().as_bytes()).unwrap();
    }
    ops.iter().for_each(|record| run.log(record).unwrap());
    run.finish().unwrap().ingest(record)
}

/// Copies the files as the kernel has them now: the most that a loss of power would leave.
pub(crate) fn copy_files(from: &Path, to: &Path) {
    // The layer may remove an obsolete file during the copy.
    while let Err(error) = try_copy_files(from, to) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        fs::remove_dir_all(to).unwrap();
    }
}

fn try_copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            try_copy_files(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Returns the largest of the layer's files with this extension.
pub(crate) fn largest_file(engine: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(engine.join(tables_dir())).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|path| path.extension().is_some_and(|found| found == ending));
    of_kind.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

/// Inverts a byte of a file.
pub(crate) fn invert_byte(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0xff;
    fs::write(path, bytes).unwrap();
}
