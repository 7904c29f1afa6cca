//! Engines in fresh directories, and what is in them.

use meta::{Applied, FsError, Ino, Inode, Kind};
use meta::{Commit, Ctx, Engine, LogCap, LoggedOp, Moment, Op, Reader, Rows, Seqno, Staged, namespace};
use meta_rocks::{OpenError, RocksEngine, RocksOptions};
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::Timestamp;

pub(crate) const CTX: Ctx = Ctx { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0 };

/// The consumer that keeps the whole log.
pub(crate) const ALL: &str = "all";

pub(crate) const WHOLE_LOG: LogCap = LogCap { bytes_max: u64::MAX, tail_ops: 0 };

/// Syncs only when it is asked.
pub(crate) fn options() -> RocksOptions {
    RocksOptions { log_cap: WHOLE_LOG, sync_interval: Duration::from_secs(3600), ..RocksOptions::default() }
}

pub(crate) fn open(path: &Path) -> RocksEngine {
    try_open(path).unwrap()
}

/// Opens an engine that nothing else uses. Its lock may still be held for a moment: a child that another test starts has a
/// copy of every open file until it runs its program.
pub(crate) fn try_open(path: &Path) -> Result<RocksEngine, OpenError> {
    for _ in 0..100 {
        match RocksEngine::open(path, options()) {
            Err(OpenError::InUse(_)) => std::thread::sleep(Duration::from_millis(20)),
            opened => return opened,
        }
    }
    panic!("{} stays in use", path.display());
}

/// An engine that keeps its whole log.
pub(crate) fn open_with_log(path: &Path) -> RocksEngine {
    let engine = open(path);
    if engine.cursor(ALL).is_err() {
        engine.register(ALL, Seqno(0)).unwrap();
    }
    engine
}

/// Every key with its record and version.
pub(crate) fn table(engine: &dyn Reader) -> Rows {
    engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap()
}

pub(crate) fn log(engine: &dyn Engine) -> Vec<LoggedOp> {
    engine.log_after(Seqno(0), usize::MAX).unwrap()
}

pub(crate) fn put(key: &str, value: &str) -> Commit {
    Commit { puts: vec![(key.into(), value.as_bytes().into())], ..Commit::default() }
}

pub(crate) fn purge(number: u64) -> (Ctx, Op) {
    (CTX, Op::Purge { ino: Ino(number) })
}

/// An op as it stands, without what a namespace does around it.
pub(crate) fn commit_op(engine: &dyn Engine, ctx: &Ctx, op: &Op) -> Result<Applied, FsError> {
    let mut txn = Staged::new(engine);
    let applied = namespace::apply(&mut txn, ctx, op)?;
    txn.keep_op(ctx, op);
    engine.commit(txn.into_commit()).unwrap();
    Ok(applied)
}

/// What a loss of power would leave at best: the files as the kernel has them now.
pub(crate) fn image(of: &Path, to: &Path) {
    // RocksDB may remove a file that is not needed any more while this copies.
    while let Err(error) = try_image(of, to) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        fs::remove_dir_all(to).unwrap();
    }
}

fn try_image(of: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(of)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            try_image(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The largest of RocksDB's files with this ending.
pub(crate) fn largest(engine: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(engine.join("tables")).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|path| path.extension().is_some_and(|found| found == ending));
    of_kind.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

/// Turns a byte of a file over.
pub(crate) fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0xff;
    fs::write(path, bytes).unwrap();
}

/// An empty directory of that number.
pub(crate) fn directory(number: u64) -> Inode {
    let at = Timestamp(5);
    Inode {
        ino: Ino(number),
        kind: Kind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        nlink: 2,
        rdev: 0,
        size_bytes: 0,
        atime: at,
        mtime: at,
        ctime: at,
        btime: at,
        home: None,
        content: meta::Content::EMPTY,
        target: None,
        exact: true,
        observed_at: Moment::default(),
    }
}
