//! Trying again: how often, how long, and not all at once.
//!
//! A call is tried again for as long as its time lasts, the last time just when it ends. A quota that all calls of a
//! client share keeps them from asking a server in trouble ten times as often as one that is well: once it is used up,
//! each waits the longest pause. Success earns it back.

use super::failure::Failure;
use crate::{Entropy, StoreError, retry_budget};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Limits of one client.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Attempts of one call, the first included, however much time is left.
    pub attempts_max: u32,
    /// No attempt begins later than this after the call's first.
    pub budget: Duration,
    /// Upper bound of the first pause; it doubles with each further one.
    pub pause_first: Duration,
    /// Upper bound of every pause.
    pub pause_max: Duration,
    /// Retries all calls share; when they are used up, retries are rare until successes earn new ones.
    pub quota: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: u32::MAX,
            budget: Duration::from_secs(30),
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(5),
            quota: 1000,
        }
    }
}

/// How often a doubtful refusal is asked for again.
const DOUBTS_MAX: u32 = 6;

/// What the calls of one client share.
#[derive(Debug)]
pub(super) struct RetryQuota(AtomicU32);

impl RetryQuota {
    pub(super) fn new(policy: &RetryPolicy) -> Self {
        Self(AtomicU32::new(policy.quota))
    }

    fn take(&self) -> bool {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok()
    }

    fn give(&self, count: u32, full: u32) {
        // An update that always gives a value cannot fail.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_add(count).min(full))
        });
    }
}

/// The attempts of one call.
#[derive(Debug)]
pub(super) struct Retry {
    policy: RetryPolicy,
    quota: Arc<RetryQuota>,
    entropy: Arc<Entropy>,
    began: Option<Instant>,
    failed: u32,
    doubts: u32,
    ambiguous: bool,
}

impl Retry {
    pub(super) fn new(policy: RetryPolicy, quota: Arc<RetryQuota>, entropy: Arc<Entropy>) -> Self {
        Self { policy, quota, entropy, began: None, failed: 0, doubts: 0, ambiguous: false }
    }

    /// Whether an attempt that failed may have taken effect all the same.
    pub(super) fn was_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Before an attempt: whether it repeats one that failed. The first starts the clock, at the time that earlier calls of the
    /// same operation have left.
    pub(super) fn attempt(&mut self) -> bool {
        self.began.get_or_insert_with(|| {
            let now = Instant::now();
            now.checked_sub(retry_budget::spent()).unwrap_or(now)
        });
        self.failed + self.doubts > 0
    }

    /// Before a failure of what no attempt began: the clock has run for so long already.
    pub(super) fn waited(&mut self, so_long: Duration) {
        let now = Instant::now();
        self.began.get_or_insert(now.checked_sub(so_long).unwrap_or(now));
    }

    /// After success: earns quota.
    pub(super) fn succeeded(&self) {
        retry_budget::set_spent(Duration::ZERO);
        if self.failed > 0 || self.quota.0.load(Ordering::Relaxed) < self.policy.quota {
            self.quota.give(self.failed + 1, self.policy.quota);
        }
    }

    /// After some bytes of a body arrived: what comes next has the full limits again.
    pub(super) fn progressed(&mut self) {
        if self.failed > 0 {
            self.succeeded();
            self.failed = 0;
        }
        self.began = None;
    }

