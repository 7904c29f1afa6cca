//! Status of a drive, for `tenon drive info` and `tenon drive map`.

use super::{Drive, Frontend};
use crate::device::BLOCK_BYTES;
use crate::space::lock;

/// The state of a drive at a moment. Lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The id of the drive.
    pub id: u64,
    /// The part of the device in use: whole zones.
    pub len_bytes: u64,
    /// The length of a zone.
    pub zone_bytes: u64,
    /// Free space for objects. Small objects may also use the space that cleaning will free.
    pub available_bytes: u64,
    /// The longest free run.
    pub free_run_bytes_max: u64,
    /// Number of zones that hold the log and small objects.
    pub pack_zones: u64,
    /// Bytes of objects in those zones.
    pub pack_live_bytes: u64,
    /// The tables of the index, newest first: length and number of entries of each.
    pub tables: Vec<(u64, u64)>,
    /// Approximate memory of the index.
    pub index_memory_bytes: u64,
    /// Bytes of the log since the last checkpoint began, which an opening after a crash would read.
    pub log_bytes: u64,
}

impl Info {
    /// Returns the length of all tables of the index.
    pub fn table_bytes(&self) -> u64 {
        self.tables.iter().map(|(len_bytes, _)| len_bytes).sum()
    }

    /// Returns the number of entries in all tables of the index.
    pub fn table_entries(&self) -> u64 {
        self.tables.iter().map(|(_, entries)| entries).sum()
    }
}

/// The use of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneUse {
    /// No data: every block is free, or set aside for the log.
    Free,
    /// Frames of the log, with small objects.
    Pack {
        /// Bytes of objects in the zone.
        live_bytes: u64,
    },
    /// Runs of larger objects and of the index.
    Runs {
        /// Bytes in use.
        used_bytes: u64,
    },
}

impl Frontend {
    /// Returns the free space for objects, in bytes.
    pub(crate) fn available_bytes(&self) -> u64 {
        let zones_reserved = self.engine.zones_reserved();
        lock(&self.engine.space).free_space().object_blocks(zones_reserved) * BLOCK_BYTES
    }
}

impl Drive {
    /// Returns the state of the drive.
    pub fn info(&self) -> Info {
        let engine = &self.0.engine;
        let tables =
            engine.index.view().tables.iter().map(|table| (table.source().len(), table.entries())).collect();
        let log_bytes = engine.log.published().bytes_since_checkpoint;
        let available_bytes = self.0.available_bytes();
        let space = lock(&engine.space);
        Info {
            id: engine.drive.id,
            len_bytes: engine.geometry.blocks * BLOCK_BYTES,
            zone_bytes: engine.geometry.zone_bytes(),
            available_bytes,
            free_run_bytes_max: space.free().longest().map_or(0, |run| run.len_bytes()),
            pack_zones: space.log_zones().len() as u64,
            pack_live_bytes: space.log_zones().iter().map(|(_, zone)| zone.live_bytes).sum(),
            tables,
            index_memory_bytes: engine.index.memory_bytes(),
            log_bytes,
        }
    }

    /// Returns the use of each zone, ordered by position.
    pub fn map(&self) -> Vec<ZoneUse> {
        let geometry = self.0.engine.geometry;
        let space = lock(&self.0.engine.space);
        let mut free_bytes = vec![0; geometry.zones() as usize];
        for run in space.free().runs() {
            for zone in run.start / geometry.zone_blocks..=(run.end() - 1) / geometry.zone_blocks {
                let whole = geometry.zone_run(zone);
                let blocks = run.end().min(whole.end()) - run.start.max(whole.start);
                free_bytes[zone as usize] += blocks * BLOCK_BYTES;
            }
        }
        let mut map: Vec<ZoneUse> = free_bytes
            .into_iter()
            .map(|free| match geometry.zone_bytes() - free {
                0 => ZoneUse::Free,
                used_bytes => ZoneUse::Runs { used_bytes },
            })
            .collect();
        space.log_reserve().iter().for_each(|&zone| map[zone as usize] = ZoneUse::Free);
        for (zone, entry) in space.log_zones().iter() {
            map[zone as usize] = ZoneUse::Pack { live_bytes: entry.live_bytes };
        }
        map
    }
}
