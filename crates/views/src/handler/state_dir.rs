//! The state is kept: a log of what happened, and now and then a snapshot, after which the log begins anew.
//!
//! Owns which files there are and when they go. What `take` returned for is in the log by `write`, so that it outlasts the
//! process; not by `fdatasync`, as after the loss of power every container is listed again.
//!
//! Invariants: the lock of the log is taken before those of shards; a log is written in the order of each shard's versions; the
//! snapshot of a number and the logs from that number on are the whole state.

use super::change_log::{Mark, Record, Unkept};
use super::frames::{Name, Writer};
use super::matcher::Needs;
use super::object_record::text;
use super::{Handler, HandlerError, SHARDS};
use crate::ruleset::write::write_rules;
use hashbrown::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A log of fewer bytes needs no snapshot.
const LOG_BYTES_MIN: u64 = 64 << 20;

/// Where the state is kept.
#[derive(Debug)]
pub(super) struct Keeper {
    dir: PathBuf,
    epoch: u64,
    log: Mutex<Log>,
    /// What is of no shard.
    notes: Mutex<Vec<u8>>,
    pub(super) unkept: Arc<Unkept>,
    /// Held as long as the handler lives, so that there is no second one.
    _only: File,
}

#[derive(Debug)]
pub(super) struct Log {
    pub(super) writer: Writer,
    pub(super) number: u64,
    /// At how many bytes a snapshot is due; `None` while one is written.
    pub(super) due_bytes: Option<u64>,
}

impl Keeper {
    pub(super) fn new(dir: PathBuf, epoch: u64, number: u64, only: File) -> io::Result<Self> {
        let writer = Writer::create(&Name::Log(number).path(&dir), epoch)?;
        let log = Mutex::new(Log { writer, number, due_bytes: Some(LOG_BYTES_MIN) });
        Ok(Self { dir, epoch, log, notes: Mutex::default(), unkept: Arc::default(), _only: only })
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler {
    /// Notes what is of no shard.
    pub(super) fn note(&self, record: Record<'_>) {
        if let Some(keeper) = &self.keeper {
            record.append(&mut keeper.notes());
        }
    }

    /// Returns when everything that happened so far outlasts the process.
    pub(super) fn keep(&self) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let mut log = keeper.log();
        self.gather(keeper, &mut log);
        log.writer.write()?;
        if log.due_bytes.is_some_and(|due| log.writer.bytes > due) {
            self.begin_snapshot(keeper, &mut log)?;
        }
        Ok(())
    }

    /// Bytes of the log since the last snapshot.
    pub(super) fn log_bytes(&self) -> u64 {
        self.keeper.as_ref().map_or(0, |keeper| keeper.log().writer.bytes)
    }

    fn gather(&self, keeper: &Keeper, log: &mut Log) {
        let frame = log.writer.frame();
        frame.append(&mut keeper.notes());
        keeper.unkept.take().for_each(|shard| self.shard_at(shard).pen.take(frame));
    }

    /// From now on another log; what was in the ones before goes into a snapshot, in the background.
    fn begin_snapshot(&self, keeper: &Keeper, log: &mut Log) -> io::Result<()> {
        let number = self.next_log(keeper, log)?;
        if let Some(me) = self.me() {
            tokio::spawn(async move {
                let written = store::blocking(move || me.write_snapshot(number)).await;
                if let Err(error) = written {
                    tracing::warn!(%error, "the snapshot of the views' state cannot be written");
                }
            });
        }
        Ok(())
    }

    fn next_log(&self, keeper: &Keeper, log: &mut Log) -> io::Result<u64> {
        let number = log.number + 1;
        let writer = Writer::create(&Name::Log(number).path(&keeper.dir), keeper.epoch)?;
        *log = Log { writer, number, due_bytes: None };
        Ok(number)
    }

    /// Writes a snapshot now, so that the next start is quick; nothing to do where nothing is kept.
    ///
    /// # Errors
    /// If it cannot be written; the state is kept all the same.
    pub async fn snapshot(&self) -> Result<(), HandlerError> {
        let (Some(keeper), Some(me)) = (&self.keeper, self.me()) else { return Ok(()) };
        let wrong = |error: io::Error| HandlerError::new(&keeper.dir, error.to_string());
        let number = {
            let mut log = keeper.log();
            if log.due_bytes.is_none() {
                return Ok(());
            }
            self.gather(keeper, &mut log);
            log.writer.write().and_then(|()| self.next_log(keeper, &mut log)).map_err(wrong)?
        };
        store::blocking(move || me.write_snapshot(number)).await.map_err(wrong)
    }

    fn write_snapshot(&self, number: u64) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let written = self.try_snapshot(keeper, number);
        let mut log = keeper.log();
        let bytes = written.as_ref().map_or(log.writer.bytes, |bytes| *bytes);
        log.due_bytes = Some(LOG_BYTES_MIN.max(bytes.saturating_mul(2)));
        written.map(drop)
    }

