//! How a file's content changes: in the inode while there are few extents, else in rows of their own.
//!
//! A change reads and writes the rows that it touches, so an edit costs the same in a file of any length. Which objects the file refers to no
//! more is known from the counts of their uses (`R`), which exist for every object of an inode whose extents have rows.
//!
//! The caller must depend on the inode ([`records::load`]): rows change only together with it.

use super::records::delete_range;
use crate::codec::{INLINE_EXTENTS_MAX, decode_extent, decode_number, encode_extent, encode_number};
use crate::content::{Content, Summary, at_path, data_bytes};
use crate::engine::{KeyRange, Value};
use crate::inode::spliced;
use crate::{Extent, FsError, Ino, Inode, Txn, schema};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use store::ObjectKey;

/// Rows read at a time where the first that fits is looked for.
const PAGE_ROWS: usize = 64;

/// Objects under keys of their own that nothing of a file is in any more.
pub(super) type Released = Vec<ObjectKey>;

/// Reads all extents of an inode.
pub(super) fn read_all(txn: &mut impl Txn, inode: &Inode) -> Result<Vec<Extent>, FsError> {
    match &inode.content {
        Content::Inline(extents) => Ok(extents.clone()),
        Content::Rows(_) => read_rows(txn, &schema::extents(inode.ino), usize::MAX),
    }
}

/// Makes `new` the content of an inode, which is then of `size_bytes`.
pub(super) fn replace(
    txn: &mut impl Txn,
    inode: &mut Inode,
    new: Vec<Extent>,
    size_bytes: u64,
) -> Result<Released, FsError> {
    let old = read_all(txn, inode)?;
    let released = unused(&old, &new);
    let content = Content::of(new.clone(), size_bytes);
    let (had_rows, has_rows) = (rows(&inode.content, &old), rows(&content, &new));
    write_rows(txn, inode.ino, had_rows, has_rows);
    let had_counts = matches!(&inode.content, Content::Rows(summary) if summary.has_counted_uses);
    let counted = if had_counts { had_rows } else { &[] };
    write_uses(txn, inode.ino, &counts(counted), &counts(has_rows));
    (inode.content, inode.size_bytes) = (content, size_bytes);
    Ok(released)
}

/// Makes `new` the content of `ranges` of an inode, which is then of `size_bytes`; what lies behind that goes.
pub(super) fn splice(
    txn: &mut impl Txn,
    inode: &mut Inode,
    ranges: &[Range<u64>],
    new: &[Extent],
    size_bytes: u64,
) -> Result<Released, FsError> {
    let mut cut = ranges.to_vec();
    if size_bytes < inode.size_bytes {
        cut.push(size_bytes..u64::MAX);
    }
    match inode.content.clone() {
        Content::Rows(summary) if summary.has_counted_uses => {
            let old = touched(txn, inode.ino, &cut)?;
            let here = spliced(&old, ranges, new, size_bytes);
            change_rows(txn, inode, summary, Change { old, here, ranges, new, size_bytes })
        }
        _ => {
            let old = read_all(txn, inode)?;
            replace(txn, inode, spliced(&old, ranges, new, size_bytes), size_bytes)
        }
    }
}

/// Cuts the content where the file now ends, or lets the file end later. The first extent stays, if only with length 0: it says
/// which object is there to be replaced.
pub(super) fn resize(txn: &mut impl Txn, inode: &mut Inode, size_bytes: u64) -> Result<Released, FsError> {
    if let Content::Rows(summary) = inode.content.clone()
        && summary.has_counted_uses
    {
        let beyond = size_bytes..u64::MAX;
        let ranges = std::slice::from_ref(&beyond);
        let old = touched(txn, inode.ino, ranges)?;
        let here = spliced(&old, ranges, &[], size_bytes);
        if !here.is_empty() || (old.len() as u64) < summary.extents {
            return change_rows(txn, inode, summary, Change { old, here, ranges, new: &[], size_bytes });
        }
    }
    let mut extents = read_all(txn, inode)?;
    cut(&mut extents, size_bytes);
    replace(txn, inode, extents, size_bytes)
}

