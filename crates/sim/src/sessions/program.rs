//! A program on one of the machines: random calls, and what the model says about their results.

use super::machine::{Machine, Mounted};
use super::network::LinkState;
use super::oracle::{Moment, Oracle, Outcome};
use crate::files::walk::{list_names, read_all};
use crate::trace::Trace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Entropy;
use tokio::time::{Instant, sleep};
use vfs::{Caller, Error, Filesystem, Handle, Ino, Lock, LockKind, LockOwner};

pub(super) const CALLER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };

/// Number of files that are written and read as a whole.
pub(super) const FILES: usize = 3;
/// Number of names that are made and removed.
pub(super) const SLOTS: usize = 4;
/// Number of files with locks.
pub(super) const COUNTERS: usize = 2;

/// Time after a fault in which calls may fail because of it: the budget of a call, and the time in which a mount recovers.
const FAULT_EFFECT: Duration = Duration::from_secs(45);

/// Maximum time of a step.
const STEP_MAX: Duration = Duration::from_secs(240);

/// The inodes of the files that the programs know.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) files: Vec<Ino>,
    pub(super) counters: Vec<Ino>,
    /// The directory of the names.
    pub(super) names: Ino,
    /// The directory of files that are removed while they are open.
    pub(super) unnamed: Ino,
}

/// A program.
pub(super) struct Program {
    pub(super) machine: Arc<Machine>,
    pub(super) oracle: Arc<Oracle>,
    pub(super) places: Places,
    pub(super) entropy: Entropy,
    pub(super) trace: Trace,
    /// The number of the program in its world.
    pub(super) number: u64,
    /// Number of locks that it has wanted.
    pub(super) owners: u64,
    /// Steps to make.
    pub(super) steps: u64,
}

/// The outcome of a step: a difference from the model fails.
type Step = Result<(), String>;

/// Returns the name of a slot.
pub(super) fn slot_name(slot: usize) -> Vec<u8> {
    format!("name{slot}").into_bytes()
}

/// Returns the bytes of a tag. All whole files have the same length.
pub(super) fn bytes_of(tag: u64) -> Vec<u8> {
    format!("{tag:016x}").repeat(4).into_bytes()
}

/// Returns the tag of a file's bytes.
pub(super) fn tag_of(bytes: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(bytes);
    let tag = text.get(..16).and_then(|text| u64::from_str_radix(text, 16).ok());
    let tag = tag.filter(|tag| bytes_of(*tag) == bytes);
    tag.ok_or_else(|| format!("a file has bytes that no program wrote: '{text}'"))
}

impl Program {
    /// Runs the program to its end, or until its machine stops.
    pub(super) async fn run(mut self) {
        let Some(mounted) = self.machine.mounted() else { return };
        for _ in 0..self.steps {
            sleep(Duration::from_millis(self.entropy.below(700))).await;
            if self.is_stopping() || self.oracle.failure().is_some() {
                return;
            }
            let began = Instant::now();
            let mut outcome = self.step(&mounted).await;
            let took = began.elapsed();
            if outcome.is_ok() && took > STEP_MAX && !self.is_dead() {
                outcome = Err(format!("a step took {took:?}"));
            }
            if let Err(what) = outcome {
                self.oracle.fail(format!("{}, program {}: {what}", self.machine.plan.name, self.number));
                return;
            }
            self.oracle.count("steps");
        }
    }

    async fn step(&mut self, mounted: &Mounted) -> Step {
        let fs = &mounted.fs;
        match self.entropy.below(20) {
            0..4 => self.write_file(fs).await,
            4..8 => self.read_file(fs).await,
            8 | 9 => self.create(fs).await,
            10 => self.unlink(fs).await,
            11 => self.rename(fs).await,
            12 => self.link(fs).await,
            13 => self.look_up(fs).await,
            14 => self.remove_open_file(fs).await,
            _ => self.lock(fs).await,
        }
    }

    fn is_stopping(&self) -> bool {
        self.machine.is_stopping.load(Ordering::SeqCst) || self.is_dead()
    }

