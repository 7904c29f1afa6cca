//! The positions of a group in a topic: a file `kafka-TOPIC@GROUP.json`, an object that maps each partition to the offset of its first
//! unprocessed record. The file is replaced atomically and is on disk before an acknowledgement returns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The offset of each partition.
type Offsets = BTreeMap<i32, i64>;

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
    pub(super) async fn read(&self) -> Result<Offsets, String> {
        let path = self.0.display();
        match tokio::fs::read(&self.0).await {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| {
                format!(
                    "{path} is damaged: delete it; all records that Kafka still has are then delivered again"
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Offsets::new()),
            Err(error) => Err(format!("cannot read {path}: {error}")),
        }
    }

    /// Stores these positions durably.
    ///
    /// # Errors
    /// A text that names the file.
    pub(super) async fn write(&self, offsets: &Offsets) -> Result<(), String> {
        let text = serde_json::to_vec(offsets).map_err(|error| error.to_string())?;
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