/// Removes all rows of an inode that is being removed.
pub(super) fn erase(txn: &mut impl Txn, inode: &Inode) -> Result<Released, FsError> {
    let released = match &inode.content {
        Content::Rows(summary) if summary.has_counted_uses => {
            let uses = txn.scan(&schema::objects_used(inode.ino), usize::MAX)?;
            uses.iter().map(|(key, _)| schema::object_of(key)).collect::<Result<_, _>>()?
        }
        _ => unused(&read_all(txn, inode)?, &[]),
    };
    if let Content::Rows(_) = &inode.content {
        delete_range(txn, &schema::extents(inode.ino))?;
        delete_range(txn, &schema::objects_used(inode.ino))?;
    }
    Ok(released)
}

/// The part of a content that changes.
struct Change<'a> {
    /// The extents that the change touches, as they are.
    old: Vec<Extent>,
    /// The extents in their place.
    here: Vec<Extent>,
    /// The ranges and extents that the op names.
    ranges: &'a [Range<u64>],
    new: &'a [Extent],
    size_bytes: u64,
}

/// Changes extents that have rows.
fn change_rows(
    txn: &mut impl Txn,
    inode: &mut Inode,
    before: Summary,
    change: Change<'_>,
) -> Result<Released, FsError> {
    let Change { old, here, ranges, new, size_bytes } = change;
    let ino = inode.ino;
    let changed = |count: u64, gone: u64, come: u64| {
        let left = count.checked_sub(gone).and_then(|left| left.checked_add(come));
        left.ok_or_else(|| {
            FsError::Corrupt(format!("inode {ino} sums up other extents than it has; run `tenon fsck`"))
        })
    };
    let extents = changed(before.extents, old.len() as u64, here.len() as u64)?;
    if extents == here.len() as u64 {
        return replace(txn, inode, here, size_bytes);
    }
    if extents <= INLINE_EXTENTS_MAX as u64 {
        let touched: BTreeSet<u64> = old.iter().map(|extent| extent.offset).collect();
        let mut after = read_all(txn, inode)?;
        after.retain(|extent| !touched.contains(&extent.offset));
        after.extend(here);
        after.sort_by_key(|extent| extent.offset);
        return replace(txn, inode, after, size_bytes);
    }
    write_rows(txn, ino, &old, &here);
    let released = count_uses(txn, ino, &counts(&old), &counts(&here))?;
    let mut after = Summary {
        extents,
        data_bytes: changed(before.data_bytes, data_bytes(&old), data_bytes(&here))?,
        at_path: changed(before.at_path, at_path(&old), at_path(&here))?,
        fingerprint: before.fingerprint.then(ranges, new, size_bytes),
        ..before
    };
    if let Some(first) = first_object(txn, ino, after.at_path > 0)? {
        after.object = first;
    }
    (inode.content, inode.size_bytes) = (Content::Rows(after), size_bytes);
    Ok(released)
}

/// Reads the rows of the extents that have a byte in one of the ranges, which ascend.
fn touched(txn: &mut impl Txn, ino: Ino, ranges: &[Range<u64>]) -> Result<Vec<Extent>, FsError> {
    let mut found: BTreeMap<u64, Extent> = BTreeMap::new();
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let before = KeyRange { from: schema::extents(ino).from, to: schema::extent(ino, range.start) };
        if let Some((key, value)) = txn.last(&before)? {
            let extent = read_row(&key, &value)?;
            if extent.end() > range.start {
                found.insert(extent.offset, extent);
            }
        }
        let within = KeyRange { from: before.to, to: schema::extent(ino, range.end) };
        found.extend(read_rows(txn, &within, usize::MAX)?.into_iter().map(|extent| (extent.offset, extent)));
    }
    Ok(found.into_values().collect())
}

