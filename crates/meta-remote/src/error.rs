//! Errors: of opening an engine, and of statements by what the engine can do after them.

use meta::EngineError;

/// The reason why an engine cannot be opened or made. Every message is one line and contains no secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The database cannot be reached or refuses the user, or the file of trusted certificates cannot be used.
    #[error("cannot connect to the database at {host}: {reason}")]
    Connect {
        /// Host and port.
        host: String,
        /// The reason.
        reason: String,
    },
    /// The database has no metadata of this volume.
    #[error("the database has no metadata of this volume ({0})")]
    Missing(String),
    /// The database has metadata of this volume already.
    #[error("the database has metadata of this volume already ({0})")]
    Exists(String),
    /// A newer Tenon made or migrated the tables.
    #[error(
        "the metadata in the database ({place}) has version {found}, this Tenon knows version {known}: use a newer Tenon"
    )]
    Newer {
        /// The volume's part of the database.
        place: String,
        /// The version of the tables.
        found: i32,
        /// The newest version that this Tenon knows.
        known: i32,
    },
    /// Another process has the volume open.
    #[error(
        "the volume is in use by {holder}, which was alive {seconds} s ago; it can be opened after {timeout_s} s without a sign of life"
    )]
    InUse {
        /// The description of the other process.
        holder: String,
        /// Seconds since its last sign of life: a commit, or the update that an idle session makes.
        seconds: i64,
        /// Seconds without a sign of life after which another process may open the volume.
        timeout_s: i64,
    },
    /// The server cannot keep metadata, or its settings would lose it.
    #[error("the database at {host} cannot keep the metadata of a volume: {reason}")]
    Unsuitable {
        /// Host and port.
        host: String,
        /// The reason, and what to change.
        reason: String,
    },
    /// The I/O thread cannot be started.
    #[error("cannot start the I/O thread of the metadata engine: {0}")]
    Thread(std::io::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The failure of a statement, a transaction, or repeated attempts at one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The connection is lost, or no answer came in time. What was sent may have been done.
    Lost(String),
    /// The database rolled the transaction back because of another one. It can be repeated.
    Aborted(String),
    /// A merge is impossible: its result is out of range, or the record has no numbers for it. Nothing has changed.
    Merge(String),
    /// Another attempt is of no use. Nothing has changed, unless the error is [`EngineError::Uncertain`].
    Refused(EngineError),
}

impl Failure {
    /// Returns whether one commit of a group may be to blame, so that the others may succeed without it.
    pub(crate) fn concerns_one_commit(&self) -> bool {
        matches!(self, Self::Merge(_) | Self::Refused(EngineError::Full(_)))
    }

    /// Returns the error for a caller whose statement changes nothing, or whose change has certainly not been made.
    pub fn into_engine_error(self) -> EngineError {
        match self {
            Self::Lost(reason) | Self::Aborted(reason) => EngineError::Unavailable(reason),
            Self::Merge(reason) => EngineError::Corrupt(reason),
            Self::Refused(error) => error,
        }
    }
}

/// Returns a text as one line.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
