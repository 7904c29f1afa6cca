//! What an op does to the model, or why it must fail.

use super::fs_model::{Effect, Kind, Model, Names, NodeId, Write};
use super::op::{How, Op, Open, Space};
use bytes::Bytes;

/// Error numbers, any of which is right.
pub(super) type Refusal = Vec<i32>;

type Foreseen = Result<Effect, Refusal>;

/// What the op will do. A new node is the model's last.
pub(super) fn foresee(model: &mut Model, open: &[Open], op: &Op, struck: u64) -> Foreseen {
    match op {
        Op::Create { path, mode } => make(model, path, Kind::File, *mode, struck),
        Op::Mkdir(path) => make(model, path, Kind::Directory, 0o755, struck),
        Op::Symlink { path, target } => make(model, path, Kind::Link(target.clone()), 0o777, struck),
        Op::Open { path, truncates, .. } => {
            let node = file(model, path)?;
            Ok(if *truncates { content(node, Bytes::new()) } else { of(node) })
        }
        Op::Truncate { path, size } => {
            let node = file(model, path)?;
            Ok(content(node, resized(model.content(node), *size)))
        }
        Op::Chmod { path, mode } => {
            let node = model.at(path).ok_or([libc::ENOENT])?;
            Ok(Effect { mode: Some((node, *mode)), ..of(node) })
        }
        Op::Rmdir(path) => rmdir(model, path),
        Op::Unlink(path) => unlink(model, path),
        Op::Link { from, to } => link(model, from, to),
        Op::Rename { from, to, how } => rename(model, from, to, *how),
        Op::Write { slot, at, data } => {
            let node = open[*slot].node;
            let write = Write { over: model.content(node).clone(), at: *at, data: data.clone() };
            Ok(Effect { write: Some(write.clone()), ..content(node, write.after(data.len())) })
        }
        Op::Resize { slot, size } => {
            let node = open[*slot].node;
            Ok(content(node, resized(model.content(node), *size)))
        }
        Op::Allocate { slot, space, at, len } => {
            let node = open[*slot].node;
            Ok(content(node, allocated(model.content(node), *space, *at, *len)))
        }
        Op::Close(slot) | Op::Fsync(slot) | Op::Read { slot, .. } => Ok(of(open[*slot].node)),
        Op::Look | Op::Sync | Op::Wait(_) => Ok(Effect::default()),
    }
}

fn of(node: NodeId) -> Effect {
    Effect { node: Some(node), ..Effect::default() }
}

fn content(node: NodeId, content: Bytes) -> Effect {
    Effect { content: Some((node, content)), ..of(node) }
}

fn renamed(names: Names) -> Effect {
    Effect { names: Some(names), ..Effect::default() }
}

fn make(model: &mut Model, path: &str, kind: Kind, mode: u16, struck: u64) -> Foreseen {
    if model.kind(path).is_some() {
        return Err(vec![libc::EEXIST]);
    }
    let node = model.add(kind, mode, struck);
    let mut names = model.names.now().clone();
    names.insert(path.into(), node);
    Ok(Effect { node: Some(node), ..renamed(names) })
}

fn file(model: &Model, path: &str) -> Result<NodeId, Refusal> {
    let node = model.at(path).ok_or([libc::ENOENT])?;
    match model.nodes[node].kind {
        Kind::File => Ok(node),
        Kind::Directory => Err(vec![libc::EISDIR]),
        Kind::Link(_) => Err(vec![libc::ELOOP, libc::EINVAL]),
    }
}

fn rmdir(model: &Model, path: &str) -> Foreseen {
    match model.kind(path) {
        None => Err(vec![libc::ENOENT]),
        Some(Kind::Directory) if !is_empty(model, path) => Err(vec![libc::ENOTEMPTY]),
        Some(Kind::Directory) => Ok(renamed(without(model, path))),
        Some(_) => Err(vec![libc::ENOTDIR]),
    }
}

