//! Lists buckets again when a user looks at a view and no events say what has changed.
//!
//! Invariants: one listing at a time; listings take at most a tenth of the time, however many users look; a user who looks after
//! a long time without users waits for the listing, [`PATIENCE`] at most.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, ready};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use store::Timestamp;
use tokio::time::Instant;

/// How long a user waits for a listing.
const PATIENCE: Duration = Duration::from_secs(2);
/// A listing begins this many times as long after the one before as that one took: 400 pages are not listed all the time.
const REST_FACTOR: u32 = 10;

/// Lists again what a user looks at.
#[derive(Debug)]
pub(super) struct Lister {
    /// The shortest time from the beginning of a listing to that of the next.
    every: Duration,
    last: Mutex<Round>,
}

/// One listing of everything.
#[derive(Debug, Clone)]
struct Round {
    began: Timestamp,
    listing: Shared<BoxFuture<'static, ()>>,
    /// How long the listing took; empty until it has ended.
    took: Arc<OnceLock<Duration>>,
    /// What was known when it began is too old to be shown: users wait for it.
    is_awaited: bool,
}

impl Lister {
    pub(super) fn new(every: Duration, now: Timestamp) -> Self {
        let (listing, took) = (ready(()).boxed().shared(), Arc::new(Duration::ZERO.into()));
        Self { every, last: Mutex::new(Round { began: now, listing, took, is_awaited: false }) }
    }

    /// Begins a listing of everything if the last one was long ago, for a user who looks.
    pub(super) async fn look<L>(&self, now: Timestamp, list: impl FnOnce() -> L)
    where
        L: Future<Output = ()> + Send + 'static,
    {
        let round = self.round(now, list);
        if round.is_awaited {
            let left = PATIENCE.saturating_sub(now.since(round.began));
            tokio::time::timeout(left, round.listing).await.ok();
        }
    }

    /// The last round, or the next.
    fn round<L>(&self, now: Timestamp, list: impl FnOnce() -> L) -> Round
    where
        L: Future<Output = ()> + Send + 'static,
    {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(took) = last.took.get() else { return last.clone() };
        let (since, rest) = (now.since(last.began), self.every.max(REST_FACTOR * *took));
        if since >= rest {
            let (took, listing) = (Arc::new(OnceLock::new()), list());
            let timed = {
                let took = took.clone();
                async move {
                    let began = Instant::now();
                    listing.await;
                    took.get_or_init(|| began.elapsed());
                }
            };
            let listing = timed.boxed().shared();
            tokio::spawn(listing.clone());
            *last = Round { began: now, listing, took, is_awaited: since >= 2 * rest };
        }
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const EVERY: Duration = Duration::from_secs(5);

    /// A bucket whose listing takes so long, and how often it was listed.
    struct Slow {
        lister: Lister,
        takes: Duration,
        listed: Arc<AtomicUsize>,
    }

    impl Slow {
        fn new(takes: Duration) -> Self {
            Self { lister: Lister::new(EVERY, Timestamp(0)), takes, listed: Arc::default() }
        }

        /// Looks at a second; how long that took, and how often was listed by then.
        async fn look(&self, second: i64) -> (Duration, usize) {
            let (takes, listed) = (self.takes, self.listed.clone());
            let list = || async move {
                tokio::time::sleep(takes).await;
                listed.fetch_add(1, Ordering::Relaxed);
            };
            let began = Instant::now();
            self.lister.look(Timestamp(second * 1_000_000_000), list).await;
            (began.elapsed(), self.listed.load(Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_away_for_long_waits_for_the_listing() {
        let slow = Slow::new(Duration::from_secs(1));
        assert_eq!(slow.look(4).await, (Duration::ZERO, 0), "what is known is recent");
        assert_eq!(slow.look(7).await, (Duration::ZERO, 0), "somebody looked not long ago");
        tokio::time::sleep(2 * slow.takes).await;
        let (one, other) = tokio::join!(slow.look(100), slow.look(100));
        assert_eq!([one, other], [(slow.takes, 2); 2], "both see the one new listing");
    }

    /// A bucket of 400 pages takes longer to list than the time after which it is listed again, so that a view without
    /// events listed it all the time: 4,438 requests in six minutes.
    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_takes_long_to_list_is_not_listed_all_the_time() {
        let slow = Slow::new(Duration::from_secs(33));
        let mut listed = 0;
        for second in 0..720 {
            listed = slow.look(second).await.1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(listed, 3, "12 minutes at 5 and a half for each");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long() {
        let slow = Slow::new(Duration::from_secs(60));
        assert_eq!(slow.look(100).await, (PATIENCE, 0));
        assert_eq!(slow.look(103).await, (Duration::ZERO, 0));
    }
}
