//! Whether what is seen is what may be.

use super::fs_model::{Effect, FsModel, Names, Node, NodeId, NodeKind};
use super::machine::CrashKind;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::names;
use vfs::Ino;

/// What was seen under a path.
#[derive(Debug, Clone)]
pub(super) struct ObservedNode {
    pub(super) ino: Ino,
    pub(super) kind: NodeKind,
    pub(super) mode: u16,
    pub(super) nlink: u32,
    /// Of a file.
    pub(super) content: Bytes,
}

/// Everything below a program's directory.
pub(super) type ObservedTree = BTreeMap<String, ObservedNode>;

/// The mode of a directory without a marker.
const DIR_MODE: u16 = 0o755;

/// What may be: names, and what their nodes are.
pub(super) struct AllowedState<'m> {
    pub(super) model: &'m FsModel,
    /// The names as they were one after the other.
    pub(super) name_states: Vec<&'m Names>,
    pub(super) allows_content: &'m dyn Fn(NodeId, &Bytes) -> bool,
    pub(super) allows_mode: &'m dyn Fn(NodeId, u16) -> bool,
    /// Directories may have lost their markers, as half a rename by path leaves them.
    pub(super) may_lack_marker: bool,
    /// A node that may be missing, too.
    pub(super) may_be_missing: &'m dyn Fn(NodeId) -> bool,
}

/// Paths with the nodes that they lead to.
pub(super) type MatchedPaths = Vec<(String, NodeId)>;

impl AllowedState<'_> {
    /// The nodes that are seen, or what must not be.
    pub(super) fn check(&self, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        let found = match self.model.scenario.by_path() {
            true => self.match_by_path(tree),
            false => self.match_by_inode(tree),
        }?;
        self.check_link_counts(&found, tree)?;
        Ok(found)
    }

    /// Names are in one log: they are as they were at some moment, all of them.
    fn match_by_inode(&self, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        let mut why = Vec::new();
        for names in self.name_states.iter().rev() {
            match self.match_names(names, tree) {
                Ok(found) => return Ok(found),
                Err(reason) => why.push(reason),
            }
        }
        why.dedup();
        Err(format!("never were the names like this: {}", why.join("; or ")))
    }

    fn match_names(&self, names: &Names, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        if let Some(path) = names.keys().find(|path| !tree.contains_key(*path)) {
            return Err(format!("'{path}' is missing"));
        }
        let mut found = MatchedPaths::new();
        for (path, seen) in tree {
            let node = names.get(path).ok_or_else(|| format!("'{path}' is too much"))?;
            self.check_node(path, *node, seen)?;
            found.push((path.clone(), *node));
        }
        Ok(found)
    }

    /// Every object goes its own way: it is under a name that it had, and none is lost.
    fn match_by_path(&self, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        let mut found = MatchedPaths::new();
        for (path, seen) in tree {
            let mut nodes = self.nodes_at(path);
            if let Some(plain) = self.path_hidden_by_directory(path, tree) {
                nodes.extend(self.nodes_at(&plain));
            }
            // Of two that look the same, the one whose number it is.
            nodes.sort_by_key(|node| self.model.nodes[*node].ino != Some(seen.ino));
            let is = |node: &&NodeId| self.check_node(path, **node, seen).is_ok();
            match nodes.iter().find(is) {
                Some(node) => found.push((path.clone(), *node)),
                None => return Err(self.explain_mismatch(path, &nodes, seen)),
            }
        }
        self.check_paths_present(tree)?;
        self.check_nodes_present(tree)?;
        Ok(found)
    }

    /// The nodes that a path led to, the latest first.
    fn nodes_at(&self, path: &str) -> Vec<NodeId> {
        self.name_states.iter().rev().filter_map(|names| names.get(path).copied()).collect()
    }

    /// The plain path of a file that shows beside the directory which has its name.
    fn path_hidden_by_directory(&self, path: &str, tree: &ObservedTree) -> Option<String> {
        let (dir, name) = split(path);
        let plain = std::str::from_utf8(names::plain(name.as_bytes())?).ok()?;
        let plain = format!("{dir}{plain}");
        tree.get(&plain).is_some_and(|seen| seen.kind == NodeKind::Directory).then_some(plain)
    }

    fn explain_mismatch(&self, path: &str, nodes: &[NodeId], seen: &ObservedNode) -> String {
        let why = nodes.iter().filter_map(|node| self.check_node(path, *node, seen).err());
        match why.collect::<Vec<_>>() {
            none if none.is_empty() => format!("nobody made '{path}', {}", describe(&seen.content)),
            why => why.join("; or "),
        }
    }

    /// A name that always leads to something leads to something.
    fn check_paths_present(&self, tree: &ObservedTree) -> Result<(), String> {
        let Some(first) = self.name_states.first() else { return Ok(()) };
        for path in first.keys().filter(|path| !tree.contains_key(*path)) {
            let nodes: Option<Vec<NodeId>> =
                self.name_states.iter().map(|names| names.get(path).copied()).collect();
            if nodes.is_some_and(|nodes| !nodes.into_iter().any(self.may_be_missing)) {
                return Err(format!("'{path}' is missing"));
            }
        }
        Ok(())
    }

    /// A node that always has a name has one.
    fn check_nodes_present(&self, tree: &ObservedTree) -> Result<(), String> {
        let Some(first) = self.name_states.first() else { return Ok(()) };
        for (path, node) in *first {
            let is_always = self.name_states.iter().all(|names| names.values().any(|named| named == node));
            let is_at = |path: &String| {
                let found = [tree.get(path), tree.get(&hidden_path(path))];
                found.into_iter().flatten().any(|seen| self.check_node(path, *node, seen).is_ok())
            };
            let is_found = || {
                let names = self.name_states.iter().flat_map(|names| names.iter());
                names.filter(|(_, named)| *named == node).any(|(path, _)| is_at(path))
            };
            if is_always && !(self.may_be_missing)(*node) && !is_found() {
                return Err(format!("what was '{path}' is gone"));
            }
        }
        Ok(())
    }

    fn check_node(&self, path: &str, id: NodeId, seen: &ObservedNode) -> Result<(), String> {
        let Node { kind, ino, .. } = &self.model.nodes[id];
        if *kind != seen.kind {
            return Err(format!("'{path}' is no {kind:?} but a {:?}", seen.kind));
        }
        if *kind == NodeKind::File && !(self.allows_content)(id, &seen.content) {
            let now = describe(self.model.content(id));
            return Err(format!("'{path}' has {} where it may not, lately {now}", describe(&seen.content)));
        }
        let is_implicit = self.may_lack_marker && *kind == NodeKind::Directory && seen.mode == DIR_MODE;
        let is_old = self.model.nodes[id].old_modes.contains(&seen.mode);
        if !is_implicit && !is_old && !(self.allows_mode)(id, seen.mode) {
            return Err(format!("'{path}' has the mode {:o} where it may not", seen.mode));
        }
        match ino {
            Some(ino) if *ino != seen.ino && !self.model.scenario.by_path() => {
                Err(format!("'{path}' is inode {}, not {ino}", seen.ino))
            }
            _ => Ok(()),
        }
    }

    /// As many names as were seen, in a volume that counts them.
    fn check_link_counts(&self, found: &MatchedPaths, tree: &ObservedTree) -> Result<(), String> {
        for (path, node) in found.iter().filter(|_| !self.model.scenario.by_path()) {
            let names = found.iter().filter(|(_, other)| other == node).count();
            let seen = &tree[path];
            if seen.kind != NodeKind::Directory && seen.nlink as usize != names {
                return Err(format!("'{path}' has {} names of {names}", seen.nlink));
            }
        }
        Ok(())
    }
}

