//! A program in a directory of its own: it does one thing after the other, and knows what must come of it.
//!
//! A call that fails because the store did leaves a doubt: what is then seen, in fine weather, must be what was or
//! what was to be, and is believed from then on.

use super::fault_injector::Weather;
use super::fs_model::{Effect, Model, Names, NodeId};
use super::machine::{Loss, Mount};
use super::op::{Aim, How, Op, Open, Space};
use super::oracle::{self, Found, May, Sight, told};
use super::predict::{Refusal, foresee};
use super::scenario::Setting;
use super::walk::{look, read_all};
use crate::Report;
use crate::trace::Tale;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use store::Entropy;
use vfs::{Caller, Changes, Error, Filesystem, Ino, Result};

const CALLER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };
/// After so long everything that is known of the bucket is looked at again.
pub(super) const EXPIRED: Duration = Duration::from_secs(6);
/// So often a call may fail in fine weather by what happened before.
const ATTEMPTS: u32 = 3;

pub(super) struct Program {
    pub(super) root: String,
    pub(super) model: Model,
    entropy: Entropy,
    open: Vec<Open>,
    /// What the op under way was about to do.
    coming: Option<Effect>,
    tale: Tale,
    pub(super) report: Report,
    /// So many ops were begun in all lives.
    pub(super) ops: u64,
}

/// What a call answers.
enum Answer {
    Done,
    Opened(Open),
    Read(Bytes),
    Looked(Sight),
}

impl Program {
    pub(super) fn new(number: u64, setting: Setting, seed: u64, tale: Tale) -> Self {
        Self {
            root: format!("p{number}"),
            model: Model::new(setting),
            entropy: Entropy::new(seed),
            open: Vec::new(),
            coming: None,
            tale,
            report: Report::default(),
            ops: 0,
        }
    }

    /// One life: so many ops, or until the machine crashes.
    pub(super) async fn live(&mut self, mount: &Mount, ops: u64) -> Result<(), String> {
        for _ in 0..ops {
            self.ops += 1;
            let op = Aim { entropy: &self.entropy, model: &self.model, open: &self.open }.op();
            self.alive(mount, &op).await?;
            if self.entropy.below(40) == 0 {
                mount.checkpoint()?;
            }
        }
        Ok(())
    }

    /// Closes what is open.
    pub(super) async fn leave(&mut self, mount: &Mount) -> Result<(), String> {
        while !self.open.is_empty() {
            self.alive(mount, &Op::Close(0)).await?;
        }
        Ok(())
    }

    /// Nobody hears what is answered after the crash.
    async fn alive(&mut self, mount: &Mount, op: &Op) -> Result<(), String> {
        let outcome = self.step(mount, op).await;
        if mount.weather.has_crashed() {
            return std::future::pending().await;
        }
        outcome
    }

    async fn step(&mut self, mount: &Mount, op: &Op) -> Result<(), String> {
        let weather = &mount.weather;
        let struck_before = match op {
            // It is told what failed of everybody's files.
            Op::Sync => 0,
            _ => self.model.clean_at(weather.struck()),
        };
        self.tale.tell(format!("{} {op:?}", self.root));
        let foreseen = foresee(&mut self.model, &self.open, op, weather.struck());
        if let Ok(effect) = &foreseen {
            let before = self.before(effect);
            self.model.begin(effect, weather.syncs());
            self.coming = Some(effect.clone());
            let answer = self.call(mount, op).await;
            if weather.has_crashed() {
                return Ok(());
            }
            match answer {
                Ok(_) if self.drops_writes(op) => self.resolve(mount, op, effect, before).await?,
                Ok(answer) => self.acknowledged(op, effect, answer, weather)?,
                Err(error) => {
                    self.may_fail(op, &error, struck_before, weather)?;
                    self.resolve(mount, op, effect, before).await?;
                }
            }
            self.coming = None;
            return Ok(());
        }
        let answer = self.call(mount, op).await;
        self.refused(op, &foreseen.err().unwrap_or_default(), answer, struck_before, weather)
    }

    /// Writes whose `close` failed go with the last handle, also if that only reads.
    fn drops_writes(&self, op: &Op) -> bool {
        let Op::Close(slot) = op else { return false };
        let Open { node, writes, .. } = self.open[*slot];
        let handles = self.open.iter().filter(|open| open.node == node).count();
        !writes && handles == 1 && self.model.nodes[node].is_dirty
    }

