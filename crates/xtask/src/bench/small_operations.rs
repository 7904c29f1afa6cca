//! What programs do many times a second: commits of a database, files made.

use anyhow::{Context as _, Result, ensure};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use super::resource_usage::timed;

/// Rows inserted one by one, each a transaction that must be safe.
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

/// Commits a second of SQLite in WAL mode with `synchronous=FULL`.
pub(super) fn sqlite_commits(folder: &Path) -> Result<f64> {
    let output = Command::new("python3").args(["-c", SQLITE]).arg(folder.join("commits.db")).output();
    let output = output.context("cannot run python3")?;
    ensure!(output.status.success(), "SQLite failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Files of 5 bytes made a second, by so many threads with a directory each.
pub(super) fn creates(folder: &Path, threads: usize) -> Result<f64> {
    let each = 8000 / threads;
    let make = |thread: usize| -> Result<()> {
        let dir = folder.join(format!("by-{threads}-{thread}"));
        fs::create_dir(&dir)?;
        for file in 0..each {
            let path = dir.join(file.to_string());
            OpenOptions::new().write(true).create_new(true).open(path)?.write_all(b"hello")?;
        }
        Ok(())
    };
    let ((), wall) = timed(|| {
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || make(thread))).collect();
            makers
                .into_iter()
                .try_for_each(|maker| maker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
        })
    })?;
    Ok((each * threads) as f64 / wall.as_secs_f64())
}
