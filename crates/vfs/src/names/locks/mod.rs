//! Advisory locks of byte ranges, by owner (fcntl_locking(2)), shared by front ends that do not see each other's locks.
//!
//! Owns the held locks, the waiters, and their order: a lock that conflicts with no held lock is granted at once; among
//! waiters, the first one without a conflict is served first. A lock of an open file (flock(2)) is a lock of all bytes here.
//!
//! Does not know when an owner ends: the front end that took the locks releases them. The number of an owner may be reused as
//! soon as its open file is closed, and a front end may learn of that close later. Each lock therefore refers to its open file,
//! whose number is never reused.
//!
//! Locks that hold for all sessions of a shared engine are in [`shared_locks`].
//!
//! Invariant: no waiter is without a conflict, and there is no cycle of waiting owners.

pub(crate) mod shared_locks;
mod stored;
mod table;

use meta::{Engine, Ino};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

use crate::{Error, Handle, Result};
use shared_locks::SharedLocks;
use table::Held;
pub use table::{Lock, LockKind, LockOwner};

/// Maximum locks and waiters of one file.
const LOCKS_MAX: usize = 1 << 16;

/// Locks of a mount.
#[derive(Debug)]
pub(crate) struct LockTables {
    /// Locks that hold in this process only.
    pub(crate) here: Locks,
    /// Locks that hold for all sessions, if the engine is shared.
    pub(crate) shared: Option<SharedLocks>,
}

impl LockTables {
    pub(crate) fn new(engine: &Arc<dyn Engine>) -> Self {
        let shared = engine.is_shared().then(|| SharedLocks::new(engine.clone()));
        Self { here: Locks::default(), shared }
    }
}

/// Locks of all files.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: HashMap<Ino, FileLocks>,
    /// Number of waits so far, from which each waiter gets its number.
    waits: u64,
}

/// Locks of one file.
#[derive(Debug, Default)]
struct FileLocks {
    /// Locks that are held.
    held: Held,
    /// Waiters in order; the first one is served first.
    queue: VecDeque<Waiter>,
    /// Open files whose locks may be about to end.
    ending: HashSet<Handle>,
}

#[derive(Debug)]
struct Waiter {
    /// The number of the wait.
    number: u64,
    wanted: Lock,
    /// Reports to the waiter that it has the lock.
    granted: oneshot::Sender<()>,
}

impl Locks {
    /// Returns a held lock that conflicts with this one; `None` if there is none.
    pub(crate) fn against(&self, ino: Ino, wanted: &Lock) -> Option<Lock> {
        self.lock().files.get(&ino)?.held.against(wanted).next().copied()
    }

    /// Takes a lock if it conflicts with no other owner's. It replaces what its owner holds in its range.
    ///
    /// # Errors
    /// EAGAIN if another owner holds a conflicting lock, ENOLCK if there are too many locks.
    pub(crate) fn try_take(&self, ino: Ino, wanted: Lock) -> Result<()> {
        self.lock().take(ino, wanted)
    }

    /// Like `try_take`, but waits until no lock conflicts, or until `given_up` completes.
    ///
    /// # Errors
    /// EINTR if the wait was given up, EDEADLK if a holder waits for this owner, directly or through others, ENOLCK if there are
    /// too many locks.
    pub(crate) async fn take(
        &self,
        ino: Ino,
        wanted: Lock,
        given_up: impl Future<Output = ()>,
    ) -> Result<()> {
        let (waiting, granted) = {
            let mut state = self.lock();
            match state.take(ino, wanted) {
                Err(error) if error.errno() == libc::EAGAIN => {}
                taken => return taken,
            }
            if state.would_deadlock(ino, &wanted) {
                return Err(DEADLOCK);
            }
            let (number, granted) = state.wait(ino, wanted);
            (WaitGuard { locks: self, ino, number }, granted)
        };
        tokio::select! {
            biased;
            granted = granted => granted.map_err(|_| INTERRUPTED),
            () = given_up => match waiting.withdraw() {
                true => Err(INTERRUPTED),
                // The lock was granted meanwhile.
                false => Ok(()),
            },
        }
    }

    /// Releases an owner's locks in a range.
    pub(crate) fn release(&self, ino: Ino, owner: LockOwner, first: u64, last: u64) {
        self.change(ino, |file| file.held.clear(owner, first, last));
    }

