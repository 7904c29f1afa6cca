//! Sessions: open engines, as the database knows them.

use crate::applied::Outcome;
use meta::{EngineError, Seqno};
use std::time::Duration;

/// Interval at which an idle session shows that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Seconds after its last sign of life in which a session keeps others from exclusive access, or has it.
pub const LEASE_S: i64 = 30;

/// Seconds without a sign of life after which a session without exclusive access counts as ended. Its files that were open without a name are
/// then removed.
pub const SILENCE_S_MAX: i64 = 300;

/// The number of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionId(pub i64);

/// A session as the database has it, which describes its last group, and the head of the volume at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionState {
    /// A number that increases whenever the session is resumed on a connection. Only transactions of the last connection are applied.
    pub generation: i64,
    /// The number of the last group.
    pub last_group: i64,
    /// The outcome of the last group.
    pub outcome: Outcome,
    /// The newest commit.
    pub head: Seqno,
}

/// Returns the error of a session whose first commits the database has lost.
pub(crate) fn rolled_back() -> EngineError {
    EngineError::Unavailable(
        "the database has come back with a state from before this mount: unmount the volume and mount it again".into(),
    )
}

/// Returns the error of a session that may no longer commit.
pub fn ended() -> EngineError {
    EngineError::Unavailable(
        "another process has taken the volume over, or its tables were replaced: unmount it and mount it again".into(),
    )
}
