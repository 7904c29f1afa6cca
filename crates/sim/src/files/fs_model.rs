//! The model of a program's directory: its current state, and the states that a crash may leave.

use super::machine::CrashKind;
use super::oracle::ObservedNode;
use super::scenario::Scenario;
use super::value_history::{Durability, ValueHistory};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use vfs::Ino;

/// Index of an inode of the model.
pub(super) type NodeId = usize;

/// Nodes by path below the program's directory, without a leading slash.
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
    /// Whether a name survives a crash. A file by path has no object before its first `close`.
    pub(super) is_stored: ValueHistory<bool>,
    /// Some writes have not been acknowledged by a `close`.
    pub(super) is_dirty: bool,
    /// Sync count of all programs at the last write.
    pub(super) syncs_at_write: u64,
    /// Fault count when the file was last clean. Failures in the background since then may be reported later.
    pub(super) faults_when_clean: u64,
    /// The inode number, where metadata and thus numbers survive remounts (by inode).
    pub(super) ino: Option<Ino>,
    /// By path: earlier modes that may reappear, as the export of a later mode may have been interrupted by a crash.
    pub(super) old_modes: Vec<u16>,
    /// A mode was set since the last crash. Otherwise the mode of a directory that was found after a crash may be that of the names, which a
    /// later look corrects to that of the bucket: listings do not show that a marker has changed.
    pub(super) is_mode_known: bool,
}

/// The effect of an op on the model.
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    pub(super) names: Option<Names>,
    pub(super) content: Option<(NodeId, Bytes)>,
    pub(super) mode: Option<(NodeId, u16)>,
    /// The write of the op. A failed write may leave any prefix of its data.
    pub(super) write: Option<PendingWrite>,
    /// The node of the op.
    pub(super) node: Option<NodeId>,
    /// The op is a rename: by path its names are in the bucket only after the objects have moved.
    pub(super) is_rename: bool,
}

