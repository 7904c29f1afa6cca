//! The model: what a program may see of its own directory, and what a crash may leave of it.

use super::machine::CrashKind;
use super::oracle::ObservedNode;
use super::scenario::Scenario;
use super::value_history::{Durability, ValueHistory};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use vfs::Ino;

/// An inode of the model.
pub(super) type NodeId = usize;

/// Paths below the program's directory, without a slash at their beginning.
pub(super) type Names = BTreeMap<String, NodeId>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeKind {
    Directory,
    Link(Bytes),
    File,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) content: ValueHistory<Bytes>,
    pub(super) mode: ValueHistory<u16>,
    /// Whether a name leads to it after a crash; before its first `close` a file named by path is nowhere.
    pub(super) is_stored: ValueHistory<bool>,
    /// There are writes that no `close` has acknowledged.
    pub(super) is_dirty: bool,
    /// Syncs of all programs when it was last written.
    pub(super) syncs_at_write: u64,
    /// Calls that had failed when it was last clean: what fails in the background is told later.
    pub(super) faults_when_clean: u64,
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
    pub(super) write: Option<PendingWrite>,
    /// The node that the op is about.
    pub(super) node: Option<NodeId>,
    /// Names that the bucket has only once their objects have moved.
    pub(super) is_rename: bool,
}

/// Bytes on their way to a place in a file.
#[derive(Debug, Clone)]
pub(super) struct PendingWrite {
    pub(super) old: Bytes,
    pub(super) at: usize,
    pub(super) data: Bytes,
}

#[derive(Debug)]
pub(super) struct FsModel {
    pub(super) scenario: Scenario,
    pub(super) names: ValueHistory<Names>,
    pub(super) nodes: Vec<Node>,
    /// A file has had several names since names were synced.
    had_links_since_sync: bool,
    /// Something was renamed by path since: its objects may not have moved.
    renamed_since_sync: bool,
}

impl FsModel {
    pub(super) fn new(scenario: Scenario) -> Self {
        Self {
            scenario,
            names: ValueHistory::new(Names::new()),
            nodes: Vec::new(),
            had_links_since_sync: false,
            renamed_since_sync: false,
        }
    }

    pub(super) fn add(&mut self, kind: NodeKind, mode: u16, fault_count: u64) -> NodeId {
        let is_stored = !self.scenario.by_path() || kind != NodeKind::File;
        self.nodes.push(Node {
            // Named by inode, an empty file is a name and nothing else.
            is_dirty: !is_stored,
            kind,
            content: ValueHistory::new(Bytes::new()),
            mode: ValueHistory::new(mode),
            is_stored: ValueHistory::new(is_stored),
            syncs_at_write: 0,
            faults_when_clean: fault_count,
            ino: None,
            old_modes: Vec::new(),
        });
        self.nodes.len() - 1
    }

    pub(super) fn node_at(&self, path: &str) -> Option<NodeId> {
        self.names.current().get(path).copied()
    }

    pub(super) fn kind(&self, path: &str) -> Option<&NodeKind> {
        if path.is_empty() {
            return Some(&NodeKind::Directory);
        }
        self.node_at(path).map(|node| &self.nodes[node].kind)
    }

    pub(super) fn content(&self, node: NodeId) -> &Bytes {
        self.nodes[node].content.current()
    }

    /// Whether any path leads to a node.
    pub(super) fn has_name(&self, node: NodeId) -> bool {
        self.names.current().values().any(|named| *named == node)
    }

    /// What a change of names promises. By path the bucket has them, but not the further ones of a file.
    fn names_durability(&self) -> Durability {
        match (self.scenario.by_path(), self.scenario.write_back) {
            (_, true) => Durability::Process,
            (true, false) if !self.had_links_since_sync && !self.renamed_since_sync => Durability::Power,
            (true, false) if !self.had_links_since_sync => Durability::Process,
            (_, false) => Durability::None,
        }
    }

    /// Whether any file has several names.
    pub(super) fn has_links(&self) -> bool {
        let names = self.names.current();
        names.values().collect::<BTreeSet<_>>().len() < names.len()
    }

    fn close_durability(&self) -> Durability {
        if self.scenario.write_back { Durability::Process } else { Durability::Power }
    }

    /// Begins an op: if the machine crashes now, its bytes may be what is left.
    pub(super) fn begin(&mut self, effect: &Effect, syncs: u64) {
        if let Some((node, content)) = &effect.content {
            let node = &mut self.nodes[*node];
            node.syncs_at_write = syncs;
            node.is_dirty |= node.content.current() != content;
            node.content.push(content.clone());
        }
        if let Some((node, mode)) = effect.mode {
            self.nodes[node].mode.push(mode);
        }
    }

    /// An op that was acknowledged.
    pub(super) fn acknowledge(&mut self, effect: &Effect) {
        if let Some(names) = &effect.names {
            self.had_links_since_sync |= self.has_links();
            self.renamed_since_sync |= effect.is_rename;
            self.names.push(names.clone());
            self.had_links_since_sync |= self.has_links();
            self.names.acknowledge(self.names_durability());
        }
        let durability = self.names_durability();
        if let (Some((node, _)), false) = (effect.mode, self.scenario.by_path()) {
            self.nodes[node].mode.acknowledge(durability);
        }
    }

