//! The reduced proof: the same tables as by a replay, and nothing beyond what the user may do.

use crate::fixture::{USER, Volume, assert_serial, context, create, name, values};
use crate::job::Job;
use batch::{JobOptions, Proof};
use meta::{AttrChanges, Engine, Kind, Op, OpContext, RenameHow};

/// A new tree is proven without the ops of its job, with the same tables as by a replay.
#[test]
fn new_trees_are_proven_by_their_rows() {
    let (mut reduced, mut ops, mut canonical) = (0, 0, 0);
    let seeds = 300;
    for seed in 0..seeds {
        let mut job = Job::new(seed);
        (0..120).for_each(|_| job.act());
        let (volume, batch, lease) = job.seal();
        let replayed = volume.engine.fork();
        let by_ops = volume.merge_into(&replayed, &batch, &lease, Proof::Replay).unwrap();
        assert_eq!((by_ops.proof, &by_ops.refused[..]), (Some(Proof::Replay), &[][..]), "seed {seed}");
        let by_rows = volume.merge_into(&*volume.engine, &batch, &lease, Proof::Reduced).unwrap();
        assert_eq!(by_rows.refused, [], "seed {seed}");
        assert_eq!(values(&*volume.engine), values(&replayed), "seed {seed}");
        volume.assert_serial();
        if by_rows.proof == Some(Proof::Reduced) {
            reduced += 1;
            ops += by_ops.accepted;
            canonical += by_rows.accepted;
        }
    }
    assert!(reduced * 10 > seeds * 9, "{reduced} of {seeds} batches were proven by their rows");
    assert!(canonical < ops, "{canonical} canonical ops for {ops} ops");
}

/// A batch that changes what the snapshot has is verified by its ops.
#[test]
fn other_batches_are_replayed() {
    let volume = Volume::in_memory();
    let file = volume.create(USER, volume.home, "file", Kind::File, 0o644);
    let home = volume.home;
    let changes = AttrChanges { mode: Some(0o600), ..AttrChanges::default() };
    let ops = [
        Op::SetAttr { ino: file, changes },
        Op::Link { ino: file, parent: home, name: name("link") },
        Op::Unlink { parent: home, name: name("file"), keep: false },
        Op::Rename {
            from: (home, name("file")),
            to: (home, name("x")),
            how: RenameHow::Replace,
            keep: false,
        },
    ];
    for (op, number) in ops.iter().zip(0..) {
        let (mut job, lease) = volume.begin(&format!("job{number}"), JobOptions::default());
        job.apply(&context(USER, 200), op).unwrap();
        let engine = volume.engine.fork();
        let merged = volume.merge_into(&engine, &job.seal().unwrap(), &lease, Proof::Reduced).unwrap();
        assert_eq!((merged.proof, merged.accepted, merged.refused), (Some(Proof::Replay), 1, vec![]));
        assert_serial(&engine);
    }
}

/// A name that is taken since the snapshot refuses one op, by a replay.
#[test]
fn a_conflict_is_decided_by_a_replay() {
    let volume = Volume::in_memory();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    for text in ["a", "b"] {
        let ino = job.allocate(volume.home).unwrap();
        job.apply(&context(USER, 200), &create(USER, volume.home, text, ino, Kind::File, 0o644)).unwrap();
    }
    let batch = job.seal().unwrap();
    volume.create(USER, volume.home, "b", Kind::File, 0o644);
    let merged = volume.merge_into(&*volume.engine, &batch, &lease, Proof::Reduced).unwrap();
    assert_eq!((merged.proof, merged.accepted, merged.refused.len()), (Some(Proof::Replay), 1, 1));
    volume.assert_serial();
}

/// The contexts of canonical ops are the server's, and the log says what was applied.
#[test]
fn canonical_ops_are_logged() {
    let volume = Volume::in_memory();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let ino = job.allocate(volume.home).unwrap();
    let at = |now| -> OpContext { context(USER, now) };
    job.apply(&at(200), &create(USER, volume.home, "a", ino, Kind::File, 0o640)).unwrap();
    let changes = AttrChanges { size_bytes: Some(9), ..AttrChanges::default() };
    job.apply(&at(201), &Op::SetAttr { ino, changes }).unwrap();
    let before = volume.engine.head();
    let merged = volume.merge_into(&*volume.engine, &job.seal().unwrap(), &lease, Proof::Reduced).unwrap();
    assert_eq!((merged.proof, merged.accepted), (Some(Proof::Reduced), 2));
    let log = volume.engine.log_after(before, 10).unwrap();
    assert!(matches!(log[0].op, Op::Create { mode: 0o640, umask: 0, .. }) && log[0].context == at(200));
    assert!(matches!(log[1].op, Op::SetAttr { .. }) && log[1].context == at(201));
    volume.assert_serial();
}
