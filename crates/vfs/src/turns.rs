//! Work of which one attempt serves all who wait, and so does one failure.
//!
//! Who waits for the same look at the bucket, or for the same file to be stored, takes turns. While the store does not
//! answer each turn lasts as long as a call is repeated; if everybody took his own, the tenth would wait ten times as long.
//!
//! Invariant: nobody waits for more than two turns that end without an answer: the one under way, and one more.

use std::sync::{Mutex, MutexGuard, PoisonError};
use store::StoreError;

use crate::Result;

/// A queue for one piece of work.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: tokio::sync::Mutex<()>,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    begun: u64,
    /// The last turn that ended without an answer, and why.
    silent: Option<(u64, String)>,
}

impl Turns {
    /// Does the work, which is best boxed, when it is its turn, unless the store did not answer somebody who began after it was asked for.
    pub(crate) async fn take<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let asked_after = self.past().begun;
        let _turn = self.turn.lock().await;
        let number = {
            let mut past = self.past();
            if let Some((turn, why)) = past.silent.as_ref().filter(|(turn, _)| *turn > asked_after) {
                tracing::debug!(turn, "the store did not answer the one before either");
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

    /// Keeps everybody out, if nobody is in.
    pub(crate) fn keep_out(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.turn.try_lock().ok()
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        turns.take(async { Ok(()) }).await.unwrap();
    }
}
