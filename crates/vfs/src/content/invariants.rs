//! Invariants of a file's content, asserted where it is named and again where it is read.

use meta::Extent;
use std::ops::Range;

use crate::content::pin::Piece;

/// Asserts the invariants of content that replaces `ranges` of a file of `size_bytes`.
pub(crate) fn assert_can_be_named(ranges: &[Range<u64>], content: &[Extent], size_bytes: u64) {
    for extent in content {
        assert!(extent.len > 0, "an empty extent would keep an object that no read needs");
        assert!(
            extent.object.key.is_some(),
            "an object at a file's path is named as the whole file: a part of it would hide the rest"
        );
        assert!(
            ranges.iter().any(|range| range.start <= extent.offset && extent.end() <= range.end),
            "new content lies inside the ranges that it replaces, or it would overlap what stays"
        );
        assert!(extent.end() <= size_bytes, "bytes behind the end of a file would appear when it grows");
    }
}

/// Asserts the invariants of the pieces of a snapshot.
pub(crate) fn assert_can_be_read(pieces: &[Piece]) {
    for piece in pieces {
        let is_of_empty_file = pieces.len() == 1;
        assert!(
            !piece.range.is_empty() || is_of_empty_file,
            "only the object of an empty file has no bytes: a search by offset would find it instead of the next piece"
        );
    }
    for pair in pieces.windows(2) {
        assert!(
            pair[0].range.end <= pair[1].range.start,
            "pieces are in order and do not overlap: searches by offset rely on it"
        );
    }
}
