//! Trace events: a kernel record decoded into 32 bytes, and the tracepoints that are used.

use super::ring_buffer::{u16_at, u32_at, u64_at};
use super::tracefs::{Layout, Tracefs};
use crate::model::{Operation, TraceError};
use std::collections::HashMap;

/// A decoded trace record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at_ns: u64,
    pub(crate) tid: u32,
    pub(crate) payload: Payload,
}

/// The decoded fields of a trace record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// An I/O to a device entered a stage.
    Io { stage: IoStage, device: u8, flags: IoFlags, sectors: u32, sector: u64 },
    /// A system call began. `descriptor` is its first argument.
    Enter { call: u16, descriptor: i32 },
    /// A system call returned.
    Exit { call: u16, result: i64 },
    /// The file system worked on an inode; 0 if its tracepoint names none.
    File { activity: FileActivity, device: u8, inode: u64 },
    /// Pages of a file were added to, deleted from, looked up in, or missing in the page cache.
    Pages { activity: PageActivity, pages: u32 },
    /// The thread began or ended waiting for a contended lock.
    Lock { begins: bool, address: u64 },
    /// An io_uring request was submitted or completed.
    Ring { begins: bool, opcode: u8, request: u64 },
    /// A phase began. The recording writes this marker itself.
    Marker { phase: u32 },
}

/// The stages of an I/O in the block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoStage {
    /// `block_bio_queue`
    Queue,
    /// `block_rq_issue`
    Issue,
    /// `block_rq_complete`
    Complete,
}

/// Operation and flags of an I/O, from the kernel's `rwbs` letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IoFlags(u8);

impl IoFlags {
    const FORCED: u8 = 1 << 6;
    const METADATA: u8 = 1 << 7;
    const OPERATIONS: [Operation; 4] =
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard];

    pub(crate) fn operation(self) -> Operation {
        Self::OPERATIONS[usize::from(self.0 & 3)]
    }

    /// Returns whether the write is on the medium when it completes (FUA; `F` after the operation).
    pub(crate) fn is_forced(self) -> bool {
        self.0 & Self::FORCED != 0
    }

    /// Returns whether the file system marked the I/O as metadata (`REQ_META`; `M`).
    pub(crate) fn is_metadata(self) -> bool {
        self.0 & Self::METADATA != 0
    }
}

/// The work of a file system on an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileActivity {
    /// The thread begins to read or write the inode's data.
    Data,
    /// The thread ends reading or writing the inode's data.
    DataDone,
    /// Any other traced work.
    Work,
    /// A name lookup in a directory, after a miss in the dentry cache.
    Lookup,
    /// An inode was loaded, after a miss in the inode cache.
    InodeMiss,
}

/// Changes of the page cache, and reads from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageActivity {
    /// `mm_filemap_add_to_page_cache`
    Added,
    /// `mm_filemap_delete_from_page_cache`
    Deleted,
    /// `mm_filemap_get_pages`: a read looked up pages.
    LookedUp,
    /// `page_cache_sync_ra`: a read found its page missing.
    Missing,
}

/// The type of event that a tracepoint's records are decoded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventType {
    Io(IoStage),
    Enter,
    Exit,
    File(FileActivity),
    Pages(PageActivity),
    Lock { begins: bool },
    Ring { begins: bool },
    Marker,
}

/// A tracepoint: its name (`group/name`), the type of its events, and the field with the device number to filter by.
pub(crate) type Tracepoint = (&'static str, EventType, Option<&'static str>);

