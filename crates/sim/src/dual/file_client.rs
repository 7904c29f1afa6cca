//! A program that uses the files: it does one thing after the other, and judges what comes of it.

mod names;
mod writes;

use super::key_history::{By, Moment, Place, What};
use super::open_file::Open;
use super::shared_state::{Stage, told_bytes};
use crate::files::fault_injector::Weather;
use crate::files::machine::Mount;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use store::names::beside;
use vfs::{Attr, Caller, Changes, Error, Filesystem, Handle, Ino, Result};

const CALLER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };
/// Directories that are made, moved and removed.
const DIRS: [&str; 3] = ["d", "e", "d/f"];
const OPEN_MAX: usize = 3;
/// Bytes read at a time, so that a file is read in several calls.
const READ_BYTES: usize = 900;
/// So much more is asked for when a file is large.
const READ_BYTES_LARGE: usize = 128 << 10;

pub(super) struct Program {
    stage: Stage,
    open: Vec<Open>,
}

/// Why an op ended early.
enum Stop {
    Failed(Error),
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

type Step = std::result::Result<(), Stop>;

impl Program {
    pub(super) fn new(stage: Stage) -> Self {
        Self { stage, open: Vec::new() }
    }

    pub(super) async fn live(&mut self, mount: &Mount, ops: u64) -> Result<(), String> {
        for _ in 0..ops {
            self.stage.step();
            self.alive(mount, None).await?;
        }
        while !self.open.is_empty() {
            self.alive(mount, Some(0)).await?;
        }
        Ok(())
    }

    /// What was open went with the machine.
    pub(super) fn recover(&mut self) {
        self.open.clear();
        self.stage.inner.borrow_mut().open.clear();
    }

    /// Nobody hears what is answered after the crash.
    async fn alive(&mut self, mount: &Mount, closes: Option<usize>) -> Result<(), String> {
        let outcome = match closes {
            Some(slot) => self.close(mount, slot).await,
            None => self.op(mount).await,
        };
        if mount.weather.has_crashed() {
            return std::future::pending().await;
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(Stop::Wrong(what)) => Err(format!("program: {what}")),
            Err(Stop::Failed(error)) => Err(format!("program: nobody judged {error}")),
        }
    }

    async fn op(&mut self, mount: &Mount) -> Step {
        let (slot, below) = (self.below(self.open.len().max(1)), self.stage.below(30));
        match below {
            0..=12 if !self.open.is_empty() => self.of_handle(mount, slot).await,
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
            _ => self.rest().await,
        }
    }

    async fn of_handle(&mut self, mount: &Mount, slot: usize) -> Step {
        match (self.stage.below(8), self.open[slot].writes) {
            (0..=3, true) => self.write(mount, slot).await,
            (4, true) => self.fsync(mount, slot).await,
            (0..=4, _) => self.read(mount, slot).await,
            _ => self.close(mount, slot).await,
        }
    }

    fn below(&self, bound: usize) -> usize {
        self.stage.below(bound as u64) as usize
    }

    fn tell(&self, what: String) {
        self.stage.tell(format!("program {what}"));
    }

    /// Time in which what runs in the background goes on: uploads, exports, moves.
    async fn rest(&self) -> Step {
        let ms = [1, 20, 300, 1500, 7000][self.below(5)];
        self.tell(format!("rests for {ms} ms"));
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(())
    }

    async fn create(&mut self, mount: &Mount) -> Step {
        let (key, since) = (self.stage.key(), self.stage.now());
        if self.is_open_to_write(&key) {
            return Ok(());
        }
        self.tell(format!("creates '{key}'"));
        self.stage.inner.borrow_mut().open.push(key.clone());
        let id = self.stage.becomes(By::Files, &key, Some(Bytes::new()));
        let created = async {
            let (dir, name) = parent(&mount.fs, &key).await?;
            let flags = libc::O_RDWR | libc::O_CREAT;
            mount.fs.create(CALLER, dir, name.as_bytes(), 0o644, flags).await
        };
        match created.await {
            Ok((attr, opened)) => {
                self.stage.must_be(&key, By::Files, since, &None)?;
                self.stage.in_vain(id);
                let mut open = Open::new(opened.handle, attr.ino, &key, true, since);
                open.begins_write(&self.stage, vec![Bytes::new()]);
                open.based_at = self.stage.now();
                open.is_new = true;
                self.open.push(open);
                Ok(())
            }
            Err(error) => {
                self.is_not_open(Some(&key));
                match error.errno() {
                    _ if mount.weather.has_crashed() => {}
                    libc::EIO => self.stage.doubt(id),
                    _ => self.stage.in_vain(id),
                }
                self.may_fail(mount, &[&key], since, &error)
            }
        }
    }

