//! Multipart uploads: implements `Multipart`.
//!
//! Most uploads have parts of equal size, so a part is written to its final offset in the object, and completing the
//! upload moves no byte. A part with another size gets a file of its own, which the kernel copies on completion.

use super::commit::Placed;
use super::copy::copy_from;
use super::record::Record;
use super::staging::Staged;
use super::{Shared, blocking};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use store::part_number;
use store::{
    Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result, StoreError, Tags, byte_range,
};

impl Shared {
    pub(super) fn begin_upload(
        self: &Arc<Self>,
        key: ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<DirUpload> {
        self.staging()?;
        let record = Record { attributes, tags, ..Record::default() };
        let (store, sent) = (self.clone(), Mutex::new(Some(Sent::default())));
        Ok(DirUpload(Arc::new(Upload { store, key, record, sent, placed: OnceLock::new() })))
    }
}

/// A multipart upload. Dropping it without completing it removes the parts.
pub(super) struct DirUpload(Arc<Upload>);

struct Upload {
    store: Arc<Shared>,
    key: ObjectKey,
    record: Record,
    /// `None` once the upload was completed or aborted.
    sent: Mutex<Option<Sent>>,
    /// The object, for a completion that is repeated because its answer was lost or its name could not be flushed.
    placed: OnceLock<Placed>,
}

/// The parts that were sent.
#[derive(Default)]
struct Sent {
    /// The file that becomes the object, made for the first part that is not empty.
    whole: Option<ObjectFile>,
    parts: BTreeMap<u32, Part>,
}

/// The file that becomes the object. It has a slot for every part number, of the size of the first part sent.
struct ObjectFile {
    file: Arc<Staged>,
    slot_bytes: u64,
    /// The part numbers whose slots were assigned. A slot is never assigned twice, because an abandoned writer may still be
    /// writing to it.
    assigned: BTreeSet<u32>,
}

struct Part {
    len: u64,
    /// The part's own file; `None` if the part is in its slot.
    own: Option<Staged>,
}

impl ObjectFile {
    fn slot(&self, number: u32) -> u64 {
        u64::from(number - 1) * self.slot_bytes
    }
}

impl Upload {
    fn sent(&self) -> MutexGuard<'_, Option<Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_part(&self, number: u32, body: &Payload) -> Result<()> {
        self.send(number, body.len(), |file, at| file.write(at, body))
    }

    fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let source = self.store.find_exactly(from)?;
        let range = byte_range::require_inside(&from.key, range, source.size_bytes())?;
        let len = range.end - range.start;
        self.send(number, len, |file, at| copy_from(&source, range, file, at, &from.key))
    }

    /// Writes a part to its slot, or to a file of its own if it gets no slot.
    fn send(&self, number: u32, len: u64, write: impl FnOnce(&Staged, u64) -> Result<()>) -> Result<()> {
        part_number::check(number)?;
        let own = match self.slot(number, len)? {
            Some((whole, at)) => {
                write(&whole, at)?;
                None
            }
            None => {
                let file = self.store.staging()?.create(&self.key)?;
                write(&file, 0)?;
                Some(file)
            }
        };
        self.sent().as_mut().ok_or_else(ended)?.parts.insert(number, Part { len, own });
        Ok(())
    }

    /// Assigns the slot of a part and returns its file and offset, if the part fits and the slot was not assigned before.
    fn slot(&self, number: u32, len: u64) -> Result<Option<(Arc<Staged>, u64)>> {
        let mut sent = self.sent();
        let sent = sent.as_mut().ok_or_else(ended)?;
        if len == 0 {
            return Ok(None);
        }
        let whole = match &mut sent.whole {
            Some(whole) => whole,
            none => {
                let file = Arc::new(self.store.staging()?.create(&self.key)?);
                none.insert(ObjectFile { file, slot_bytes: len, assigned: BTreeSet::new() })
            }
        };
        let fits = len <= whole.slot_bytes && whole.assigned.insert(number);
        Ok(fits.then(|| (whole.file.clone(), whole.slot(number))))
    }

    /// Joins the parts to the object. After an error all parts still exist.
    fn complete(&self, precondition: &Precondition) -> Result<ObjectRef> {
        if let Some(placed) = self.placed.get() {
            self.store.settle(placed)?;
            return self.store.find_exactly(&placed.object).map(|_| placed.object.clone());
        }
        let mut sent = self.sent().take().ok_or_else(ended)?;
        match self.join_and_place(&mut sent, precondition) {
            Ok(placed) => {
                let placed = self.placed.get_or_init(|| placed);
                self.store.settle(placed)?;
                Ok(placed.object.clone())
            }
            Err(error) => {
                *self.sent() = Some(sent);
                Err(error)
            }
        }
    }

    fn join_and_place(&self, sent: &mut Sent, precondition: &Precondition) -> Result<Placed> {
        if sent.parts.is_empty() {
            return Err(StoreError::Invalid("an upload without parts cannot be completed".into()));
        }
        let ((in_place, len), parts) = (sent.in_place(), sent.parts.len());
        let rest_is_apart = sent.parts.values().skip(in_place).all(|part| part.own.is_some());
        // Another owner of the file may still be writing to it: then the parts are copied to a new file.
        let whole = sent.whole.as_mut().and_then(|whole| Arc::get_mut(&mut whole.file));
        if let Some(whole) = whole.filter(|_| in_place > 0 && rest_is_apart) {
            whole.truncate(len)?;
            append(whole, len, sent.parts.values().skip(in_place))?;
            return self.store.place(&self.key, whole, self.record.clone(), parts, precondition);
        }
        let mut joined = self.store.staging()?.create(&self.key)?;
        sent.copy_to(&joined)?;
        self.store.place(&self.key, &mut joined, self.record.clone(), parts, precondition)
    }
}

impl Sent {
    /// Returns how many parts, from the first on, are at their final offset, and their total length in bytes.
    fn in_place(&self) -> (usize, u64) {
        let Some(whole) = &self.whole else { return (0, 0) };
        let (mut count, mut len) = (0, 0);
        for (number, part) in &self.parts {
            if part.own.is_some() || whole.slot(*number) != len {
                break;
            }
            (count, len) = (count + 1, len + part.len);
        }
        (count, len)
    }

    /// Copies all parts to another file.
    fn copy_to(&self, joined: &Staged) -> Result<()> {
        let mut at = 0;
        for (number, part) in &self.parts {
            match (&part.own, &self.whole) {
                (Some(own), _) => joined.copy(at, own.file(), 0..part.len)?,
                (None, Some(whole)) => {
                    let slot = whole.slot(*number);
                    joined.copy(at, whole.file.file(), slot..slot + part.len)?;
                }
                (None, None) => {}
            }
            at += part.len;
        }
        Ok(())
    }
}

/// Appends parts that have files of their own to the file that becomes the object, from offset `at` on.
fn append<'p>(whole: &Staged, mut at: u64, parts: impl Iterator<Item = &'p Part>) -> Result<()> {
    for part in parts {
        if let Some(own) = &part.own {
            whole.copy(at, own.file(), 0..part.len)?;
        }
        at += part.len;
    }
    Ok(())
}

fn ended() -> StoreError {
    StoreError::Invalid("the upload was completed or aborted before".into())
}

impl fmt::Debug for DirUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirUpload").field("key", &self.0.key).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Multipart for DirUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        let upload = self.0.clone();
        blocking(move || upload.put_part(number, &body)).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let (upload, from) = (self.0.clone(), from.clone());
        blocking(move || upload.copy_part(number, &from, range)).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let upload = self.0.clone();
        blocking(move || upload.complete(&precondition)).await
    }

    async fn abort(&self) -> Result<()> {
        let upload = self.0.clone();
        blocking(move || {
            drop(upload.sent().take());
            Ok(())
        })
        .await
    }
}