/// Tracepoints of the block layer, the page cache and the file systems, filtered by device. Of a file system these are the tracepoints that
/// a system call reaches first, and those that tell which file's data a thread reads or writes.
pub(crate) const DEVICE_TRACEPOINTS: &[Tracepoint] = &[
    ("block/block_bio_queue", EventType::Io(IoStage::Queue), Some("dev")),
    ("block/block_rq_issue", EventType::Io(IoStage::Issue), Some("dev")),
    ("block/block_rq_complete", EventType::Io(IoStage::Complete), Some("dev")),
    ("filemap/mm_filemap_add_to_page_cache", EventType::Pages(PageActivity::Added), Some("s_dev")),
    ("filemap/mm_filemap_delete_from_page_cache", EventType::Pages(PageActivity::Deleted), Some("s_dev")),
    ("filemap/mm_filemap_get_pages", EventType::Pages(PageActivity::LookedUp), Some("s_dev")),
    ("readahead/page_cache_sync_ra", EventType::Pages(PageActivity::Missing), Some("s_dev")),
    ("iomap/iomap_dio_rw_begin", EventType::File(FileActivity::Data), Some("dev")),
    ("iomap/iomap_readahead", EventType::File(FileActivity::Data), Some("dev")),
    ("ext4/ext4_es_lookup_extent_enter", EventType::File(FileActivity::Data), Some("dev")),
    ("ext4/ext4_writepages", EventType::File(FileActivity::Data), Some("dev")),
    ("ext4/ext4_writepages_result", EventType::File(FileActivity::DataDone), Some("dev")),
    ("ext4/ext4_read_folio", EventType::File(FileActivity::Data), Some("dev")),
    ("ext4/ext4_da_write_begin", EventType::File(FileActivity::Data), Some("dev")),
    ("ext4/ext4_write_begin", EventType::File(FileActivity::Data), Some("dev")),
    ("ext4/ext4_sync_file_enter", EventType::File(FileActivity::Work), Some("dev")),
    ("ext4/ext4_load_inode", EventType::File(FileActivity::InodeMiss), Some("dev")),
    ("ext4/ext4_request_inode", EventType::File(FileActivity::Work), Some("dev")),
    ("ext4/ext4_unlink_enter", EventType::File(FileActivity::Work), Some("dev")),
    ("ext4/ext4_truncate_enter", EventType::File(FileActivity::Work), Some("dev")),
    ("ext4/ext4_fallocate_enter", EventType::File(FileActivity::Work), Some("dev")),
    ("jbd2/jbd2_handle_start", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_file_direct_read", EventType::File(FileActivity::Data), Some("dev")),
    ("xfs/xfs_file_direct_write", EventType::File(FileActivity::Data), Some("dev")),
    ("xfs/xfs_file_buffered_read", EventType::File(FileActivity::Data), Some("dev")),
    ("xfs/xfs_file_buffered_write", EventType::File(FileActivity::Data), Some("dev")),
    ("xfs/xfs_map_blocks_found", EventType::File(FileActivity::Data), Some("dev")),
    ("xfs/xfs_map_blocks_alloc", EventType::File(FileActivity::Data), Some("dev")),
    ("xfs/xfs_file_fsync", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_dir_fsync", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_getattr", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_setattr", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_readdir", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_create", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_remove", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_rename", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_trans_alloc", EventType::File(FileActivity::Work), Some("dev")),
    ("xfs/xfs_lookup", EventType::File(FileActivity::Lookup), Some("dev")),
    ("xfs/xfs_iget_miss", EventType::File(FileActivity::InodeMiss), Some("dev")),
];

/// Tracepoints of system calls, locks and io_uring, filtered by the node's threads.
pub(crate) const THREAD_TRACEPOINTS: &[Tracepoint] = &[
    ("raw_syscalls/sys_enter", EventType::Enter, None),
    ("raw_syscalls/sys_exit", EventType::Exit, None),
    ("lock/contention_begin", EventType::Lock { begins: true }, None),
    ("lock/contention_end", EventType::Lock { begins: false }, None),
    ("io_uring/io_uring_submit_req", EventType::Ring { begins: true }, None),
    ("io_uring/io_uring_complete", EventType::Ring { begins: false }, None),
];

/// The event of writes to `trace_marker`, which is always enabled in an instance.
const PRINT_EVENT: &str = "ftrace/print";

/// Decodes trace records into events.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// By event id.
    by_id: HashMap<u16, (EventType, FieldOffsets)>,
    /// The device numbers in events of the block layer: those of whole disks.
    disks: Vec<u32>,
    /// The device numbers in events of file systems and the page cache: those of partitions, where the scope has partitions.
    devices: Vec<u32>,
}

