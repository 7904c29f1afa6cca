//! Traces of known I/O on loop devices.

pub(crate) mod device;

use analyze::metrics::metrics;
use analyze::model::{Chains, Kind, Measured, Metrics, Naming, Operation, Region, Scope};
use analyze::trace::{Recorder, Recording, Trace};
use device::{FileSystem, Loop, Mounted};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const MIB: usize = 1 << 20;
const BOTH: [FileSystem; 2] = [FileSystem::Xfs, FileSystem::Ext4];

/// Returns an aligned part of a buffer, for `O_DIRECT`.
fn aligned(buffer: &mut [u8], length: usize) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(4096);
    &mut buffer[skip..skip + length]
}

fn open_direct(path: &Path) -> File {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
        .unwrap()
}

fn record(mounted: &Mounted, naming: Naming) -> Recording {
    Recorder::start(Scope {
        devices: vec![mounted.device().to_owned()],
        mounts: vec![mounted.path().to_owned()],
        processes: vec![std::process::id()],
        naming,
        ..Scope::default()
    })
    .unwrap()
}

fn requests(metrics: &Metrics, kind: Kind, operation: Operation) -> (u64, u64) {
    let kinds = metrics.io.value().unwrap().iter();
    kinds
        .filter(|io| io.kind == kind && io.operation == operation)
        .fold((0, 0), |(requests, bytes), io| (requests + io.requests, bytes + io.bytes))
}

fn chains(metrics: &Metrics, operation: Operation) -> &Chains {
    metrics.chains.value().unwrap().iter().find(|chains| chains.operation == operation).unwrap()
}

fn calls(metrics: &Metrics, family: &str) -> u64 {
    metrics
        .layers_by_call
        .iter()
        .find(|layers| layers.family == family)
        .map_or(0, |layers| layers.times.calls)
}

/// Checks that no event was lost and that the times of each request are in order.
fn check(trace: &Trace, metrics: &Metrics) {
    assert_eq!(metrics.lost_events, 0);
    for request in trace.requests() {
        assert!(
            request.queued_ns <= request.issued_ns && request.issued_ns <= request.completed_ns,
            "{request:?}"
        );
    }
}

#[test]
fn s332_a_large_direct_write_is_one_chain() {
    for file_system in BOTH {
        let mounted = Loop::new().format(file_system);
        let file = open_direct(&mounted.path().join("object"));
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 8 * MIB as u64).unwrap();
        file.sync_all().unwrap();
        let mut buffer = vec![7; MIB + 4096];
        let bytes = aligned(&mut buffer, MIB);

        let recording = record(&mounted, Naming::Files);
        for part in 0..8 {
            file.write_all_at(bytes, part * MIB as u64).unwrap();
        }
        file.sync_all().unwrap();
        let trace = recording.stop().unwrap();
        let found = metrics(&trace);

        check(&trace, &found);
        assert_eq!(
            requests(&found, Kind::ObjectData, Operation::Write).1,
            8 * MIB as u64,
            "{file_system:?}: {:?}",
            found.io
        );
        assert_eq!(requests(&found, Kind::Unnamed, Operation::Write).0, 0);
        assert!(requests(&found, Kind::FileSystemMetadata, Operation::Write).0 > 0, "the journal");
        let written = chains(&found, Operation::Write);
        assert_eq!(written.bytes_in_natural, 1.0, "{file_system:?}: {written:?}");
        assert_eq!(written.per_stream.count, 1, "{written:?}");
        assert_eq!(written.per_stream.steps[0].at_most, 8 * MIB as u64);
        assert!(calls(&found, "write") >= 8 && calls(&found, "flush") >= 1, "{:?}", found.layers_by_call);
        let layers = found.layers.value().unwrap();
        assert!(
            layers.device_seconds > 0.0 && layers.file_system_seconds > 0.0 && layers.block_seconds > 0.0,
            "{layers:?}"
        );
        // A direct write waits for the device. On a busy machine most of its time may be the wait for a CPU, which counts as VFS time.
        let write = found.layers_by_call.iter().find(|layers| layers.family == "write").unwrap();
        assert!(write.times.device_seconds > 0.0, "{write:?}");
    }
}

const SMALL_FILES: u64 = 1000;

fn write_small_files(directory: &Path, names: &str) {
    for index in 0..SMALL_FILES {
        let mut file = File::create(directory.join(format!("{names}{index}"))).unwrap();
        file.write_all(&[index as u8; 4096]).unwrap();
        file.sync_all().unwrap();
    }
}

