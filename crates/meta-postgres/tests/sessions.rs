//! Sessions: lost answers, lost servers, exclusive access, versions of the tables.

use crate::fixture::{Volume, impatient, put, shared_server, table};
use crate::relay::{Mode, Relay};
use meta::codec::{decode_inode, encode_inode};
use meta::conformance::directory;
use meta::{Commit, CommitError, Engine, EngineError, Ino, Merge, Reader, schema};
use meta_postgres::{Address, OpenError, PostgresEngine, PostgresOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use store::Entropy;

/// Returns a commit that adds a link to the directory. A second application of it would be noticed.
fn add_link() -> Commit {
    Commit { merges: vec![(schema::inode(Ino(1)), Merge::links(1))], ..Commit::default() }
}

fn put_directory(engine: &PostgresEngine) {
    let puts = vec![(schema::inode(Ino(1)), encode_inode(&directory(1)).into())];
    engine.commit(Commit { puts, ..Commit::default() }).unwrap();
}

/// Returns how many links were added to the directory.
fn links(engine: &PostgresEngine) -> u32 {
    let found = engine.get(&schema::inode(Ino(1))).unwrap().unwrap();
    decode_inode(Ino(1), &found.value).unwrap().inode.nlink - 2
}

fn behind(relay: &Relay, server: &servers::Postgres) -> Volume {
    Volume::at(&format!("postgres://tenon@{}/tenon", relay.address()), server)
}

#[test]
fn a_commit_whose_answer_is_lost_is_made_once() {
    let server = shared_server();
    let relay = Relay::start(server.address());
    let engine = behind(&relay, server).open(PostgresOptions::default());
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
#[test]
fn a_transaction_that_arrives_late_is_fenced() {
    let server = shared_server();
    let relay = Relay::start(server.address());
    let engine = behind(&relay, server).open(PostgresOptions::default());
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

#[test]
fn calls_fail_after_their_budget_and_succeed_again_without_reopening() {
    let mut server = servers::postgres();
    let engine = Volume::on(&server).open(impatient());
    engine.commit(put("before", "1")).unwrap();
    server.stop();
    let unavailable = |error| matches!(error, EngineError::Unavailable(_) | EngineError::Uncertain(_));
    assert!(engine.get(b"before").is_err_and(unavailable));
    assert!(
        matches!(engine.commit(put("lost", "1")), Err(CommitError::Engine(error)) if unavailable(error.clone()))
    );
    server.restart();
    assert!(engine.get(b"before").unwrap().is_some());
    engine.commit(put("after", "1")).unwrap();
    let keys: Vec<_> = table(&engine).into_iter().map(|(key, _)| key).filter(|key| key != b"lost").collect();
    assert_eq!(keys, [b"after".to_vec(), b"before".to_vec()]);
}

#[test]
fn one_session_has_exclusive_access() {
    let volume = Volume::new();
    let holder = |name: &str| PostgresOptions { holder: name.into(), ..impatient() };
    let first = volume.open(holder("one"));
    first.commit(put("k", "1")).unwrap();
    let refused = volume.try_open(holder("other")).unwrap_err();
    assert!(matches!(&refused, OpenError::InUse { holder, .. } if holder == "one"), "{refused}");
    assert!(matches!(
        volume.try_open(PostgresOptions { is_exclusive: false, ..holder("third") }),
        Err(OpenError::InUse { .. })
    ));
    // This process, restarted: its earlier session can commit no more.
    let second = volume.open(holder("one"));
    let fenced = first.commit(put("k", "2")).unwrap_err().to_string();
    assert!(fenced.contains("taken the volume over"), "{fenced}");
    second.commit(put("k", "3")).unwrap();
    assert_eq!(&*second.get(b"k").unwrap().unwrap().value, b"3");
    drop(second);
    volume.open(holder("other"));
}

#[test]
fn a_session_that_is_silent_loses_its_access() {
    let volume = Volume::new();
    let holder = |name: &str| PostgresOptions { holder: name.into(), ..impatient() };
    let first = volume.open(holder("one"));
    volume.psql("UPDATE session SET used_at = used_at - interval '31 s'");
    let second = volume.open(holder("other"));
    second.commit(put("k", "1")).unwrap();
    assert!(first.commit(put("k", "2")).is_err());
}

/// Two sessions without exclusive access see each other's commits, and their conflicts.
#[test]
fn sessions_share_a_volume() {
    let volume = Volume::new();
    let shared = || PostgresOptions { is_exclusive: false, ..PostgresOptions::default() };
    let engines = [volume.open_with_log(shared()), volume.open_with_log(shared())];
    engines[0].commit(put("n", "0")).unwrap();
    thread::scope(|scope| {
        for engine in engines.iter().cycle().take(4) {
            scope.spawn(|| (0..50).for_each(|_| increment(engine)));
        }
    });
    assert_eq!(&*engines[0].get(b"n").unwrap().unwrap().value, b"200");
}

fn increment(engine: &PostgresEngine) {
    loop {
        let found = engine.get(b"n").unwrap().unwrap();
        let number: u64 = String::from_utf8_lossy(&found.value).parse().unwrap();
        let condition = meta::Condition::Version { key: b"n".to_vec(), version: found.version };
        match engine.commit(Commit { conditions: vec![condition], ..put("n", &(number + 1).to_string()) }) {
            Ok(_) => return,
            Err(CommitError::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_database_that_has_lost_commits_is_not_used_any_more() {
    // A server of its own: the test ends all connections.
    let server = servers::postgres();
    let volume = Volume::on(&server);
    let engine = volume.open(impatient());
    (0..3).for_each(|_| assert!(engine.commit(put("k", "1")).is_ok()));
    volume.psql("UPDATE head SET head = head - 1");
    volume.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenon' AND pid <> pg_backend_pid()");
    let refused = engine.commit(put("k", "2")).unwrap_err().to_string();
    assert!(refused.contains("has lost commits"), "{refused}");
    assert_eq!(engine.commit(put("k", "2")).unwrap_err().to_string(), refused);
}

#[test]
fn tables_of_other_versions_are_refused_or_migrated() {
    let volume = Volume::new();
    volume.psql("UPDATE version SET number = 99");
    let newer = volume.try_open(PostgresOptions::default()).unwrap_err().to_string();
    assert!(newer.contains("version 99") && newer.contains("newer Tenon"), "{newer}");
    let server = shared_server();
    let address = Address::parse(&server.url()).unwrap();
    let open =
        || PostgresEngine::open(&address, Some(server.password()), "0000a", PostgresOptions::default());
    assert!(matches!(open(), Err(OpenError::Missing(_))));
    PostgresEngine::create(&address, Some(server.password()), "0000a").unwrap();
    let again = PostgresEngine::create(&address, Some(server.password()), "0000a");
    assert!(matches!(again, Err(OpenError::Exists(_))));
    drop(open().unwrap());
    PostgresEngine::remove(&address, Some(server.password()), "0000a").unwrap();
    assert!(matches!(open(), Err(OpenError::Missing(_))));
}

#[test]
fn wrong_credentials_are_one_clear_line() {
    let server = shared_server();
    let address = Address::parse(&server.url()).unwrap();
    let wrong = "not-the-password";
    let refused = PostgresEngine::create(&address, Some(wrong), "0000b").unwrap_err().to_string();
    assert!(refused.contains("password authentication failed") && !refused.contains(wrong), "{refused}");
    assert_eq!(refused.lines().count(), 1);
    let missing = PostgresEngine::create(&address, None, "0000b").unwrap_err().to_string();
    assert!(missing.contains("password"), "{missing}");
}