/// A write of `data` at an offset over the content `old`.
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
    /// A file has had several names since the last sync of names.
    had_links_since_sync: bool,
    /// There was a rename since the last sync of names: by path, objects may not have moved yet.
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
            // By inode an empty file consists of its name only, and is stored at once.
            is_dirty: !is_stored,
            kind,
            content: ValueHistory::new(Bytes::new()),
            mode: ValueHistory::new(mode),
            is_stored: ValueHistory::new(is_stored),
            syncs_at_write: 0,
            faults_when_clean: fault_count,
            ino: None,
            old_modes: Vec::new(),
            is_mode_known: true,
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

    /// Returns the durability of a change of names. By path names are in the bucket, except for hard links.
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

    /// Returns the durability of a change of mode. By path the metadata records that the mode waits to be stored with its object, so that
    /// it survives a kill (S403). A new file has no object yet, and its upload may have begun with an earlier mode.
    fn mode_durability(&self, node: NodeId) -> Durability {
        match self.scenario.by_path() {
            true if *self.nodes[node].is_stored.current() => Durability::Process,
            true => Durability::None,
            false => self.names_durability(),
        }
    }

    fn close_durability(&self) -> Durability {
        if self.scenario.write_back { Durability::Process } else { Durability::Power }
    }

    /// Begins an op: from here on a crash may leave its content and mode.
    pub(super) fn begin(&mut self, effect: &Effect, syncs: u64) {
        if let Some((node, content)) = &effect.content {
            let node = &mut self.nodes[*node];
            // An op that changes nothing, such as zeros behind the end, leaves the file as the last sync stored it.
            if node.content.current() != content {
                (node.syncs_at_write, node.is_dirty) = (syncs, true);
            }
            node.content.push(content.clone());
        }
        if let Some((node, mode)) = effect.mode {
            self.nodes[node].mode.push(mode);
            self.nodes[node].is_mode_known = true;
        }
    }

    /// Applies an acknowledged op.
    pub(super) fn acknowledge(&mut self, effect: &Effect) {
        if let Some(names) = &effect.names {
            self.had_links_since_sync |= self.has_links();
            self.renamed_since_sync |= effect.is_rename;
            self.names.push(names.clone());
            self.had_links_since_sync |= self.has_links();
            self.names.acknowledge(self.names_durability());
        }
        if let Some((node, _)) = effect.mode {
            let durability = self.mode_durability(node);
            self.nodes[node].mode.acknowledge(durability);
        }
    }

    /// Records the close of a dirty file that has a name: its writes are stored.
    pub(super) fn record_close(&mut self, node: NodeId, fault_count: u64, syncs: u64) {
        if !self.nodes[node].is_dirty || !self.has_name(node) {
            return;
        }
        let durability = self.close_durability();
        self.record_stored(node, durability, fault_count);
        // By path the object is stored under its name, and other names are not synced. If a sync of another program stored the file before,
        // this close syncs no names.
        let is_ours = self.nodes[node].syncs_at_write == syncs;
        if durability == Durability::Power && !self.scenario.by_path() && is_ours {
            self.record_names_synced();
        }
    }

    /// Records an fsync: the file and all names survive a power loss.
    pub(super) fn record_fsync(&mut self, node: NodeId, fault_count: u64) {
        self.record_stored(node, Durability::Power, fault_count);
        self.nodes[node].mode.acknowledge(Durability::Power);
        self.record_names_synced();
    }

    /// Records an fsync that failed. It may have stored the file and synced all names before, so that the close syncs no names.
    pub(super) fn note_failed_fsync(&mut self, node: NodeId) {
        self.nodes[node].syncs_at_write = u64::MAX;
    }

    /// Records a sync: everything survives a power loss.
    pub(super) fn record_sync(&mut self, fault_count: u64) {
        let named: BTreeSet<NodeId> = self.names.current().values().copied().collect();
        for node in named {
            self.record_stored(node, Durability::Power, fault_count);
            self.nodes[node].mode.acknowledge(Durability::Power);
            if self.nodes[node].is_mode_known {
                // The object has the current mode now.
                self.nodes[node].old_modes.clear();
            }
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

    /// Records a sync of names. A sync of one name syncs all names, and everything acknowledged before.
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

    /// Sets the state that was observed after a failure. If the file is not open, the state is stored.
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

    /// Returns the fault count since which failures may be reported late: the lowest of all dirty files, else `fault_count`.
    pub(super) fn faults_when_dirtied(&self, fault_count: u64) -> u64 {
        let dirty = self.nodes.iter().filter(|node| node.is_dirty);
        dirty.map(|node| node.faults_when_clean).min().unwrap_or(fault_count)
    }

    /// Sets all names and nodes to the state that was found after a crash.
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
                node.is_mode_known = node.kind == NodeKind::File;
            }
            node.content.adopt(content, crash_kind);
            node.mode.adopt(mode, crash_kind);
            node.is_stored.adopt(true, crash_kind);
        }
        self.names.adopt(names, crash_kind);
    }
}

impl Effect {
    /// Whether a failed write may leave this content.
    pub(super) fn may_leave(&self, node: NodeId, seen: &Bytes) -> bool {
        self.node == Some(node) && self.write.as_ref().is_some_and(|write| write.may_leave(seen))
    }
}

impl PendingWrite {
    /// Returns the content after the first `bytes` of the data were written.
    pub(super) fn applied(&self, bytes: usize) -> Bytes {
        let mut content = self.old.to_vec();
        content.resize(content.len().max(self.at + bytes), 0);
        content[self.at..self.at + bytes].copy_from_slice(&self.data[..bytes]);
        content.into()
    }

    /// Whether a failure may leave this content.
    pub(super) fn may_leave(&self, seen: &Bytes) -> bool {
        let arrived = seen.get(self.at..).unwrap_or_default();
        let bytes = arrived.iter().zip(&self.data).take_while(|(seen, sent)| seen == sent).count();
        *seen == self.old || *seen == self.applied(bytes)
    }
}
