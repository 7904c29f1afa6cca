//! An object in parts: their bytes are in the log as they come, and complete makes one change of them.

use super::pending::{Piece, slice};
use super::{Held, Source, Writeback, reference};
use crate::{
    Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result, StoreError, Tags, byte_range,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct WaitingUpload {
    writeback: Arc<Writeback>,
    key: ObjectKey,
    attributes: Attributes,
    tags: Tags,
    parts: Mutex<Option<BTreeMap<u32, Part>>>,
}

/// A part's bytes, and what they are copied from.
#[derive(Debug, Clone)]
struct Part {
    pieces: Vec<Piece>,
    _held: Option<Arc<Held>>,
}

impl WaitingUpload {
    pub(super) fn new(writeback: Arc<Writeback>, key: ObjectKey, attributes: Attributes, tags: Tags) -> Self {
        Self { writeback, key, attributes, tags, parts: Mutex::new(Some(BTreeMap::new())) }
    }

    fn parts(&self) -> MutexGuard<'_, Option<BTreeMap<u32, Part>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, number: u32, part: Part) -> Result<()> {
        match self.parts().as_mut() {
            Some(parts) => {
                parts.insert(number, part);
                Ok(())
            }
            None => Err(ended()),
        }
    }
}

#[async_trait::async_trait]
impl Multipart for WaitingUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        check_number(number)?;
        self.writeback.admit(body.len()).await?;
        let pieces = self.writeback.append_bytes(&body).await?;
        self.keep(number, Part { pieces, _held: None })
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        check_number(number)?;
        let Source { pieces, held, .. } = self.writeback.source(from).await?;
        let size = pieces.iter().map(Piece::len).sum();
        let range = byte_range::inside(&from.key, range, size)?;
        self.keep(number, Part { pieces: slice(&pieces, &range), _held: Some(Arc::new(held)) })
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let parts = self.parts().clone().ok_or_else(ended)?;
        if parts.is_empty() {
            return Err(StoreError::Invalid("an upload has at least one part".into()));
        }
        let asked = self.writeback.check_there(&self.key, &precondition).await?;
        let described = self.writeback.describe(self.attributes.clone(), self.tags.clone());
        let object = reference(&self.key, &described);
        let pieces = parts.values().flat_map(|part| part.pieces.clone()).collect();
        self.writeback.change(&self.key, &asked, Some((described, pieces)), Payload::default()).await?;
        *self.parts() = None;
        Ok(object)
    }

    async fn abort(&self) -> Result<()> {
        *self.parts() = None;
        Ok(())
    }
}

fn check_number(number: u32) -> Result<()> {
    match number {
        1..=10_000 => Ok(()),
        _ => Err(StoreError::Invalid("parts have numbers from 1 to 10,000".into())),
    }
}

fn ended() -> StoreError {
    StoreError::Invalid("the upload has ended".into())
}
