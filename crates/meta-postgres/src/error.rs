//! Errors: of opening an engine, and of statements by what the engine can do after them.

use meta::EngineError;
use tokio_postgres::error::SqlState;

/// The reason why an engine cannot be opened or made. Every message is one line and contains no secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The database cannot be reached, or refuses the user.
    #[error("cannot connect to the database at {host}: {reason}")]
    Connect {
        /// Host and port.
        host: String,
        /// The reason.
        reason: String,
    },
    /// The database has no metadata of this volume.
    #[error("the database has no metadata of this volume (schema '{0}')")]
    Missing(String),
    /// The database has metadata of this volume already.
    #[error("the database has metadata of this volume already (schema '{0}')")]
    Exists(String),
    /// A newer Tenon made or migrated the tables.
    #[error(
        "the tables in schema '{schema}' have version {found}, this Tenon knows version {known}: use a newer Tenon"
    )]
    Newer {
        /// The schema.
        schema: String,
        /// The version of the tables.
        found: i32,
        /// The newest version that this Tenon knows.
        known: i32,
    },
    /// Another process has the volume open.
    #[error(
        "the volume is in use by {holder}, which answered {seconds} s ago; it is free {timeout_s} s after its last answer"
    )]
    InUse {
        /// The description of the other process.
        holder: String,
        /// Seconds since it was last seen.
        seconds: i64,
        /// Seconds without an answer after which another process may open the volume.
        timeout_s: i64,
    },
    /// The I/O thread cannot be started.
    #[error("cannot start the I/O thread of the metadata engine: {0}")]
    Thread(std::io::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The failure of a statement or a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection is lost, or no answer came in time. What was sent may have been done.
    Lost(String),
    /// The database rolled the transaction back because of another one. It can be repeated.
    Aborted(String),
    /// A merge would give a record that is no record.
    Merge(String),
    /// The database refused the statement; nothing has changed.
    Refused(EngineError),
}

impl Failure {
    /// Returns the error for a caller whose statement changes nothing, or whose change has certainly not been made.
    pub(crate) fn into_engine_error(self) -> EngineError {
        match self {
            Self::Lost(reason) | Self::Aborted(reason) => EngineError::Unavailable(reason),
            Self::Merge(reason) => EngineError::Corrupt(reason),
            Self::Refused(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(answer) = error.as_db_error() else {
            return Self::Lost(describe(&error));
        };
        let reason = format!("the database answered: {}", one_line(answer.message()));
        let state = answer.code();
        match state.code().get(..2).unwrap_or_default() {
            _ if *state == SqlState::CHECK_VIOLATION || *state == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => {
                Self::Merge(
                    "a merge leaves the range of a record's number, or its record has no such number".into(),
                )
            }
            // Serialization failures and deadlocks.
            "40" => Self::Aborted(reason),
            // The server shuts down or starts, connection exceptions, and an idle session that was ended.
            "57" | "08" => Self::Lost(reason),
            _ if *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Self::Lost(reason),
            _ if *state == SqlState::DISK_FULL => Self::Refused(EngineError::Full(reason)),
            _ => Self::Refused(EngineError::Unavailable(reason)),
        }
    }
}

/// Returns the text of an error with its cause, as one line.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(_) => one_line(&format!("{error}: {}", connect::innermost(error))),
        None => one_line(&error.to_string()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
