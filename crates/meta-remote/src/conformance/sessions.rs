//! Sessions: lost answers, lost servers, lost commits, exclusive access.

use super::relay::{Mode, Relay};
use super::{CONTEXT, OwnServer, Volume, impatient, open, open_with_log, put, shared, table, try_open};
use crate::{Database, OpenError, RemoteEngine, RemoteOptions};
use meta::codec::{decode_inode, encode_inode};
use meta::conformance::directory;
use meta::{
    Commit, CommitError, Engine, EngineError, Ino, Kind, Merge, Name, Namespace, News, Op, Reader, Seqno,
    schema,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use store::Entropy;

/// Returns a commit that adds a link to the directory. A second application of it would be noticed.
fn add_link() -> Commit {
    Commit { merges: vec![(schema::inode(Ino(1)), Merge::links(1))], ..Commit::default() }
}

fn put_directory(engine: &impl Engine) {
    let puts = vec![(schema::inode(Ino(1)), encode_inode(&directory(1)).into())];
    engine.commit(Commit { puts, ..Commit::default() }).unwrap();
}

/// Returns how many links were added to the directory.
fn links(engine: &impl Engine) -> u32 {
    let found = engine.get(&schema::inode(Ino(1))).unwrap().unwrap();
    decode_inode(Ino(1), &found.value).unwrap().inode.nlink - 2
}

/// A commit whose answer is lost is made once.
pub fn a_commit_whose_answer_is_lost_is_made_once(volume: &impl Volume) {
    let relay = Relay::start(volume.server());
    let engine = RemoteEngine::open(volume.database_at(relay.address()), RemoteOptions::default()).unwrap();
    put_directory(&engine);
    let is_done = AtomicBool::new(false);
    let commits = thread::scope(|scope| {
        scope.spawn(|| lose_answers(&relay, &is_done));
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..150).for_each(|_| assert!(engine.commit(add_link()).is_ok()))))
            .collect();
        let commits = threads.into_iter().map(|thread| thread.join().map(|()| 150).unwrap()).sum::<u32>();
        is_done.store(true, Ordering::SeqCst);
        commits
    });
    assert_eq!(links(&engine), commits);
}

/// Loses answers again and again for a short time.
fn lose_answers(relay: &Relay, is_done: &AtomicBool) {
    let entropy = Entropy::new(5);
    while !is_done.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(entropy.below(40)));
        relay.set(Mode::LoseAnswers);
        thread::sleep(Duration::from_millis(entropy.below(10)));
        relay.set(Mode::Pass);
    }
}

/// A transaction that reaches the server only after its outcome was looked up, and after it was sent again, is not applied.
pub fn a_transaction_that_arrives_late_is_fenced(volume: &impl Volume) {
    let relay = Relay::start(volume.server());
    let engine = RemoteEngine::open(volume.database_at(relay.address()), RemoteOptions::default()).unwrap();
    put_directory(&engine);
    for round in 1..=10 {
        relay.set(Mode::HoldRequests);
        thread::scope(|scope| {
            let commit = scope.spawn(|| engine.commit(add_link()).unwrap());
            thread::sleep(Duration::from_millis(20));
            // The held request is released at once with the new connection.
            relay.set(Mode::Pass);
            commit.join().unwrap();
        });
        thread::sleep(Duration::from_millis(20));
        assert_eq!(links(&engine), round);
    }
}

/// Calls fail after their budget, and succeed again without opening the engine again.
pub fn calls_fail_after_their_budget_and_succeed_again(volume: &impl OwnServer) {
    let engine = open(volume, impatient());
    engine.commit(put("before", "1")).unwrap();
    volume.stop();
    let unavailable = |error| matches!(error, EngineError::Unavailable(_) | EngineError::Uncertain(_));
    assert!(engine.get(b"before").is_err_and(unavailable));
    assert!(
        matches!(engine.commit(put("lost", "1")), Err(CommitError::Engine(error)) if unavailable(error.clone()))
    );
    volume.restart();
    assert!(engine.get(b"before").unwrap().is_some());
    engine.commit(put("after", "1")).unwrap();
    let keys: Vec<_> = table(&engine).into_iter().map(|(key, _)| key).filter(|key| key != b"lost").collect();
    assert_eq!(keys, [b"after".to_vec(), b"before".to_vec()]);
}

