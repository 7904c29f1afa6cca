//! Targets of the crate `fuzz`. No bytes of a device cause a panic, decoded values encode to bytes that decode to the same
//! value, and the space described by a manifest and the frames after it is counted correctly or refused.
//!
//! Targets take the bytes as they are, and once more with valid checksums, as a crafted device would have them.

use crate::codec::crc32c;
use crate::device::{BLOCK_BYTES, Buffers};
use crate::format::{
    Change, DriveId, FRAME_HEADER_BYTES, Frame, FrameWriter, Geometry, IndexKey, Manifest, Membership,
    ObjectRecord, ObjectSummary, SUPERBLOCK_BYTES, Superblock,
};
use crate::space::Space;

const DRIVE: DriveId = DriveId { id: 1, salt: 0x5a17_5a17_5a17_5a17 };

/// A device of 16 zones of 1 MiB each.
const GEOMETRY: Geometry = Geometry { blocks: 4096, zone_blocks: 256, row_blocks: 1 };

/// Decodes bytes as a copy of the superblock.
pub fn superblock(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    block.resize(SUPERBLOCK_BYTES as usize, 0);
    let _whatever = Superblock::decode(&block);
    let sealed = crc32c(&block[..block.len() - 4]);
    let end = block.len() - 4;
    block[end..].copy_from_slice(&sealed.to_le_bytes());
    if let Some(read) = Superblock::decode(&block) {
        assert!(Superblock::has_magic(&block), "a valid superblock has the magic");
        assert_eq!(Superblock::decode(&read.encode()).as_ref(), Some(&read));
        assert!(read.manifest_bytes <= read.manifest.len_bytes(), "the manifest fits its run");
    }
}

/// Decodes bytes as a manifest, loads its space, and checks that the manifest written from that space is valid.
pub fn manifest(bytes: &[u8]) {
    let Some(read) = Manifest::decode(bytes) else { return };
    assert_eq!(Manifest::decode(&read.encode()).as_ref(), Some(&read));
    if !read.is_valid(GEOMETRY) {
        return;
    }
    let mut space = Space::from_manifest(GEOMETRY, &read);
    space.free_dead_zones();
    for run in read.tables.iter().flat_map(|table| &table.runs) {
        if !space.reserve_for_open(*run) {
            return;
        }
    }
    space.begin_log_reserve();
    let mut again = Manifest { tables: read.tables, next_frame: read.next_frame, ..Manifest::default() };
    (again.head_at, again.last_write) = (read.head_at, read.last_write);
    space.write_to_manifest(&mut again);
    assert!(again.is_valid(GEOMETRY), "{again:?}");
    assert!(again.encode().len() as u64 <= space.manifest_bytes_max() + table_bytes(&again), "{again:?}");
}

/// Returns the most bytes that tables take in a manifest, apart from runs that the space counts.
fn table_bytes(manifest: &Manifest) -> u64 {
    manifest.tables.len() as u64 * 30
}

/// Decodes bytes as the first frame in the log of an empty drive, and applies its changes.
pub fn frame(bytes: &[u8]) {
    drop(Frame::decode(DRIVE, bytes));
    let sealed = sealed(bytes);
    let Some(read) = Frame::decode(DRIVE, &sealed) else { return };
    let mut writer = FrameWriter::new(0, Buffers::new(0).fill(sealed.len(), BLOCK_BYTES));
    read.changes.iter().for_each(|change| writer.change(change));
    let header = read.header;
    let (written, _) = writer.finish(DRIVE, header.number, header.next_zone, header.last_write);
    let again = Frame::decode(DRIVE, &written).map(|frame| frame.changes);
    assert_eq!(again.as_ref(), Some(&read.changes));
    let mut space = Space::new(GEOMETRY);
    if space.begin_log().is_err() {
        return;
    }
    if space.claim_zone(header.next_zone) {
        space.log_zones_mut().advance(header.next_zone);
    }
    space.log_zones_mut().record_frame(&header, header.len_bytes());
    for change in read.changes {
        let fits = match change {
            Change::Retain(run) => space.retain(run),
            Change::Release(run) => space.release(run),
            Change::Dead { at, len } => space.mark_dead(at, len),
            Change::Put { key, value } => {
                drop(IndexKey(key).bucket_and_key());
                record(&value);
                true
            }
            Change::Delete { .. } => true,
        };
        if !fits {
            return;
        }
    }
    space.free_dead_zones();
    space.begin_log_reserve();
    assert!(space.free().blocks() <= GEOMETRY.blocks, "at most all blocks are free");
}

/// Returns the bytes as whole blocks with the frame's salt and valid checksums.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    frame.resize(frame.len().max(FRAME_HEADER_BYTES).next_multiple_of(4096), 0);
    frame[..8].copy_from_slice(&DRIVE.salt.to_le_bytes());
    let body = crc32c(&frame[FRAME_HEADER_BYTES..]);
    frame[40..44].copy_from_slice(&body.to_le_bytes());
    let own = crc32c(&frame[..FRAME_HEADER_BYTES - 4]);
    frame[FRAME_HEADER_BYTES - 4..FRAME_HEADER_BYTES].copy_from_slice(&own.to_le_bytes());
    frame
}

/// Decodes bytes as an object's record.
pub fn record(bytes: &[u8]) {
    let head = ObjectSummary::decode(bytes);
    let Some(read) = ObjectRecord::decode(bytes) else { return };
    let head = head.map(|head| (head.write, head.len_bytes));
    assert_eq!(head, Some((read.write, read.body.len_bytes())), "the summary equals the record");
    assert_eq!(ObjectRecord::decode(&read.encode()).as_ref(), Some(&read));
}

/// Decodes bytes as a key of the index.
pub fn key(bytes: &[u8]) {
    drop(IndexKey::object_key(bytes));
    drop(IndexKey(bytes.to_vec()).bucket_and_key());
    if let Some((key, number)) = IndexKey::escaped_key(bytes) {
        let again = IndexKey::version(7, &key, !number);
        assert_eq!(IndexKey::escaped_key(&again.0), Some((key.clone(), number)));
        assert_eq!(again.bucket_and_key(), Some((7, key)));
    }
}

/// Decodes bytes as the label of an array member, as they are and with a valid checksum.
pub fn label(bytes: &[u8]) {
    crate::device::fuzz_label(bytes);
}

/// Decodes bytes as a pool's list of drives.
pub fn pool(bytes: &[u8]) {
    if let Some(read) = Membership::decode(bytes) {
        assert_eq!(Membership::decode(&read.encode()).as_ref(), Some(&read));
    }
}