    /// A file's writes, if there are any, are stored and named.
    pub(super) fn record_close(&mut self, node: NodeId, fault_count: u64, syncs: u64) {
        if !self.nodes[node].is_dirty || !self.has_name(node) {
            return;
        }
        let durability = self.close_durability();
        self.record_stored(node, durability, fault_count);
        // By path the bucket has what is stored, and nobody waits for other names; and if somebody else's sync stored
        // it before, no name is synced now.
        let is_ours = self.nodes[node].syncs_at_write == syncs;
        if durability == Durability::Power && !self.scenario.by_path() && is_ours {
            self.record_names_synced();
        }
    }

    /// A file's writes survive the loss of power, and every name.
    pub(super) fn record_fsync(&mut self, node: NodeId, fault_count: u64) {
        self.record_stored(node, Durability::Power, fault_count);
        self.nodes[node].mode.acknowledge(Durability::Power);
        self.record_names_synced();
    }

    /// Everything survives the loss of power.
    pub(super) fn record_sync(&mut self, fault_count: u64) {
        let named: BTreeSet<NodeId> = self.names.current().values().copied().collect();
        for node in named {
            self.record_stored(node, Durability::Power, fault_count);
            self.nodes[node].mode.acknowledge(Durability::Power);
        }
        self.record_names_synced();
    }

    fn record_stored(&mut self, node: NodeId, durability: Durability, fault_count: u64) {
        if !self.has_name(node) {
            return;
        }
        let stored = &mut self.nodes[node];
        (stored.is_dirty, stored.faults_when_clean) = (false, fault_count);
        stored.content.acknowledge(durability);
        stored.is_stored.push(true);
        stored.is_stored.acknowledge(durability);
    }

    /// Who syncs one name syncs all, and with them what was acknowledged before.
    fn record_names_synced(&mut self) {
        self.names.acknowledge(Durability::Power);
        self.had_links_since_sync = false;
        self.renamed_since_sync = false;
        let by_path = self.scenario.by_path();
        for node in &mut self.nodes {
            node.content.sync();
            node.is_stored.sync();
            if !by_path {
                node.mode.acknowledge(Durability::Power);
            }
        }
    }

    /// What a node is after a failure. Where nobody has it open, it is what is stored.
    pub(super) fn adopt_node(&mut self, node: NodeId, seen: &ObservedNode, is_open: bool) {
        let durability = self.names_durability();
        let node = &mut self.nodes[node];
        node.content.push(seen.content.clone());
        node.mode.push(seen.mode);
        if !is_open {
            node.is_dirty = false;
            node.is_stored.push(true);
            node.is_stored.acknowledge(durability);
        }
    }

    /// The oldest moment from which failures of calls are told late.
    pub(super) fn faults_when_dirtied(&self, fault_count: u64) -> u64 {
        let dirty = self.nodes.iter().filter(|node| node.is_dirty);
        dirty.map(|node| node.faults_when_clean).min().unwrap_or(fault_count)
    }

    /// After a crash, or in doubt, the names and nodes are these.
    pub(super) fn adopt_all(&mut self, found: Vec<(String, NodeId, Bytes, u16)>, crash_kind: CrashKind) {
        let (mut names, by_path) = (Names::new(), self.scenario.by_path());
        for node in &mut self.nodes {
            (node.is_dirty, node.faults_when_clean) = (false, 0);
            node.ino = node.ino.filter(|_| !by_path);
        }
        for (path, node, content, mode) in found {
            names.insert(path, node);
            let node = &mut self.nodes[node];
            if by_path {
                node.old_modes.extend(node.mode.possible_after(crash_kind));
            }
            node.content.adopt(content, crash_kind);
            node.mode.adopt(mode, crash_kind);
            node.is_stored.adopt(true, crash_kind);
        }
        self.names.adopt(names, crash_kind);
    }
}

impl Effect {
    /// Whether a write that did not succeed leaves a file like this.
    pub(super) fn may_leave(&self, node: NodeId, seen: &Bytes) -> bool {
        self.node == Some(node) && self.write.as_ref().is_some_and(|write| write.may_leave(seen))
    }
}

impl PendingWrite {
    /// The file once so many bytes have arrived.
    pub(super) fn applied(&self, bytes: usize) -> Bytes {
        let mut content = self.old.to_vec();
        content.resize(content.len().max(self.at + bytes), 0);
        content[self.at..self.at + bytes].copy_from_slice(&self.data[..bytes]);
        content.into()
    }

    /// Whether a file may be this after a failure.
    pub(super) fn may_leave(&self, seen: &Bytes) -> bool {
        let arrived = seen.get(self.at..).unwrap_or_default();
        let bytes = arrived.iter().zip(&self.data).take_while(|(seen, sent)| seen == sent).count();
        *seen == self.old || *seen == self.applied(bytes)
    }
}
