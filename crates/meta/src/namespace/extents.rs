//! Changes of a file's content: of the extents in the inode record, or of extents with rows of their own.
//!
//! A change reads and writes only the rows of the extents that it affects, so an edit costs the same in a file of any length.
//! Rows of another family (`R`) count how many extents are in each object; they exist for every inode whose extents have rows.
//! From these use counts a change knows which objects the file no longer refers to.
//!
//! The op must depend on the inode (see `records::load`), because rows change only together with the inode.

use crate::codec::{INLINE_EXTENTS_MAX, decode_extent_row, decode_number, encode_extent, encode_number};
use crate::content::{Content, Summary, count_at_path, data_bytes};
use crate::extent::splice_extents;
use crate::record::KeyRange;
use crate::{Extent, FsError, Ino, Inode, Txn, schema};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use store::ObjectKey;

/// Rows read at a time while searching for the first extent at the path key.
const PAGE_ROWS: usize = 64;

/// Objects under keys of their own that no longer hold any extent of the file.
pub(super) type Released = Vec<ObjectKey>;

/// Reads all extents of an inode.
pub(super) fn read_all(txn: &mut impl Txn, inode: &Inode) -> Result<Vec<Extent>, FsError> {
    match &inode.content {
        Content::Inline(extents) => Ok(extents.clone()),
        Content::Rows(_) => read_rows(txn, &schema::extents(inode.ino), usize::MAX),
    }
}

/// Replaces the whole content of an inode by `new` and sets its size.
pub(super) fn replace(
    txn: &mut impl Txn,
    inode: &mut Inode,
    new: &[Extent],
    size_bytes: u64,
) -> Result<Released, FsError> {
    let old = read_all(txn, inode)?;
    let released = released_objects(&old, new);
    let content = Content::of(new, size_bytes);
    let (old_rows, new_rows) = (extents_in_rows(&inode.content, &old), extents_in_rows(&content, new));
    write_rows(txn, inode.ino, old_rows, new_rows);
    let had_counts = matches!(&inode.content, Content::Rows(summary) if summary.has_counted_uses);
    let counted = if had_counts { old_rows } else { &[] };
    replace_use_counts(txn, inode.ino, &count_by_object(counted), &count_by_object(new_rows));
    (inode.content, inode.size_bytes) = (content, size_bytes);
    Ok(released)
}

/// Replaces the content of `ranges` of an inode by `new`, and sets the inode's size. Content beyond the new size is removed.
pub(super) fn splice(
    txn: &mut impl Txn,
    inode: &mut Inode,
    ranges: &[Range<u64>],
    new: &[Extent],
    size_bytes: u64,
) -> Result<Released, FsError> {
    let mut affected = ranges.to_vec();
    if size_bytes < inode.size_bytes {
        affected.push(size_bytes..u64::MAX);
    }
    match inode.content.clone() {
        Content::Rows(summary) if summary.has_counted_uses => {
            let Overlap { extents: old, has_earlier } = read_overlapping(txn, inode.ino, &affected)?;
            let replacement = splice_extents(&old, ranges, new, size_bytes);
            let change = Change { old, replacement, has_earlier, ranges, new, size_bytes };
            change_rows(txn, inode, summary, change)
        }
        _ => {
            let old = read_all(txn, inode)?;
            replace(txn, inode, &splice_extents(&old, ranges, new, size_bytes), size_bytes)
        }
    }
}

/// Sets the size of an inode and cuts off the content beyond it. The first extent stays, even with length 0, because it records
/// which object the next content replaces.
pub(super) fn resize(txn: &mut impl Txn, inode: &mut Inode, size_bytes: u64) -> Result<Released, FsError> {
    if let Content::Rows(summary) = inode.content.clone()
        && summary.has_counted_uses
    {
        let beyond = size_bytes..u64::MAX;
        let ranges = std::slice::from_ref(&beyond);
        let Overlap { extents: old, has_earlier } = read_overlapping(txn, inode.ino, ranges)?;
        let replacement = splice_extents(&old, ranges, &[], size_bytes);
        if !replacement.is_empty() || (old.len() as u64) < summary.extents {
            let change = Change { old, replacement, has_earlier, ranges, new: &[], size_bytes };
            return change_rows(txn, inode, summary, change);
        }
    }
    let mut extents = read_all(txn, inode)?;
    truncate(&mut extents, size_bytes);
    replace(txn, inode, &extents, size_bytes)
}

/// Removes the extent rows and use counts of an inode that is being removed. Returns the objects that held its extents.
pub(super) fn erase(txn: &mut impl Txn, inode: &Inode) -> Result<Released, FsError> {
    let released = match &inode.content {
        Content::Rows(summary) if summary.has_counted_uses => {
            let uses = txn.scan(&schema::objects_used(inode.ino), usize::MAX)?;
            uses.iter().map(|(key, _)| schema::object_of(key)).collect::<Result<_, _>>()?
        }
        _ => released_objects(&read_all(txn, inode)?, &[]),
    };
    if let Content::Rows(_) = &inode.content {
        for range in [schema::extents(inode.ino), schema::objects_used(inode.ino)] {
            txn.scan(&range, usize::MAX)?.into_iter().for_each(|(key, _)| txn.delete(key));
        }
    }
    Ok(released)
}

