//! The effect that an op must have on the model, or the errors with which it must fail.

use super::fs_model::{Effect, FsModel, Names, NodeId, NodeKind, PendingWrite};
use super::op::{AllocateMode, Op, OpenSlot, RenameMode};
use bytes::Bytes;

/// Error numbers, each of which is a correct result.
pub(super) type AllowedErrnos = Vec<i32>;

type Prediction = Result<Effect, AllowedErrnos>;

/// Predicts the effect of an op. A new node is the last one of the model.
pub(super) fn predict(model: &mut FsModel, open: &[OpenSlot], op: &Op, fault_count: u64) -> Prediction {
    match op {
        Op::Create { path, mode } => create(model, path, NodeKind::File, *mode, fault_count),
        Op::Mkdir(path) => create(model, path, NodeKind::Directory, 0o755, fault_count),
        Op::Symlink { path, target } => {
            create(model, path, NodeKind::Link(target.clone()), 0o777, fault_count)
        }
        Op::Open { path, truncates, .. } => {
            let node = find_file(model, path)?;
            Ok(if *truncates { set_content(node, Bytes::new()) } else { on_node(node) })
        }
        Op::Truncate { path, size } => {
            let node = find_file(model, path)?;
            Ok(set_content(node, resized(model.content(node), *size)))
        }
        Op::Chmod { path, mode } => {
            let node = model.node_at(path).ok_or([libc::ENOENT])?;
            Ok(Effect { mode: Some((node, *mode)), ..on_node(node) })
        }
        Op::Rmdir(path) => rmdir(model, path),
        Op::Unlink(path) => unlink(model, path),
        Op::Link { from, to } => link(model, from, to),
        Op::Rename { from, to, how } => rename(model, from, to, *how),
        Op::Write { slot, at, data } => {
            let node = open[*slot].node;
            let write = PendingWrite { old: model.content(node).clone(), at: *at, data: data.clone() };
            Ok(Effect { write: Some(write.clone()), ..set_content(node, write.applied(data.len())) })
        }
        Op::Resize { slot, size } => {
            let node = open[*slot].node;
            Ok(set_content(node, resized(model.content(node), *size)))
        }
        Op::Allocate { slot, mode, at, len } => {
            let node = open[*slot].node;
            Ok(set_content(node, after_allocate(model.content(node), *mode, *at, *len)))
        }
        Op::Close(slot) | Op::Fsync(slot) | Op::Read { slot, .. } => Ok(on_node(open[*slot].node)),
        Op::Walk | Op::Sync | Op::Wait(_) => Ok(Effect::default()),
    }
}

fn on_node(node: NodeId) -> Effect {
    Effect { node: Some(node), ..Effect::default() }
}

fn set_content(node: NodeId, content: Bytes) -> Effect {
    Effect { content: Some((node, content)), ..on_node(node) }
}

fn set_names(names: Names) -> Effect {
    Effect { names: Some(names), ..Effect::default() }
}

fn create(model: &mut FsModel, path: &str, kind: NodeKind, mode: u16, fault_count: u64) -> Prediction {
    if model.kind(path).is_some() {
        return Err(vec![libc::EEXIST]);
    }
    let node = model.add(kind, mode, fault_count);
    let mut names = model.names.current().clone();
    names.insert(path.into(), node);
    Ok(Effect { node: Some(node), ..set_names(names) })
}

fn find_file(model: &FsModel, path: &str) -> Result<NodeId, AllowedErrnos> {
    let node = model.node_at(path).ok_or([libc::ENOENT])?;
    match model.nodes[node].kind {
        NodeKind::File => Ok(node),
        NodeKind::Directory => Err(vec![libc::EISDIR]),
        NodeKind::Link(_) => Err(vec![libc::ELOOP, libc::EINVAL]),
    }
}

fn rmdir(model: &FsModel, path: &str) -> Prediction {
    match model.kind(path) {
        None => Err(vec![libc::ENOENT]),
        Some(NodeKind::Directory) if !is_empty(model, path) => Err(vec![libc::ENOTEMPTY]),
        Some(NodeKind::Directory) => Ok(set_names(names_without(model, path))),
        Some(_) => Err(vec![libc::ENOTDIR]),
    }
}

