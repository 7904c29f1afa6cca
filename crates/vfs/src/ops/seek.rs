//! `lseek` with SEEK_DATA and SEEK_HOLE.

use std::ops::Range;

use crate::content::pin::{Cut, Pin};
use crate::content::ranges::RangeSet;
use crate::content::write::WriteState;
use crate::names::handles::Handle;
use crate::{Error, Filesystem, Result};

/// Length of the first range searched, in bytes; it doubles with each further one.
const FIRST_BYTES: u64 = 64 << 20;

/// Target of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// Stored bytes.
    Data,
    /// A hole, which reads as zeros; the end of the file counts as one.
    Hole,
}

impl Filesystem {
    /// Returns the first offset at or after `offset` that has the target. Fails with ENXIO if there is none.
    pub async fn seek(&self, handle: Handle, offset: u64, whence: Whence) -> Result<u64> {
        let handle = self.names.handles().file(handle)?;
        if handle.is_stale() {
            return Err(Error::Stale(
                "the object was overwritten in the bucket while it was read; open the file again".into(),
            ));
        }
        let file = &handle.file;
        let state = file.write_state.lock().await;
        let pin = file.pin().0;
        let size = state.size_bytes().unwrap_or_else(|| pin.as_ref().map_or(0, |pin| pin.size_bytes));
        let data = |range: Range<u64>| match (&*state, &pin) {
            _ if range.is_empty() => Ok(RangeSet::default()),
            (WriteState::Memory(_) | WriteState::Stream(_), _) => Ok(RangeSet::from_iter([range])),
            (WriteState::Local(local), _) => Ok(local.data(range)?),
            (WriteState::Clean, Some(pin)) => stored_ranges(pin, range),
            (WriteState::Clean, None) => Ok(RangeSet::default()),
        };
        // A file may have very many holes, and the first match ends the search.
        let mut len = FIRST_BYTES;
        loop {
            let part = offset..offset.saturating_add(len).min(size);
            let found = find_target(&data(part.clone())?, part.clone(), whence);
            match found {
                Some(at) if at < part.end || part.end == size => return Ok(at),
                _ if part.end >= size => {
                    return Err(Error::new(libc::ENXIO, "no data or hole at or after this offset"));
                }
                _ => len = len.saturating_mul(2),
            }
        }
    }
}

/// Returns the parts of a range that are in objects.
fn stored_ranges(pin: &Pin, range: Range<u64>) -> Result<RangeSet> {
    let stored = pin.cut(range)?.into_iter().filter_map(|cut| match cut {
        Cut::Stored(range, _) => Some(range),
        Cut::Hole(_) => None,
    });
    Ok(stored.collect())
}

/// Returns the first offset in `rest`, the range searched, that has the target; its end if no hole begins before.
/// `None` for data if there is none, and for an empty range. `data` has the stored bytes within `rest`.
fn find_target(data: &RangeSet, rest: Range<u64>, whence: Whence) -> Option<u64> {
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
        assert_eq!(find_target(&data, 0..50, Whence::Data), Some(10));
        assert_eq!(find_target(&data, 0..50, Whence::Hole), Some(0));
        let data = RangeSet::from_iter([15..20, 30..40]);
        assert_eq!(find_target(&data, 15..40, Whence::Hole), Some(20));
        let data = RangeSet::from_iter([35..40]);
        assert_eq!(find_target(&data, 35..40, Whence::Hole), Some(40));
        assert_eq!(find_target(&RangeSet::default(), 40..50, Whence::Data), None);
        assert_eq!(find_target(&RangeSet::default(), 50..50, Whence::Hole), None);
    }
}