    fn is_open_to_write(&self, key: &str) -> bool {
        self.open.iter().any(|open| open.writes && open.key.as_deref() == Some(key))
    }

    fn is_not_open(&self, key: Option<&str>) {
        let open = &mut self.stage.inner.borrow_mut().open;
        if let Some(at) = open.iter().position(|open| Some(open.as_str()) == key) {
            open.remove(at);
        }
    }

    async fn open(&mut self, mount: &Mount) -> Step {
        let (key, since) = (self.stage.key(), self.stage.now());
        let writes = self.stage.below(3) > 0 && !self.is_open_to_write(&key);
        let truncates = writes && self.stage.below(3) == 0;
        self.tell(format!("opens '{key}', to write {writes}, truncated {truncates}"));
        if writes {
            self.stage.inner.borrow_mut().open.push(key.clone());
        }
        let opened = async {
            let attr = find(&mount.fs, &key).await?;
            let how = if writes { libc::O_RDWR } else { libc::O_RDONLY };
            let flags = how | if truncates { libc::O_TRUNC } else { 0 };
            Ok::<_, Error>((attr.ino, mount.fs.open(attr.ino, flags).await?.handle))
        };
        let (ino, handle) = match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                if writes {
                    self.is_not_open(Some(&key));
                }
                // A file that was truncated in vain may have been, too.
                return self.may_fail(mount, &[&key], since, &error);
            }
        };
        if writes {
            // Who has it open to read sees what is written.
            let readers = self.open.iter_mut().filter(|open| !open.writes && open.ino == ino);
            readers.for_each(|open| open.contents.clear());
        }
        let mut open = Open::new(handle, ino, &key, writes, since);
        if truncates {
            open.begins_write(&self.stage, vec![Bytes::new()]);
            open.based_at = self.stage.now();
        }
        self.open.push(open);
        match writes && !truncates {
            true => self.read(mount, self.open.len() - 1).await,
            false => Ok(()),
        }
    }

    /// Reads all of an open file: it is one version, and stays that.
    async fn read(&mut self, mount: &Mount, slot: usize) -> Step {
        let handle = self.open[slot].handle;
        self.tell(format!("reads #{slot} of {:?}", self.open[slot].key));
        let read = self.read_all(&mount.fs, handle).await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
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
                self.may_fail(mount, &keys, since, &error)?;
                self.open[slot].is_stale |= is_stale;
                return Ok(());
            }
        };
        self.stage.count("files read");
        let is_shared = self.open.iter().any(|other| other.writes && other.ino == open.ino);
        let is_known = open.contents.is_empty() || is_shared && !open.writes || open.contents.contains(&seen);
        if !is_known && !open.may_turn_out(&self.stage, &seen) {
            let known: Vec<String> = open.contents.iter().map(told_bytes).collect();
            let seen = told_bytes(&seen);
            return Err(Stop::Wrong(format!("#{slot} reads {seen} after {}", known.join(" or "))));
        }
        if let (true, Some(key)) = (open.contents.is_empty(), &key) {
            self.stage.must_be(key, By::Files, open.since, &Some(seen.clone()))?;
        }
        let (now, open) = (self.stage.now(), &mut self.open[slot]);
        open.has_read = true;
        // By inode it is what was opened, whatever has the name by now.
        if (open.contents.is_empty() || !is_known) && self.stage.by_path {
            open.based_at = now;
        }
        if !is_known {
            // What was written was stored, or lost.
            open.is_dirty = false;
            open.forget_drafts(&self.stage, false);
        }
        // Of a file that the program writes too, a reader sees each state.
        open.contents = if is_shared && !open.writes { Vec::new() } else { vec![seen] };
        Ok(())
    }

    async fn read_all(&self, fs: &Filesystem, handle: Handle) -> Result<Bytes> {
        let mut content = Vec::new();
        loop {
            let bytes = if content.len() < 4 * READ_BYTES { READ_BYTES } else { READ_BYTES_LARGE };
            let piece = fs.read(handle, content.len() as u64, bytes).await?;
            if piece.is_empty() {
                return Ok(content.into());
            }
            content.extend_from_slice(&piece);
        }
    }

    /// Looks at a key as a program does that was just started.
    async fn read_key(&mut self, mount: &Mount) -> Step {
        let (key, since) = (self.stage.key(), self.stage.now());
        self.tell(format!("reads '{key}'"));
        let read = async {
            let attr = find(&mount.fs, &key).await?;
            let handle = mount.fs.open(attr.ino, libc::O_RDONLY).await?.handle;
            let content = self.read_all(&mount.fs, handle).await;
            mount.fs.release(handle).await?;
            content
        };
        let read = read.await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        match read {
            Ok(content) => {
                self.stage.count("files read");
                Ok(self.stage.must_be(&key, By::Files, since, &Some(content))?)
            }
            Err(error) => self.may_fail(mount, &[&key], since, &error),
        }
    }

    async fn truncate(&mut self, mount: &Mount) -> Step {
        let key = self.stage.key();
        if self.is_open_to_write(&key) {
            return Ok(());
        }
        let since = self.stage.now();
        let Some(may) = self.stage.may_be(&key, By::Files, since) else { return Ok(()) };
        let size = self.below(2000);
        self.tell(format!("truncates '{key}' to {size}"));
        // Who has it open to read sees that.
        let readers = self.open.iter_mut().filter(|open| !open.writes && open.key.as_ref() == Some(&key));
        readers.for_each(|open| open.contents.clear());
        // Who changes it at the same time makes it something else to cut.
        let contents: Vec<_> = may.iter().flatten().map(|old| Some(cut(old, size))).collect();
        let is_alone = contents.len() == 1;
        self.stage.inner.borrow_mut().written.extend(contents.iter().flatten().cloned());
        let id = self.stage.begin(By::Files, Place::Key(key.clone()), What::Becomes(contents));
        let done = async {
            let ino = find(&mount.fs, &key).await?.ino;
            let changes = Changes { size_bytes: Some(size as u64), ..Changes::default() };
            mount.fs.setattr(CALLER, ino, changes, None).await
        };
        let done = done.await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let others = [By::Endpoint, By::Stranger];
        let is_disputed = self.stage.inner.borrow().history.is_touched(&key, &others, since);
        if is_disputed {
            let may = self.stage.may_be(&key, By::Files, since).unwrap_or_default();
            let mut inner = self.stage.inner.borrow_mut();
            inner.written.extend(may.iter().flatten().map(|old| cut(old, size)));
            inner.history.is_wild(&key);
        }
        match done {
            Ok(_) if is_alone && !is_disputed => self.stage.done(id, !self.stage.write_back),
            _ => self.stage.doubt(id),
        }
        match done {
            Ok(_) => Ok(()),
            Err(error) => self.may_fail(mount, &[&key], since, &error),
        }
    }

    async fn chmod(&mut self, mount: &Mount) -> Step {
        let key = self.stage.key();
        let mode = [0o600, 0o640, 0o755][self.below(3)];
        self.tell(format!("chmod '{key}' {mode:o}"));
        let since = self.stage.now();
        let id = self.stage.begin(By::Files, Place::Key(key.clone()), What::Stays);
        let done = async {
            let ino = find(&mount.fs, &key).await?.ino;
            mount.fs.setattr(CALLER, ino, Changes { mode: Some(mode), ..Changes::default() }, None).await
        };
        match done.await {
            _ if mount.weather.has_crashed() => Ok(()),
            // Its headers change a moment later, and its tag may: until everybody has stopped.
            Ok(_) => Ok(()),
            Err(error) => {
                self.stage.doubt(id);
                self.may_fail(mount, &[&key], since, &error)
            }
        }
    }

    async fn sync(&mut self, mount: &Mount) -> Step {
        self.tell("syncs".into());
        let began = self.stage.now();
        let synced = mount.fs.sync().await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        for slot in 0..self.open.len() {
            let open = &mut self.open[slot];
            if !open.writes || !open.is_dirty {
                continue;
            }
            // A new file is an object when it is closed or fsynced.
            let is_new = open.contents.iter().all(Bytes::is_empty);
            match &synced {
                Ok(()) if is_new => open.is_maybe_stored = true,
                Ok(()) => self.stored(mount, slot, began, Ok(()), true).await?,
                Err(_) => open.is_certain = false,
            }
        }
        match synced {
            Ok(()) => {
                self.stage.inner.borrow_mut().history.all_synced(began);
                Ok(())
            }
            Err(error) => {
                let keys: Vec<String> = self.open.iter().filter_map(|open| open.key.clone()).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                self.may_fail(mount, &keys, began, &error)?;
                match error.errno() {
                    libc::ESTALE => self.give_up_all(mount).await,
                    _ => Ok(()),
                }
            }
        }
    }

    /// Which of them lost to others nobody says, and what did goes on as what the bucket has.
    async fn give_up_all(&mut self, mount: &Mount) -> Step {
        while let Some(slot) = self.open.iter().position(|open| open.writes && open.is_dirty) {
            self.give_up(mount, slot).await?;
            if mount.weather.has_crashed() {
                break;
            }
        }
        Ok(())
    }

    /// An error has a reason.
    fn may_fail(&self, mount: &Mount, keys: &[&str], since: Moment, error: &Error) -> Step {
        let weather: &Arc<Weather> = &mount.weather;
        if weather.has_crashed() {
            return Ok(());
        }
        self.tell(format!("fails: {error}"));
        self.stage.count("failures");
        let others = [By::Endpoint, By::Stranger];
        let is_disputed = || {
            let history = &self.stage.inner.borrow().history;
            // Of what failed nobody heard whether it was stored: it is taken for somebody else's.
            let is_other = |key: &&str| {
                history.is_touched_under_any_name(key, &others)
                    || history.is_doubtful(key)
                    || history.is_crossed(key)
            };
            // Nobody keeps a history of markers.
            keys.is_empty() || keys.iter().any(|key| DIRS.contains(key) || is_other(key))
        };
        let is_right = match error.errno() {
            libc::EIO => weather.struck() > 0,
            libc::ESTALE => is_disputed(),
            libc::ENOENT => {
                // What lies beside a directory has its plain name again when that goes.
                let may_be_absent = |key: &&str| {
                    key.contains('/') || DIRS.contains(key) || self.stage.may_be_absent(key, By::Files, since)
                };
                keys.iter().any(may_be_absent)
            }
            libc::EEXIST => {
                keys.iter().any(|key| DIRS.contains(key) || self.stage.may_be_there(key, By::Files, since))
            }
            // Names are directories at times.
            libc::ENOTDIR | libc::EISDIR | libc::ENOTEMPTY => true,
            _ => false,
        };
        match is_right {
            true => Ok(()),
            false => Err(Stop::Wrong(format!("{keys:?} failed for no reason: {error} ({})", error.errno()))),
        }
    }
}