    fn try_snapshot(&self, keeper: &Keeper, number: u64) -> io::Result<u64> {
        let path = Name::Snapshot(number).path(&keeper.dir);
        let aside = path.with_extension("new");
        let mut writer = Writer::create(&aside, keeper.epoch)?;
        self.write_all(writer.frame());
        writer.write()?;
        for shard in 0..SHARDS {
            self.write_shard(shard, writer.frame());
            writer.write()?;
        }
        Record { mark: Mark::End, number: 0, version: 0, body: &[] }.append(writer.frame());
        writer.write()?;
        writer.sync()?;
        std::fs::rename(&aside, &path)?;
        File::open(&keeper.dir)?.sync_all()?;
        remove_before(&keeper.dir, number)?;
        Ok(writer.bytes)
    }

    /// What is of no shard.
    fn write_all(&self, into: &mut Vec<u8>) {
        self.life().append(into);
        let (views, containers, container_count) = {
            let registry = self.registry();
            (registry.views.clone(), registry.containers.clone(), registry.container_count)
        };
        for (number, view) in (0..).zip(views) {
            let Some(view) = view else {
                forgotten(Mark::ViewForgotten, number).append(into);
                continue;
            };
            let mut rules = String::from("view:\n");
            write_rules(&mut rules, &view.rules);
            let version = u64::from(view.life);
            Record { mark: Mark::View, number, version, body: rules.as_bytes() }.append(into);
        }
        let by_number: HashMap<u32, _> =
            containers.values().map(|container| (container.number, container)).collect();
        for number in 0..container_count {
            let Some(container) = by_number.get(&number) else {
                forgotten(Mark::ContainerForgotten, number).append(into);
                continue;
            };
            let record = Record { mark: Mark::Container, number: container.number, version: 0, body: &[] };
            Record { body: container.name.as_bytes(), ..record }.append(into);
            if let Some(noted) = container.rules().noted {
                Record { mark: Mark::Time, version: noted.0 as u64, ..record }.append(into);
            }
            let listing = container.listing();
            Record { mark: Mark::Listed, body: &pack_covered(&listing.covered), ..record }.append(into);
            if listing.is_doubtful() {
                Record { mark: Mark::Stale, ..record }.append(into);
            }
        }
        self.looks.each(|container, key| {
            let mut body = vec![0];
            text(&mut body, key);
            Record { mark: Mark::Look, number: container, version: 0, body: &body }.append(into);
        });
    }

    fn write_shard(&self, number: usize, into: &mut Vec<u8>) {
        let shard = self.shard_at(number);
        let record =
            Record { mark: Mark::Shard, number: number as u32, version: shard.pen.version(), body: &[] };
        record.append(into);
        for table in shard.tables() {
            let mut slots = [table.all(), table.all_removed()].concat();
            slots.sort_unstable_by_key(|slot| table.version_of(*slot));
            for slot in slots {
                let (version, body) = (table.version_of(slot), table.record(slot));
                Record { mark: Mark::Object, number: table.container, version, body }.append(into);
            }
        }
    }

    /// What a life begins with.
    pub(super) fn life(&self) -> Record<'_> {
        Record { mark: Mark::Life, number: self.life, version: 0, body: &self.boot }
    }
}

/// What is said of a number that is nobody's any more.
pub(super) fn forgotten(mark: Mark, number: u32) -> Record<'static> {
    Record { mark, number, version: 0, body: &[] }
}

/// The files that a snapshot replaces.
fn remove_before(dir: &Path, number: u64) -> io::Result<()> {
    let old = Name::all(dir)?.into_iter().filter(|name| name.number() < number);
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
