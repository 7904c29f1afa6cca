//! Where the bytes of a pending object are.

use log::Segment;
use std::ops::Range;
use std::sync::Arc;
use store::ObjectRef;

/// Location of some bytes of a pending object.
#[derive(Debug, Clone)]
pub(super) enum Extent {
    /// A range of a segment of the log.
    Log(Arc<Segment>, Range<u64>),
    /// A range of an object in the bucket.
    Bucket(ObjectRef, Range<u64>),
}

impl Extent {
    pub(super) fn len(&self) -> u64 {
        let (Self::Log(_, range) | Self::Bucket(_, range)) = self;
        range.end - range.start
    }

    /// Returns a subrange, counted from the extent's start.
    pub(super) fn subrange(&self, within: Range<u64>) -> Self {
        let cut = |range: &Range<u64>| range.start + within.start..range.start + within.end;
        match self {
            Self::Log(segment, range) => Self::Log(segment.clone(), cut(range)),
            Self::Bucket(object, range) => Self::Bucket(object.clone(), cut(range)),
        }
    }
}

/// Returns the extents that hold a range of the object that `extents` make up.
pub(super) fn slice_extents(extents: &[Extent], range: &Range<u64>) -> Vec<Extent> {
    let (mut found, mut at) = (Vec::new(), 0);
    for extent in extents {
        let end = at + extent.len();
        let (from, to) = (range.start.max(at), range.end.min(end));
        if from < to {
            found.push(extent.subrange(from - at..to - at));
        }
        at = end;
    }
    found
}
