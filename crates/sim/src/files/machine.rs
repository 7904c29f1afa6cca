//! The machine with the mounted volume and its bucket: mounts, crashes, and the state that survives them.

use super::disk_engine::{DiskEngine, DiskState};
use super::fault_injector::{BUCKET, FaultInjector, FaultLayer};
use super::log_disk::{FiredReads, LogDisk};
use super::repeating_store::RepeatingStore;
use super::scenario::Scenario;
use crate::RuntimeClock;
use crate::trace::Trace;
use meta::Engine;
use staging::writeback::{Writeback, WritebackOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::memory::{MemoryLimits, MemoryStore};
use store::wrap::{Faulty, Wrapped};
use store::{Clock as _, Entropy, ObjectKey, ObjectStore};
use tempfile::TempDir;
use vfs::{AttributeSource, Audit, Config, Dependencies, Filesystem, Naming, VolumeRecord};

/// Distinguishes the entropy of the log's disk, so that worlds are otherwise the same with and without its faults.
const LOG_DISK_SALT: u64 = 0x6c6f_6764_6973_6b00;

/// Distinguishes the entropy of the corruption of the journal of moves.
const MOVES_SALT: u64 = 0x6d6f_7665_7300_0000;

/// One world in this many has slow copies: those whose seeds have this remainder, which no regression seed has.
const SLOW_COPIES_ONE_IN_WORLDS: u64 = 16;
const SLOW_COPIES_REMAINDER: u64 = 6;

/// A file system in memory, where fsync is free.
const MEMORY_FS_DIR: &str = "/dev/shm";

/// The kind of a crash, which determines the state that it loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashKind {
    /// A kill of the process: everything handed to the kernel survives.
    Process,
    /// A power loss: unsynced data may be lost.
    Power,
}

/// The state that outlives a mount.
pub(crate) struct Machine {
    pub(crate) scenario: Scenario,
    pub(crate) entropy: Entropy,
    /// The bucket takes long for copies.
    has_slow_copies: bool,
    /// Draws the corruption of the log. It has its own entropy so that worlds are otherwise the same with and without corruption.
    corruption_entropy: Entropy,
    /// Draws the corruption of the journal of moves.
    moves_entropy: Entropy,
    pub(crate) trace: Trace,
    pub(crate) clock: Arc<RuntimeClock>,
    pub(crate) bucket: MemoryStore,
    disk: Arc<Mutex<DiskState>>,
    log_disk: LogDisk,
    /// The directory of the cache and the write-back log.
    dir: TempDir,
    /// Synced bytes per file of the write-back log.
    synced: BTreeMap<u64, u64>,
    /// Synced bytes of the journal of moves.
    synced_moves: u64,
}

/// One mount of the volume.
pub(crate) struct Mount {
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) injector: Arc<FaultInjector>,
    engine: Arc<DiskEngine>,
    pub(crate) writeback: Option<Arc<Writeback>>,
    /// The store below the file system, through the fault injector.
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) record: Option<VolumeRecord>,
}

impl Machine {
    pub(crate) fn new(seed: u64, scenario: Scenario, entropy: Entropy, trace: Trace) -> Result<Self, String> {
        let clock = Arc::new(RuntimeClock::default());
        // One world in three has a server that lists attributes.
        let lists_attributes = seed.is_multiple_of(3);
        let limits = MemoryLimits { part_bytes_min: 1, lists_attributes, ..MemoryLimits::default() };
        let memory = Path::new(MEMORY_FS_DIR);
        let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        trace.push(format!("{scenario:?}"));
        Ok(Self {
            bucket: MemoryStore::with_limits(clock.clone(), limits),
            scenario,
            entropy,
            has_slow_copies: seed % SLOW_COPIES_ONE_IN_WORLDS == SLOW_COPIES_REMAINDER,
            corruption_entropy: Entropy::new(!seed),
            moves_entropy: Entropy::new(seed ^ MOVES_SALT),
            trace,
            clock,
            disk: Arc::new(Mutex::new(DiskState::empty())),
            log_disk: LogDisk::new(seed ^ LOG_DISK_SALT),
            synced: BTreeMap::new(),
            synced_moves: 0,
            dir: dir.map_err(|error| format!("cannot make the cache directory: {error}"))?,
        })
    }

