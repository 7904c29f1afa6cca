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
pub(crate) struct Turns {
    permits: Semaphore,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    begun: u64,
    /// The number of the last piece of work that ended without an answer, and its error.
    silent: Option<(u64, String)>,
}

/// An error that can mean that the store did not answer.
pub(crate) trait Silence: From<StoreError> + Display {
    /// Returns whether the store gave no usable answer during all retries.
    fn is_silence(&self) -> bool;
}

impl Silence for StoreError {
    fn is_silence(&self) -> bool {
        self.is_retryable()
    }
}

impl Silence for Error {
    fn is_silence(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_silence())
    }
}

/// A semaphore with one permit.
impl Default for Turns {
    fn default() -> Self {
        Self::with_permits(1)
    }
}

impl Turns {
    /// Creates a semaphore with this many permits.
    pub(crate) fn with_permits(permits: usize) -> Self {
        Self { permits: Semaphore::new(permits), past: Mutex::default() }
    }

    /// Waits for a permit, then runs `work` (best boxed, as futures of this crate are large). Fails without running it if work
    /// that began after this call ended without an answer from the store.
    pub(crate) async fn take<T, E: Silence>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.take_permits(1, work).await
    }

    /// Like `take`, for work that needs several permits.
    pub(crate) async fn take_permits<T, E: Silence>(
        &self,
        permits: u32,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let called_after = self.past().begun;
        // The semaphore is never closed.
        let _permits = self.permits.acquire_many(permits).await.ok();
        let number = {
            let mut past = self.past();
            if let Some((number, why)) = past.silent.as_ref().filter(|(number, _)| *number > called_after) {
                tracing::debug!(
                    number,
                    "the store did not answer earlier work of this queue; failing without a request"
                );
                return Err(StoreError::Unavailable(why.clone()).into());
            }
            past.begun += 1;
            past.begun
        };
        let outcome = work.await;
        if let Some(error) = outcome.as_ref().err().filter(|error| error.is_silence()) {
            self.past().silent = Some((number, error.to_string()));
        }
        outcome
    }

    /// Blocks new work until the result is dropped; `None` if work is in progress.
    pub(crate) fn keep_out(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    const TURN: Duration = Duration::from_secs(30);

    async fn in_vain() -> Result<()> {
        sleep(TURN).await;
        Err(StoreError::Unavailable("down".into()).into())
    }

    #[tokio::test(start_paused = true)]
    async fn many_share_a_failure() {
        let turns = Turns::default();
        let began = Instant::now();
        let calls = (0..10_u64).map(|n| {
            let turns = &turns;
            async move {
                sleep(Duration::from_secs(n)).await;
                turns.take(in_vain()).await
            }
        });
        let outcomes = futures_util::future::join_all(calls).await;
        assert!(outcomes.iter().all(Result::is_err));
        assert_eq!(began.elapsed(), 2 * TURN);
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_later_tries_again() {
        let turns = Turns::default();
        turns.take(in_vain()).await.unwrap_err();
        turns.take(async { Ok::<(), Error>(()) }).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn many_share_a_failure_of_several_at_a_time() {
        let turns = Turns::with_permits(3);
        let began = Instant::now();
        let outcomes =
            futures_util::future::join_all((0..100).map(|n| turns.take_permits(1 + n % 3, in_vain()))).await;
        assert!(outcomes.iter().all(Result::is_err));
        assert!(began.elapsed() <= 2 * TURN, "{:?}", began.elapsed());
    }
}
