//! Retries of failed requests, with exponential backoff, jitter and a retry budget.
//!
//! A call is retried until its time budget is used up; the last attempt is made exactly at its end. All calls of a client
//! share a retry quota, which protects an overloaded server from a multiple of the usual load: once the quota is used up,
//! calls wait for the maximum pause between attempts. Successful calls refill the quota.

use super::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use store::{Entropy, StoreError, retry_budget};
use tokio::time::Instant;

/// Limits of a client's retries.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Maximum attempts of a call, including the first, even if time is left.
    pub attempts_max: u32,
    /// Time from a call's first attempt after which no attempt begins.
    pub budget: Duration,
    /// Upper bound of the first pause; it doubles for each further pause.
    pub pause_first: Duration,
    /// Upper bound of every pause.
    pub pause_max: Duration,
    /// Number of retries that all calls share. When they are used up, calls wait for `pause_max` between attempts until
    /// successful calls refill the quota.
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

/// Maximum retries of a refusal that may be transient.
const REFUSAL_RETRIES_MAX: u32 = 6;

/// The retry quota that the calls of a client share.
#[derive(Debug)]
pub(super) struct RetryQuota(AtomicU32);

impl RetryQuota {
    pub(super) fn new(policy: &RetryPolicy) -> Self {
        Self(AtomicU32::new(policy.quota))
    }

    /// Takes one retry from the budget. Returns whether there was one.
    fn take(&self) -> bool {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok()
    }

    /// Gives retries back to the budget, up to its maximum.
    fn give(&self, count: u32, full: u32) {
        // Cannot fail, because the closure always returns a value.
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
    /// The beginning of the time budget.
    began: Option<Instant>,
    /// Failed attempts since the last progress.
    failed: u32,
    /// Refusals after which another attempt was made.
    refusals: u32,
    /// Whether a failed attempt may have taken effect.
    ambiguous: bool,
}

impl Retry {
    pub(super) fn new(policy: RetryPolicy, quota: Arc<RetryQuota>, entropy: Arc<Entropy>) -> Self {
        Self { policy, quota, entropy, began: None, failed: 0, refusals: 0, ambiguous: false }
    }

    /// Returns whether a failed attempt may have taken effect.
    pub(super) fn was_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Begins an attempt and returns whether it is a retry. The first attempt starts the time budget, minus the time that
    /// earlier calls of the same operation spent ([`retry_budget`]).
    pub(super) fn begin_attempt(&mut self) -> bool {
        self.began.get_or_insert_with(|| {
            let now = Instant::now();
            now.checked_sub(retry_budget::spent()).unwrap_or(now)
        });
        self.failed + self.refusals > 0
    }

    /// Starts the time budget `waited` in the past unless it has started: for a failure that no call of
    /// [`Self::begin_attempt`] preceded.
    pub(super) fn add_waited(&mut self, waited: Duration) {
        let now = Instant::now();
        self.began.get_or_insert(now.checked_sub(waited).unwrap_or(now));
    }

    /// Records that an attempt succeeded, which refills the quota and clears the time that the operation has spent
    /// ([`retry_budget`]).
    pub(super) fn record_success(&self) {
        retry_budget::set_spent(Duration::ZERO);
        if self.failed > 0 || self.quota.0.load(Ordering::Relaxed) < self.policy.quota {
            self.quota.give(self.failed + 1, self.policy.quota);
        }
    }

    /// Records progress of a body, which resets attempts and time budget.
    pub(super) fn record_progress(&mut self) {
        if self.failed > 0 {
            self.record_success();
            self.failed = 0;
        }
        self.began = None;
    }

