//! Hand-written events and what they come to.

use super::super::event::asked;
use super::*;
use crate::model::Region;

const NODE: u32 = 100;
const WORKER: u32 = 7;
const FILE: FileId = (0, 99);
const WRITE: u16 = libc::SYS_pwrite64 as u16;
const FSYNC: u16 = libc::SYS_fsync as u16;

fn event(at_ns: u64, tid: u32, what: What) -> Event {
    Event { at_ns, tid, what }
}

fn io(at_ns: u64, tid: u32, step: IoStep, letters: &[u8], sector: u64, sectors: u32) -> Event {
    event(at_ns, tid, What::Io { step, device: 0, asked: asked(letters).unwrap(), sectors, sector })
}

fn enter(at_ns: u64, call: u16, descriptor: i32) -> Event {
    event(at_ns, NODE, What::Enter { call, descriptor })
}

fn exit(at_ns: u64, call: u16, answer: i64) -> Event {
    event(at_ns, NODE, What::Exit { call, answer })
}

fn data(at_ns: u64, tid: u32) -> Event {
    event(at_ns, tid, What::File { point: FilePoint::Data, device: FILE.0, inode: FILE.1 })
}

/// A file system on which [`FILE`] is object data, and descriptor 3 was open.
fn known() -> Known {
    let mut kinds = Kinds { has_file_system: true, ..Kinds::default() };
    kinds.files.insert(FILE, Kind::ObjectData);
    Known { kinds, open_files: [(0, 3)].into(), ..Known::default() }
}

#[test]
fn a_calls_time_is_told_apart() {
    let found = digest(
        &[
            enter(100, WRITE, 3),
            data(110, NODE),
            io(130, NODE, IoStep::Queue, b"WS", 8, 8),
            io(140, NODE, IoStep::Issue, b"WS", 8, 8),
            io(190, 0, IoStep::Complete, b"WS", 8, 8),
            exit(200, WRITE, 4096),
        ],
        known(),
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
fn a_flush_waits_for_what_the_workers_send() {
    let found = digest(
        &[
            enter(100, FSYNC, 3),
            event(105, NODE, What::File { point: FilePoint::Work, device: 0, inode: 99 }),
            io(120, WORKER, IoStep::Queue, b"WSM", 800, 8),
            io(120, WORKER, IoStep::Issue, b"WSM", 800, 8),
            io(180, 0, IoStep::Complete, b"WSM", 800, 8),
            exit(200, FSYNC, 0),
        ],
        known(),
    );
    let call = found.calls[0];
    assert_eq!((call.vfs_ns, call.file_system_ns, call.block_ns, call.device_ns), (5, 35, 0, 60));
    assert_eq!(found.requests[0].kind, Kind::FileSystemMetadata);
}

/// The kernel splits a large bio: several requests, each stamped with the bio's queue.
#[test]
fn parts_of_a_split_bio_are_of_its_file() {
    let found = digest(
        &[
            data(90, NODE),
            io(100, NODE, IoStep::Queue, b"W", 0, 24),
            io(110, NODE, IoStep::Issue, b"W", 0, 8),
            io(120, NODE, IoStep::Issue, b"W", 8, 8),
            io(130, WORKER, IoStep::Issue, b"W", 16, 8),
            io(140, 0, IoStep::Complete, b"W", 8, 8),
            io(150, 0, IoStep::Complete, b"W", 0, 8),
            io(160, 0, IoStep::Complete, b"W", 16, 8),
        ],
        known(),
    );
    let times: Vec<_> =
        found.requests.iter().map(|r| (r.sector, r.queued_ns, r.issued_ns, r.completed_ns)).collect();
    assert_eq!(times, [(0, 100, 110, 150), (8, 100, 120, 140), (16, 100, 130, 160)]);
    assert!(found.requests.iter().all(|request| request.kind == Kind::ObjectData));
}

/// Two bios merged into one request are as old as the older, and of the file of the first sector.
#[test]
fn a_merged_request_is_as_old_as_its_oldest_bio() {
    let found = digest(
        &[
            io(100, WORKER, IoStep::Queue, b"W", 8, 8),
            data(105, NODE),
            io(110, NODE, IoStep::Queue, b"W", 0, 8),
            io(120, NODE, IoStep::Issue, b"W", 0, 16),
            io(130, 0, IoStep::Complete, b"W", 0, 16),
        ],
        known(),
    );
    assert_eq!(found.requests.len(), 1);
    assert_eq!((found.requests[0].queued_ns, found.requests[0].size_bytes), (100, 8192));
    assert_eq!(found.requests[0].kind, Kind::ObjectData);
}

#[test]
fn sockets_are_no_files() {
    let found = digest(
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
        known(),
    );
    let begins: Vec<u64> = found.calls.iter().map(|call| call.begin_ns).collect();
    assert_eq!(begins, [200, 300, 400], "what is written to descriptor 9 counts while it is a file");
}

/// Without a place, a drive's flushes were its index's, as if they had been at sector 0, and a file system's its own.
#[test]
fn flushes_have_no_place_and_one_kind_everywhere() {
    let regions = vec![Region { sectors: 0..16, kind: Kind::Index }];
    let raw = Known { kinds: Kinds { regions, ..Kinds::default() }, ..Known::default() };
    for known in [known(), raw] {
        let found = digest(
            &[
                io(100, NODE, IoStep::Queue, b"FWS", 0, 0),
                io(110, NODE, IoStep::Issue, b"FF", 0, 0),
                io(190, 0, IoStep::Complete, b"FF", u64::MAX, 0),
            ],
            known,
        );
        let flush = &found.requests[0];
        assert_eq!((flush.operation, flush.queued_ns, flush.completed_ns), (Operation::Flush, 100, 190));
        assert_eq!(flush.kind, Kind::Unnamed);
    }
}

#[test]
fn a_ring_request_is_timed_from_submission_to_completion() {
    let ring = |at_ns, begins| event(at_ns, NODE, What::Ring { begins, opcode: 23, request: 0xabc });
    let found = digest(
        &[
            ring(100, true),
            io(110, NODE, IoStep::Queue, b"W", 8, 8),
            io(115, NODE, IoStep::Issue, b"W", 8, 8),
            exit(120, libc::SYS_io_uring_enter as u16, 1),
            io(190, 0, IoStep::Complete, b"W", 8, 8),
            ring(200, false),
        ],
        Known::default(),
    );
    let call = found.calls[0];
    assert_eq!(call.family, Family::Ring);
    assert_eq!((call.vfs_ns, call.file_system_ns, call.block_ns, call.device_ns), (10, 10, 5, 75));
}

#[test]
fn what_is_unfinished_is_left_out() {
    let found = digest(
        &[
            enter(100, WRITE, 3),
            io(130, NODE, IoStep::Queue, b"WS", 8, 8),
            io(140, NODE, IoStep::Issue, b"WS", 8, 8),
            io(150, 0, IoStep::Complete, b"WS", 1000, 8),
        ],
        known(),
    );
    assert!(found.calls.is_empty() && found.requests.is_empty());
}
