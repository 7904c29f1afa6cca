//! The known entries of a directory in the order of its listing.
//!
//! The namespace keeps names in byte order; a listing sorts a directory `a` as `a/`, after `a-b`, and an escaped
//! name as its key. Here one is turned into the other, a bounded number of entries at a time.

use meta::{Dentry, Ino, Kind, Name, Namespace};
use store::names::{KeyPrefix, NAME_BYTES_MAX};

use crate::Result;
use crate::layout::object_key;

/// All escapes of `store::names` sort after this...
const ESCAPES_BEFORE: &[u8] = b"%";
/// ... and before this.
const ESCAPES_TO: &[u8] = b"%>";
/// Entries asked of the namespace at once.
const BATCH: usize = 256;

/// A known entry and where its listing shows it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) dentry: Dentry,
    pub(crate) text: Vec<u8>,
}

/// What a name's key or prefix is, relative to its directory; `None` for a name that has none.
pub(crate) fn text(name: &Name, kind: Kind) -> Option<Vec<u8>> {
    let inside = KeyPrefix::root(b"");
    if kind == Kind::Directory {
        inside.child_dir(name.as_bytes()).ok().map(|inside| inside.as_bytes().to_vec())
    } else {
        object_key(&inside, name.as_bytes()).ok().map(|key| key.as_bytes().to_vec())
    }
}

/// The entries of a directory that no listing shows, in the order of their names; at most `limit`.
pub(crate) fn named(names: &Namespace, dir: Ino, after: &[u8], limit: usize) -> Result<Vec<Entry>> {
    let after = if after.is_empty() { None } else { Some(Name::new(after)?) };
    let entries = names.entries(dir, after.as_ref(), limit)?.into_iter();
    Ok(entries.map(|(name, dentry)| Entry { text: name.as_bytes().to_vec(), name, dentry }).collect())
}

/// Known entries with `after < text <= end` (`None`: to the directory's end), ascending by text; at most about
/// `limit`, but never none while there are more.
pub(crate) fn known(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Entry>> {
    let mut limit = limit.max(1);
    loop {
        let (mut entries, bound) = plain(names, dir, after, end, limit)?;
        entries.extend(escaped(names, dir)?);
        let ends_before = |text: &[u8]| bound.as_deref().is_none_or(|bound| text < bound);
        entries.retain(|entry| {
            let text = entry.text.as_slice();
            text > after && end.is_none_or(|end| text <= end) && ends_before(text)
        });
        if !entries.is_empty() || bound.is_none() {
            entries.sort_by(|a, b| a.text.cmp(&b.text));
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
    let plain = after.strip_suffix(b"/").unwrap_or(after);
    let mut from = Name::new(&plain[..plain.len().min(NAME_BYTES_MAX)]).ok();
    let mut taken = 0;
    loop {
        let batch = names.entries(dir, from.as_ref(), BATCH)?;
        let is_last = batch.len() < BATCH;
        for (name, dentry) in batch {
            if end.is_some_and(|end| name.as_bytes() > end) {
                return Ok((entries, None));
            }
            if taken == limit {
                return Ok((entries, Some(name.as_bytes().to_vec())));
            }
            taken += 1;
            push(&mut entries, name.clone(), dentry);
            from = Some(name);
        }
        if is_last {
            return Ok((entries, None));
        }
    }
}

/// The entries with names of the escape.
pub(crate) fn escaped(names: &Namespace, dir: Ino) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut from = Some(Name::new(ESCAPES_BEFORE)?);
    loop {
        let batch = names.entries(dir, from.as_ref(), BATCH)?;
        let count = batch.len();
        for (name, dentry) in batch {
            if name.as_bytes() >= ESCAPES_TO {
                return Ok(entries);
            }
            if is_escape(&name) {
                let text = text(&name, dentry.kind);
                entries.extend(text.map(|text| Entry { name: name.clone(), dentry, text }));
            }
            from = Some(name);
        }
        if count < BATCH {
            return Ok(entries);
        }
    }
}

fn push(entries: &mut Vec<Entry>, name: Name, dentry: Dentry) {
    if !is_escape(&name)
        && let Some(text) = text(&name, dentry.kind)
    {
        entries.push(Entry { name, dentry, text });
    }
}

fn is_escape(name: &Name) -> bool {
    let bytes = name.as_bytes();
    bytes.starts_with(b"%!") || bytes.starts_with(b"%=") || bytes.starts_with(b"%+")
}
