//! The activity of a mount in intervals, for `tenon top`: operations by process and by file.

use crate::control::live_messages::FileActivity;
use crate::control::profile_row::ProfileRow;
use crate::serving::mount_points::MountPoints;
use crate::serving::traced_paths::TracedPaths;
use fuse::{Operation, OperationObservation, TracedOperation};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vfs::Filesystem;

/// Maximum number of files, and of pairs of a process and an operation, that are counted in an interval. Activity of further ones is
/// dropped.
const ENTRIES_MAX: usize = 50_000;
/// Number of files that are reported for their bytes, and number of other files that are reported for their operations.
const FILES_REPORTED: usize = 100;
/// Number of pairs of a process and an operation that are reported.
const PROCESSES_REPORTED: usize = 500;

/// Records the activity of a mount until it is dropped.
pub(crate) struct ActivityRecorder {
    interval: Arc<Mutex<Interval>>,
    _operations: Vec<OperationObservation>,
}

/// Activity since the last report.
struct Interval {
    paths: TracedPaths,
    /// Activity by inode number.
    files: HashMap<u64, FileActivity>,
    processes: BTreeMap<(u32, Operation), ProfileRow>,
}

impl ActivityRecorder {
    /// Starts to record the operations at all mount points.
    pub(super) fn start(fs: &Arc<Filesystem>, mount_points: &MountPoints) -> Self {
        let interval = Interval {
            paths: TracedPaths::new(Arc::clone(fs), vfs::Ino::ROOT),
            files: HashMap::new(),
            processes: BTreeMap::new(),
        };
        let interval = Arc::new(Mutex::new(interval));
        let operations = mount_points.meters().map(|meter| {
            let interval = Arc::clone(&interval);
            meter.observe(move |operation| {
                interval.lock().unwrap_or_else(PoisonError::into_inner).add(operation);
            })
        });
        Self { _operations: operations.collect(), interval }
    }

    /// Returns the activity since the last call: by process and operation, the longest total time first, and by file, those with the most
    /// bytes first, then those with the most operations.
    pub(super) fn take(&self) -> (Vec<ProfileRow>, Vec<FileActivity>) {
        let mut interval = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        let mut processes: Vec<ProfileRow> = std::mem::take(&mut interval.processes).into_values().collect();
        processes.sort_by_key(|row| Reverse(row.total_us));
        processes.truncate(PROCESSES_REPORTED);
        let mut files: Vec<FileActivity> = std::mem::take(&mut interval.files).into_values().collect();
        drop(interval);
        let bytes = |file: &FileActivity| file.read_bytes + file.written_bytes;
        files.sort_by_key(|file| Reverse(bytes(file)));
        let mut rest = files.split_off(files.len().min(FILES_REPORTED));
        rest.sort_by_key(|file| Reverse(file.count));
        files.extend(rest.into_iter().take(FILES_REPORTED));
        (processes, files)
    }
}

impl Interval {
    /// Adds an answered operation to its process and to its file.
    fn add(&mut self, operation: &TracedOperation) {
        let took_us = u64::try_from(operation.took.as_micros()).unwrap_or(u64::MAX);
        self.add_process(operation, took_us);
        let subject = &operation.subject;
        // Operations on names belong to the file that they find or make, or else to the directory.
        let ino = match operation.reply.ino {
            0 => subject.ino,
            found => found,
        };
        self.paths.apply(operation);
        if operation.operation == Operation::Forget
            || (self.files.len() >= ENTRIES_MAX && !self.files.contains_key(&ino))
        {
            return;
        }
        let paths = &mut self.paths;
        let file = self.files.entry(ino).or_insert_with(|| FileActivity {
            path: paths.of_inode(ino).as_ref().to_owned(),
            ..FileActivity::default()
        });
        file.count += 1;
        file.total_us += took_us;
        match operation.operation {
            Operation::Read => file.read_bytes += operation.reply.bytes,
            Operation::Write => file.written_bytes += operation.reply.bytes,
            _ => {}
        }
    }

    fn add_process(&mut self, operation: &TracedOperation, took_us: u64) {
        let key = (operation.process.id, operation.operation);
        if self.processes.len() >= ENTRIES_MAX && !self.processes.contains_key(&key) {
            return;
        }
        let row = self.processes.entry(key).or_insert_with(|| ProfileRow {
            pid: operation.process.id,
            program: operation.process.program.as_ref().to_owned(),
            operation: operation.operation.name().to_owned(),
            count: 0,
            total_us: 0,
            longest_us: 0,
        });
        row.count += 1;
        row.total_us += took_us;
        row.longest_us = row.longest_us.max(took_us);
    }
}

/// Returns the interval that a client asked for, or the nearest that is permitted: 100 ms to one minute.
pub(super) fn interval(interval_ms: u64) -> Duration {
    Duration::from_millis(interval_ms.clamp(100, 60_000))
}
