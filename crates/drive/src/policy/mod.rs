//! The admission policy: what may be written now, what must wait, and what is refused.
//!
//! Every decision is a pure function of numbers. Callers gather the numbers ([`Usage`]) and act on the decision.
//!
//! Invariants of an admitted commit, where the free blocks exclude the log reserve:
//!
//! - `free blocks >= checkpoint blocks + blocks left for purposes that come later`: deletions need none, moves and delete markers leave
//!   half the length of the index, and everything else leaves the whole length. So everything can be deleted without a compaction.
//! - If the commit writes bytes of objects, `log zones >= DELETION_ZONES` afterwards. A zone without such bytes is free after the next
//!   checkpoint, so deletions can always continue.
//! - A change that adds data is refused while the index cannot be written, because memory and log would grow without limit.

mod free_space;
#[cfg(test)]
mod tests;

pub(crate) use free_space::FreeSpace;

use crate::format::{FRAME_HEADER_BYTES, Geometry, blocks_of};

/// Zones that only the log may take, so that deletions remain possible on a full drive.
pub(crate) const LOG_RESERVE_ZONES: u64 = 4;

/// The number of log zones that must remain when bytes of objects are written, moved objects included. A zone without bytes of objects
/// is free after the next checkpoint, unless it is the head or the next zone. Deletions write no such bytes, so with two zones more than
/// those they can always continue.
pub(crate) const DELETION_ZONES: u64 = 2;

/// The most bytes of a frame of several commits. A single longer commit gets a frame of its own.
const FRAME_BYTES_MAX: u64 = 4 << 20;

/// The longest object that is stored in a frame by default, in bytes, if zones are long enough.
const INLINE_BYTES_MAX: u64 = 256 << 10;

/// The longest object that is stored in a frame if it is expected to be short-lived, in bytes.
const INLINE_BYTES_LIMIT: u64 = 1 << 20;

/// The overhead of a table beyond its entries, in bytes, for tables of any length.
pub(crate) const TABLE_BYTES_MIN: u64 = 256 << 10;

/// Maximum bytes of the log since the last checkpoint until a checkpoint is due. A recovery also reads the
/// frames that are written while the checkpoint is made.
const LOG_BYTES_MAX: u64 = 512 << 20;

/// Failed checkpoints in a row after which changes that make the index longer are refused.
const FAILED_CHECKPOINTS_MAX: u32 = 3;

/// Zones are cleaned while fewer than the reserved zones plus the first number are free. On drives with few zones, the total number of
/// zones divided by the second number is used instead of the first.
const FREE_ZONES_TARGET: u64 = 2 * LOG_RESERVE_ZONES;
const FREE_ZONES_TARGET_DIVISOR: u64 = 8;

/// A zone is worth cleaning if that frees at least a zone's length divided by the first number, or by the second if the log is nearly
/// full.
const GAIN_DIVISOR: u64 = 8;
const GAIN_DIVISOR_WHEN_FULL: u64 = 64;

/// The effect of a change on the space. As space runs out, `Grows` is refused first, then `Moves`: each leaves the room
/// that the purposes listed before it may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Purpose {
    /// Removes data. Never refused for lack of space, unless no checkpoint fits any more.
    Frees,
    /// Moves data so that space becomes free, or adds a delete marker, which takes little.
    Moves,
    /// Adds data.
    #[default]
    Grows,
}

/// The need to clean zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Few zones are free.
    Routine,
    /// The log is nearly full.
    LogNearlyFull,
}

/// The length of the index, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct IndexSize {
    pub(crate) tables_bytes: u64,
    pub(crate) memtable_bytes: u64,
    /// The memtable that a checkpoint is writing.
    pub(crate) frozen_bytes: u64,
}

impl IndexSize {
    /// Returns the length of the entries that are in no table.
    fn unflushed_bytes(&self) -> u64 {
        self.memtable_bytes + self.frozen_bytes
    }

    /// Returns the length of tables and memtable.
    fn total_bytes(&self) -> u64 {
        self.tables_bytes + self.memtable_bytes
    }
}

/// The length of the log, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogSize {
    /// Bytes written to the head zone.
    pub(crate) head_bytes: u64,
    /// Bytes of the log that a recovery would read.
    pub(crate) since_checkpoint_bytes: u64,
}

