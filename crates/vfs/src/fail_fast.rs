//! A semaphore whose waiters fail together when the store does not answer.
//!
//! Listings, uploads and memory for uploads are limited, so callers queue. While the store does not answer, each piece of work
//! takes the whole retry time of a request; if each caller tried in its turn, the tenth would wait ten times as long.
//!
//! Invariant: a caller waits for at most two rounds of work that end without an answer: the work in progress when it arrived,
//! and the work that began after that.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::StoreError;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Error;

/// A semaphore for work on the store.
#[derive(Debug)]
pub(crate) struct FailFastSemaphore {
    /// Permits for work at the same time.
    permits: Semaphore,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    /// Number of pieces of work that have begun.
    started: u64,
    /// The number of the last piece of work that ended without an answer, and its error.
    last_unanswered: Option<(u64, String)>,
}

/// An error that can mean that the store did not answer.
pub(crate) trait Unanswered: From<StoreError> + Display {
    /// Returns whether the store gave no usable answer during all retries.
    fn gave_no_usable_answer(&self) -> bool;
}

impl Unanswered for StoreError {
    fn gave_no_usable_answer(&self) -> bool {
        self.is_retryable()
    }
}

impl Unanswered for Error {
    fn gave_no_usable_answer(&self) -> bool {
        matches!(self, Self::Store(error) if error.gave_no_usable_answer())
    }
}

/// The part of a semaphore's permits that one client may hold at once, so that clients whose work stalls leave some to others.
#[derive(Debug)]
pub(crate) struct Share {
    permits: Semaphore,
    size: u32,
}

impl Share {
    /// Creates the share of a client that may hold `size` permits; work that needs more runs alone in its share.
    pub(crate) fn of(size: u32) -> Self {
        Self { permits: Semaphore::new(size as usize), size }
    }
}

/// A semaphore with one permit.
impl Default for FailFastSemaphore {
    fn default() -> Self {
        Self::with_permits(1)
    }
}

impl FailFastSemaphore {
    /// Creates a semaphore with this many permits.
    pub(crate) fn with_permits(permits: usize) -> Self {
        Self { permits: Semaphore::new(permits), history: Mutex::default() }
    }

    /// Waits for a permit, then runs `work` (best boxed, as futures of this crate are large). Fails without running it if work
    /// that began after this call ended without an answer from the store.
    pub(crate) async fn run<T, E: Unanswered>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let called_after = self.history().started;
        self.run_since(called_after, 1, work).await
    }

    /// Like `run`, for work that needs several permits, of which the client of this `share` may hold only so many at once.
    pub(crate) async fn run_with_permits<T, E: Unanswered>(
        &self,
        permits: u32,
        share: &Share,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let called_after = self.history().started;
        // The semaphores are never closed. A client waits for its share first, so that others can take the permits meanwhile.
        let _share = share.permits.acquire_many(permits.min(share.size)).await.ok();
        self.run_since(called_after, permits, work).await
    }

    /// Runs work of a caller that came when `called_after` pieces of work had begun.
    async fn run_since<T, E: Unanswered>(
        &self,
        called_after: u64,
        permits: u32,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let _permits = self.permits.acquire_many(permits).await.ok();
        let number = {
            let mut history = self.history();
            if let Some((number, why)) =
                history.last_unanswered.as_ref().filter(|(number, _)| *number > called_after)
            {
                tracing::debug!(
                    number,
                    "the store did not answer earlier work of this queue; failing without a request"
                );
                return Err(StoreError::Unavailable(why.clone()).into());
            }
            history.started += 1;
            history.started
        };
        let outcome = work.await;
        if let Some(error) = outcome.as_ref().err().filter(|error| error.gave_no_usable_answer()) {
            self.history().last_unanswered = Some((number, error.to_string()));
        }
        outcome
    }

    /// Blocks new work of a semaphore with one permit until the returned permit is dropped; `None` if work is in
    /// progress.
    pub(crate) fn try_block(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    const RETRY_TIME: Duration = Duration::from_secs(30);

    async fn never_answered() -> Result<()> {
        sleep(RETRY_TIME).await;
        Err(StoreError::Unavailable("down".into()).into())
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_share_a_failure() {
        let queue = FailFastSemaphore::default();
        let began = Instant::now();
        let calls = (0..10_u64).map(|n| {
            let queue = &queue;
            async move {
                sleep(Duration::from_secs(n)).await;
                queue.run(never_answered()).await
            }
        });
        let outcomes = futures_util::future::join_all(calls).await;
        assert!(outcomes.iter().all(Result::is_err));
        assert_eq!(began.elapsed(), 2 * RETRY_TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn later_callers_try_again() {
        let queue = FailFastSemaphore::default();
        queue.run(never_answered()).await.unwrap_err();
        queue.run(async { Ok::<(), Error>(()) }).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_for_several_permits_share_a_failure() {
        let queue = FailFastSemaphore::with_permits(3);
        let share = Share::of(2);
        let began = Instant::now();
        let outcomes = futures_util::future::join_all(
            (0..100).map(|n| queue.run_with_permits(1 + n % 3, &share, never_answered())),
        )
        .await;
        assert!(outcomes.iter().all(Result::is_err));
        assert!(began.elapsed() <= 2 * RETRY_TIME, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_stalls_leaves_the_permits_beyond_its_share() {
        let queue = FailFastSemaphore::with_permits(4);
        let (stalled, other) = (Share::of(2), Share::of(2));
        let stalls = (0..10)
            .map(|n| queue.run_with_permits(1 + n % 3, &stalled, std::future::pending::<Result<()>>()));
        let mut stalls = std::pin::pin!(futures_util::future::join_all(stalls));
        assert!(futures_util::poll!(&mut stalls).is_pending());
        let answered = queue.run_with_permits(2, &other, async { Ok::<_, Error>(7) });
        assert_eq!(tokio::time::timeout(Duration::from_secs(1), answered).await.unwrap().unwrap(), 7);
    }
}
