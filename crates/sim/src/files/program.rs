//! A program in a directory of its own: it runs one op after the other, and compares each result with the model.
//!
//! After a call that fails because of an injected fault, the outcome is uncertain. Faults are then paused, and the observed state
//! must be the old or the new one. The model adopts it.

use super::fault_injector::{FaultInjector, STALL};
use super::fs_model::{Effect, FsModel, Names, NodeId};
use super::machine::{CrashKind, Mount};
use super::op::{AllocateMode, Op, OpGenerator, OpenSlot, RenameMode};
use super::oracle::{self, AllowedState, MatchedPaths, ObservedTree, describe};
use super::predict::{AllowedErrnos, predict};
use super::scenario::Scenario;
use super::walk::{read_all, walk_tree};
use crate::Report;
use crate::trace::Trace;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use store::Entropy;
use tokio::time::Instant;
use vfs::{Caller, Changes, Error, Filesystem, Ino, Result};

const CALLER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };
/// Time after which cached knowledge of the bucket has expired and is revalidated.
pub(super) const REVALIDATION_WAIT: Duration = Duration::from_secs(6);
/// The directory of the first program.
const FIRST_ROOT: &str = "p0";
/// Maximum attempts of a call while faults are paused: faults from before the pause may be reported late.
const ATTEMPTS: u32 = 3;

pub(super) struct Program {
    pub(super) root: String,
    pub(super) model: FsModel,
    entropy: Entropy,
    open: Vec<OpenSlot>,
    /// The effect of the op in flight.
    pending_effect: Option<Effect>,
    /// By path, an op has failed in this session, and what it left in the bucket may become visible only when the mount looks at the bucket.
    was_uncertain: bool,
    trace: Trace,
    pub(super) report: Report,
    /// Number of ops begun in all sessions.
    pub(super) ops: u64,
}

/// The result of a successful call.
enum Reply {
    Done,
    Opened(OpenSlot),
    Read(Bytes),
    Walked(ObservedTree),
}

impl Program {
    pub(super) fn new(number: u64, scenario: Scenario, seed: u64, trace: Trace) -> Self {
        Self {
            root: format!("p{number}"),
            model: FsModel::new(scenario),
            entropy: Entropy::new(seed),
            open: Vec::new(),
            pending_effect: None,
            was_uncertain: false,
            trace,
            report: Report::default(),
            ops: 0,
        }
    }

    /// Runs the ops of a session, until the machine crashes.
    pub(super) async fn run_ops(&mut self, mount: &Mount, ops: u64) -> Result<(), String> {
        for _ in 0..ops {
            self.ops += 1;
            let op = OpGenerator { entropy: &self.entropy, model: &self.model, open: &self.open }.next_op();
            self.step_until_crash(mount, &op).await?;
            if self.entropy.below(40) == 0 {
                mount.checkpoint()?;
            }
        }
        Ok(())
    }

    /// Closes all open files.
    pub(super) async fn close_all(&mut self, mount: &Mount) -> Result<(), String> {
        while !self.open.is_empty() {
            self.step_until_crash(mount, &Op::Close(0)).await?;
        }
        Ok(())
    }

    /// Runs an op. Never returns if the machine has crashed, as nobody receives the result.
    async fn step_until_crash(&mut self, mount: &Mount, op: &Op) -> Result<(), String> {
        let outcome = self.step(mount, op).await;
        if mount.injector.has_crashed() {
            return std::future::pending().await;
        }
        outcome
    }

    async fn step(&mut self, mount: &Mount, op: &Op) -> Result<(), String> {
        let injector = &mount.injector;
        let faults_before = match op {
            // A sync reports the failures of all programs' files.
            Op::Sync => 0,
            _ => self.model.faults_when_dirtied(injector.fault_count()),
        };
        self.trace.push(format!("{} {op:?}", self.root));
        let prediction = predict(&mut self.model, &self.open, op, injector.fault_count());
        if let Ok(effect) = &prediction {
            let before = self.state_before(effect);
            self.model.begin(effect, injector.syncs());
            self.pending_effect = Some(effect.clone());
            let began = Instant::now();
            let reply = self.call(mount, op).await;
            if injector.has_crashed() {
                return Ok(());
            }
            self.check_duration(op, began.elapsed())?;
            match reply {
                Ok(_) if self.close_drops_writes(op) => {
                    self.resolve_uncertain(mount, op, effect, before).await?
                }
                Ok(reply) => self.apply_success(op, effect, reply, injector)?,
                Err(error) => {
                    self.check_failure(op, &error, faults_before, injector)?;
                    if let (Op::Fsync(_), Some(node)) = (op, effect.node) {
                        self.model.note_failed_fsync(node);
                    }
                    self.resolve_uncertain(mount, op, effect, before).await?;
                }
            }
            self.pending_effect = None;
            return Ok(());
        }
        let reply = self.call(mount, op).await;
        self.check_refusal(op, &prediction.err().unwrap_or_default(), reply, faults_before, injector)
    }

