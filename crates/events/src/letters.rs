//! A file of dead letters: a line for each message that could not be delivered or read.

use std::io;
use std::path::Path;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

/// The longest file of dead letters.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Adds a line, which ends with a line feed. The file is made when there is something to write; only who owns it can read it.
pub(crate) async fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options.create(true).append(true).mode(0o600).open(path).await?;
    if file.metadata().await?.len() + line.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("the file of dead letters is full; look at its lines and remove it"));
    }
    file.write_all(line).await?;
    file.flush().await
}
