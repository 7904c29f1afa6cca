//! Persists the handler's state: a log of changes, and from time to time a snapshot, after which a new log begins.
//!
//! Owns the names and lifetimes of the files. A hint that `take` acknowledged has been written to the log with
//! `write`, so it survives the end of the process. The log is not flushed with `fdatasync`: after the loss of power
//! every container is listed again.
//!
//! Invariants: the lock of the log is taken before those of shards; a log has the changes of each shard in the order
//! of their versions; snapshot N and the logs from number N on are the whole state.

use super::change_log::{LogRecord, RecordKind, UnwrittenShards};
use super::frames::{FileName, FrameWriter};
use super::matcher::Needs;
use super::object_record::put_bytes;
use super::{Handler, HandlerError, SHARDS};
use crate::ruleset::write::write_rules;
use hashbrown::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A shorter log needs no snapshot.
const LOG_BYTES_MIN: u64 = 64 << 20;

/// The directory of the persistent state, with the log that is being written.
#[derive(Debug)]
pub(super) struct StateDir {
    dir: PathBuf,
    epoch: u64,
    log: Mutex<CurrentLog>,
    /// Records about views and containers, which belong to no shard, that are not in the log yet.
    registry_records: Mutex<Vec<u8>>,
    pub(super) unwritten_shards: Arc<UnwrittenShards>,
    /// Lock on the directory, held while the handler lives, so that no second handler uses it.
    _lock_file: File,
}

#[derive(Debug)]
pub(super) struct CurrentLog {
    pub(super) writer: FrameWriter,
    pub(super) number: u64,
    /// Length of the log at which a snapshot is due; `None` while one is being written.
    pub(super) due_bytes: Option<u64>,
}

impl StateDir {
    pub(super) fn new(dir: PathBuf, epoch: u64, number: u64, lock_file: File) -> io::Result<Self> {
        let writer = FrameWriter::create(&FileName::Log(number).path(&dir), epoch)?;
        let log = Mutex::new(CurrentLog { writer, number, due_bytes: Some(LOG_BYTES_MIN) });
        Ok(Self {
            dir,
            epoch,
            log,
            registry_records: Mutex::default(),
            unwritten_shards: Arc::default(),
            _lock_file: lock_file,
        })
    }

