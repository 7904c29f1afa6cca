//! A client of the file system: it runs one op after the other, and checks each result against the history.

mod names;
mod writes;

use super::kernel_cache::KernelCache;
use super::key_history::{Actor, ChangeEffect, KeySet, Moment};
use super::open_file::OpenFile;
use super::shared_state::{SharedState, describe_bytes};
use crate::files::fault_injector::FaultInjector;
use crate::files::machine::Mount;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::names::colliding;
use vfs::{Attr, Caller, Changes, Error, Handle, Ino, Result};

const CALLER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };
/// Directories that are made, renamed and removed.
const DIRS: [&str; 3] = ["d", "e", "d/f"];
const OPEN_MAX: usize = 3;
/// Bytes per read: few, so that a file is read by several calls.
const READ_BYTES: usize = 900;
/// Bytes per read in the later part of a large file.
const READ_BYTES_LARGE: usize = 128 << 10;

pub(super) struct FileClient {
    shared: SharedState,
    open: Vec<OpenFile>,
    /// The kernel through which this client calls the current mount.
    kernel: Option<Rc<KernelCache>>,
}

/// Why an op ended early.
enum StepError {
    Failed(Error),
    Mismatch(String),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for StepError {
    fn from(what: String) -> Self {
        Self::Mismatch(what)
    }
}

type StepResult = std::result::Result<(), StepError>;

impl FileClient {
    pub(super) fn new(shared: SharedState) -> Self {
        Self { shared, open: Vec::new(), kernel: None }
    }

    /// Returns the kernel of a mount.
    pub(super) fn kernel(&mut self, mount: &Mount) -> Rc<KernelCache> {
        let queue_max = || self.shared.short_queue();
        self.kernel.get_or_insert_with(|| KernelCache::new(&mount.fs, queue_max())).clone()
    }

    /// Returns the number of open files, each counted once.
    pub(super) fn open_files(&self) -> usize {
        self.open.iter().map(|open| open.ino).collect::<BTreeSet<_>>().len()
    }

    /// Forgets the kernel's cache at the end of a mount.
    pub(super) fn unmount(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            self.shared.add_count("cache drops", kernel.dropped());
        }
    }

    pub(super) async fn run_ops(&mut self, mount: &Mount, ops: u64) -> Result<(), String> {
        for _ in 0..ops {
            self.shared.count_step();
            self.step_until_crash(mount, None).await?;
        }
        while !self.open.is_empty() {
            self.step_until_crash(mount, Some(0)).await?;
        }
        Ok(())
    }

    /// Forgets the open files, which a crash closed.
    pub(super) fn recover(&mut self) {
        for open in self.open.drain(..) {
            open.forget_disputed_former_keys(&self.shared);
        }
        let mut inner = self.shared.inner.borrow_mut();
        inner.open_keys.clear();
        inner.renamed_open_keys.clear();
        drop(inner);
    }

    /// Runs an op. Never returns if the machine has crashed, as nobody receives the result.
    async fn step_until_crash(&mut self, mount: &Mount, closes: Option<usize>) -> Result<(), String> {
        let outcome = match closes {
            Some(slot) => self.close(mount, slot).await,
            None => self.run_op(mount).await,
        };
        if mount.injector.has_crashed() {
            return std::future::pending().await;
        }
        let written: BTreeSet<Ino> =
            self.open.iter().filter(|open| open.writes).map(|open| open.ino).collect();
        self.kernel(mount).check(mount.engine(), &written)?;
        match outcome {
            Ok(()) => Ok(()),
            Err(StepError::Mismatch(what)) => Err(format!("file client: {what}")),
            Err(StepError::Failed(error)) => Err(format!("file client: unchecked error {error}")),
        }
    }

    async fn run_op(&mut self, mount: &Mount) -> StepResult {
        let (slot, below) = (self.below(self.open.len().max(1)), self.shared.below(30));
        match below {
            0..=12 if !self.open.is_empty() => self.handle_op(mount, slot).await,
            0..=2 => self.create(mount).await,
            3..=5 | 13..=14 if self.open.len() < OPEN_MAX => self.open(mount).await,
            15..=18 => self.read_key(mount).await,
            19..=20 => self.unlink(mount).await,
            21..=22 => self.rename(mount).await,
            23 => self.rename_directory(mount).await,
            24 => self.make_directory(mount).await,
            25 => self.remove_directory(mount).await,
            26 => self.truncate(mount).await,
            27 => self.chmod(mount).await,
            28 => self.sync(mount).await,
            _ => self.pause().await,
        }
    }