    /// Mounts the volume in the current runtime. The first mount creates the volume.
    pub(crate) async fn mount(&mut self) -> Result<Mount, String> {
        self.clock.begin_runtime();
        let record = self.record().await.map_err(|error| format!("cannot open the volume: {error}"))?;
        let scenario = self.scenario;
        let speed = (scenario.is_slow, self.has_slow_copies);
        let injector = FaultInjector::new(self.entropy.next_u64(), scenario.rates, speed, self.trace.clone());
        let _pause = injector.pause_faults();
        let bucket = RepeatingStore { store: self.bucket.clone(), injector: injector.clone() };
        let bucket = Faulty::new(bucket, injector.faults());
        let bucket: Arc<dyn ObjectStore> =
            Arc::new(Wrapped::new(bucket, FaultLayer { injector: injector.clone(), target: BUCKET }));
        let writeback = match scenario.write_back {
            true => Some(
                self.open_log(bucket.clone())
                    .map_err(|error| format!("cannot open the write-back log: {error}"))?,
            ),
            false => None,
        };
        let store: Arc<dyn ObjectStore> = match &writeback {
            None => bucket,
            Some(log) => {
                Arc::new(Wrapped::new(log.clone(), FaultLayer { injector: injector.clone(), target: "log" }))
            }
        };
        let engine = Arc::new(self.open_engine(&injector, writeback.as_ref())?);
        let parts = Dependencies {
            store: store.clone(),
            clock: self.clock.clone(),
            entropy: Arc::new(Entropy::new(self.entropy.next_u64())),
            engine: engine.clone(),
            record: record.clone(),
        };
        let fs = Filesystem::mount(parts, self.config()).map_err(|error| format!("cannot mount: {error}"))?;
        if let Some(log) = &writeback {
            fs.moves().connect_writeback(log);
        }
        Ok(Mount { fs, injector, engine, writeback, store, record })
    }

    /// Drops the unsynced state that a crash of this kind loses.
    pub(crate) fn lose_unsynced(&mut self, crash_kind: CrashKind) -> Result<(), String> {
        if crash_kind == CrashKind::Process {
            return Ok(());
        }
        self.truncate_moves().map_err(|error| format!("cannot truncate the journal of moves: {error}"))?;
        if self.scenario.write_back {
            return self
                .truncate_log()
                .map_err(|error| format!("cannot truncate the write-back log: {error}"));
        }
        let mut disk = self.disk();
        let kept = self.entropy.below(disk.unsynced() as u64 + 1) as usize;
        self.trace.push(format!("{kept} of {} unsynced commits are left", disk.unsynced()));
        disk.keep_unsynced(kept).map_err(|error| error.to_string())
    }

    /// Corrupts a byte in the middle of the write-back log with probability 1/2, unless ranges of it are unreadable. Returns whether a byte
    /// was corrupted.
    pub(crate) fn corrupt_log(&mut self) -> Result<bool, String> {
        let has_unreadable_ranges = self.log_disk.has_unreadable_ranges();
        if !self.scenario.write_back || has_unreadable_ranges || self.corruption_entropy.below(2) == 0 {
            return Ok(false);
        }
        let pick = |below| self.corruption_entropy.below(below);
        let corrupted = staging::writeback::rot(&self.log_dir(), pick);
        let corrupted = corrupted.map_err(|error| format!("cannot corrupt the log: {error}"))?;
        if let Some(what) = &corrupted {
            self.log_disk.note_corruption();
            self.trace.push(format!("corrupted: {what}"));
        }
        Ok(corrupted.is_some())
    }