#[test]
fn s332_flushed_small_files_cause_small_writes_and_metadata_writes() {
    for file_system in BOTH {
        let mounted = Loop::new().format(file_system);
        let recording = record(&mounted, Naming::Files);
        write_small_files(mounted.path(), "object-");
        let trace = recording.stop().unwrap();
        let found = metrics(&trace);

        check(&trace, &found);
        let (written, bytes) = requests(&found, Kind::ObjectData, Operation::Write);
        assert_eq!((written, bytes), (SMALL_FILES, SMALL_FILES * 4096), "{file_system:?}: {:?}", found.io);
        let (journal, _) = requests(&found, Kind::FileSystemMetadata, Operation::Write);
        assert!(journal >= SMALL_FILES, "{file_system:?}: each flush commits: {journal}");
        assert!(calls(&found, "flush") >= SMALL_FILES);
        assert_eq!(chains(&found, Operation::Write).bytes_in_natural, 0.0);
        let flush = found.layers_by_call.iter().find(|layers| layers.family == "flush").unwrap();
        assert!(flush.times.device_seconds > 0.0, "{flush:?}");
    }
}

#[test]
fn s332_a_cold_listing_misses_every_name_and_reads_metadata_only() {
    for file_system in BOTH {
        let mounted = Loop::new().format(file_system);
        write_small_files(mounted.path(), "object-");
        let mounted = mounted.remount();

        let recording = record(&mounted, Naming::Files);
        let listed = fs::read_dir(mounted.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().metadata().unwrap().is_file());
        assert_eq!(listed.count() as u64, SMALL_FILES);
        let trace = recording.stop().unwrap();
        let found = metrics(&trace);

        check(&trace, &found);
        assert_eq!(
            requests(&found, Kind::ObjectData, Operation::Read).0,
            0,
            "{file_system:?}: {:?}",
            found.io
        );
        assert!(
            requests(&found, Kind::FileSystemMetadata, Operation::Read).0 > 0,
            "{file_system:?}: {:?}",
            found.io
        );
        assert!(calls(&found, "names") >= SMALL_FILES);
        match file_system {
            FileSystem::Xfs => {
                let misses = *found.caches.dentry_misses.value().unwrap();
                assert!((SMALL_FILES..SMALL_FILES + 20).contains(&misses), "{misses}");
                assert!(*found.caches.inode_misses.value().unwrap() >= SMALL_FILES);
            }
            FileSystem::Ext4 => {
                let Measured::NotAvailable { why } = &found.caches.dentry_misses else {
                    panic!("ext4 has no tracepoint of lookups")
                };
                assert!(why.contains("ext4"), "{why}");
                assert!(*found.caches.inode_misses.value().unwrap() > 0);
            }
        }
    }
}

#[test]
fn s332_a_cold_read_fills_the_page_cache_and_a_truncation_empties_it() {
    for file_system in BOTH {
        let mounted = Loop::new().format(file_system);
        let path = mounted.path().join("bucket/object/part.1");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![1; 8 * MIB]).unwrap();
        fs::write(path.with_file_name("xl.meta"), [2; 4096]).unwrap();
        let mounted = mounted.remount();

        let recording = record(&mounted, Naming::Minio);
        let mut bytes = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
        fs::read(path.with_file_name("xl.meta")).unwrap();
        recording.mark("remove").unwrap();
        // The recording looks names up at its end, so the inode must keep one.
        fs::hard_link(&path, mounted.path().join("part.1")).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        let trace = recording.stop().unwrap();
        let found = metrics(&trace);

        check(&trace, &found);
        assert_eq!(
            requests(&found, Kind::ObjectData, Operation::Read).1,
            8 * MIB as u64,
            "{file_system:?}: {:?}",
            found.io
        );
        assert_eq!(
            requests(&found, Kind::ObjectMetadata, Operation::Read).1,
            4096,
            "{file_system:?}: {:?}",
            found.io
        );
        let pages = *found.caches.page_insertions.value().unwrap();
        let read = 8 * MIB as u64 / 4096 + 1;
        assert!((read..read + 64).contains(&pages), "{file_system:?}: {pages}");
        let ratio = *found.caches.page_miss_ratio.value().unwrap();
        assert!(ratio > 0.0 && ratio < 1.0, "{ratio}");
        let of_removal = analyze::metrics::metrics_of_phase(&trace, "remove").unwrap();
        let evicted = *found.caches.page_evictions.value().unwrap();
        assert!(evicted >= 8 * MIB as u64 / 4096, "{file_system:?}: {evicted}");
        // The kernel may have evicted some pages on its own before.
        let evicted = *of_removal.caches.page_evictions.value().unwrap();
        assert!(evicted > 4 * MIB as u64 / 4096, "{file_system:?}: {evicted}");
        let pages = *of_removal.caches.page_insertions.value().unwrap();
        assert!(pages < 16, "{file_system:?}: a link and a truncation read few pages: {pages}");
        assert!(analyze::metrics::metrics_of_phase(&trace, "never").is_none());
    }
}