    async fn handle_op(&mut self, mount: &Mount, slot: usize) -> StepResult {
        match (self.shared.below(8), self.open[slot].writes) {
            (0..=3, true) => self.write(mount, slot).await,
            (4, true) => self.fsync(mount, slot).await,
            (0..=4, _) => self.read(mount, slot).await,
            _ => self.close(mount, slot).await,
        }
    }

    fn below(&self, bound: usize) -> usize {
        self.shared.below(bound as u64) as usize
    }

    fn trace_line(&self, what: String) {
        self.shared.trace_line(format!("file client {what}"));
    }

    /// Pauses so that background work proceeds: uploads, exports, moves.
    async fn pause(&self) -> StepResult {
        let ms = [1, 20, 300, 1500, 7000][self.below(5)];
        self.trace_line(format!("pauses for {ms} ms"));
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(())
    }

    async fn create(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let (key, since) = (self.shared.random_key(), self.shared.now());
        if self.is_open_to_write(&key) {
            return Ok(());
        }
        self.trace_line(format!("creates '{key}'"));
        self.shared.inner.borrow_mut().open_keys.push(key.clone());
        let id = self.shared.begin_set(Actor::Files, &key, Some(Bytes::new()));
        let created = async {
            let (dir, name) = parent(&kernel, &key).await?;
            let flags = libc::O_RDWR | libc::O_CREAT;
            kernel.create(CALLER, dir, name.as_bytes(), 0o644, flags).await
        };
        match created.await {
            Ok((attr, opened)) => {
                self.shared.check_content(&key, Actor::Files, since, &None)?;
                self.shared.mark_failed(id);
                let mut open = OpenFile::new(opened.handle, attr.ino, &key, true, since);
                open.begin_write(&self.shared, vec![Bytes::new()]);
                open.known_at = self.shared.now();
                open.is_new = true;
                self.open.push(open);
                Ok(())
            }
            Err(error) => {
                self.forget_open_key(Some(&key));
                match error.errno() {
                    _ if mount.injector.has_crashed() => {}
                    libc::EIO => self.shared.mark_uncertain(id),
                    _ => self.shared.mark_failed(id),
                }
                self.check_failure(mount, &[&key], since, &error)
            }
        }
    }

    fn is_open_to_write(&self, key: &str) -> bool {
        self.open.iter().any(|open| open.writes && open.key.as_deref() == Some(key))
    }

    fn forget_open_key(&self, key: Option<&str>) {
        let open = &mut self.shared.inner.borrow_mut().open_keys;
        if let Some(at) = open.iter().position(|open| Some(open.as_str()) == key) {
            open.remove(at);
        }
    }

