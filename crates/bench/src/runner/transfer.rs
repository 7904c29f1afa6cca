//! A job on a directory: threads that write or read files and compare every byte.
//!
//! Threads that hang in a system call are abandoned after the time limit: nothing can end them but the end of the mount.

use crate::content::{Content, ContentChecker};
use crate::file_error::FileError;
use crate::outcome::{Failure, Phase, Place};
use crate::workload::{JobFile, Operation};
use harness::Stopwatch;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Size of a read call.
const CALL_BYTES: usize = 1 << 20;
/// Time that the other threads get to end after the first error.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A job on the files of a directory.
#[derive(Debug, Clone)]
pub(super) struct Transfer {
    pub(super) root: PathBuf,
    pub(super) folder: String,
    pub(super) operation: Operation,
    /// Files of each thread.
    pub(super) shares: Vec<Vec<JobFile>>,
    pub(super) place: Place,
    pub(super) phase: Phase,
    pub(super) limit: Duration,
}

impl Transfer {
    /// Runs the job, and returns its duration: from the first open to the last close.
    pub(super) fn run(self) -> Result<Duration, Failure> {
        let watch = Stopwatch::start();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (sender, ends) = channel();
        let threads = self.shares.len();
        let (operation, folder) = (self.operation, self.root.join(&self.folder));
        let root = Arc::new(self.root);
        // The directory is made by a thread as well: that may hang too.
        let shares = self.shares;
        let thread_stop = is_stopped.clone();
        thread::spawn(move || {
            let made = match operation {
                Operation::Write => {
                    std::fs::create_dir_all(&folder).map_err(FileError::io(&folder.to_string_lossy()))
                }
                Operation::Read => Ok(()),
            };
            if let Err(error) = made {
                let _ = sender.send(Err(error));
                return;
            }
            for share in shares {
                let (sender, root, stop) = (sender.clone(), root.clone(), thread_stop.clone());
                thread::spawn(move || {
                    // The receiver is gone if the job was given up.
                    let _ = sender.send(process(&root, &share, operation, &stop));
                });
            }
        });
        let ended = wait(&ends, threads, watch, self.limit, self.phase);
        is_stopped.store(true, Ordering::Relaxed);
        match ended {
            Err(Stopped::Error(error)) => {
                let stopping = Stopwatch::start();
                // An error of another thread follows from the first.
                while stopping.elapsed() < STOP_TIMEOUT && ends.recv_timeout(STOP_TIMEOUT).is_ok() {}
                Err(error.into_failure(self.place, self.phase))
            }
            Err(Stopped::Failure(failure)) => Err(failure),
            Ok(()) => Ok(watch.elapsed()),
        }
    }
}

enum Stopped {
    Error(FileError),
    Failure(Failure),
}

fn wait(
    ends: &Receiver<Result<(), FileError>>,
    threads: usize,
    watch: Stopwatch,
    limit: Duration,
    phase: Phase,
) -> Result<(), Stopped> {
    for _ in 0..threads {
        match ends.recv_timeout(limit.saturating_sub(watch.elapsed())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Stopped::Error(error)),
            Err(RecvTimeoutError::Timeout) => {
                return Err(Stopped::Failure(Failure::Hung { phase, seconds: limit.as_secs_f64() }));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let reason = "a thread of the job ended without a result".to_owned();
                return Err(Stopped::Failure(Failure::Testbed { reason }));
            }
        }
    }
    Ok(())
}

fn process(root: &Path, share: &[JobFile], operation: Operation, stop: &AtomicBool) -> Result<(), FileError> {
    for file in share {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        match operation {
            Operation::Write => write(&root.join(&file.path), file)?,
            Operation::Read => read(&root.join(&file.path), file)?,
        }
    }
    Ok(())
}

fn write(path: &Path, file: &JobFile) -> Result<(), FileError> {
    let failed = FileError::io(&file.path);
    let mut content = Content::new(file.size_bytes);
    let mut target = File::create(path).map_err(&failed)?;
    let mut at = 0;
    while at < file.size_bytes {
        let block = content.block(file.number, at, file.size_bytes - at);
        target.write_all(block).map_err(&failed)?;
        at += block.len() as u64;
    }
    // Closing uploads the file. `File` ignores errors of close, so a second client compares the bucket afterwards.
    drop(target);
    Ok(())
}

fn read(path: &Path, file: &JobFile) -> Result<(), FileError> {
    let failed = FileError::io(&file.path);
    let mut source = File::open(path).map_err(&failed)?;
    let mut checker = ContentChecker::new(Content::new(file.size_bytes), file.number, 0);
    let mut buffer = vec![0; CALL_BYTES.min(file.size_bytes as usize + 1)];
    loop {
        let count = source.read(&mut buffer).map_err(&failed)?;
        if count == 0 {
            break;
        }
        if !checker.check_next(&buffer[..count]) {
            return Err(FileError::WrongBytes { file: file.path.clone(), offset: checker.position() });
        }
    }
    match checker.position() == file.size_bytes {
        true => Ok(()),
        false => Err(FileError::WrongSize {
            file: file.path.clone(),
            found_bytes: checker.position(),
            expected_bytes: file.size_bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(root: &Path, operation: Operation) -> Transfer {
        let file = |number: usize| JobFile { number, path: format!("f/{number}"), size_bytes: 100_000 };
        Transfer {
            root: root.to_owned(),
            folder: "f".to_owned(),
            operation,
            shares: vec![vec![file(0), file(1)], vec![file(2)]],
            place: Place::Mount,
            phase: Phase::Job,
            limit: Duration::from_secs(10),
        }
    }

    #[test]
    fn wrong_bytes_sizes_and_missing_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        transfer(dir.path(), Operation::Write).run().unwrap();
        let read = || transfer(dir.path(), Operation::Read).run();
        read().unwrap();
        let path = dir.path().join("f/2");
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[70_000] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert_eq!(read().unwrap_err().short(), "wrong bytes");
        std::fs::write(&path, &good[..99_999]).unwrap();
        assert_eq!(read().unwrap_err().short(), "wrong size");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read().unwrap_err().short(), "missing files");
    }
}
