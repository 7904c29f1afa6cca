//! Extents: which range of which object stores a range of a file.

use std::ops::Range;
use store::{ETag, ObjectKey, Timestamp, VersionId};

/// A range of a file and the range of an object that stores it, both `len` bytes long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The object in the store that has the bytes.
    pub object: Stored,
    /// Offset in the object, in bytes.
    pub object_offset: u64,
}

impl Extent {
    /// Returns the end of the extent in the file, saturating.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Returns the part of the extent that stores `range` of the file. The range must lie within the extent.
    pub fn part(&self, range: &Range<u64>) -> Self {
        let object_offset = self.object_offset + (range.start - self.offset);
        Self { offset: range.start, len: range.end - range.start, object: self.object.clone(), object_offset }
    }
}

/// Returns whether extents ascend without overlap and end within `size_bytes`. An extent of length 0 is valid only as the
/// single extent: it records which object an empty file has.
pub(crate) fn extents_fit(content: &[Extent], size_bytes: u64) -> bool {
    let mut end = 0;
    content.iter().all(|extent| {
        let ascends = extent.offset >= end && (extent.len > 0 || content.len() == 1);
        end = extent.end();
        ascends && extent.offset.checked_add(extent.len).is_some_and(|end| end <= size_bytes)
    })
}

/// Returns `old` cut off at `size_bytes`, with `new` in place of `ranges`. All three inputs ascend without overlap.
pub(crate) fn splice_extents(
    old: &[Extent],
    ranges: &[Range<u64>],
    new: &[Extent],
    size_bytes: u64,
) -> Vec<Extent> {
    let mut content = new.to_vec();
    for extent in old {
        let end = extent.end().min(size_bytes);
        let mut at = extent.offset;
        let first = ranges.partition_point(|range| range.end <= at);
        for range in ranges[first..].iter().take_while(|range| range.start < end) {
            if at < range.start {
                content.push(extent.part(&(at..range.start)));
            }
            at = at.max(range.end);
        }
        if at < end {
            content.push(extent.part(&(at..end)));
        }
    }
    content.sort_by_key(|extent| extent.offset);
    content
}

/// Returns whether the ranges ascend without overlap and each extent lies within one of them.
pub(crate) fn ranges_contain(ranges: &[Range<u64>], content: &[Extent]) -> bool {
    let ascend = ranges.is_sorted_by(|one, next| one.end <= next.start);
    let are_ranges = ranges.iter().all(|range| range.start <= range.end);
    let is_inside = |extent: &Extent| {
        let at = ranges.partition_point(|range| range.end <= extent.offset);
        ranges.get(at).is_some_and(|range| range.start <= extent.offset && extent.end() <= range.end)
    };
    ascend && are_ranges && content.iter().all(is_inside)
}

/// A reference to a stored object, like [`store::ObjectRef`], whose key may follow from the inode's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The object's key. `None` means the path key: the key that the volume's naming derives from the inode's primary name.
    pub key: Option<ObjectKey>,
    /// The etag, which identifies the object's bytes.
    pub etag: ETag,
    /// The object's version, if the bucket keeps versions.
    pub version: Option<VersionId>,
    /// When the object was stored, if known.
    pub last_modified: Option<Timestamp>,
}
