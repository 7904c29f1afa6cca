//! Replays the records of a log into the pending changes.

use super::early_upload::EarlyUploadSlot;
use super::extent::Extent;
use super::kept_notes::NoteLocations;
use super::log_record::{self, ExtentRecord, Record};
use super::pending::{Change, Pending, PendingObject};
use crate::etag_aliases::EtagAliases;
use log::Segment;
use log::segmented::{Damage, Entry, ScanEvent};
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use store::{ETag, ObjectKey, ObjectRef, Timestamp};

/// State of a replay, which rebuilds what is pending from the records of the log.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pending: Pending,
    segments: HashMap<u64, Arc<Segment>>,
    /// Highest number of a change, made or done.
    last_change: u64,
    /// Number of the last change made.
    last_made: Option<u64>,
    notes: NoteLocations,
    /// The etags that the bucket gave to objects, whose provisional ones the metadata may still have.
    aliases: EtagAliases,
    /// Changes of whose bytes some are missing: in a damaged range, or in a segment that was removed because the
    /// change was not needed any more.
    incomplete: HashSet<u64>,
    damages: Vec<Damage>,
}

/// The pending changes and notes that a replay of the whole log has found.
pub(super) struct Replayed {
    pub(super) pending: Pending,
    pub(super) last_change: u64,
    pub(super) notes: NoteLocations,
    pub(super) aliases: EtagAliases,
    pub(super) damages: Vec<Damage>,
    /// Keys of pending changes of whose bytes some are lost.
    pub(super) lost: Vec<ObjectKey>,
}

impl Replay {
    /// Applies the next record or damaged range of the log.
    pub(super) fn apply(&mut self, event: ScanEvent) -> io::Result<()> {
        match event {
            ScanEvent::Entry(entry) => {
                return self.apply_record(log_record::decode_whole(&entry.header)?, entry);
            }
            ScanEvent::Damaged(damage) => self.damages.push(damage),
        }
        Ok(())
    }

    /// Applies a record of the log to the state that the replay builds.
    fn apply_record(&mut self, record: Record, entry: Entry) -> io::Result<()> {
        let Entry { segment, body, .. } = entry;
        self.segments.insert(segment.number, segment.clone());
        let place = (segment.clone(), body.end);
        match record {
            Record::Bytes => {}
            Record::Note { number } => self.notes.push_back((number, Extent::Log(segment, body))),
            Record::NotesDone { number } => self.notes.retain(|(note, _)| *note > number),
            Record::Put { change, key, base, object, extents, renamed_from } => {
                let count = extents.len();
                let find = |extent| self.extent(extent, &segment, &body);
                let extents: Vec<Extent> = extents.into_iter().filter_map(find).collect();
                if extents.len() < count {
                    self.incomplete.insert(change);
                }
                let copy = ObjectRef::new(key.clone(), object.etag.clone());
                let object = PendingObject::new(object, extents, EarlyUploadSlot::default());
                object.note_sent();
                self.set(key, Change::new(change, Some(Arc::new(object)), base, Timestamp(0), place))?;
                if let Some(from) = renamed_from {
                    self.pending.renames.begin(*from, copy);
                }
            }
            Record::Delete { change, key, base } => {
                self.set(key, Change::new(change, None, base, Timestamp(0), place))?;
            }
            Record::Done { change, key, etag } => {
                self.last_change = self.last_change.max(change);
                self.remember_etag(&key, change, etag.as_ref());
                if etag.is_none() {
                    // A deletion of an object that was never uploaded.
                    self.pending.renames.end(&key);
                }
                self.pending.complete(&key, change, etag);
            }
        }
        Ok(())
    }

    /// Remembers the etag that the bucket gave to the object of a change.
    fn remember_etag(&mut self, key: &ObjectKey, change: u64, bucket: Option<&ETag>) {
        let newest = self.pending.get(key).filter(|newest| newest.number == change);
        if let (Some(object), Some(bucket)) = (newest.and_then(|newest| newest.object.as_ref()), bucket) {
            self.aliases.remember(key, object.description.etag.clone(), bucket.clone());
        }
    }

    /// Makes a change the newest of its key. Fails if changes are out of order.
    fn set(&mut self, key: ObjectKey, change: Change) -> io::Result<()> {
        if let Some(before) = self.last_made.replace(change.number).filter(|before| *before >= change.number)
        {
            let text = format!(
                "the write-back log is out of order: change {} follows change {before}",
                change.number
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.last_change = self.last_change.max(change.number);
        self.pending.insert(key, change.mark_tried());
        Ok(())
    }

    /// Returns where the bytes of an extent are; `None` if the log no longer has all of them.
    fn extent(&self, place: ExtentRecord, segment: &Arc<Segment>, body: &Range<u64>) -> Option<Extent> {
        match place {
            ExtentRecord::Body => Some(Extent::Log(segment.clone(), body.clone())),
            ExtentRecord::Bucket { object, range } => Some(Extent::Bucket(object, range)),
            ExtentRecord::Log { segment: source, .. } if source > segment.number => {
                unreachable!("a record in segment {} refers to the later segment {source}", segment.number)
            }
            ExtentRecord::Log { segment, range } => {
                let is_hit = |damage: &Damage| {
                    damage.segment == segment
                        && damage.range.start < range.end
                        && range.start < damage.range.end
                };
                let segment = self.segments.get(&segment)?;
                let is_whole =
                    !self.damages.iter().any(is_hit) && segment.len_bytes().is_ok_and(|len| range.end <= len);
                is_whole.then(|| Extent::Log(segment.clone(), range))
            }
        }
    }

    /// Ends the replay. Changes with missing bytes are dropped and their keys reported.
    pub(super) fn finish(mut self) -> Replayed {
        let is_hollow = |change: &Change| self.incomplete.contains(&change.number);
        let lost = self.pending.overlay_from(&[]).filter(|(_, change)| is_hollow(change));
        let lost: Vec<ObjectKey> = lost.map(|(key, _)| key.clone()).collect();
        // An object with missing bytes is never uploaded: the bucket keeps what it has.
        lost.iter().for_each(|key| self.pending.cancel(key));
        let Self { pending, mut last_change, notes, aliases, damages, .. } = self;
        // A damaged range may have records of higher numbers, which a disk may return at another time. A record is longer
        // than a byte.
        last_change += damages.iter().map(|damage| damage.range.end - damage.range.start).sum::<u64>();
        Replayed { pending, last_change, notes, aliases, damages, lost }
    }
}
