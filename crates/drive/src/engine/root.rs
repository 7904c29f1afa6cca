//! The root: the superblocks, and the manifest that they name.
//!
//! Reads and writes them, and owns those in force.

use crate::codec::crc32c;
use crate::device::{BLOCK_BYTES, BlockDevice, Buffer, FailStopDevice, read_verified};
use crate::error::{Error, Result};
use crate::format::{Manifest, SUPERBLOCK_BYTES, Superblock, VERSION};
use crate::index::IndexTable;
use crate::verdict::Verdict;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The superblock in force, and those tables of its manifest that the index no longer uses.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) superblock: Superblock,
    /// Tables that the manifest still names but the index no longer uses.
    pub(super) retiring: Vec<Arc<IndexTable>>,
}

/// The root. A checkpoint holds its lock.
#[derive(Debug)]
pub(super) struct SharedRoot {
    root: Mutex<Root>,
    /// Failed checkpoints since the last successful one, without those that failed because the drive is full.
    failed_checkpoints: AtomicU32,
}

impl SharedRoot {
    pub(super) fn new(superblock: Superblock) -> Self {
        let root = Mutex::new(Root { superblock, retiring: Vec::new() });
        Self { root, failed_checkpoints: AtomicU32::new(0) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Root> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failed_checkpoints(&self) -> u32 {
        self.failed_checkpoints.load(Ordering::Relaxed)
    }

    /// Counts the outcome of a checkpoint.
    pub(super) fn count_checkpoint(&self, made: &Result<()>) {
        match made {
            Ok(()) => self.failed_checkpoints.store(0, Ordering::Relaxed),
            // A full drive already refuses changes that grow.
            Err(Error::Full) => {}
            Err(_) => drop(self.failed_checkpoints.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Reads the superblock in force: the intact copy of the later generation.
pub(super) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let row_bytes = device.row_bytes();
    let mut rows = Buffer::zeroed(2 * row_bytes as usize);
    if device.len_bytes() < rows.len() as u64 {
        return Err(Error::Foreign("the device is too short".into()));
    }
    let (first, second) = rows.split_at_mut(row_bytes as usize);
    let mut failed = None;
    for (at, row) in [(0, &mut *first), (row_bytes, &mut *second)] {
        let is_right = |row: &[u8]| Superblock::decode(&row[..SUPERBLOCK_BYTES as usize]).is_some();
        // A copy that cannot be read counts as torn. The other copy is there for that.
        if let Verdict::Unreadable(error) = read_copy(device, at, row, is_right) {
            row.fill(0);
            failed = Some(error);
        }
    }
    let (first, second) = (&first[..SUPERBLOCK_BYTES as usize], &second[..SUPERBLOCK_BYTES as usize]);
    let found = [first, second].into_iter().filter_map(Superblock::decode);
    let found = found.max_by_key(|superblock| superblock.generation);
    let found = found.ok_or_else(|| failed.unwrap_or_else(|| no_superblock([first, second])))?;
    if found.geometry.row_bytes() != row_bytes {
        return Err(Error::Unsuitable(format!(
            "the drive has rows of {} bytes, but this array has rows of {row_bytes}: name the devices that the drive was formatted on",
            found.geometry.row_bytes(),
        )));
    }
    if found.geometry.blocks * BLOCK_BYTES > device.len_bytes() {
        return Err(Error::Unsuitable(format!(
            "the device was cut short: it has {} bytes, but the drive on it needs {}; restore its length, or use a copy",
            device.len_bytes(),
            found.geometry.blocks * BLOCK_BYTES
        )));
    }
    Ok(found)
}

/// Reads a copy of the superblock. A wrong copy is read once more, as a failed reconstruction leaves anything in the row.
fn read_copy(device: &dyn BlockDevice, at: u64, row: &mut [u8], is_right: fn(&[u8]) -> bool) -> Verdict {
    match read_verified(device, "a superblock", at, row, is_right) {
        Verdict::Wrong(wrong) => match device.read_at(at, row) {
            Ok(()) => Verdict::Wrong(wrong),
            Err(error) => Verdict::Unreadable(Error::device(at)(error)),
        },
        verdict => verdict,
    }
}

/// Returns the error for a device without a valid superblock.
fn no_superblock(copies: [&[u8]; 2]) -> Error {
    if let Some(version) = copies.into_iter().find_map(Superblock::other_version) {
        return Error::Unsuitable(format!(
            "the drive has format version {version}, but this Tenon supports version {VERSION}: use the Tenon that wrote it, or a newer one"
        ));
    }
    match copies.into_iter().any(Superblock::has_magic) {
        true => Error::damaged("both superblocks", 0),
        false => Error::Foreign("the device has no superblock".into()),
    }
}

/// Returns whether a copy of the superblock on the device equals this one.
pub(super) fn holds_superblock(device: &dyn BlockDevice, copy: u64, superblock: &Superblock) -> bool {
    let mut block = Buffer::zeroed(SUPERBLOCK_BYTES as usize);
    let is_read = device.read_at(superblock.geometry.superblock_at(copy), &mut block).is_ok();
    is_read && Superblock::decode(&block).as_ref() == Some(superblock)
}

/// Reads the manifest that a superblock names. Fails if it is damaged or contradicts the geometry.
pub(super) fn read_manifest(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Manifest> {
    let at = superblock.manifest.at();
    let mut buffer = Buffer::zeroed(superblock.manifest.len_bytes() as usize);
    let len = superblock.manifest_bytes as usize;
    let is_right = |bytes: &[u8]| crc32c(&bytes[..len]) == superblock.manifest_sum;
    read_verified(device, "the manifest", at, &mut buffer, is_right).into_result()?;
    let manifest = Manifest::decode(&buffer[..len]);
    manifest
        .filter(|manifest| manifest.is_valid(superblock.geometry))
        .ok_or(Error::damaged("the manifest", at))
}

/// Writes and flushes the copies of the superblock in the order given, so that one copy is intact at any time.
pub(super) fn write_superblock(
    device: &FailStopDevice,
    superblock: &Superblock,
    copies: [u64; 2],
) -> Result<()> {
    let geometry = superblock.geometry;
    let block = superblock.encode();
    // Paired with `read_superblock`: a superblock that it refuses would be the end of the drive.
    assert_eq!(
        Superblock::decode(&block).as_ref(),
        Some(superblock),
        "the next opening reads this superblock"
    );
    let row = Buffer::in_rows(geometry.row_bytes(), [&block[..]]);
    for copy in copies {
        let at = geometry.superblock_at(copy);
        device.write(at, &row)?;
        device.flush(at)?;
    }
    Ok(())
}
