//! The oracle: decides whether an observed tree is a correct state.

use super::fs_model::{Effect, FsModel, Names, Node, NodeId, NodeKind};
use super::machine::CrashKind;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::names;
use vfs::Ino;

/// The observed inode of a path.
#[derive(Debug, Clone)]
pub(super) struct ObservedNode {
    pub(super) ino: Ino,
    pub(super) kind: NodeKind,
    pub(super) mode: u16,
    pub(super) nlink: u32,
    /// Empty unless the node is a file.
    pub(super) content: Bytes,
}

/// The observed inodes below a program's directory, by path.
pub(super) type ObservedTree = BTreeMap<String, ObservedNode>;

/// The mode of a directory without a marker object.
const DIR_MODE: u16 = 0o755;

/// The states that are correct: names, and the states of their nodes.
pub(super) struct AllowedState<'m> {
    pub(super) model: &'m FsModel,
    /// The possible states of the names, oldest first.
    pub(super) name_states: Vec<&'m Names>,
    pub(super) allows_content: &'m dyn Fn(NodeId, &Bytes) -> bool,
    pub(super) allows_mode: &'m dyn Fn(NodeId, u16) -> bool,
    /// Directories may lack their markers, as after an incomplete rename by path.
    pub(super) may_lack_marker: bool,
    /// Whether a node may also be missing.
    pub(super) may_be_missing: &'m dyn Fn(NodeId) -> bool,
}

/// Paths with the model's nodes that they were matched to.
pub(super) type MatchedPaths = Vec<(String, NodeId)>;

impl AllowedState<'_> {
    /// Matches an observed tree with the model, or returns the first difference.
    pub(super) fn check(&self, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        let found = match self.model.scenario.by_path() {
            true => self.match_by_path(tree),
            false => self.match_by_inode(tree),
        }?;
        self.check_link_counts(&found, tree)?;
        Ok(found)
    }

    /// Matches by inode. Names are in one log, so that all of them must be from the same moment.
    fn match_by_inode(&self, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        let mut why = Vec::new();
        for names in self.name_states.iter().rev() {
            match self.match_names(names, tree) {
                Ok(found) => return Ok(found),
                Err(reason) => why.push(reason),
            }
        }
        why.dedup();
        Err(format!("the names match no state of the model: {}", why.join("; or ")))
    }

    fn match_names(&self, names: &Names, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        if let Some(path) = names.keys().find(|path| !tree.contains_key(*path)) {
            return Err(format!("'{path}' is missing"));
        }
        let mut found = MatchedPaths::new();
        for (path, seen) in tree {
            let node = names.get(path).ok_or_else(|| format!("'{path}' should not exist"))?;
            self.check_node(path, *node, seen)?;
            // A node that was being made has no known inode, which may not be that of another node.
            let is_another = |other: &str, id: NodeId| (tree[other].ino == seen.ino) != (id == *node);
            if found.iter().any(|(other, id)| is_another(other, *id)) {
                return Err(format!("'{path}' is inode {}, and so is another file", seen.ino));
            }
            found.push((path.clone(), *node));
        }
        Ok(found)
    }

    /// Matches by path. Objects move independently: each must be at a path that its node had, and none may be lost.
    fn match_by_path(&self, tree: &ObservedTree) -> Result<MatchedPaths, String> {
        let mut found = MatchedPaths::new();
        for (path, seen) in tree {
            let mut nodes = self.nodes_at(path);
            if let Some(plain) = self.path_hidden_by_directory(path, tree) {
                nodes.extend(self.nodes_at(&plain));
            }
            // Prefer, among equal candidates, the node with the same inode number.
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

    /// Returns the nodes that a path had, latest first.
    fn nodes_at(&self, path: &str) -> Vec<NodeId> {
        self.name_states.iter().rev().filter_map(|names| names.get(path).copied()).collect()
    }

    /// Returns the original path of a file that is shown under an escaped name because a directory has its name.
    fn path_hidden_by_directory(&self, path: &str, tree: &ObservedTree) -> Option<String> {
        let (dir, name) = split(path);
        let plain = std::str::from_utf8(names::plain(name.as_bytes())?).ok()?;
        let plain = format!("{dir}{plain}");
        tree.get(&plain).is_some_and(|seen| seen.kind == NodeKind::Directory).then_some(plain)
    }

    fn explain_mismatch(&self, path: &str, nodes: &[NodeId], seen: &ObservedNode) -> String {
        let why = nodes.iter().filter_map(|node| self.check_node(path, *node, seen).err());
        match why.collect::<Vec<_>>() {
            none if none.is_empty() => format!("no program made '{path}' with {}", describe(&seen.content)),
            why => why.join("; or "),
        }
    }

    /// Checks that each path that exists in all states exists.
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

    /// Checks that each node that has a name in all states has a name.
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
                return Err(format!("the node that was at '{path}' has no name"));
            }
        }
        Ok(())
    }

    fn check_node(&self, path: &str, id: NodeId, seen: &ObservedNode) -> Result<(), String> {
        let Node { kind, ino, .. } = &self.model.nodes[id];
        if *kind != seen.kind {
            return Err(format!("'{path}' must be a {kind:?} and is a {:?}", seen.kind));
        }
        if *kind == NodeKind::File && !(self.allows_content)(id, &seen.content) {
            let now = describe(self.model.content(id));
            return Err(format!(
                "'{path}' has the wrong content {}; the model has {now}",
                describe(&seen.content)
            ));
        }
        let is_implicit = self.may_lack_marker && *kind == NodeKind::Directory && seen.mode == DIR_MODE;
        let is_old = self.model.nodes[id].old_modes.contains(&seen.mode);
        if !is_implicit && !is_old && !(self.allows_mode)(id, seen.mode) {
            return Err(format!("'{path}' has the wrong mode {:o}", seen.mode));
        }
        match ino {
            Some(ino) if *ino != seen.ino && !self.model.scenario.by_path() => {
                Err(format!("'{path}' is inode {} and must be {ino}", seen.ino))
            }
            _ => Ok(()),
        }
    }

    /// Checks that link counts equal the number of names seen, in a volume by inode.
    fn check_link_counts(&self, found: &MatchedPaths, tree: &ObservedTree) -> Result<(), String> {
        for (path, node) in found.iter().filter(|_| !self.model.scenario.by_path()) {
            let names = found.iter().filter(|(_, other)| other == node).count();
            let seen = &tree[path];
            if seen.kind != NodeKind::Directory && seen.nlink as usize != names {
                return Err(format!("'{path}' has the link count {} and {names} names", seen.nlink));
            }
        }
        Ok(())
    }
}

/// Calls `check` with the states that a crash may leave, including the effect of an op in flight.
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

/// Calls `check` with the current state of the model as the only one.
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

/// Splits a path after its last `/` into directory and name.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |at| at + 1))
}

/// Returns the escaped path of a file whose name a directory has.
fn hidden_path(path: &str) -> String {
    let (dir, name) = split(path);
    format!("{dir}{}", String::from_utf8_lossy(&names::colliding(name.as_bytes())))
}

/// Describes bytes by their length and their runs of equal bytes.
pub(super) fn describe(content: &Bytes) -> String {
    let runs: Vec<String> =
        content.chunk_by(|a, b| a == b).take(12).map(|run| format!("{}*{:02x}", run.len(), run[0])).collect();
    format!("{} bytes [{}]", content.len(), runs.join(" "))
}