    fn log(&self) -> MutexGuard<'_, CurrentLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry_records(&self) -> MutexGuard<'_, Vec<u8>> {
        self.registry_records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler {
    /// Queues a record about a view or a container for the log.
    pub(super) fn log_record(&self, record: LogRecord<'_>) {
        if let Some(state_dir) = &self.state_dir {
            record.append(&mut state_dir.registry_records());
        }
    }

    /// Writes all queued records to the log. Afterwards they survive the end of the process.
    pub(super) fn flush_log(&self) -> io::Result<()> {
        let Some(state_dir) = &self.state_dir else { return Ok(()) };
        let mut log = state_dir.log();
        self.collect_records(state_dir, &mut log);
        log.writer.write()?;
        if log.due_bytes.is_some_and(|due| log.writer.bytes > due) {
            self.begin_snapshot(state_dir, &mut log)?;
        }
        Ok(())
    }

    /// Returns the length of the log since the last snapshot, in bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        self.state_dir.as_ref().map_or(0, |state_dir| state_dir.log().writer.bytes)
    }

    fn collect_records(&self, state_dir: &StateDir, log: &mut CurrentLog) {
        let frame = log.writer.frame();
        frame.append(&mut state_dir.registry_records());
        state_dir.unwritten_shards.take().for_each(|shard| self.shard_at(shard).log.drain_into(frame));
    }

    /// Begins a new log, and writes the state so far to a snapshot in the background.
    fn begin_snapshot(&self, state_dir: &StateDir, log: &mut CurrentLog) -> io::Result<()> {
        let number = self.rotate_log(state_dir, log)?;
        if let Some(handler) = self.arc_self() {
            tokio::spawn(async move {
                let written = store::blocking(move || handler.write_snapshot(number)).await;
                if let Err(error) = written {
                    tracing::warn!(%error, "cannot write a snapshot of the event handler's state; the log keeps growing");
                }
            });
        }
        Ok(())
    }

    fn rotate_log(&self, state_dir: &StateDir, log: &mut CurrentLog) -> io::Result<u64> {
        let number = log.number + 1;
        let writer = FrameWriter::create(&FileName::Log(number).path(&state_dir.dir), state_dir.epoch)?;
        *log = CurrentLog { writer, number, due_bytes: None };
        Ok(number)
    }

    /// Writes a snapshot now, to make the next start fast. Does nothing without a state directory.
    ///
    /// # Errors
    /// If the snapshot cannot be written. The state is complete without it.
    pub async fn snapshot(&self) -> Result<(), HandlerError> {
        let (Some(state_dir), Some(handler)) = (&self.state_dir, self.arc_self()) else { return Ok(()) };
        let failed = |error: io::Error| HandlerError::new(&state_dir.dir, error.to_string());
        let number = {
            let mut log = state_dir.log();
            if log.due_bytes.is_none() {
                return Ok(());
            }
            self.collect_records(state_dir, &mut log);
            log.writer.write().and_then(|()| self.rotate_log(state_dir, &mut log)).map_err(failed)?
        };
        store::blocking(move || handler.write_snapshot(number)).await.map_err(failed)
    }

    fn write_snapshot(&self, number: u64) -> io::Result<()> {
        let Some(state_dir) = &self.state_dir else { return Ok(()) };
        let written = self.snapshot_to_file(state_dir, number);
        let mut log = state_dir.log();
        let bytes = written.as_ref().map_or(log.writer.bytes, |bytes| *bytes);
        log.due_bytes = Some(LOG_BYTES_MIN.max(bytes.saturating_mul(2)));
        written.map(drop)
    }

    fn snapshot_to_file(&self, state_dir: &StateDir, number: u64) -> io::Result<u64> {
        let path = FileName::Snapshot(number).path(&state_dir.dir);
        let temporary = path.with_extension("new");
        let mut writer = FrameWriter::create(&temporary, state_dir.epoch)?;
        self.write_registry(writer.frame());
        writer.write()?;
        for shard in 0..SHARDS {
            self.write_shard(shard, writer.frame());
            writer.write()?;
        }
        LogRecord { kind: RecordKind::End, number: 0, version: 0, body: &[] }.append(writer.frame());
        writer.write()?;
        writer.sync()?;
        std::fs::rename(&temporary, &path)?;
        File::open(&state_dir.dir)?.sync_all()?;
        remove_replaced_files(&state_dir.dir, number)?;
        Ok(writer.bytes)
    }

    /// Appends the records of views, containers and objects to be verified.
    fn write_registry(&self, into: &mut Vec<u8>) {
        self.incarnation_record().append(into);
        let (views, containers, container_count) = {
            let registry = self.registry();
            (registry.views.clone(), registry.containers.clone(), registry.container_count)
        };
        for (number, view) in (0..).zip(views) {
            let Some(view) = view else {
                removal_record(RecordKind::ViewForgotten, number).append(into);
                continue;
            };
            let mut rules = String::from("view:\n");
            write_rules(&mut rules, &view.rules);
            let version = u64::from(view.incarnation);
            LogRecord { kind: RecordKind::View, number, version, body: rules.as_bytes() }.append(into);
        }
        let by_number: HashMap<u32, _> =
            containers.values().map(|container| (container.number, container)).collect();
        for number in 0..container_count {
            let Some(container) = by_number.get(&number) else {
                removal_record(RecordKind::ContainerForgotten, number).append(into);
                continue;
            };
            let record =
                LogRecord { kind: RecordKind::Container, number: container.number, version: 0, body: &[] };
            LogRecord { body: container.name.as_bytes(), ..record }.append(into);
            if let Some(moment) = container.rules().last_moment {
                LogRecord { kind: RecordKind::Time, version: moment.0 as u64, ..record }.append(into);
            }
            let listing = container.listing();
            LogRecord { kind: RecordKind::Listed, body: &pack_covered(&listing.covered), ..record }
                .append(into);
            if listing.needs_relisting() {
                LogRecord { kind: RecordKind::Stale, ..record }.append(into);
            }
        }
        self.verify_queue.for_each(|container, key| {
            let mut body = vec![0];
            put_bytes(&mut body, key);
            LogRecord { kind: RecordKind::VerifyPending, number: container, version: 0, body: &body }
                .append(into);
        });
    }

    fn write_shard(&self, number: usize, into: &mut Vec<u8>) {
        let shard = self.shard_at(number);
        let record = LogRecord {
            kind: RecordKind::Shard,
            number: number as u32,
            version: shard.log.version(),
            body: &[],
        };
        record.append(into);
        for table in shard.tables() {
            let mut slots = [table.live_slots(), table.tombstone_slots()].concat();
            slots.sort_unstable_by_key(|slot| table.version_of(*slot));
            for slot in slots {
                let (version, body) = (table.version_of(slot), table.record(slot));
                LogRecord { kind: RecordKind::Object, number: table.container, version, body }.append(into);
            }
        }
    }

    /// Returns the record with which a process run begins.
    pub(super) fn incarnation_record(&self) -> LogRecord<'_> {
        LogRecord { kind: RecordKind::Incarnation, number: self.incarnation, version: 0, body: &self.boot }
    }
}

/// Returns the record of a view or container that was forgotten.
pub(super) fn removal_record(kind: RecordKind, number: u32) -> LogRecord<'static> {
    LogRecord { kind, number, version: 0, body: &[] }
}

/// Removes the files that snapshot `number` replaces.
fn remove_replaced_files(dir: &Path, number: u64) -> io::Result<()> {
    let old = FileName::all(dir)?.into_iter().filter(|name| name.number() < number);
    old.into_iter().try_for_each(|name| std::fs::remove_file(name.path(dir)))
}

pub(super) fn pack_covered(covered: &[(String, Needs)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (keys, needs) in covered {
        body.push(needs.bits());
        body.extend_from_slice(&(keys.len() as u32).to_le_bytes());
        body.extend_from_slice(keys.as_bytes());
    }
    body
}
