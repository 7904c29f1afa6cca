//! Request counters of a block device from sysfs, which need no trace.

use super::SetupError;
use harness::file_error;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Completed requests of a device (Linux: `Documentation/block/stat.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of flushes of the device's cache.
    pub flushes: u64,
}

impl DeviceCounters {
    /// Reads the counters of a device such as `/dev/loop3`; they count from the creation of the device.
    ///
    /// # Errors
    /// If the path is not a block device.
    pub fn of(device: &Path) -> Result<Self, SetupError> {
        // The path may be a symbolic link, as in /dev/disk.
        let device = std::fs::canonicalize(device).map_err(file_error(device))?;
        let name = device.file_name().unwrap_or_default();
        let path = Path::new("/sys/class/block").join(name).join("stat");
        let text = std::fs::read_to_string(&path).map_err(file_error(&path))?;
        Ok(Self::parse(&text))
    }

    /// Reads the sum of the counters of several devices.
    ///
    /// # Errors
    /// If a path is not a block device.
    pub fn of_all<'a>(devices: impl IntoIterator<Item = &'a Path>) -> Result<Self, SetupError> {
        devices
            .into_iter()
            .try_fold(Self::default(), |sum, device| Ok(sum.combine(&Self::of(device)?, u64::wrapping_add)))
    }

    /// Returns the requests since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }

    /// Returns the sum of both.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.combine(other, u64::wrapping_add)
    }

    fn combine(&self, other: &Self, operation: fn(u64, u64) -> u64) -> Self {
        Self {
            reads: operation(self.reads, other.reads),
            read_bytes: operation(self.read_bytes, other.read_bytes),
            writes: operation(self.writes, other.writes),
            written_bytes: operation(self.written_bytes, other.written_bytes),
            flushes: operation(self.flushes, other.flushes),
        }
    }

    fn parse(text: &str) -> Self {
        const SECTOR_BYTES: u64 = crate::model::SECTOR_BYTES;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        Self {
            reads: field(0),
            read_bytes: field(2) * SECTOR_BYTES,
            writes: field(4),
            written_bytes: field(6) * SECTOR_BYTES,
            flushes: field(15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stat_file_is_parsed() {
        let text = "   10  1  16  5  20  2  32  6  0  7  8  0  0  0  0  9  3\n";
        let counters = DeviceCounters::parse(text);
        assert_eq!((counters.reads, counters.read_bytes), (10, 16 * 512));
        assert_eq!((counters.writes, counters.written_bytes, counters.flushes), (20, 32 * 512, 9));
        let later = DeviceCounters { writes: 25, ..counters };
        assert_eq!(later.since(&counters).writes, 5);
    }
}
