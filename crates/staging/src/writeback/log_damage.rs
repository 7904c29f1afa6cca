//! Losses that damage of the disk caused.

use super::log_record::{self, Record};
use super::replay::Replayed;
use log::segmented;
use std::path::Path;
use store::ObjectKey;

/// Losses that damage of the disk caused in a log, as found when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogDamage {
    /// Number of damaged ranges of the log.
    pub ranges: usize,
    /// Total length of the damaged ranges in bytes.
    pub bytes: u64,
    /// Keys of changes whose record or bytes were in a damaged range, as far as they are known.
    pub keys: Vec<ObjectKey>,
    /// Number of damaged segments that are not needed any more, kept as `*.damaged` in the log's directory.
    pub files: usize,
}

impl LogDamage {
    /// Logs and returns what was lost.
    pub(super) fn of(dir: &Path, found: &Replayed) -> Self {
        let mut keys = found.lost.clone();
        for damage in &found.damages {
            let record = damage.header.as_deref().and_then(log_record::decode);
            let key = match &record {
                Some(Record::Put { key, .. } | Record::Delete { key, .. }) => Some(key.clone()),
                _ => None,
            };
            let (dir, key_shown) = (dir.display(), key.as_ref().map(ToString::to_string));
            tracing::error!(%dir, segment = damage.segment, range = ?damage.range, key = key_shown,
                "the write-back log is damaged here; reading continues behind the damage, and the segment is kept");
            keys.extend(key);
        }
        for key in &found.lost {
            tracing::error!(%key, "a change is lost: some of its bytes were in a damaged part of the write-back log");
        }
        let bytes = found.damages.iter().map(|damage| damage.range.end - damage.range.start).sum();
        Self { ranges: found.damages.len(), bytes, keys, files: segmented::damaged_files(dir) }
    }
}
