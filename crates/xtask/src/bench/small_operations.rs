//! Rates of small operations: commits of a database, creation of files.

use anyhow::{Context as _, Result, ensure};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use super::resource_usage::timed;

/// A Python script that inserts rows one by one, each in a durable transaction.
const SQLITE: &str = "
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('pragma journal_mode=WAL')
db.execute('pragma synchronous=FULL')
db.execute('create table t(a integer primary key, b text)')
begun, count = time.time(), 0
while time.time() - begun < 4:
    db.execute('insert into t(b) values (?)', ('x' * 100,))
    count += 1
rate = count / (time.time() - begun)
assert db.execute('select count(*) from t').fetchone()[0] == count
print(rate)
";

/// Measures the commits per second of SQLite in WAL mode with `synchronous=FULL`.
pub(super) fn sqlite_commits(folder: &Path) -> Result<f64> {
    let output = Command::new("python3").args(["-c", SQLITE]).arg(folder.join("commits.db")).output();
    let output = output.context("cannot run python3")?;
    ensure!(output.status.success(), "SQLite failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Measures the files of 5 bytes created per second, by threads with a directory each.
pub(super) fn file_creations(folder: &Path, threads: usize) -> Result<f64> {
    let files_per_thread = 8000 / threads;
    let create = |thread: usize| -> Result<()> {
        let dir = folder.join(format!("by-{threads}-{thread}"));
        fs::create_dir(&dir)?;
        for file in 0..files_per_thread {
            let path = dir.join(file.to_string());
            OpenOptions::new().write(true).create_new(true).open(path)?.write_all(b"hello")?;
        }
        Ok(())
    };
    let ((), wall) = timed(|| {
        std::thread::scope(|scope| {
            let creators: Vec<_> = (0..threads).map(|thread| scope.spawn(move || create(thread))).collect();
            creators
                .into_iter()
                .try_for_each(|creator| creator.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
        })
    })?;
    Ok((files_per_thread * threads) as f64 / wall.as_secs_f64())
}
