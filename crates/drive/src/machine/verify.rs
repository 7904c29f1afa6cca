//! Verify: what is on the device beside objects, and what nobody reads until it is needed.

use super::{LogReader, Machine};
use crate::device::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::format::Zone;
use crate::index::of_table;
use crate::space::{Pins, lock};

/// Of so many rows parity is compared at once.
const ROWS_AT_ONCE: u64 = 256;

impl Machine {
    /// Checks that every table is as it was written.
    pub(crate) fn verify_tables(&self) -> Result<()> {
        self.index.view().tables.iter().try_for_each(|table| table.verify().map_err(of_table))
    }

    /// Reads the frames of all pack zones; what is damaged, one line each.
    pub(crate) fn verify_frames(&self) -> Result<Vec<String>> {
        let mut pins = Pins::new(&self.space);
        let zones: Vec<(u64, Zone)> = lock(&self.space).zones().collect();
        zones.iter().for_each(|&(zone, _)| pins.zone(zone));
        let mut reader = LogReader::new(self.device.clone(), self.drive, self.geometry);
        let mut damaged = Vec::new();
        for (zone, entry) in zones {
            let mut at = 0;
            while at < entry.used_bytes {
                let Some(frame) = reader.frame(zone, at)? else {
                    let at = self.geometry.zone_at(zone) + at;
                    damaged.push(format!("damaged: a frame of small objects at byte {at}"));
                    break;
                };
                at += self.geometry.frame_bytes(&frame.header);
            }
        }
        Ok(damaged)
    }

    /// Has the devices below compute the parity of all that is in use, which is known to be right. Nobody writes meanwhile.
    pub(crate) fn mend_parity(&self) -> Result<()> {
        if self.device.ways() == 0 {
            return Ok(());
        }
        let step = ROWS_AT_ONCE * self.geometry.row_bytes();
        let used = lock(&self.space).used();
        for run in used {
            let end = run.end() * BLOCK_BYTES;
            let mut at = run.at();
            while at < end {
                let len_bytes = step.min(end - at);
                self.device.mend_parity(at, len_bytes).map_err(Error::device(at))?;
                at += len_bytes;
            }
        }
        self.device.flush().map_err(Error::device(0))
    }
}