/// One session has exclusive access.
pub fn one_session_has_exclusive_access(volume: &impl Volume) {
    let holder = |name: &str| RemoteOptions { holder: name.into(), ..impatient() };
    let first = open(volume, holder("one"));
    first.commit(put("k", "1")).unwrap();
    let refused = try_open(volume, holder("other")).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { holder, .. } if holder == "one"), "{refused}");
    assert!(matches!(
        try_open(volume, RemoteOptions { is_exclusive: false, ..holder("third") }),
        Err(OpenError::InUse { .. })
    ));
    // This process, restarted: its earlier session can commit no more.
    let second = open(volume, holder("one"));
    let fenced = first.commit(put("k", "2")).unwrap_err().to_string();
    assert!(fenced.contains("taken the volume over"), "{fenced}");
    second.commit(put("k", "3")).unwrap();
    assert_eq!(&*second.get(b"k").unwrap().unwrap().value, b"3");
    drop(second);
    open(volume, holder("other"));
}

/// A session that is silent loses its access.
pub fn a_session_that_is_silent_loses_its_access(volume: &impl Volume) {
    let holder = |name: &str| RemoteOptions { holder: name.into(), ..impatient() };
    let first = open(volume, holder("one"));
    volume.silence_sessions(31);
    let second = open(volume, holder("other"));
    second.commit(put("k", "1")).unwrap();
    assert!(first.commit(put("k", "2")).is_err());
    // Regression: a session that shares the volume left the row of the silent one, which could then commit without following others.
    volume.silence_sessions(31);
    let third = open(volume, RemoteOptions { is_exclusive: false, ..holder("third") });
    third.commit(put("k", "3")).unwrap();
    assert!(second.commit(put("k", "4")).is_err());
}

/// Sessions without exclusive access see each other's commits and conflicts, also of records that they have cached.
pub fn sessions_share_a_volume(volume: &impl Volume) {
    let engines = [open_with_log(volume, shared("one")), open_with_log(volume, shared("other"))];
    engines[0].commit(put("Xn", "0")).unwrap();
    thread::scope(|scope| {
        for engine in engines.iter().cycle().take(4) {
            scope.spawn(|| (0..50).for_each(|_| increment(engine)));
        }
    });
    for engine in &engines {
        assert_eq!(&*engine.get_newest(b"Xn").unwrap().unwrap().value, b"200");
        assert_eq!(&*engine.get(b"Xn").unwrap().unwrap().value, b"200");
    }
}

