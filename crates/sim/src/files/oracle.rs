//! Whether what is seen is what may be.

use super::fs_model::{Effect, Kind, Model, Names, Node, NodeId};
use super::machine::Loss;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::names;
use vfs::Ino;

/// What was seen under a path.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) ino: Ino,
    pub(super) kind: Kind,
    pub(super) mode: u16,
    pub(super) nlink: u32,
    /// Of a file.
    pub(super) content: Bytes,
}

/// Everything below a program's directory.
pub(super) type Sight = BTreeMap<String, Seen>;

/// The mode of a directory without a marker.
const DIR_MODE: u16 = 0o755;

/// What may be: names, and what their nodes are.
pub(super) struct May<'m> {
    pub(super) model: &'m Model,
    /// The names as they were one after the other.
    pub(super) states: Vec<&'m Names>,
    pub(super) contents: &'m dyn Fn(NodeId, &Bytes) -> bool,
    pub(super) modes: &'m dyn Fn(NodeId, u16) -> bool,
    /// Directories may have lost their markers, as half a rename by path leaves them.
    pub(super) may_be_implicit: bool,
    /// A node that may be missing, too.
    pub(super) is_optional: &'m dyn Fn(NodeId) -> bool,
}

/// Paths with the nodes that they lead to.
pub(super) type Found = Vec<(String, NodeId)>;

impl May<'_> {
    /// The nodes that are seen, or what must not be.
    pub(super) fn be(&self, sight: &Sight) -> Result<Found, String> {
        let found = match self.model.setting.by_path() {
            true => self.be_by_path(sight),
            false => self.be_by_inode(sight),
        }?;
        self.have_names(&found, sight)?;
        Ok(found)
    }

    /// Names are in one log: they are as they were at some moment, all of them.
    fn be_by_inode(&self, sight: &Sight) -> Result<Found, String> {
        let mut why = Vec::new();
        for names in self.states.iter().rev() {
            match self.is_state(names, sight) {
                Ok(found) => return Ok(found),
                Err(reason) => why.push(reason),
            }
        }
        why.dedup();
        Err(format!("never were the names like this: {}", why.join("; or ")))
    }

    fn is_state(&self, names: &Names, sight: &Sight) -> Result<Found, String> {
        if let Some(path) = names.keys().find(|path| !sight.contains_key(*path)) {
            return Err(format!("'{path}' is missing"));
        }
        let mut found = Found::new();
        for (path, seen) in sight {
            let node = names.get(path).ok_or_else(|| format!("'{path}' is too much"))?;
            self.is_node(path, *node, seen)?;
            found.push((path.clone(), *node));
        }
        Ok(found)
    }

    /// Every object goes its own way: it is under a name that it had, and none is lost.
    fn be_by_path(&self, sight: &Sight) -> Result<Found, String> {
        let mut found = Found::new();
        for (path, seen) in sight {
            let mut nodes = self.nodes_at(path);
            if let Some(plain) = self.taken_by_directory(path, sight) {
                nodes.extend(self.nodes_at(&plain));
            }
            // Of two that look the same, the one whose number it is.
            nodes.sort_by_key(|node| self.model.nodes[*node].ino != Some(seen.ino));
            let is = |node: &&NodeId| self.is_node(path, **node, seen).is_ok();
            match nodes.iter().find(is) {
                Some(node) => found.push((path.clone(), *node)),
                None => return Err(self.stranger(path, &nodes, seen)),
            }
        }
        self.all_paths_are(sight)?;
        self.all_nodes_are(sight)?;
        Ok(found)
    }

    /// The nodes that a path led to, the latest first.
    fn nodes_at(&self, path: &str) -> Vec<NodeId> {
        self.states.iter().rev().filter_map(|names| names.get(path).copied()).collect()
    }

    /// The plain path of a file that shows beside the directory which has its name.
    fn taken_by_directory(&self, path: &str, sight: &Sight) -> Option<String> {
        let (dir, name) = split(path);
        let plain = std::str::from_utf8(names::plain(name.as_bytes())?).ok()?;
        let plain = format!("{dir}{plain}");
        sight.get(&plain).is_some_and(|seen| seen.kind == Kind::Directory).then_some(plain)
    }

    fn stranger(&self, path: &str, nodes: &[NodeId], seen: &Seen) -> String {
        let why = nodes.iter().filter_map(|node| self.is_node(path, *node, seen).err());
        match why.collect::<Vec<_>>() {
            none if none.is_empty() => format!("nobody made '{path}', {}", told(&seen.content)),
            why => why.join("; or "),
        }
    }

    /// A name that always leads to something leads to something.
    fn all_paths_are(&self, sight: &Sight) -> Result<(), String> {
        let Some(first) = self.states.first() else { return Ok(()) };
        for path in first.keys().filter(|path| !sight.contains_key(*path)) {
            let nodes: Option<Vec<NodeId>> =
                self.states.iter().map(|names| names.get(path).copied()).collect();
            if nodes.is_some_and(|nodes| !nodes.into_iter().any(self.is_optional)) {
                return Err(format!("'{path}' is missing"));
            }
        }
        Ok(())
    }

    /// A node that always has a name has one.
    fn all_nodes_are(&self, sight: &Sight) -> Result<(), String> {
        let Some(first) = self.states.first() else { return Ok(()) };
        for (path, node) in *first {
            let is_always = self.states.iter().all(|names| names.values().any(|named| named == node));
            let is_at = |path: &String| {
                let found = [sight.get(path), sight.get(&beside(path))];
                found.into_iter().flatten().any(|seen| self.is_node(path, *node, seen).is_ok())
            };
            let is_found = || {
                let names = self.states.iter().flat_map(|names| names.iter());
                names.filter(|(_, named)| *named == node).any(|(path, _)| is_at(path))
            };
            if is_always && !(self.is_optional)(*node) && !is_found() {
                return Err(format!("what was '{path}' is gone"));
            }
        }
        Ok(())
    }

    fn is_node(&self, path: &str, id: NodeId, seen: &Seen) -> Result<(), String> {
        let Node { kind, ino, .. } = &self.model.nodes[id];
        if *kind != seen.kind {
            return Err(format!("'{path}' is no {kind:?} but a {:?}", seen.kind));
        }
        if *kind == Kind::File && !(self.contents)(id, &seen.content) {
            let now = told(self.model.content(id));
            return Err(format!("'{path}' has {} where it may not, lately {now}", told(&seen.content)));
        }
        let is_implicit = self.may_be_implicit && *kind == Kind::Directory && seen.mode == DIR_MODE;
        let is_old = self.model.nodes[id].old_modes.contains(&seen.mode);
        if !is_implicit && !is_old && !(self.modes)(id, seen.mode) {
            return Err(format!("'{path}' has the mode {:o} where it may not", seen.mode));
        }
        match ino {
            Some(ino) if *ino != seen.ino && !self.model.setting.by_path() => {
                Err(format!("'{path}' is inode {}, not {ino}", seen.ino))
            }
            _ => Ok(()),
        }
    }

    /// As many names as were seen, in a volume that counts them.
    fn have_names(&self, found: &Found, sight: &Sight) -> Result<(), String> {
        for (path, node) in found.iter().filter(|_| !self.model.setting.by_path()) {
            let names = found.iter().filter(|(_, other)| other == node).count();
            let seen = &sight[path];
            if seen.kind != Kind::Directory && seen.nlink as usize != names {
                return Err(format!("'{path}' has {} names of {names}", seen.nlink));
            }
        }
        Ok(())
    }
}

