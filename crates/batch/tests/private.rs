//! Private namespaces.

use crate::fixture::{Ops, USER, Volume, commit_op, context, copy_dir, create, name, values};
use crate::rescue::write;
use batch::{DirectoryCounts, JobOptions, PrivateNamespace, Progress, Totals};
use meta::{Engine, KeyRange, Kind, LogCap, MemoryEngine, Op, Reader};
use std::fs;
use std::ops::Bound;
use store::Timestamp;

/// Options with which changes are in table files almost at once.
const SPILLING: JobOptions = JobOptions { memory_bytes_max: 3000, keeps_synced_only: false };

/// Fills a volume with random content in the user's home.
fn filled(seed: u64) -> Volume<MemoryEngine> {
    let volume = Volume::in_memory();
    let mut ops = Ops::new(seed, USER, &[volume.home]);
    for step in 0..60 {
        let op = ops.next(|dir| volume.namespace.allocate(dir, 1)[0]);
        if volume.namespace.commit(&context(USER, 10 + step), &op).is_ok() {
            ops.succeeded(&op);
        }
    }
    volume
}

/// Ops have the same outcomes, and reads the same answers, in a private namespace as in an engine with the same content.
#[test]
fn a_private_namespace_equals_an_engine() {
    let mut succeeded = 0;
    for seed in 0..60 {
        let volume = filled(seed);
        let (mut job, _) = volume.begin("job", if seed % 2 == 0 { SPILLING } else { JobOptions::default() });
        let model = volume.engine.fork();
        let mut ops = Ops::new(seed ^ 77, USER, &[volume.home]);
        for step in 0..300 {
            let op = ops.next(|dir| job.allocate(dir).unwrap());
            let context = context(USER, 200 + step);
            let outcome = job.apply(&context, &op);
            assert_eq!(outcome, commit_op(&model, &context, &op), "seed {seed}, step {step}: {op:?}");
            if outcome.is_ok() {
                succeeded += 1;
                ops.succeeded(&op);
            }
        }
        let (found, expected) = (values(&job), values(&model));
        assert_eq!(found, expected, "seed {seed}");
        let keys: Vec<_> = expected.into_iter().map(|(key, _)| key).collect();
        for _ in 0..200 {
            let key = || keys[ops.entropy.below(keys.len() as u64) as usize].clone();
            let range = KeyRange { from: key(), to: key() };
            let last = |state: &dyn Reader| state.last(&range).unwrap().map(|(key, row)| (key, row.value));
            assert_eq!(last(&job), last(&model));
            let limit = ops.entropy.below(20) as usize;
            let page = |state: &dyn Reader| {
                let rows =
                    state.scan(Bound::Excluded(&range.from), Bound::Included(&range.to), limit).unwrap();
                rows.into_iter().map(|(key, row)| (key, row.value)).collect::<Vec<_>>()
            };
            assert_eq!(page(&job), page(&model));
        }
    }
    assert!(succeeded > 5000, "{succeeded} ops succeeded");
}

/// A job that ends at any byte of its log resumes with a prefix of its ops, and nothing but a prefix.
#[test]
fn a_killed_job_resumes_with_a_prefix() {
    let mut lengths = Vec::new();
    for seed in 0..20 {
        let volume = filled(seed);
        let (mut job, lease) = volume.begin("job", SPILLING);
        let snapshot = volume.engine.snapshot().unwrap();
        let model = volume.engine.fork();
        let mut states = vec![values(&model)];
        let mut ops = Ops::new(seed ^ 99, USER, &[volume.home]);
        for step in 0..150 {
            let op = ops.next(|dir| job.allocate(dir).unwrap());
            let context = context(USER, 200 + step);
            if job.apply(&context, &op).is_ok() {
                ops.succeeded(&op);
                commit_op(&model, &context, &op).unwrap();
                states.push(values(&model));
            }
            if step % 10 == 9 {
                job.flush().unwrap();
            }
        }
        // The files as they are when the process is killed now.
        let killed = volume.folder.path().join("killed");
        copy_dir(&volume.folder.path().join("job"), &killed);
        drop(job);
        let log = fs::read(killed.join("ops")).unwrap();
        for _ in 0..10 {
            let len = 36 + ops.entropy.below(log.len() as u64 - 36 + 1) as usize;
            fs::write(killed.join("ops"), &log[..len]).unwrap();
            let (mut job, failed) = PrivateNamespace::resume(&killed, snapshot.clone(), SPILLING).unwrap();
            assert_eq!(failed, 0);
            let state = values(&job);
            let found = states.iter().position(|expected| *expected == state);
            lengths.push(found.expect("the state is that after some of the ops"));
            let ino = job.allocate(volume.home).unwrap();
            assert!(lease.contains(&ino) && meta::namespace::read_inode(&job, ino).unwrap().is_none());
            let op =
                crate::fixture::create(USER, volume.home, "after the crash", ino, meta::Kind::File, 0o600);
            job.apply(&context(USER, 999), &op).unwrap();
            job.sync().unwrap();
            let after = values(&job);
            drop(job);
            let (job, _) = PrivateNamespace::resume(&killed, snapshot.clone(), SPILLING).unwrap();
            assert_eq!(values(&job), after);
        }
    }
    assert!(lengths.iter().any(|len| *len > 60) && lengths.contains(&0), "{lengths:?}");
}

