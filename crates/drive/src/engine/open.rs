//! Opening: reads superblock, manifest and tables, and replays the log.

use super::recovery::{Recovery, ReplayOutcome};
use super::root::{SharedRoot, read_manifest, read_superblock};
use super::{Engine, OpenOptions};
use crate::device::{BlockDevice, Buffers, FailStopDevice};
use crate::error::Result;
use crate::format::Manifest;
use crate::index::{Index, IndexTable, TableSource, table_error};
use crate::log::{LogState, SharedLog};
use crate::policy::Policy;
use crate::space::{SharedSpace, Space, lock};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

impl Engine {
    /// Opens a drive. Blocks. All acknowledged changes are there; a commit that was not acknowledged is there as a
    /// whole or not at all. With `before_damage`, changes may be missing ([`Engine::losses`]).
    pub(crate) fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self> {
        // Writes to a damaged drive could overwrite objects that can still be saved.
        let is_read_only = options.read_only || options.before_damage;
        let superblock = read_superblock(&*device)?;
        let manifest = read_manifest(&*device, &superblock)?;
        let (drive, geometry) = (superblock.drive, superblock.geometry);
        let space: SharedSpace = Arc::new(Mutex::new(Space::from_manifest(geometry, &manifest)));
        let mut losses = Vec::new();
        let index = open_index(&device, &space, &manifest, options, &mut losses)?;
        let mut engine = Self {
            device: FailStopDevice::new(device, is_read_only),
            drive,
            geometry,
            policy: Policy::new(geometry, options.index_bytes as u64),
            space,
            index,
            log: SharedLog::new(LogState::at_checkpoint(manifest.next_frame, manifest.head_at)),
            buffers: Buffers::new(options.buffer_pool_bytes()),
            root: SharedRoot::new(superblock),
            compaction_lock: Mutex::default(),
            last_write: AtomicU64::new(manifest.last_write),
            losses,
        };
        // Frees the zones without live bytes, as the end of the checkpoint did: the next frame may be in one of them.
        lock(&engine.space).free_dead_zones();
        let ReplayOutcome { last, loss } = Recovery::new(&engine, options.before_damage).replay()?;
        engine.losses.extend(loss);
        if options.before_damage {
            if !engine.losses.is_empty() {
                let lost = engine.name_lost_buckets()?;
                engine.losses.extend(lost);
            }
            return Ok(engine);
        }
        engine.claim_index(&manifest)?;
        {
            let mut space = lock(&engine.space);
            // The log's reserve must not take the blocks that the next checkpoint may need.
            engine.reserve_for_checkpoint(&mut space, engine.index.size(), 0);
            space.begin_log_reserve();
        }
        if !is_read_only {
            engine.make_recovered_durable(last)?;
        }
        Ok(engine)
    }
}

/// Opens the tables of a manifest. With `before_damage`, adds tables that cannot be opened to `losses`, and loads the
/// readable entries of damaged ones into memory. Without it, such a table is an error.
fn open_index(
    device: &Arc<dyn BlockDevice>,
    space: &SharedSpace,
    manifest: &Manifest,
    options: OpenOptions,
    losses: &mut Vec<String>,
) -> Result<Index> {
    let cache = Arc::new(sst::Cache::new(options.index_bytes as u64 / 2));
    let mut tables = Vec::new();
    for (id, entry) in (0..).zip(&manifest.tables) {
        let source = TableSource::new(device.clone(), entry, space.clone());
        source.set_in_manifest(true);
        match IndexTable::open(source, id, cache.clone()).map_err(table_error) {
            Ok(table) => tables.push(Arc::new(table)),
            Err(error) if options.before_damage => losses.push(format!(
                "{error}: a table of the index ({} bytes at byte {}) is left out; objects may be missing, or older than stored last",
                entry.len_bytes,
                entry.runs.first().map_or(0, |run| run.at()),
            )),
            Err(error) => return Err(error),
        }
    }
    let next_table = manifest.tables.len() as u64;
    Ok(match options.before_damage {
        true => Index::salvage(tables, cache, next_table, losses),
        false => Index::new(tables, cache, next_table),
    })
}
