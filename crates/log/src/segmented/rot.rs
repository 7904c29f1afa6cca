//! Damages a log on purpose, and finds where it may be damaged, for simulators.

use super::scan::{ScanEvent, read};
use super::{MARK_FILE, ReadFaults, Segment, frame};
use crate::sync_mark::SyncMark;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A frame of a log that may be damaged.
struct Candidate {
    segment: Arc<Segment>,
    range: Range<u64>,
    /// Any byte may be damaged, not only the magic and the checksum of the position.
    is_spare: bool,
}

/// Damages a frame of a log so that no record of worth is lost: its magic or the checksum of its position, or any byte
/// of a synced frame whose header `is_spare`. `pick` returns a number below its argument. Returns a description of the
/// damage; `None` if the log has no frames.
///
/// If earlier damage hides the length of a frame, the next one is found by its head alone. That head is not damaged.
pub fn rot(
    dir: &Path,
    is_spare: impl Fn(&[u8]) -> bool,
    mut pick: impl FnMut(u64) -> u64,
) -> io::Result<Option<String>> {
    let mut frames: Vec<Candidate> = Vec::new();
    let mut ends = BTreeMap::new();
    let mark = SyncMark::read(&dir.join(MARK_FILE));
    read(dir, &ReadFaults::default(), |event| {
        let found = match event {
            ScanEvent::Entry(found) => found,
            ScanEvent::Damaged(damage) => {
                ends.remove(&damage.segment);
                return Ok(());
            }
        };
        // The first frame of a segment follows the one that begins the segment.
        let Some(begin) = ends.insert(found.segment.number, found.body.end) else { return Ok(()) };
        // Damage that no sync covered would end the log.
        let is_synced = mark.covers(found.segment.number, begin) == Some(true);
        let is_spare = is_synced && is_spare(&found.header);
        if !has_valid_head(&found.segment, begin)?
            && let Some(before) = frames
                .last_mut()
                .filter(|before| before.segment.number == found.segment.number && before.range.end == begin)
        {
            before.is_spare = false;
        }
        frames.push(Candidate { segment: found.segment, range: begin..found.body.end, is_spare });
        Ok(())
    })?;
    if frames.is_empty() {
        return Ok(None);
    }
    let Candidate { segment, range, is_spare } = frames.swap_remove(pick(frames.len() as u64) as usize);
    let at = range.start
        + match is_spare {
            true => pick(range.end - range.start),
            false if pick(2) == 0 => pick(frame::MAGIC_V2.len() as u64),
            false => frame::HEAD_V1_BYTES as u64 + pick(4),
        };
    segment.flip(at, 1 << pick(8))?;
    Ok(Some(format!("byte {at} of log {}", segment.number)))
}

/// Returns whether the head of a frame is undamaged.
fn has_valid_head(segment: &Segment, at: u64) -> io::Result<bool> {
    let mut head = [0; frame::HEAD_V2_BYTES];
    segment.read_into(&mut head, at)?;
    let heads = frame::parse_heads(&head, segment.number, at);
    Ok(heads.first().is_some_and(|head| head.is_position_valid))
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
