//! A job on a directory: threads that do tasks with files and compare every byte.
//!
//! Threads that hang in a system call are abandoned after the time limit: nothing can end them but the end of the mount.

use super::copies::Copies;
use super::file_tasks::run_task;
use crate::file_error::FileError;
use crate::outcome::{Failure, Phase, Place};
use crate::workload::Task;
use harness::{Histogram, Stopwatch};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time that the other threads get to end after the first error.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A job on the files of a directory.
#[derive(Debug, Clone)]
pub(super) struct Transfer {
    pub(super) root: PathBuf,
    /// Directory below the root that is made first.
    pub(super) new_folder: Option<String>,
    /// Tasks of each thread.
    pub(super) shares: Vec<Vec<Task>>,
    /// Whether files are copied by `cp`.
    pub(super) copies: Option<Arc<Copies>>,
    /// Place that a failure names.
    pub(super) place: Place,
    pub(super) phase: Phase,
    /// Time after which the transfer counts as hung.
    pub(super) limit: Duration,
}

/// The work of a job on a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    /// From the first open to the last close.
    pub(super) span: Duration,
    /// Durations of the operations.
    pub(super) latency: Histogram,
}

impl Transfer {
    /// Runs the job.
    pub(super) fn run(self) -> Result<Work, Failure> {
        let watch = Stopwatch::start();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (sender, ends) = channel();
        let threads = self.shares.len();
        let (shares, root, new_folder, copies) =
            (self.shares, Arc::new(self.root), self.new_folder, self.copies);
        let thread_stop = is_stopped.clone();
        // The directory is made by a thread as well: that may hang too.
        thread::spawn(move || {
            if let Err(error) = make_folder(&root, new_folder.as_deref()) {
                let _ = sender.send(Err(error));
                return;
            }
            for share in shares {
                let (sender, root, stop, copies) =
                    (sender.clone(), root.clone(), thread_stop.clone(), copies.clone());
                thread::spawn(move || {
                    // The receiver is gone if the job was given up.
                    let _ = sender.send(process(&root, &share, copies.as_deref(), &stop));
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
            Ok(latency) => Ok(Work { span: watch.elapsed(), latency }),
        }
    }
}

fn make_folder(root: &Path, folder: Option<&str>) -> Result<(), FileError> {
    match folder {
        Some(folder) => std::fs::create_dir_all(root.join(folder)).map_err(FileError::io(folder)),
        None => Ok(()),
    }
}

/// The reason why a transfer ended early.
enum Stopped {
    Error(FileError),
    Failure(Failure),
}

/// Waits for all threads, and merges their latencies. Fails with the first error, or after the limit.
fn wait(
    ends: &Receiver<Result<Histogram, FileError>>,
    threads: usize,
    watch: Stopwatch,
    limit: Duration,
    phase: Phase,
) -> Result<Histogram, Stopped> {
    let mut latency = Histogram::default();
    for _ in 0..threads {
        match ends.recv_timeout(limit.saturating_sub(watch.elapsed())) {
            Ok(Ok(own)) => latency.merge(&own),
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
    Ok(latency)
}

/// Does the tasks of one thread, until it must stop.
fn process(
    root: &Path,
    share: &[Task],
    copies: Option<&Copies>,
    stop: &AtomicBool,
) -> Result<Histogram, FileError> {
    let mut latency = Histogram::default();
    for task in share {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let watch = Stopwatch::start();
        match (copies, task) {
            (Some(copies), Task::Write(file)) => copies.copy_in(root, file)?,
            (Some(copies), Task::Read(file)) => copies.copy_out(root, file)?,
            _ if run_task(root, task, &mut latency)? => continue,
            _ => {}
        }
        latency.record(watch.elapsed());
    }
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{JobFile, SyncPolicy};

    fn file(number: usize) -> JobFile {
        JobFile { number, path: format!("f/{number}"), size_bytes: 100_000, rewritten: None }
    }

    fn transfer(root: &Path, shares: Vec<Vec<Task>>) -> Transfer {
        Transfer {
            root: root.to_owned(),
            new_folder: Some("f".to_owned()),
            shares,
            copies: None,
            place: Place::Mount,
            phase: Phase::Job,
            limit: Duration::from_secs(10),
        }
    }

    fn shares(task: fn(JobFile) -> Task) -> Vec<Vec<Task>> {
        vec![vec![task(file(0)), task(file(1))], vec![task(file(2))]]
    }

    #[test]
    fn wrong_bytes_sizes_and_missing_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let written = transfer(dir.path(), shares(Task::Write)).run().unwrap();
        assert_eq!(written.latency.count(), 3);
        let read = || transfer(dir.path(), shares(Task::Read)).run();
        read().unwrap();
        let path = dir.path().join("f/2");
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[70_000] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert_eq!(read().unwrap_err().short(), "wrong bytes");
        std::fs::write(&path, &good[..99_999]).unwrap();
        assert_eq!(read().unwrap_err().short(), "wrong size");
        assert_eq!(transfer(dir.path(), shares(Task::Stat)).run().unwrap_err().short(), "wrong size");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read().unwrap_err().short(), "missing files");
    }

    /// A write of a block that does not arrive, and one that arrives elsewhere.
    #[test]
    fn blocks_are_compared_with_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        transfer(dir.path(), vec![vec![Task::Write(file(0))]]).run().unwrap();
        let offsets = Arc::new(vec![8192, 0]);
        let write = Task::WriteBlocks { file: file(0), offsets: offsets.clone(), sync: SyncPolicy::Each };
        let work = transfer(dir.path(), vec![vec![write]]).run().unwrap();
        assert_eq!(work.latency.count(), 2);
        let rewritten = |pages: &[u64]| {
            let pages = pages.iter().copied().collect();
            JobFile { rewritten: Some(Arc::new(crate::workload::Rewritten { pages })), ..file(0) }
        };
        let read = |file| transfer(dir.path(), vec![vec![Task::Read(file)]]).run();
        read(rewritten(&[0, 2])).unwrap();
        assert_eq!(read(rewritten(&[0, 3])).unwrap_err().short(), "wrong bytes");
        assert_eq!(read(file(0)).unwrap_err().short(), "wrong bytes");
        let blocks = Task::ReadBlocks { file: rewritten(&[0, 2]), offsets };
        transfer(dir.path(), vec![vec![blocks]]).run().unwrap();
    }

    #[test]
    fn names_are_listed_renamed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        transfer(dir.path(), shares(Task::Write)).run().unwrap();
        let list = |files| Task::List { folder: "f".into(), files: Arc::new(files) };
        let run = |task| transfer(dir.path(), vec![vec![task]]).run();
        assert_eq!(run(list(vec![file(0), file(1), file(2)])).unwrap().latency.count(), 1);
        assert_eq!(run(list(vec![file(0), file(7)])).unwrap_err().short(), "missing files");
        run(Task::Rename { from: file(1), to: "f/new".into() }).unwrap();
        assert!(dir.path().join("f/new").exists() && !dir.path().join("f/1").exists());
        run(Task::Unlink(file(2))).unwrap();
        assert_eq!(run(Task::Unlink(file(2))).unwrap_err().short(), "missing files");
    }

    #[test]
    fn cp_writes_and_reads_files_that_are_compared_afterwards() {
        let (dir, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = |name: &str, shares: Vec<Vec<Task>>| {
            let copies = Arc::new(Copies::prepare(scratch.path(), name, &shares).unwrap());
            let transfer = Transfer { copies: Some(copies.clone()), ..transfer(dir.path(), shares) };
            transfer.run()?;
            copies.compare().map_err(|error| error.into_failure(Place::Mount, Phase::Job))
        };
        run("1", shares(Task::Write)).unwrap();
        transfer(dir.path(), shares(Task::Read)).run().unwrap();
        run("2", shares(Task::Read)).unwrap();
        std::fs::write(dir.path().join("f/1"), "other").unwrap();
        assert_eq!(run("3", shares(Task::Read)).unwrap_err().short(), "wrong bytes");
        std::fs::remove_file(dir.path().join("f/1")).unwrap();
        assert_eq!(run("4", shares(Task::Read)).unwrap_err().short(), "missing files");
        // The last thread that ends removes the files.
        let waiting = Stopwatch::start();
        let is_left = || std::fs::read_dir(scratch.path()).unwrap().count() > 0;
        while is_left() && waiting.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!is_left());
    }
}
