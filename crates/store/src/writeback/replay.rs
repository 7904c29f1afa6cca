//! From the records of a log to the changes that wait.

use super::log::{Found, Segment};
use super::notes::Kept;
use super::pending::{Change, Pending, Piece, Waiting};
use super::record::{PieceAt, Record};
use crate::{ObjectKey, Timestamp};
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What a log says when it is opened.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pending: Pending,
    segments: HashMap<u64, Arc<Segment>>,
    last_change: u64,
    notes: Kept,
    /// Changes whose bytes are in a segment that went, which it only does when they do not count any more.
    hollow: HashSet<u64>,
}

impl Replay {
    /// The next record.
    pub(super) fn one(&mut self, found: Found) -> io::Result<()> {
        self.segments.insert(found.segment.number, found.segment.clone());
        let record = (found.segment.clone(), found.body.end);
        match found.record {
            Record::Bytes => {}
            Record::Note { number } => self.notes.push_back((number, Piece::Here(found.segment, found.body))),
            Record::NotesDone { number } => self.notes.retain(|(note, _)| *note > number),
            Record::Put { change, key, base, object, pieces } => {
                let count = pieces.len();
                let place = |place| self.piece(place, &found.segment, &found.body);
                let pieces: Vec<Piece> = pieces.into_iter().filter_map(place).collect();
                if pieces.len() < count {
                    self.hollow.insert(change);
                }
                let waiting = Arc::new(Waiting { described: object, pieces });
                self.set(key, Change::new(change, Some(waiting), base, Timestamp(0), record));
            }
            Record::Delete { change, key, base } => {
                self.set(key, Change::new(change, None, base, Timestamp(0), record));
            }
            Record::Done { change, key, etag } => {
                self.last_change = self.last_change.max(change);
                self.pending.done(&key, change, etag);
            }
        }
        Ok(())
    }

    fn set(&mut self, key: ObjectKey, change: Change) {
        self.last_change = self.last_change.max(change.number);
        self.pending.set(key, change.tried());
    }

    fn piece(&self, place: PieceAt, segment: &Arc<Segment>, body: &Range<u64>) -> Option<Piece> {
        match place {
            PieceAt::Body => Some(Piece::Here(segment.clone(), body.clone())),
            PieceAt::There { object, range } => Some(Piece::There(object, range)),
            PieceAt::Here { segment, range } => {
                self.segments.get(&segment).map(|segment| Piece::Here(segment.clone(), range))
            }
        }
    }

    /// What waits, the number of the last change, and the notes.
    pub(super) fn end(self) -> io::Result<(Pending, u64, Kept)> {
        let is_hollow = |change: &Change| self.hollow.contains(&change.number);
        if let Some((key, _)) = self.pending.seen_from(&[]).find(|(_, change)| is_hollow(change)) {
            let text = format!("the write-back log is damaged: the bytes of '{key}' are not in it");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok((self.pending, self.last_change, self.notes))
    }
}