    async fn open(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let (key, since) = (self.shared.random_key(), self.shared.now());
        let writes = self.shared.below(3) > 0 && !self.is_open_to_write(&key);
        let truncates = writes && self.shared.below(3) == 0;
        self.trace_line(format!("opens '{key}', to write {writes}, truncated {truncates}"));
        if writes {
            self.shared.inner.borrow_mut().open_keys.push(key.clone());
        }
        let opened = async {
            let attr = lookup_file(&kernel, &key).await?;
            let how = if writes { libc::O_RDWR } else { libc::O_RDONLY };
            let flags = how | if truncates { libc::O_TRUNC } else { 0 };
            Ok::<_, Error>((attr.ino, kernel.open(attr.ino, flags).await?.handle))
        };
        let (ino, handle) = match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                if writes {
                    self.forget_open_key(Some(&key));
                }
                // A failed open with truncation may have truncated the file.
                return self.check_failure(mount, &[&key], since, &error);
            }
        };
        if writes {
            // Read-only handles of the same file see what is written, also under a name that an S3 client has given the file.
            for reader in self.open.iter_mut().filter(|open| !open.writes && open.ino == ino) {
                reader.contents.clear();
                if !self.shared.by_path {
                    reader.key = Some(key.clone());
                }
            }
        }
        let mut open = OpenFile::new(handle, ino, &key, writes, since);
        if truncates {
            open.begin_write(&self.shared, vec![Bytes::new()]);
            open.known_at = self.shared.now();
        }
        self.open.push(open);
        match writes && !truncates {
            true => self.read(mount, self.open.len() - 1).await,
            false => Ok(()),
        }
    }

    /// Reads a whole open file. A handle shows one version of the file for its lifetime.
    async fn read(&mut self, mount: &Mount, slot: usize) -> StepResult {
        let kernel = self.kernel(mount);
        let handle = self.open[slot].handle;
        self.trace_line(format!("reads #{slot} of {:?}", self.open[slot].key));
        let read = self.read_all(&kernel, handle).await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let ino = self.open[slot].ino;
        let others =
            self.open.iter_mut().enumerate().filter(|(other, open)| *other != slot && open.ino == ino);
        others.for_each(|(_, open)| open.note_read_by_others(&self.shared));
        let open = &self.open[slot];
        let key = open.key.clone();
        let seen = match read {
            Ok(seen) => seen,
            Err(error) => {
                let (since, is_stale) = (open.since, error.errno() == libc::ESTALE);
                if is_stale && open.is_stale {
                    return Ok(());
                }
                let keys: Vec<&str> = key.as_deref().into_iter().collect();
                self.check_failure(mount, &keys, since, &error)?;
                self.open[slot].is_stale |= is_stale;
                return Ok(());
            }
        };
        self.shared.count("files read");
        let is_shared = self.open.iter().any(|other| other.writes && other.ino == open.ino);
        let is_expected =
            open.contents.is_empty() || is_shared && !open.writes || open.contents.contains(&seen);
        if !is_expected && !open.may_read(&self.shared, &seen) {
            let known: Vec<String> = open.contents.iter().map(describe_bytes).collect();
            let seen = describe_bytes(&seen);
            return Err(StepError::Mismatch(format!(
                "#{slot} read {seen} and must be {}",
                known.join(" or ")
            )));
        }
        // By inode the handle may show another file than the one that has the name by now.
        let shows_named_file = open.contents.is_empty() && (self.shared.by_path || open.is_certain);
        if let (true, Some(key)) = (shows_named_file, &key) {
            self.shared.check_content(key, Actor::Files, open.since, &Some(seen.clone()))?;
        }
        let (now, open) = (self.shared.now(), &mut self.open[slot]);
        open.has_read = true;
        // By inode a handle shows the file that was opened, whatever has its name by now.
        if (open.contents.is_empty() || !is_expected) && self.shared.by_path {
            open.known_at = now;
        }
        if !is_expected {
            // The written content was stored, or was lost.
            open.is_dirty = false;
            open.end_states(&self.shared, false);
        }
        // A read-only handle of a file that this client also writes sees each state.
        open.contents = if is_shared && !open.writes { Vec::new() } else { vec![seen] };
        Ok(())
    }

    async fn read_all(&self, kernel: &KernelCache, handle: Handle) -> Result<Bytes> {
        let mut content = Vec::new();
        loop {
            let bytes = if content.len() < 4 * READ_BYTES { READ_BYTES } else { READ_BYTES_LARGE };
            let piece = kernel.read(handle, content.len() as u64, bytes).await?;
            if piece.is_empty() {
                return Ok(content.into());
            }
            content.extend_from_slice(&piece);
        }
    }

    /// Looks up and reads a key, as a newly started program does.
    async fn read_key(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let (key, since) = (self.shared.random_key(), self.shared.now());
        self.trace_line(format!("reads '{key}'"));
        let read = async {
            let attr = lookup_file(&kernel, &key).await?;
            let handle = kernel.open(attr.ino, libc::O_RDONLY).await?.handle;
            let content = self.read_all(&kernel, handle).await;
            kernel.release(handle).await?;
            content
        };
        let read = read.await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let is_stale = matches!(&read, Err(error) if error.errno() == libc::ESTALE);
        for open in self.open.iter_mut().filter(|open| open.key.as_deref() == Some(&key)) {
            open.note_read_by_others(&self.shared);
            if is_stale {
                open.note_possible_conflict(&self.shared);
            }
        }
        match read {
            Ok(content) => {
                self.shared.count("files read");
                Ok(self.shared.check_content(&key, Actor::Files, since, &Some(content))?)
            }
            Err(error) => self.check_failure(mount, &[&key], since, &error),
        }
    }

    async fn truncate(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let key = self.shared.random_key();
        if self.is_open_to_write(&key) {
            return Ok(());
        }
        let since = self.shared.now();
        let Some(may) = self.shared.possible_contents(&key, Actor::Files, since) else { return Ok(()) };
        let size = self.below(2000);
        self.trace_line(format!("truncates '{key}' to {size}"));
        // A concurrent writer may replace the content that is truncated.
        let contents: Vec<_> = may.iter().flatten().map(|old| Some(resized(old, size))).collect();
        let is_alone = contents.len() == 1;
        self.shared.inner.borrow_mut().written.extend(contents.iter().flatten().cloned());
        let id = self.shared.begin(Actor::Files, KeySet::Key(key.clone()), ChangeEffect::Sets(contents));
        let done = match lookup_file(&kernel, &key).await {
            Ok(Attr { ino, .. }) => {
                // Read-only handles of the same file see the truncation, also those opened before an S3 client renamed it.
                let is_same = |open: &OpenFile| open.ino == ino || open.key.as_ref() == Some(&key);
                for open in self.open.iter_mut().filter(|open| !open.writes && is_same(open)) {
                    open.contents.clear();
                    open.key = Some(key.clone());
                }
                let changes = Changes { size_bytes: Some(size as u64), ..Changes::default() };
                kernel.setattr(CALLER, ino, changes, None).await
            }
            Err(error) => Err(error),
        };
        let others = [Actor::Endpoint, Actor::Foreign];
        let is_disputed = self.shared.inner.borrow().history.may_have_changed(&key, &others, since);
        if is_disputed {
            let may = self.shared.possible_contents(&key, Actor::Files, since).unwrap_or_default();
            let mut inner = self.shared.inner.borrow_mut();
            inner.written.extend(may.iter().flatten().map(|old| resized(old, size)));
            inner.history.mark_unknown(&key);
        }
        if mount.injector.has_crashed() {
            return Ok(());
        }
        match done {
            Ok(_) if is_alone && !is_disputed => self.shared.complete(id, !self.shared.write_back),
            _ => self.shared.mark_uncertain(id),
        }
        match done {
            Ok(_) => Ok(()),
            Err(error) => self.check_failure(mount, &[&key], since, &error),
        }
    }

    async fn chmod(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        let key = self.shared.random_key();
        let mode = [0o600, 0o640, 0o755][self.below(3)];
        self.trace_line(format!("chmod '{key}' {mode:o}"));
        let since = self.shared.now();
        let id = self.shared.begin(Actor::Files, KeySet::Key(key.clone()), ChangeEffect::KeepsContent);
        let done = async {
            let ino = lookup_file(&kernel, &key).await?.ino;
            kernel.setattr(CALLER, ino, Changes { mode: Some(mode), ..Changes::default() }, None).await
        };
        match done.await {
            _ if mount.injector.has_crashed() => Ok(()),
            // The change stays open in the history: headers, and possibly the tag, change in the background until all clients have stopped.
            Ok(_) => Ok(()),
            Err(error) => {
                self.shared.mark_uncertain(id);
                self.check_failure(mount, &[&key], since, &error)
            }
        }
    }

    async fn sync(&mut self, mount: &Mount) -> StepResult {
        let kernel = self.kernel(mount);
        self.trace_line("syncs".into());
        let began = self.shared.now();
        let synced = kernel.sync().await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        for slot in 0..self.open.len() {
            let open = &mut self.open[slot];
            if !open.writes || !open.is_dirty {
                continue;
            }
            // A new file becomes an object only when it is closed or fsynced.
            let is_new = open.contents.iter().all(Bytes::is_empty);
            match &synced {
                Ok(()) if is_new => open.is_maybe_stored = true,
                Ok(()) => self.record_store(mount, slot, began, Ok(()), true).await?,
                Err(_) => open.is_certain = false,
            }
        }
        match synced {
            Ok(()) => {
                self.shared.inner.borrow_mut().history.sync_until(began);
                Ok(())
            }
            Err(error) => {
                let keys: Vec<String> = self.open.iter().filter_map(|open| open.key.clone()).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                self.check_failure(mount, &keys, began, &error)?;
                match error.errno() {
                    libc::ESTALE => self.abandon_dirty(mount).await,
                    _ => Ok(()),
                }
            }
        }
    }

    /// Abandons all dirty files. The error of a sync does not say which of them lost a conflict, and such a file continues with the
    /// bucket's content.
    async fn abandon_dirty(&mut self, mount: &Mount) -> StepResult {
        while let Some(slot) = self.open.iter().position(|open| open.writes && open.is_dirty) {
            self.abandon(mount, slot).await?;
            if mount.injector.has_crashed() {
                break;
            }
        }
        Ok(())
    }

    /// Checks that an error has a cause.
    fn check_failure(&self, mount: &Mount, keys: &[&str], since: Moment, error: &Error) -> StepResult {
        let injector: &Arc<FaultInjector> = &mount.injector;
        if injector.has_crashed() {
            return Ok(());
        }
        self.trace_line(format!("fails: {error}"));
        self.shared.count("failures");
        let others = [Actor::Endpoint, Actor::Foreign];
        let is_disputed = || {
            let history = &self.shared.inner.borrow().history;
            // A failed store may have succeeded, and the mount then takes the object for another writer's.
            let is_other = |key: &&str| {
                history.may_have_changed_under_any_name(key, &others)
                    || history.has_uncertain_change(key)
                    || history.has_foreign_change_in_move(key)
            };
            // The history does not track the markers of directories.
            keys.is_empty() || keys.iter().any(|key| DIRS.contains(key) || is_other(key))
        };
        let is_right = match error.errno() {
            libc::EIO => injector.fault_count() > 0,
            libc::ESTALE => is_disputed(),
            libc::ENOENT => {
                // A file shown under an escaped name gets its plain name back when the directory of that name is removed.
                let may_be_absent = |key: &&str| {
                    key.contains('/')
                        || DIRS.contains(key)
                        || self.shared.may_be_absent(key, Actor::Files, since)
                };
                keys.iter().any(may_be_absent)
            }
            libc::EEXIST => {
                keys.iter().any(|key| DIRS.contains(key) || self.shared.may_exist(key, Actor::Files, since))
            }
            // A key may be a directory at times.
            libc::ENOTDIR | libc::EISDIR | libc::ENOTEMPTY => true,
            _ => false,
        };
        match is_right {
            true => Ok(()),
            false => Err(StepError::Mismatch(format!(
                "{keys:?} failed without a cause: {error} ({})",
                error.errno()
            ))),
        }
    }
}

