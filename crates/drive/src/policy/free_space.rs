//! The free space of a drive in numbers, and the room that it leaves to objects, log and index.

use super::DELETION_ZONES;

/// Free blocks and zones at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeSpace {
    /// Free blocks, apart from the log reserve.
    pub(crate) blocks: u64,
    /// Zones of which all blocks are free, apart from the log reserve.
    pub(crate) zones: u64,
    /// Free zones set aside for the log.
    pub(crate) reserve_zones: u64,
    /// Blocks that the next checkpoint may need. The log and the objects leave them free.
    pub(crate) checkpoint_blocks: u64,
    /// The length of a zone.
    pub(crate) zone_blocks: u64,
}

impl FreeSpace {
    /// Returns the number of free blocks, log reserve included.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.blocks + self.reserve_zones * self.zone_blocks
    }

    /// Returns the number of free zones, log reserve included.
    pub(crate) fn free_zones(&self) -> u64 {
        self.zones + self.reserve_zones
    }

    /// Returns the number of free blocks for objects, if `zones_left` zones have to stay free.
    pub(crate) fn object_blocks(&self, zones_left: u64) -> u64 {
        self.free_blocks().saturating_sub(zones_left * self.zone_blocks)
    }

    /// Returns the number of zones that the log can take and still leave the blocks that the next checkpoint may need.
    pub(crate) fn log_zones(&self) -> u64 {
        let left = self.blocks.saturating_sub(self.checkpoint_blocks) / self.zone_blocks;
        self.zones.min(left) + self.reserve_zones
    }

    /// Returns whether the index can take `blocks` in addition to those kept for the next checkpoint.
    pub(crate) fn has_room_for_index(&self, blocks: u64) -> bool {
        self.blocks >= self.checkpoint_blocks + blocks
    }

    /// Returns whether the log may take a free zone that is not in its reserve. While the reserve has enough zones, the index keeps the
    /// very last free zone: a manifest is one run.
    pub(crate) fn has_zone_for_log(&self) -> bool {
        let is_last = self.zones == 1;
        let is_needed = self.reserve_zones < DELETION_ZONES;
        self.zones > 0 && self.has_room_for_index(self.zone_blocks) && (!is_last || is_needed)
    }
}