    fn is_dead(&self) -> bool {
        self.machine.link.state() == LinkState::Dead
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        let name = &self.machine.plan.name;
        let at = self.machine.link.network.elapsed();
        self.trace.push(format!("{at:?} {name}/{}: {}", self.number, what()));
    }

    /// Returns the outcome of a change. Fails if its error has no cause.
    fn outcome<T>(&self, what: &str, done: &Result<T, Error>, allowed: &[i32]) -> Result<Outcome, String> {
        self.tell(|| format!("{what}: {:?}", done.as_ref().err()));
        let Err(error) = done else { return Ok(Outcome::Done) };
        if allowed.contains(&error.errno()) {
            return Ok(Outcome::Failed);
        }
        self.oracle.count("calls that failed");
        let since = Instant::now().checked_sub(FAULT_EFFECT);
        let has_cause = since.is_none_or(|since| self.machine.link.was_faulty_since(since));
        match has_cause || self.oracle.has_gone_back() {
            true => Ok(Outcome::Unknown),
            false => Err(format!("{what} failed without a cause: {error}")),
        }
    }

    async fn write_file(&self, fs: &Filesystem) -> Step {
        let (file, tag) = (self.entropy.below(FILES as u64) as usize, self.oracle.new_tag());
        let id = self.oracle.begin_write(file, tag);
        let written = write_whole(fs, self.places.files[file], &bytes_of(tag)).await;
        let outcome = self.outcome(&format!("write {tag} to file {file}"), &written, &[])?;
        self.oracle.end_write(file, &id, outcome);
        self.oracle.count("files written");
        Ok(())
    }

    /// Reads a file once or twice through one descriptor.
    async fn read_file(&self, fs: &Filesystem) -> Step {
        let file = self.entropy.below(FILES as u64) as usize;
        let began = self.oracle.now();
        let opened = fs.open(self.places.files[file], libc::O_RDONLY).await;
        if self.outcome(&format!("open file {file}"), &opened, &[])? != Outcome::Done {
            return Ok(());
        }
        let Ok(opened) = opened else { return Ok(()) };
        let mut checked = self.read_open(fs, file, opened.handle, began).await;
        if checked.is_ok() && self.entropy.below(2) == 0 {
            sleep(Duration::from_millis(self.entropy.below(3000))).await;
            let again = self.oracle.now();
            // Only strict mounts promise what an open file shows of changes since it was opened.
            let since = if self.is_strict_now() { again } else { began };
            checked = self.read_open(fs, file, opened.handle, since).await;
        }
        let closed = fs.release(opened.handle).await;
        self.outcome("close after reading", &closed, &[])?;
        checked
    }

    async fn read_open(&self, fs: &Filesystem, file: usize, handle: Handle, since: Moment) -> Step {
        let read = read_all(fs, handle).await;
        let outcome = self.outcome(&format!("read file {file} since {since}"), &read, &[])?;
        let Ok(bytes) = read else { return Ok(()) };
        if outcome != Outcome::Done || self.is_dead() {
            return Ok(());
        }
        let tag = tag_of(&bytes)?;
        self.tell(|| format!("file {file} has {tag}"));
        self.oracle.count("files read");
        self.oracle.check_read(file, since, tag)
    }

    /// Returns whether the mount is strict, and cannot be in the middle of handling a loss of commits.
    fn is_strict_now(&self) -> bool {
        self.machine.plan.is_strict && !self.oracle.has_gone_back()
    }