    /// Corrupts a byte of a record of the journal of moves that no unfinished move needs, with probability 1/2. Returns whether a byte
    /// was corrupted.
    pub(crate) fn corrupt_moves(&mut self) -> Result<bool, String> {
        if !self.scenario.by_path() || self.moves_entropy.below(2) == 0 {
            return Ok(false);
        }
        let pick = |below| self.moves_entropy.below(below);
        let corrupted = staging::mover::rot(&self.moves_path(), self.synced_moves, pick);
        let corrupted = corrupted.map_err(|error| format!("cannot corrupt the journal of moves: {error}"))?;
        if let Some(what) = &corrupted {
            self.trace.push(format!("corrupted: {what}"));
        }
        Ok(corrupted.is_some())
    }

    /// Makes some bytes of the write-back log unreadable that no pending change needs. Returns whether there were any.
    pub(crate) fn spoil_log(&mut self) -> Result<bool, String> {
        if !self.scenario.write_back {
            return Ok(false);
        }
        let unused = staging::writeback::unused_bodies(&self.log_dir());
        let unused = unused.map_err(|error| format!("cannot read the log: {error}"))?;
        let spoiled = self.log_disk.spoil_one(unused);
        if let Some((segment, range)) = &spoiled {
            self.trace.push(format!("unreadable: bytes {range:?} of log {segment}"));
        }
        Ok(spoiled.is_some())
    }

    /// Returns the numbers of reads of the log that failed.
    pub(crate) fn fired_log_reads(&self) -> FiredReads {
        self.log_disk.fired()
    }

    /// Records how much of the write-back log and of the journal of moves is synced.
    pub(crate) fn record_synced(&mut self, synced: Vec<(u64, u64)>, moves: u64) {
        self.synced_moves = moves;
        for (number, bytes) in synced {
            let known = self.synced.entry(number).or_default();
            *known = bytes.max(*known);
        }
    }

    /// Makes another mount directly over the bucket, without metadata, as on another machine.
    pub(crate) fn mount_elsewhere(&self, record: Option<VolumeRecord>) -> Result<Arc<Filesystem>, String> {
        let parts = Dependencies {
            store: Arc::new(self.bucket.clone()),
            clock: self.clock.clone(),
            entropy: Arc::new(Entropy::new(0)),
            engine: Arc::new(meta::MemoryEngine::default()),
            record,
        };
        let config = Config { moves_path: self.dir.path().join("moves elsewhere"), ..self.config() };
        Filesystem::mount(parts, config).map_err(|error| format!("cannot mount elsewhere: {error}"))
    }

    /// Reads the volume record, and creates it where a volume by inode has none.
    async fn record(&self) -> vfs::Result<Option<VolumeRecord>> {
        let found = VolumeRecord::read(&self.bucket, b"").await?;
        if found.is_some() || self.scenario.by_path() {
            return Ok(found);
        }
        let record = VolumeRecord::new(self.scenario.mapping, Naming::Inode, 7, self.clock.now())?;
        record.write(&self.bucket, b"").await?;
        Ok(Some(record))
    }

    fn config(&self) -> Config {
        Config {
            attributes: AttributeSource::Headers,
            memory_limit_bytes: self.scenario.memory_limit_bytes,
            part_size_bytes: self.scenario.part_size_bytes,
            write_back: self.scenario.write_back,
            moves_path: self.moves_path(),
            ..Config::new(self.dir.path().join("cache"))
        }
    }

    /// Opens the write-back log with the options of `tenon mount --writeback`.
    fn open_log(&self, bucket: Arc<dyn ObjectStore>) -> io::Result<Arc<Writeback>> {
        let options = WritebackOptions {
            limit_bytes: 1 << 30,
            limit_changes: 1 << 20,
            patience: Duration::from_secs(60),
            delay: Duration::from_secs(1),
            checks_at_once: self.scenario.by_path(),
            shared: match self.scenario.by_path() {
                true => Arc::new(|key| vfs::KeySpace::default().is_shared(key)),
                false => Arc::new(|_| false),
            },
            keys_are_used_once: !self.scenario.by_path(),
            lost: Arc::new(|key, unique| {
                vfs::KeySpace::default().lost_key(key, unique).unwrap_or_else(|_| key.clone())
            }),
            early_bytes: 1,
            memory_bytes: 1 << 20,
        };
        let entropy = Arc::new(Entropy::new(self.entropy.next_u64()));
        let faults = self.log_disk.faults();
        staging::writeback::open_with(&self.log_dir(), bucket, options, self.clock.clone(), entropy, faults)
    }

