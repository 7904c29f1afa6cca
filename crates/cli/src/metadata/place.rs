//! The place of a volume's names: a state directory, or a database.

use std::fmt;
use std::str::FromStr;
use vfs::VolumeRecord;

/// Text that stands for a state directory.
const LOCAL: &str = "local";

/// The place of the names of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// The state directory on this machine.
    StateDirectory,
    /// The database at a URL.
    Database(String),
}

impl Place {
    /// Returns the place that the record of a volume names.
    pub(crate) fn of(record: Option<&VolumeRecord>) -> Self {
        match record.and_then(|record| record.database.clone()) {
            Some(url) => Self::Database(url),
            None => Self::StateDirectory,
        }
    }

    /// Returns the URL of the database; `None` for a state directory.
    pub(crate) fn url(&self) -> Option<&str> {
        match self {
            Self::StateDirectory => None,
            Self::Database(url) => Some(url),
        }
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            LOCAL => Ok(Self::StateDirectory),
            url if url.contains("://") => Ok(Self::Database(url.to_owned())),
            _ => Err("give the URL of a database, postgres://… or redis://…, or `local`"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url().unwrap_or(LOCAL))
    }
}