    async fn create(&self, fs: &Filesystem) -> Step {
        let (slot, tag) = (self.entropy.below(SLOTS as u64) as usize, self.oracle.new_tag());
        let id = self.oracle.begin_names(&[(slot, 1)]);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        let made = fs.create(CALLER, self.places.names, &slot_name(slot), 0o600, flags).await;
        let allowed = [libc::EEXIST, libc::ENOENT, libc::ESTALE];
        let outcome = match self.outcome(&format!("create {slot} with {tag}"), &made, &allowed)? {
            // Another program may have removed the new file before this call had opened it.
            Outcome::Failed if made.as_ref().is_err_and(|error| error.errno() != libc::EEXIST) => {
                Outcome::Unknown
            }
            outcome => outcome,
        };
        self.oracle.end_names(&id, outcome);
        let Ok((_, opened)) = made else { return Ok(()) };
        self.oracle.count("names created");
        let written = fs.write(opened.handle, 0, &bytes_of(tag)).await;
        let closed = fs.release(opened.handle).await;
        // Another program may have removed the name meanwhile.
        self.outcome("write a new file", &written, &[libc::ESTALE, libc::ENOENT])?;
        self.outcome("close a new file", &closed, &[libc::ESTALE, libc::ENOENT])?;
        Ok(())
    }

    async fn unlink(&self, fs: &Filesystem) -> Step {
        let slot = self.entropy.below(SLOTS as u64) as usize;
        let id = self.oracle.begin_names(&[(slot, -1)]);
        let removed = fs.unlink(self.places.names, &slot_name(slot)).await;
        let outcome = self.outcome(&format!("unlink {slot}"), &removed, &[libc::ENOENT])?;
        self.oracle.end_names(&id, outcome);
        if removed.is_ok() {
            self.oracle.count("names removed");
        }
        Ok(())
    }

    async fn rename(&self, fs: &Filesystem) -> Step {
        let (from, to) = self.two_slots();
        let id = self.oracle.begin_names(&[(from, -1), (to, 1)]);
        let names = self.places.names;
        let (from_name, to_name) = (slot_name(from), slot_name(to));
        let renamed = fs.rename((names, &from_name), (names, &to_name), libc::RENAME_NOREPLACE).await;
        let what = format!("rename {from} to {to}");
        let outcome = self.outcome(&what, &renamed, &[libc::ENOENT, libc::EEXIST])?;
        self.oracle.end_names(&id, outcome);
        if renamed.is_ok() {
            self.oracle.count("names renamed");
        }
        Ok(())
    }

    async fn link(&self, fs: &Filesystem) -> Step {
        let (from, to) = self.two_slots();
        let found = fs.lookup(self.places.names, &slot_name(from)).await;
        if self.outcome("look up to link", &found, &[libc::ENOENT])? != Outcome::Done {
            return Ok(());
        }
        let Ok(found) = found else { return Ok(()) };
        let id = self.oracle.begin_names(&[(to, 1)]);
        // A program of a dead machine learns the outcome after the checks, if at all.
        self.oracle.begin_link();
        let linked = fs.link(found.ino, self.places.names, &slot_name(to)).await;
        fs.forget(found.ino, 1);
        let allowed = [libc::ENOENT, libc::EEXIST, libc::ESTALE];
        let outcome = self.outcome(&format!("link {from} to {to}"), &linked, &allowed)?;
        if outcome == Outcome::Failed {
            self.oracle.withdraw_link();
        }
        self.oracle.end_names(&id, outcome);
        Ok(())
    }

    fn two_slots(&self) -> (usize, usize) {
        let from = self.entropy.below(SLOTS as u64) as usize;
        (from, (from + 1 + self.entropy.below(SLOTS as u64 - 1) as usize) % SLOTS)
    }

    async fn look_up(&self, fs: &Filesystem) -> Step {
        let (slot, began) = (self.entropy.below(SLOTS as u64) as usize, self.oracle.now());
        let found = fs.lookup(self.places.names, &slot_name(slot)).await;
        let what = format!("look up {slot}");
        let outcome = self.outcome(&what, &found, &[libc::ENOENT])?;
        if let Ok(found) = &found {
            fs.forget(found.ino, 1);
        }
        if outcome == Outcome::Unknown || self.is_dead() || !self.is_strict_now() {
            return Ok(());
        }
        self.oracle.count("strict lookups");
        self.oracle.check_name(slot, began, outcome == Outcome::Done)
    }

