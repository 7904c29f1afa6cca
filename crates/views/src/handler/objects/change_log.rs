//! Numbers the changes of a shard, and buffers their records until they are written to the log.
//!
//! Owns the records of the handler's files (docs/format.md, "The event handler's files").

use crate::object_record::{ByteReader, ObjectRecord};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of a shard, and the records of its changes.
#[derive(Debug)]
pub(super) struct ChangeLog {
    version: u64,
    /// Buffered records; `None` if the handler has no state directory.
    buffer: Option<LogBuffer>,
}

/// Records of a shard that are not in the log yet.
#[derive(Debug)]
pub(super) struct LogBuffer {
    shard: usize,
    records: Vec<u8>,
    unwritten_shards: Arc<UnwrittenShards>,
}

/// Set of the shards that have records which are not in the log yet, one bit each. The bit is set before the shard's
/// lock is released.
#[derive(Debug, Default)]
pub(super) struct UnwrittenShards(AtomicU64);

/// Kind of a record of the handler's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// State of an object of a container, or its tombstone.
    Object = 1,
    /// An object of a container has to be verified.
    VerifyPending = 2,
    /// An object of a container was verified. If its state changed, a [`RecordKind::Object`] came before.
    Verified = 3,
    /// Rules of a view, as YAML.
    View = 4,
    /// A container was added, with this name.
    Container = 5,
    /// Coverage of the listings of a container: rules on keys, each with the metadata that was read.
    Listed = 6,
    /// A container has to be listed again.
    Stale = 7,
    /// A process run of the handler begins: the number of the incarnation, and the machine's boot id.
    Incarnation = 8,
    /// Version of a shard in the snapshot. Records of this shard up to this version in later logs are in the snapshot
    /// already.
    Shard = 9,
    /// The last record of a snapshot: without it the snapshot is not whole.
    End = 10,
    /// Clients were told the content of views with rules on ages, as of a moment.
    Time = 11,
    /// A view is forgotten.
    ViewForgotten = 12,
    /// A container is forgotten, with its objects.
    ContainerForgotten = 13,
}

/// One record of the handler's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogRecord<'a> {
    pub(crate) kind: RecordKind,
    /// Number of the container, view, shard or incarnation.
    pub(crate) number: u32,
    /// Version of a change of an object, or of a shard; the incarnation of a view; the moment of [`RecordKind::Time`]
    /// in nanoseconds since 1970; else 0.
    pub(crate) version: u64,
    pub(crate) body: &'a [u8],
}

impl RecordKind {
    const ALL: [Self; 13] = [
        Self::Object,
        Self::VerifyPending,
        Self::Verified,
        Self::View,
        Self::Container,
        Self::Listed,
        Self::Stale,
        Self::Incarnation,
        Self::Shard,
        Self::End,
        Self::Time,
        Self::ViewForgotten,
        Self::ContainerForgotten,
    ];
}

impl<'a> LogRecord<'a> {
    pub(crate) fn append(&self, into: &mut Vec<u8>) {
        into.push(self.kind as u8);
        into.extend_from_slice(&self.number.to_le_bytes());
        into.extend_from_slice(&self.version.to_le_bytes());
        into.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        into.extend_from_slice(self.body);
    }

    /// Appends the record of an object that has to be verified.
    pub(crate) fn append_verify_pending(container: u32, key: &[u8], into: &mut Vec<u8>) {
        let mut body = Vec::new();
        ObjectRecord { key, order: None, live: None }.pack(&mut body);
        LogRecord { kind: RecordKind::VerifyPending, number: container, version: 0, body: &body }
            .append(into);
    }

    /// Appends a record whose body is the packed record of an object, in the form of files.
    pub(super) fn append_object(
        kind: RecordKind,
        number: u32,
        version: u64,
        object: &[u8],
        into: &mut Vec<u8>,
    ) {
        LogRecord { kind, number, version, body: &[] }.append(into);
        let begin = into.len();
        ObjectRecord::pack_for_file(object, into);
        let body_bytes = (into.len() - begin) as u32;
        into[begin - size_of::<u32>()..begin].copy_from_slice(&body_bytes.to_le_bytes());
    }

    /// Reads the records of a frame; `None` if the bytes are malformed.
    pub(crate) fn read_all(frame: &'a [u8]) -> Option<Vec<Self>> {
        let mut rest = ByteReader(frame);
        let mut records = Vec::new();
        while !rest.0.is_empty() {
            let kind = rest.take(1)?[0];
            let kind = RecordKind::ALL.into_iter().find(|known| *known as u8 == kind)?;
            let number = u32::from_le_bytes(rest.array()?);
            let version = u64::from_le_bytes(rest.array()?);
            let bytes = u32::from_le_bytes(rest.array()?);
            records.push(Self { kind, number, version, body: rest.take(bytes as usize)? });
        }
        Some(records)
    }
}

impl ChangeLog {
    pub(super) fn new(version: u64, buffer: Option<LogBuffer>) -> Self {
        Self { version, buffer }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Buffers the record of a change of an object, given as its packed record, if the handler has a log. Returns the
    /// change's version.
    pub(super) fn append(&mut self, kind: RecordKind, container: u32, object: &[u8]) -> u64 {
        self.version += 1;
        let version = self.version;
        if let Some(buffer) = &mut self.buffer {
            buffer.append(kind, container, version, object);
        }
        version
    }

    /// Moves the buffered records to `into`, and frees the buffer.
    pub(super) fn drain_into(&mut self, into: &mut Vec<u8>) {
        if let Some(buffer) = &mut self.buffer {
            into.append(&mut std::mem::take(&mut buffer.records));
        }
    }
}

impl LogBuffer {
    pub(super) fn new(shard: usize, unwritten_shards: &Arc<UnwrittenShards>) -> Self {
        Self { shard, records: Vec::new(), unwritten_shards: Arc::clone(unwritten_shards) }
    }

    fn append(&mut self, kind: RecordKind, number: u32, version: u64, object: &[u8]) {
        if self.records.is_empty() {
            self.unwritten_shards.0.fetch_or(1 << self.shard, Ordering::Release);
        }
        LogRecord::append_object(kind, number, version, object, &mut self.records);
    }
}

impl UnwrittenShards {
    /// Returns the shards of the set in ascending order, and clears the set. The caller has to take their records.
    pub(super) fn take(&self) -> impl Iterator<Item = usize> {
        let shards = self.0.swap(0, Ordering::Acquire);
        (0..u64::BITS as usize).filter(move |shard| shards >> shard & 1 == 1)
    }
}
