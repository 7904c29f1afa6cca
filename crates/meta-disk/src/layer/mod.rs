//! Table layers: ordered, durable rows with atomic writes. An engine stores its rows in one of them.
//!
//! A layer does not know what a row means. The caller excludes concurrent writes, flushes and ingestions; reads run at any time.

mod lsm;
#[cfg(feature = "rocksdb")]
mod rocks;
pub(crate) mod stored_format;

use crate::engine_dir::EngineDir;
use crate::error::OpenError;
use crate::options::{EngineOptions, TableLayer};
use crate::row::Changes;
use bytes::Bytes;
use lsm::Lsm;
use meta::{EngineError, KeyRange};
use std::sync::Arc;

/// Rows in one of the layers.
#[allow(clippy::large_enum_variant, reason = "there is one per engine")]
pub(crate) enum Layer {
    #[cfg(feature = "rocksdb")]
    Rocks(rocks::Database),
    Lsm(Lsm),
}

impl Layer {
    /// Opens the layer whose files the directory has, or creates one if `is_new`. With a journal the layer has no write-ahead log of its own.
    #[cfg_attr(not(feature = "rocksdb"), expect(unused_variables, reason = "RocksDB needs to know"))]
    pub(crate) fn open(
        dir: &EngineDir,
        options: &EngineOptions,
        is_new: bool,
        is_journaled: bool,
    ) -> Result<Self, OpenError> {
        let cache_bytes = options.cache_bytes();
        match dir.layer().unwrap_or(options.layer) {
            TableLayer::Lsm => Ok(Self::Lsm(Lsm::open(&dir.lsm_path(), cache_bytes, is_new)?)),
            #[cfg(feature = "rocksdb")]
            TableLayer::RocksDb => {
                Ok(Self::Rocks(rocks::Database::open(dir, cache_bytes, is_new, is_journaled)?))
            }
            #[cfg(not(feature = "rocksdb"))]
            TableLayer::RocksDb => Err(OpenError::NoRocksDb(dir.root().to_owned())),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.get(key),
            Self::Lsm(tree) => tree.get(key),
        }
    }

    /// Returns the rows of keys in one state of the layer.
    pub(crate) fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.multi_get(keys),
            Self::Lsm(tree) => tree.multi_get(keys),
        }
    }

    /// Returns a cursor over the present state, up to a key. It has no row until it is moved to a key.
    pub(crate) fn cursor(&self, to: Option<Vec<u8>>) -> Cursor<'_> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => Cursor::Rocks(database.cursor(to)),
            Self::Lsm(tree) => Cursor::Lsm(tree.cursor(to)),
        }
    }

    /// Returns the last row of a range, whose end lies behind its start; `None` if it has no row.
    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.last(range),
            Self::Lsm(tree) => tree.last(range),
        }
    }

    /// Returns a view that no later write changes.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Snapshot {
        match &**self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(_) => Snapshot::Rocks(rocks::Snapshot::new(self.clone())),
            Self::Lsm(tree) => Snapshot::Lsm(tree.snapshot()),
        }
    }

    /// Publishes changes and removes a range, both at once. Unless `is_logged`, they survive a crash only with the next
    /// [`flush`](Self::flush).
    pub(crate) fn write(
        &self,
        changes: Changes,
        removed_range: Option<&KeyRange>,
        is_logged: bool,
    ) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.write(&changes, removed_range, is_logged),
            Self::Lsm(tree) => tree.write(changes, removed_range, is_logged),
        }
    }

    /// Begins a table file. Writes may run meanwhile.
    pub(crate) fn begin_table(&self) -> Result<NewTable<'_>, EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.begin_table().map(NewTable::Rocks),
            Self::Lsm(tree) => tree.begin_table().map(|table| NewTable::Lsm(Box::new(table))),
        }
    }

    /// Returns whether [`ingest`](Self::ingest) makes all earlier writes durable, too. Otherwise they must be durable before.
    pub(crate) fn makes_all_durable(&self) -> bool {
        matches!(self, Self::Lsm(_))
    }

    /// Publishes table files, oldest first, and newer changes, all at once. They are durable when this returns.
    pub(crate) fn ingest(&self, tables: &[FinishedTable], changes: &Changes) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.ingest(tables, changes),
            Self::Lsm(tree) => tree.ingest(tables, changes),
        }
    }

    /// Begins to write the rows in memory to table files, unless it has begun.
    pub(crate) fn begin_flush(&self) -> Result<(), EngineError> {
        match self {
            // With RocksDB, `finish_flush` both begins and ends the flush.
            #[cfg(feature = "rocksdb")]
            Self::Rocks(_) => Ok(()),
            Self::Lsm(tree) => tree.begin_flush_unless_running(),
        }
    }

    /// Waits until the rows that [`begin_flush`](Self::begin_flush) found are in table files. Writes may run meanwhile.
    pub(crate) fn finish_flush(&self) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.flush(0),
            Self::Lsm(tree) => tree.finish_flush(),
        }
    }

    /// Makes all logged writes durable.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.sync(),
            Self::Lsm(tree) => tree.sync(),
        }
    }

    /// Fails if the layer would refuse a write because the disk was full.
    pub(crate) fn prepare_write(&self) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.resume_if_full(),
            Self::Lsm(_) => Ok(()),
        }
    }

    /// Returns whether rows that are in no log take as much memory as they may, so that they should be flushed.
    pub(crate) fn is_memory_full(&self) -> bool {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(_) => false,
            Self::Lsm(tree) => tree.is_memtable_full(),
        }
    }

    /// Writes all rows to table files, which are durable when this returns. `unflushed_bytes` is the length of the rows.
    #[cfg_attr(not(feature = "rocksdb"), expect(unused_variables, reason = "RocksDB needs to know"))]
    pub(crate) fn flush(&self, unflushed_bytes: u64) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.flush(unflushed_bytes),
            Self::Lsm(tree) => tree.flush(),
        }
    }

    /// Cuts the layer's own log where a loss of power tore it; fails if the log is damaged. `is_synced` says whether commits that are not in
    /// the layer were synced, if that is known.
    pub(crate) fn settle_log_end(&self, is_synced: Option<bool>) -> Result<(), EngineError> {
        match self {
            // RocksDB does so while it opens a database.
            #[cfg(feature = "rocksdb")]
            Self::Rocks(_) => Ok(()),
            Self::Lsm(tree) => tree.settle_log_end(is_synced),
        }
    }

    /// Makes the rows durable that opening the layer has recovered from its log.
    pub(crate) fn flush_recovered(&self) -> Result<(), EngineError> {
        match self {
            // RocksDB does so while it opens a database.
            #[cfg(feature = "rocksdb")]
            Self::Rocks(_) => Ok(()),
            Self::Lsm(tree) => tree.flush(),
        }
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(database) => database.memory_bytes(),
            Self::Lsm(tree) => tree.memory_bytes(),
        }
    }
}