    /// Checks that an op did not wait for another program's upload. A sync stores the files of all programs.
    fn check_duration(&self, op: &Op, duration: Duration) -> Result<(), String> {
        match duration >= STALL && self.root != FIRST_ROOT && !matches!(op, Op::Sync) {
            true => Err(format!("{op:?} took {duration:?}: it waited for another program's upload")),
            false => Ok(()),
        }
    }

    /// Whether a close drops writes: those that a failed `close` left are dropped with the last handle, even a read-only one.
    fn close_drops_writes(&self, op: &Op) -> bool {
        let Op::Close(slot) = op else { return false };
        let OpenSlot { node, writes, .. } = self.open[*slot];
        let handles = self.open.iter().filter(|open| open.node == node).count();
        !writes && handles == 1 && self.model.nodes[node].is_dirty
    }

    /// Returns the content and the mode of the node that an op is about.
    fn state_before(&self, effect: &Effect) -> Option<(NodeId, Bytes, u16)> {
        let node = effect.node?;
        Some((node, self.model.content(node).clone(), *self.model.nodes[node].mode.current()))
    }

    fn check_refusal(
        &mut self,
        op: &Op,
        errnos: &AllowedErrnos,
        reply: Result<Reply>,
        faults_before: u64,
        injector: &FaultInjector,
    ) -> Result<(), String> {
        match reply {
            Ok(_) => Err(format!("{op:?} succeeded and must fail with one of {errnos:?}")),
            Err(error) if errnos.contains(&error.errno()) => {
                self.report.count("expected errors");
                Ok(())
            }
            Err(error) => self.check_failure(op, &error, faults_before, injector),
        }
    }

    /// Checks that a failure has a cause: an injected fault.
    fn check_failure(
        &mut self,
        op: &Op,
        error: &Error,
        faults_before: u64,
        injector: &FaultInjector,
    ) -> Result<(), String> {
        self.trace.push(format!("{} failed: {error}", self.root));
        self.report.count("failures");
        match error.errno() {
            libc::EIO if injector.fault_count() > faults_before => Ok(()),
            // The first copy of a repeated request took effect, and the second found its target.
            libc::EEXIST if matches!(op, Op::Rename { how: RenameMode::NoReplace, .. }) => Ok(()),
            errno => Err(format!("{op:?} failed without a cause: {error} ({errno})")),
        }
    }

    fn apply_success(
        &mut self,
        op: &Op,
        effect: &Effect,
        reply: Reply,
        injector: &FaultInjector,
    ) -> Result<(), String> {
        self.report.count("ops");
        let fault_count = injector.fault_count();
        let replaced = match op {
            Op::Rename { to, how: RenameMode::Replace, .. } => self.model.node_at(to),
            _ => None,
        };
        self.model.acknowledge(effect);
        match (op, reply) {
            (Op::Close(slot), _) => {
                let OpenSlot { node, writes, .. } = self.open.remove(*slot);
                if writes {
                    self.model.record_close(node, fault_count, injector.syncs());
                }
            }
            (Op::Fsync(slot), _) => self.model.record_fsync(self.open[*slot].node, fault_count),
            (Op::Sync, _) => self.model.record_sync(fault_count),
            (Op::Truncate { .. }, _) => self.record_close(effect, injector),
            (Op::Rename { .. }, _)
                if replaced.is_some() && effect.names.is_some() && self.model.scenario.by_path() =>
            {
                self.record_close(effect, injector);
            }
            (_, Reply::Opened(open)) => self.record_open(open, effect),
            (Op::Read { slot, at, len }, Reply::Read(seen)) => {
                return self.check_read(*slot, *at, *len, &seen);
            }
            (_, Reply::Walked(tree)) => return self.check_tree(&tree),
            _ => {}
        }
        Ok(())
    }

