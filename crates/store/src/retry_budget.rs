//! One retry budget for all store calls of an operation.
//!
//! Each call alone would have the whole budget, so that an operation of two calls waited twice for a store that does
//! not answer. Therefore the time that a failed call has spent is subtracted from the budget of the operation's later
//! calls, until one succeeds. An operation may make calls for hours: only time spent on failed calls counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

tokio::task_local! {
    static SPENT: Arc<Mutex<Duration>>;
}

/// Runs an operation whose store calls share one retry budget. Tasks that it spawns have their own budgets.
pub async fn share_budget<F: Future>(work: F) -> F::Output {
    SPENT.scope(Arc::default(), work).await
}

/// Returns the time that calls of this operation have spent on failures.
pub fn spent() -> Duration {
    SPENT.try_with(|spent| *spent.lock().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
}

/// Sets the time spent by a call that gave up, or zero after a success.
pub fn set_spent(time: Duration) {
    // Outside an operation there is no budget to share.
    SPENT.try_with(|spent| *spent.lock().unwrap_or_else(PoisonError::into_inner) = time).ok();
}