    /// Removes a file while it is open, and reads it then.
    async fn remove_open_file(&self, fs: &Filesystem) -> Step {
        let tag = self.oracle.new_tag();
        let name = format!("open{tag}").into_bytes();
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let made = fs.create(CALLER, self.places.unnamed, &name, 0o600, flags).await;
        if self.outcome("create a file to remove", &made, &[])? != Outcome::Done {
            return Ok(());
        }
        let Ok((_, opened)) = made else { return Ok(()) };
        let handle = opened.handle;
        let written = fs.write(handle, 0, &bytes_of(tag)).await;
        let written = self.outcome("write a file to remove", &written, &[])?;
        let removed = fs.unlink(self.places.unnamed, &name).await;
        self.outcome("unlink an open file", &removed, &[])?;
        self.oracle.count("open files removed");
        sleep(Duration::from_millis(self.entropy.below(4000))).await;
        let read = read_all(fs, handle).await;
        let found = self.outcome("read a removed file", &read, &[])?;
        if let (Ok(bytes), Outcome::Done, Outcome::Done) = (&read, written, found)
            && !self.is_dead()
            && tag_of(bytes) != Ok(tag)
        {
            return Err(format!("a removed file has other bytes: '{}'", String::from_utf8_lossy(bytes)));
        }
        let closed = fs.release(handle).await;
        self.outcome("close a removed file", &closed, &[libc::ESTALE, libc::ENOENT])?;
        Ok(())
    }

    /// Takes a lock, works under it, and releases it.
    async fn lock(&mut self, fs: &Filesystem) -> Step {
        let counter = self.entropy.below(COUNTERS as u64) as usize;
        let ino = self.places.counters[counter];
        let opened = fs.open(ino, libc::O_RDWR).await;
        if self.outcome(&format!("open counter {counter}"), &opened, &[])? != Outcome::Done {
            return Ok(());
        }
        let Ok(opened) = opened else { return Ok(()) };
        let is_exclusive = self.entropy.below(4) > 0;
        let lock = self.new_lock(opened.handle, is_exclusive);
        let taken = match self.entropy.below(3) {
            0 => fs.locks().try_take(ino, lock).await,
            _ => fs.locks().take(ino, lock, sleep(Duration::from_secs(2 + self.entropy.below(30)))).await,
        };
        let from = self.oracle.now();
        let what = format!("lock counter {counter} {:?}", lock.kind);
        let mut checked = Ok(());
        if self.outcome(&what, &taken, &[libc::EAGAIN, libc::EINTR])? == Outcome::Done && !self.is_dead() {
            self.oracle.count("locks taken");
            checked = self.work_locked(fs, (counter, ino), lock, from).await;
            if self.entropy.below(2) == 0 {
                let released = fs.locks().release(ino, lock.owner, lock.handle, (0, u64::MAX)).await;
                self.outcome("unlock", &released, &[])?;
            }
        }
        let closed = fs.release(opened.handle).await;
        let ended = fs.locks().closed(ino, opened.handle).await;
        let outcome = self.outcome("close a counter", &closed, &[])?;
        self.oracle.end_count(counter, self.number, outcome);
        self.outcome("release locks at the close", &ended, &[])?;
        checked
    }

    fn new_lock(&mut self, handle: Handle, is_exclusive: bool) -> Lock {
        self.owners += 1;
        let id = self.number * 1000 + self.owners;
        let owner = LockOwner { locker: vfs::Locker::default(), session: 1, id };
        let kind = if is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
        Lock { owner, handle, first: 0, last: u64::MAX, kind, pid: 1 }
    }