/// Offsets in bytes of the record fields that an event type needs. What `first` to `third` are depends on the type.
#[derive(Debug, Clone, Copy, Default)]
struct FieldOffsets {
    device: usize,
    first: usize,
    second: usize,
    third: usize,
}

impl Decoder {
    /// Makes a decoder for the tracepoints that the kernel has.
    pub(crate) fn new(
        tracefs: &Tracefs,
        points: &[Tracepoint],
        disks: Vec<u32>,
        devices: Vec<u32>,
    ) -> Result<Self, TraceError> {
        let mut by_id = HashMap::new();
        for (event, event_type, _) in points.iter().chain(&[(PRINT_EVENT, EventType::Marker, None)]) {
            if !tracefs.has(event) {
                continue;
            }
            let layout = tracefs.layout(event)?;
            if let Some(offsets) = field_offsets(*event_type, &layout) {
                by_id.insert(layout.id, (*event_type, offsets));
            }
        }
        Ok(Self { by_id, disks, devices })
    }

    /// Decodes a record. Returns `None` for an event or a device that is not traced.
    pub(crate) fn decode(&self, at_ns: u64, record: &[u8]) -> Option<Event> {
        let (event_type, offsets) = self.by_id.get(&u16_at(record, 0)?)?;
        let tid = u32_at(record, 4)?;
        let payload = self.payload(*event_type, offsets, record)?;
        Some(Event { at_ns, tid, payload })
    }

    fn payload(&self, event_type: EventType, at: &FieldOffsets, record: &[u8]) -> Option<Payload> {
        Some(match event_type {
            EventType::Io(stage) => Payload::Io {
                stage,
                device: index_of(&self.disks, u32_at(record, at.device)?)?,
                flags: parse_rwbs(record.get(at.third..)?)?,
                sectors: u32_at(record, at.second)?,
                sector: u64_at(record, at.first)?,
            },
            EventType::Enter => Payload::Enter {
                call: u64_at(record, at.first)? as u16,
                descriptor: u64_at(record, at.second)? as i32,
            },
            EventType::Exit => Payload::Exit {
                call: u64_at(record, at.first)? as u16,
                result: u64_at(record, at.second)? as i64,
            },
            EventType::File(activity) => {
                let inode = if at.first == 0 { 0 } else { u64_at(record, at.first)? };
                Payload::File {
                    activity,
                    device: index_of(&self.devices, u32_at(record, at.device)?)?,
                    inode,
                }
            }
            EventType::Pages(activity) => Payload::Pages { activity, pages: pages(at, record) },
            EventType::Lock { begins } => Payload::Lock { begins, address: u64_at(record, at.first)? },
            EventType::Ring { begins } => Payload::Ring {
                begins,
                opcode: if begins { *record.get(at.second)? } else { 0 },
                request: u64_at(record, at.first)?,
            },
            EventType::Marker => Payload::Marker { phase: parse_marker(record.get(at.first..)?)? },
        })
    }
}

fn index_of(numbers: &[u32], number: u32) -> Option<u8> {
    numbers.iter().position(|known| *known == number).map(|index| index as u8)
}

