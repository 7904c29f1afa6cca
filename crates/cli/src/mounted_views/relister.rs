//! Lists buckets again when a user reads a view and no event source reports changes.
//!
//! Invariants: one listing at a time. Listings take at most a tenth of the time, however many users read views. A
//! user who reads a view that was not read for long waits for the listing, at most [`PATIENCE`].

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, ready};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use store::Timestamp;
use tokio::time::Instant;

/// Maximum time that a user waits for a listing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Minimum time between the beginnings of two listings, as a multiple of what the first one took: a bucket of 400
/// pages must not be listed all the time.
const REST_FACTOR: u32 = 10;

/// Lists buckets again on demand.
#[derive(Debug)]
pub(super) struct Relister {
    /// Minimum time between the beginnings of two listings.
    every: Duration,
    last: Mutex<Round>,
}

/// One listing of all buckets.
#[derive(Debug, Clone)]
struct Round {
    began: Timestamp,
    listing: Shared<BoxFuture<'static, ()>>,
    /// Time that the listing took; empty until it has ended.
    took: Arc<OnceLock<Duration>>,
    /// Whether users wait for the listing, as what was known before is too old to be shown.
    is_awaited: bool,
}

impl Relister {
    pub(super) fn new(every: Duration, now: Timestamp) -> Self {
        let (listing, took) = (ready(()).boxed().shared(), Arc::new(Duration::ZERO.into()));
        Self { every, last: Mutex::new(Round { began: now, listing, took, is_awaited: false }) }
    }

    /// Starts a listing if the last one is too old. Waits for it if what is known is much too old.
    pub(super) async fn refresh<L>(&self, now: Timestamp, list: impl FnOnce() -> L)
    where
        L: Future<Output = ()> + Send + 'static,
    {
        let round = self.round(now, list);
        if round.is_awaited {
            let left = PATIENCE.saturating_sub(now.since(round.began));
            tokio::time::timeout(left, round.listing).await.ok();
        }
    }

    /// Returns the last listing, or starts the next one.
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

    /// A bucket whose listing takes this long, with the number of its listings.
    struct Slow {
        relister: Relister,
        takes: Duration,
        listed: Arc<AtomicUsize>,
    }

    impl Slow {
        fn new(takes: Duration) -> Self {
            Self { relister: Relister::new(EVERY, Timestamp(0)), takes, listed: Arc::default() }
        }

        /// Reads a view at this second. Returns how long that took, and the number of listings by then.
        async fn read(&self, second: i64) -> (Duration, usize) {
            let (takes, listed) = (self.takes, self.listed.clone());
            let list = || async move {
                tokio::time::sleep(takes).await;
                listed.fetch_add(1, Ordering::Relaxed);
            };
            let began = Instant::now();
            self.relister.refresh(Timestamp(second * 1_000_000_000), list).await;
            (began.elapsed(), self.listed.load(Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_after_a_long_pause_waits_for_the_listing() {
        let slow = Slow::new(Duration::from_secs(1));
        assert_eq!(slow.read(4).await, (Duration::ZERO, 0), "what is known is recent");
        assert_eq!(slow.read(7).await, (Duration::ZERO, 0), "the view was read not long ago");
        tokio::time::sleep(2 * slow.takes).await;
        let (one, other) = tokio::join!(slow.read(100), slow.read(100));
        assert_eq!([one, other], [(slow.takes, 2); 2], "both see the one new listing");
    }

    /// Regression: a bucket of 400 pages takes longer to list than the time after which it is listed again, so a view
    /// without events listed it all the time: 4,438 requests in six minutes.
    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_takes_long_to_list_is_not_listed_all_the_time() {
        let slow = Slow::new(Duration::from_secs(33));
        let mut listed = 0;
        for second in 0..720 {
            listed = slow.read(second).await.1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(listed, 3, "12 minutes at 5 and a half for each");
    }

    #[tokio::test(start_paused = true)]
    async fn no_reader_waits_for_long() {
        let slow = Slow::new(Duration::from_secs(60));
        assert_eq!(slow.read(100).await, (PATIENCE, 0));
        assert_eq!(slow.read(103).await, (Duration::ZERO, 0));
    }
}
