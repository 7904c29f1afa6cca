//! The engine of a private namespace, as a file system uses it.

use crate::fixture::{AT, Ops, USER, Volume, context, create, terms, values};
use batch::{JobOptions, PrivateEngine, PrivateNamespace, Proof, Terms};
use meta::access::{Caller, authorize};
use meta::{Engine, Ino, Kind, Namespace, Op, OpContext, Reader, schema};
use std::ops::Range;
use std::sync::Arc;
use store::Entropy;

fn superuser(lease: &Range<Ino>) -> Terms {
    Terms { caller: Caller { uid: 0, gid: 0, groups: Box::default() }, ..terms(lease) }
}

/// Returns the context of an op of a front end in batch mode.
fn at(now: i64) -> OpContext {
    OpContext { at: AT, ..context(USER, now) }
}

/// Returns all records but the counter of inode numbers, which each engine has for itself.
fn names(state: &dyn Reader) -> Vec<(Vec<u8>, meta::Value)> {
    values(state).into_iter().filter(|(key, _)| *key != schema::next_ino()).collect()
}

/// A merge adds to the volume what the programs of the batch have seen, also if they kept removed files open.
#[test]
fn a_merge_adds_what_the_engine_shows() {
    let (mut by_rows, mut orphans) = (0, 0);
    for seed in 0..150 {
        let volume = Volume::in_memory();
        let entropy = Entropy::new(seed);
        let old = volume.create(USER, volume.home, "e", Kind::Directory, 0o755);
        // Small maps become table files.
        let memory_bytes_max = if seed % 3 == 0 { 2000 } else { 1 << 20 };
        let options = JobOptions { memory_bytes_max, ..JobOptions::default() };
        let (job, lease) = volume.begin("job", options);
        let engine = Arc::new(job.into_engine(AT));
        let private = Namespace::new(engine.clone(), &at(200)).unwrap();
        let mut ops = Ops::new(seed, USER, &[volume.home, old]);
        for step in 0..80 {
            let mut op = ops.next(|dir| private.allocate(dir, 1)[0]);
            if let Op::Unlink { keep, .. } | Op::Rename { keep, .. } = &mut op {
                *keep = entropy.below(2) == 0;
            }
            // The kernel refuses operations that no user may do, such as setting an attribute of a symbolic link.
            let caller = superuser(&lease).caller;
            let is_permitted = authorize(&*engine, &caller, at(201 + step).now, &op).as_ref() == Ok(&op);
            if is_permitted && private.commit(&at(201 + step), &op).is_ok() {
                ops.succeeded(&op);
            }
            if entropy.below(4) == 0
                && let Some(ino) = private.orphans(None, 10).unwrap().pop()
            {
                private.commit(&at(201 + step), &Op::Purge { ino }).unwrap();
            }
        }
        orphans += private.orphans(None, 100).unwrap().len();
        let batch = engine.seal().unwrap();
        let proof = if seed % 2 == 0 { Proof::Reduced } else { Proof::Replay };
        let scratch = tempfile::tempdir().unwrap();
        let merged =
            batch::merge(&*volume.engine, &batch, &superuser(&lease), scratch.path(), proof).unwrap();
        assert_eq!(merged.refused, [], "seed {seed}");
        by_rows += usize::from(merged.proof == Some(Proof::Reduced));
        assert_eq!(names(&*volume.engine), names(&*engine), "seed {seed}");
        volume.assert_serial();
    }
    assert!(by_rows > 5 && orphans > 3, "{by_rows} by rows, {orphans} open files without names");
}

/// Creators in one directory do not conflict, and no op is lost between them.
#[test]
fn several_threads_share_the_engine() {
    let volume = Volume::in_memory();
    let (job, lease) = volume.begin("job", JobOptions { memory_bytes_max: 20_000, ..JobOptions::default() });
    let engine: Arc<PrivateEngine> = Arc::new(job.into_engine(AT));
    let private = Namespace::new(engine.clone(), &at(200)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (private, home) = (&private, volume.home);
            scope.spawn(move || {
                for number in 0..200 {
                    let ino = private.allocate(home, 1)[0];
                    let text = format!("{thread}-{number}");
                    let op = create(USER, home, &text, ino, Kind::File, 0o644);
                    private.commit(&at(201), &op).unwrap();
                    if number % 3 == 0 {
                        let to = (home, crate::fixture::name(&format!("r{text}")));
                        let from = (home, crate::fixture::name(&text));
                        let how = meta::RenameHow::NoReplace;
                        private.commit(&at(202), &Op::Rename { from, to, how, keep: true }).unwrap();
                    }
                }
            });
        }
    });
    let batch = engine.seal().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let merged =
        batch::merge(&*volume.engine, &batch, &superuser(&lease), scratch.path(), Proof::Replay).unwrap();
    assert_eq!(merged.refused, []);
    assert_eq!(volume.namespace.entries(volume.home, None, 10_000).unwrap().len(), 800);
    volume.assert_serial();
}

/// A killed process loses nothing that was committed. After a loss of power, only what a sync covered is kept, because the contents of other
/// files may be gone.
#[test]
fn s603_commits_survive_and_only_synced_ones_a_loss_of_power() {
    let volume = Volume::in_memory();
    let (job, lease) = volume.begin("job", JobOptions::default());
    let dir = volume.folder.path().join("job");
    let engine = Arc::new(job.into_engine(AT));
    let private = Namespace::new(engine.clone(), &at(200)).unwrap();
    let make = |text: &str| {
        let ino = private.allocate(volume.home, 1)[0];
        private.commit(&at(201), &create(USER, volume.home, text, ino, Kind::File, 0o644)).unwrap();
    };
    make("a");
    engine.sync().unwrap();
    make("b");
    // Nothing is written when the engine is dropped, as after a kill.
    drop((private, engine));
    let seen = |keeps_synced_only| {
        let options = JobOptions { keeps_synced_only, ..JobOptions::default() };
        let (job, stale) =
            PrivateNamespace::resume(&dir, volume.engine.snapshot().unwrap(), options).unwrap();
        assert_eq!(stale, 0);
        let engine = Arc::new(job.into_engine(AT));
        let private = Namespace::new(engine, &at(300)).unwrap();
        let unused = private.allocate(volume.home, 1)[0];
        assert!(lease.contains(&unused) && private.inode(unused).is_err(), "numbers are not used twice");
        private.entries(volume.home, None, 10).unwrap().len()
    };
    assert_eq!((seen(false), seen(false), seen(true), seen(false)), (2, 2, 1, 1));
}
