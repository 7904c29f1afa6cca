//! Snapshots: all records of one commit, as sorted tables in envelopes.

use crate::identity_record::copied;
use crate::keys::{Epoch, Keys, Lineage, Part};
use crate::manifest::{Manifest, TableEntry};
use crate::{Error, Result, document, envelope, manifest};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use log::Crc;
use meta::{Reader, Seqno};
use std::ops::Bound;
use std::sync::Arc;
use store::{GetOptions, ObjectKey, ObjectStore, blocking};

/// Length at which a table ends. A writer and a reader keep one or a few tables in memory.
const TABLE_BYTES: u64 = 16 << 20;

/// Records read from the engine at a time.
const PAGE_RECORDS: usize = 4096;

/// Tables are read once, in order, so that a cache is of no use.
const CACHE_BYTES: u64 = 0;

/// Writes the tables of a snapshot, one at a time.
pub(crate) struct TableWriter {
    reader: Arc<dyn Reader>,
    lineage: Lineage,
    epoch: Epoch,
    seqno: Seqno,
    from: Bound<Vec<u8>>,
    entries: Vec<TableEntry>,
}

impl TableWriter {
    pub(crate) fn new(reader: Arc<dyn Reader>, lineage: Lineage, epoch: Epoch, seqno: Seqno) -> Self {
        Self { reader, lineage, epoch, seqno, from: Bound::Unbounded, entries: Vec::new() }
    }

    /// Returns the next table and its part; `None` after the last record. Blocks.
    fn next_table(&mut self) -> Result<Option<(Part, Bytes)>> {
        let mut table = sst::Writer::new(Vec::new(), sst::Options::default());
        let mut records = 0;
        while table.len_bytes() < TABLE_BYTES {
            let from = self.from.as_ref().map(Vec::as_slice);
            let rows = self.reader.scan(from, Bound::Unbounded, PAGE_RECORDS)?;
            let Some((last, _)) = rows.last() else { break };
            for (key, value) in copied(&rows) {
                table.add(key, value)?;
                records += 1;
            }
            self.from = Bound::Excluded(last.clone());
        }
        if records == 0 {
            return Ok(None);
        }
        let number = self.entries.len() as u32;
        let part = Part::Table { epoch: self.epoch, seqno: self.seqno, number };
        let (body, _) = table.finish()?;
        let sealed = envelope::seal(self.lineage, part, &body)?;
        self.entries.push(TableEntry { bytes: sealed.len() as u64, records, crc32c: Crc::of(&sealed) });
        Ok(Some((part, sealed.into())))
    }

    /// Returns itself and what `next_table` returns, which runs on a thread for blocking work.
    pub(crate) async fn next(mut self) -> Result<(Self, Option<(Part, Bytes)>)> {
        blocking(move || {
            let next = self.next_table();
            Ok(next.map(|next| (self, next)))
        })
        .await?
    }

    /// Returns the descriptions of the tables written.
    pub(crate) fn into_entries(self) -> Vec<TableEntry> {
        self.entries
    }
}

/// Reads the manifest of a snapshot.
pub(crate) async fn read_manifest(
    store: &dyn ObjectStore,
    keys: &Keys,
    lineage: Lineage,
    (epoch, seqno): (Epoch, Seqno),
) -> Result<Manifest> {
    let key = keys.part(lineage, Part::Manifest { epoch, seqno })?;
    let bytes = read(store, &key).await?;
    let manifest: Manifest =
        document::decode(&bytes, manifest::VERSION).map_err(|what| Error::damaged(&key, what))?;
    match manifest.seqno == seqno.0 {
        true => Ok(manifest),
        false => Err(Error::damaged(&key, "describes another snapshot")),
    }
}

/// Reads a table of a snapshot and verifies all of its checksums.
pub(crate) async fn read_table(
    store: &dyn ObjectStore,
    keys: &Keys,
    lineage: Lineage,
    part: Part,
    entry: TableEntry,
) -> Result<Arc<sst::Table<Bytes>>> {
    let key = keys.part(lineage, part)?;
    let sealed = read(store, &key).await?;
    let damaged = |what: String| Error::damaged(&key, what);
    if sealed.len() as u64 != entry.bytes || Crc::of(&sealed) != entry.crc32c {
        return Err(damaged("is not the table that the manifest describes".into()));
    }
    let body = envelope::open(lineage, part, &sealed).map_err(damaged)?;
    drop(sealed);
    let unusable = |error: sst::Error| damaged(format!("is not a sorted table: {error}"));
    let cache = Arc::new(sst::Cache::new(CACHE_BYTES));
    let table = sst::Table::open(Bytes::from(body), 0, cache).map_err(unusable)?;
    table.verify().map_err(unusable)?;
    match table.entries() == entry.records {
        true => Ok(Arc::new(table)),
        false => Err(damaged("has another number of records than the manifest says".into())),
    }
}

/// Reads an object whole.
pub(crate) async fn read(store: &dyn ObjectStore, key: &ObjectKey) -> Result<Bytes> {
    let mut pieces: Vec<Bytes> = store.get(key, GetOptions::default()).await?.body.try_collect().await?;
    Ok(if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() })
}