/// Returns the object of the first extent, or of the first that lies where naming says.
fn first_object(txn: &mut impl Txn, ino: Ino, is_at_path: bool) -> Result<Option<crate::Stored>, FsError> {
    let mut range = schema::extents(ino);
    loop {
        let rows = txn.scan(&range, if is_at_path { PAGE_ROWS } else { 1 })?;
        let Some((last, _)) = rows.last() else { return Ok(None) };
        let next = [last.as_slice(), &[0]].concat();
        for (key, value) in rows {
            let object = read_row(&key, &value)?.object;
            if object.key.is_none() || !is_at_path {
                return Ok(Some(object));
            }
        }
        range.from = next;
    }
}

/// Cuts extents where their file now ends; the first stays.
fn cut(extents: &mut Vec<Extent>, size_bytes: u64) {
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
    txn.scan(range, limit)?.iter().map(|(key, value)| read_row(key, value)).collect()
}

fn read_row(key: &[u8], value: &Value) -> Result<Extent, FsError> {
    Ok(decode_extent(schema::offset_of(key)?, value)?)
}

/// The extents of a content that have rows.
fn rows<'a>(content: &Content, extents: &'a [Extent]) -> &'a [Extent] {
    if matches!(content, Content::Rows(_)) { extents } else { &[] }
}

/// Writes the rows that change and no others.
fn write_rows(txn: &mut impl Txn, ino: Ino, had: &[Extent], has: &[Extent]) {
    let at = |rows: &[Extent], offset: u64| rows.binary_search_by_key(&offset, |extent| extent.offset).ok();
    for extent in had {
        if at(has, extent.offset).is_none() {
            txn.delete(schema::extent(ino, extent.offset));
        }
    }
    for extent in has {
        if at(had, extent.offset).is_none_or(|index| had[index] != *extent) {
            txn.put(schema::extent(ino, extent.offset), encode_extent(extent));
        }
    }
}

/// Returns how many of some extents are in each object.
fn counts(extents: &[Extent]) -> BTreeMap<&ObjectKey, u64> {
    let mut counts = BTreeMap::new();
    for key in extents.iter().filter_map(|extent| extent.object.key.as_ref()) {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// Returns the objects that none of the new extents are in.
fn unused(old: &[Extent], new: &[Extent]) -> Released {
    let (old, new) = (counts(old), counts(new));
    old.into_keys().filter(|key| !new.contains_key(*key)).cloned().collect()
}

/// Replaces all counts of an inode's uses.
fn write_uses(
    txn: &mut impl Txn,
    ino: Ino,
    had: &BTreeMap<&ObjectKey, u64>,
    has: &BTreeMap<&ObjectKey, u64>,
) {
    for key in had.keys().filter(|key| !has.contains_key(**key)) {
        txn.delete(schema::object_uses(ino, key));
    }
    for (key, count) in has.iter().filter(|(key, count)| had.get(**key) != Some(*count)) {
        txn.put(schema::object_uses(ino, key), encode_number(*count));
    }
}

/// Counts uses that come and go. Returns the objects that are left without one.
fn count_uses(
    txn: &mut impl Txn,
    ino: Ino,
    old: &BTreeMap<&ObjectKey, u64>,
    new: &BTreeMap<&ObjectKey, u64>,
) -> Result<Released, FsError> {
    let mut released = Released::new();
    for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(**key))) {
        let of = |counts: &BTreeMap<&ObjectKey, u64>| counts.get(*key).copied().unwrap_or_default();
        let (gone, come) = (of(old), of(new));
        if come == gone {
            continue;
        }
        let row = schema::object_uses(ino, key);
        let uses = match txn.peek(&row)? {
            Some(value) => decode_number(&value)?,
            None => 0,
        };
        let uses = (uses + come).checked_sub(gone).ok_or_else(|| {
            FsError::Corrupt(format!(
                "inode {ino} uses the object {key} more often than it counts; run `tenon fsck`"
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
