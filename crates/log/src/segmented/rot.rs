//! Damages a log on purpose, and finds where it may be damaged, for simulators.

use super::scan::{ScanEvent, read};
use super::{MARK_FILE, ReadFaults, Segment, frame};
use crate::sync_mark::SyncMark;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Damages a frame of a log so that no record of worth is lost: its magic or the checksum of its position, or any byte
/// of a synced frame whose header `is_spare`. `pick` returns a number below its argument. Returns a description of the
/// damage; `None` if the log has no frames.
pub fn rot(
    dir: &Path,
    is_spare: impl Fn(&[u8]) -> bool,
    mut pick: impl FnMut(u64) -> u64,
) -> io::Result<Option<String>> {
    let mut frames: Vec<(Arc<Segment>, u64, u64, bool)> = Vec::new();
    let mut ends = BTreeMap::new();
    let mark = SyncMark::read(&dir.join(MARK_FILE));
    read(dir, &ReadFaults::default(), |event| {
        if let ScanEvent::Entry(found) = event {
            let begin = ends.insert(found.segment.number, found.body.end);
            // Damage that no sync covered would end the log.
            let is_synced = begin.is_some_and(|begin| mark.covers(found.segment.number, begin) == Some(true));
            let is_spare = is_synced && is_spare(&found.header);
            // The first frame of a segment follows the one that begins the segment.
            frames.extend(begin.map(|begin| (found.segment.clone(), begin, found.body.end, is_spare)));
        }
        Ok(())
    })?;
    if frames.is_empty() {
        return Ok(None);
    }
    let (segment, begin, end, is_spare) = frames.swap_remove(pick(frames.len() as u64) as usize);
    let at = match is_spare {
        true => begin + pick(end - begin),
        false if pick(2) == 0 => begin + pick(frame::MAGIC_V2.len() as u64),
        false => begin + frame::HEAD_V1_BYTES as u64 + pick(4),
    };
    segment.flip(at, 1 << pick(8))?;
    Ok(Some(format!("byte {at} of log {}", segment.number)))
}

/// Reads a log like [`scan`](super::scan). Returns the bodies that the mark of the log says are synced: damage of the others would count as a
/// torn end of the log. Each is a segment's number and a range.
pub fn synced_bodies(
    dir: &Path,
    mut each: impl FnMut(ScanEvent) -> io::Result<()>,
) -> io::Result<Vec<(u64, Range<u64>)>> {
    let mark = SyncMark::read(&dir.join(MARK_FILE));
    let mut bodies = Vec::new();
    read(dir, &ReadFaults::default(), |event| {
        if let ScanEvent::Entry(found) = &event
            && !found.body.is_empty()
            && mark.covers(found.segment.number, found.body.end) == Some(true)
        {
            bodies.push((found.segment.number, found.body.clone()));
        }
        each(event)
    })?;
    Ok(bodies)
}
