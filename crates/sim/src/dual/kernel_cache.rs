//! A kernel that caches entries and attributes without an end, and drops only what it is told.
//!
//! The client of the file system calls through it. It learns from replies what a real kernel learns, updates its cache after its own
//! changes as a real kernel does, and applies the invalidations that the mount sends. After each step the cache must agree with the
//! tables: the mount must have told of everything else that changed them.

use bytes::Bytes;
use meta::{Engine, Name, schema};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Attr, Caller, Changes, Filesystem, Handle, Ino, Invalidation, InvalidationQueue, Opened, Result};

/// The time after which the kernel's own thread processes an invalidation at the latest.
const PROCESSED_WITHIN: Duration = Duration::from_millis(20);

/// The directory and the name of an entry.
type EntryKey = (Ino, Bytes);

pub(super) struct KernelCache {
    fs: Arc<Filesystem>,
    state: RefCell<CacheState>,
}

struct CacheState {
    queue: InvalidationQueue,
    entries: BTreeMap<EntryKey, Ino>,
    attributes: BTreeMap<Ino, Attr>,
    open: HashMap<Handle, Ino>,
    /// Calls whose replies have not arrived.
    in_flight: usize,
    /// Invalidations that arrived while calls were in flight. The kernel's locks order them after the replies.
    during_calls: Vec<Invalidation>,
    dropped: u64,
}

impl KernelCache {
    /// Makes an empty cache. `queue_max` is the length of its queue of invalidations; `None`: that of a real mount.
    pub(super) fn new(fs: &Arc<Filesystem>, queue_max: Option<usize>) -> Rc<Self> {
        let caches = fs.kernel_caches();
        let state = CacheState {
            queue: queue_max.map_or_else(|| caches.invalidations(), |max| caches.invalidations_in(max)),
            entries: BTreeMap::new(),
            attributes: BTreeMap::new(),
            open: HashMap::new(),
            in_flight: 0,
            during_calls: Vec::new(),
            dropped: 0,
        };
        Rc::new(Self { fs: fs.clone(), state: RefCell::new(state) })
    }

    /// Processes invalidations while no call is made, without an end.
    pub(super) async fn process_invalidations(&self) {
        loop {
            tokio::time::sleep(PROCESSED_WITHIN).await;
            self.state.borrow_mut().receive(&self.fs);
        }
    }

    /// Returns the number of entries and attributes that were dropped because the mount said so.
    pub(super) fn dropped(&self) -> u64 {
        self.state.borrow().dropped
    }

    /// Checks that the cache agrees with the tables, except for the attributes of files with unpublished writes.
    pub(super) fn check(
        &self,
        engine: &dyn Engine,
        written: &BTreeSet<Ino>,
    ) -> std::result::Result<(), String> {
        let mut state = self.state.borrow_mut();
        state.receive(&self.fs);
        for ((parent, name), ino) in &state.entries {
            let Ok(key) = Name::new(name) else { continue };
            let Ok(found) = engine.get(&schema::dentry(*parent, &key)) else { return Ok(()) };
            let there = found.and_then(|found| meta::codec::decode_dentry(&found.value).ok());
            if there.is_none_or(|dentry| dentry.ino != *ino) {
                return Err(format!(
                    "the kernel was not told that {name:?} in inode {parent} is no longer inode {ino} but {there:?}"
                ));
            }
        }
        for (ino, cached) in state.attributes.iter().filter(|(ino, _)| !written.contains(ino)) {
            // An inode that is gone has no entry, which was checked above.
            let Some(shown) = self.fs.kernel_caches().shown_attributes(*ino) else { continue };
            if visible(&shown) != visible(cached) {
                return Err(format!(
                    "the kernel has stale attributes: {cached:?}; the mount shows {shown:?}"
                ));
            }
        }
        Ok(())
    }

