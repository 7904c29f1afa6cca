//! Known entries of a directory in the order of a bucket listing.
//!
//! The namespace keeps entries in the byte order of their names. A listing sorts a directory `a` as `a/`, which is after `a-b`,
//! and an escaped name by its object key. This module converts between the two orders, a bounded number of entries at a time.

use meta::{Dentry, Ino, Kind, Name, Namespace};
use store::names::{self, KeyPrefix, NAME_BYTES_MAX};

use crate::Result;
use crate::layout::object_key;

/// The prefix of the name of an object that shares its plain name with a directory. Sort keys of such objects are in the order
/// of their names.
const SHADOWED: &[u8] = b"%=";
/// The prefix of a directory in which an overlong name continues.
const CONTINUED: &[u8] = b"%+";
/// The prefixes of names that are components in percent form. Their sort keys are nearly in the order of their names, see
/// [`lowest_from`].
const ESCAPES: [&[u8]; 3] = [CONTINUED, b"%!", b"%=%!"];
/// Greatest byte that sorts before `%`, with which NUL begins in percent form.
const BELOW_PERCENT: u8 = b'%' - 1;
/// Entries to read from the namespace at once.
const BATCH: usize = 256;

/// A known entry and its sort key.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) dentry: Dentry,
    pub(crate) sort_key: Vec<u8>,
}

impl Entry {
    /// Returns the entry of a name; `None` for a name that has no key.
    fn new(name: Name, dentry: Dentry) -> Option<Self> {
        sort_key(&name, dentry.kind).map(|sort_key| Self { name, dentry, sort_key })
    }

    /// Returns whether the name is a component in percent form.
    fn is_escaped(&self) -> bool {
        let name = self.name.as_bytes();
        let plain = names::plain(name).unwrap_or(name);
        let component = match self.dentry.kind {
            Kind::Directory => self.sort_key.strip_suffix(b"/").unwrap_or(&self.sort_key),
            _ => &self.sort_key,
        };
        component != plain
    }
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
    loop {
        let (mut entries, plain_bound) = plain_entries(names, dir, after, end, limit)?;
        let (objects, object_bound) = shadowed_objects(names, dir, after, end, limit)?;
        entries.extend(objects);
        let mut bound = plain_bound.into_iter().chain(object_bound).min();
        for beginning in ESCAPES {
            let (escaped, escape_bound) = escaped_entries(names, (dir, beginning), after, end, limit)?;
            entries.extend(escaped);
            bound = bound.into_iter().chain(escape_bound).min();
        }
        let ends_before = |sort_key: &[u8]| bound.as_deref().is_none_or(|bound| sort_key < bound);
        entries.retain(|entry| {
            let sort_key = entry.sort_key.as_slice();
            sort_key > after && end.is_none_or(|end| sort_key <= end) && ends_before(sort_key)
        });
        if !entries.is_empty() || bound.is_none() {
            entries.sort_by(|a, b| (&a.sort_key, &a.name).cmp(&(&b.sort_key, &b.name)));
            entries.dedup_by(|a, b| a.name == b.name);
            return Ok(entries);
        }
        limit *= 4;
    }
}

