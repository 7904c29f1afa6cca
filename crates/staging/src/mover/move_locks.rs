//! Locks of the moves that are being executed, and pauses of moves that are about to end.

use store::{KeyLock, KeyedLocks};

/// Locks by the number of a move.
#[derive(Debug, Default)]
pub(super) struct MoveLocks {
    executions: KeyedLocks<u64>,
    pauses: KeyedLocks<u64>,
}

/// A move that is not executed until this guard is dropped.
#[derive(Debug)]
pub(super) struct PausedMove<'l> {
    _execution: KeyLock<'l, u64>,
    _pause: KeyLock<'l, u64>,
}

impl MoveLocks {
    /// Waits until a move is neither executed nor paused, and locks it for its execution.
    pub(super) async fn lock(&self, number: u64) -> KeyLock<'_, u64> {
        drop(self.pauses.lock(&number).await);
        self.executions.lock(&number).await
    }

    /// Pauses a move: an execution in progress ends after the requests that it has sent, and no other one begins.
    pub(super) async fn pause(&self, number: u64) -> PausedMove<'_> {
        let pause = self.pauses.lock(&number).await;
        PausedMove { _execution: self.executions.lock(&number).await, _pause: pause }
    }

    /// Returns whether a move is paused, or its execution is about to end because it is to be paused.
    pub(super) fn is_paused(&self, number: u64) -> bool {
        self.pauses.is_locked(&number)
    }
}