    /// Makes a call and learns from its outcome.
    async fn call<T>(
        &self,
        work: impl Future<Output = Result<T>>,
        learn: impl FnOnce(&mut CacheState, &T),
    ) -> Result<T> {
        {
            let mut state = self.state.borrow_mut();
            state.receive(&self.fs);
            state.in_flight += 1;
        }
        let outcome = work.await;
        let mut state = self.state.borrow_mut();
        state.receive(&self.fs);
        if let Ok(reply) = &outcome {
            learn(&mut state, reply);
        }
        state.in_flight -= 1;
        for late in std::mem::take(&mut state.during_calls) {
            state.apply(&self.fs, &late);
        }
        outcome
    }

    pub(super) async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let found = self.call(self.fs.lookup(parent, name), |state, attr| {
            state.learn_entry(&self.fs, parent, name, attr);
        });
        found.await
    }

    pub(super) async fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        let created =
            self.call(self.fs.create(caller, parent, name, mode, flags), |state, (attr, opened)| {
                state.learn_entry(&self.fs, parent, name, attr);
                state.attributes.remove(&parent);
                state.open.insert(opened.handle, attr.ino);
            });
        created.await
    }

    pub(super) async fn mkdir(&self, caller: Caller, parent: Ino, name: &[u8], mode: u16) -> Result<Attr> {
        let made = self.call(self.fs.mkdir(caller, parent, name, mode), |state, attr| {
            state.learn_entry(&self.fs, parent, name, attr);
            state.attributes.remove(&parent);
        });
        made.await
    }

    pub(super) async fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let removed = Cell::new(None);
        let work = async {
            removed.set(Some(self.entry((parent, name)).await?));
            self.fs.unlink(parent, name).await
        };
        self.call(work, |state, ()| state.remove((parent, name), removed.get())).await
    }

    pub(super) async fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let removed = Cell::new(None);
        let work = async {
            removed.set(Some(self.entry((parent, name)).await?));
            self.fs.rmdir(parent, name).await
        };
        self.call(work, |state, ()| state.remove((parent, name), removed.get())).await
    }

    pub(super) async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<()> {
        let source = Cell::new(None);
        let work = async {
            source.set(Some(self.entry(from).await?));
            self.fs.rename(from, to, flags).await
        };
        self.call(work, |state, ()| {
            let moved = state.entries.get(&key_of(from)).copied();
            state.remove(from, source.get());
            state.remove(to, None);
            if let Some(moved) = moved {
                state.entries.insert(key_of(to), moved);
            }
        })
        .await
    }

    /// Returns the inode of an entry, which is looked up if it is not cached. A kernel holds the inode of a name that it changes, and
    /// the lock of its directory, so that the entry is not dropped before the reply.
    async fn entry(&self, (parent, name): (Ino, &[u8])) -> Result<Ino> {
        let cached = self.state.borrow().entries.get(&key_of((parent, name))).copied();
        if let Some(ino) = cached {
            return Ok(ino);
        }
        let attr = self.fs.lookup(parent, name).await?;
        self.state.borrow_mut().learn_entry(&self.fs, parent, name, &attr);
        Ok(attr.ino)
    }

    pub(super) async fn setattr(
        &self,
        caller: Caller,
        ino: Ino,
        changes: Changes,
        handle: Option<Handle>,
    ) -> Result<Attr> {
        let set = self.call(self.fs.setattr(caller, ino, changes, handle), |state, attr| {
            state.learn_attributes(&self.fs, attr);
        });
        set.await
    }

    pub(super) async fn open(&self, ino: Ino, flags: i32) -> Result<Opened> {
        let opened = self.call(self.fs.open(ino, flags), |state, opened| {
            state.open.insert(opened.handle, ino);
            state.attributes.remove(&ino);
        });
        opened.await
    }

    pub(super) async fn read(&self, handle: Handle, offset: u64, len: usize) -> Result<Bytes> {
        self.call(self.fs.read(handle, offset, len), |_, _| {}).await
    }

    pub(super) async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.call(self.fs.write(handle, offset, data), |_, ()| {}).await;
        self.drop_attributes_of(handle);
        written
    }

    pub(super) async fn fsync(&self, handle: Handle) -> Result<()> {
        let synced = self.call(self.fs.fsync(handle), |_, ()| {}).await;
        self.drop_attributes_of(handle);
        synced
    }

    pub(super) async fn flush(&self, handle: Handle) -> Result<()> {
        let flushed = self.call(self.fs.flush(handle), |_, ()| {}).await;
        self.drop_attributes_of(handle);
        flushed
    }

    pub(super) async fn release(&self, handle: Handle) -> Result<()> {
        let released = self.call(self.fs.release(handle), |_, ()| {}).await;
        self.drop_attributes_of(handle);
        self.state.borrow_mut().open.remove(&handle);
        released
    }

    pub(super) async fn sync(&self) -> Result<()> {
        let synced = self.call(self.fs.sync(), |_, ()| {}).await;
        let mut state = self.state.borrow_mut();
        let open: Vec<Ino> = state.open.values().copied().collect();
        for ino in open {
            state.attributes.remove(&ino);
        }
        synced
    }

    /// Drops the attributes of a file that was written to, as a kernel does after a write, whether or not it succeeded.
    fn drop_attributes_of(&self, handle: Handle) {
        let mut state = self.state.borrow_mut();
        if let Some(ino) = state.open.get(&handle).copied() {
            state.attributes.remove(&ino);
        }
    }
}

