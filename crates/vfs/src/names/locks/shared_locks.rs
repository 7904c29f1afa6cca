//! Locks that hold for all sessions of a shared engine, for example on several machines.
//!
//! The engine stores the locks of a file as one value. A change of them replaces the value that this session has seen last, and is tried again with
//! the present value if another session was faster. So a lock of a file that nobody else has locked is one call of the engine, and so is its
//! release.
//!
//! A lock belongs to the lease of its session. If the lease expires, its locks are void, and another session may take them. This session then
//! refuses, with EIO, all that is done through an open file which had a lock, until that is closed.
//!
//! Waiters are woken by the session that releases a lock, and also poll at an interval. They have no order. A deadlock is detected only among
//! owners of this session.

use meta::{Engine, FsError, Ino, LockChange, Locker, Seqno, StoredLocks};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

use super::stored::StoredFile;
use super::table::{Lock, LockKind, LockOwner};
use super::{DEADLOCK, INTERRUPTED};
use crate::{Error, Handle, Result};

/// Interval at which waiters poll, because a notification may be lost and a dead session sends none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum wait of a non-blocking request for a lock whose open file may be closed already. The kernel announces a close in the
/// background, and the program that closed the file must not find it still locked.
const TRY_LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval of attempts within [`TRY_LOCK_TIMEOUT`].
const TRY_LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum locks of one file.
const LOCKS_MAX: usize = 4096;

/// Locks of all files on which this session holds locks or waits for them.
pub(crate) struct SharedLocks {
    engine: Arc<dyn Engine>,
    files: Mutex<BTreeMap<Ino, Arc<SharedFile>>>,
    /// Locks for which owners of this session wait.
    waiting: Mutex<HashMap<LockOwner, (Ino, Lock)>>,
    /// Open files that had a lock which may have been taken by another session.
    lost: Mutex<HashSet<Handle>>,
    has_lost: AtomicBool,
}

impl fmt::Debug for SharedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLocks").finish_non_exhaustive()
    }
}

/// The locks of a file.
#[derive(Default)]
struct SharedFile {
    known: tokio::sync::Mutex<Known>,
    /// Wakes waiters of this session.
    woken: Notify,
}

/// The locks of a file as this session has seen them last. At first it assumes that there are none.
#[derive(Default)]
struct Known {
    stored: Option<Vec<u8>>,
    file: StoredFile,
    head: Seqno,
}

/// The outcome of an attempt to take a lock.
enum Attempt {
    Taken(Seqno),
    /// Other owners hold conflicting locks.
    Conflict {
        /// Whether all of these locks may be about to end.
        is_ending: bool,
    },
}

/// The error of a call through an open file that had a lock when the lease expired.
const LOST: Error = Error::new(
    libc::EIO,
    "the lease of this mount expired, so another machine may have taken a lock of this open file: close it",
);

