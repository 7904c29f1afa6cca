//! Verification: reads parts of the device that are otherwise read only when needed (tables, frames, parity).
//!
//! Each call is one step of a scrub. Commits, checkpoints and compactions continue between and during the steps.

use super::Engine;
use super::root::{read_manifest, read_superblock};
use crate::device::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::format::Run;
use crate::index::{IndexTable, verify};
use crate::log::FrameReader;
use crate::space::{Pins, ScrubGuard, lock};
use crate::verdict::Verdict;
use std::sync::Arc;

/// Rows scrubbed by one step.
const ROWS_AT_ONCE: u64 = 256;

/// The outcome of one step of a scrub.
#[derive(Debug, Default)]
pub(crate) struct ScrubStep {
    /// Bytes of data read.
    pub(crate) bytes: u64,
    /// Damaged and unreadable blocks that could not be repaired, one line each.
    pub(crate) damaged: Vec<String>,
    /// Whether parity differs from the data and was not rewritten.
    pub(crate) has_wrong_parity: bool,
}

impl Engine {
    /// Returns the tables of the index. Their blocks are kept as long as the caller holds them.
    pub(crate) fn tables(&self) -> Vec<Arc<IndexTable>> {
        self.index.view().tables.clone()
    }

    /// Verifies all tables. Returns the damaged and unreadable ones, one line each.
    pub(crate) fn verify_tables(&self) -> Vec<String> {
        self.tables().iter().flat_map(|table| self.verify_table(table).damaged).collect()
    }

    /// Verifies a table.
    pub(crate) fn verify_table(&self, table: &IndexTable) -> ScrubStep {
        let damaged = verify(table).damage().map(|error| error.to_string());
        let (bytes, damaged) = (table.source().len(), damaged.into_iter().collect());
        ScrubStep { bytes, damaged, ..ScrubStep::default() }
    }

    /// Verifies the superblocks and the manifest. Checkpoints wait meanwhile.
    pub(crate) fn verify_root(&self) -> ScrubStep {
        let root = self.root.lock();
        let found = read_superblock(&**self.device());
        let read = found.and_then(|_| read_manifest(&**self.device(), &root.superblock));
        let damaged = read.err().map(|error| error.to_string());
        ScrubStep { damaged: damaged.into_iter().collect(), ..ScrubStep::default() }
    }

    /// Returns the pack zones, which have the frames of the log.
    pub(crate) fn pack_zones(&self) -> Vec<u64> {
        lock(&self.space).log_zones().iter().map(|(zone, _)| zone).collect()
    }

    /// Verifies the frames of a pack zone, up to the first that is damaged or cannot be read.
    pub(crate) fn verify_frames(&self, zone: u64) -> ScrubStep {
        let mut pins = Pins::new(&self.space);
        pins.pin_zone(zone);
        let Some(entry) = lock(&self.space).log_zones().get(zone) else { return ScrubStep::default() };
        let reader = FrameReader::new(self.device().clone(), self.drive, self.geometry);
        let mut reader = reader.limit_to(entry.used_bytes);
        let (mut at, mut damaged) = (0, Vec::new());
        while at < entry.used_bytes {
            match reader.frame(zone, at) {
                Verdict::Right(frame) => at += self.geometry.frame_bytes(&frame.header),
                Verdict::Wrong(error) => {
                    damaged.push(error.to_string());
                    break;
                }
                Verdict::Unreadable(error) => {
                    damaged.push(format!("frames of small objects: {error}"));
                    break;
                }
            }
        }
        ScrubStep { bytes: entry.used_bytes, damaged, ..ScrubStep::default() }
    }

    /// Makes the devices read and repair all they hold of some rows with objects and frames, from a block on. Parity is
    /// repaired only if `is_verified`: the data is right as the devices have it. Returns the block where the next step begins and the outcome of this one,
    /// or `None` if no block in use is left.
    pub(crate) fn scrub_objects_from(
        &self,
        from: u64,
        is_verified: bool,
    ) -> Result<Option<(u64, ScrubStep)>> {
        let Some(guarded) = ScrubGuard::next(&self.space, from, ROWS_AT_ONCE) else { return Ok(None) };
        let step = self.scrub_rows_of(guarded.runs(), is_verified)?;
        Ok(Some((guarded.end(), step)))
    }

    /// Makes the devices read and repair all they hold of a table, as `scrub_objects_from` does.
    pub(crate) fn scrub_table(&self, table: &IndexTable, is_verified: bool) -> Result<ScrubStep> {
        self.scrub_rows_of(&table.source().entry().runs, is_verified)
    }

    /// Makes the devices read and repair all they hold of the superblocks and the manifest. Checkpoints wait meanwhile.
    pub(crate) fn scrub_root(&self, is_verified: bool) -> Result<ScrubStep> {
        let root = self.root.lock();
        self.scrub_rows_of(&[self.geometry.superblocks(), root.superblock.manifest], is_verified)
    }

    /// Has the devices read and repair all that they hold of some runs.
    fn scrub_rows_of(&self, runs: &[Run], is_verified: bool) -> Result<ScrubStep> {
        let mut step = ScrubStep::default();
        let len_bytes_max = ROWS_AT_ONCE * self.geometry.row_bytes();
        for run in runs {
            let end = run.end() * BLOCK_BYTES;
            let mut at = run.at();
            while at < end {
                let len_bytes = len_bytes_max.min(end - at);
                let scrubbed =
                    self.device().scrub_rows(at, len_bytes, is_verified).map_err(Error::device(at))?;
                step.damaged.extend(scrubbed.unreadable);
                step.has_wrong_parity |= scrubbed.has_wrong_parity;
                step.bytes += len_bytes;
                at += len_bytes;
            }
        }
        Ok(step)
    }

    /// Makes the repairs of a scrub durable. Does nothing on a read-only drive.
    pub(crate) fn flush_scrubbed(&self) -> Result<()> {
        if self.device.is_read_only() { Ok(()) } else { self.device.flush(0) }
    }
}