/// The file that a key is shown as: beside a directory that has its name.
async fn find(fs: &Filesystem, key: &str) -> Result<Attr> {
    let (dir, name) = parent_of_known(fs, key).await?;
    fs.lookup(dir, name.as_bytes()).await
}

/// The directory of a key, and the name that it has or would have.
async fn parent(fs: &Filesystem, key: &str) -> Result<(Ino, String)> {
    let (dirs, name) = key.rsplit_once('/').unwrap_or(("", key));
    let mut dir = Ino::ROOT;
    for name in dirs.split('/').filter(|name| !name.is_empty()) {
        dir = fs.lookup(dir, name.as_bytes()).await?.ino;
    }
    Ok((dir, name.into()))
}

/// The same with the name that it has.
async fn parent_of_known(fs: &Filesystem, key: &str) -> Result<(Ino, String)> {
    let (dir, name) = parent(fs, key).await?;
    match fs.lookup(dir, name.as_bytes()).await?.kind {
        vfs::Kind::Directory => Ok((dir, String::from_utf8_lossy(&beside(name.as_bytes())).into_owned())),
        _ => Ok((dir, name)),
    }
}

fn cut(old: &Bytes, size: usize) -> Bytes {
    let mut content = old.to_vec();
    content.resize(size, 0);
    content.into()
}