impl SharedLocks {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        let (files, waiting, lost) = Default::default();
        Self { engine, files, waiting, lost, has_lost: AtomicBool::new(false) }
    }

    /// Returns a lock that conflicts with this one; `None` if there is none.
    pub(crate) async fn against(&self, ino: Ino, wanted: &Lock) -> Result<Option<Lock>> {
        let (me, file) = (self.locker()?, self.file(ino));
        let mut known = file.known.lock().await;
        self.note_losses(&mut known);
        self.refresh(ino, &mut known)?;
        let wanted = self.own(wanted, me);
        let found = known.file.held.against(&wanted).next().copied();
        drop(known);
        self.forget(ino, file);
        // A process of another machine has no number here.
        Ok(found.map(|lock| Lock { pid: if lock.owner.locker == me { lock.pid } else { 0 }, ..lock }))
    }

    /// Takes a lock without waiting for its holders, except for those that are about to end. Returns the newest commit at that time.
    pub(crate) async fn try_take(&self, ino: Ino, wanted: Lock) -> Result<Seqno> {
        let file = self.file(ino);
        let refused = || Error::new(libc::EAGAIN, "another owner holds a conflicting lock");
        let mut timeout = std::pin::pin!(tokio::time::sleep(TRY_LOCK_TIMEOUT));
        let taken = loop {
            match self.attempt(ino, &file, wanted, false).await {
                Ok(Attempt::Taken(head)) => break Ok(head),
                Ok(Attempt::Conflict { is_ending: true }) => tokio::select! {
                    biased;
                    () = &mut timeout => break Err(refused()),
                    () = tokio::time::sleep(TRY_LOCK_INTERVAL) => {}
                },
                Ok(Attempt::Conflict { .. }) => break Err(refused()),
                Err(error) => break Err(error),
            }
        };
        self.forget(ino, file);
        taken
    }

    /// Waits until a lock is free and takes it, or until `given_up` completes. Returns the newest commit at that time.
    pub(crate) async fn take(
        &self,
        ino: Ino,
        wanted: Lock,
        given_up: impl Future<Output = ()>,
    ) -> Result<Seqno> {
        let (file, mut given_up) = (self.file(ino), std::pin::pin!(given_up));
        let taken = loop {
            let mut woken = std::pin::pin!(file.woken.notified());
            // Registered first: a release after the attempt is not missed.
            woken.as_mut().enable();
            match self.attempt(ino, &file, wanted, true).await {
                Ok(Attempt::Taken(head)) => break Ok(head),
                Ok(Attempt::Conflict { .. }) => {}
                Err(error) => break Err(error),
            }
            let Some(_waiting) = self.wait(ino, wanted) else { break Err(DEADLOCK) };
            tokio::select! {
                biased;
                () = woken => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = &mut given_up => break Err(INTERRUPTED),
            }
        };
        self.forget(ino, file);
        taken
    }

    /// Takes a lock if no other owner holds a conflicting one. With `registers`, other sessions will notify this one of releases.
    async fn attempt(&self, ino: Ino, file: &SharedFile, wanted: Lock, registers: bool) -> Result<Attempt> {
        let mut known = file.known.lock().await;
        self.note_losses(&mut known);
        self.check(wanted.handle)?;
        let me = self.locker()?;
        let wanted = self.own(&wanted, me);
        let mut is_current = false;
        loop {
            let mut new = known.file.clone();
            if new.held.against(&wanted).next().is_some() {
                if !is_current {
                    self.refresh(ino, &mut known)?;
                    is_current = true;
                    continue;
                }
                let is_ending = |lock: &Lock| new.ending.contains(&(lock.owner.locker, lock.handle.0));
                let is_ending = new.held.against(&wanted).all(is_ending);
                if registers && new.waiting.insert(me) && !self.store(ino, &mut known, &new, false)? {
                    continue;
                }
                return Ok(Attempt::Conflict { is_ending });
            }
            if new.held.len() >= LOCKS_MAX {
                return Err(Error::new(libc::ENOLCK, "the file has too many locks"));
            }
            new.held.set(wanted);
            new.ending.remove(&(me, wanted.handle.0));
            // A shared lock may replace an exclusive one.
            let wakes = wanted.kind == LockKind::Shared && new.waiting.iter().any(|other| *other != me);
            if wakes {
                new.waiting.clear();
            }
            if self.store(ino, &mut known, &new, wakes)? {
                break;
            }
            is_current = true;
        }
        if self.engine.locker() != Some(me) {
            self.lose_handle(wanted.handle);
            return Err(LOST);
        }
        if wanted.kind == LockKind::Shared {
            file.woken.notify_waiters();
        }
        Ok(Attempt::Taken(known.head))
    }

    /// Releases an owner's locks in a range.
    pub(crate) async fn release(&self, ino: Ino, owner: LockOwner, first: u64, last: u64) -> Result<()> {
        self.change(ino, |file, me| file.held.clear(LockOwner { locker: me, ..owner }, first, last)).await
    }

    /// Releases all locks of an owner on a file, of which it has closed a descriptor, which may be the last one of its open file.
    pub(crate) async fn release_owner(&self, ino: Ino, owner: LockOwner, handle: Handle) -> Result<()> {
        self.change(ino, |file, me| {
            let owner = LockOwner { locker: me, ..owner };
            file.held.drop_all(|held| held.owner == owner);
            if file.held.iter().any(|held| held.owner.locker == me && held.handle == handle) {
                file.ending.insert((me, handle.0));
            }
        })
        .await
    }

    /// Releases all locks that were taken through an open file, which is now closed.
    pub(crate) async fn closed(&self, ino: Ino, handle: Handle) -> Result<()> {
        let released = self
            .change(ino, |file, me| {
                file.held.drop_all(|held| held.owner.locker == me && held.handle == handle);
                file.ending.remove(&(me, handle.0));
            })
            .await;
        let mut lost = self.lost();
        lost.remove(&handle);
        self.has_lost.store(!lost.is_empty(), Ordering::Release);
        released
    }

    /// Releases all locks of a front end.
    pub(crate) async fn end_front_end(&self, session: u64) -> Result<()> {
        let files: Vec<Ino> = self.files().keys().copied().collect();
        let is_meant = |held: &Lock, me| (held.owner.locker, held.owner.session) == (me, session);
        for ino in files {
            self.change(ino, |file, me| file.held.drop_all(|held| is_meant(held, me))).await?;
        }
        Ok(())
    }

    /// Changes locks of this session on a file, and wakes their waiters. Does nothing if this session knows of none.
    async fn change(&self, ino: Ino, change: impl Fn(&mut StoredFile, Locker)) -> Result<()> {
        let Some(file) = self.files().get(&ino).cloned() else { return Ok(()) };
        let mut known = file.known.lock().await;
        self.note_losses(&mut known);
        let changed = loop {
            // Without a lease there are no locks.
            let Some(me) = self.engine.locker() else { break Ok(()) };
            let mut new = known.file.clone();
            change(&mut new, me);
            if new == known.file {
                break Ok(());
            }
            let wakes = new.waiting.iter().any(|other| *other != me);
            // Sessions that still have to wait register again.
            new.waiting.clear();
            match self.store(ino, &mut known, &new, wakes) {
                Ok(false) => {}
                stored => break stored.map(drop),
            }
        };
        drop(known);
        file.woken.notify_waiters();
        self.forget(ino, file);
        changed
    }

    /// Reads the locks of a file.
    fn refresh(&self, ino: Ino, known: &mut Known) -> Result<()> {
        let now = self.engine.locks_of(ino.0).map_err(FsError::from)?;
        self.take_in(known, now)
    }

    /// Stores the locks of a file in place of the known ones. Returns false, and takes the present ones in, if there are other ones.
    fn store(&self, ino: Ino, known: &mut Known, new: &StoredFile, wakes: bool) -> Result<bool> {
        let encoded = new.encode();
        if encoded == known.stored {
            return Ok(true);
        }
        let change = LockChange { ino: ino.0, seen: known.stored.as_deref(), new: encoded.as_deref(), wakes };
        let (is_replaced, now) = self.engine.replace_locks(change).map_err(FsError::from)?;
        self.take_in(known, now)?;
        Ok(is_replaced)
    }

    fn take_in(&self, known: &mut Known, now: StoredLocks) -> Result<()> {
        self.note_losses(known);
        let file = StoredFile::decode(now.held.as_deref(), |locker| now.lockers.contains(&locker))?;
        *known = Known { stored: now.held, file, head: now.head };
        Ok(())
    }

    /// Notes the open files whose locks belonged to a lease of this session that has expired, and forgets these locks.
    fn note_losses(&self, known: &mut Known) {
        let me = self.engine.locker();
        let is_lost = |held: &Lock| self.is_own(held.owner.locker) && Some(held.owner.locker) != me;
        known.file.held.iter().filter(|held| is_lost(held)).for_each(|held| self.lose_handle(held.handle));
        known.file.held.drop_all(is_lost);
    }

    /// Handles the expiry of the lease of this session.
    pub(crate) fn lose(&self) {
        let files: Vec<_> = self.files().values().cloned().collect();
        for file in files {
            // An operation that has the file notes its losses itself.
            if let Ok(known) = file.known.try_lock() {
                let own = known.file.held.iter().filter(|held| self.is_own(held.owner.locker));
                own.for_each(|held| self.lose_handle(held.handle));
            }
            file.woken.notify_waiters();
        }
    }

    fn lose_handle(&self, handle: Handle) {
        self.lost().insert(handle);
        self.has_lost.store(true, Ordering::Release);
    }

    /// Fails with EIO if a lock that was taken through this open file may be another session's by now.
    pub(crate) fn check(&self, handle: Handle) -> Result<()> {
        let is_lost = self.has_lost.load(Ordering::Acquire) && self.lost().contains(&handle);
        if is_lost { Err(LOST) } else { Ok(()) }
    }

    /// Wakes the waiters for locks of a file.
    pub(crate) fn wake(&self, ino: Ino) {
        if let Some(file) = self.files().get(&ino) {
            file.woken.notify_waiters();
        }
    }

    /// Notes that an owner waits. Returns `None` if a holder of a conflicting lock waits for this owner, directly or through other ones.
    fn wait(&self, ino: Ino, wanted: Lock) -> Option<Waiting<'_>> {
        let me = self.engine.locker()?;
        let wanted = self.own(&wanted, me);
        let mut waiting = self.waiting();
        let (mut seen, mut wants) = (HashSet::new(), vec![(ino, wanted)]);
        while let Some((ino, want)) = wants.pop() {
            let Some(file) = self.files().get(&ino).cloned() else { continue };
            // Another operation on the file is about to change its locks.
            let Ok(known) = file.known.try_lock() else { continue };
            for holder in known.file.held.against(&want) {
                if holder.owner == wanted.owner {
                    return None;
                }
                if seen.insert(holder.owner) {
                    wants.extend(waiting.get(&holder.owner).copied());
                }
            }
        }
        waiting.insert(wanted.owner, (ino, wanted));
        Some(Waiting { locks: self, owner: wanted.owner })
    }

    /// Returns this session as an owner. If its lease has expired, waits for another one within the budget of a call.
    fn locker(&self) -> Result<Locker> {
        let expired = Error::new(libc::EIO, "the lease of this mount in the database has expired");
        self.engine.wait_for_lease().map_err(FsError::from)?;
        self.engine.locker().ok_or(expired)
    }

    /// Returns a lock as one of this session.
    fn own(&self, lock: &Lock, me: Locker) -> Lock {
        Lock { owner: LockOwner { locker: me, ..lock.owner }, ..*lock }
    }

    fn is_own(&self, locker: Locker) -> bool {
        self.engine.session() == Some(locker.session)
    }

    fn file(&self, ino: Ino) -> Arc<SharedFile> {
        self.files().entry(ino).or_default().clone()
    }

    /// Forgets a file on which this session holds no lock, unless it is used elsewhere.
    fn forget(&self, ino: Ino, file: Arc<SharedFile>) {
        let mut files = self.files();
        let holds = |known: &Known| known.file.held.iter().any(|held| self.is_own(held.owner.locker));
        let is_unused = file.known.try_lock().is_ok_and(|known| !holds(&known));
        // Both references are known here: that of the table, and `file`.
        if is_unused && Arc::strong_count(&file) == 2 {
            files.remove(&ino);
        }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<Ino, Arc<SharedFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<LockOwner, (Ino, Lock)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, HashSet<Handle>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An owner that waits.
struct Waiting<'l> {
    locks: &'l SharedLocks,
    owner: LockOwner,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.locks.waiting().remove(&self.owner);
    }
}
