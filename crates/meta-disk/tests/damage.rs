//! Detection of damage, and refusal to open directories that must not be opened.

use crate::fixture::{
    copy_files, invert_byte, largest_file, layer, open, options, put, table, tables_dir, try_open,
};
use meta::{Commit, Engine, EngineError, Reader, schema};
use meta_disk::{DiskEngine, OpenError, TableLayer};
use std::fs;
use std::ops::Bound::Unbounded;
use std::path::Path;

on_each_layer! {
    a_damaged_table_file_is_detected
    a_missing_table_file_is_detected
    a_missing_manifest_or_database_is_detected
    damage_to_synced_commits_in_the_log_is_detected
    a_damaged_synced_mark_is_detected
    a_directory_is_locked_while_open
    own_records_of_the_engine_are_not_accessible
    memory_includes_write_buffers_and_is_bounded
}

/// Creates an engine whose records are in a table file.
fn make_table_file(path: &Path) {
    let engine = open(path);
    for at in 0..50 {
        let row =
            |n: u64| (format!("k{n:06}").into_bytes(), n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let puts = (at * 100..at * 100 + 100).map(row).map(|(key, value)| (key, value[..].into())).collect();
        engine.commit(Commit { puts, ..Commit::default() }).unwrap();
    }
    drop(engine);
    drop(open(path));
}

fn is_corrupt(error: &OpenError) -> bool {
    matches!(error, OpenError::Engine(EngineError::Corrupt(_)))
}

/// Returns the error of opening an engine.
fn open_error(path: &Path) -> OpenError {
    try_open(path).unwrap_err()
}

fn a_damaged_table_file_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    make_table_file(folder.path());
    let file = largest_file(folder.path(), "sst");
    invert_byte(&file, fs::metadata(&file).unwrap().len() as usize / 3);
    let engine = open(folder.path());
    let error = engine.scan(Unbounded, Unbounded, usize::MAX).unwrap_err();
    assert!(matches!(error, EngineError::Corrupt(_)), "{error}");
    assert!(!error.to_string().contains('\n'));
}

fn a_missing_table_file_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    make_table_file(folder.path());
    fs::remove_file(largest_file(folder.path(), "sst")).unwrap();
    let error = open_error(folder.path());
    assert!(is_corrupt(&error), "{error}");
}

fn a_missing_manifest_or_database_is_detected() {
    let first_file = if layer() == TableLayer::Lsm { "lsm/manifest" } else { "tables/CURRENT" };
    for missing in [first_file, tables_dir()] {
        let folder = tempfile::tempdir().unwrap();
        make_table_file(folder.path());
        let path = folder.path().join(missing);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        let error = open_error(folder.path());
        assert!(is_corrupt(&error), "{missing}: {error}");
        assert!(is_corrupt(&open_error(folder.path())), "no new engine is created in its place");
    }
}

fn damage_to_synced_commits_in_the_log_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(&folder.path().join("live"));
    let live = folder.path().join("live");
    for number in 0..100 {
        engine.commit(put("k", &format!("{number:0200}"))).unwrap();
    }
    engine.sync().unwrap();
    let synced = fs::metadata(largest_file(&live, "log")).unwrap().len() as usize;
    for (round, at) in [100, synced / 3, synced / 2, synced - 10].into_iter().enumerate() {
        let copy = folder.path().join(format!("flipped{round}"));
        copy_files(&live, &copy);
        invert_byte(&largest_file(&copy, "log"), at);
        assert!(is_corrupt(&open_error(&copy)), "a byte at {at} of {synced}");
        let copy = folder.path().join(format!("cut{round}"));
        copy_files(&live, &copy);
        fs::File::options().write(true).open(largest_file(&copy, "log")).unwrap().set_len(at as u64).unwrap();
        let error = open_error(&copy);
        assert!(is_corrupt(&error), "cut at {at} of {synced}: {error}");
        assert!(is_corrupt(&open_error(&copy)), "the second attempt fails too");
    }
    let copy = folder.path().join("gone");
    copy_files(&live, &copy);
    fs::remove_file(largest_file(&copy, "log")).unwrap();
    assert!(is_corrupt(&open_error(&copy)));
}

fn a_damaged_synced_mark_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    make_table_file(folder.path());
    invert_byte(&folder.path().join("synced"), 3);
    assert!(is_corrupt(&open_error(folder.path())));
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_newer_format_is_refused_with_its_version() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let tables = rust_rocksdb::DB::open_default(folder.path().join("tables")).unwrap();
    tables.put(schema::head(), [9, 1, 1]).unwrap();
    drop(tables);
    let error = open_error(folder.path());
    assert!(matches!(error, OpenError::Newer { .. }), "{error}");
    assert!(error.to_string().contains("version 9"), "{error}");
}

fn a_directory_is_locked_while_open() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    let error = DiskEngine::open(folder.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    engine.commit(put("k", "v")).unwrap();
    drop(engine);
    assert_eq!(table(&open(folder.path())).len(), 1);
}

fn own_records_of_the_engine_are_not_accessible() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    engine.register("c", meta::Seqno(0)).unwrap();
    engine.commit(Commit { ops: vec![crate::fixture::purge(1)], ..put("k", "v") }).unwrap();
    let own = [schema::head(), schema::consumer("c"), schema::log_record(meta::Seqno(1), 0)];
    for key in &own {
        assert_eq!(engine.get(key), Ok(None));
        let commit = Commit { deletes: vec![key.clone()], ..Commit::default() };
        assert!(matches!(engine.commit(commit), Err(meta::CommitError::Engine(_))));
    }
    assert_eq!(engine.multi_get(&own), Ok(vec![None; 3]));
    assert_eq!(table(&engine).len(), 1);
}

fn memory_includes_write_buffers_and_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    let empty = engine.memory_bytes();
    engine.commit(put("k", &"x".repeat(3 << 20))).unwrap();
    assert!(engine.memory_bytes() >= empty + (2 << 20), "{} then {}", empty, engine.memory_bytes());
    assert!(engine.memory_bytes() < 64 << 20);
}