fn unlink(model: &Model, path: &str) -> Foreseen {
    match model.kind(path) {
        None => Err(vec![libc::ENOENT]),
        Some(Kind::Directory) => Err(vec![libc::EISDIR]),
        Some(_) => Ok(renamed(without(model, path))),
    }
}

fn link(model: &Model, from: &str, to: &str) -> Foreseen {
    let node = model.at(from).ok_or([libc::ENOENT])?;
    let mut refusal = Vec::new();
    if model.nodes[node].kind == Kind::Directory {
        refusal.push(libc::EPERM);
    }
    if model.kind(to).is_some() {
        refusal.push(libc::EEXIST);
    }
    if !refusal.is_empty() {
        return Err(refusal);
    }
    let mut names = model.names.now().clone();
    names.insert(to.into(), node);
    Ok(Effect { node: Some(node), ..renamed(names) })
}

fn rename(model: &Model, from: &str, to: &str, how: How) -> Foreseen {
    let refusal = rename_refusal(model, from, to, how);
    let Some(source) = model.at(from).filter(|_| refusal.is_empty()) else { return Err(refusal) };
    let names = model.names.now();
    if model.at(to) == Some(source) {
        return Ok(of(source));
    }
    let mut moved = Names::new();
    for (path, node) in names {
        let new = match (below(path, from), below(path, to), how) {
            (Some(rest), _, _) => format!("{to}{rest}"),
            (None, Some(rest), How::Exchange) => format!("{from}{rest}"),
            (None, Some(_), _) => continue,
            (None, None, _) => path.clone(),
        };
        moved.insert(new, *node);
    }
    Ok(Effect { node: Some(source), is_rename: true, ..renamed(moved) })
}

/// Everything that forbids it: which of several is told is nobody's promise.
fn rename_refusal(model: &Model, from: &str, to: &str, how: How) -> Refusal {
    let mut refusal = Refusal::new();
    let mut refuse = |is: bool, errno| refusal.extend(is.then_some(errno));
    let (source, target) = (model.kind(from), model.kind(to));
    refuse(source.is_none(), libc::ENOENT);
    let is_directory = [source, target].contains(&Some(&Kind::Directory));
    let is_by_path = model.setting.by_path() && from != to;
    refuse(how == How::Exchange && is_by_path && is_directory, libc::EINVAL);
    refuse(how == How::Exchange && target.is_none(), libc::ENOENT);
    refuse(how == How::NoReplace && target.is_some(), libc::EEXIST);
    refuse(from != to && below(to, from).is_some(), libc::EINVAL);
    refuse(how == How::Exchange && from != to && below(from, to).is_some(), libc::EINVAL);
    if let (Some(source), Some(target)) = (source, target)
        && how != How::Exchange
        && from != to
    {
        let (from_dir, to_dir) = (*source == Kind::Directory, *target == Kind::Directory);
        refuse(from_dir && !to_dir, libc::ENOTDIR);
        refuse(!from_dir && to_dir, libc::EISDIR);
        refuse(to_dir && !is_empty(model, to), libc::ENOTEMPTY);
    }
    refusal
}

/// What follows `ancestor` in a path that is it or lies below it.
fn below<'p>(path: &'p str, ancestor: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(ancestor)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn is_empty(model: &Model, dir: &str) -> bool {
    !model.names.now().keys().any(|path| path != dir && below(path, dir).is_some())
}

fn without(model: &Model, path: &str) -> Names {
    let mut names = model.names.now().clone();
    names.remove(path);
    names
}

fn resized(content: &Bytes, size: usize) -> Bytes {
    let mut content = content.to_vec();
    content.resize(size, 0);
    content.into()
}

fn allocated(content: &Bytes, space: Space, at: usize, len: usize) -> Bytes {
    let (mut content, end) = (content.to_vec(), at + len);
    if matches!(space, Space::Extend | Space::Zero) {
        content.resize(content.len().max(end), 0);
    }
    let known = at.min(content.len())..end.min(content.len());
    if space != Space::Extend {
        content[known].fill(0);
    }
    content.into()
}