/// What may be left of a model after a crash, with what an op under way was about to make.
pub(super) fn after_a_crash<T>(
    model: &Model,
    coming: &Effect,
    loss: Loss,
    judge: impl FnOnce(&May<'_>) -> T,
) -> T {
    let nodes = &model.nodes;
    judge(&May {
        model,
        states: model.names.left(loss).iter().chain(&coming.names).collect(),
        contents: &|node, seen| nodes[node].content.left(loss).contains(seen) || coming.may_leave(node, seen),
        modes: &|node, seen| nodes[node].mode.left(loss).contains(&seen),
        may_be_implicit: model.setting.by_path(),
        is_optional: &|node| nodes[node].is_stored.left(loss).contains(&false),
    })
}

/// What another machine sees now: of attributes whose export a crash cut off, the ones before.
pub(super) fn elsewhere<T>(model: &Model, judge: impl FnOnce(&May<'_>) -> T) -> T {
    now(model, |may| judge(&May { modes: &|_, _| true, states: may.states.clone(), ..*may }))
}

/// What is now, where nothing is in doubt.
pub(super) fn now<T>(model: &Model, judge: impl FnOnce(&May<'_>) -> T) -> T {
    let nodes = &model.nodes;
    judge(&May {
        model,
        states: vec![model.names.now()],
        contents: &|node, seen| nodes[node].content.now() == seen,
        modes: &|node, seen| *nodes[node].mode.now() == seen,
        may_be_implicit: false,
        is_optional: &|_| false,
    })
}

/// The directory of a path, up to its last `/`, and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |at| at + 1))
}

/// Where a file shows whose name a directory has.
fn beside(path: &str) -> String {
    let (dir, name) = split(path);
    format!("{dir}{}", String::from_utf8_lossy(&names::beside(name.as_bytes())))
}

/// Bytes for people: how many, and their beginnings where they change.
pub(super) fn told(content: &Bytes) -> String {
    let runs: Vec<String> =
        content.chunk_by(|a, b| a == b).take(12).map(|run| format!("{}*{:02x}", run.len(), run[0])).collect();
    format!("{} bytes [{}]", content.len(), runs.join(" "))
}
