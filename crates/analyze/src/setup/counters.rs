//! What a block device was asked for, by the kernel's own count, without a trace.

use super::{SetupError, about};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Requests that a device completed (Linux: `Documentation/block/stat.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Reads.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Flushes of the device's cache: what makes writes durable.
    pub flushes: u64,
}

impl DeviceCounters {
    /// Of a device like `/dev/loop3` since it is there.
    ///
    /// # Errors
    /// If it is no block device.
    pub fn of(device: &Path) -> Result<Self, SetupError> {
        // It may be named by a link, like those of /dev/disk.
        let device = std::fs::canonicalize(device).map_err(about(device))?;
        let name = device.file_name().unwrap_or_default();
        let path = Path::new("/sys/class/block").join(name).join("stat");
        let text = std::fs::read_to_string(&path).map_err(about(&path))?;
        Ok(Self::parse(&text))
    }

    /// Of several devices together.
    ///
    /// # Errors
    /// If one is no block device.
    pub fn of_all<'a>(devices: impl IntoIterator<Item = &'a Path>) -> Result<Self, SetupError> {
        devices
            .into_iter()
            .try_fold(Self::default(), |sum, device| Ok(sum.with(&Self::of(device)?, u64::wrapping_add)))
    }

    /// What came since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::wrapping_add)
    }

    fn with(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            reads: combine(self.reads, other.reads),
            read_bytes: combine(self.read_bytes, other.read_bytes),
            writes: combine(self.writes, other.writes),
            written_bytes: combine(self.written_bytes, other.written_bytes),
            flushes: combine(self.flushes, other.flushes),
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
    fn the_kernels_line_is_read() {
        let text = "   10  1  16  5  20  2  32  6  0  7  8  0  0  0  0  9  3\n";
        let counters = DeviceCounters::parse(text);
        assert_eq!((counters.reads, counters.read_bytes), (10, 16 * 512));
        assert_eq!((counters.writes, counters.written_bytes, counters.flushes), (20, 32 * 512, 9));
        let later = DeviceCounters { writes: 25, ..counters };
        assert_eq!(later.since(&counters).writes, 5);
    }
}
