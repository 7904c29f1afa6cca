//! Tests of the correlator on hand-written events.

use super::super::event::parse_rwbs;
use super::*;
use crate::model::Region;

const NODE: u32 = 100;
const WORKER: u32 = 7;
const FILE: FileId = (0, 99);
const WRITE: u16 = libc::SYS_pwrite64 as u16;
const FSYNC: u16 = libc::SYS_fsync as u16;

fn event(at_ns: u64, tid: u32, payload: Payload) -> Event {
    Event { at_ns, tid, payload }
}

fn io(at_ns: u64, tid: u32, stage: IoStage, letters: &[u8], sector: u64, sectors: u32) -> Event {
    event(at_ns, tid, Payload::Io { stage, device: 0, flags: parse_rwbs(letters).unwrap(), sectors, sector })
}

fn enter(at_ns: u64, call: u16, descriptor: i32) -> Event {
    event(at_ns, NODE, Payload::Enter { call, descriptor })
}

fn exit(at_ns: u64, call: u16, result: i64) -> Event {
    event(at_ns, NODE, Payload::Exit { call, result })
}

fn data(at_ns: u64, tid: u32) -> Event {
    event(at_ns, tid, Payload::File { activity: FileActivity::Data, device: FILE.0, inode: FILE.1 })
}

/// A node with a file system on which [`FILE`] is object data, and with descriptor 3 open.
fn node() -> NodeInfo {
    let mut classifier = IoClassifier { has_file_system: true, ..IoClassifier::default() };
    classifier.files.insert(FILE, Kind::ObjectData);
    NodeInfo { classifier, open_files: [(0, 3)].into(), ..NodeInfo::default() }
}

#[test]
fn the_time_of_a_call_is_divided_among_the_layers() {
    let found = correlate(
        &[
            enter(100, WRITE, 3),
            data(110, NODE),
            io(130, NODE, IoStage::Queue, b"WS", 8, 8),
            io(140, NODE, IoStage::Issue, b"WS", 8, 8),
            io(190, 0, IoStage::Complete, b"WS", 8, 8),
            exit(200, WRITE, 4096),
        ],
        node(),
    );
    let expected = Call {
        family: Family::Write,
        begin_ns: 100,
        vfs_ns: 10,
        file_system_ns: 30,
        block_ns: 10,
        device_ns: 50,
    };
    assert_eq!(found.calls, [expected]);
    assert_eq!(found.requests.len(), 1);
    assert_eq!(found.requests[0].kind, Kind::ObjectData);
    assert!(found.requests[0].is_of_file());
}

#[test]
fn a_flush_includes_requests_of_kernel_workers() {
    let found = correlate(
        &[
            enter(100, FSYNC, 3),
            event(105, NODE, Payload::File { activity: FileActivity::Work, device: 0, inode: 99 }),
            io(120, WORKER, IoStage::Queue, b"WSM", 800, 8),
            io(120, WORKER, IoStage::Issue, b"WSM", 800, 8),
            io(180, 0, IoStage::Complete, b"WSM", 800, 8),
            exit(200, FSYNC, 0),
        ],
        node(),
    );
    let call = found.calls[0];
    assert_eq!((call.vfs_ns, call.file_system_ns, call.block_ns, call.device_ns), (5, 35, 0, 60));
    assert_eq!(found.requests[0].kind, Kind::FileSystemMetadata);
}

/// The kernel splits a large bio into several requests; each has the queue time of the bio.
#[test]
fn requests_of_a_split_bio_belong_to_its_file() {
    let found = correlate(
        &[
            data(90, NODE),
            io(100, NODE, IoStage::Queue, b"W", 0, 24),
            io(110, NODE, IoStage::Issue, b"W", 0, 8),
            io(120, NODE, IoStage::Issue, b"W", 8, 8),
            io(130, WORKER, IoStage::Issue, b"W", 16, 8),
            io(140, 0, IoStage::Complete, b"W", 8, 8),
            io(150, 0, IoStage::Complete, b"W", 0, 8),
            io(160, 0, IoStage::Complete, b"W", 16, 8),
        ],
        node(),
    );
    let times: Vec<_> =
        found.requests.iter().map(|r| (r.sector, r.queued_ns, r.issued_ns, r.completed_ns)).collect();
    assert_eq!(times, [(0, 100, 110, 150), (8, 100, 120, 140), (16, 100, 130, 160)]);
    assert!(found.requests.iter().all(|request| request.kind == Kind::ObjectData));
}

