//! The metadata of a volume that keeps its names on this machine.
//!
//! Invariant: a state directory holds the metadata of one volume, and a volume that has content is never opened without
//! the metadata that names it.

use crate::state;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use meta::{Engine, LogCap, MemoryEngine};
use meta_rocks::{OpenError, RocksEngine, RocksOptions};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use store::ObjectStore;
use vfs::{Naming, VolumeRecord};

/// What the engine may cache, as a share of the memory limit: what the tables of a volume named by path may take.
const CACHE_PERCENT: u64 = 30;

/// Opens the metadata of a volume. One named by path learns its names from the bucket, in memory.
pub(crate) async fn open(
    volume: &Volume,
    record: Option<&VolumeRecord>,
    store: &dyn ObjectStore,
    state_root: &Path,
    memory_limit_bytes: u64,
) -> Result<Arc<dyn Engine>> {
    let Some(record) = record.filter(|record| record.naming == Naming::Inode) else {
        return Ok(Arc::new(MemoryEngine::new(LogCap::default())));
    };
    let owner = state_root.join("meta.volume");
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
    let options = RocksOptions { cache_bytes, ..RocksOptions::default() };
    let open = || RocksEngine::open(&state_root.join("meta"), options);
    Ok(Arc::new(state::when_free(open, |error| matches!(error, OpenError::InUse(_)))?))
}