/// Returns entries with plain names that may sort after `after`. If the scan stopped at `limit`, also returns the name before
/// which it is complete.
fn plain_entries(
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
            let is_plain =
                |entry: &Entry| names::plain(entry.name.as_bytes()).is_none() && !entry.is_escaped();
            entries.extend(Entry::new(name, dentry).filter(is_plain));
        }
    }
    let bound = visit_entries(names, dir, after, limit, |name, dentry| {
        if end.is_some_and(|end| name.as_bytes() > end) {
            return Step::Stop;
        }
        if let Some(beginning) = [SHADOWED, CONTINUED].into_iter().find(|it| name.as_bytes().starts_with(it))
        {
            // Skip all names with this prefix: none is a plain name.
            return Step::SkipTo([beginning, &[u8::MAX; NAME_BYTES_MAX]].concat());
        }
        match Entry::new(name, dentry).filter(|entry| !entry.is_escaped()) {
            Some(entry) => {
                entries.push(entry);
                Step::Next
            }
            None => Step::Ignore,
        }
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
    let bound = visit_entries(names, dir, &from, limit, |name, dentry| {
        let plain = name.as_bytes().strip_prefix(SHADOWED);
        let Some(plain) = plain.filter(|plain| end.is_none_or(|end| *plain <= end)) else {
            return Step::Stop;
        };
        let plain = plain.to_vec();
        entries.extend(Entry::new(name, dentry).filter(|entry| entry.sort_key == plain));
        Step::Next
    })?;
    Ok((entries, bound.and_then(|name| name.strip_prefix(SHADOWED).map(<[u8]>::to_vec))))
}

/// Returns entries whose names are components in percent form after `beginning`, and that may sort after `after`. If the scan stopped at
/// `limit`, also returns the sort key before which it is complete.
fn escaped_entries(
    names: &Namespace,
    (dir, beginning): (Ino, &[u8]),
    after: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
    let mut entries = Vec::new();
    // A directory whose component is a prefix of `after` may still sort after it.
    for component in (0..=after.len()).map(|cut| &after[..cut]).filter(|component| may_be_escaped(component))
    {
        entries.extend(find_escape(names, (dir, beginning), component)?.filter(Entry::is_escaped));
    }
    let from = after.split(|byte| matches!(byte, 0 | b'/')).next().unwrap_or_default();
    let mut from = first_name(&[beginning, &names::percent_encode(from)].concat());
    let mut visited = 0;
    loop {
        let batch = names.entries(dir, from.as_ref(), BATCH)?;
        let is_last = batch.len() < BATCH;
        from = batch.last().map(|(name, _)| name.clone());
        for (name, dentry) in batch {
            let Some(text) = name.as_bytes().strip_prefix(beginning) else { return Ok((entries, None)) };
            let is_beyond = |sort_key: &[u8]| end.is_some_and(|end| sort_key > end);
            if visited >= limit || is_beyond(&names::percent_decode_beginning(text)) {
                let bound = lowest_from(names, (dir, beginning), text)?;
                match is_beyond(&bound) {
                    true => return Ok((entries, None)),
                    false if visited >= limit => return Ok((entries, Some(bound))),
                    false => {}
                }
            }
            visited += 1;
            entries.extend(Entry::new(name, dentry).filter(Entry::is_escaped));
        }
        if is_last {
            return Ok((entries, None));
        }
    }
}

/// Returns a lower bound of the sort keys of the names in `dir` that begin with the escape `beginning` and are not before `beginning` followed
/// by `text`. It need not be the sort key of the first of these names: the component `a\0` sorts before `a!`, but its name has `a%00`, which
/// is after `a!`.
fn lowest_from(names: &Namespace, (dir, beginning): (Ino, &[u8]), text: &[u8]) -> Result<Vec<u8>> {
    let component = names::percent_decode_beginning(text);
    for at in (0..component.len()).filter(|at| (1..=BELOW_PERCENT).contains(&component[*at])) {
        let with_nul = [&component[..at], b"\0"].concat();
        let Ok(name) = Name::new(&[beginning, &names::percent_encode(&with_nul)].concat()) else { break };
        let next = names.entries(dir, Some(&name), 1)?;
        let is_there = next.iter().any(|(next, _)| next.as_bytes().starts_with(name.as_bytes()));
        if is_there || names.entry(dir, &name)?.is_some() {
            return Ok(with_nul);
        }
    }
    Ok(component)
}

/// Returns the directories in which overlong names continue that begin before `after` and may have keys after it.
pub(crate) fn continued_around(names: &Namespace, dir: Ino, after: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for head in (1..=after.len()).map(|cut| &after[..cut]) {
        entries.extend(find_escape(names, (dir, CONTINUED), head)?);
    }
    Ok(entries)
}

/// Returns the entry whose name is a component in percent form, if there is one and its name leads to a key.
fn find_escape(names: &Namespace, (dir, beginning): (Ino, &[u8]), component: &[u8]) -> Result<Option<Entry>> {
    let Ok(name) = Name::new(&[beginning, &names::percent_encode(component)].concat()) else {
        return Ok(None);
    };
    if sort_key(&name, Kind::Directory).is_none() {
        return Ok(None);
    }
    Ok(names.entry(dir, &name)?.and_then(|dentry| Entry::new(name, dentry)))
}

/// Returns whether names may have a component in percent form.
fn may_be_escaped(component: &[u8]) -> bool {
    matches!(component, b"" | b"." | b"..") || component[0] == b'%' || component.contains(&0)
}

/// The continuation of a scan after a visited entry.
enum Step {
    /// The next entry.
    Next,
    /// The next entry. The visited one does not count towards the limit.
    Ignore,
    /// Jump to the first entry whose name is greater than this one. The visited entry does not count towards the limit.
    SkipTo(Vec<u8>),
    /// Stop the scan.
    Stop,
}

/// Visits the entries of a directory after a name, in the order of names. Returns the next name if it stops after `limit`
/// entries.
fn visit_entries(
    names: &Namespace,
    dir: Ino,
    after: &[u8],
    limit: usize,
    mut visit: impl FnMut(Name, Dentry) -> Step,
) -> Result<Option<Vec<u8>>> {
    // Names contain neither NUL nor slash. So the names after `after` are those after its part before the first such byte.
    let end = after.iter().position(|byte| matches!(byte, 0 | b'/')).unwrap_or(after.len());
    let mut from = first_name(&after[..end]);
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
                Step::Ignore => {}
                Step::SkipTo(next) => {
                    from = first_name(&next);
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

/// Returns the name of these bytes, as far as they fit into one: all longer names that begin with them sort after it.
/// `None`, the beginning of a directory, if they are no name.
fn first_name(bytes: &[u8]) -> Option<Name> {
    Name::new(&bytes[..bytes.len().min(NAME_BYTES_MAX)]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::{MemoryEngine, Moment, Op, OpContext, Origin};
    use proptest::prelude::*;
    use std::sync::Arc;
    use store::Timestamp;

    /// Creates a directory with these entries in its root. Names that are invalid or taken are left out.
    fn namespace(entries: &[(Vec<u8>, bool)]) -> Namespace {
        let context = OpContext {
            now: Timestamp(1),
            at: Moment::default(),
            uid: 0,
            gid: 0,
            origin: Origin::Bookkeeping,
        };
        let names = Namespace::new(Arc::new(MemoryEngine::default()), &context).unwrap();
        for (name, is_dir) in entries {
            let Ok(name) = Name::new(name) else { continue };
            let [ino] = names.allocate(Ino::ROOT, 1)[..] else { panic!("one number") };
            let kind = if *is_dir { Kind::Directory } else { Kind::File };
            let (parent, target) = (Ino::ROOT, None);
            let op =
                Op::Create { parent, name, ino, kind, mode: 0, umask: 0, uid: 0, gid: 0, rdev: 0, target };
            names.commit(&context, &op).ok();
        }
        names
    }

    /// Returns all entries that have a key, by sorting them.
    fn all(names: &Namespace) -> Vec<(Vec<u8>, Name)> {
        let entries = names.entries(Ino::ROOT, None, usize::MAX).unwrap().into_iter();
        let mut all: Vec<_> =
            entries.filter_map(|(name, dentry)| Some((sort_key(&name, dentry.kind)?, name))).collect();
        all.sort();
        all
    }

    /// Returns the entries of a range by pages.
    fn paged(names: &Namespace, end: Option<&[u8]>, limit: usize) -> Vec<(Vec<u8>, Name)> {
        let (mut after, mut found) = (Vec::new(), Vec::new());
        loop {
            let page = entries_between(names, Ino::ROOT, &after, end, limit).unwrap();
            let Some(last) = page.last() else { return found };
            after.clone_from(&last.sort_key);
            found.extend(page.into_iter().map(|entry| (entry.sort_key, entry.name)));
        }
    }

    /// Returns the name of a component, escaped if it has to be.
    fn name_of(component: &[u8], is_dir: bool) -> Vec<u8> {
        let text = if is_dir { [component, b"/"].concat() } else { component.to_vec() };
        match KeyPrefix::root(b"").entry(&text) {
            Some(names::Entry::Object(name) | names::Entry::Directory(name)) => name,
            _ => Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn pages_have_every_entry_in_the_order_of_keys(
            components in prop::collection::vec((prop::collection::vec(prop::sample::select(b"\0\x01 !%+=.02a5\xff".to_vec()), 1..5), any::<bool>(), any::<bool>(), any::<bool>()), 0..40),
            end in prop::option::of(prop::collection::vec(prop::sample::select(b"\0 !%a/".to_vec()), 1..4)),
            limit in 1_usize..6,
        ) {
            let name = |(text, is_dir, is_escaped, is_shadowed): &(Vec<u8>, bool, bool, bool)| {
                let name = if *is_escaped { name_of(text, *is_dir) } else { text.clone() };
                let name = if *is_shadowed && !is_dir { names::colliding(&name) } else { name };
                (name, *is_dir)
            };
            let names = namespace(&components.iter().map(name).collect::<Vec<_>>());
            let mut expected = all(&names);
            expected.retain(|(sort_key, _)| end.as_ref().is_none_or(|end| sort_key <= end));
            // Objects that programs gave the same key have one place among the pages.
            expected.dedup_by(|one, other| one.0 == other.0);
            let mut found = paged(&names, end.as_deref(), limit);
            found.dedup_by(|one, other| one.0 == other.0);
            prop_assert_eq!(found, expected);
        }
    }

    /// Regression: each page read all names that are components in percent form: 64,000 of them took O(n²) steps.
    #[test]
    fn overlong_names_are_read_once() {
        let head = |number: usize| (name_of(format!("{number:04} {:x>260}", "").as_bytes(), true), true);
        let names = namespace(&(0..1000).map(head).collect::<Vec<_>>());
        let (mut after, mut pages) = (Vec::new(), 0);
        loop {
            let (page, bound) = escaped_entries(&names, (Ino::ROOT, CONTINUED), &after, None, 10).unwrap();
            assert!(page.len() <= 10, "{} entries", page.len());
            let Some(last) = page.last() else { break };
            after.clone_from(&last.sort_key);
            pages += 1;
            assert_eq!(bound.is_some(), pages < 100);
        }
        assert_eq!((pages, paged(&names, None, 10).len()), (100, 1000));
        assert_eq!(continued_around(&names, Ino::ROOT, &after).unwrap().len(), 1);
    }
}
