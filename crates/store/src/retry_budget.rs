//! One retry budget for all store calls of one operation.
//!
//! Each call has the whole budget, so an operation of two calls waited twice for a store that does not answer. Time that a
//! call of an operation has spent before it gave up is gone for the later calls of that operation, until one succeeds. An
//! operation may make calls for hours: only time spent in vain counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

tokio::task_local! {
    static SPENT: Arc<Mutex<Duration>>;
}

/// Carries out an operation whose store calls share one retry budget. Tasks that it spawns have their own.
pub async fn share_budget<F: Future>(work: F) -> F::Output {
    SPENT.scope(Arc::default(), work).await
}

/// The time that calls of this operation have spent in vain.
pub(crate) fn spent() -> Duration {
    SPENT.try_with(|spent| *spent.lock().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
}

/// Notes how long a call that gave up has tried, or that one succeeded.
pub(crate) fn set_spent(time: Duration) {
    // Outside of operations there is nothing to note.
    SPENT.try_with(|spent| *spent.lock().unwrap_or_else(PoisonError::into_inner) = time).ok();
}
