//! Keys that have records in the log which a loss of power could take.
//!
//! A new object under a key without other records may be uploaded before its record is synced: if the log loses that
//! record, the bucket has the object and nothing in the log contradicts it.

use log::SegmentedLog;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use store::ObjectKey;

/// Maximum keys to remember. With more, every key counts as one with unsynced records until the next sync.
const KEYS_MAX: usize = 1 << 16;

/// Hashes of keys, and the length of the log after the newest record of each. Another key with the same hash costs a
/// sync.
#[derive(Debug, Default)]
pub(super) struct UnsyncedKeys {
    /// Length of the log after the newest record of a key, by the hash of the key.
    ends: HashMap<u64, u64>,
    /// Length of the log after the newest record that found no room in `ends`.
    overflow: u64,
}

impl UnsyncedKeys {
    /// Notes that a record of a key was appended.
    pub(super) fn note(&mut self, key: &ObjectKey, log: &SegmentedLog) {
        let appended = log.appended();
        if self.ends.len() >= KEYS_MAX {
            let synced = log.synced_bytes();
            self.ends.retain(|_, end| *end > synced);
        }
        if self.ends.len() < KEYS_MAX {
            self.ends.insert(hash(key), appended);
        } else {
            self.overflow = appended;
        }
    }

    /// Returns whether the loss of power could take a record of the key.
    pub(super) fn has(&self, key: &ObjectKey, log: &SegmentedLog) -> bool {
        let end = self.ends.get(&hash(key)).copied().unwrap_or(0);
        end.max(self.overflow) > log.synced_bytes()
    }
}

fn hash(key: &ObjectKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.as_bytes().hash(&mut hasher);
    hasher.finish()
}