fn unlink(model: &FsModel, path: &str) -> Prediction {
    match model.kind(path) {
        None => Err(vec![libc::ENOENT]),
        Some(NodeKind::Directory) => Err(vec![libc::EISDIR]),
        Some(_) => Ok(set_names(names_without(model, path))),
    }
}

fn link(model: &FsModel, from: &str, to: &str) -> Prediction {
    let node = model.node_at(from).ok_or([libc::ENOENT])?;
    let mut errnos = Vec::new();
    if model.nodes[node].kind == NodeKind::Directory {
        errnos.push(libc::EPERM);
    }
    if model.kind(to).is_some() {
        errnos.push(libc::EEXIST);
    }
    if !errnos.is_empty() {
        return Err(errnos);
    }
    let mut names = model.names.current().clone();
    names.insert(to.into(), node);
    Ok(Effect { node: Some(node), ..set_names(names) })
}

fn rename(model: &FsModel, from: &str, to: &str, how: RenameMode) -> Prediction {
    let errnos = rename_errnos(model, from, to, how);
    let Some(source) = model.node_at(from).filter(|_| errnos.is_empty()) else { return Err(errnos) };
    let names = model.names.current();
    if model.node_at(to) == Some(source) {
        return Ok(on_node(source));
    }
    let mut moved = Names::new();
    for (path, node) in names {
        let new = match (rest_below(path, from), rest_below(path, to), how) {
            (Some(rest), _, _) => format!("{to}{rest}"),
            (None, Some(rest), RenameMode::Exchange) => format!("{from}{rest}"),
            (None, Some(_), _) => continue,
            (None, None, _) => path.clone(),
        };
        moved.insert(new, *node);
    }
    Ok(Effect { node: Some(source), is_rename: true, ..set_names(moved) })
}

/// Returns all errors that apply to a rename. Any one of them is correct.
fn rename_errnos(model: &FsModel, from: &str, to: &str, how: RenameMode) -> AllowedErrnos {
    let mut errnos = AllowedErrnos::new();
    let mut forbid = |is: bool, errno| errnos.extend(is.then_some(errno));
    let (source, target) = (model.kind(from), model.kind(to));
    forbid(source.is_none(), libc::ENOENT);
    let is_directory = [source, target].contains(&Some(&NodeKind::Directory));
    let is_by_path = model.scenario.by_path() && from != to;
    forbid(how == RenameMode::Exchange && is_by_path && is_directory, libc::EINVAL);
    forbid(how == RenameMode::Exchange && target.is_none(), libc::ENOENT);
    forbid(how == RenameMode::NoReplace && target.is_some(), libc::EEXIST);
    forbid(from != to && rest_below(to, from).is_some(), libc::EINVAL);
    forbid(how == RenameMode::Exchange && from != to && rest_below(from, to).is_some(), libc::EINVAL);
    if let (Some(source), Some(target)) = (source, target)
        && how != RenameMode::Exchange
        && from != to
    {
        let (from_dir, to_dir) = (*source == NodeKind::Directory, *target == NodeKind::Directory);
        forbid(from_dir && !to_dir, libc::ENOTDIR);
        forbid(!from_dir && to_dir, libc::EISDIR);
        forbid(to_dir && !is_empty(model, to), libc::ENOTEMPTY);
    }
    errnos
}

/// Returns the rest of `path` after `ancestor`, if it is `ancestor` or lies below it.
fn rest_below<'p>(path: &'p str, ancestor: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(ancestor)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn is_empty(model: &FsModel, dir: &str) -> bool {
    !model.names.current().keys().any(|path| path != dir && rest_below(path, dir).is_some())
}

fn names_without(model: &FsModel, path: &str) -> Names {
    let mut names = model.names.current().clone();
    names.remove(path);
    names
}

fn resized(content: &Bytes, size: usize) -> Bytes {
    let mut content = content.to_vec();
    content.resize(size, 0);
    content.into()
}

fn after_allocate(content: &Bytes, mode: AllocateMode, at: usize, len: usize) -> Bytes {
    let (mut content, end) = (content.to_vec(), at + len);
    if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
        content.resize(content.len().max(end), 0);
    }
    let known = at.min(content.len())..end.min(content.len());
    if mode != AllocateMode::Extend {
        content[known].fill(0);
    }
    content.into()
}