    /// Increments a counter under an exclusive lock, or waits under a shared one, and makes sure that it still had the lock.
    async fn work_locked(
        &self,
        fs: &Filesystem,
        (counter, ino): (usize, Ino),
        lock: Lock,
        from: Moment,
    ) -> Step {
        let is_exclusive = lock.kind == LockKind::Exclusive;
        let read = read_all(fs, lock.handle).await;
        if self.outcome(&format!("read counter {counter}"), &read, &[])? != Outcome::Done || self.is_dead() {
            return Ok(());
        }
        let Ok(bytes) = read else { return Ok(()) };
        let found = tag_of(&bytes)?;
        let is_counting = is_exclusive && !self.oracle.has_gone_back();
        if is_counting && self.confirm(fs, (counter, ino), lock, from).await? {
            self.oracle.check_count((counter, self.number), from, found)?;
        }
        sleep(Duration::from_millis(self.entropy.below(2500))).await;
        if !is_exclusive {
            return self.confirm(fs, (counter, ino), lock, from).await.map(drop);
        }
        self.oracle.begin_count(counter, self.number);
        let written = fs.write(lock.handle, 0, &bytes_of(found + 1)).await;
        let stored = match written {
            Ok(()) => fs.fsync(lock.handle).await,
            Err(error) => Err(error),
        };
        let what = format!("count {counter} to {}", found + 1);
        let outcome = self.outcome(&what, &stored, &[])?;
        let has_lock = self.confirm(fs, (counter, ino), lock, from).await?;
        if outcome == Outcome::Done && has_lock {
            self.oracle.count("counted under a lock");
            return self.oracle.note_count((counter, self.number), found + 1, from);
        }
        Ok(())
    }

    /// Asks whether the lock is still there. Returns whether it is.
    async fn confirm(
        &self,
        fs: &Filesystem,
        (counter, ino): (usize, Ino),
        lock: Lock,
        from: Moment,
    ) -> Result<bool, String> {
        let began = self.oracle.now();
        let confirmed = fs.locks().try_take(ino, lock).await;
        let what = format!("confirm the lock of counter {counter}");
        let has_lock = self.outcome(&what, &confirmed, &[])? == Outcome::Done;
        if has_lock && !self.is_dead() {
            let holding = (counter, self.number, lock.kind == LockKind::Exclusive);
            self.oracle.confirm_lock(holding, from, began)?;
        }
        Ok(has_lock && !self.is_dead())
    }
}

/// Writes a whole file over its old bytes.
pub(super) async fn write_whole(fs: &Filesystem, ino: Ino, bytes: &[u8]) -> vfs::Result<()> {
    let opened = fs.open(ino, libc::O_WRONLY).await?;
    let written = fs.write(opened.handle, 0, bytes).await;
    let flushed = fs.flush(opened.handle).await;
    let closed = fs.release(opened.handle).await;
    written.and(flushed).and(closed)
}

/// Reads the bytes of a file; none if it is gone.
pub(super) async fn read_whole(fs: &Filesystem, ino: Ino) -> vfs::Result<Vec<u8>> {
    let handle = fs.open(ino, libc::O_RDONLY).await?.handle;
    let read = read_all(fs, handle).await;
    fs.release(handle).await?;
    Ok(read?.to_vec())
}

/// Returns which names are there, and the tags of all files with bytes. With `may_be_lost`, bytes may be gone.
pub(super) async fn look_at_names(
    fs: &Filesystem,
    places: &Places,
    may_be_lost: bool,
) -> Result<(Vec<bool>, Vec<u64>), String> {
    let failed = |error: Error| format!("cannot look at the names: {error}");
    let listed = list_names(fs, places.names).await.map_err(failed)?;
    let (mut present, mut tags) = (vec![false; SLOTS], Vec::new());
    for (slot, is_present) in present.iter_mut().enumerate() {
        let name = slot_name(slot);
        *is_present = listed.iter().any(|listed| listed.as_bytes() == name);
        if !*is_present {
            continue;
        }
        let found = fs.lookup(places.names, &name).await.map_err(failed)?;
        let read = read_whole(fs, found.ino).await;
        fs.forget(found.ino, 1);
        let bytes = if may_be_lost { read.unwrap_or_default() } else { read.map_err(failed)? };
        // A program may have failed between the creation and the write.
        if !bytes.is_empty() {
            tags.push(tag_of(&bytes)?);
        }
    }
    Ok((present, tags))
}
