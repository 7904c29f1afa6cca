//! Several threads on one engine.

use crate::fixture::{CONTEXT, log, open_with_log, table};
use meta::conformance::replayed;
use meta::{Engine, Ino, Kind, Name, Namespace, Op, Seqno, invariants};
use std::sync::Arc;
use std::thread;

on_each_layer! {
    eight_threads_create_in_one_directory
    a_consumer_reads_every_commit_once
}

const THREADS: usize = 8;
const FILES: usize = 150;

fn create(namespace: &Namespace, name: &str) {
    let ino = namespace.allocate(Ino::ROOT, 1)[0];
    let name = Name::new(name.as_bytes()).unwrap();
    let (kind, target) = (Kind::Directory, None);
    let op = Op::Create {
        parent: Ino::ROOT,
        name,
        ino,
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        umask: 0,
        rdev: 0,
        target,
    };
    namespace.commit(&CONTEXT, &op).unwrap();
}

fn eight_threads_create_in_one_directory() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Arc::new(open_with_log(folder.path()));
    let namespace = Namespace::new(engine.clone(), &CONTEXT).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let namespace = &namespace;
            scope.spawn(move || (0..FILES).for_each(|n| create(namespace, &format!("{thread}-{n}"))));
        }
        scope.spawn(|| (0..20).for_each(|_| engine.sync().unwrap()));
    });
    assert_eq!(namespace.entries(Ino::ROOT, None, usize::MAX).unwrap().len(), THREADS * FILES);
    assert_eq!(namespace.inode(Ino::ROOT).unwrap().nlink as usize, 2 + THREADS * FILES);
    assert_eq!(invariants::fsck(&*engine).unwrap(), vec![]);

    let ops = log(&*engine);
    assert!(ops.is_sorted_by_key(|logged| logged.seqno));
    assert_eq!(table(&replayed(&ops).unwrap()), table(&*engine));
}

/// A consumer that follows the log reads each op exactly once, also while the log before its cursor is cut off.
fn a_consumer_reads_every_commit_once() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open_with_log(folder.path());
    const COMMITS: u64 = 3000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COMMITS {
                let ops = vec![crate::fixture::purge(number)];
                engine.commit(meta::Commit { ops, ..crate::fixture::put("k", "v") }).unwrap();
            }
        });
        let mut cursor = Seqno(0);
        let mut seen = Vec::new();
        while seen.len() < COMMITS as usize {
            let page = engine.log_after(cursor, 64).unwrap();
            let Some(last) = page.last() else {
                thread::yield_now();
                continue;
            };
            cursor = last.seqno;
            engine.advance(crate::fixture::ALL, cursor).unwrap();
            seen.extend(page.into_iter().map(|logged| logged.op));
        }
        assert!(seen.into_iter().eq((0..COMMITS).map(|number| crate::fixture::purge(number).op)));
    });
}
