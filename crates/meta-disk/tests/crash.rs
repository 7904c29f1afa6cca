//! Crashes of the process and losses of power.

use crate::fixture::{copy_files, largest_file, log, open, open_with_log, options, table, tables_dir};
use meta::conformance::equals_replay;
use meta::{Engine, Op, Reader, Seqno, invariants};
use meta_disk::{DiskEngine, EngineOptions};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use store::Entropy;

on_each_layer! {
    a_killed_process_loses_no_acknowledged_commit
    a_loss_of_power_leaves_a_prefix_with_all_synced_commits
    s23_commits_are_synced_soon
    a_large_run_survives_the_loss_of_power
}

/// Asserts that the invariants hold and that the tables equal a replay of the log.
fn assert_consistent(engine: &DiskEngine) {
    assert_eq!(invariants::fsck(engine).unwrap(), vec![]);
    assert!(equals_replay(engine, &log(engine)).unwrap(), "the tables are not those of the log");
}

/// Returns the program `examples/crasher.rs`, which cargo builds with the tests.
fn crasher() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples/crasher");
    assert!(program.exists(), "no {}: run `cargo test -p meta-disk`", program.display());
    program
}

/// Runs the crasher until it has printed `lines` lines, and kills it. Returns all lines: the names of files whose creation was
/// acknowledged.
fn run_and_kill_after(lines: usize, path: &Path) -> BTreeSet<String> {
    let mut child =
        Command::new(crasher()).arg(path).arg(tables_dir()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut printed: BTreeSet<String> = output.by_ref().take(lines).map(|line| line.unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    printed.extend(output.map_while(Result::ok));
    printed
}

fn created(engine: &DiskEngine) -> BTreeSet<String> {
    let ops = log(engine).into_iter();
    ops.filter_map(|logged| match logged.op {
        Op::Create { name, .. } => Some(name.to_string()),
        _ => None,
    })
    .collect()
}

fn a_killed_process_loses_no_acknowledged_commit() {
    let folder = tempfile::tempdir().unwrap();
    let entropy = Entropy::new(7);
    let mut acknowledged = BTreeSet::new();
    for round in 0..25 {
        acknowledged.append(&mut run_and_kill_after(1 + entropy.below(400) as usize, folder.path()));
        let engine = open(folder.path());
        assert_consistent(&engine);
        let created = created(&engine);
        assert!(acknowledged.is_subset(&created), "round {round}: an acknowledged commit is lost");
    }
    assert!(acknowledged.len() > 1000);
}

/// Simulates losses of power after commits of which some are synced: copies the files and damages the unsynced end of the
/// write-ahead log.
fn a_loss_of_power_leaves_a_prefix_with_all_synced_commits() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let engine = Arc::new(open_with_log(&live));
    let namespace = meta::Namespace::new(engine.clone(), &crate::fixture::CONTEXT).unwrap();
    for n in 0..60 {
        create(&namespace, &format!("before-{n}"));
    }
    engine.sync().unwrap();
    let (synced, synced_bytes) = (engine.head(), wal_bytes(&live));
    for n in 0..60 {
        create(&namespace, &format!("after-{n}"));
    }
    let (all, all_bytes) = (log(&*engine), wal_bytes(&live));
    let entropy = Entropy::new(3);
    for round in 0..40 {
        let copy = folder.path().join(format!("copy{round}"));
        copy_files(&live, &copy);
        let at = synced_bytes + entropy.below(all_bytes - synced_bytes + 1);
        damage_end(&largest_file(&copy, "log"), at, round % 3);
        let engine = open(&copy);
        assert!(engine.head() >= synced, "round {round}: a synced commit is lost");
        assert_consistent(&engine);
        let kept = log(&engine);
        assert_eq!(kept, all[..kept.len()], "round {round}");
        assert!(all.get(kept.len()).is_none_or(|next| next.seqno > engine.head()));
        create_one(engine, "later");
        fs::remove_dir_all(copy).unwrap();
    }
}

/// Truncates a file at an offset, or fills it with zeros or random bytes from there on.
fn damage_end(file: &Path, at: u64, how: u64) {
    let mut bytes = fs::read(file).unwrap();
    let end = bytes.len();
    match how {
        0 => bytes.truncate(at as usize),
        1 => bytes[at as usize..end].fill(0),
        _ => bytes[at as usize..end].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31) ^ 0x5a),
    }
    fs::write(file, bytes).unwrap();
}

fn wal_bytes(engine: &Path) -> u64 {
    fs::metadata(largest_file(engine, "log")).unwrap().len()
}

fn create(namespace: &meta::Namespace, name: &str) {
    let (parent, name) = (meta::Ino::ROOT, meta::Name::new(name.as_bytes()).unwrap());
    let ino = namespace.allocate(parent, 1)[0];
    let kind = meta::Kind::File;
    let op =
        Op::Create { parent, name, ino, kind, mode: 0o644, uid: 0, gid: 0, umask: 0, rdev: 0, target: None };
    namespace.commit(&crate::fixture::CONTEXT, &op).unwrap();
}

fn create_one(engine: DiskEngine, name: &str) {
    let engine = Arc::new(engine);
    create(&meta::Namespace::new(engine.clone(), &crate::fixture::CONTEXT).unwrap(), name);
    assert_consistent(&engine);
}

/// Commits are synced after a short time without a request.
fn s23_commits_are_synced_soon() {
    let folder = tempfile::tempdir().unwrap();
    let options = EngineOptions { sync_interval: EngineOptions::default().sync_interval, ..options() };
    let engine = DiskEngine::open(folder.path(), options).unwrap();
    let head = engine.commit(crate::fixture::put("k", "v")).unwrap();
    let mark = || fs::read(folder.path().join("synced")).unwrap()[..8].to_vec();
    let waited = (0..2000).find(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        mark() == head.0.to_be_bytes()
    });
    assert!(waited.is_some(), "nothing was synced within ten seconds");
}

/// An ingested large run and all commits before it survive a loss of power that loses the whole write-ahead log.
fn a_large_run_survives_the_loss_of_power() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let engine = open_with_log(&live);
    engine.commit(crate::fixture::put("before", "1")).unwrap();
    let ops = [crate::fixture::purge(1)];
    let seqno = crate::fixture::ingest(&engine, 5000, &ops, &meta::RunRecord::default()).unwrap();
    engine.commit(crate::fixture::put("after", "1")).unwrap();
    let copy = folder.path().join("copy");
    copy_files(&live, &copy);
    fs::write(copy.join("run.7.sst"), "half a file").unwrap();
    let file = largest_file(&copy, "log");
    damage_end(&file, 0, 0);
    let engine = open(&copy);
    assert_eq!(engine.head(), seqno);
    assert_eq!(table(&engine).len(), 5001);
    assert_eq!(engine.get(b"before").unwrap().unwrap().version, Seqno(1));
    assert_eq!(log(&engine).len(), 1);
    assert!(!copy.join("run.7.sst").exists());
}