    /// After a failure: waits for the next attempt, or gives the failure back.
    pub(super) async fn after(&mut self, failure: Failure) -> Result<(), Failure> {
        self.ambiguous |= failure.ambiguous;
        if !failure.error.is_retryable() {
            return self.after_refusal(failure).await;
        }
        let spent = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        self.failed = self.failed.saturating_add(1);
        if self.failed >= self.policy.attempts_max || spent >= self.policy.budget {
            retry_budget::set_spent(spent);
            return Err(failure.tried(self.failed));
        }
        let pause = if self.quota.take() { self.pause(failure.retry_after) } else { self.policy.pause_max };
        let pause = pause.min(self.policy.budget - spent);
        tracing::debug!(error = %failure.error, attempt = self.failed, pause_ms = pause.as_millis(), "trying again");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// A refusal stands, unless it may have been about a moment: then it is asked for a few times more.
    async fn after_refusal(&mut self, failure: Failure) -> Result<(), Failure> {
        if !failure.doubtful || self.doubts >= DOUBTS_MAX {
            return Err(failure);
        }
        self.doubts += 1;
        let bound = self.policy.pause_first.as_nanos() as u64;
        tokio::time::sleep(Duration::from_nanos(self.entropy.below(bound + 1))).await;
        Ok(())
    }

    /// Full jitter, but not less than the server asked for, up to the longest pause: a MinIO that is just starting
    /// asks for a minute and is there in a second.
    fn pause(&self, asked: Option<Duration>) -> Duration {
        let bound =
            self.policy.pause_first.saturating_mul(1 << (self.failed - 1).min(16)).min(self.policy.pause_max);
        let jitter = Duration::from_nanos(self.entropy.below(bound.as_nanos() as u64 + 1));
        jitter.max(asked.unwrap_or_default().min(self.policy.pause_max))
    }
}

impl Failure {
    /// The same, saying how often it was tried.
    fn tried(mut self, attempts: u32) -> Self {
        let text = match &mut self.error {
            StoreError::Throttled(text) | StoreError::Unavailable(text) | StoreError::Corrupt(text) => text,
            _ => return self,
        };
        if attempts > 1 {
            text.push_str(&format!(" (tried {attempts} times)"));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down() -> Failure {
        Failure::from(StoreError::Unavailable("down".to_owned()))
    }

    fn retry(policy: RetryPolicy) -> Retry {
        Retry::new(policy, Arc::new(RetryQuota::new(&policy)), Arc::new(Entropy::new(7)))
    }

    /// A close that made two requests took twice `--retry-timeout` to fail.
    #[tokio::test(start_paused = true)]
    async fn s451_calls_of_one_operation_share_the_budget() {
        let policy = RetryPolicy::default();
        let down = async || attempts_of(policy, down).await;
        let began = Instant::now();
        crate::share_budget(async {
            assert!(down().await.0 > 5);
            assert_eq!(down().await.0, 1, "the budget is used up");
            retry(policy).succeeded();
            assert!(down().await.0 > 5, "the store was there in between");
        })
        .await;
        assert!(began.elapsed() < 2 * policy.budget + policy.pause_max, "{:?}", began.elapsed());
        assert!(down().await.0 > 5);
    }

    async fn attempts_of(policy: RetryPolicy, failure: impl Fn() -> Failure) -> (u32, Duration) {
        let mut retry = retry(policy);
        let began = Instant::now();
        let mut attempts = 0;
        loop {
            retry.attempt();
            attempts += 1;
            if retry.after(failure()).await.is_err() {
                return (attempts, began.elapsed());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_can_be_limited() {
        let policy = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
        assert_eq!(attempts_of(policy, down).await.0, 3);
    }

    /// Ten attempts were over after eight seconds where the server refused at once, whatever `--retry-timeout` said: a
    /// restart of the server of ten seconds was an error.
    #[tokio::test(start_paused = true)]
    async fn s110_the_last_attempt_is_made_when_the_time_is_over() {
        for secs in [0, 3, 30, 600] {
            let policy = RetryPolicy { budget: Duration::from_secs(secs), ..RetryPolicy::default() };
            let (attempts, took) = attempts_of(policy, down).await;
            assert_eq!(took, policy.budget);
            assert!(u64::from(attempts) <= 20 + secs, "{attempts} attempts in {secs} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_can_ask_for_a_pause_up_to_the_longest() {
        let asking = |secs| move || Failure { retry_after: Some(Duration::from_secs(secs)), ..down() };
        let policy = RetryPolicy { attempts_max: 2, ..RetryPolicy::default() };
        let (attempts, took) = attempts_of(policy, asking(4)).await;
        assert!(attempts == 2 && took >= Duration::from_secs(4), "{took:?}");
        let (attempts, took) = attempts_of(policy, asking(60)).await;
        assert!(attempts == 2 && took == policy.pause_max, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_get_better_is_not_repeated() {
        let denied = || Failure::from(StoreError::Denied("no".to_owned()));
        assert_eq!(attempts_of(RetryPolicy::default(), denied).await.0, 1);
    }

    /// A quota that was used up made errors of calls whose time was not over: under load, an outage much shorter than
    /// `--retry-timeout` was seen by programs.
    #[tokio::test(start_paused = true)]
    async fn a_quota_that_is_used_up_makes_retries_rare_until_success_refills_it() {
        let policy = RetryPolicy { quota: 2, ..RetryPolicy::default() };
        let quota = Arc::new(RetryQuota::new(&policy));
        let call = || Retry::new(policy, quota.clone(), Arc::new(Entropy::new(7)));
        let pause_of = async |mut retry: Retry| {
            let began = Instant::now();
            retry.after(down()).await.unwrap();
            began.elapsed()
        };
        assert!(pause_of(call()).await < policy.pause_max && pause_of(call()).await < policy.pause_max);
        assert_eq!(pause_of(call()).await, policy.pause_max);
        call().succeeded();
        assert!(pause_of(call()).await < policy.pause_max);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_was_waited_before_counts() {
        let mut retry = retry(RetryPolicy::default());
        retry.waited(Duration::from_secs(29));
        retry.after(down()).await.unwrap();
        retry.waited(Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(retry.after(down()).await.is_err());
    }
}