    /// Releases all locks of an owner on a file.
    pub(crate) fn release_all(&self, ino: Ino, owner: LockOwner) {
        self.change(ino, |file| file.held.drop_all(|held| held.owner == owner));
    }

    /// Releases all locks that were taken through an open file, which is now closed.
    pub(crate) fn closed(&self, ino: Ino, handle: Handle) {
        self.change(ino, |file| {
            file.held.drop_all(|held| held.handle == handle);
            file.ending.remove(&handle);
        });
    }

    /// Records that one descriptor of an open file was closed. It may have been the last one.
    pub(crate) fn may_end(&self, ino: Ino, handle: Handle) {
        self.change(ino, |file| {
            file.ending.insert(handle);
        });
    }

    /// Returns whether all conflicting locks may be about to end, as descriptors of their open files were closed.
    pub(crate) fn may_be_free_soon(&self, ino: Ino, wanted: &Lock) -> bool {
        let state = self.lock();
        let Some(file) = state.files.get(&ino) else { return true };
        file.held.against(wanted).all(|held| file.ending.contains(&held.handle))
    }

    /// Releases all locks of a session. Its waiters get EINTR.
    pub(crate) fn end_session(&self, session: u64) {
        let mut state = self.lock();
        for file in state.files.values_mut() {
            file.queue.retain(|waiter| waiter.wanted.owner.session != session);
            file.held.drop_all(|held| held.owner.session == session);
            file.grant_waiters();
        }
        state.files.retain(|_, file| !file.is_empty());
    }

