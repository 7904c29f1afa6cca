//! Persists the handler's state: a log of changes, and from time to time a snapshot, after which a new log begins.
//!
//! Owns the names and lifetimes of the files. The changes of hints that `Sink::take` acknowledged have been written to
//! the log with `write`, so they survive the end of the process. The log is not flushed with `fdatasync`: after the
//! loss of power every container is listed again.
//!
//! Invariants: the lock of the log is taken before those of shards; a log has the changes of each shard in the order
//! of their versions; snapshot N and the logs from number N on are the whole state.

use super::frames::{FileName, FrameWriter};
use super::objects::{LogRecord, Objects, RecordKind, SHARDS};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Minimum length of a log at which a snapshot is due. After a snapshot, the next log may become twice as long as the
/// snapshot if that is more.
const LOG_BYTES_MIN: u64 = 64 << 20;

/// The log of the persistent state, if the handler has a directory for it. Without one, all calls do nothing.
#[derive(Debug)]
pub(super) struct StateLog {
    objects: Arc<Objects>,
    files: Option<LogFiles>,
    /// Notified when the log is so long that a snapshot is due.
    snapshot_due: Arc<Notify>,
}

/// The directory of the persistent state, with the log that is being written.
#[derive(Debug)]
pub(super) struct LogFiles {
    dir: PathBuf,
    epoch: u64,
    current: Mutex<CurrentLog>,
    /// Records about views and containers, which belong to no shard, that are not in the log yet.
    registry_records: Mutex<Vec<u8>>,
    /// Lock on the directory, held while the handler lives, so that no second handler uses it.
    _lock_file: File,
}

/// The log that is being written.
#[derive(Debug)]
struct CurrentLog {
    writer: FrameWriter,
    number: u64,
    /// Length of the log at which a snapshot is due; `None` while one is being written.
    due_bytes: Option<u64>,
}

impl LogFiles {
    /// Creates log `number` in a directory that `lock_file` locks.
    pub(super) fn create(dir: PathBuf, epoch: u64, number: u64, lock_file: File) -> io::Result<Self> {
        let writer = FrameWriter::create(&FileName::Log(number).path(&dir), epoch)?;
        let current = Mutex::new(CurrentLog { writer, number, due_bytes: Some(LOG_BYTES_MIN) });
        Ok(Self { dir, epoch, current, registry_records: Mutex::default(), _lock_file: lock_file })
    }

    fn current(&self) -> MutexGuard<'_, CurrentLog> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry_records(&self) -> MutexGuard<'_, Vec<u8>> {
        self.registry_records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateLog {
    pub(super) fn new(objects: Arc<Objects>, files: Option<LogFiles>) -> Self {
        Self { objects, files, snapshot_due: Arc::default() }
    }

    /// Queues a record about a view or a container for the log.
    pub(super) fn append(&self, record: LogRecord<'_>) {
        self.append_with(|into| record.append(into));
    }

    /// Queues the records that `write` appends, which are about views or containers, for the log.
    pub(super) fn append_with(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(files) = &self.files {
            write(&mut files.registry_records());
        }
    }

    /// Queues a record that has only a number.
    pub(super) fn append_number(&self, kind: RecordKind, number: u32) {
        self.append(LogRecord { kind, number, version: 0, body: &[] });
    }

    /// Writes all queued records to the log. Afterwards they survive the end of the process.
    pub(super) fn flush(&self) -> io::Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let mut log = files.current();
        self.write_records(files, &mut log)?;
        if log.due_bytes.is_some_and(|due| log.writer.bytes() > due) {
            self.snapshot_due.notify_one();
        }
        Ok(())
    }

    /// Writes all queued records to the log. A failure is logged, for callers whose records a restart can do without.
    pub(super) fn flush_or_warn(&self) {
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "cannot write to the log of the event handler's state; a restart may have to list containers again");
        }
    }

    /// Returns what is notified when the log is so long that a snapshot is due.
    pub(super) fn snapshot_due(&self) -> Arc<Notify> {
        Arc::clone(&self.snapshot_due)
    }

    /// Returns the length of the current log, which began with the last snapshot or with the process, in bytes; 0
    /// without a directory.
    pub(super) fn bytes(&self) -> u64 {
        self.files.as_ref().map_or(0, |files| files.current().writer.bytes())
    }

    /// Returns the directory; `None` if the state is in memory only.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.files.as_ref().map(|files| files.dir.as_path())
    }

    /// Moves the queued records into the frame that is written next, and writes it. After an error they stay in the frame.
    fn write_records(&self, files: &LogFiles, log: &mut CurrentLog) -> io::Result<()> {
        let frame = log.writer.frame();
        frame.append(&mut files.registry_records());
        self.objects.drain_log_into(frame);
        log.writer.write()
    }

    /// Begins a new log and writes the state so far to a snapshot; `registry` appends the records of everything but the
    /// objects. Does nothing without a directory, or while another snapshot is written.
    pub(super) fn write_snapshot(&self, registry: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let Some(number) = self.begin_next_log(files)? else { return Ok(()) };
        let written = self.write_snapshot_file(files, number, registry);
        let mut log = files.current();
        let bytes = written.as_ref().map_or(log.writer.bytes(), |bytes| *bytes);
        log.due_bytes = Some(LOG_BYTES_MIN.max(bytes.saturating_mul(2)));
        written.map(drop)
    }

    /// Ends the current log and begins the next. Returns its number; `None`, without beginning one, while a snapshot is
    /// written.
    fn begin_next_log(&self, files: &LogFiles) -> io::Result<Option<u64>> {
        let mut log = files.current();
        if log.due_bytes.is_none() {
            return Ok(None);
        }
        self.write_records(files, &mut log)?;
        let number = log.number + 1;
        let writer = FrameWriter::create(&FileName::Log(number).path(&files.dir), files.epoch)?;
        *log = CurrentLog { writer, number, due_bytes: None };
        Ok(Some(number))
    }

    /// Writes snapshot `number`, makes it durable, and removes the files that it replaces. Returns its length in bytes.
    fn write_snapshot_file(
        &self,
        files: &LogFiles,
        number: u64,
        registry: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<u64> {
        let path = FileName::Snapshot(number).path(&files.dir);
        let temporary = path.with_extension("new");
        let mut writer = FrameWriter::create(&temporary, files.epoch)?;
        registry(writer.frame());
        writer.write()?;
        for shard in 0..SHARDS {
            self.objects.write_shard(shard, writer.frame());
            writer.write()?;
        }
        LogRecord { kind: RecordKind::End, number: 0, version: 0, body: &[] }.append(writer.frame());
        writer.write()?;
        writer.sync()?;
        std::fs::rename(&temporary, &path)?;
        File::open(&files.dir)?.sync_all()?;
        remove_replaced_files(&files.dir, number)?;
        Ok(writer.bytes())
    }
}

/// Removes the files that snapshot `number` replaces.
fn remove_replaced_files(dir: &Path, number: u64) -> io::Result<()> {
    let old = FileName::all(dir)?.into_iter().filter(|name| name.number() < number);
    old.into_iter().try_for_each(|name| std::fs::remove_file(name.path(dir)))
}