fn increment(engine: &impl Engine) {
    loop {
        let found = engine.get(b"Xn").unwrap().unwrap();
        let number: u64 = String::from_utf8_lossy(&found.value).parse().unwrap();
        let condition = meta::Condition::Version { key: b"Xn".to_vec(), version: found.version };
        match engine.commit(Commit { conditions: vec![condition], ..put("Xn", &(number + 1).to_string()) }) {
            Ok(_) => return,
            Err(CommitError::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns a channel with the notifications of an engine about other sessions.
pub(super) fn watch(engine: &impl Engine) -> mpsc::Receiver<News> {
    let (sender, followed) = mpsc::channel();
    engine.watch(Box::new(move |news| {
        // The test may have ended.
        let _ = sender.send(news);
    }));
    followed
}

pub(super) fn wait_for(followed: &mpsc::Receiver<News>, commit: Seqno) {
    loop {
        match followed.recv_timeout(Duration::from_secs(10)).unwrap() {
            News::Commits { to, .. } | News::Everything { to } if to >= commit => return,
            _ => {}
        }
    }
}

/// Cached records are dropped when another session changes them.
pub fn cached_records_are_dropped_when_another_session_changes_them<V: Volume>(volume: &V) {
    let (one, other) = (open(volume, shared("one")), open(volume, shared("other")));
    let followed = watch(&other);
    let (dir, entry) = (schema::inode(Ino(1)), "Dentry");
    put_directory(&one);
    wait_for(&followed, one.commit(put(entry, "1")).unwrap());
    let read = |engine: &RemoteEngine<V::Database>| {
        let (dir, entry) = (engine.get(&dir).unwrap(), engine.get(entry.as_bytes()).unwrap());
        (
            dir.map(|found| decode_inode(Ino(1), &found.value).unwrap().inode.nlink),
            entry.map(|found| found.value),
        )
    };
    let trips = |engine: &RemoteEngine<V::Database>, expected| {
        let before = engine.round_trips();
        let found = read(engine);
        assert_eq!(engine.round_trips() - before, expected);
        found
    };
    assert_eq!(trips(&other, 2), (Some(2), Some((*b"1").into())));
    assert_eq!(trips(&other, 0), (Some(2), Some((*b"1").into())));
    // Merges of both sessions.
    wait_for(&followed, one.commit(add_link()).unwrap());
    assert_eq!(trips(&other, 1).0, Some(3));
    other.commit(add_link()).unwrap();
    assert_eq!(trips(&other, 0).0, Some(4), "its own merges need no read");
    let removed = Commit { deletes: vec![entry.into()], ..Commit::default() };
    wait_for(&followed, one.commit(removed).unwrap());
    assert_eq!(trips(&other, 1), (Some(4), None));
    assert_eq!(trips(&other, 0), (Some(4), None), "absence is cached");
    assert_eq!(trips(&one, 1), (Some(4), None), "the merge of the other session was followed");
}

/// An own merge into a cached record that another session has changed meanwhile made an old record look new.
pub fn a_merge_does_not_hide_a_change_of_another_session(volume: &impl Volume) {
    let (one, other) = (open(volume, shared("one")), open(volume, shared("other")));
    put_directory(&one);
    let key = schema::inode(Ino(1));
    for round in 0..50 {
        one.get(&key).unwrap();
        let found = other.get_newest(&key).unwrap().unwrap();
        let mut inode = decode_inode(Ino(1), &found.value).unwrap().inode;
        inode.mode = round;
        let puts = vec![(key.clone(), encode_inode(&inode).into())];
        other.commit(Commit { puts, ..Commit::default() }).unwrap();
        let merged = one.commit(add_link()).unwrap();
        let found = one.get(&key).unwrap().unwrap();
        let inode = decode_inode(Ino(1), &found.value).unwrap().inode;
        assert!(found.version < merged || inode.mode == round, "version {} is older", found.version.0);
    }
}

/// Exclusive access waits for sessions that are alive.
pub fn exclusive_access_waits_for_sessions_that_are_alive(volume: &impl Volume) {
    let first = open(volume, shared("one"));
    assert!(first.is_shared() && first.is_alone().unwrap());
    let second = open(volume, shared("other"));
    assert!(!first.is_alone().unwrap() && !second.is_alone().unwrap());
    let exclusive = || RemoteOptions { holder: "gc".into(), ..impatient() };
    assert!(matches!(try_open(volume, exclusive()), Err(OpenError::InUse { .. })));
    drop((first, second));
    let gc = open(volume, exclusive());
    assert!(matches!(try_open(volume, shared("one")), Err(OpenError::InUse { .. })));
    drop(gc);
    let again = open(volume, shared("one"));
    again.commit(put("k", "1")).unwrap();
    // A restart of the process.
    let restarted = open(volume, shared("one"));
    assert!(again.commit(put("k", "2")).is_err() && restarted.is_alone().unwrap());
}

/// Regression: a session without commits did not connect again after the database was restarted, and so ended after a time.
pub fn an_idle_session_stays_alive_after_a_restart(volume: &impl OwnServer) {
    let idle = open(volume, shared("idle"));
    volume.stop();
    volume.restart();
    let other = open(volume, shared("other"));
    // Longer ago than any session may be silent.
    volume.silence_sessions(1000);
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            while other.is_alone().unwrap() {
                thread::yield_now();
            }
            let _ = sender.send(());
        });
        ended.recv_timeout(Duration::from_secs(30)).unwrap();
    });
    idle.commit(put("Xk", "1")).unwrap();
}

