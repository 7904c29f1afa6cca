//! Leases: locks that belong to them, and commits that wait for strict sessions.

use super::relay::{Mode, Relay};
use super::sessions::{wait_for, watch};
use super::{OwnServer, Volume, open, put, shared};
use crate::{RemoteEngine, RemoteOptions};
use meta::{Engine, Ino, LockChange, News, Reader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// An inode whose locks are tested.
const INO: u64 = u64::MAX - 1;

fn replace(engine: &impl Engine, seen: Option<&[u8]>, new: Option<&[u8]>) -> bool {
    engine.replace_locks(LockChange { ino: INO, seen, new, wakes: true }).unwrap().0
}

fn held(engine: &impl Engine) -> Option<Vec<u8>> {
    engine.locks_of(INO).unwrap().held
}

/// Locks are replaced only if they are those that the session has seen, and end with its lease. Other sessions are notified.
pub fn locks_belong_to_a_lease(volume: &impl Volume) {
    let (one, other) = (open(volume, shared("one")), open(volume, shared("other")));
    let news = watch(&other);
    // After the first commit that it reports, the other session is subscribed to notifications.
    wait_for(&news, one.commit(put("Xk", "1")).unwrap());
    assert_eq!(held(&one), None);
    assert!(replace(&one, None, Some(b"one")));
    assert!(!replace(&other, None, Some(b"other")));
    assert!(!replace(&other, Some(b"two"), None));
    assert_eq!(held(&other).as_deref(), Some(&b"one"[..]));
    assert!(replace(&other, Some(b"one"), Some(b"both")));
    assert!(!replace(&one, Some(b"one"), None));
    assert!(replace(&one, Some(b"both"), None));
    let unlocked = || news.recv_timeout(Duration::from_secs(20)).unwrap() == News::Unlocked(Ino(INO));
    while !unlocked() {}
    assert_eq!(held(&one), None);

    let lockers = |engine: &dyn Engine| engine.locks_of(INO).unwrap().lockers;
    let all = lockers(&other);
    assert_eq!(all.len(), 2);
    assert!(one.locker().is_some_and(|own| all.contains(&own)));
    assert!(other.locker().is_some_and(|own| all.contains(&own)));
    drop(one);
    assert_eq!(lockers(&other), [other.locker().unwrap()], "a session that ends has no locks");
    // The next session that is alone removes leftovers.
    replace(&other, None, Some(b"left"));
    drop(other);
    let again = open(volume, shared("again"));
    assert_eq!(held(&again), None);
    assert_eq!(
        open(volume, RemoteOptions { holder: "again".into(), ..RemoteOptions::default() }).locker(),
        None
    );
}

/// A session that shows no sign of life loses its locks after its time, and notices this.
pub fn locks_of_a_session_that_died_are_void(volume: &impl Volume) {
    let relay = Relay::start(volume.server());
    let database = volume.database_at(relay.address());
    let cut = RemoteEngine::open(database, RemoteOptions { budget: Duration::from_secs(1), ..shared("cut") });
    let (cut, other) = (cut.unwrap(), open(volume, shared("other")));
    let (sender, news) = mpsc::channel();
    cut.watch(Box::new(move |news| {
        if news == News::LocksLost {
            // The test may have ended.
            let _ = sender.send(());
        }
    }));
    let before = cut.locker().unwrap();
    assert!(replace(&cut, None, Some(b"cut")));
    relay.set(Mode::HoldRequests);
    news.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(cut.locker(), None, "it stops to trust its locks by itself");
    assert!(cut.replace_locks(LockChange { ino: INO, seen: None, new: None, wakes: false }).is_err());
    while other.locks_of(INO).unwrap().lockers.contains(&before) {
        thread::yield_now();
    }
    relay.set(Mode::Pass);
    let after = loop {
        if let Some(after) = cut.locker() {
            break after;
        }
        thread::yield_now();
    };
    assert!(after.session == before.session && after.epoch > before.epoch, "{before:?}, {after:?}");
    assert!(replace(&cut, Some(b"cut"), None));
}

/// A database that has lost its last changes has a released lock again, or lacks one that was taken. The locks of that time are void.
pub fn locks_end_when_the_database_has_lost_changes_of_them(volume: &impl OwnServer) {
    let (one, other) = (open(volume, shared("one")), open(volume, shared("other")));
    let news = watch(&one);
    for (kept, lost) in [(Some("released"), None), (None, Some("taken"))] {
        let before = one.locker().unwrap();
        let [kept, lost] = [kept, lost].map(|text: Option<&str>| text.map(str::as_bytes));
        assert!(replace(&one, held(&one).as_deref(), kept));
        volume.remember();
        assert!(replace(&one, kept, lost));
        volume.go_back();
        while news.recv_timeout(Duration::from_secs(30)).unwrap() != News::LocksLost {}
        one.wait_for_lease().unwrap();
        let now = other.locks_of(INO).unwrap();
        assert_eq!(now.held.as_deref(), kept);
        assert!(!now.lockers.contains(&before));
        assert!(one.locker().is_some_and(|after| after.epoch > before.epoch && now.lockers.contains(&after)));
    }
}

/// A replacement that reaches the server only after a later one of the same session is not applied.
pub fn a_replacement_of_locks_that_arrives_late_is_fenced(volume: &impl Volume) {
    let relay = Relay::start(volume.server());
    let engine = RemoteEngine::open(volume.database_at(relay.address()), shared("one")).unwrap();
    for _ in 0..10 {
        relay.set(Mode::HoldRequests);
        thread::scope(|scope| {
            let locked = scope.spawn(|| replace(&engine, None, Some(b"held")));
            thread::sleep(Duration::from_millis(20));
            // The held request is released at once with the new connection.
            relay.set(Mode::Pass);
            assert!(locked.join().unwrap());
        });
        assert!(replace(&engine, Some(b"held"), None));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(held(&engine), None);
    }
}

/// A commit is answered after each strict session has dropped its old records and has acknowledged it, and waits for no other session.
pub fn a_commit_waits_for_strict_sessions(volume: &impl Volume) {
    let strict = |name: &str| RemoteOptions { is_strict: true, ..shared(name) };
    let (one, lax) = (open(volume, shared("one")), open(volume, shared("lax")));
    let other = Arc::new(open(volume, strict("strict")));
    for round in 0..50 {
        let text = round.to_string();
        one.commit(put("Xk", &text)).unwrap();
        // The strict session reads from its cache, which is not old.
        assert_eq!(other.get(b"Xk").unwrap().unwrap().value.to_vec(), text.as_bytes());
        other.commit(put("Xk", "own")).unwrap();
    }
    // Commits wait for the owner of a strict engine, too.
    let (acknowledges, engine) = (Arc::new(AtomicBool::new(false)), Arc::downgrade(&other));
    let (sender, news) = mpsc::channel();
    let has_notified = acknowledges.clone();
    other.watch(Box::new(move |news| {
        if let News::Commits { to, .. } = news {
            // The test may have ended.
            let _ = sender.send(to);
            if has_notified.load(Ordering::SeqCst)
                && let Some(engine) = engine.upgrade()
            {
                engine.acknowledge(to);
            }
        }
    }));
    let is_answered = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            one.commit(put("Xk", "awaited")).unwrap();
            is_answered.store(true, Ordering::SeqCst);
        });
        let to = news.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(lax.get_newest(b"Xk").unwrap().unwrap().value.to_vec(), b"awaited");
        assert!(!is_answered.load(Ordering::SeqCst));
        acknowledges.store(true, Ordering::SeqCst);
        other.acknowledge(to);
    });
    one.commit(put("Xk", "again")).unwrap();
    drop(other);
    one.commit(put("Xk", "without a strict session")).unwrap();
}
