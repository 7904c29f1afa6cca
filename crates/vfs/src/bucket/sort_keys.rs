//! The known entries of a directory in the order of its listing.
//!
//! The namespace keeps names in byte order; a listing sorts a directory `a` as `a/`, after `a-b`, and an escaped
//! name as its key. Here one is turned into the other, a bounded number of entries at a time.

use meta::{Dentry, Ino, Kind, Name, Namespace};
use store::names::{KeyPrefix, NAME_BYTES_MAX};

use crate::Result;
use crate::layout::object_key;

/// Names of objects beside a directory of the same name begin with this. Their order is that of their texts.
const BESIDE: &[u8] = b"%=";
/// Beginnings of the other escapes, whose texts are in another order.
const OTHER_ESCAPES: [&[u8]; 4] = [b"%!", b"%+", b"%=%!", b"%=%+"];
/// Entries asked of the namespace at once.
const BATCH: usize = 256;

/// A known entry and where its listing shows it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) dentry: Dentry,
    pub(crate) sort_key: Vec<u8>,
}

/// What a name's key or prefix is, relative to its directory; `None` for a name that has none.
pub(crate) fn sort_key(name: &Name, kind: Kind) -> Option<Vec<u8>> {
    let inside = KeyPrefix::root(b"");
    if kind == Kind::Directory {
        inside.child_dir(name.as_bytes()).ok().map(|inside| inside.as_bytes().to_vec())
    } else {
        object_key(&inside, name.as_bytes()).ok().map(|key| key.as_bytes().to_vec())
    }
}

/// The entries of a directory that no listing shows, in the order of their names; at most `limit`.
pub(crate) fn entries_by_name(names: &Namespace, dir: Ino, after: &[u8], limit: usize) -> Result<Vec<Entry>> {
    let after = if after.is_empty() { None } else { Some(Name::new(after)?) };
    let entries = names.entries(dir, after.as_ref(), limit)?.into_iter();
    Ok(entries.map(|(name, dentry)| Entry { sort_key: name.as_bytes().to_vec(), name, dentry }).collect())
}

