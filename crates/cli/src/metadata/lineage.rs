//! The identity of metadata in its backups: of a state directory, or of a volume's part of a database.
//!
//! Invariant: two state directories, or parts of databases, have the same `holder` only if one is a copy of the other. Restored metadata has
//! the lineage of its backup and a holder of its own.

use crate::metadata::Metadata;
use crate::process::files;
use anyhow::{Context, Result, bail};
use backup::Lineage;
use meta::{Commit, CommitError, Condition, Engine, Ino, schema};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use store::Entropy;

/// File with the lineage and the holder, in hexadecimal.
const LINEAGE_FILE: &str = "meta.lineage";

/// The identity of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The backup that the metadata continues.
    pub(crate) lineage: Lineage,
    /// Random number of the state directory or the part of a database.
    pub(crate) holder: u64,
}

impl Identity {
    /// Returns the identity of metadata that continues a lineage.
    pub(crate) fn continuing(lineage: Lineage, entropy: &Entropy) -> Self {
        Self { lineage, holder: entropy.next_u64() }
    }

    /// Returns the identity of metadata without a backup.
    pub(crate) fn new(entropy: &Entropy) -> Self {
        Self::continuing(Lineage(entropy.next_u64()), entropy)
    }

    /// Reads the identity of a state directory; `None` if it has never been backed up.
    pub(crate) fn read(state_root: &Path) -> Result<Option<Self>> {
        let path = state_root.join(LINEAGE_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        match Self::parse(&text) {
            Some(identity) => Ok(Some(identity)),
            None => bail!("{} is damaged; remove it to begin a new backup", path.display()),
        }
    }

    /// Reads the identity of metadata, in a database or in this state directory; `None` if it has never been backed up. Blocks.
    pub(crate) fn of(metadata: &Metadata, state_root: &Path) -> Result<Option<Self>> {
        match metadata {
            Metadata::Disk(_) => Self::read(state_root),
            Metadata::Database(engine) => Self::read_from(engine.as_ref()),
        }
    }

    /// Reads the identity of metadata in a database.
    fn read_from(engine: &dyn Engine) -> Result<Option<Self>> {
        let Some(found) = engine.get_newest(&backup::identity_key())? else {
            return Ok(None);
        };
        let identity = std::str::from_utf8(&found.value).ok().and_then(Self::parse);
        identity.map(Some).context("the identity of the backup in the database is damaged")
    }

    /// Parses lineage and holder.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|number| u64::from_str_radix(number, 16));
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(lineage)), Some(Ok(holder)), None) => Some(Self { lineage: Lineage(lineage), holder }),
            _ => None,
        }
    }

    fn text(&self) -> String {
        format!("{} {:016x}", self.lineage, self.holder)
    }

    /// Returns the identity of metadata, which is made at its first backup. Blocks.
    pub(crate) fn of_or_new(metadata: &Metadata, state_root: &Path, entropy: &Entropy) -> Result<Self> {
        if let Some(known) = Self::of(metadata, state_root)? {
            return Ok(known);
        }
        let new = Self::new(entropy);
        match metadata {
            Metadata::Disk(_) => new.write(state_root)?,
            Metadata::Database(engine) => {
                let key = backup::identity_key();
                let conditions = vec![
                    Condition::Absent { key: key.clone() },
                    Condition::Present { key: schema::inode(Ino::ROOT) },
                ];
                let puts = vec![(key, new.text().into_bytes().into())];
                match engine.commit(Commit { conditions, puts, ..Commit::default() }) {
                    Ok(_) => {}
                    // Another mount has made it, or the volume has no root yet.
                    Err(CommitError::Conflict) => {
                        return Self::read_from(engine.as_ref())?.context("the volume has no root yet");
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(new)
    }

    /// Replaces the identity of metadata in a database that was loaded or restored; `None` for metadata without a backup.
    pub(crate) fn replace_in(engine: &dyn Engine, identity: Option<Self>) -> Result<()> {
        let key = backup::identity_key();
        let mut commit = Commit::default();
        match identity {
            Some(identity) => commit.puts.push((key, identity.text().into_bytes().into())),
            None => commit.deletes.push(key),
        }
        engine.commit(commit)?;
        Ok(())
    }

    /// Writes the identity durably.
    pub(crate) fn write(&self, state_root: &Path) -> Result<()> {
        let path = state_root.join(LINEAGE_FILE);
        files::write_durably(&path, &self.text()).with_context(|| format!("cannot write {}", path.display()))
    }
}
