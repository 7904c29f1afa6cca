//! The state of an engine after it is closed and opened again.

use crate::fixture::{ALL, ingest, log, open, open_with_log, options, purge, put, table};
use meta::conformance::directory;
use meta::{
    Commit, Condition, Engine, Ino, LogCap, LogError, Merge, Reader, RunRecord, Seqno, codec, schema,
};
use meta_disk::{DiskEngine, EngineOptions};
use std::path::Path;
use store::Timestamp;

on_each_layer! {
    every_kind_of_write_survives_reopening
    a_large_run_is_one_commit_with_its_log
    a_cut_log_stays_cut
    the_ops_of_a_run_are_removed_when_they_are_cut_off
    consumers_are_kept_until_they_are_removed
}

/// Makes a change, and asserts that closing and opening the engine does not change its state.
fn assert_survives_reopen(path: &Path, change: impl FnOnce(&DiskEngine)) {
    let engine = open_with_log(path);
    change(&engine);
    let state = |engine: &DiskEngine| {
        let cursor = engine.cursor(ALL).unwrap();
        (engine.head(), table(engine), cursor, engine.log_after(cursor, usize::MAX).unwrap())
    };
    let before = state(&engine);
    drop(engine);
    assert_eq!(state(&open(path)), before);
}

fn every_kind_of_write_survives_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_survives_reopen(path, |_| {});
    assert_survives_reopen(path, |engine| {
        engine.commit(put("a", "1")).unwrap();
    });
    assert_survives_reopen(path, |engine| {
        let puts = vec![(b"a".to_vec(), b"2"[..].into()), (b"b".to_vec(), b""[..].into())];
        engine.commit(Commit { puts, ops: vec![purge(1), purge(2)], ..Commit::default() }).unwrap();
    });
    assert_survives_reopen(path, |engine| {
        engine.commit(Commit { deletes: vec![b"a".to_vec()], ..Commit::default() }).unwrap();
    });
    assert_survives_reopen(path, |engine| {
        let key = schema::inode(Ino(9));
        let puts = vec![(key.clone(), codec::encode_inode(&directory(9)).into())];
        engine.commit(Commit { puts, ..Commit::default() }).unwrap();
        let merges = vec![(key, Merge::entry(Timestamp(7), 1))];
        engine.commit(Commit { merges, ..Commit::default() }).unwrap();
    });
    assert_survives_reopen(path, |engine| {
        ingest(engine, 10, &[purge(3)], &RunRecord::default()).unwrap();
    });
    assert_survives_reopen(path, |engine| engine.advance(ALL, Seqno(2)).unwrap());
}

fn a_large_run_is_one_commit_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let merges = vec![(schema::inode(Ino(9)), Merge::entry(Timestamp(7), 1))];
    let record = RunRecord { merges, ..RunRecord::default() };
    let (rows, ops) = (10_000, Vec::from_iter((0..1000).map(purge)));
    assert_survives_reopen(folder.path(), |engine| {
        let before = engine.commit(put("r005000x", "between")).unwrap();
        let puts = vec![(schema::inode(Ino(9)), codec::encode_inode(&directory(9)).into())];
        engine.commit(Commit { puts, ..Commit::default() }).unwrap();
        let seqno = ingest(engine, rows, &ops, &record).unwrap();
        let version = engine.get(b"r000000").unwrap().unwrap().version;
        let found = table(engine);
        assert_eq!(found.iter().filter(|(_, row)| row.version == version).count(), rows);
        assert_eq!(found.iter().filter(|(_, row)| row.version == seqno).count(), 1, "the merged record");
        assert_eq!(engine.get(b"r005000x").unwrap().unwrap().version, before);
        assert_eq!(log(engine).len(), 1000);
        engine.commit(put("r000001", "newer than the run")).unwrap();
    });
    let engine = open(folder.path());
    assert_eq!(engine.get(b"r000001").unwrap().unwrap().value[..], b"newer than the run"[..]);
    let condition = Condition::Absent { key: b"r000001".to_vec() };
    let late = Commit { conditions: vec![condition], ..put("x", "1") };
    assert_eq!(engine.commit(late), Err(meta::CommitError::Conflict));
    let record = RunRecord { conditions: vec![Condition::Absent { key: b"r000001".to_vec() }], ..record };
    assert_eq!(ingest(&engine, rows, &ops, &record), Err(meta::CommitError::Conflict));
}

/// Reopening neither brings back log that was cut off nor changes how much log is kept.
fn a_cut_log_stays_cut() {
    let folder = tempfile::tempdir().unwrap();
    let log_cap = LogCap { bytes_max: 1 << 20, tail_ops: 10, ..LogCap::default() };
    let open = || DiskEngine::open(folder.path(), EngineOptions { log_cap, ..options() }).unwrap();
    let mut cut = Seqno(0);
    for round in 0..4 {
        let engine = open();
        assert!(matches!(engine.log_after(cut, 1), Ok(_) | Err(LogError::Lagged { .. })));
        for number in 0..700 {
            engine.commit(Commit { ops: vec![purge(number)], ..put("k", "v") }).unwrap();
        }
        cut = Seqno(engine.head().0 - 10);
        assert_eq!(engine.log_after(cut, 100).unwrap().len(), 10, "round {round}");
        assert!(matches!(engine.log_after(Seqno(cut.0 - 1), 1), Err(LogError::Lagged { .. })));
        drop(engine);
        let engine = open();
        assert_eq!(engine.log_after(cut, 100).unwrap().len(), 10);
        assert!(matches!(engine.log_after(Seqno(cut.0 - 1), 1), Err(LogError::Lagged { .. })));
        assert!(matches!(engine.register("late", Seqno(1)), Err(LogError::Lagged { .. })));
    }
}

fn consumers_are_kept_until_they_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    let head = engine.commit(put("k", "v")).unwrap();
    engine.register("kept", head).unwrap();
    engine.register("removed", head).unwrap();
    engine.forget_consumer("removed").unwrap();
    drop(engine);
    let engine = open(folder.path());
    assert_eq!(engine.cursor("kept"), Ok(head));
    assert_eq!(engine.cursor("removed"), Err(LogError::NoConsumer("removed".into())));
}

/// The ops of a run take space in the tables while a consumer needs them, and no longer.
fn the_ops_of_a_run_are_removed_when_they_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let pages = |engine: &DiskEngine| {
        let mut pages = 0;
        let count = |key: &[u8], _: &[u8]| {
            pages += usize::from(key[0] == b'B');
            Ok::<_, meta::EngineError>(())
        };
        engine.dump(count).unwrap();
        pages
    };
    let engine = open_with_log(folder.path());
    let ops = Vec::from_iter((0..2000).map(purge));
    let seqno = ingest(&engine, 10, &ops, &RunRecord::default()).unwrap();
    drop(engine);
    let engine = open(folder.path());
    assert_eq!((log(&engine).len(), pages(&engine)), (2000, 8));
    engine.advance(ALL, Seqno(seqno.0 - 1)).unwrap();
    engine.commit(put("k", "1")).unwrap();
    assert_eq!((engine.log_after(engine.cursor(ALL).unwrap(), 9).unwrap().len(), pages(&engine)), (208, 8));
    engine.advance(ALL, seqno).unwrap();
    drop(engine);
    let engine = open(folder.path());
    assert_eq!(engine.cursor(ALL), Ok(seqno));
    engine.commit(put("k", "2")).unwrap();
    assert_eq!(pages(&engine), 0);
}
