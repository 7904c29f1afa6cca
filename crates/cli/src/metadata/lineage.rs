//! The identity of a state directory in the backups of its metadata.
//!
//! Invariant: two state directories have the same `holder` only if one is a copy of the other. A restored state directory has
//! the lineage of its backup and a holder of its own.

use crate::process::files;
use anyhow::{Context, Result, bail};
use backup::Lineage;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use store::Entropy;

/// File with the lineage and the holder, in hexadecimal.
const LINEAGE_FILE: &str = "meta.lineage";

/// The identity of a state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The backup that this state directory continues.
    pub(crate) lineage: Lineage,
    /// Random number of the state directory.
    pub(crate) holder: u64,
}

impl Identity {
    /// Returns the identity of a state directory that continues a lineage.
    pub(crate) fn continuing(lineage: Lineage, entropy: &Entropy) -> Self {
        Self { lineage, holder: entropy.next_u64() }
    }

    /// Returns the identity of a state directory without a backup.
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
        let mut numbers = text.split_whitespace().map(|number| u64::from_str_radix(number, 16));
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(lineage)), Some(Ok(holder)), None) => {
                Ok(Some(Self { lineage: Lineage(lineage), holder }))
            }
            _ => bail!("{} is damaged; remove it to begin a new backup", path.display()),
        }
    }

    /// Writes the identity durably.
    pub(crate) fn write(&self, state_root: &Path) -> Result<()> {
        let path = state_root.join(LINEAGE_FILE);
        files::write_durably(&path, &format!("{} {:016x}", self.lineage, self.holder))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