#[test]
fn s332_regions_of_a_raw_device_have_kinds() {
    let device = Loop::new();
    let file = open_direct(device.path());
    let mut buffer = vec![7; MIB + 4096];
    let bytes = aligned(&mut buffer, MIB);
    let recording = Recorder::start(Scope {
        devices: vec![device.path().to_owned()],
        processes: vec![std::process::id()],
        naming: Naming::Regions(vec![
            Region { sectors: 0..2048, kind: Kind::Index },
            Region { sectors: 16_384..32_768, kind: Kind::ObjectData },
        ]),
        ..Scope::default()
    })
    .unwrap();
    file.write_all_at(bytes, 0).unwrap();
    for part in 8..16 {
        file.write_all_at(bytes, part * MIB as u64).unwrap();
    }
    file.sync_all().unwrap();
    let trace = recording.stop().unwrap();
    let found = metrics(&trace);

    check(&trace, &found);
    assert_eq!(requests(&found, Kind::Index, Operation::Write).1, MIB as u64);
    assert_eq!(requests(&found, Kind::ObjectData, Operation::Write).1, 8 * MIB as u64);
    assert_eq!(chains(&found, Operation::Write).bytes_in_natural, 1.0);
    assert_eq!(*found.caches.dentry_misses.value().unwrap(), 0);
    let map = &found.heatmaps[0];
    assert_eq!(map.cells.iter().map(|cell| cell.written_bytes).sum::<u64>(), 9 * MIB as u64);
}

#[test]
fn s331_events_over_the_limit_are_counted_as_lost() {
    let mounted = Loop::new().format(FileSystem::Ext4);
    let recording = Recorder::start(Scope {
        devices: vec![mounted.device().to_owned()],
        mounts: vec![mounted.path().to_owned()],
        events_max: 10,
        ..Scope::default()
    })
    .unwrap();
    write_small_files(mounted.path(), "object-");
    let trace = recording.stop().unwrap();
    assert!(trace.lost > SMALL_FILES, "{}", trace.lost);
    let found = metrics(&trace);
    assert!(found.layers.value().is_none(), "the scope has no process");
}

/// An instance whose pid no process can have: the kernel's maximum is 4,194,304.
const ABANDONED: &str = "/sys/kernel/tracing/instances/tenon-analyze-9999999-0";

#[test]
fn s331_instances_of_killed_processes_are_removed() {
    let device = Loop::new();
    let start =
        || Recorder::start(Scope { devices: vec![device.path().to_owned()], ..Scope::default() }).unwrap();
    drop(start());
    fs::create_dir(ABANDONED).unwrap();
    let before = fs::read_to_string("/sys/kernel/tracing/set_event").unwrap();
    let recording = start();
    assert!(!Path::new(ABANDONED).exists());
    assert_eq!(
        fs::read_to_string("/sys/kernel/tracing/set_event").unwrap(),
        before,
        "events outside the own instance must not change"
    );
    drop(recording);
}

#[test]
fn an_invalid_scope_is_refused() {
    let start = |path: &str| Recorder::start(Scope { devices: vec![path.into()], ..Scope::default() });
    assert!(start("/dev/null").unwrap_err().to_string().starts_with("/dev/null: not a block device"));
    assert!(Recorder::start(Scope::default()).unwrap_err().to_string().starts_with("no device to trace"));
    let device = Loop::new();
    let devices = vec![device.path().to_owned()];
    let none = Recorder::start(Scope { devices, processes: vec![u32::MAX], ..Scope::default() }).unwrap_err();
    assert!(none.to_string().contains("start the node before the trace"), "{none}");
}