    fn open_engine(
        &self,
        injector: &Arc<FaultInjector>,
        writeback: Option<&Arc<Writeback>>,
    ) -> Result<DiskEngine, String> {
        let journal = writeback.cloned();
        if let Some(journal) = &journal {
            let notes = journal.read_notes().map_err(|error| format!("cannot read the journal: {error}"))?;
            let numbers: Vec<u64> = notes.iter().map(|(number, _)| *number).collect();
            self.disk().keep_journaled(&numbers);
        }
        DiskEngine::open(self.disk.clone(), injector.clone(), journal).map_err(|error| error.to_string())
    }

    /// Cuts each file of the log to its synced length plus a random part of the rest.
    fn truncate_log(&mut self) -> io::Result<()> {
        let dir = self.log_dir();
        for (number, synced) in &mut self.synced {
            let path = dir.join(format!("{number:016x}.log"));
            let Ok(file) = File::options().write(true).open(path) else { continue };
            let length = file.metadata()?.len();
            // The log may have cut off an incomplete record in the meantime.
            *synced = length.min(*synced);
            let kept = *synced + self.entropy.below(length - *synced + 1);
            self.trace.push(format!("{kept} bytes of log {number} are left, {synced} were synced"));
            file.set_len(kept)?;
            *synced = kept;
        }
        Ok(())
    }

    fn truncate_moves(&mut self) -> io::Result<()> {
        let Ok(file) = File::options().write(true).open(self.moves_path()) else { return Ok(()) };
        let length = file.metadata()?.len();
        let kept = self.synced_moves + self.entropy.below(length.saturating_sub(self.synced_moves) + 1);
        self.trace
            .push(format!("{kept} of {length} bytes of moves are left, {} were synced", self.synced_moves));
        file.set_len(kept.min(length))
    }

    fn moves_path(&self) -> PathBuf {
        self.dir.path().join("moves")
    }

    fn log_dir(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn disk(&self) -> MutexGuard<'_, DiskState> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mount {
    /// Returns the synced length of each file of the write-back log, by file number.
    pub(crate) fn synced(&self) -> Vec<(u64, u64)> {
        self.writeback.as_ref().map(|log| log.synced()).unwrap_or_default()
    }

    /// Returns whether no unfinished move is about to take an object from a key, or to it.
    pub(crate) fn is_at_rest(&self, key: &ObjectKey) -> bool {
        let moves = self.fs.moves();
        moves.visible_key(key).as_ref() == Some(key) && !moves.is_moving(key)
    }

    /// Makes the metadata engine write a checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<(), String> {
        self.engine.checkpoint().map_err(|error| error.to_string())
    }

    /// Checks the consistency of the tables, and that each object that they refer to exists.
    pub(crate) async fn audit(&self) -> Result<(), String> {
        let violations = require_ok("check", self.fs.check())?;
        if !violations.is_empty() {
            return Err(violations.join("; "));
        }
        let record = self.record.as_ref();
        let audit = require_ok(
            "audit",
            Audit::make(self.engine(), &*self.store, vfs::KeySpace { record, ..vfs::KeySpace::default() })
                .await,
        )?;
        match audit.missing.first() {
            Some((ino, key)) => Err(format!("{key}, the content of inode {ino}, is missing")),
            None => Ok(()),
        }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }
}

/// Runs a future on one thread with paused time: time advances only when all tasks wait for it.
pub(crate) fn in_paused_runtime<T>(work: impl AsyncFnOnce() -> Result<T, String>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| format!("cannot make a runtime: {error}"))?.block_on(work())
}

pub(crate) fn require_ok<T>(what: &str, outcome: vfs::Result<T>) -> Result<T, String> {
    outcome.map_err(|error| format!("{what} failed while faults were paused: {error}"))
}