/// Looks up the file of a key. It has an escaped name if a directory has its name.
async fn lookup_file(kernel: &KernelCache, key: &str) -> Result<Attr> {
    let (dir, name) = parent_of_existing(kernel, key).await?;
    kernel.lookup(dir, name.as_bytes()).await
}

/// Returns the directory of a key, and the plain name in it.
async fn parent(kernel: &KernelCache, key: &str) -> Result<(Ino, String)> {
    let (dirs, name) = key.rsplit_once('/').unwrap_or(("", key));
    let mut dir = Ino::ROOT;
    for name in dirs.split('/').filter(|name| !name.is_empty()) {
        let attr = kernel.lookup(dir, name.as_bytes()).await?;
        if attr.kind != vfs::Kind::Directory {
            return Err(meta::FsError::NotDirectory.into());
        }
        dir = attr.ino;
    }
    Ok((dir, name.into()))
}

/// Returns the directory of a key, and the name under which an existing file is shown there.
async fn parent_of_existing(kernel: &KernelCache, key: &str) -> Result<(Ino, String)> {
    let (dir, name) = parent(kernel, key).await?;
    match kernel.lookup(dir, name.as_bytes()).await?.kind {
        vfs::Kind::Directory => Ok((dir, String::from_utf8_lossy(&colliding(name.as_bytes())).into_owned())),
        _ => Ok((dir, name)),
    }
}

fn resized(old: &Bytes, size: usize) -> Bytes {
    let mut content = old.to_vec();
    content.resize(size, 0);
    content.into()
}
