//! Where nobody says what happens, buckets are listed again when somebody looks.
//!
//! Invariants: one listing begins in so long a time, however many look; who looks after everybody was away for long waits for it, but not
//! for long.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, ready};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::Timestamp;

/// How long somebody waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lists again what somebody looks at.
#[derive(Debug)]
pub(super) struct Lister {
    every: Duration,
    last: Mutex<Round>,
}

/// One listing of everything.
#[derive(Debug, Clone)]
struct Round {
    began: Timestamp,
    listing: Shared<BoxFuture<'static, ()>>,
    /// Nobody had looked for long, so that what was known then is too old.
    is_awaited: bool,
}

impl Lister {
    pub(super) fn new(every: Duration, now: Timestamp) -> Self {
        let listing = ready(()).boxed().shared();
        Self { every, last: Mutex::new(Round { began: now, listing, is_awaited: false }) }
    }

    /// Somebody looks: has everything listed if that was long ago.
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
        let since = now.since(last.began);
        if since >= self.every {
            let listing = list().boxed().shared();
            tokio::spawn(listing.clone());
            *last = Round { began: now, listing, is_awaited: since >= 2 * self.every };
        }
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

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

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long() {
        let slow = Slow::new(Duration::from_secs(60));
        assert_eq!(slow.look(100).await, (PATIENCE, 0));
        assert_eq!(slow.look(103).await, (Duration::ZERO, 0));
    }
}
