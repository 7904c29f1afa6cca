//! Removal of single entries.

use super::entry::Entry;
use super::location::{Location, object_key};
use anyhow::{Context as _, Result};
use std::fs;
use std::io::ErrorKind;
use store::Precondition;

/// Removes an entry of a tree: a file, an object, or an empty directory. An entry that is gone already is not an error.
pub(crate) async fn remove_entry(root: &Location, entry: &Entry) -> Result<()> {
    match root.join(&entry.path) {
        Location::Path(path) => {
            let is_directory = entry.is_directory();
            let remove = move || {
                let removed = if is_directory { fs::remove_dir(&path) } else { fs::remove_file(&path) };
                match removed {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        Err(error).with_context(|| format!("cannot remove {}", path.display()))
                    }
                    _ => Ok(()),
                }
            };
            tokio::task::spawn_blocking(remove).await?
        }
        Location::Objects { store, mut directory, .. } => {
            if entry.is_directory() {
                directory.push(b'/');
            }
            let key = object_key(&directory)?;
            store.delete(&key, Precondition::None).await.with_context(|| format!("cannot remove '{key}'"))
        }
    }
}
