//! Advisory locks over front ends that do not know of each other's: of ranges of files, by owner (fcntl_locking(2)).
//!
//! Owns who holds what, who waits, and in which order those who wait are served: a lock that fits beside those held is
//! given at once, and of those who wait the first whom nothing stands in the way of. A lock of a whole open file
//! (flock(2)) is a lock of all bytes here.
//!
//! Refuses: to know what ends an owner; whoever gave the locks takes them away. An owner's number may belong to another one
//! as soon as his open file is closed, and a front end may hear of that close later. Each lock therefore names its open
//! file, whose number is never given twice.
//!
//! Invariant: nobody waits whom nothing stands in the way of; no circle of owners waits for each other.

mod table;

use meta::Ino;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

use crate::{Error, Handle, Result};
use table::Held;
pub use table::{Lock, LockKind, LockOwner};

/// Locks and waits that one file may have.
const LOCKS_MAX: usize = 1 << 16;

/// The locks of all files.
#[derive(Debug, Default)]
pub struct Locks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: HashMap<Ino, FileLocks>,
    waits: u64,
}

#[derive(Debug, Default)]
struct FileLocks {
    held: Held,
    /// The first is the next.
    queue: VecDeque<Waiter>,
    /// Open files whose locks may be about to end.
    ending: HashSet<Handle>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    wanted: Lock,
    granted: oneshot::Sender<()>,
}

impl Locks {
    /// A lock that stands in the way of this one.
    pub fn against(&self, ino: Ino, wanted: &Lock) -> Option<Lock> {
        self.lock().files.get(&ino)?.held.against(wanted).next().copied()
    }

    /// Takes a lock if nothing stands in its way, in place of what its owner has in its range.
    ///
    /// # Errors
    /// EAGAIN if somebody holds another, ENOLCK if there are too many.
    pub fn try_take(&self, ino: Ino, wanted: Lock) -> Result<()> {
        self.lock().take(ino, wanted)
    }

    /// The same, as soon as nothing stands in its way, unless `given_up` comes first.
    ///
    /// # Errors
    /// EINTR if it was given up, EDEADLK if those who hold the others wait for this owner, ENOLCK if there are too many.
    pub async fn take(&self, ino: Ino, wanted: Lock, given_up: impl Future<Output = ()>) -> Result<()> {
        let (waiting, granted) = {
            let mut state = self.lock();
            match state.take(ino, wanted) {
                Err(error) if error.errno() == libc::EAGAIN => {}
                taken => return taken,
            }
            if state.would_deadlock(ino, &wanted) {
                return Err(Error::new(libc::EDEADLK, "whoever holds the lock waits for who wants it"));
            }
            let (number, granted) = state.wait(ino, wanted);
            (Waiting { locks: self, ino, number }, granted)
        };
        tokio::select! {
            biased;
            granted = granted => granted.map_err(|_| INTERRUPTED),
            () = given_up => match waiting.withdraw() {
                true => Err(INTERRUPTED),
                // It was given meanwhile.
                false => Ok(()),
            },
        }
    }

    /// Gives up what an owner has of a range.
    pub fn release(&self, ino: Ino, owner: LockOwner, first: u64, last: u64) {
        self.change(ino, |file| file.held.clear(owner, first, last));
    }

    /// Gives up all that an owner has of a file.
    pub fn release_all(&self, ino: Ino, owner: LockOwner) {
        self.change(ino, |file| file.held.drop_all(|held| held.owner == owner));
    }

    /// Gives up all that was asked for through an open file, which is closed.
    pub fn closed(&self, ino: Ino, handle: Handle) {
        self.change(ino, |file| {
            file.held.drop_all(|held| held.handle == handle);
            file.ending.remove(&handle);
        });
    }

    /// One descriptor of an open file is closed, and it may have been the last one.
    pub fn may_end(&self, ino: Ino, handle: Handle) {
        self.change(ino, |file| {
            file.ending.insert(handle);
        });
    }

    /// Whether all that stands in the way of a lock may be about to end.
    pub fn may_be_free_soon(&self, ino: Ino, wanted: &Lock) -> bool {
        let state = self.lock();
        let Some(file) = state.files.get(&ino) else { return true };
        file.held.against(wanted).all(|held| file.ending.contains(&held.handle))
    }

    /// Gives up everything of a session; who waits in it is told EINTR.
    pub fn end_session(&self, session: u64) {
        let mut state = self.lock();
        for file in state.files.values_mut() {
            file.queue.retain(|waiter| waiter.wanted.owner.session != session);
            file.held.drop_all(|held| held.owner.session == session);
            file.grant_waiters();
        }
        state.files.retain(|_, file| !file.is_empty());
    }

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

const INTERRUPTED: Error = Error::new(libc::EINTR, "the wait for a lock was given up");

impl State {
    fn take(&mut self, ino: Ino, wanted: Lock) -> Result<()> {
        if let Some(file) = self.files.get(&ino) {
            if file.held.len() + file.queue.len() >= LOCKS_MAX {
                return Err(Error::new(libc::ENOLCK, "the file has too many locks"));
            }
            if file.held.against(&wanted).next().is_some() {
                return Err(Error::new(libc::EAGAIN, "somebody holds a lock"));
            }
        }
        let file = self.files.entry(ino).or_default();
        file.held.set(wanted);
        file.ending.remove(&wanted.handle);
        // A shared lock in place of an exclusive one makes room.
        file.grant_waiters();
        Ok(())
    }