    /// Content and mode of the node that an op is about.
    fn before(&self, effect: &Effect) -> Option<(NodeId, Bytes, u16)> {
        let node = effect.node?;
        Some((node, self.model.content(node).clone(), *self.model.nodes[node].mode.now()))
    }

    fn refused(
        &mut self,
        op: &Op,
        refusal: &Refusal,
        answer: Result<Answer>,
        struck_before: u64,
        weather: &Weather,
    ) -> Result<(), String> {
        match answer {
            Ok(_) => Err(format!("{op:?} succeeded and must not, but be refused with {refusal:?}")),
            Err(error) if refusal.contains(&error.errno()) => {
                self.report.count("refusals");
                Ok(())
            }
            Err(error) => self.may_fail(op, &error, struck_before, weather),
        }
    }

    /// A failure has a reason: a call of the store that failed.
    fn may_fail(
        &mut self,
        op: &Op,
        error: &Error,
        struck_before: u64,
        weather: &Weather,
    ) -> Result<(), String> {
        self.tale.tell(format!("{} failed: {error}", self.root));
        self.report.count("failures");
        match error.errno() {
            libc::EIO if weather.struck() > struck_before => Ok(()),
            // Its first copy got there, and the second did not replace it.
            libc::EEXIST if matches!(op, Op::Rename { how: How::NoReplace, .. }) => Ok(()),
            errno => Err(format!("{op:?} failed for no reason: {error} ({errno})")),
        }
    }

    fn acknowledged(
        &mut self,
        op: &Op,
        effect: &Effect,
        answer: Answer,
        weather: &Weather,
    ) -> Result<(), String> {
        self.report.count("ops");
        let struck = weather.struck();
        let replaced = match op {
            Op::Rename { to, how: How::Replace, .. } => self.model.at(to),
            _ => None,
        };
        self.model.done(effect);
        match (op, answer) {
            (Op::Close(slot), _) => {
                let Open { node, writes, .. } = self.open.remove(*slot);
                if writes {
                    self.model.closed(node, struck, weather.syncs());
                }
            }
            (Op::Fsync(slot), _) => self.model.fsynced(self.open[*slot].node, struck),
            (Op::Sync, _) => self.model.synced(struck),
            (Op::Truncate { .. }, _) => self.close_node(effect, weather),
            (Op::Rename { .. }, _)
                if replaced.is_some() && effect.names.is_some() && self.model.setting.by_path() =>
            {
                self.close_node(effect, weather);
            }
            (_, Answer::Opened(open)) => self.opened(open, effect),
            (Op::Read { slot, at, len }, Answer::Read(seen)) => {
                return self.has_read(*slot, *at, *len, &seen);
            }
            (_, Answer::Looked(sight)) => return self.believe(&sight),
            _ => {}
        }
        Ok(())
    }

    fn close_node(&mut self, effect: &Effect, weather: &Weather) {
        if let Some(node) = effect.node {
            self.model.closed(node, weather.struck(), weather.syncs());
        }
    }

    fn opened(&mut self, open: Open, effect: &Effect) {
        if let Some(node) = effect.node {
            self.model.nodes[node].ino = Some(open.ino);
            self.open.push(Open { node, ..open });
        }
    }

    fn has_read(&self, slot: usize, at: usize, len: usize, seen: &Bytes) -> Result<(), String> {
        let content = self.model.content(self.open[slot].node);
        let expected = content.slice(at.min(content.len())..(at + len).min(content.len()));
        match *seen == expected {
            true => Ok(()),
            false => Err(format!("#{slot} at {at} reads {}, not {}", told(seen), told(&expected))),
        }
    }

    /// What is seen is what is.
    fn believe(&mut self, sight: &Sight) -> Result<(), String> {
        let found = oracle::now(&self.model, |may| may.be(sight))?;
        self.know(&found, sight);
        Ok(())
    }

    /// Remembers the numbers of inodes, where they stay.
    fn know(&mut self, found: &Found, sight: &Sight) {
        for (path, node) in found.iter().filter(|_| !self.model.setting.by_path()) {
            self.model.nodes[*node].ino = Some(sight[path].ino);
        }
    }

    /// Everything is as it should be, in fine weather.
    pub(super) async fn check(&mut self, fs: &Filesystem, weather: &Arc<Weather>) -> Result<(), String> {
        let _calm = weather.calm();
        let sight = self.look_calmly(fs).await?;
        self.believe(&sight)
    }

