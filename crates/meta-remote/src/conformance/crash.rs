//! Crashes of the server under load.

use super::{ALL, CONTEXT, OwnServer, open, open_with_log};
use crate::{Database, RemoteEngine, RemoteOptions};
use meta::conformance::equals_replay;
use meta::{Engine, Ino, Kind, LogCap, Name, Namespace, Op, invariants};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use store::Entropy;

/// Number of times that the server is killed.
const KILLS: usize = 8;

/// The names of files whose creation was acknowledged.
type Acknowledged = Mutex<BTreeSet<String>>;

/// A killed server loses no acknowledged commit and makes none twice.
pub fn a_killed_server_loses_no_acknowledged_commit_and_makes_none_twice(volume: &impl OwnServer) {
    let engine = Arc::new(open_with_log(volume, RemoteOptions::default()));
    let namespace = Namespace::new(engine.clone(), &CONTEXT).unwrap();
    let (acknowledged, is_done) = (Acknowledged::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (namespace, acknowledged, is_done) = (&namespace, &acknowledged, &is_done);
            scope.spawn(move || create_and_remove(namespace, acknowledged, is_done, thread));
        }
        let entropy = Entropy::new(11);
        for _ in 0..KILLS {
            await_more(&acknowledged, 10 + entropy.below(60) as usize);
            volume.stop();
            thread::sleep(Duration::from_millis(entropy.below(200)));
            volume.restart();
        }
        await_more(&acknowledged, 10);
        is_done.store(true, Ordering::SeqCst);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() > 100, "{} files", acknowledged.len());
    assert_consistent(&engine, &acknowledged);
    drop((namespace, engine));
    assert_consistent(
        &open(volume, RemoteOptions { log_cap: LogCap::UNLIMITED, ..RemoteOptions::default() }),
        &acknowledged,
    );
}

/// Waits until this many more files were created.
fn await_more(acknowledged: &Acknowledged, count: usize) {
    let created = || acknowledged.lock().unwrap().len();
    let wanted = created() + count;
    while created() < wanted {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Creates files, and removes every second one, until the test is done.
fn create_and_remove(namespace: &Namespace, acknowledged: &Acknowledged, is_done: &AtomicBool, thread: u64) {
    for number in 0.. {
        if is_done.load(Ordering::SeqCst) {
            break;
        }
        let (parent, text) = (Ino::ROOT, format!("{thread}-{number}"));
        let name = Name::new(text.as_bytes()).unwrap();
        let ino = namespace.allocate(parent, 1)[0];
        let (kind, mode) = (Kind::File, 0o644);
        let create = Op::Create {
            parent,
            name: name.clone(),
            ino,
            kind,
            mode,
            uid: 0,
            gid: 0,
            umask: 0,
            rdev: 0,
            target: None,
        };
        namespace.commit(&CONTEXT, &create).unwrap();
        acknowledged.lock().unwrap().insert(text);
        if number % 2 == 0 {
            namespace.commit(&CONTEXT, &Op::Unlink { parent, name, keep: false }).unwrap();
        }
    }
}

/// Asserts that the invariants hold, that the tables equal a replay of the log, and that each acknowledged creation is in the log once.
fn assert_consistent<D: Database>(engine: &RemoteEngine<D>, acknowledged: &BTreeSet<String>) {
    assert_eq!(invariants::fsck(engine).unwrap(), vec![]);
    let log = engine.log_after(engine.cursor(ALL).unwrap(), usize::MAX).unwrap();
    let created = log.iter().filter_map(|logged| match &logged.op {
        Op::Create { name, .. } => Some(name.to_string()),
        _ => None,
    });
    let mut created: Vec<String> = created.collect();
    let count = created.len();
    created.sort();
    created.dedup();
    assert_eq!(created.len(), count, "a creation is in the log twice");
    assert!(
        acknowledged.iter().all(|name| created.binary_search(name).is_ok()),
        "an acknowledged creation is lost"
    );
    assert!(equals_replay(engine, &log).unwrap(), "the tables are not those of the log");
}