/// The use of a drive at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) space: FreeSpace,
    pub(crate) index: IndexSize,
    pub(crate) log: LogSize,
    /// Failed checkpoints since the last successful one.
    pub(crate) failed_checkpoints: u32,
}

/// The demands of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Demand {
    pub(crate) purpose: Purpose,
    /// Whether the commit writes bytes of objects. Then its zone is not free after the next checkpoint.
    pub(crate) has_inline: bool,
    /// The most bytes of its frame.
    pub(crate) frame_bytes: u64,
}

/// The place of an admitted frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Behind the last frame, in the head zone.
    InHeadZone,
    /// At the beginning of the log's next zone. A zone has to be taken to follow that one.
    InNextZone,
}

/// A refusal of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The drive is full for this purpose.
    Full,
    /// The index cannot be written.
    IndexUnwritable,
    /// The frame is longer than a zone.
    FrameTooLong,
}

/// The policy of a drive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    geometry: Geometry,
    /// Memory for the index.
    index_memory_bytes: u64,
}

impl Policy {
    pub(crate) fn new(geometry: Geometry, index_memory_bytes: u64) -> Self {
        Self { geometry, index_memory_bytes }
    }

    /// Decides on a commit. [`FreeSpace::checkpoint_blocks`] includes the entries that the commit adds to the index.
    pub(crate) fn admit_commit(&self, usage: &Usage, demand: Demand) -> Result<Admission, Refusal> {
        let Demand { purpose, has_inline, frame_bytes } = demand;
        if purpose != Purpose::Frees && self.is_index_unwritable(usage) {
            return Err(Refusal::IndexUnwritable);
        }
        if frame_bytes > self.geometry.zone_bytes() {
            return Err(Refusal::FrameTooLong);
        }
        if !usage.space.has_room_for_index(blocks_of(bytes_left_by(purpose, usage.index))) {
            return Err(Refusal::Full);
        }
        let admission = match usage.log.head_bytes + frame_bytes > self.geometry.zone_bytes() {
            true => Admission::InNextZone,
            false => Admission::InHeadZone,
        };
        let taken_zones = u64::from(admission == Admission::InNextZone);
        if has_inline && usage.space.log_zones() < DELETION_ZONES + taken_zones {
            return Err(Refusal::Full);
        }
        // Several writers may have passed `admits_inline` with the same free zone, so this check is more lenient by one zone.
        let is_large = has_inline && purpose == Purpose::Grows && admission == Admission::InNextZone;
        if is_large && usage.space.free_zones() < self.zones_reserved(usage.index) {
            return Err(Refusal::Full);
        }
        Ok(admission)
    }

    /// Returns whether the log has room for a small object, and beyond that for changes that free space. If not, zones have to be cleaned.
    pub(crate) fn admits_inline(&self, usage: &Usage, len_bytes: u64) -> bool {
        let room_in_head = self.geometry.zone_bytes() - usage.log.head_bytes;
        usage.space.free_zones() > self.zones_reserved(usage.index)
            || room_in_head > 2 * len_bytes + self.frame_bytes_max()
    }

    /// Returns whether writers wait for a checkpoint, because the entries that are in no table take all memory allowed for them. If
    /// checkpoints fail again and again, commits refuse changes that grow instead.
    pub(crate) fn must_wait_for_checkpoint(&self, usage: &Usage) -> bool {
        self.is_memory_full(usage.index) && !self.is_index_unwritable(usage)
    }

    /// Returns whether the entries that are in no table take all memory allowed for them.
    pub(crate) fn is_memory_full(&self, index: IndexSize) -> bool {
        index.unflushed_bytes() > self.index_memory_bytes / 2
    }

    /// Returns whether writers wait for the cleaning of zones.
    pub(crate) fn must_wait_for_cleaning(space: FreeSpace) -> bool {
        space.log_zones() < LOG_RESERVE_ZONES
    }

    /// Returns whether memtable or log are long enough for a checkpoint. The limits allow for as much again while the table is written.
    pub(crate) fn needs_checkpoint(&self, index: IndexSize, log: LogSize) -> bool {
        let log_bytes_max = LOG_BYTES_MAX.min(self.geometry.zones() * self.geometry.zone_bytes() / 16);
        index.memtable_bytes > self.index_memory_bytes / 4 || log.since_checkpoint_bytes > log_bytes_max
    }

