//! The positions of a group in a topic: a file `kafka-TOPIC@GROUP.json`, an object that maps each partition to the offset of its first
//! unprocessed record and the fingerprint of the record before it. The file is replaced atomically and is on disk before an acknowledgement
//! returns.

use rskafka::record::RecordAndOffset;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The position in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredPosition")]
pub(super) struct Position {
    /// Offset of the first unprocessed record.
    pub(super) next: i64,
    /// Fingerprint of the record before it, by which a topic that was deleted and created again is recognized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<u64>,
}

/// A position as files contain it. Files of earlier builds have only the offset.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredPosition {
    Offset(i64),
    Position { next: i64, last: Option<u64> },
}

impl From<StoredPosition> for Position {
    fn from(stored: StoredPosition) -> Self {
        match stored {
            StoredPosition::Offset(next) => Self { next, last: None },
            StoredPosition::Position { next, last } => Self { next, last },
        }
    }
}

impl Position {
    /// Returns the position after a record.
    pub(super) fn after(record: &RecordAndOffset) -> Self {
        Self { next: record.offset + 1, last: Some(fingerprint(record)) }
    }

    /// Returns whether a record is not the one before this position, although it has its offset.
    pub(super) fn contradicts(&self, record: &RecordAndOffset) -> bool {
        record.offset + 1 == self.next && self.last.is_some_and(|last| last != fingerprint(record))
    }
}

/// Returns a hash (FNV-1a) of a record's time, key and value.
fn fingerprint(record: &RecordAndOffset) -> u64 {
    let time = record.record.timestamp.timestamp_millis().to_be_bytes();
    let parts = [Some(&time[..]), record.record.key.as_deref(), record.record.value.as_deref()];
    let bytes = parts.iter().flat_map(|part| {
        let len = part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes();
        len.into_iter().chain(part.unwrap_or_default().iter().copied())
    });
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The position in each partition.
pub(super) type PartitionPositions = BTreeMap<i32, Position>;

/// The file of a group's positions in a topic.
#[derive(Debug)]
pub(super) struct Positions(PathBuf);

impl Positions {
    /// Returns the positions of a group, stored in the directory `dir`. Neither name contains an `@`.
    pub(super) fn of(dir: &Path, topic: &str, group: &str) -> Self {
        Self(dir.join(format!("kafka-{topic}@{group}.json")))
    }

    /// Reads the stored positions; empty if there is no file.
    ///
    /// # Errors
    /// A text that states the remedy.
    pub(super) async fn read(&self) -> Result<PartitionPositions, String> {
        let path = self.0.display();
        match tokio::fs::read(&self.0).await {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| {
                format!(
                    "{path} is damaged: delete it; all records that Kafka still has are then delivered again"
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PartitionPositions::new()),
            Err(error) => Err(format!("cannot read {path}: {error}")),
        }
    }

    /// Stores these positions durably.
    ///
    /// # Errors
    /// A text that names the file.
    pub(super) async fn write(&self, positions: &PartitionPositions) -> Result<(), String> {
        let text = serde_json::to_vec(positions).map_err(|error| error.to_string())?;
        let path = self.0.clone();
        let kept = tokio::task::spawn_blocking(move || replace_file(&path, &text)).await;
        let kept = kept.map_err(io::Error::other).flatten();
        kept.map_err(|error| format!("cannot write the positions to {}: {error}", self.0.display()))
    }
}

fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn positions_of_earlier_builds_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let positions = Positions::of(folder.path(), "events", "views");
        std::fs::write(folder.path().join("kafka-events@views.json"), r#"{"0":10,"2":7}"#).unwrap();
        let of = |next, last| Position { next, last };
        let mut read = positions.read().await.unwrap();
        assert_eq!(read, PartitionPositions::from([(0, of(10, None)), (2, of(7, None))]));
        read.insert(2, of(8, Some(u64::MAX)));
        positions.write(&read).await.unwrap();
        assert_eq!(positions.read().await.unwrap(), read);
    }
}
