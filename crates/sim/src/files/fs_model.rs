//! The model: what a program may see of its own directory, and what a crash may leave of it.

use super::machine::Loss;
use super::oracle::Seen;
use super::scenario::Setting;
use super::value_history::{Past, Promise};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use vfs::Ino;

/// An inode of the model.
pub(super) type NodeId = usize;

/// Paths below the program's directory, without a slash at their beginning.
pub(super) type Names = BTreeMap<String, NodeId>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Link(Bytes),
    File,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) content: Past<Bytes>,
    pub(super) mode: Past<u16>,
    /// Whether a name leads to it after a crash; before its first `close` a file named by path is nowhere.
    pub(super) is_stored: Past<bool>,
    /// There are writes that no `close` has acknowledged.
    pub(super) is_dirty: bool,
    /// Syncs of all programs when it was last written.
    pub(super) written_at: u64,
    /// Calls that had failed when it was last clean: what fails in the background is told later.
    pub(super) clean_at: u64,
    /// Where metadata outlives its mounts, numbers do too.
    pub(super) ino: Option<Ino>,
    /// By path: those that were not exported when the machine crashed, and the ones before. They may come back.
    pub(super) old_modes: Vec<u16>,
}

/// What an op does.
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    pub(super) names: Option<Names>,
    pub(super) content: Option<(NodeId, Bytes)>,
    pub(super) mode: Option<(NodeId, u16)>,
    /// A write that fails may have got so far as any byte of it.
    pub(super) write: Option<Write>,
    /// The node that the op is about.
    pub(super) node: Option<NodeId>,
    /// Names that the bucket has only once their objects have moved.
    pub(super) is_rename: bool,
}

/// Bytes on their way to a place in a file.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) over: Bytes,
    pub(super) at: usize,
    pub(super) data: Bytes,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) setting: Setting,
    pub(super) names: Past<Names>,
    pub(super) nodes: Vec<Node>,
    /// A file has had several names since names were synced.
    links_wait: bool,
    /// Something was renamed by path since: its objects may not have moved.
    renames_wait: bool,
}