/// A table file that is being written. It is deleted unless it is finished.
pub(crate) enum NewTable<'a> {
    #[cfg(feature = "rocksdb")]
    Rocks(rocks::NewTable<'a>),
    Lsm(Box<lsm::NewRunTable<'a>>),
}

impl NewTable<'_> {
    /// Adds a row, or a tombstone. Keys ascend.
    pub(crate) fn add(&mut self, key: &[u8], row: Option<&[u8]>) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(table) => table.add(key, row),
            Self::Lsm(table) => table.add(key, row),
        }
    }

    /// Makes the table durable. It must have entries.
    pub(crate) fn finish(self) -> Result<FinishedTable, EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(table) => table.finish().map(FinishedTable::Rocks),
            Self::Lsm(table) => table.finish().map(FinishedTable::Lsm),
        }
    }
}

/// A table file that readers do not see yet. It is deleted unless it is published.
pub(crate) enum FinishedTable {
    #[cfg(feature = "rocksdb")]
    Rocks(rocks::FinishedTable),
    Lsm(lsm::FinishedTable),
}

/// A cursor over the rows of a layer or a snapshot, in ascending order of keys.
pub(crate) enum Cursor<'a> {
    #[cfg(feature = "rocksdb")]
    Rocks(rocks::Cursor<'a>),
    Lsm(lsm::Cursor<'a>),
}

impl Cursor<'_> {
    /// Moves to a key, or to the next key if it does not exist.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(cursor) => cursor.seek(key),
            Self::Lsm(cursor) => cursor.seek(key),
        }
    }

    pub(crate) fn next(&mut self) {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(cursor) => cursor.next(),
            Self::Lsm(cursor) => cursor.next(),
        }
    }

    /// Returns the current row; `None` at the end.
    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(cursor) => cursor.item(),
            Self::Lsm(cursor) => cursor.item(),
        }
    }

    /// Fails if the iteration ended because of an error.
    pub(crate) fn finish(self) -> Result<(), EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(cursor) => cursor.finish(),
            Self::Lsm(cursor) => cursor.finish(),
        }
    }
}

/// A view of a layer that no later write changes.
pub(crate) enum Snapshot {
    #[cfg(feature = "rocksdb")]
    Rocks(rocks::Snapshot),
    Lsm(lsm::Snapshot),
}

impl Snapshot {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(snapshot) => snapshot.get(key),
            Self::Lsm(snapshot) => snapshot.get(key),
        }
    }

    /// Returns a cursor up to a key. It has no row until it is moved to a key.
    pub(crate) fn cursor(&self, to: Option<Vec<u8>>) -> Cursor<'_> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(snapshot) => Cursor::Rocks(snapshot.cursor(to)),
            Self::Lsm(snapshot) => Cursor::Lsm(snapshot.cursor(to)),
        }
    }

    /// Returns the last row of a range, whose end lies behind its start; `None` if it has no row.
    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        match self {
            #[cfg(feature = "rocksdb")]
            Self::Rocks(snapshot) => snapshot.last(range),
            Self::Lsm(snapshot) => snapshot.last(range),
        }
    }
}