/// A request merged from two bios has the queue time of the older bio and the file of the one with the lower sector.
#[test]
fn a_merged_request_is_as_old_as_its_oldest_bio() {
    let found = correlate(
        &[
            io(100, WORKER, IoStage::Queue, b"W", 8, 8),
            data(105, NODE),
            io(110, NODE, IoStage::Queue, b"W", 0, 8),
            io(120, NODE, IoStage::Issue, b"W", 0, 16),
            io(130, 0, IoStage::Complete, b"W", 0, 16),
        ],
        node(),
    );
    assert_eq!(found.requests.len(), 1);
    assert_eq!((found.requests[0].queued_ns, found.requests[0].size_bytes), (100, 8192));
    assert_eq!(found.requests[0].kind, Kind::ObjectData);
}

#[test]
fn calls_on_sockets_do_not_count() {
    let found = correlate(
        &[
            enter(100, WRITE, 9),
            exit(150, WRITE, 10),
            enter(200, libc::SYS_openat as u16, libc::AT_FDCWD),
            exit(210, libc::SYS_openat as u16, 9),
            enter(300, WRITE, 9),
            exit(350, WRITE, 10),
            enter(400, libc::SYS_close as u16, 9),
            exit(401, libc::SYS_close as u16, 0),
            enter(500, WRITE, 9),
            exit(550, WRITE, 10),
        ],
        node(),
    );
    let begins: Vec<u64> = found.calls.iter().map(|call| call.begin_ns).collect();
    assert_eq!(begins, [200, 300, 400], "writes to descriptor 9 count while it is a file");
}

/// A bug: flushes have no sector, and on a raw drive they counted as index I/O, as if they were at sector 0; with a file system they
/// counted as its metadata.
#[test]
fn flushes_are_unnamed_on_every_system() {
    let regions = vec![Region { sectors: 0..16, kind: Kind::Index }];
    let classifier = IoClassifier { regions, ..IoClassifier::default() };
    let raw = NodeInfo { classifier, ..NodeInfo::default() };
    for node in [node(), raw] {
        let found = correlate(
            &[
                io(100, NODE, IoStage::Queue, b"FWS", 0, 0),
                io(110, NODE, IoStage::Issue, b"FF", 0, 0),
                io(190, 0, IoStage::Complete, b"FF", u64::MAX, 0),
            ],
            node,
        );
        let flush = &found.requests[0];
        assert_eq!((flush.operation, flush.queued_ns, flush.completed_ns), (Operation::Flush, 100, 190));
        assert_eq!(flush.kind, Kind::Unnamed);
    }
}

#[test]
fn a_ring_request_is_timed_from_submission_to_completion() {
    let ring = |at_ns, begins| event(at_ns, NODE, Payload::Ring { begins, opcode: 23, request: 0xabc });
    let found = correlate(
        &[
            ring(100, true),
            io(110, NODE, IoStage::Queue, b"W", 8, 8),
            io(115, NODE, IoStage::Issue, b"W", 8, 8),
            exit(120, libc::SYS_io_uring_enter as u16, 1),
            io(190, 0, IoStage::Complete, b"W", 8, 8),
            ring(200, false),
        ],
        NodeInfo::default(),
    );
    let call = found.calls[0];
    assert_eq!(call.family, Family::Ring);
    assert_eq!((call.vfs_ns, call.file_system_ns, call.block_ns, call.device_ns), (10, 10, 5, 75));
}

#[test]
fn unfinished_calls_and_requests_are_left_out() {
    let found = correlate(
        &[
            enter(100, WRITE, 3),
            io(130, NODE, IoStage::Queue, b"WS", 8, 8),
            io(140, NODE, IoStage::Issue, b"WS", 8, 8),
            io(150, 0, IoStage::Complete, b"WS", 1000, 8),
        ],
        node(),
    );
    assert!(found.calls.is_empty() && found.requests.is_empty());
}