    fn wait(&mut self, ino: Ino, wanted: Lock) -> (u64, oneshot::Receiver<()>) {
        self.waits += 1;
        let (granted, is_granted) = oneshot::channel();
        let waiter = Waiter { number: self.waits, wanted, granted };
        self.files.entry(ino).or_default().queue.push_back(waiter);
        (self.waits, is_granted)
    }

    /// Whether somebody whom a lock would wait for waits for its owner, through any number of others.
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
    /// Gives those who wait what nothing stands in the way of, the first one first.
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

/// A place in a queue, which is left when this is dropped.
struct Waiting<'l> {
    locks: &'l Locks,
    ino: Ino,
    number: u64,
}

impl Waiting<'_> {
    /// Gives the place up; false if there is none any more.
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

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::FutureExt;
    use std::future::pending;
    use std::pin::Pin;
    use std::task::Poll;

    const FILE: Ino = Ino(7);
    const OTHER_FILE: Ino = Ino(8);

    fn lock(id: u64, first: u64, last: u64, kind: LockKind) -> Lock {
        Lock {
            owner: LockOwner { session: id % 2, id },
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

    /// What it says without any wait.
    fn now(take: impl Future<Output = Result<()>>) -> Option<Result<()>> {
        take.now_or_never()
    }

    fn errno(outcome: Result<()>) -> i32 {
        outcome.unwrap_err().errno()
    }

    #[test]
    fn those_who_wait_are_served_in_their_order() {
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
    fn what_fits_beside_is_given_at_once() {
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
        // An exclusive lock that becomes a shared one lets others in.
        let mut reader = take(&locks, FILE, shared(5));
        assert!(!is_done(&mut reader));
        locks.try_take(FILE, shared(2)).unwrap();
        assert!(is_done(&mut reader));
    }

    #[tokio::test]
    async fn who_gives_up_neither_waits_nor_holds() {
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
    fn whoever_was_given_a_lock_in_the_moment_he_gave_up_has_it() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        let (number, _granted) = locks.lock().wait(FILE, exclusive(2));
        let waiting = Waiting { locks: &locks, ino: FILE, number };
        locks.release_all(FILE, exclusive(1).owner);
        assert!(!waiting.withdraw());
        assert_eq!(locks.against(FILE, &shared(9)), Some(exclusive(2)));
    }

    #[test]
    fn a_circle_of_waits_is_refused() {
        let locks = Locks::default();
        locks.try_take(FILE, exclusive(1)).unwrap();
        locks.try_take(OTHER_FILE, exclusive(2)).unwrap();
        locks.try_take(FILE, lock(3, 5, 5, LockKind::Shared)).unwrap_err();
        let mut one = take(&locks, OTHER_FILE, exclusive(1));
        assert!(!is_done(&mut one));
        let mut three = take(&locks, OTHER_FILE, exclusive(3));
        assert!(!is_done(&mut three));
        assert_eq!(errno(now(take(&locks, FILE, exclusive(2))).unwrap()), libc::EDEADLK);
        // Through others.
        let far = Ino(9);
        locks.try_take(far, exclusive(3)).unwrap();
        let refused = now(take(&locks, far, shared(2))).unwrap();
        assert_eq!(errno(refused), libc::EDEADLK);
        locks.release_all(OTHER_FILE, exclusive(2).owner);
        assert!(is_done(&mut one));
    }

    #[test]
    fn the_end_of_a_session_takes_its_locks_and_waits() {
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
    fn a_lock_whose_owner_was_closed_may_be_about_to_end() {
        let locks = Locks::default();
        locks.try_take(FILE, shared(1)).unwrap();
        locks.try_take(FILE, shared(2)).unwrap();
        let wanted = exclusive(3);
        locks.may_end(FILE, shared(1).handle);
        assert!(!locks.may_be_free_soon(FILE, &wanted));
        locks.may_end(FILE, shared(2).handle);
        assert!(locks.may_be_free_soon(FILE, &wanted));
        // It was closed by one of several, and is used.
        locks.try_take(FILE, shared(1)).unwrap();
        assert!(!locks.may_be_free_soon(FILE, &wanted));
        locks.release_all(FILE, shared(1).owner);
        locks.release_all(FILE, shared(2).owner);
        assert!(locks.lock().files.is_empty());
    }

    /// A kernel gives the number of an owner whose open file it has closed to the next one, and tells of the close later.
    #[test]
    fn the_end_of_a_closed_file_leaves_the_locks_of_who_has_its_owners_number() {
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