    /// Waits before the next attempt after a failure, or returns the failure if the limits are reached.
    pub(super) async fn wait_or_fail(&mut self, failure: Failure) -> Result<(), Failure> {
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
        tracing::debug!(error = %failure.error, attempt = self.failed, pause_ms = pause.as_millis(), "a request failed and is tried again");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Returns a refusal, unless it may be transient: then waits before the next attempt, a few times.
    async fn after_refusal(&mut self, failure: Failure) -> Result<(), Failure> {
        if !failure.may_be_transient || self.refusals >= REFUSAL_RETRIES_MAX {
            return Err(failure);
        }
        self.refusals += 1;
        let bound = self.policy.pause_first.as_nanos() as u64;
        tokio::time::sleep(Duration::from_nanos(self.entropy.below(bound + 1))).await;
        Ok(())
    }

    /// Returns a pause with full jitter, but at least the pause that the server requested. Both are capped by `pause_max`,
    /// because a starting MinIO requests a minute and is ready in a second.
    fn pause(&self, asked: Option<Duration>) -> Duration {
        let bound =
            self.policy.pause_first.saturating_mul(1 << (self.failed - 1).min(16)).min(self.policy.pause_max);
        let jitter = Duration::from_nanos(self.entropy.below(bound.as_nanos() as u64 + 1));
        jitter.max(asked.unwrap_or_default().min(self.policy.pause_max))
    }
}

impl Failure {
    /// Adds the number of attempts to the error message.
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

    /// Regression: a `close` that made two requests took twice `--retry-timeout` to fail.
    #[tokio::test(start_paused = true)]
    async fn s451_calls_of_one_operation_share_the_budget() {
        let policy = RetryPolicy::default();
        let down = async || attempts_of(policy, down).await;
        let began = Instant::now();
        store::share_budget(async {
            assert!(down().await.0 > 5);
            assert_eq!(down().await.0, 1, "the budget is used up");
            retry(policy).record_success();
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
            retry.begin_attempt();
            attempts += 1;
            if retry.wait_or_fail(failure()).await.is_err() {
                return (attempts, began.elapsed());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_can_be_limited() {
        let policy = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
        assert_eq!(attempts_of(policy, down).await.0, 3);
    }

    /// Regression: if the server refused connections at once, ten attempts took only eight seconds, regardless of
    /// `--retry-timeout`. So a server restart of ten seconds caused errors.
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
    async fn requested_pauses_are_capped() {
        let asking = |secs| move || Failure { retry_after: Some(Duration::from_secs(secs)), ..down() };
        let policy = RetryPolicy { attempts_max: 2, ..RetryPolicy::default() };
        let (attempts, took) = attempts_of(policy, asking(4)).await;
        assert!(attempts == 2 && took >= Duration::from_secs(4), "{took:?}");
        let (attempts, took) = attempts_of(policy, asking(60)).await;
        assert!(attempts == 2 && took == policy.pause_max, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_errors_are_not_retried() {
        let denied = || Failure::from(StoreError::Denied("no".to_owned()));
        assert_eq!(attempts_of(RetryPolicy::default(), denied).await.0, 1);
    }

    /// Regression: calls failed before their time was over if the quota was used up. So under load, an outage much shorter
    /// than `--retry-timeout` caused errors.
    #[tokio::test(start_paused = true)]
    async fn a_quota_that_is_used_up_makes_retries_rare_until_success_refills_it() {
        let policy = RetryPolicy { quota: 2, ..RetryPolicy::default() };
        let quota = Arc::new(RetryQuota::new(&policy));
        let call = || Retry::new(policy, quota.clone(), Arc::new(Entropy::new(7)));
        let pause_of = async |mut retry: Retry| {
            let began = Instant::now();
            retry.wait_or_fail(down()).await.unwrap();
            began.elapsed()
        };
        assert!(pause_of(call()).await < policy.pause_max && pause_of(call()).await < policy.pause_max);
        assert_eq!(pause_of(call()).await, policy.pause_max);
        call().record_success();
        assert!(pause_of(call()).await < policy.pause_max);
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_waiting_time_counts() {
        let mut retry = retry(RetryPolicy::default());
        retry.add_waited(Duration::from_secs(29));
        retry.wait_or_fail(down()).await.unwrap();
        retry.add_waited(Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(retry.wait_or_fail(down()).await.is_err());
    }
}