/// A database that has lost acknowledged commits is used further, from its own state: all caches are dropped, and watchers are notified.
pub fn a_database_that_has_lost_commits_is_used_on(volume: &impl OwnServer) {
    let (one, other) = (open(volume, shared("one")), open(volume, shared("other")));
    let (told_one, told_other) = (watch(&one), watch(&other));
    let value = |engine: &dyn Engine| engine.get(b"Xk").unwrap().map(|found| found.value.to_vec());
    one.commit(put("Xk", "kept")).unwrap();
    volume.remember();
    for lost in 0..5 {
        wait_for(&told_other, one.commit(put("Xk", &format!("lost {lost}"))).unwrap());
    }
    let head = other.head();
    assert_eq!((value(&one), value(&other)), (Some(b"lost 4".to_vec()), Some(b"lost 4".to_vec())));
    volume.go_back();
    let is_everything = |news: &News| matches!(news, News::Everything { .. });
    let wait = |news: &mpsc::Receiver<News>| {
        while !is_everything(&news.recv_timeout(Duration::from_secs(20)).unwrap()) {}
    };
    // The first call sees it, or the follower before.
    let new = one.commit(put("Xnew", "1")).unwrap();
    assert!(new < head && one.head() < head, "{new:?}, {head:?}");
    wait(&told_one);
    wait(&told_other);
    assert_eq!((value(&one), value(&other)), (Some(b"kept".to_vec()), Some(b"kept".to_vec())));
    // From now on both follow each other as before.
    for number in 0..10 {
        let text = number.to_string();
        wait_for(&told_other, one.commit(put("Xk", &text)).unwrap());
        assert_eq!(other.get(b"Xk").unwrap().unwrap().value.to_vec(), text.as_bytes());
    }
    other.commit(put("Xother", "1")).unwrap();
    drop((one, other));
    assert_eq!(table(&open(volume, RemoteOptions::default())).len(), 3);
}

/// A namespace whose lease of inode numbers the database has lost changes nothing any more, as another one may have the same numbers.
pub fn a_namespace_without_its_inode_numbers_changes_nothing(volume: &impl OwnServer) {
    let begin = |engine: RemoteEngine<_>| Namespace::new(Arc::new(engine), &CONTEXT).unwrap();
    let kept = begin(open(volume, shared("kept")));
    let one = open(volume, shared("one"));
    volume.remember();
    let lost = begin(one);
    let mkdir = |namespace: &Namespace, name: &str| {
        let ino = namespace.allocate(Ino::ROOT, 1)[0];
        let (name, kind) = (Name::new(name.as_bytes()).unwrap(), Kind::Directory);
        let (parent, mode, umask, uid, gid, rdev) = (Ino::ROOT, 0o755, 0, 0, 0, 0);
        let op = Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target: None };
        namespace.commit(&CONTEXT, &op).map(drop)
    };
    mkdir(&lost, "lost").unwrap();
    volume.go_back();
    let other = begin(open(volume, shared("other")));
    assert_eq!(other.mount(), lost.mount());
    for name in ["a", "b"] {
        let refused = mkdir(&lost, name);
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("mount it again"), "{text}");
    }
    mkdir(&other, "a").unwrap();
    mkdir(&kept, "b").unwrap();
    drop(lost);
    mkdir(&begin(open(volume, shared("one"))), "c").unwrap();
}

/// Metadata that is missing, or there already, is a clear line.
pub fn metadata_is_made_once(volume: &impl Volume) {
    let again = RemoteEngine::create(volume.database());
    assert!(matches!(again, Err(OpenError::Exists(place)) if place == volume.database().place()));
    drop(open(volume, RemoteOptions::default()));
    RemoteEngine::remove(volume.database()).unwrap();
    assert!(matches!(try_open(volume, RemoteOptions::default()), Err(OpenError::Missing(_))));
    RemoteEngine::create(volume.database()).unwrap();
    drop(open(volume, RemoteOptions::default()));
}
