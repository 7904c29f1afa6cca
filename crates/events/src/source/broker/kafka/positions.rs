//! Up to where a group has processed a topic: a file `kafka-TOPIC@GROUP.json`, an object with the offset of the first record of each
//! partition that was not yet processed. It is replaced as a whole, and is on the disk before the acknowledgement is done.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Offsets of partitions.
type Offsets = BTreeMap<i32, i64>;

#[derive(Debug)]
pub(super) struct Positions(PathBuf);

impl Positions {
    /// Those of a group, in the directory `dir`. Neither name has an `@`.
    pub(super) fn of(dir: &Path, topic: &str, group: &str) -> Self {
        Self(dir.join(format!("kafka-{topic}@{group}.json")))
    }

    /// What was kept last; nothing if there is no such file.
    ///
    /// # Errors
    /// A text that says what to do.
    pub(super) async fn read(&self) -> Result<Offsets, String> {
        let path = self.0.display();
        match tokio::fs::read(&self.0).await {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|_| format!("{path} is damaged: delete it, and all that Kafka has comes again")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Offsets::new()),
            Err(error) => Err(format!("cannot read {path}: {error}")),
        }
    }

    /// Keeps these.
    ///
    /// # Errors
    /// A text that names the file.
    pub(super) async fn keep(&self, offsets: &Offsets) -> Result<(), String> {
        let text = serde_json::to_vec(offsets).map_err(|error| error.to_string())?;
        let path = self.0.clone();
        let kept = tokio::task::spawn_blocking(move || replace(&path, &text)).await;
        let kept = kept.map_err(io::Error::other).flatten();
        kept.map_err(|error| format!("cannot keep positions in {}: {error}", self.0.display()))
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