/// What may be left of a model after a crash, with what an op under way was about to make.
pub(super) fn with_crash<T>(
    model: &FsModel,
    coming: &Effect,
    crash_kind: CrashKind,
    check: impl FnOnce(&AllowedState<'_>) -> T,
) -> T {
    let nodes = &model.nodes;
    check(&AllowedState {
        model,
        name_states: model.names.possible_after(crash_kind).iter().chain(&coming.names).collect(),
        allows_content: &|node, seen| {
            nodes[node].content.possible_after(crash_kind).contains(seen) || coming.may_leave(node, seen)
        },
        allows_mode: &|node, seen| nodes[node].mode.possible_after(crash_kind).contains(&seen),
        may_lack_marker: model.scenario.by_path(),
        may_be_missing: &|node| nodes[node].is_stored.possible_after(crash_kind).contains(&false),
    })
}

/// What another machine sees now: of attributes whose export a crash cut off, the ones before.
pub(super) fn with_other_mount<T>(model: &FsModel, check: impl FnOnce(&AllowedState<'_>) -> T) -> T {
    with_current(model, |allowed| {
        check(&AllowedState {
            allows_mode: &|_, _| true,
            name_states: allowed.name_states.clone(),
            ..*allowed
        })
    })
}

/// What is now, where nothing is in doubt.
pub(super) fn with_current<T>(model: &FsModel, check: impl FnOnce(&AllowedState<'_>) -> T) -> T {
    let nodes = &model.nodes;
    check(&AllowedState {
        model,
        name_states: vec![model.names.current()],
        allows_content: &|node, seen| nodes[node].content.current() == seen,
        allows_mode: &|node, seen| *nodes[node].mode.current() == seen,
        may_lack_marker: false,
        may_be_missing: &|_| false,
    })
}

/// The directory of a path, up to its last `/`, and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |at| at + 1))
}

/// Where a file shows whose name a directory has.
fn hidden_path(path: &str) -> String {
    let (dir, name) = split(path);
    format!("{dir}{}", String::from_utf8_lossy(&names::beside(name.as_bytes())))
}

/// Bytes for people: how many, and their beginnings where they change.
pub(super) fn describe(content: &Bytes) -> String {
    let runs: Vec<String> =
        content.chunk_by(|a, b| a == b).take(12).map(|run| format!("{}*{:02x}", run.len(), run[0])).collect();
    format!("{} bytes [{}]", content.len(), runs.join(" "))
}
