//! How a change is made: checked, appended to the log, and then seen by readers.
//!
//! Invariants: the log has the changes of a key in the order in which they are seen; nothing about a key changes between the
//! check of its condition and the moment at which the change is seen; readers never wait for the disk.

use super::condition::{Asked, check};
use super::early_upload::Early;
use super::log_record::{Described, PieceAt, Record};
use super::pending::{Change, Piece, Waiting};
use super::{Writeback, failed};
use crate::{ObjectKey, Payload, Result, StoreError};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Longer bodies are appended before the record that describes them, in bytes.
const BODY_BYTES_MAX: u64 = 64 << 10;

/// An object to store, without the body that comes after its pieces.
pub(super) struct NewObject {
    pub(super) described: Described,
    pub(super) pieces: Vec<Piece>,
    /// An upload that the bucket has parts of already.
    pub(super) early: Early,
}

impl NewObject {
    pub(super) fn new(described: Described, pieces: Vec<Piece>) -> Self {
        Self { described, pieces, early: Early::default() }
    }
}

impl Writeback {
    /// Held while the state of a key is checked and changed, over the write of the record between both. Taken before `pending`.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends bytes of an object that is not described yet.
    pub(super) async fn append_bytes(&self, body: &Payload) -> Result<Vec<Piece>> {
        if body.is_empty() {
            return Ok(Vec::new());
        }
        let mut wait = self.begin_wait();
        loop {
            let lighter = self.lighter.notified();
            match self.log.append(&Record::Bytes, body).map_err(failed) {
                Err(StoreError::Full(full)) => self.wait_for_disk(full, lighter, &mut wait).await?,
                appended => return appended.map(|(segment, range)| vec![Piece::Here(segment, range)]),
            }
        }
    }

    /// The one place where a change is made. The body comes after the pieces given.
    pub(super) async fn change(
        &self,
        key: &ObjectKey,
        asked: &Asked<'_>,
        mut object: Option<NewObject>,
        mut body: Payload,
    ) -> Result<()> {
        self.admit(body.len()).await?;
        if let Some(object) = &mut object
            && body.len() > BODY_BYTES_MAX
        {
            object.pieces.extend(self.append_bytes(&body).await?);
            body = Payload::default();
        }
        let mut wait = self.begin_wait();
        loop {
            let lighter = self.lighter.notified();
            match self.try_change(key, asked, object.as_ref(), &body) {
                Err(StoreError::Full(full)) => self.wait_for_disk(full, lighter, &mut wait).await?,
                changed => return changed,
            }
        }
    }

    fn try_change(
        &self,
        key: &ObjectKey,
        asked: &Asked<'_>,
        object: Option<&NewObject>,
        body: &Payload,
    ) -> Result<()> {
        let _changing = self.changing();
        let (never_there, base, is_alone) = {
            let pending = self.pending();
            check(key, pending.seen(key), asked.precondition)?;
            let never_there = pending.never_there(key, self.options.keys_are_used_once);
            let is_alone = pending.is_free(key) && !pending.unsynced.has(key, &self.log);
            (never_there, self.base(&pending, key, asked), is_alone)
        };
        if let (None, Some(change)) = (object, never_there) {
            let done = Record::Done { change, key: key.clone(), etag: None };
            self.log.append(&done, &Payload::default()).map_err(failed)?;
            let mut pending = self.pending();
            pending.cancel(key);
            pending.unsynced.note(key, &self.log);
            return Ok(());
        }
        let change = self.next_change.fetch_add(1, Ordering::Relaxed);
        let record = match object {
            None => Record::Delete { change, key: key.clone(), base: base.clone() },
            Some(object) => Record::Put {
                change,
                key: key.clone(),
                base: base.clone(),
                object: object.described.clone(),
                pieces: places(&object.pieces, body),
            },
        };
        let (segment, range) = self.log.append(&record, body).map_err(failed)?;
        let end = range.end;
        let waiting = object.map(|object| {
            let mut pieces = object.pieces.clone();
            if !range.is_empty() {
                pieces.push(Piece::Here(segment.clone(), range));
            }
            let (described, early) = (object.described.clone(), object.early.clone());
            Arc::new(Waiting { described, pieces, early })
        });
        let mut change = Change::new(change, waiting, base, self.clock.now(), (segment, end));
        change.is_alone = is_alone;
        let mut pending = self.pending();
        let was_idle = pending.len() == 0;
        pending.set(key.clone(), change);
        pending.unsynced.note(key, &self.log);
        // Whoever sends changes up knows of the oldest, and looks again when that is due.
        if was_idle || self.is_urgent(pending.len()) {
            self.woken.notify_one();
        }
        Ok(())
    }
}

/// Where the log says that pieces are, and the body after them.
fn places(pieces: &[Piece], body: &Payload) -> Vec<PieceAt> {
    let place = |piece: &Piece| match piece {
        Piece::Here(segment, range) => PieceAt::Here { segment: segment.number, range: range.clone() },
        Piece::There(object, range) => PieceAt::There { object: object.clone(), range: range.clone() },
    };
    let body = (!body.is_empty()).then_some(PieceAt::Body);
    pieces.iter().map(place).chain(body).collect()
}