/// Returns the offsets of the fields that an event type needs, or `None` if the kernel's event lacks one.
fn field_offsets(event_type: EventType, layout: &Layout) -> Option<FieldOffsets> {
    let offset = |name: &str| layout.field(name).map(|(offset, _)| offset);
    let inode = || ["ino", "i_ino", "dp_ino", "src_dp_ino"].into_iter().find_map(offset);
    Some(match event_type {
        EventType::Io(_) => FieldOffsets {
            device: offset("dev")?,
            first: offset("sector")?,
            second: offset("nr_sector")?,
            third: offset("rwbs")?,
        },
        EventType::Enter => {
            FieldOffsets { first: offset("id")?, second: offset("args")?, ..FieldOffsets::default() }
        }
        EventType::Exit => {
            FieldOffsets { first: offset("id")?, second: offset("ret")?, ..FieldOffsets::default() }
        }
        EventType::File(_) => {
            FieldOffsets { device: offset("dev")?, first: inode().unwrap_or(0), ..FieldOffsets::default() }
        }
        EventType::Pages(_) => {
            FieldOffsets { first: offset("order").unwrap_or(0), ..FieldOffsets::default() }
        }
        EventType::Lock { .. } => FieldOffsets { first: offset("lock_addr")?, ..FieldOffsets::default() },
        EventType::Ring { begins: true } => {
            FieldOffsets { first: offset("req")?, second: offset("opcode")?, ..FieldOffsets::default() }
        }
        EventType::Ring { begins: false } => {
            FieldOffsets { first: offset("req")?, ..FieldOffsets::default() }
        }
        EventType::Marker => FieldOffsets { first: offset("buf")?, ..FieldOffsets::default() },
    })
}

/// Returns the number of pages of a folio. Kernels before folios have no `order` field; their events are about one page.
fn pages(at: &FieldOffsets, record: &[u8]) -> u32 {
    if at.first == 0 { 1 } else { record.get(at.first).map_or(1, |order| 1 << (order & 31)) }
}

/// Parses a phase marker, `tenon NUMBER`, into the phase's number.
fn parse_marker(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(MARKER_PREFIX.as_bytes())?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Prefix of phase markers in the trace.
pub(crate) const MARKER_PREFIX: &str = "tenon ";

/// Parses the letters of the kernel's `blk_fill_rwbs`: `F` for a preceding flush, the operation, `F` for FUA, then `A`, `S`, `M`, `U`.
pub(crate) fn parse_rwbs(letters: &[u8]) -> Option<IoFlags> {
    let text = letters.split(|byte| *byte == 0).next()?;
    let flush_first = text.len() > 1 && text[0] == b'F' && b"WRDFN".contains(&text[1]);
    let text = if flush_first { &text[1..] } else { text };
    let (operation, rest) = text.split_first()?;
    let mut bits = b"RWFD".iter().position(|letter| letter == operation)? as u8;
    if rest.first() == Some(&b'F') {
        bits |= IoFlags::FORCED;
    }
    if rest.contains(&b'M') {
        bits |= IoFlags::METADATA;
    }
    Some(IoFlags(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rwbs_letters_are_parsed() {
        let read = |text: &[u8]| {
            parse_rwbs(text).map(|flags| (flags.operation(), flags.is_forced(), flags.is_metadata()))
        };
        assert_eq!(read(b"R\0\0\0"), Some((Operation::Read, false, false)));
        assert_eq!(read(b"RAM\0"), Some((Operation::Read, false, true)));
        assert_eq!(read(b"WS\0"), Some((Operation::Write, false, false)));
        assert_eq!(read(b"FWFSM\0"), Some((Operation::Write, true, true)));
        assert_eq!(read(b"FF\0"), Some((Operation::Flush, false, false)));
        assert_eq!(read(b"FWS\0"), Some((Operation::Write, false, false)));
        assert_eq!(read(b"DS\0"), Some((Operation::Discard, false, false)));
        assert_eq!(read(b"N\0"), None);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn an_event_is_32_bytes() {
        assert_eq!(size_of::<Event>(), 32);
    }

    #[test]
    fn phase_markers_are_parsed() {
        assert_eq!(parse_marker(b"tenon 12\n\0"), Some(12));
        assert_eq!(parse_marker(b"hello"), None);
    }
}
