//! One record of the kernel in 32 bytes, and how each tracepoint becomes one.

use super::ring_buffer::{u16_at, u32_at, u64_at};
use super::tracefs::{Layout, Tracefs};
use crate::model::{Operation, TraceError};
use std::collections::HashMap;

/// What happened, when, and in which thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at_ns: u64,
    pub(crate) tid: u32,
    pub(crate) what: What,
}

/// What a tracepoint said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// An I/O of a device took a step.
    Io { step: IoStep, device: u8, asked: Asked, sectors: u32, sector: u64 },
    /// A call began, on this descriptor if it takes one.
    Enter { call: u16, descriptor: i32 },
    /// A call ended.
    Exit { call: u16, answer: i64 },
    /// The file system did something to an inode; 0: to none in particular.
    File { point: FilePoint, device: u8, inode: u64 },
    /// Pages of a file entered or left the page cache, or were looked for.
    Pages { point: PagePoint, pages: u32 },
    /// The thread waits for a lock, or no longer.
    Lock { begins: bool, address: u64 },
    /// A request of an io_uring began or ended.
    Ring { begins: bool, opcode: u8, request: u64 },
    /// Somebody wrote into the trace: the phase's number.
    Mark { phase: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoStep {
    /// `block_bio_queue`
    Queue,
    /// `block_rq_issue`
    Issue,
    /// `block_rq_complete`
    Complete,
}

/// The kernel's `rwbs` letters, in a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked(u8);

impl Asked {
    const FORCED: u8 = 1 << 6;
    const METADATA: u8 = 1 << 7;
    const OPERATIONS: [Operation; 4] =
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard];

    pub(crate) fn operation(self) -> Operation {
        Self::OPERATIONS[usize::from(self.0 & 3)]
    }

    /// `F` after the operation: on the medium when complete.
    pub(crate) fn is_forced(self) -> bool {
        self.0 & Self::FORCED != 0
    }

    /// `M`: the file system's metadata.
    pub(crate) fn is_metadata(self) -> bool {
        self.0 & Self::METADATA != 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilePoint {
    /// The inode's data is about to be read or written by this thread.
    Data,
    /// The thread is done with the inode's data.
    DataDone,
    /// Anything else that the file system shows.
    Work,
    /// A name was looked up in a directory: the dentry cache did not have it.
    Lookup,
    /// An inode was brought into memory.
    InodeMiss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagePoint {
    /// `mm_filemap_add_to_page_cache`
    Added,
    /// `mm_filemap_delete_from_page_cache`
    Deleted,
    /// `mm_filemap_get_pages`: a read looked for pages.
    Wanted,
    /// `page_cache_sync_ra`: the page it wanted was not there.
    Missing,
}

/// What a record of a tracepoint becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Io(IoStep),
    Enter,
    Exit,
    File(FilePoint),
    Pages(PagePoint),
    Lock { begins: bool },
    Ring { begins: bool },
    Mark,
}

/// A tracepoint that is used: `group/name`, what it means, and the field of the device to filter by.
pub(crate) type Tracepoint = (&'static str, Meaning, Option<&'static str>);

/// Of the devices and their file systems, whoever does it. Of the file systems those that come first in a call, and
/// those that say whose data a thread is at.
pub(crate) const OF_DEVICES: &[Tracepoint] = &[
    ("block/block_bio_queue", Meaning::Io(IoStep::Queue), Some("dev")),
    ("block/block_rq_issue", Meaning::Io(IoStep::Issue), Some("dev")),
    ("block/block_rq_complete", Meaning::Io(IoStep::Complete), Some("dev")),
    ("filemap/mm_filemap_add_to_page_cache", Meaning::Pages(PagePoint::Added), Some("s_dev")),
    ("filemap/mm_filemap_delete_from_page_cache", Meaning::Pages(PagePoint::Deleted), Some("s_dev")),
    ("filemap/mm_filemap_get_pages", Meaning::Pages(PagePoint::Wanted), Some("s_dev")),
    ("readahead/page_cache_sync_ra", Meaning::Pages(PagePoint::Missing), Some("s_dev")),
    ("iomap/iomap_dio_rw_begin", Meaning::File(FilePoint::Data), Some("dev")),
    ("iomap/iomap_readahead", Meaning::File(FilePoint::Data), Some("dev")),
    ("ext4/ext4_es_lookup_extent_enter", Meaning::File(FilePoint::Data), Some("dev")),
    ("ext4/ext4_writepages", Meaning::File(FilePoint::Data), Some("dev")),
    ("ext4/ext4_writepages_result", Meaning::File(FilePoint::DataDone), Some("dev")),
    ("ext4/ext4_read_folio", Meaning::File(FilePoint::Data), Some("dev")),
    ("ext4/ext4_da_write_begin", Meaning::File(FilePoint::Data), Some("dev")),
    ("ext4/ext4_write_begin", Meaning::File(FilePoint::Data), Some("dev")),
    ("ext4/ext4_sync_file_enter", Meaning::File(FilePoint::Work), Some("dev")),
    ("ext4/ext4_load_inode", Meaning::File(FilePoint::InodeMiss), Some("dev")),
    ("ext4/ext4_request_inode", Meaning::File(FilePoint::Work), Some("dev")),
    ("ext4/ext4_unlink_enter", Meaning::File(FilePoint::Work), Some("dev")),
    ("ext4/ext4_truncate_enter", Meaning::File(FilePoint::Work), Some("dev")),
    ("ext4/ext4_fallocate_enter", Meaning::File(FilePoint::Work), Some("dev")),
    ("jbd2/jbd2_handle_start", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_file_direct_read", Meaning::File(FilePoint::Data), Some("dev")),
    ("xfs/xfs_file_direct_write", Meaning::File(FilePoint::Data), Some("dev")),
    ("xfs/xfs_file_buffered_read", Meaning::File(FilePoint::Data), Some("dev")),
    ("xfs/xfs_file_buffered_write", Meaning::File(FilePoint::Data), Some("dev")),
    ("xfs/xfs_map_blocks_found", Meaning::File(FilePoint::Data), Some("dev")),
    ("xfs/xfs_map_blocks_alloc", Meaning::File(FilePoint::Data), Some("dev")),
    ("xfs/xfs_file_fsync", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_dir_fsync", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_getattr", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_setattr", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_readdir", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_create", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_remove", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_rename", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_trans_alloc", Meaning::File(FilePoint::Work), Some("dev")),
    ("xfs/xfs_lookup", Meaning::File(FilePoint::Lookup), Some("dev")),
    ("xfs/xfs_iget_miss", Meaning::File(FilePoint::InodeMiss), Some("dev")),
];

/// Of the node's threads.
pub(crate) const OF_THREADS: &[Tracepoint] = &[
    ("raw_syscalls/sys_enter", Meaning::Enter, None),
    ("raw_syscalls/sys_exit", Meaning::Exit, None),
    ("lock/contention_begin", Meaning::Lock { begins: true }, None),
    ("lock/contention_end", Meaning::Lock { begins: false }, None),
    ("io_uring/io_uring_submit_req", Meaning::Ring { begins: true }, None),
    ("io_uring/io_uring_complete", Meaning::Ring { begins: false }, None),
];

/// What [`Meaning::Mark`] is made of; always on in an instance.
const PRINT: &str = "ftrace/print";

/// Reads records of tracepoints into events.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    by_id: HashMap<u16, (Meaning, Places)>,
    /// The devices' numbers as events of requests write them, major above 20 bits of minor; and as the others do.
    disks: Vec<u32>,
    devices: Vec<u32>,
}

/// Offsets of the fields that a meaning needs, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    device: usize,
    first: usize,
    second: usize,
    third: usize,
}

impl Decoder {
    /// For those of the tracepoints that the kernel has.
    pub(crate) fn new(
        tracefs: &Tracefs,
        points: &[Tracepoint],
        disks: Vec<u32>,
        devices: Vec<u32>,
    ) -> Result<Self, TraceError> {
        let mut by_id = HashMap::new();
        for (event, meaning, _) in points.iter().chain(&[(PRINT, Meaning::Mark, None)]) {
            if !tracefs.has(event) {
                continue;
            }
            let layout = tracefs.layout(event)?;
            if let Some(places) = places(*meaning, &layout) {
                by_id.insert(layout.id, (*meaning, places));
            }
        }
        Ok(Self { by_id, disks, devices })
    }

    /// What a record says; `None` for what is not asked for.
    pub(crate) fn event(&self, at_ns: u64, record: &[u8]) -> Option<Event> {
        let (meaning, places) = self.by_id.get(&u16_at(record, 0)?)?;
        let tid = u32_at(record, 4)?;
        let what = self.what(*meaning, places, record)?;
        Some(Event { at_ns, tid, what })
    }

    fn what(&self, meaning: Meaning, at: &Places, record: &[u8]) -> Option<What> {
        Some(match meaning {
            Meaning::Io(step) => What::Io {
                step,
                device: index_of(&self.disks, u32_at(record, at.device)?)?,
                asked: asked(record.get(at.third..)?)?,
                sectors: u32_at(record, at.second)?,
                sector: u64_at(record, at.first)?,
            },
            Meaning::Enter => What::Enter {
                call: u64_at(record, at.first)? as u16,
                descriptor: u64_at(record, at.second)? as i32,
            },
            Meaning::Exit => What::Exit {
                call: u64_at(record, at.first)? as u16,
                answer: u64_at(record, at.second)? as i64,
            },
            Meaning::File(point) => {
                let inode = if at.first == 0 { 0 } else { u64_at(record, at.first)? };
                What::File { point, device: index_of(&self.devices, u32_at(record, at.device)?)?, inode }
            }
            Meaning::Pages(point) => What::Pages { point, pages: pages(at, record) },
            Meaning::Lock { begins } => What::Lock { begins, address: u64_at(record, at.first)? },
            Meaning::Ring { begins } => What::Ring {
                begins,
                opcode: if begins { *record.get(at.second)? } else { 0 },
                request: u64_at(record, at.first)?,
            },
            Meaning::Mark => What::Mark { phase: phase(record.get(at.first..)?)? },
        })
    }
}

fn index_of(numbers: &[u32], number: u32) -> Option<u8> {
    numbers.iter().position(|known| *known == number).map(|index| index as u8)
}

/// Where a meaning's fields are; `None` if the kernel's event lacks one.
fn places(meaning: Meaning, layout: &Layout) -> Option<Places> {
    let offset = |name: &str| layout.field(name).map(|(offset, _)| offset);
    let inode = || ["ino", "i_ino", "dp_ino", "src_dp_ino"].into_iter().find_map(offset);
    Some(match meaning {
        Meaning::Io(_) => Places {
            device: offset("dev")?,
            first: offset("sector")?,
            second: offset("nr_sector")?,
            third: offset("rwbs")?,
        },
        Meaning::Enter => Places { first: offset("id")?, second: offset("args")?, ..Places::default() },
        Meaning::Exit => Places { first: offset("id")?, second: offset("ret")?, ..Places::default() },
        Meaning::File(_) => {
            Places { device: offset("dev")?, first: inode().unwrap_or(0), ..Places::default() }
        }
        Meaning::Pages(_) => Places { first: offset("order").unwrap_or(0), ..Places::default() },
        Meaning::Lock { .. } => Places { first: offset("lock_addr")?, ..Places::default() },
        Meaning::Ring { begins: true } => {
            Places { first: offset("req")?, second: offset("opcode")?, ..Places::default() }
        }
        Meaning::Ring { begins: false } => Places { first: offset("req")?, ..Places::default() },
        Meaning::Mark => Places { first: offset("buf")?, ..Places::default() },
    })
}

/// Pages of a folio; a kernel before folios says no order, and means one.
fn pages(at: &Places, record: &[u8]) -> u32 {
    if at.first == 0 { 1 } else { record.get(at.first).map_or(1, |order| 1 << (order & 31)) }
}

/// Marks are written as `tenon NUMBER`.
fn phase(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(MARK.as_bytes())?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// What a mark in the trace begins with.
pub(crate) const MARK: &str = "tenon ";

/// The letters of `blk_fill_rwbs`: `F` for a flush before, the operation, `F` for forced, `A`, `S`, `M`, `U`.
pub(crate) fn asked(letters: &[u8]) -> Option<Asked> {
    let text = letters.split(|byte| *byte == 0).next()?;
    let flush_first = text.len() > 1 && text[0] == b'F' && b"WRDFN".contains(&text[1]);
    let text = if flush_first { &text[1..] } else { text };
    let (operation, rest) = text.split_first()?;
    let mut bits = b"RWFD".iter().position(|letter| letter == operation)? as u8;
    if rest.first() == Some(&b'F') {
        bits |= Asked::FORCED;
    }
    if rest.contains(&b'M') {
        bits |= Asked::METADATA;
    }
    Some(Asked(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_requests_are_read() {
        let read = |text: &[u8]| asked(text).map(|a| (a.operation(), a.is_forced(), a.is_metadata()));
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
    fn marks_are_numbers() {
        assert_eq!(phase(b"tenon 12\n\0"), Some(12));
        assert_eq!(phase(b"hello"), None);
    }
}