    /// Another machine sees the same.
    pub(super) async fn check_elsewhere(&self, fs: &Filesystem) -> Result<(), String> {
        let sight = self.look_calmly(fs).await?;
        oracle::elsewhere(&self.model, |may| may.be(&sight)).map(drop)
    }

    async fn look_calmly(&self, fs: &Filesystem) -> Result<Sight, String> {
        let mut failed = None;
        for _ in 0..ATTEMPTS {
            match look(fs, &self.root).await {
                Ok(sight) => return Ok(sight),
                Err(error) => failed = Some(error),
            }
        }
        Err(format!("in fine weather nothing can be seen: {failed:?}"))
    }

    /// After a failure: what was, or what was to be, is what is seen once the weather is fine.
    async fn resolve(
        &mut self,
        mount: &Mount,
        op: &Op,
        effect: &Effect,
        before: Option<(NodeId, Bytes, u16)>,
    ) -> Result<(), String> {
        let _calm = mount.weather.calm();
        self.report.count("doubts");
        if let Op::Close(slot) = op {
            // The handle is gone, whatever became of its writes.
            self.open.remove(*slot);
        }
        if self.model.setting.by_path() {
            self.give_up_removed(&mount.fs, op).await;
            tokio::time::sleep(EXPIRED).await;
        }
        let sight = self.look_calmly(&mount.fs).await?;
        let found = self.judge_doubt(op, effect, before.as_ref(), &sight)?;
        if let Some(names) = effect.names.as_ref().filter(|_| self.model.setting.by_path()) {
            // Where names wait for a sync, a crash may leave it half done once more.
            self.model.names.set(names.clone());
        }
        self.settle(found, &sight);
        self.reread(&mount.fs, effect, before.as_ref()).await
    }

    /// By path a rename or an unlink that fails half-way may have taken the object of a file that is open: whose bytes
    /// its name has now, and whether more can be stored there, nobody knows.
    async fn give_up_removed(&mut self, fs: &Filesystem, op: &Op) {
        let (Op::Rename { to: path, .. } | Op::Unlink(path)) = op else { return };
        let Some(removed) = self.model.at(path) else { return };
        for open in self.open.extract_if(.., |open| open.node == removed) {
            drop(fs.flush(open.handle).await);
            drop(fs.release(open.handle).await);
        }
    }

    fn judge_doubt(
        &self,
        op: &Op,
        effect: &Effect,
        before: Option<&(NodeId, Bytes, u16)>,
        sight: &Sight,
    ) -> Result<Found, String> {
        let nodes = &self.model.nodes;
        let may_be_old = |node: NodeId, seen: &Bytes| {
            let is_it = before.is_some_and(|(of, content, _)| *of == node && content == seen);
            is_it || effect.may_leave(node, seen)
        };
        // What it leaves behind may be what was stored before.
        let is_rename = matches!(op, Op::Rename { .. }) && self.model.setting.by_path();
        // Writes that could not be stored go with the last handle.
        let closes = |node: NodeId| match op {
            Op::Close(_) | Op::Truncate { .. } => effect.node == Some(node),
            Op::Rename { to: path, .. } | Op::Unlink(path) => self.model.at(path) == Some(node),
            _ => false,
        };
        let may_be_dropped = |node| closes(node) && !self.open.iter().any(|open| open.node == node);
        let may = May {
            model: &self.model,
            states: std::iter::once(self.model.names.now()).chain(&effect.names).collect(),
            contents: &|node, seen| {
                nodes[node].content.now() == seen
                    || may_be_old(node, seen)
                    || (is_rename || may_be_dropped(node))
                        && nodes[node].content.left(Loss::Power).contains(seen)
            },
            modes: &|node, seen| {
                *nodes[node].mode.now() == seen
                    || before.is_some_and(|(of, _, mode)| *of == node && *mode == seen)
                    || (is_rename || may_be_dropped(node))
                        && nodes[node].mode.left(Loss::Power).contains(&seen)
            },
            may_be_implicit: self.model.setting.by_path(),
            is_optional: &|node| {
                may_be_dropped(node) && nodes[node].is_stored.left(Loss::Power).contains(&false)
            },
        };
        may.be(sight)
    }

