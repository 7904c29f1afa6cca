//! Formatting: makes an empty drive of a device.

use super::Engine;
use super::root::write_superblock;
use crate::codec::crc32c;
use crate::device::{BLOCK_BYTES, BlockDevice, Buffer, FailStopDevice};
use crate::error::{Error, Result};
use crate::format::{DriveId, Geometry, Manifest, Superblock, blocks_of};
use crate::policy::LOG_RESERVE_ZONES;
use crate::space::Space;
use std::sync::Arc;
use store::Entropy;

/// Options for formatting a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct FormatOptions {
    /// The length of a zone in bytes: a power of two, at least 1 MiB. Default: chosen by the length of the device. On an array, zones are
    /// rounded up to whole rows.
    pub zone_bytes: Option<u64>,
}

/// The shortest zone length, in bytes.
const ZONE_BYTES_MIN: u64 = 1 << 20;

/// The longest zone length that is chosen by default, in bytes.
const ZONE_BYTES_MAX: u64 = 64 << 20;

/// The number of zones to aim for when a zone length is chosen.
const ZONES_TARGET: u64 = 256;

/// The fewest zones of a drive.
const ZONES_MIN: u64 = LOG_RESERVE_ZONES + 12;

impl Engine {
    /// Formats a device as a drive without buckets. Its previous contents are lost. Blocks.
    pub(crate) fn format(
        device: &Arc<dyn BlockDevice>,
        options: FormatOptions,
        entropy: &Entropy,
    ) -> Result<()> {
        let geometry = geometry(&**device, options)?;
        let drive = DriveId { id: entropy.next_u64(), salt: entropy.next_u64() };
        let mut space = Space::new(geometry);
        space.begin_log()?;
        let mut manifest = Manifest { next_frame: 1, ..Manifest::default() };
        space.write_to_manifest(&mut manifest);
        let bytes = manifest.encode();
        let (run, _) = space.allocate_one_for_index(blocks_of(bytes.len() as u64))?;
        let superblock = Superblock {
            drive,
            geometry,
            generation: 1,
            manifest: run,
            manifest_bytes: bytes.len() as u64,
            manifest_sum: crc32c(&bytes),
        };
        let device = FailStopDevice::new(device.clone(), false);
        let write = |at: u64, bytes: &[u8]| {
            device.write(at, &Buffer::in_rows(geometry.row_bytes(), [bytes]))?;
            device.flush(at)
        };
        // Cleared first: if formatting is interrupted, the device holds neither the old drive nor the new one.
        write(0, &vec![0; geometry.superblocks().len_bytes() as usize])?;
        write(run.at(), &bytes)?;
        write_superblock(&device, &superblock, [0, 1])
    }
}

fn geometry(device: &dyn BlockDevice, options: FormatOptions) -> Result<Geometry> {
    let len_bytes = device.len_bytes();
    let target = (len_bytes / ZONES_TARGET).max(1);
    let fitting = (1 << target.ilog2()).clamp(ZONE_BYTES_MIN, ZONE_BYTES_MAX);
    let zone_bytes = options.zone_bytes.unwrap_or(fitting);
    if !zone_bytes.is_power_of_two() || zone_bytes < ZONE_BYTES_MIN {
        return Err(Error::Unsuitable(format!(
            "zones of {zone_bytes} bytes are not possible: give a power of two of at least 1 MiB"
        )));
    }
    let row_blocks = device.row_bytes() / BLOCK_BYTES;
    let zone_blocks = (zone_bytes / BLOCK_BYTES).next_multiple_of(row_blocks);
    let zones = len_bytes / BLOCK_BYTES / zone_blocks;
    if zones < ZONES_MIN {
        let least = (ZONES_MIN * zone_blocks * BLOCK_BYTES).div_ceil(1 << 20);
        return Err(Error::Unsuitable(format!(
            "a device of {} MiB is too small: with zones of {} MiB a drive needs {least} MiB",
            len_bytes >> 20,
            zone_bytes >> 20
        )));
    }
    Ok(Geometry { blocks: zones * zone_blocks, zone_blocks, row_blocks })
}