#[test]
fn a_job_with_a_used_directory_is_refused_and_can_be_discarded() {
    let volume = Volume::in_memory();
    let (job, lease) = volume.begin("job", SPILLING);
    let dir = volume.folder.path().join("job");
    let again = PrivateNamespace::begin(&dir, volume.engine.snapshot().unwrap(), lease.clone(), SPILLING);
    assert!(again.is_err(), "the directory has the files of another job");
    drop(job);
    PrivateNamespace::discard(&dir).unwrap();
    PrivateNamespace::begin(&dir, volume.engine.snapshot().unwrap(), lease, SPILLING).unwrap();
}

/// A resumed job over a later snapshot counts the ops that no longer apply.
#[test]
fn a_later_snapshot_refuses_some_ops() {
    let volume = Volume::in_memory();
    let (mut job, _) = volume.begin("job", SPILLING);
    for text in ["one", "two"] {
        let ino = job.allocate(volume.home).unwrap();
        let op = crate::fixture::create(USER, volume.home, text, ino, meta::Kind::File, 0o600);
        job.apply(&context(USER, 100), &op).unwrap();
    }
    job.flush().unwrap();
    drop(job);
    volume.create(USER, volume.home, "two", meta::Kind::File, 0o600);
    let dir = volume.folder.path().join("job");
    let (job, failed) = PrivateNamespace::resume(&dir, volume.engine.snapshot().unwrap(), SPILLING).unwrap();
    assert_eq!(failed, 1);
    drop(job);
    let other = MemoryEngine::new(LogCap::UNLIMITED);
    let (_, failed) = PrivateNamespace::resume(&dir, other.snapshot().unwrap(), SPILLING).unwrap();
    assert_eq!(failed, 2);
}

/// The counters of a job are the same after it was resumed, and grow.
#[test]
fn progress_counts_ops_and_sizes_per_directory() {
    let volume = Volume::in_memory();
    let (mut job, _) = volume.begin("job", JobOptions::default());
    let (sub, file, gone) = (
        job.allocate(volume.home).unwrap(),
        job.allocate(volume.home).unwrap(),
        job.allocate(volume.home).unwrap(),
    );
    let ops = [
        create(USER, volume.home, "sub", sub, Kind::Directory, 0o755),
        create(USER, sub, "file", file, Kind::File, 0o644),
        write(file, "object"),
        create(USER, volume.home, "gone", gone, Kind::File, 0o644),
        Op::Unlink { parent: volume.home, name: name("gone"), keep: false },
    ];
    for (step, op) in ops.iter().enumerate() {
        job.apply(&context(USER, 10 + step as i64), op).unwrap();
    }
    let expected = Totals {
        ops: 5,
        files: 2,
        directories: 1,
        removed: 1,
        writes: 1,
        bytes: 5,
        last: Some(Timestamp(14)),
        ..Totals::default()
    };
    let directories = [
        (sub, DirectoryCounts { added: 1, removed: 0, bytes: 5 }),
        (volume.home, DirectoryCounts { added: 2, removed: 1, bytes: 0 }),
    ];
    job.flush().unwrap();
    let dir = volume.folder.path().join("job");
    let (resumed, _) =
        PrivateNamespace::resume(&dir, volume.engine.snapshot().unwrap(), JobOptions::default()).unwrap();
    for progress in [job.progress(), resumed.progress()] {
        assert_eq!(progress.totals(), expected);
        assert_eq!(progress.largest_directories(2), (directories.to_vec(), 0));
        assert_eq!(progress.largest_directories(1), (directories[..1].to_vec(), 1));
        assert_eq!(progress.largest_directories(0), (vec![], 2));
    }
    assert_eq!(Progress::read(&dir.join("ops")).unwrap().totals(), expected);
}
