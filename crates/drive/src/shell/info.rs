//! What a drive says of itself.

use super::{Drive, Shell};
use crate::space::lock;

/// A drive at a moment. Lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// By which it is known.
    pub id: u64,
    /// What of the device is used: whole zones.
    pub len_bytes: u64,
    /// The length of a zone.
    pub zone_bytes: u64,
    /// What objects can still take; small ones also take what cleaning makes free.
    pub available_bytes: u64,
    /// The longest run that is free.
    pub free_run_bytes_max: u64,
    /// How many zones hold the log and small objects.
    pub pack_zones: u64,
    /// What of those belongs to objects.
    pub pack_live_bytes: u64,
    /// The index's tables, the newest first: their lengths and how many entries each has.
    pub tables: Vec<(u64, u64)>,
    /// About how much memory the index takes.
    pub index_memory_bytes: u64,
    /// What an opening after the loss of power would read of the log.
    pub log_bytes: u64,
}

impl Info {
    /// What the index's tables take together.
    pub fn table_bytes(&self) -> u64 {
        self.tables.iter().map(|(len_bytes, _)| len_bytes).sum()
    }

    /// How many entries the index's tables have together.
    pub fn table_entries(&self) -> u64 {
        self.tables.iter().map(|(_, entries)| entries).sum()
    }
}

/// What a zone is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneUse {
    /// Nothing.
    Free,
    /// The log and small objects, of which so many bytes still belong to somebody.
    Pack {
        /// What belongs to objects.
        live_bytes: u64,
    },
    /// Larger objects and the index: so many bytes of it.
    Runs {
        /// What is taken.
        used_bytes: u64,
    },
}

impl Shell {
    /// What objects can still take, in bytes.
    pub(crate) fn available_bytes(&self) -> u64 {
        let zones_reserved = self.machine.zones_reserved();
        lock(&self.machine.space).available_blocks(zones_reserved) * crate::device::BLOCK_BYTES
    }
}

impl Drive {
    /// What there is on it.
    pub fn info(&self) -> Info {
        let machine = &self.0.machine;
        let tables =
            machine.index.view().tables.iter().map(|table| (table.source().len(), table.entries())).collect();
        let log_bytes = machine.log_bytes();
        let available_bytes = self.0.available_bytes();
        let space = lock(&machine.space);
        Info {
            id: machine.drive.id,
            len_bytes: machine.geometry.blocks * crate::device::BLOCK_BYTES,
            zone_bytes: machine.geometry.zone_bytes(),
            available_bytes,
            free_run_bytes_max: space.free().longest().map_or(0, |run| run.len_bytes()),
            pack_zones: space.zones().count() as u64,
            pack_live_bytes: space.zones().map(|(_, zone)| zone.live_bytes).sum(),
            tables,
            index_memory_bytes: machine.index.len_bytes() as u64,
            log_bytes,
        }
    }

    /// What each zone is used for, in the order of the device.
    pub fn map(&self) -> Vec<ZoneUse> {
        let geometry = self.0.machine.geometry;
        let space = lock(&self.0.machine.space);
        let mut free_bytes = vec![0; geometry.zones() as usize];
        for run in space.free().runs() {
            for zone in run.start / geometry.zone_blocks..=(run.end() - 1) / geometry.zone_blocks {
                let (begins, ends) = (zone * geometry.zone_blocks, (zone + 1) * geometry.zone_blocks);
                free_bytes[zone as usize] +=
                    (run.end().min(ends) - run.start.max(begins)) * crate::device::BLOCK_BYTES;
            }
        }
        let mut map: Vec<ZoneUse> = free_bytes
            .into_iter()
            .map(|free| match geometry.zone_bytes() - free {
                0 => ZoneUse::Free,
                used_bytes => ZoneUse::Runs { used_bytes },
            })
            .collect();
        space.spares().iter().for_each(|&zone| map[zone as usize] = ZoneUse::Free);
        for (zone, entry) in space.zones() {
            map[zone as usize] = ZoneUse::Pack { live_bytes: entry.live_bytes };
        }
        map
    }
}