/// A change of extents that have rows.
struct Change<'a> {
    /// The extents that overlap the changed ranges, before the change.
    old: Vec<Extent>,
    /// The extents in place of `old` after the change.
    replacement: Vec<Extent>,
    /// Whether an extent begins before the changed ranges.
    has_earlier: bool,
    /// The replaced ranges of the file, as the op gives them.
    ranges: &'a [Range<u64>],
    /// The extents that the op puts into the ranges.
    new: &'a [Extent],
    /// The size of the file after the change.
    size_bytes: u64,
}

impl Change<'_> {
    /// Returns whether the object that the summary names is certainly the same after the change, so that no row has to be read for it: the
    /// object at the path key if any extent is in it, otherwise the object of the first extent.
    fn keeps_object(&self, before: &Summary, at_path: u64) -> bool {
        match before.at_path {
            0 => at_path == 0 && self.has_earlier,
            _ => at_path > 0 && count_at_path(self.new) == 0 && self.keeps_first_at_path(),
        }
    }

    /// Returns whether the change affects no extent at the path key, or leaves a part of the first one that it affects. Extents at the path
    /// key may be of different versions of the object, so that a later one does not say which object the first was in.
    fn keeps_first_at_path(&self) -> bool {
        let is_at_path = |extent: &&Extent| extent.object.key.is_none();
        let first = self.old.iter().find(is_at_path);
        let next = self.replacement.iter().find(is_at_path);
        first.is_none_or(|first| next.is_some_and(|next| next.offset < first.end()))
    }
}

/// Applies a change to extents that have rows. If at most [`INLINE_EXTENTS_MAX`] extents are left, they move into the inode.
fn change_rows(
    txn: &mut impl Txn,
    inode: &mut Inode,
    before: Summary,
    change: Change<'_>,
) -> Result<Released, FsError> {
    let Change { old, replacement, ranges, new, size_bytes, .. } = &change;
    let (ino, size_bytes) = (inode.ino, *size_bytes);
    let updated = |count: u64, removed: u64, added: u64| {
        let rest = count.checked_sub(removed).and_then(|rest| rest.checked_add(added));
        rest.ok_or_else(|| {
            FsError::Corrupt(format!(
                "the summary of inode {ino} does not match its extents; run `tenon fsck`"
            ))
        })
    };
    let extents = updated(before.extents, old.len() as u64, replacement.len() as u64)?;
    if extents == replacement.len() as u64 {
        return replace(txn, inode, replacement, size_bytes);
    }
    if extents <= INLINE_EXTENTS_MAX as u64 {
        let changed: BTreeSet<u64> = old.iter().map(|extent| extent.offset).collect();
        let mut after = read_all(txn, inode)?;
        after.retain(|extent| !changed.contains(&extent.offset));
        after.extend_from_slice(replacement);
        after.sort_by_key(|extent| extent.offset);
        return replace(txn, inode, &after, size_bytes);
    }
    write_rows(txn, ino, old, replacement);
    let released = update_use_counts(txn, ino, &count_by_object(old), &count_by_object(replacement))?;
    let at_path = updated(before.at_path, count_at_path(old), count_at_path(replacement))?;
    let keeps_object = change.keeps_object(&before, at_path);
    let mut after = Summary {
        extents,
        data_bytes: updated(before.data_bytes, data_bytes(old), data_bytes(replacement))?,
        at_path,
        fingerprint: before.fingerprint.after_change(ranges, new, size_bytes),
        ..before
    };
    if !keeps_object && let Some(first) = first_object(txn, ino, at_path > 0)? {
        after.object = first;
    }
    (inode.content, inode.size_bytes) = (Content::Rows(after), size_bytes);
    Ok(released)
}

/// The extents around a change.
struct Overlap {
    /// The extents that overlap one of the ranges.
    extents: Vec<Extent>,
    /// Whether an extent begins before the ranges.
    has_earlier: bool,
}

/// Reads the extents that overlap one of the ranges.
fn read_overlapping(txn: &mut impl Txn, ino: Ino, ranges: &[Range<u64>]) -> Result<Overlap, FsError> {
    let mut found: BTreeMap<u64, Extent> = BTreeMap::new();
    let mut has_earlier = false;
    let begin = ranges.iter().filter(|range| !range.is_empty()).map(|range| range.start).min();
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let (before, within) = schema::extents_around(ino, range);
        if let Some((key, value)) = txn.last(&before)? {
            let extent = decode_extent_row(&key, &value)?;
            has_earlier |= begin == Some(range.start);
            if extent.end() > range.start {
                found.insert(extent.offset, extent);
            }
        }
        found.extend(read_rows(txn, &within, usize::MAX)?.into_iter().map(|extent| (extent.offset, extent)));
    }
    Ok(Overlap { extents: found.into_values().collect(), has_earlier })
}