/// Known entries with `after < sort_key <= end` (`None`: to the directory's end), ascending by text; at most about
/// `limit`, but never none while there are more.
pub(crate) fn entries_between(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Entry>> {
    let mut limit = limit.max(1);
    let others = other_escapes(names, dir)?;
    loop {
        let (mut entries, plain_bound) = plain(names, dir, after, end, limit)?;
        let (objects, object_bound) = beside(names, dir, after, end, limit)?;
        let bound = plain_bound.into_iter().chain(object_bound).min();
        entries.extend(objects);
        entries.extend(others.iter().cloned());
        let ends_before = |sort_key: &[u8]| bound.as_deref().is_none_or(|bound| sort_key < bound);
        entries.retain(|entry| {
            let sort_key = entry.sort_key.as_slice();
            sort_key > after && end.is_none_or(|end| sort_key <= end) && ends_before(sort_key)
        });
        if !entries.is_empty() || bound.is_none() {
            entries.sort_by(|a, b| a.sort_key.cmp(&b.sort_key));
            return Ok(entries);
        }
        limit *= 4;
    }
}

/// Entries with plain names, from the directories that `after` lies before the contents of. With the name before
/// which everything was looked at, if that is not all.
fn plain(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
    let mut entries = Vec::new();
    for cut in 1..=after.len() {
        // A directory whose name begins `after` may still come after it.
        let Ok(name) = Name::new(&after[..cut]) else { continue };
        if let Some(dentry) = names.entry(dir, &name)? {
            push(&mut entries, name, dentry);
        }
    }
    let bound = each(names, dir, after, limit, |name, dentry| {
        if end.is_some_and(|end| name.as_bytes() > end) {
            return Step::Stop;
        }
        if is_escape(&name) {
            // All names that begin like it are escapes.
            return Step::SkipTo([&name.as_bytes()[..BESIDE.len()], &[u8::MAX; NAME_BYTES_MAX]].concat());
        }
        push(&mut entries, name, dentry);
        Step::Next
    })?;
    Ok((entries, bound))
}

/// Objects beside directories of their names, of those after `after`. With the text before which everything was looked at, if
/// that is not all.
fn beside(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
    let mut entries = Vec::new();
    let from = [BESIDE, after].concat();
    let bound = each(names, dir, &from, limit, |name, dentry| {
        let plain = name.as_bytes().strip_prefix(BESIDE);
        let Some(plain) = plain.filter(|plain| end.is_none_or(|end| *plain <= end)) else {
            return Step::Stop;
        };
        if !is_other_escape(&name) {
            let sort_key = plain.to_vec();
            entries.push(Entry { name, dentry, sort_key });
        }
        Step::Next
    })?;
    Ok((entries, bound.and_then(|name| name.strip_prefix(BESIDE).map(<[u8]>::to_vec))))
}

/// The entries whose names are other escapes, which are rare, in no order.
pub(crate) fn other_escapes(names: &Namespace, dir: Ino) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut push = |name: Name, dentry: Dentry| {
        let sort_key = sort_key(&name, dentry.kind);
        entries.extend(sort_key.map(|sort_key| Entry { name, dentry, sort_key }));
    };
    for beginning in OTHER_ESCAPES {
        // The name that is nothing but the beginning is the empty component's.
        let shortest = Name::new(beginning)?;
        if let Some(dentry) = names.entry(dir, &shortest)? {
            push(shortest, dentry);
        }
        each(names, dir, beginning, usize::MAX, |name, dentry| {
            if !name.as_bytes().starts_with(beginning) {
                return Step::Stop;
            }
            push(name, dentry);
            Step::Next
        })?;
    }
    Ok(entries)
}

/// What comes after an entry that was visited.
enum Step {
    /// The next entry.
    Next,
    /// The first entry whose name is greater than this; the one visited does not count.
    SkipTo(Vec<u8>),
    /// Nothing.
    Stop,
}

/// Visits the entries of a directory after a name, in the order of names. After `limit` of them returns the next name.
fn each(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    limit: usize,
    mut visit: impl FnMut(Name, Dentry) -> Step,
) -> Result<Option<Vec<u8>>> {
    // No name has a NUL or a slash: a name after the whole text is also after the part before the first of these bytes.
    let end = after.iter().position(|byte| matches!(byte, 0 | b'/')).unwrap_or(after.len());
    let name = |bytes: &[u8]| Name::new(&bytes[..bytes.len().min(NAME_BYTES_MAX)]).ok();
    let mut from = name(&after[..end]);
    let mut visited = 0;
    'batches: loop {
        let batch = names.entries(dir, from.as_ref(), BATCH)?;
        let is_last = batch.len() < BATCH;
        for (found, dentry) in batch {
            if visited == limit {
                return Ok(Some(found.as_bytes().to_vec()));
            }
            from = Some(found.clone());
            match visit(found, dentry) {
                Step::Next => visited += 1,
                Step::SkipTo(next) => {
                    from = name(&next);
                    continue 'batches;
                }
                Step::Stop => return Ok(None),
            }
        }
        if is_last {
            return Ok(None);
        }
    }
}

fn push(entries: &mut Vec<Entry>, name: Name, dentry: Dentry) {
    if !is_escape(&name)
        && let Some(sort_key) = sort_key(&name, dentry.kind)
    {
        entries.push(Entry { name, dentry, sort_key });
    }
}

fn is_escape(name: &Name) -> bool {
    name.as_bytes().starts_with(BESIDE) || is_other_escape(name)
}

fn is_other_escape(name: &Name) -> bool {
    OTHER_ESCAPES.iter().any(|beginning| name.as_bytes().starts_with(beginning))
}