    /// Changes the locks of a file, and grants locks to waiters that no longer conflict. Does nothing for a file
    /// without locks.
    fn change(&self, ino: Ino, change: impl FnOnce(&mut FileLocks)) {
        let mut state = self.lock();
        let Some(file) = state.files.get_mut(&ino) else { return };
        change(file);
        file.grant_waiters();
        if file.is_empty() {
            state.files.remove(&ino);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a wait for a lock that was given up.
const INTERRUPTED: Error = Error::new(libc::EINTR, "the wait for a lock was interrupted");

/// The error of a wait that would have no end.
const DEADLOCK: Error = Error::new(libc::EDEADLK, "deadlock: the holder of the lock waits for this owner");

impl State {
    /// Takes a lock if it conflicts with none of another owner. Does not wait.
    fn take(&mut self, ino: Ino, wanted: Lock) -> Result<()> {
        if let Some(file) = self.files.get(&ino) {
            if file.held.len() + file.queue.len() >= LOCKS_MAX {
                return Err(Error::new(libc::ENOLCK, "the file has too many locks"));
            }
            if file.held.against(&wanted).next().is_some() {
                return Err(Error::new(libc::EAGAIN, "another owner holds a conflicting lock"));
            }
        }
        let file = self.files.entry(ino).or_default();
        file.held.set(wanted);
        file.ending.remove(&wanted.handle);
        // If a shared lock replaced an exclusive one, waiters may no longer conflict.
        file.grant_waiters();
        Ok(())
    }

    /// Adds a waiter to the end of the queue. Returns its number, and the receiver of the grant.
    fn wait(&mut self, ino: Ino, wanted: Lock) -> (u64, oneshot::Receiver<()>) {
        self.waits += 1;
        let (granted, is_granted) = oneshot::channel();
        let waiter = Waiter { number: self.waits, wanted, granted };
        self.files.entry(ino).or_default().queue.push_back(waiter);
        (self.waits, is_granted)
    }

    /// Returns whether a holder of a conflicting lock waits for the lock's owner, directly or through other owners.
    fn would_deadlock(&self, ino: Ino, wanted: &Lock) -> bool {
        let mut waiting: HashMap<LockOwner, Vec<(Ino, &Lock)>> = HashMap::new();
        for (ino, file) in &self.files {
            for Waiter { wanted, .. } in &file.queue {
                waiting.entry(wanted.owner).or_default().push((*ino, wanted));
            }
        }
        let mut seen = HashSet::new();
        let mut wants = vec![(ino, wanted)];
        while let Some((ino, want)) = wants.pop() {
            for holder in self.files.get(&ino).into_iter().flat_map(|file| file.held.against(want)) {
                if holder.owner == wanted.owner {
                    return true;
                }
                if seen.insert(holder.owner) {
                    wants.extend(waiting.get(&holder.owner).into_iter().flatten());
                }
            }
        }
        false
    }
}

impl FileLocks {
    /// Grants locks to waiters without a conflict, in order.
    fn grant_waiters(&mut self) {
        let fits = |held: &Held, waiter: &Waiter| held.against(&waiter.wanted).next().is_none();
        while let Some(next) = self.queue.iter().position(|waiter| fits(&self.held, waiter)) {
            let Some(waiter) = self.queue.remove(next) else { return };
            if waiter.granted.send(()).is_ok() {
                self.held.set(waiter.wanted);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.held.len() == 0 && self.queue.is_empty()
    }
}

/// A place in the queue of waiters, which is given up on drop.
struct WaitGuard<'l> {
    locks: &'l Locks,
    ino: Ino,
    number: u64,
}

impl WaitGuard<'_> {
    /// Removes the waiter from the queue. Returns false if it is no longer there.
    fn withdraw(&self) -> bool {
        let mut was_there = false;
        self.locks.change(self.ino, |file| {
            let before = file.queue.len();
            file.queue.retain(|waiter| waiter.number != self.number);
            was_there = file.queue.len() < before;
        });
        was_there
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::FutureExt;
    use meta::Locker;
    use std::future::pending;
    use std::pin::Pin;
    use std::task::Poll;

    const FILE: Ino = Ino(7);
    const OTHER_FILE: Ino = Ino(8);

    fn lock(id: u64, first: u64, last: u64, kind: LockKind) -> Lock {
        Lock {
            owner: LockOwner { locker: Locker::default(), session: id % 2, id },
            handle: Handle(id),
            first,
            last,
            kind,
            pid: id as u32,
        }
    }

    fn exclusive(id: u64) -> Lock {
        lock(id, 0, u64::MAX, LockKind::Exclusive)
    }

    fn shared(id: u64) -> Lock {
        lock(id, 0, u64::MAX, LockKind::Shared)
    }

    type Take<'l> = Pin<Box<dyn Future<Output = Result<()>> + 'l>>;

    fn take(locks: &Locks, ino: Ino, wanted: Lock) -> Take<'_> {
        Box::pin(locks.take(ino, wanted, pending()))
    }

    fn is_done(take: &mut Take<'_>) -> bool {
        now(take).is_some_and(|outcome| outcome.is_ok())
    }

    /// Returns the outcome if it is available without waiting.
    fn now(take: impl Future<Output = Result<()>>) -> Option<Result<()>> {
        take.now_or_never()
    }

    fn errno(outcome: Result<()>) -> i32 {
        outcome.unwrap_err().errno()
    }

    #[test]
    fn waiters_are_served_in_order() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        let mut waits: Vec<Take<'_>> = (2..6).map(|id| take(&locks, FILE, exclusive(id))).collect();
        for wait in &mut waits {
            assert!(!is_done(wait));
        }
        assert_eq!(errno(locks.try_take(FILE, shared(9))), libc::EAGAIN);
        assert_eq!(locks.against(FILE, &shared(9)), Some(exclusive(1)));
        for (wait, holder) in waits.iter_mut().zip(1..) {
            locks.release_all(FILE, exclusive(holder).owner);
            assert!(is_done(wait), "{holder}");
            assert_eq!(locks.against(FILE, &shared(9)), Some(exclusive(holder + 1)));
        }
        locks.release(FILE, exclusive(5).owner, 0, u64::MAX);
        assert!(locks.lock().files.is_empty());
    }

    #[test]
    fn locks_without_a_conflict_are_granted_at_once() {
        let locks = Locks::default();
        locks.try_take(FILE, shared(1)).unwrap();
        let mut writer = take(&locks, FILE, exclusive(2));
        assert!(!is_done(&mut writer));
        locks.try_take(FILE, shared(3)).unwrap();
        locks.try_take(OTHER_FILE, exclusive(4)).unwrap();
        locks.release_all(FILE, shared(1).owner);
        assert!(!is_done(&mut writer));
        locks.release_all(FILE, shared(3).owner);
        assert!(is_done(&mut writer));
        // An exclusive lock that becomes a shared one admits waiters for shared locks.
        let mut reader = take(&locks, FILE, shared(5));
        assert!(!is_done(&mut reader));
        locks.try_take(FILE, shared(2)).unwrap();
        assert!(is_done(&mut reader));
    }

    #[tokio::test]
    async fn an_interrupted_waiter_neither_waits_nor_holds() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        let (give_up, given_up) = oneshot::channel::<()>();
        let mut waiting = Box::pin(locks.take(FILE, exclusive(2), async { drop(given_up.await) }));
        assert!(matches!(futures_util::poll!(&mut waiting), Poll::Pending));
        drop(give_up);
        assert_eq!(errno(waiting.await), libc::EINTR);
        assert!(now(take(&locks, FILE, exclusive(3))).is_none());
        locks.release_all(FILE, exclusive(1).owner);
        assert!(locks.lock().files.is_empty());
    }

    #[test]
    fn a_lock_granted_at_the_moment_of_interruption_is_held() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        let (number, _granted) = locks.lock().wait(FILE, exclusive(2));
        let waiting = WaitGuard { locks: &locks, ino: FILE, number };
        locks.release_all(FILE, exclusive(1).owner);
        assert!(!waiting.withdraw());
        assert_eq!(locks.against(FILE, &shared(9)), Some(exclusive(2)));
    }

