//! Where a file has bytes, and where holes.

use std::ops::Range;

use crate::handles::Handle;
use crate::pin::{Cut, Pin};
use crate::ranges::RangeSet;
use crate::write::Dirty;
use crate::{Error, Filesystem, Result};

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// Bytes that are stored.
    Data,
    /// A hole, which reads as zeros; the end of the file counts as one.
    Hole,
}

impl Filesystem {
    /// The first place from `offset` on where a file has what is looked for. ENXIO where nothing is any more.
    pub async fn seek(&self, handle: Handle, offset: u64, whence: Whence) -> Result<u64> {
        let handle = self.handles.file(handle)?;
        if handle.is_stale() {
            return Err(Error::Stale("it was overwritten in the bucket while it was read".into()));
        }
        let file = &handle.file;
        let work = file.work.lock().await;
        let pin = file.pin().0;
        let size = work.size_bytes().unwrap_or_else(|| pin.as_ref().map_or(0, |pin| pin.size_bytes));
        let rest = offset..size;
        let data = match (&*work, pin) {
            _ if rest.is_empty() => RangeSet::default(),
            (Dirty::Memory(_) | Dirty::Stream(_), _) => RangeSet::from_iter([rest.clone()]),
            (Dirty::Local(local), _) => local.data(rest.clone()),
            (Dirty::Clean, Some(pin)) => stored(&pin, rest.clone()),
            (Dirty::Clean, None) => RangeSet::default(),
        };
        find(&data, rest, whence).ok_or(Error::new(libc::ENXIO, "nothing of it is beyond this offset"))
    }
}

fn stored(pin: &Pin, range: Range<u64>) -> RangeSet {
    let stored = pin.cut(range).into_iter().filter_map(|cut| match cut {
        Cut::Stored(range, _) => Some(range),
        Cut::Hole(_) => None,
    });
    stored.collect()
}

/// `rest` goes from the offset to the end of the file, `data` is within it.
fn find(data: &RangeSet, rest: Range<u64>, whence: Whence) -> Option<u64> {
    let first = data.iter().next();
    match whence {
        _ if rest.is_empty() => None,
        Whence::Data => first.map(|run| run.start),
        Whence::Hole => Some(first.filter(|run| run.start == rest.start).map_or(rest.start, |run| run.end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_holes_alternate_and_the_end_is_a_hole() {
        let data = RangeSet::from_iter([10..20, 30..40]);
        assert_eq!(find(&data, 0..50, Whence::Data), Some(10));
        assert_eq!(find(&data, 0..50, Whence::Hole), Some(0));
        let data = RangeSet::from_iter([15..20, 30..40]);
        assert_eq!(find(&data, 15..40, Whence::Hole), Some(20));
        let data = RangeSet::from_iter([35..40]);
        assert_eq!(find(&data, 35..40, Whence::Hole), Some(40));
        assert_eq!(find(&RangeSet::default(), 40..50, Whence::Data), None);
        assert_eq!(find(&RangeSet::default(), 50..50, Whence::Hole), None);
    }
}