impl Model {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            names: Past::new(Names::new()),
            nodes: Vec::new(),
            links_wait: false,
            renames_wait: false,
        }
    }

    pub(super) fn add(&mut self, kind: Kind, mode: u16, struck: u64) -> NodeId {
        let is_stored = !self.setting.by_path() || kind != Kind::File;
        self.nodes.push(Node {
            // Named by inode, an empty file is a name and nothing else.
            is_dirty: !is_stored,
            kind,
            content: Past::new(Bytes::new()),
            mode: Past::new(mode),
            is_stored: Past::new(is_stored),
            written_at: 0,
            clean_at: struck,
            ino: None,
            old_modes: Vec::new(),
        });
        self.nodes.len() - 1
    }

    pub(super) fn at(&self, path: &str) -> Option<NodeId> {
        self.names.now().get(path).copied()
    }

    pub(super) fn kind(&self, path: &str) -> Option<&Kind> {
        if path.is_empty() {
            return Some(&Kind::Directory);
        }
        self.at(path).map(|node| &self.nodes[node].kind)
    }

    pub(super) fn content(&self, node: NodeId) -> &Bytes {
        self.nodes[node].content.now()
    }

    /// Whether any path leads to a node.
    pub(super) fn has_name(&self, node: NodeId) -> bool {
        self.names.now().values().any(|named| *named == node)
    }

    /// What a change of names promises. By path the bucket has them, but not the further ones of a file.
    fn of_names(&self) -> Promise {
        match (self.setting.by_path(), self.setting.write_back) {
            (_, true) => Promise::Process,
            (true, false) if !self.links_wait && !self.renames_wait => Promise::Power,
            (true, false) if !self.links_wait => Promise::Process,
            (_, false) => Promise::Nothing,
        }
    }

    /// Whether any file has several names.
    pub(super) fn has_links(&self) -> bool {
        let names = self.names.now();
        names.values().collect::<BTreeSet<_>>().len() < names.len()
    }

    fn of_close(&self) -> Promise {
        if self.setting.write_back { Promise::Process } else { Promise::Power }
    }

    /// Begins an op: if the machine crashes now, its bytes may be what is left.
    pub(super) fn begin(&mut self, effect: &Effect, syncs: u64) {
        if let Some((node, content)) = &effect.content {
            let node = &mut self.nodes[*node];
            node.written_at = syncs;
            node.is_dirty |= node.content.now() != content;
            node.content.set(content.clone());
        }
        if let Some((node, mode)) = effect.mode {
            self.nodes[node].mode.set(mode);
        }
    }

    /// An op that was acknowledged.
    pub(super) fn done(&mut self, effect: &Effect) {
        if let Some(names) = &effect.names {
            self.links_wait |= self.has_links();
            self.renames_wait |= effect.is_rename;
            self.names.set(names.clone());
            self.links_wait |= self.has_links();
            self.names.promise(self.of_names());
        }
        let promise = self.of_names();
        if let (Some((node, _)), false) = (effect.mode, self.setting.by_path()) {
            self.nodes[node].mode.promise(promise);
        }
    }

    /// A file's writes, if there are any, are stored and named.
    pub(super) fn closed(&mut self, node: NodeId, struck: u64, syncs: u64) {
        if !self.nodes[node].is_dirty || !self.has_name(node) {
            return;
        }
        let promise = self.of_close();
        self.published(node, promise, struck);
        // By path the bucket has what is stored, and nobody waits for other names; and if somebody else's sync stored
        // it before, no name is synced now.
        let is_ours = self.nodes[node].written_at == syncs;
        if promise == Promise::Power && !self.setting.by_path() && is_ours {
            self.names_synced();
        }
    }

    /// A file's writes survive the loss of power, and every name.
    pub(super) fn fsynced(&mut self, node: NodeId, struck: u64) {
        self.published(node, Promise::Power, struck);
        self.nodes[node].mode.promise(Promise::Power);
        self.names_synced();
    }

    /// Everything survives the loss of power.
    pub(super) fn synced(&mut self, struck: u64) {
        let named: BTreeSet<NodeId> = self.names.now().values().copied().collect();
        for node in named {
            self.published(node, Promise::Power, struck);
            self.nodes[node].mode.promise(Promise::Power);
        }
        self.names_synced();
    }

    fn published(&mut self, node: NodeId, promise: Promise, struck: u64) {
        if !self.has_name(node) {
            return;
        }
        let published = &mut self.nodes[node];
        (published.is_dirty, published.clean_at) = (false, struck);
        published.content.promise(promise);
        published.is_stored.set(true);
        published.is_stored.promise(promise);
    }

    /// Who syncs one name syncs all, and with them what was acknowledged before.
    fn names_synced(&mut self) {
        self.names.promise(Promise::Power);
        self.links_wait = false;
        self.renames_wait = false;
        let by_path = self.setting.by_path();
        for node in &mut self.nodes {
            node.content.sync();
            node.is_stored.sync();
            if !by_path {
                node.mode.promise(Promise::Power);
            }
        }
    }

    /// What a node is after a failure. Where nobody has it open, it is what is stored.
    pub(super) fn found(&mut self, node: NodeId, seen: &Seen, is_open: bool) {
        let promise = self.of_names();
        let node = &mut self.nodes[node];
        node.content.set(seen.content.clone());
        node.mode.set(seen.mode);
        if !is_open {
            node.is_dirty = false;
            node.is_stored.set(true);
            node.is_stored.promise(promise);
        }
    }

    /// The oldest moment from which failures of calls are told late.
    pub(super) fn clean_at(&self, struck: u64) -> u64 {
        let dirty = self.nodes.iter().filter(|node| node.is_dirty);
        dirty.map(|node| node.clean_at).min().unwrap_or(struck)
    }

    /// After a crash, or in doubt, the names and nodes are these.
    pub(super) fn adopt(&mut self, found: Vec<(String, NodeId, Bytes, u16)>, loss: Loss) {
        let (mut names, by_path) = (Names::new(), self.setting.by_path());
        for node in &mut self.nodes {
            (node.is_dirty, node.clean_at) = (false, 0);
            node.ino = node.ino.filter(|_| !by_path);
        }
        for (path, node, content, mode) in found {
            names.insert(path, node);
            let node = &mut self.nodes[node];
            if by_path {
                node.old_modes.extend(node.mode.left(loss));
            }
            node.content.found(content, loss);
            node.mode.found(mode, loss);
            node.is_stored.found(true, loss);
        }
        self.names.found(names, loss);
    }
}

impl Effect {
    /// Whether a write that did not succeed leaves a file like this.
    pub(super) fn may_leave(&self, node: NodeId, seen: &Bytes) -> bool {
        self.node == Some(node) && self.write.as_ref().is_some_and(|write| write.may_leave(seen))
    }
}

impl Write {
    /// The file once so many bytes have arrived.
    pub(super) fn after(&self, bytes: usize) -> Bytes {
        let mut content = self.over.to_vec();
        content.resize(content.len().max(self.at + bytes), 0);
        content[self.at..self.at + bytes].copy_from_slice(&self.data[..bytes]);
        content.into()
    }

    /// Whether a file may be this after a failure.
    pub(super) fn may_leave(&self, seen: &Bytes) -> bool {
        let arrived = seen.get(self.at..).unwrap_or_default();
        let bytes = arrived.iter().zip(&self.data).take_while(|(seen, sent)| seen == sent).count();
        *seen == self.over || *seen == self.after(bytes)
    }
}
