//! The settings of an engine.

use meta::LogCap;
use std::time::Duration;

/// Settings of an engine. They are not part of the format and may differ at each opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Memory for cached blocks and unflushed rows together, in bytes. At least 8 MiB are used. RocksDB with a journal uses memory for
    /// unflushed rows in addition.
    pub cache_bytes: usize,
    /// Limits of the op log.
    pub log_cap: LogCap,
    /// Maximum time from a commit until the engine starts to sync it by itself.
    pub sync_interval: Duration,
    /// Whether to open an engine if a record of the journal is missing. The engine then has the state before the missing record, and
    /// all later records are dropped. Otherwise opening fails.
    pub ends_at_gap: bool,
    /// The table layer of a new engine. An engine that exists keeps its layer.
    pub layer: TableLayer,
}

/// The library that stores an engine's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableLayer {
    /// RocksDB, in builds with the feature `rocksdb`.
    RocksDb,
    /// An LSM tree of sorted tables in pure Rust.
    Lsm,
}

impl Default for TableLayer {
    /// Returns RocksDB in builds that include it, else the LSM tree.
    fn default() -> Self {
        if cfg!(feature = "rocksdb") { Self::RocksDb } else { Self::Lsm }
    }
}

/// Ops that the log keeps for followers without a registered cursor, whose state does not outlive the process. A follower that is
/// further behind has to drop all that it derived. At about 100 bytes each they cost little.
const LOG_TAIL_OPS: usize = 16 << 10;

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            log_cap: LogCap { tail_ops: LOG_TAIL_OPS, ..LogCap::default() },
            sync_interval: Duration::from_millis(5),
            ends_at_gap: false,
            layer: TableLayer::default(),
        }
    }
}

const CACHE_BYTES_MIN: usize = 8 << 20;

impl EngineOptions {
    /// Returns the memory to use, in bytes.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.cache_bytes.max(CACHE_BYTES_MIN)
    }
}
