//! The second client: it watches from outside when files are in the bucket, and compares every byte.

use crate::outcome::{Failure, Phase, Place};
use crate::raw_client::Bucket;
use crate::workload::{JobFile, Operation};
use harness::Stopwatch;
use std::collections::BTreeMap;
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

/// A task that lists the bucket until it has every file at its full size.
#[derive(Debug)]
pub(super) struct DurabilityWatch {
    task: JoinHandle<Option<Duration>>,
    is_last: Arc<AtomicBool>,
}

impl DurabilityWatch {
    /// Starts to watch. Its time counts from the start of `job`.
    pub(super) fn start(
        bucket: &Bucket,
        files: &[JobFile],
        folder: &str,
        job: Stopwatch,
        runtime: &Runtime,
    ) -> Self {
        let (bucket, files, prefix) = (bucket.clone(), files.to_vec(), format!("{folder}/"));
        let is_last = Arc::new(AtomicBool::new(false));
        let is_last_of_task = is_last.clone();
        let task = runtime.spawn(async move {
            loop {
                // Read before the listing: the last listing must begin after the package has ended.
                let is_last = is_last_of_task.load(Ordering::Acquire);
                let listing = Stopwatch::start();
                let sizes = bucket.sizes(&prefix).await.unwrap_or_default();
                if missing(&files, &sizes).is_empty() {
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

    /// Returns the time at which every file was in the bucket; `None` if some never were. To be called when the package has ended.
    pub(super) fn finish(self, runtime: &Runtime) -> Option<Duration> {
        self.is_last.store(true, Ordering::Release);
        runtime.block_on(self.task).ok().flatten()
    }
}

/// Compares every byte of files in the bucket.
pub(super) fn compare(
    bucket: &Bucket,
    files: &[JobFile],
    folder: &str,
    runtime: &Runtime,
) -> Result<(), Failure> {
    let sizes = runtime.block_on(bucket.sizes(&format!("{folder}/")));
    let sizes = sizes.map_err(|error| Failure::Testbed { reason: error.to_string() })?;
    let absent: Vec<&JobFile> = files.iter().filter(|file| !sizes.contains_key(&file.path)).collect();
    if let Some(first) = absent.first() {
        let (file, count) = (first.path.clone(), absent.len() as u64);
        return Err(Failure::Missing { place: Place::Bucket, file, count });
    }
    let share = |stream| files.iter().skip(stream).step_by(STREAMS).cloned().collect();
    let shares: Vec<Vec<JobFile>> = (0..STREAMS).map(share).collect();
    let compared = runtime.block_on(bucket.transfer(Operation::Read, &shares));
    compared.map_err(|error| error.into_failure(Place::Bucket, Phase::Comparison))
}

/// Counts the files that are not in the bucket at their full size.
pub(super) fn count_missing(
    bucket: &Bucket,
    files: &[JobFile],
    folder: &str,
    runtime: &Runtime,
) -> Result<u64, Failure> {
    let sizes = runtime.block_on(bucket.sizes(&format!("{folder}/")));
    let sizes = sizes.map_err(|error| Failure::Testbed { reason: error.to_string() })?;
    Ok(missing(files, &sizes).len() as u64)
}

/// Returns the files that are absent or have another size.
fn missing<'f>(files: &'f [JobFile], sizes: &BTreeMap<String, u64>) -> Vec<&'f JobFile> {
    files.iter().filter(|file| sizes.get(&file.path) != Some(&file.size_bytes)).collect()
}
