//! From the records of a log to the changes that wait.

use super::early_upload::Early;
use super::log::{Found, Segment};
use super::log_record::{PieceAt, Record};
use super::notes::Kept;
use super::pending::{Change, Pending, Piece, Waiting};
use super::scan::{Damage, Event};
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
    /// Changes whose bytes are in a segment that went, which it only does when they do not count any more, or in a
    /// damaged range.
    hollow: HashSet<u64>,
    damages: Vec<Damage>,
}

/// What replay found.
pub(super) struct Replayed {
    pub(super) pending: Pending,
    pub(super) last_change: u64,
    pub(super) notes: Kept,
    pub(super) damages: Vec<Damage>,
    /// Keys of changes that waited, of whose bytes some are lost.
    pub(super) lost: Vec<ObjectKey>,
}

impl Replay {
    /// The next place of the log.
    pub(super) fn one(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Found(found) => self.found(found),
            Event::Damaged(damage) => {
                self.damages.push(damage);
                Ok(())
            }
        }
    }

    fn found(&mut self, found: Found) -> io::Result<()> {
        self.segments.insert(found.segment.number, found.segment.clone());
        let record = (found.segment.clone(), found.body.end);
        match found.record {
            Record::Bytes | Record::Begin { .. } => {}
            Record::Note { number } => self.notes.push_back((number, Piece::Here(found.segment, found.body))),
            Record::NotesDone { number } => self.notes.retain(|(note, _)| *note > number),
            Record::Put { change, key, base, object, pieces } => {
                let count = pieces.len();
                let place = |place| self.piece(place, &found.segment, &found.body);
                let pieces: Vec<Piece> = pieces.into_iter().filter_map(place).collect();
                if pieces.len() < count {
                    self.hollow.insert(change);
                }
                let waiting = Arc::new(Waiting { described: object, pieces, early: Early::default() });
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
                let is_hit = |damage: &Damage| {
                    damage.segment == segment
                        && damage.range.start < range.end
                        && range.start < damage.range.end
                };
                let segment = self.segments.get(&segment)?;
                let is_whole =
                    !self.damages.iter().any(is_hit) && segment.len().is_ok_and(|len| range.end <= len);
                is_whole.then(|| Piece::Here(segment.clone(), range))
            }
        }
    }

    /// What waits, the number of the last change, the notes, and what damage took.
    pub(super) fn end(mut self) -> Replayed {
        let is_hollow = |change: &Change| self.hollow.contains(&change.number);
        let lost = self.pending.seen_from(&[]).filter(|(_, change)| is_hollow(change));
        let lost: Vec<ObjectKey> = lost.map(|(key, _)| key.clone()).collect();
        // Zeros never take the place of bytes: the bucket keeps what it has.
        lost.iter().for_each(|key| self.pending.cancel(key));
        let Self { pending, last_change, notes, damages, .. } = self;
        Replayed { pending, last_change, notes, damages, lost }
    }
}