    fn record_close(&mut self, effect: &Effect, injector: &FaultInjector) {
        if let Some(node) = effect.node {
            self.model.record_close(node, injector.fault_count(), injector.syncs());
        }
    }

    fn record_open(&mut self, open: OpenSlot, effect: &Effect) {
        if let Some(node) = effect.node {
            self.model.nodes[node].ino = Some(open.ino);
            self.open.push(OpenSlot { node, ..open });
        }
    }

    fn check_read(&self, slot: usize, at: usize, len: usize, seen: &Bytes) -> Result<(), String> {
        let content = self.model.content(self.open[slot].node);
        let expected = content.slice(at.min(content.len())..(at + len).min(content.len()));
        match *seen == expected {
            true => Ok(()),
            false => {
                Err(format!("#{slot} at {at} read {} and must be {}", describe(seen), describe(&expected)))
            }
        }
    }

    /// Checks that an observed tree equals the current state.
    fn check_tree(&mut self, tree: &ObservedTree) -> Result<(), String> {
        let found = oracle::with_current(&self.model, |allowed| allowed.check(tree))?;
        self.remember_inodes(&found, tree);
        Ok(())
    }

    /// Remembers inode numbers where they survive remounts.
    fn remember_inodes(&mut self, found: &MatchedPaths, tree: &ObservedTree) {
        for (path, node) in found.iter().filter(|_| !self.model.scenario.by_path()) {
            self.model.nodes[*node].ino = Some(tree[path].ino);
        }
    }

    /// Checks the whole directory while faults are paused.
    pub(super) async fn check(
        &mut self,
        fs: &Filesystem,
        injector: &Arc<FaultInjector>,
    ) -> Result<(), String> {
        let _pause = injector.pause_faults();
        let tree = self.walk_without_faults(fs).await?;
        self.check_tree(&tree)
    }

    /// Checks the directory as another mount sees it after a sync: modes are stored with the objects by then.
    pub(super) async fn check_other_mount(&self, fs: &Filesystem) -> Result<(), String> {
        let tree = self.walk_without_faults(fs).await?;
        oracle::with_current(&self.model, |allowed| allowed.check(&tree)).map(drop)
    }

    async fn walk_without_faults(&self, fs: &Filesystem) -> Result<ObservedTree, String> {
        let mut failed = None;
        for _ in 0..ATTEMPTS {
            match walk_tree(fs, &self.root).await {
                Ok(tree) => return Ok(tree),
                Err(error) => failed = Some(error),
            }
        }
        Err(format!("the directory cannot be read while faults are paused: {failed:?}"))
    }

    /// Resolves the outcome of a failed op while faults are paused: the old or the new state must be visible.
    async fn resolve_uncertain(
        &mut self,
        mount: &Mount,
        op: &Op,
        effect: &Effect,
        before: Option<(NodeId, Bytes, u16)>,
    ) -> Result<(), String> {
        let _pause = mount.injector.pause_faults();
        self.report.count("uncertain outcomes");
        if let Op::Close(slot) = op {
            // The handle is closed, whatever happened to its writes.
            self.open.remove(*slot);
        }
        if self.model.scenario.by_path() {
            self.close_removed(&mount.fs, op).await;
            self.was_uncertain = true;
            tokio::time::sleep(REVALIDATION_WAIT).await;
        }
        let tree = self.walk_without_faults(&mount.fs).await?;
        let found = self.check_uncertain(op, effect, before.as_ref(), &tree)?;
        if let Some(names) = effect.names.as_ref().filter(|_| self.model.scenario.by_path()) {
            // Until names are synced, a crash may leave the rename half done.
            self.model.names.push(names.clone());
        }
        self.adopt_tree(found, &tree);
        self.recheck_open_files(&mount.fs, effect, before.as_ref()).await
    }

    /// Closes the handles of a file whose removal or replacement failed half-way in a volume by path. Its object may be gone, and it is
    /// uncertain whose bytes have the name and whether further writes can be stored there.
    async fn close_removed(&mut self, fs: &Filesystem, op: &Op) {
        let (Op::Rename { to: path, .. } | Op::Unlink(path)) = op else { return };
        let Some(removed) = self.model.node_at(path) else { return };
        for open in self.open.extract_if(.., |open| open.node == removed) {
            drop(fs.flush(open.handle).await);
            drop(fs.release(open.handle).await);
        }
    }

