//! Numbers what happens in a shard, and writes it down for the log.
//!
//! Owns the records of the handler's files (docs/format.md, "The event handler's files").

use super::object_record::Rest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of a shard, and what of it is not in the log yet.
#[derive(Debug)]
pub(super) struct Pen {
    version: u64,
    /// `None` where nothing is kept.
    page: Option<Page>,
}

/// The records of a shard that are not in the log yet.
#[derive(Debug)]
pub(super) struct Page {
    shard: usize,
    records: Vec<u8>,
    unkept: Arc<Unkept>,
}

/// Which shards have records that are not in the log yet: a bit of each, set before the shard's lock is given back.
#[derive(Debug, Default)]
pub(super) struct Unkept(AtomicU64);

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    /// An object of a container is so now, or gone.
    Object = 1,
    /// Somebody has to look at an object of a container.
    Look = 2,
    /// Somebody looked at an object of a container; if something was new, an [`Mark::Object`] came before.
    Looked = 3,
    /// A view has these rules.
    View = 4,
    /// A container has this name.
    Container = 5,
    /// A container was listed for these rules on keys.
    Listed = 6,
    /// A container has to be listed again.
    Stale = 7,
    /// A handler goes on: the number of its life, and on which start of which machine.
    Life = 8,
    /// A shard's objects of before are those of the snapshot; its version.
    Shard = 9,
    /// The snapshot is whole.
    End = 10,
    /// The sets of a container's objects were right at a moment, and somebody was told.
    Time = 11,
    /// A view is forgotten.
    ViewForgotten = 12,
    /// A container is forgotten, with its objects.
    ContainerForgotten = 13,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) mark: Mark,
    /// Of the container, view, shard or life.
    pub(super) number: u32,
    pub(super) version: u64,
    pub(super) body: &'a [u8],
}

impl Mark {
    const ALL: [Self; 13] = [
        Self::Object,
        Self::Look,
        Self::Looked,
        Self::View,
        Self::Container,
        Self::Listed,
        Self::Stale,
        Self::Life,
        Self::Shard,
        Self::End,
        Self::Time,
        Self::ViewForgotten,
        Self::ContainerForgotten,
    ];
}

impl<'a> Record<'a> {
    pub(super) fn append(&self, into: &mut Vec<u8>) {
        into.push(self.mark as u8);
        into.extend_from_slice(&self.number.to_le_bytes());
        into.extend_from_slice(&self.version.to_le_bytes());
        into.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        into.extend_from_slice(self.body);
    }

    /// The records of a frame; `None` for bytes that are none.
    pub(super) fn all(frame: &'a [u8]) -> Option<Vec<Self>> {
        let mut rest = Rest(frame);
        let mut records = Vec::new();
        while !rest.0.is_empty() {
            let mark = rest.take(1)?[0];
            let mark = Mark::ALL.into_iter().find(|known| *known as u8 == mark)?;
            let number = u32::from_le_bytes(rest.array()?);
            let version = u64::from_le_bytes(rest.array()?);
            let bytes = u32::from_le_bytes(rest.array()?);
            records.push(Self { mark, number, version, body: rest.take(bytes as usize)? });
        }
        Some(records)
    }
}

impl Pen {
    pub(super) fn new(version: u64, page: Option<Page>) -> Self {
        Self { version, page }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Of a change that the log need not know.
    pub(super) fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Of a change, with the packed record of the object.
    pub(super) fn write(&mut self, mark: Mark, container: u32, object: &[u8]) -> u64 {
        let version = self.next();
        if let Some(page) = &mut self.page {
            page.write(&Record { mark, number: container, version, body: object });
        }
        version
    }

    /// What was written since the last time, which is now somebody else's.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) {
        if let Some(page) = &mut self.page {
            into.append(&mut page.records);
        }
    }
}

impl Page {
    pub(super) fn new(shard: usize, unkept: &Arc<Unkept>) -> Self {
        Self { shard, records: Vec::new(), unkept: Arc::clone(unkept) }
    }

    fn write(&mut self, record: &Record<'_>) {
        if self.records.is_empty() {
            self.unkept.0.fetch_or(1 << self.shard, Ordering::Release);
        }
        record.append(&mut self.records);
    }
}

impl Unkept {
    /// The shards, which from now on count as kept: whoever asks takes what they have.
    pub(super) fn take(&self) -> impl Iterator<Item = usize> {
        let shards = self.0.swap(0, Ordering::Acquire);
        (0..u64::BITS as usize).filter(move |shard| shards >> shard & 1 == 1)
    }
}
