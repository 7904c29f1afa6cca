//! Notes: records that somebody else wants kept in order with the changes, such as names with the data they name.

use super::Writeback;
use super::pending::Piece;
use super::record::Record;
use super::replay::Notes;
use crate::Payload;
use bytes::Bytes;
use std::io;
use std::sync::{MutexGuard, PoisonError};

impl Writeback {
    /// Keeps a note under a number that is higher than those of all before. It survives the end of the process at
    /// once, and the loss of power after [`Writeback::sync_now`].
    pub fn append_note(&self, number: u64, body: Bytes) -> io::Result<()> {
        let mut notes = self.notes();
        let (segment, range) = self.log.append(&Record::Note { number }, &Payload::from(body))?;
        notes.push_back((number, Piece::Here(segment, range)));
        Ok(())
    }

    /// The notes that are still needed, ascending.
    pub fn read_notes(&self) -> io::Result<Vec<(u64, Bytes)>> {
        let read = |(number, piece): &(u64, Piece)| match piece {
            Piece::Here(segment, range) => Ok((*number, segment.read(range)?)),
            Piece::There(..) => unreachable!("notes are never in the bucket"),
        };
        self.notes().iter().map(read).collect()
    }

    /// Notes up to this one are not needed any more.
    pub fn forget_notes(&self, up_to: u64) -> io::Result<()> {
        self.log.append(&Record::NotesDone { number: up_to }, &Payload::default())?;
        self.notes().retain(|(number, _)| *number > up_to);
        self.log.reclaim()
    }

    /// Returns when everything acknowledged before, changes and notes, survives the loss of power.
    pub fn sync_now(&self) -> io::Result<()> {
        self.log.sync()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