    fn check_uncertain(
        &self,
        op: &Op,
        effect: &Effect,
        before: Option<&(NodeId, Bytes, u16)>,
        tree: &ObservedTree,
    ) -> Result<MatchedPaths, String> {
        let nodes = &self.model.nodes;
        let is_old_or_partial = |node: NodeId, seen: &Bytes| {
            let is_it = before.is_some_and(|(of, content, _)| *of == node && content == seen);
            is_it || effect.may_leave(node, seen)
        };
        // A partial rename may leave content that was stored earlier.
        let is_rename = matches!(op, Op::Rename { .. }) && self.model.scenario.by_path();
        // Writes that could not be stored are dropped with the last handle.
        let drops_last_name = |node: NodeId| match op {
            Op::Close(_) | Op::Truncate { .. } => effect.node == Some(node),
            Op::Rename { to: path, .. } | Op::Unlink(path) => self.model.node_at(path) == Some(node),
            _ => false,
        };
        let may_be_dropped = |node| drops_last_name(node) && !self.open.iter().any(|open| open.node == node);
        let allowed = AllowedState {
            model: &self.model,
            name_states: std::iter::once(self.model.names.current()).chain(&effect.names).collect(),
            allows_content: &|node, seen| {
                nodes[node].content.current() == seen
                    || is_old_or_partial(node, seen)
                    || (is_rename || may_be_dropped(node))
                        && nodes[node].content.possible_after(CrashKind::Power).contains(seen)
            },
            allows_mode: &|node, seen| {
                *nodes[node].mode.current() == seen
                    || before.is_some_and(|(of, _, mode)| *of == node && *mode == seen)
                    || (is_rename || may_be_dropped(node))
                        && nodes[node].mode.possible_after(CrashKind::Power).contains(&seen)
            },
            may_lack_marker: self.model.scenario.by_path(),
            may_be_missing: &|node| {
                may_be_dropped(node)
                    && nodes[node].is_stored.possible_after(CrashKind::Power).contains(&false)
            },
        };
        allowed.check(tree)
    }

    /// Adopts the tree observed after a failure as the current state, without any durability.
    fn adopt_tree(&mut self, mut found: MatchedPaths, tree: &ObservedTree) {
        // An open file keeps its node: match its inode first.
        found.sort_by_key(|(path, _)| !self.open.iter().any(|open| open.ino == tree[path].ino));
        let mut names = Names::new();
        for (path, node) in found {
            let (seen, node) = (&tree[&path], self.separate_node(&names, node, &path, tree));
            names.insert(path, node);
            let is_open = self.open.iter().any(|open| open.node == node);
            self.model.adopt_node(node, seen, is_open);
        }
        let found = names.iter().map(|(path, node)| (path.clone(), *node)).collect();
        self.remember_inodes(&found, tree);
        let effect = Effect { names: Some(names), ..Effect::default() };
        self.model.acknowledge(&effect);
    }

    /// Returns a node of its own for a path. By path a half-done rename may leave two files for one node.
    fn separate_node(&mut self, names: &Names, node: NodeId, path: &str, tree: &ObservedTree) -> NodeId {
        let ino = |path: &String| tree[path].ino;
        let ours = tree[path].ino;
        if let Some((_, known)) = names.iter().find(|(other, _)| ino(other) == ours) {
            return *known;
        }
        if !self.model.scenario.by_path() || !names.values().any(|named| *named == node) {
            return node;
        }
        self.model.nodes.push(self.model.nodes[node].clone());
        self.model.nodes.len() - 1
    }

    /// Checks that open files show what their paths show. Files without a name must show the old or the new content.
    async fn recheck_open_files(
        &mut self,
        fs: &Filesystem,
        effect: &Effect,
        before: Option<&(NodeId, Bytes, u16)>,
    ) -> Result<(), String> {
        for (slot, open) in self.open.clone().into_iter().enumerate() {
            let seen = self.read_without_faults(fs, open).await?;
            let is_now = seen == *self.model.content(open.node);
            let is_old = before.is_some_and(|(node, content, _)| *node == open.node && *content == seen);
            let is_part = || effect.may_leave(open.node, &seen);
            if !is_now && (self.model.has_name(open.node) || !is_old && !is_part()) {
                let now = describe(self.model.content(open.node));
                return Err(format!("after a failure #{slot} read {} and must be {now}", describe(&seen)));
            }
            self.model.nodes[open.node].content.push(seen);
        }
        Ok(())
    }