    #[test]
    fn a_deadlock_is_refused() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        locks.try_take(OTHER_FILE, exclusive(2)).unwrap();
        locks.try_take(FILE, lock(3, 5, 5, LockKind::Shared)).unwrap_err();
        let mut one = take(&locks, OTHER_FILE, exclusive(1));
        assert!(!is_done(&mut one));
        let mut three = take(&locks, OTHER_FILE, exclusive(3));
        assert!(!is_done(&mut three));
        assert_eq!(errno(now(take(&locks, FILE, exclusive(2))).unwrap()), libc::EDEADLK);
        // A cycle through other owners.
        let far = Ino(9);
        locks.try_take(far, exclusive(3)).unwrap();
        let refused = now(take(&locks, far, shared(2))).unwrap();
        assert_eq!(errno(refused), libc::EDEADLK);
        locks.release_all(OTHER_FILE, exclusive(2).owner);
        assert!(is_done(&mut one));
    }

    #[test]
    fn the_end_of_a_session_releases_its_locks_and_waiters() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        locks.try_take(OTHER_FILE, exclusive(2)).unwrap();
        let mut same = take(&locks, OTHER_FILE, exclusive(3));
        let mut other = take(&locks, FILE, exclusive(4));
        assert!(!is_done(&mut same) && !is_done(&mut other));
        locks.end_session(1);
        assert!(is_done(&mut other));
        assert_eq!(errno(now(same).unwrap()), libc::EINTR);
        locks.end_session(0);
        assert!(locks.lock().files.is_empty());
    }

    #[test]
    fn a_lock_whose_descriptor_was_closed_may_be_about_to_end() {
        let locks = Locks::default();
        locks.try_take(FILE, shared(1)).unwrap();
        locks.try_take(FILE, shared(2)).unwrap();
        let wanted = exclusive(3);
        locks.may_end(FILE, shared(1).handle);
        assert!(!locks.may_be_free_soon(FILE, &wanted));
        locks.may_end(FILE, shared(2).handle);
        assert!(locks.may_be_free_soon(FILE, &wanted));
        // Only one of several descriptors was closed: the owner takes another lock.
        locks.try_take(FILE, shared(1)).unwrap();
        assert!(!locks.may_be_free_soon(FILE, &wanted));
        locks.release_all(FILE, shared(1).owner);
        locks.release_all(FILE, shared(2).owner);
        assert!(locks.lock().files.is_empty());
    }

    /// Regression: a kernel reuses the number of an owner whose open file it has closed, and reports the close later.
    #[test]
    fn a_late_close_keeps_the_locks_of_the_next_owner_with_that_number() {
        let locks = Locks::default();
        let (first, second) = (exclusive(1), Lock { handle: Handle(11), ..exclusive(1) });
        locks.try_take(FILE, first).unwrap();
        locks.may_end(FILE, first.handle);
        locks.try_take(FILE, second).unwrap();
        assert!(!locks.may_be_free_soon(FILE, &exclusive(2)));
        locks.closed(FILE, first.handle);
        assert_eq!(locks.against(FILE, &exclusive(2)), Some(second));
        locks.closed(FILE, second.handle);
        assert!(locks.lock().files.is_empty());
    }

    #[test]
    fn locks_are_bounded() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        let _waits: Vec<_> = (1..LOCKS_MAX).map(|_| locks.lock().wait(FILE, exclusive(2))).collect();
        let next = exclusive(3);
        let refused = now(take(&locks, FILE, next)).unwrap();
        assert_eq!(errno(refused), libc::ENOLCK);
        locks.try_take(OTHER_FILE, next).unwrap();
    }
}