    /// Returns whether few zones are free, so that zones with dead bytes should be cleaned.
    pub(crate) fn needs_cleaning(&self, space: FreeSpace, index: IndexSize) -> bool {
        let target = FREE_ZONES_TARGET.min(self.geometry.zones() / FREE_ZONES_TARGET_DIVISOR);
        space.free_zones() < self.zones_reserved(index) + target
    }

    /// Returns whether zones are few and a checkpoint is likely to free one.
    pub(crate) fn needs_zone_from_checkpoint(&self, space: FreeSpace, log: LogSize) -> bool {
        log.since_checkpoint_bytes >= self.geometry.zone_bytes() && space.log_zones() < LOG_RESERVE_ZONES
    }

    /// Returns whether checkpoints fail again and again, so that memory and log would grow without limit.
    fn is_index_unwritable(&self, usage: &Usage) -> bool {
        usage.failed_checkpoints >= FAILED_CHECKPOINTS_MAX && self.needs_checkpoint(usage.index, usage.log)
    }

    /// Returns the number of zones that objects must leave free: for the log, and for a checkpoint and a compaction of
    /// the whole index.
    pub(crate) fn zones_reserved(&self, index: IndexSize) -> u64 {
        let rewritten_bytes = 2 * index.total_bytes() + 2 * TABLE_BYTES_MIN;
        LOG_RESERVE_ZONES + rewritten_bytes.div_ceil(self.geometry.zone_bytes())
    }

    /// Returns the number of blocks that a checkpoint may need if the memtable grew by `more_bytes`, with a manifest of
    /// at most `manifest_bytes`.
    pub(crate) fn checkpoint_blocks(&self, index: IndexSize, more_bytes: u64, manifest_bytes: u64) -> u64 {
        let in_rows = |bytes| self.geometry.round_up_to_rows(blocks_of(bytes));
        in_rows(table_bytes_max(index.unflushed_bytes() + more_bytes)) + in_rows(manifest_bytes)
    }

    /// Returns the least gain for which a zone is cleaned, in bytes.
    pub(crate) fn gain_bytes_min(&self, urgency: Urgency) -> u64 {
        self.geometry.zone_bytes()
            / match urgency {
                Urgency::Routine => GAIN_DIVISOR,
                Urgency::LogNearlyFull => GAIN_DIVISOR_WHEN_FULL,
            }
    }

    /// Returns whether the cleaning of a zone gained space, if it made the log grow by `log_bytes`. Padding of frames and zones may take
    /// all that was dead.
    pub(crate) fn is_gain(&self, log_bytes: u64) -> bool {
        log_bytes + self.gain_bytes_min(Urgency::LogNearlyFull) <= self.geometry.zone_bytes()
    }

    /// Returns the longest object that is stored in a frame by default, in bytes.
    pub(crate) fn inline_bytes_max(&self) -> u64 {
        INLINE_BYTES_MAX.min(self.inline_bytes_limit())
    }

    /// Returns the longest object that may be stored in a frame at all, in bytes.
    pub(crate) fn inline_bytes_limit(&self) -> u64 {
        INLINE_BYTES_LIMIT.min(self.geometry.zone_bytes() / 8)
    }

    /// Returns the maximum bytes that several commits may take in one frame.
    pub(crate) fn frame_bytes_max(&self) -> u64 {
        FRAME_BYTES_MAX.min(self.geometry.zone_bytes() / 2)
    }

    /// Returns the most bytes to commit together now, such that the head zone is filled before the next one begins.
    pub(crate) fn frame_bytes_fitting(&self, log: LogSize) -> u64 {
        let room_in_head = self.geometry.zone_bytes() - log.head_bytes;
        self.frame_bytes_max().min(room_in_head.saturating_sub(FRAME_HEADER_BYTES as u64))
    }
}

/// Returns the greatest length of a table whose entries take `entries_bytes`, in bytes.
pub(crate) fn table_bytes_max(entries_bytes: u64) -> u64 {
    entries_bytes + entries_bytes / 8 + TABLE_BYTES_MIN
}

/// Returns the bytes that a change of this purpose must leave free for the index, so that changes of the purposes
/// listed before it fit. Deleting everything in the index takes about as many bytes as the index has.
fn bytes_left_by(purpose: Purpose, index: IndexSize) -> u64 {
    match purpose {
        Purpose::Frees => 0,
        Purpose::Moves => index.total_bytes() / 2,
        Purpose::Grows => index.total_bytes(),
    }
}
