//! The metadata of a volume that keeps its names on this machine.
//!
//! Invariant: a state directory holds the metadata of one volume, and a volume that has content is never opened without
//! the metadata that names it.

use crate::state;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use meta::{Engine, LogCap, MemoryEngine};
use meta_rocks::{Journal, OpenError, RocksEngine, RocksOptions};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::ObjectStore;
use store::writeback::Writeback;
use vfs::{Naming, VolumeRecord};

/// What the engine may cache, as a share of the memory limit: what the tables of a volume named by path may take.
const CACHE_PERCENT: u64 = 30;

/// Says whose metadata a state directory holds.
const OWNER_FILE: &str = "meta.volume";

/// Whether a state directory holds the metadata of any volume.
pub(crate) fn is_in(state_root: &Path) -> bool {
    state_root.join(OWNER_FILE).exists()
}

/// Opens the metadata of a volume. One named by path learns its names from the bucket, in memory.
pub(crate) async fn open(
    volume: &Volume,
    record: Option<&VolumeRecord>,
    store: &dyn ObjectStore,
    state_root: &Path,
    writeback: Option<&Arc<Writeback>>,
    memory_limit_bytes: u64,
) -> Result<Metadata> {
    let Some(record) = record.filter(|record| record.naming == Naming::Inode) else {
        return Ok(Metadata { engine: Arc::new(MemoryEngine::new(LogCap::default())), on_disk: None });
    };
    let owner = state_root.join(OWNER_FILE);
    match fs::read_to_string(&owner) {
        Ok(id) if id.trim() == record.id => {}
        Ok(_) => {
            bail!("{} holds the metadata of another volume; choose another --state-dir", state_root.display())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if record.has_content(store, volume.prefix().as_bytes()).await? {
                bail!(
                    "the names of {} are in the metadata of the machine that made them, and {} has none: mount there, or copy its state directory here",
                    volume.url(),
                    state_root.display()
                );
            }
            state::write_durably(&owner, &record.id)
                .with_context(|| format!("cannot write {}", owner.display()))?;
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", owner.display())),
    }
    let cache_bytes = usize::try_from(memory_limit_bytes / 100 * CACHE_PERCENT).unwrap_or(usize::MAX);
    let mut options = RocksOptions { cache_bytes, ..RocksOptions::default() };
    if writeback.is_some() {
        // An fsync says when; a second is what others wait.
        options.sync_interval = Duration::from_secs(1);
    }
    let path = state_root.join("meta");
    let records = match writeback {
        Some(log) => log.read_notes().context("cannot read the names in the write-back log")?,
        None => Vec::new(),
    };
    let open = || match writeback {
        None => RocksEngine::open(&path, options),
        Some(log) => {
            let records = records.iter().map(|(number, record)| (*number, record.to_vec())).collect();
            RocksEngine::open_journaled(&path, options, Arc::new(InWriteback(log.clone())), records)
        }
    };
    let engine = Arc::new(state::when_free(open, |error| matches!(error, OpenError::InUse(_)))?);
    if let Some(log) = writeback {
        let tables = Arc::downgrade(&engine);
        log.notes_are_kept_by(move || checkpoint(&tables));
    }
    Ok(Metadata { engine: engine.clone(), on_disk: Some(engine) })
}

/// Brings names from the write-back log into the tables, so that it need not keep them.
fn checkpoint(tables: &Weak<RocksEngine>) {
    if let Some(Err(error)) = tables.upgrade().map(|tables| tables.checkpoint()) {
        tracing::warn!("names keep room in the write-back log: {error}");
    }
}

/// The names of a volume, open.
#[derive(Debug, Clone)]
pub(crate) struct Metadata {
    pub(crate) engine: Arc<dyn Engine>,
    on_disk: Option<Arc<RocksEngine>>,
}

impl Metadata {
    /// Needs nothing in the write-back log any more.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        Ok(self.on_disk.as_ref().map_or(Ok(()), |engine| engine.checkpoint())?)
    }
}

/// Names are in the write-back log, after the data that they name.
#[derive(Debug)]
struct InWriteback(Arc<Writeback>);

impl Journal for InWriteback {
    fn append(&self, number: u64, record: Vec<u8>) -> std::io::Result<()> {
        self.0.append_note(number, record.into())
    }

    fn sync(&self) -> std::io::Result<()> {
        self.0.sync_now()
    }

    fn forget(&self, up_to: u64) -> std::io::Result<()> {
        self.0.forget_notes(up_to)
    }
}
