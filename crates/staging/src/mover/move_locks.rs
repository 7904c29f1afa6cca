//! Locks of the moves that are being executed, and pauses of moves that are about to end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{KeyLock, KeyedLocks};
use tokio::sync::Notify;

/// Locks by the number of a move.
#[derive(Debug, Default)]
pub(super) struct MoveLocks {
    executions: KeyedLocks<u64>,
    /// For each paused move, how many callers pause it.
    pauses: Mutex<BTreeMap<u64, usize>>,
    /// Notified when a pause ends.
    resumed: Notify,
}

/// A move that is not executed until this guard is dropped.
#[derive(Debug)]
pub(super) struct PausedMove<'l> {
    _execution: KeyLock<'l, u64>,
    _pause: Pause<'l>,
}

/// Pauses a move until it is dropped, except for the requests that an execution in progress has sent.
#[derive(Debug)]
struct Pause<'l> {
    locks: &'l MoveLocks,
    number: u64,
}

impl MoveLocks {
    /// Waits until a move is neither executed nor paused, and locks it for its execution.
    pub(super) async fn lock(&self, number: u64) -> KeyLock<'_, u64> {
        loop {
            let resumed = self.resumed.notified();
            if !self.is_paused(number) {
                let execution = self.executions.lock(&number).await;
                if !self.is_paused(number) {
                    return execution;
                }
            }
            resumed.await;
        }
    }

    /// Pauses a move: an execution in progress ends after the requests that it has sent, and no other one begins.
    pub(super) async fn pause(&self, number: u64) -> PausedMove<'_> {
        *self.pauses().entry(number).or_default() += 1;
        let pause = Pause { locks: self, number };
        PausedMove { _execution: self.executions.lock(&number).await, _pause: pause }
    }

    /// Returns whether a move is paused, or its execution has to end because a caller waits to pause it.
    pub(super) fn is_paused(&self, number: u64) -> bool {
        self.pauses().contains_key(&number)
    }

    fn pauses(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut pauses = self.locks.pauses();
        let callers = pauses.remove(&self.number).unwrap_or_default();
        if callers > 1 {
            pauses.insert(self.number, callers - 1);
        }
        drop(pauses);
        self.locks.resumed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use std::pin::pin;

    #[tokio::test]
    async fn waiting_for_an_execution_does_not_pause_it() {
        let locks = MoveLocks::default();
        let first = locks.lock(1).await;
        let mut second = pin!(locks.lock(1));
        assert!(poll!(&mut second).is_pending());
        assert!(!locks.is_paused(1));
        drop(first);
        second.await;
    }

    #[tokio::test]
    async fn a_paused_move_is_executed_once_all_its_pauses_have_ended() {
        let locks = MoveLocks::default();
        let execution = locks.lock(1).await;
        let mut pause = pin!(locks.pause(1));
        assert!(poll!(&mut pause).is_pending());
        assert!(locks.is_paused(1));
        let mut next = pin!(locks.lock(1));
        assert!(poll!(&mut next).is_pending());
        let mut second_pause = pin!(locks.pause(1));
        assert!(poll!(&mut second_pause).is_pending());
        drop(execution);
        assert!(poll!(&mut next).is_pending());
        drop(pause.await);
        assert!(poll!(&mut next).is_pending());
        drop(second_pause.await);
        assert!(!locks.is_paused(1));
        next.await;
    }
}