    /// What was seen after a failure is what is from now on. How much of it survives a crash nobody has promised.
    fn settle(&mut self, mut found: Found, sight: &Sight) {
        // Who has it open has the one that it opened.
        found.sort_by_key(|(path, _)| !self.open.iter().any(|open| open.ino == sight[path].ino));
        let mut names = Names::new();
        for (path, node) in found {
            let (seen, node) = (&sight[&path], self.own_node(&names, node, &path, sight));
            names.insert(path, node);
            let is_open = self.open.iter().any(|open| open.node == node);
            self.model.found(node, seen, is_open);
        }
        let found = names.iter().map(|(path, node)| (path.clone(), *node)).collect();
        self.know(&found, sight);
        let effect = Effect { names: Some(names), ..Effect::default() };
        self.model.done(&effect);
    }

    /// By path a rename that failed half-way may leave two files of one: each is its own from now on, with all its names.
    fn own_node(&mut self, names: &Names, node: NodeId, path: &str, sight: &Sight) -> NodeId {
        let ino = |path: &String| sight[path].ino;
        let ours = sight[path].ino;
        if let Some((_, known)) = names.iter().find(|(other, _)| ino(other) == ours) {
            return *known;
        }
        if !self.model.setting.by_path() || !names.values().any(|named| *named == node) {
            return node;
        }
        self.model.nodes.push(self.model.nodes[node].clone());
        self.model.nodes.len() - 1
    }

    /// Whoever has a file open sees what everybody sees; of one without a name what may be.
    async fn reread(
        &mut self,
        fs: &Filesystem,
        effect: &Effect,
        before: Option<&(NodeId, Bytes, u16)>,
    ) -> Result<(), String> {
        for (slot, open) in self.open.clone().into_iter().enumerate() {
            let seen = self.read_calmly(fs, open).await?;
            let is_now = seen == *self.model.content(open.node);
            let is_old = before.is_some_and(|(node, content, _)| *node == open.node && *content == seen);
            let is_part = || effect.may_leave(open.node, &seen);
            if !is_now && (self.model.has_name(open.node) || !is_old && !is_part()) {
                let now = told(self.model.content(open.node));
                return Err(format!("after a failure #{slot} reads {}, not {now}", told(&seen)));
            }
            self.model.nodes[open.node].content.set(seen);
        }
        Ok(())
    }

    async fn read_calmly(&self, fs: &Filesystem, open: Open) -> Result<Bytes, String> {
        let mut failed = None;
        for _ in 0..ATTEMPTS {
            match read_all(fs, open.handle).await {
                Ok(seen) => return Ok(seen),
                Err(error) => failed = Some(error),
            }
        }
        Err(format!("in fine weather an open file cannot be read: {failed:?}"))
    }

    /// After a crash: what was acknowledged is there, and nothing that nobody made.
    pub(super) async fn recover(&mut self, mount: &Mount, loss: Loss) -> Result<(), String> {
        if self.model.setting.by_path() {
            // What a directory is like its own marker says, which a look into it finds.
            self.look_calmly(&mount.fs).await?;
        }
        let sight = self.look_calmly(&mount.fs).await?;
        let coming = self.coming.take().unwrap_or_default();
        let found = oracle::after_a_crash(&self.model, &coming, loss, |may| may.be(&sight))?;
        let mut taken = Names::new();
        let mut adopted = Vec::new();
        for (path, node) in found {
            let node = self.own_node(&taken, node, &path, &sight);
            taken.insert(path.clone(), node);
            let seen = &sight[&path];
            adopted.push((path, node, seen.content.clone(), seen.mode));
        }
        self.open.clear();
        self.model.adopt(adopted, loss);
        let found = taken.into_iter().collect();
        self.know(&found, &sight);
        Ok(())
    }