    async fn read_without_faults(&self, fs: &Filesystem, open: OpenSlot) -> Result<Bytes, String> {
        let mut failed = None;
        for _ in 0..ATTEMPTS {
            match read_all(fs, open.handle).await {
                Ok(seen) => return Ok(seen),
                Err(error) => failed = Some(error),
            }
        }
        Err(format!("an open file cannot be read while faults are paused: {failed:?}"))
    }

    /// Checks after a crash that acknowledged changes are there and that nothing else was made, and adopts what is there.
    pub(super) async fn recover(&mut self, mount: &Mount, crash_kind: CrashKind) -> Result<(), String> {
        if std::mem::take(&mut self.was_uncertain) {
            // The object that a failed rename or removal left is visible again after a crash, once the mount looks at the bucket.
            self.walk_without_faults(&mount.fs).await?;
            tokio::time::sleep(REVALIDATION_WAIT).await;
        }
        if self.model.scenario.by_path() {
            // By path the attributes of a directory are in its marker, which only a listing of that directory finds.
            self.walk_without_faults(&mount.fs).await?;
        }
        let tree = self.walk_without_faults(&mount.fs).await?;
        let pending_effect = self.pending_effect.take().unwrap_or_default();
        let found =
            oracle::with_crash(&self.model, &pending_effect, crash_kind, |allowed| allowed.check(&tree))?;
        let mut taken = Names::new();
        let mut adopted = Vec::new();
        for (path, node) in found {
            let node = self.separate_node(&taken, node, &path, &tree);
            taken.insert(path.clone(), node);
            let seen = &tree[&path];
            adopted.push((path, node, seen.content.clone(), seen.mode));
        }
        self.open.clear();
        self.model.adopt_all(adopted, crash_kind);
        let found = taken.into_iter().collect();
        self.remember_inodes(&found, &tree);
        Ok(())
    }

    async fn call(&self, mount: &Mount, op: &Op) -> Result<Reply> {
        let (fs, injector) = (&*mount.fs, &mount.injector);
        match op {
            Op::Create { path, mode } => {
                let (dir, name) = self.parent(fs, path).await?;
                let flags = libc::O_RDWR | libc::O_CREAT;
                let (attr, opened) = fs.create(CALLER, dir, name, *mode, flags).await?;
                let (ino, handle) = (attr.ino, opened.handle);
                return Ok(Reply::Opened(OpenSlot { handle, ino, node: 0, writes: true }));
            }
            Op::Open { path, writes, truncates } => {
                let how = if *writes { libc::O_RDWR } else { libc::O_RDONLY };
                let truncated = if *truncates { libc::O_TRUNC } else { 0 };
                let ino = self.ino(fs, path).await?;
                let handle = fs.open(ino, how | truncated).await?.handle;
                return Ok(Reply::Opened(OpenSlot { handle, ino, node: 0, writes: *writes }));
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
                return Ok(Reply::Read(fs.read(self.open[*slot].handle, *at as u64, *len).await?));
            }
            Op::Fsync(slot) => fs.fsync(self.open[*slot].handle).await?,
            Op::Resize { slot, size } => {
                let OpenSlot { ino, handle, .. } = self.open[*slot];
                fs.setattr(CALLER, ino, size_change(*size), Some(handle)).await?;
            }
            Op::Allocate { slot, mode, at, len } => {
                fs.fallocate(self.open[*slot].handle, fallocate_flags(*mode), *at as u64, *len as u64)
                    .await?;
            }
            Op::Truncate { path, size } => {
                fs.setattr(CALLER, self.ino(fs, path).await?, size_change(*size), None).await?;
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
            Op::Walk => return walk_tree(fs, &self.root).await.map(Reply::Walked),
            Op::Sync => {
                injector.count_sync();
                let synced = fs.sync().await;
                injector.count_sync();
                synced?;
            }
            Op::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            _ => self.call_names(fs, op).await?,
        }
        Ok(Reply::Done)
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
                    RenameMode::Replace => 0,
                    RenameMode::NoReplace => libc::RENAME_NOREPLACE,
                    RenameMode::Exchange => libc::RENAME_EXCHANGE,
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

fn size_change(size: usize) -> Changes {
    Changes { size_bytes: Some(size as u64), ..Changes::default() }
}

fn fallocate_flags(mode: AllocateMode) -> i32 {
    match mode {
        AllocateMode::Extend => 0,
        AllocateMode::Zero => libc::FALLOC_FL_ZERO_RANGE,
        AllocateMode::ZeroKeepSize => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        AllocateMode::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
    }
}