/// Returns the object of the first extent; with `is_at_path`, that of the first extent in the object at the path key.
/// `None` if there is no such extent.
fn first_object(txn: &mut impl Txn, ino: Ino, is_at_path: bool) -> Result<Option<crate::Stored>, FsError> {
    let mut range = schema::extents(ino);
    loop {
        let rows = txn.scan(&range, if is_at_path { PAGE_ROWS } else { 1 })?;
        let Some((last, _)) = rows.last() else { return Ok(None) };
        let next = [last.as_slice(), &[0]].concat();
        for (key, value) in rows {
            let object = decode_extent_row(&key, &value)?.object;
            if object.key.is_none() || !is_at_path {
                return Ok(Some(object));
            }
        }
        range.from = next;
    }
}

/// Cuts extents off at the file's new size. The first extent stays, perhaps with length 0.
fn truncate(extents: &mut Vec<Extent>, size_bytes: u64) {
    for extent in &mut *extents {
        extent.offset = extent.offset.min(size_bytes);
        extent.len = extent.len.min(size_bytes - extent.offset);
    }
    let mut index = 0;
    extents.retain(|extent| {
        index += 1;
        index == 1 || extent.len > 0
    });
}

fn read_rows(txn: &mut impl Txn, range: &KeyRange, limit: usize) -> Result<Vec<Extent>, FsError> {
    let rows = txn.scan(range, limit)?;
    Ok(rows.iter().map(|(key, value)| decode_extent_row(key, value)).collect::<Result<_, _>>()?)
}

/// Returns the given extents if the content keeps them in rows, and none otherwise.
fn extents_in_rows<'a>(content: &Content, extents: &'a [Extent]) -> &'a [Extent] {
    if matches!(content, Content::Rows(_)) { extents } else { &[] }
}

/// Writes the rows of extents that differ, and deletes rows of extents that no longer exist.
fn write_rows(txn: &mut impl Txn, ino: Ino, old: &[Extent], new: &[Extent]) {
    let at = |rows: &[Extent], offset: u64| rows.binary_search_by_key(&offset, |extent| extent.offset).ok();
    for extent in old {
        if at(new, extent.offset).is_none() {
            txn.delete(schema::extent(ino, extent.offset));
        }
    }
    for extent in new {
        if at(old, extent.offset).is_none_or(|index| old[index] != *extent) {
            txn.put(schema::extent(ino, extent.offset), encode_extent(extent));
        }
    }
}

/// Returns how many of the given extents are in each object that has a key of its own.
fn count_by_object(extents: &[Extent]) -> BTreeMap<&ObjectKey, u64> {
    let mut counts = BTreeMap::new();
    for key in extents.iter().filter_map(|extent| extent.object.key.as_ref()) {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// Returns the objects that hold old extents and no new ones.
fn released_objects(old: &[Extent], new: &[Extent]) -> Released {
    let (old, new) = (count_by_object(old), count_by_object(new));
    old.into_keys().filter(|key| !new.contains_key(*key)).cloned().collect()
}

/// Replaces all use counts of an inode, which are `old`, by `new`.
fn replace_use_counts(
    txn: &mut impl Txn,
    ino: Ino,
    old: &BTreeMap<&ObjectKey, u64>,
    new: &BTreeMap<&ObjectKey, u64>,
) {
    for key in old.keys().filter(|key| !new.contains_key(**key)) {
        txn.delete(schema::object_uses(ino, key));
    }
    for (key, count) in new.iter().filter(|(key, count)| old.get(**key) != Some(*count)) {
        txn.put(schema::object_uses(ino, key), encode_number(*count));
    }
}

/// Updates the use counts of an inode for a change of its extents. `removed` and `added` count the extents that the
/// change takes away and adds, by object. Returns the objects whose use count becomes 0.
fn update_use_counts(
    txn: &mut impl Txn,
    ino: Ino,
    removed: &BTreeMap<&ObjectKey, u64>,
    added: &BTreeMap<&ObjectKey, u64>,
) -> Result<Released, FsError> {
    let mut released = Released::new();
    for key in removed.keys().chain(added.keys().filter(|key| !removed.contains_key(**key))) {
        let count = |counts: &BTreeMap<&ObjectKey, u64>| counts.get(*key).copied().unwrap_or_default();
        let (removed_count, added_count) = (count(removed), count(added));
        if added_count == removed_count {
            continue;
        }
        let row = schema::object_uses(ino, key);
        let uses = match txn.peek(&row)? {
            Some(value) => decode_number(&value)?,
            None => 0,
        };
        let uses = (uses + added_count).checked_sub(removed_count).ok_or_else(|| {
            FsError::Corrupt(format!(
                "inode {ino} has more extents in the object {key} than it counts; run `tenon fsck`"
            ))
        })?;
        if uses > 0 {
            txn.put(row, encode_number(uses));
        } else {
            txn.delete(row);
            released.push((*key).clone());
        }
    }
    Ok(released)
}