    async fn call(&self, mount: &Mount, op: &Op) -> Result<Answer> {
        let (fs, weather) = (&*mount.fs, &mount.weather);
        match op {
            Op::Create { path, mode } => {
                let (dir, name) = self.parent(fs, path).await?;
                let flags = libc::O_RDWR | libc::O_CREAT;
                let (attr, opened) = fs.create(CALLER, dir, name, *mode, flags).await?;
                let (ino, handle) = (attr.ino, opened.handle);
                return Ok(Answer::Opened(Open { handle, ino, node: 0, writes: true }));
            }
            Op::Open { path, writes, truncates } => {
                let how = if *writes { libc::O_RDWR } else { libc::O_RDONLY };
                let truncated = if *truncates { libc::O_TRUNC } else { 0 };
                let ino = self.ino(fs, path).await?;
                let handle = fs.open(ino, how | truncated).await?.handle;
                return Ok(Answer::Opened(Open { handle, ino, node: 0, writes: *writes }));
            }
            Op::Close(slot) => {
                let handle = self.open[*slot].handle;
                let flushed = fs.flush(handle).await;
                flushed.and(fs.release(handle).await)?;
            }
            Op::Write { slot, at, data } => {
                let handle = self.open[*slot].handle;
                let is_eager = self.ops.is_multiple_of(2);
                match is_eager.then(|| fs.write_now(handle, *at as u64, data)).flatten() {
                    Some(done) => done?,
                    None => fs.write(handle, *at as u64, data).await?,
                }
            }
            Op::Read { slot, at, len } => {
                return Ok(Answer::Read(fs.read(self.open[*slot].handle, *at as u64, *len).await?));
            }
            Op::Fsync(slot) => fs.fsync(self.open[*slot].handle).await?,
            Op::Resize { slot, size } => {
                let Open { ino, handle, .. } = self.open[*slot];
                fs.setattr(CALLER, ino, of_size(*size), Some(handle)).await?;
            }
            Op::Allocate { slot, space, at, len } => {
                fs.fallocate(self.open[*slot].handle, mode_of(*space), *at as u64, *len as u64).await?;
            }
            Op::Truncate { path, size } => {
                fs.setattr(CALLER, self.ino(fs, path).await?, of_size(*size), None).await?;
            }
            Op::Chmod { path, mode } => {
                let changes = Changes { mode: Some(*mode), ..Changes::default() };
                fs.setattr(CALLER, self.ino(fs, path).await?, changes, None).await?;
            }
            Op::Link { from, to } => {
                let ino = self.ino(fs, from).await?;
                let (dir, name) = self.parent(fs, to).await?;
                fs.link(ino, dir, name).await?;
            }
            Op::Look => return look(fs, &self.root).await.map(Answer::Looked),
            Op::Sync => {
                weather.note_sync();
                let synced = fs.sync().await;
                weather.note_sync();
                synced?;
            }
            Op::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            _ => self.call_names(fs, op).await?,
        }
        Ok(Answer::Done)
    }

    async fn call_names(&self, fs: &Filesystem, op: &Op) -> Result<()> {
        match op {
            Op::Mkdir(path) => {
                let (dir, name) = self.parent(fs, path).await?;
                fs.mkdir(CALLER, dir, name, 0o755).await.map(drop)
            }
            Op::Rmdir(path) => {
                let (dir, name) = self.parent(fs, path).await?;
                fs.rmdir(dir, name).await
            }
            Op::Unlink(path) => {
                let (dir, name) = self.parent(fs, path).await?;
                fs.unlink(dir, name).await
            }
            Op::Symlink { path, target } => {
                let (dir, name) = self.parent(fs, path).await?;
                fs.symlink(CALLER, dir, name, target).await.map(drop)
            }
            Op::Rename { from, to, how } => {
                let flags = match how {
                    How::Replace => 0,
                    How::NoReplace => libc::RENAME_NOREPLACE,
                    How::Exchange => libc::RENAME_EXCHANGE,
                };
                let (from, to) = (self.parent(fs, from).await?, self.parent(fs, to).await?);
                fs.rename(from, to, flags).await
            }
            _ => Ok(()),
        }
    }

    async fn parent<'p>(&self, fs: &Filesystem, path: &'p str) -> Result<(Ino, &'p [u8])> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.ino(fs, dir).await?, name.as_bytes()))
    }

    async fn ino(&self, fs: &Filesystem, path: &str) -> Result<Ino> {
        let mut at = fs.lookup(Ino::ROOT, self.root.as_bytes()).await?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = fs.lookup(at.ino, name.as_bytes()).await?;
        }
        Ok(at.ino)
    }
}

fn of_size(size: usize) -> Changes {
    Changes { size_bytes: Some(size as u64), ..Changes::default() }
}

fn mode_of(space: Space) -> i32 {
    match space {
        Space::Extend => 0,
        Space::Zero => libc::FALLOC_FL_ZERO_RANGE,
        Space::ZeroInside => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        Space::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
    }
}
