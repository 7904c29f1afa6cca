//! Known entries of a directory in the order of a bucket listing.
//!
//! The namespace keeps entries in the byte order of their names. A listing sorts a directory `a` as `a/`, which is after `a-b`,
//! and an escaped name by its object key. This module converts between the two orders, a bounded number of entries at a time.

use meta::{Dentry, Ino, Kind, Name, Namespace};
use store::names::{KeyPrefix, NAME_BYTES_MAX};

use crate::Result;
use crate::layout::object_key;

/// The prefix of the name of an object that shares its plain name with a directory. Sort keys of such objects are in the order
/// of their names.
const SHADOWED: &[u8] = b"%=";
/// The prefixes of the other escapes. Their sort keys are not in the order of their names.
const OTHER_ESCAPES: [&[u8]; 4] = [b"%!", b"%+", b"%=%!", b"%=%+"];
/// Entries to read from the namespace at once.
const BATCH: usize = 256;

/// A known entry and its sort key.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) dentry: Dentry,
    pub(crate) sort_key: Vec<u8>,
}

/// Returns the sort key of a name: its object key or prefix, relative to the directory. `None` for a name that has no key.
pub(crate) fn sort_key(name: &Name, kind: Kind) -> Option<Vec<u8>> {
    let inside = KeyPrefix::root(b"");
    if kind == Kind::Directory {
        inside.child_dir(name.as_bytes()).ok().map(|inside| inside.as_bytes().to_vec())
    } else {
        object_key(&inside, name.as_bytes()).ok().map(|key| key.as_bytes().to_vec())
    }
}

/// Returns up to `limit` entries of a directory in the order of their names, for directories that no bucket listing shows.
pub(crate) fn entries_by_name(names: &Namespace, dir: Ino, after: &[u8], limit: usize) -> Result<Vec<Entry>> {
    let after = if after.is_empty() { None } else { Some(Name::new(after)?) };
    let entries = names.entries(dir, after.as_ref(), limit)?.into_iter();
    Ok(entries.map(|(name, dentry)| Entry { sort_key: name.as_bytes().to_vec(), name, dentry }).collect())
}

/// Returns the known entries with `after < sort_key <= end`, ascending by sort key. With `end` of `None` the range extends to
/// the end of the directory. Returns about `limit` entries at most, but at least one if the range has any.
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
        let (objects, object_bound) = shadowed_objects(names, dir, after, end, limit)?;
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

/// Returns entries with plain names that may sort after `after`. If the scan stopped at `limit`, also returns the name before
/// which it is complete.
fn plain(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
    let mut entries = Vec::new();
    for cut in 1..=after.len() {
        // A directory whose name is a prefix of `after` may still sort after it.
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
            // Skip all names with this prefix: they are escapes.
            return Step::SkipTo([&name.as_bytes()[..SHADOWED.len()], &[u8::MAX; NAME_BYTES_MAX]].concat());
        }
        push(&mut entries, name, dentry);
        Step::Next
    })?;
    Ok((entries, bound))
}

/// Returns objects that share their plain name with a directory and sort after `after`. If the scan stopped at `limit`, also
/// returns the sort key before which it is complete.
fn shadowed_objects(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
    let mut entries = Vec::new();
    let from = [SHADOWED, after].concat();
    let bound = each(names, dir, &from, limit, |name, dentry| {
        let plain = name.as_bytes().strip_prefix(SHADOWED);
        let Some(plain) = plain.filter(|plain| end.is_none_or(|end| *plain <= end)) else {
            return Step::Stop;
        };
        if !is_other_escape(&name) {
            let sort_key = plain.to_vec();
            entries.push(Entry { name, dentry, sort_key });
        }
        Step::Next
    })?;
    Ok((entries, bound.and_then(|name| name.strip_prefix(SHADOWED).map(<[u8]>::to_vec))))
}

/// Returns the entries with any of the other escapes, unordered. Such names are rare.
pub(crate) fn other_escapes(names: &Namespace, dir: Ino) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut push = |name: Name, dentry: Dentry| {
        let sort_key = sort_key(&name, dentry.kind);
        entries.extend(sort_key.map(|sort_key| Entry { name, dentry, sort_key }));
    };
    for beginning in OTHER_ESCAPES {
        // The bare prefix is the name of an empty path component.
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

/// The continuation of a scan after a visited entry.
enum Step {
    /// The next entry.
    Next,
    /// Jump to the first entry whose name is greater than this one. The visited entry does not count towards the limit.
    SkipTo(Vec<u8>),
    /// Stop the scan.
    Stop,
}

/// Visits the entries of a directory after a name, in the order of names. Returns the next name if it stops after `limit`
/// entries.
fn each(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    limit: usize,
    mut visit: impl FnMut(Name, Dentry) -> Step,
) -> Result<Option<Vec<u8>>> {
    // Names contain neither NUL nor slash. So the names after `after` are those after its part before the first such byte.
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
    name.as_bytes().starts_with(SHADOWED) || is_other_escape(name)
}

fn is_other_escape(name: &Name) -> bool {
    OTHER_ESCAPES.iter().any(|beginning| name.as_bytes().starts_with(beginning))
}
