//! The journal of buckets that outlive a command: those of runs on endpoints that exist without the testbed, and those of the actions on a
//! target's bucket.
//!
//! A bucket is journaled before it is created, and again when it is removed. So what a killed run leaves is known to the next run, which
//! removes it, and no bucket is removed that the testbed did not create.
//!
//! Invariants: one process has the journal at a time; a line that was cut by an interruption is ignored.

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A bucket of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournaledBucket {
    /// The text of its platform, which has no secret.
    pub platform: String,
    /// Name.
    pub bucket: String,
    /// Whether the run that created it, or the next one, removes it; otherwise it stays until the user removes it.
    pub is_temporary: bool,
}

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Created(JournaledBucket),
    Removed { platform: String, bucket: String },
}

/// Errors of the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{0} is in use: wait for the other `tenon bench` to end, or give another directory with --state")]
    InUse(PathBuf),
}

/// Attempts to lock a journal.
const LOCK_ATTEMPTS: u32 = 20;
/// Time between two attempts.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Locks a journal for this process. A child that another thread has just started shares the lock until it runs its program, so a
/// lock that is held is tried again for a second.
fn lock(file: &File) -> rustix::io::Result<()> {
    for _ in 1..LOCK_ATTEMPTS {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_INTERVAL),
            locked => return locked,
        }
    }
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// The journal of a directory.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    buckets: Vec<JournaledBucket>,
}

impl Journal {
    /// Opens the journal of a directory, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read or written, or another process has it.
    pub fn open(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join("buckets.jsonl");
        let failed = |source| JournalError::File { path: path.clone(), source };
        fs::create_dir_all(dir).map_err(failed)?;
        let options = File::options().read(true).append(true).create(true).clone();
        let mut file = options.open(&path).map_err(failed)?;
        match lock(&file) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(JournalError::InUse(path)),
            Err(error) => return Err(failed(error.into())),
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        let buckets = replay(&text);
        Ok(Self { path, file, buckets })
    }

    /// Returns the buckets that exist, as far as the testbed knows.
    pub fn buckets(&self) -> &[JournaledBucket] {
        &self.buckets
    }

    /// Returns whether the testbed created a bucket and has not removed it.
    pub fn has(&self, platform: &str, bucket: &str) -> bool {
        self.buckets.iter().any(|known| known.platform == platform && known.bucket == bucket)
    }

    /// Records a bucket that is about to be created.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn record_creation(&mut self, bucket: JournaledBucket) -> Result<(), JournalError> {
        self.append(&Line::Created(bucket.clone()))?;
        self.buckets.push(bucket);
        Ok(())
    }

    /// Records that a bucket has been removed.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn record_removal(&mut self, platform: &str, bucket: &str) -> Result<(), JournalError> {
        self.append(&Line::Removed { platform: platform.to_owned(), bucket: bucket.to_owned() })?;
        self.buckets.retain(|known| known.platform != platform || known.bucket != bucket);
        Ok(())
    }

    fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let failed = |source| JournalError::File { path: self.path.clone(), source };
        let text = serde_json::to_string(line).map_err(|error| failed(error.into()))? + "\n";
        self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data()).map_err(failed)
    }
}

/// Returns the buckets that the journal has and that were not removed.
fn replay(text: &str) -> Vec<JournaledBucket> {
    let mut buckets: Vec<JournaledBucket> = Vec::new();
    for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match line {
            Line::Created(bucket) => buckets.push(bucket),
            Line::Removed { platform, bucket } => {
                buckets.retain(|known| known.platform != platform || known.bucket != bucket);
            }
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str) -> JournaledBucket {
        JournaledBucket { platform: "lab=http://lab".into(), bucket: name.into(), is_temporary: true }
    }

    #[test]
    fn buckets_are_known_until_they_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record_creation(bucket("a")).unwrap();
        journal.record_creation(bucket("b")).unwrap();
        journal.record_removal("lab=http://lab", "a").unwrap();
        assert!(matches!(Journal::open(dir.path()), Err(JournalError::InUse(_))));
        drop(journal);
        // A write that was cut.
        let path = dir.path().join("buckets.jsonl");
        let text = fs::read_to_string(&path).unwrap() + "{\"created\":{\"pl";
        fs::write(&path, text).unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.buckets(), [bucket("b")]);
        journal.record_creation(bucket("c")).unwrap();
        drop(journal);
        let journal = Journal::open(dir.path()).unwrap();
        assert!(journal.has("lab=http://lab", "c") && !journal.has("lab=http://lab", "a"));
    }
}
