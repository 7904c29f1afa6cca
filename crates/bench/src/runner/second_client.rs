//! The second client: it watches from outside when files are in the bucket, and compares every byte.

use crate::outcome::{Failure, Phase, Place};
use crate::raw_client::Bucket;
use crate::workload::{Job, JobFile, Operation, Scale, Task};
use harness::Stopwatch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Minimum pause between two listings of a watch.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Factor by which a pause is longer than a listing: the watch must not load the server that it watches.
const PAUSE_FACTOR: u32 = 8;
/// Concurrent streams of a comparison.
const STREAMS: usize = 8;

/// Files that must be in a directory after a job.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) folder: String,
    pub(super) files: Vec<JobFile>,
    /// Whether files of other names are wrong.
    is_complete: bool,
}

impl Expected {
    /// Returns what must be there after a job.
    pub(super) fn after(job: &Job, scale: &Scale, seed: u64) -> Self {
        Self {
            folder: job.folder().to_owned(),
            files: job.files_after(scale, seed),
            is_complete: matches!(job.operation, Operation::Rename | Operation::Unlink),
        }
    }

    fn prefix(&self) -> String {
        format!("{}/", self.folder)
    }

    /// Returns the files that are absent or have another size.
    pub(super) fn missing(&self, sizes: &BTreeMap<String, u64>) -> Vec<&JobFile> {
        self.files.iter().filter(|file| sizes.get(&file.path) != Some(&file.size_bytes)).collect()
    }

    /// Returns those of the names that must not exist.
    fn left_over<'n>(&self, names: impl Iterator<Item = &'n String>) -> Vec<&'n String> {
        let known: BTreeSet<&String> = self.files.iter().map(|file| &file.path).collect();
        names.filter(|name| self.is_complete && !known.contains(name)).collect()
    }

    /// Returns the failure if names are absent, or are there although they must not be.
    pub(super) fn check_names(&self, names: &BTreeSet<String>, place: Place) -> Result<(), Failure> {
        let absent: Vec<&JobFile> = self.files.iter().filter(|file| !names.contains(&file.path)).collect();
        if let Some(first) = absent.first() {
            return Err(Failure::Missing { place, file: first.path.clone(), count: absent.len() as u64 });
        }
        let left_over = self.left_over(names.iter());
        match left_over.first() {
            Some(first) => {
                Err(Failure::LeftOver { place, file: (*first).clone(), count: left_over.len() as u64 })
            }
            None => Ok(()),
        }
    }

    /// Returns tasks that read all files.
    pub(super) fn reads(&self) -> Vec<Vec<Task>> {
        let share =
            |stream| self.files.iter().skip(stream).step_by(STREAMS).cloned().map(Task::Read).collect();
        (0..STREAMS).map(share).collect()
    }
}

/// A task that lists the bucket until it has what is expected.
#[derive(Debug)]
pub(super) struct DurabilityWatch {
    task: JoinHandle<Option<Duration>>,
    /// Whether the package has ended, so that the listing that begins next is the last.
    is_last: Arc<AtomicBool>,
}

impl DurabilityWatch {
    /// Starts to watch. Its time counts from the start of `job`.
    pub(super) fn start(bucket: &Bucket, expected: Expected, job: Stopwatch, runtime: &Runtime) -> Self {
        let bucket = bucket.clone();
        let is_last = Arc::new(AtomicBool::new(false));
        let is_last_of_task = is_last.clone();
        let task = runtime.spawn(async move {
            loop {
                // Read before the listing: the last listing must begin after the package has ended.
                let is_last = is_last_of_task.load(Ordering::Acquire);
                let listing = Stopwatch::start();
                if let Ok(sizes) = bucket.sizes(&expected.prefix()).await
                    && expected.missing(&sizes).is_empty()
                    && expected.left_over(sizes.keys()).is_empty()
                {
                    return Some(job.elapsed());
                }
                if is_last {
                    return None;
                }
                tokio::time::sleep(PAUSE_MIN.max(listing.elapsed() * PAUSE_FACTOR)).await;
            }
        });
        Self { task, is_last }
    }

    /// Returns the time at which everything was in the bucket; `None` if it never was. To be called when the package has ended.
    pub(super) fn finish(self, runtime: &Runtime) -> Option<Duration> {
        self.is_last.store(true, Ordering::Release);
        runtime.block_on(self.task).ok().flatten()
    }
}

/// Compares names and every byte in the bucket.
pub(super) fn compare(bucket: &Bucket, expected: &Expected, runtime: &Runtime) -> Result<(), Failure> {
    let sizes = runtime.block_on(bucket.sizes(&expected.prefix())).map_err(Failure::testbed)?;
    expected.check_names(&sizes.into_keys().collect(), Place::Bucket)?;
    let compared = runtime.block_on(bucket.run(&expected.reads()));
    compared.map(drop).map_err(|error| error.into_failure(Place::Bucket, Phase::Comparison))
}

/// Counts the files that are not in the bucket at their full size.
pub(super) fn count_missing(bucket: &Bucket, expected: &Expected, runtime: &Runtime) -> Result<u64, Failure> {
    let sizes = runtime.block_on(bucket.sizes(&expected.prefix())).map_err(Failure::testbed)?;
    Ok(expected.missing(&sizes).len() as u64)
}