impl CacheState {
    /// Receives what the mount has sent so far.
    fn receive(&mut self, fs: &Filesystem) {
        while let Ok(received) = self.queue.try_recv() {
            if let Invalidation::Reached(mark) = &received {
                mark.reached();
                continue;
            }
            self.apply(fs, &received);
            if self.in_flight > 0 {
                self.during_calls.push(received);
            }
        }
    }

    fn apply(&mut self, fs: &Filesystem, received: &Invalidation) {
        match received {
            Invalidation::Inode(ino) | Invalidation::Attributes(ino) | Invalidation::Bytes(ino, _) => {
                self.dropped += u64::from(self.attributes.remove(ino).is_some());
            }
            Invalidation::Entry { parent, name } => {
                // A kernel that has the entry drops the attributes of the directory too, and the inode if nothing else holds it.
                if let Some(ino) = self.entries.remove(&(*parent, name.clone())) {
                    self.attributes.remove(parent);
                    if !self.entries.values().chain(self.open.values()).any(|held| *held == ino) {
                        self.attributes.remove(&ino);
                    }
                    self.dropped += 1;
                }
            }
            Invalidation::Directory(dir) => {
                self.apply_held(fs, |after| fs.kernel_caches().held_in(*dir, after));
            }
            Invalidation::Everything => {
                self.apply_held(fs, |after| fs.kernel_caches().everything_held(after))
            }
            Invalidation::Reached(_) => {}
        }
    }

    fn apply_held(
        &mut self,
        fs: &Filesystem,
        held: impl Fn(Option<Ino>) -> Option<(Ino, Vec<Invalidation>)>,
    ) {
        let mut after = None;
        while let Some((last, some)) = held(after) {
            some.iter().for_each(|one| self.apply(fs, one));
            after = Some(last);
        }
    }

    fn learn_entry(&mut self, fs: &Filesystem, parent: Ino, name: &[u8], attr: &Attr) {
        self.entries.insert(key_of((parent, name)), attr.ino);
        self.learn_attributes(fs, attr);
    }

    fn learn_attributes(&mut self, fs: &Filesystem, attr: &Attr) {
        self.attributes.remove(&attr.ino);
        if !fs.kernel_caches().misleads_readers(attr) {
            self.attributes.insert(attr.ino, attr.clone());
        }
    }

    /// Removes an entry after the kernel's own change, and the attributes of its inode: the cached one and `held`, the one that the kernel
    /// held during the change.
    fn remove(&mut self, (parent, name): (Ino, &[u8]), held: Option<Ino>) {
        for ino in self.entries.remove(&key_of((parent, name))).into_iter().chain(held) {
            self.attributes.remove(&ino);
        }
        self.attributes.remove(&parent);
    }
}

fn key_of((parent, name): (Ino, &[u8])) -> EntryKey {
    (parent, Bytes::copy_from_slice(name))
}

/// Returns the attributes that must not be stale. Access times are recorded later, and blocks depend on unpublished writes.
fn visible(attr: &Attr) -> Attr {
    Attr { atime: attr.btime, blocks: 0, ..attr.clone() }
}
