//! A cache of credentials that renews them before they expire.
//!
//! Invariants: at most one renewal runs at a time; no caller waits for a renewal while the cached credentials are
//! valid; credentials from a provider that a server reports as expired are not used again, unless they are new (see
//! [`ExpiryCertainty`]). A renewal runs in a task of its own, so that it survives the request that began it.

use super::provider::Provider;
use super::provider_request::ProviderContext;
use super::{Credentials, CredentialsError, CredentialsSource, ExpiringCredentials, ExpiryCertainty};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Entropy, Timestamp};

/// Time before the expiry at which a renewal begins, or a quarter of the remaining lifetime if that is shorter. Jitter
/// adds up to half of it, so that machines started together do not renew together. Instances and containers offer new
/// credentials at least five minutes before the old credentials expire.
const RENEW_BEFORE: Duration = Duration::from_secs(5 * 60);
/// Divisor of the remaining lifetime of credentials that live too short for [`RENEW_BEFORE`].
const RENEW_BEFORE_SHARE: u32 = 4;

/// Delay of the next renewal after a failed renewal, while the old credentials are valid.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Time for which a provider's failure is cached: many calls may need credentials at once.
const FAILURE_CACHED: Duration = Duration::from_secs(1);

impl ExpiryCertainty {
    /// Returns the age below which credentials are kept: newly renewed credentials would be no better, and the provider must
    /// not be called for every refusal.
    fn age_min(self) -> Duration {
        match self {
            Self::Certain => Duration::from_secs(1),
            Self::Possible => Duration::from_secs(60),
        }
    }
}

/// A renewal in progress, for which several callers may wait.
type Renewal = Shared<BoxFuture<'static, Result<Arc<Credentials>, CredentialsError>>>;

/// The credentials of a client, cached and renewed if they come from a provider.
#[derive(Debug)]
pub(crate) struct CredentialsCache {
    source: CredentialsSource,
    inner: Arc<CacheInner>,
}

/// The parts of the cache that renewals in the background share.
#[derive(Debug)]
struct CacheInner {
    context: ProviderContext,
    entropy: Arc<Entropy>,
    state: Mutex<State>,
}

/// The cached credentials, the last failure, and the renewal in progress.
#[derive(Debug, Default)]
struct State {
    cached: Option<CachedCredentials>,
    /// The last failure of a renewal, and its time.
    failed: Option<(Timestamp, CredentialsError)>,
    renewal: Option<Renewal>,
}

/// Credentials with the times of their receipt, renewal and end.
#[derive(Debug)]
struct CachedCredentials {
    credentials: Arc<Credentials>,
    /// When they were received.
    since: Timestamp,
    /// When new ones are asked for; `None` if these do not end.
    renew_at: Option<Timestamp>,
    /// When they end; `None` if they do not.
    ends: Option<Timestamp>,
}

impl CredentialsCache {
    pub(crate) fn new(source: CredentialsSource, context: ProviderContext, entropy: Arc<Entropy>) -> Self {
        Self { source, inner: Arc::new(CacheInner { context, entropy, state: Mutex::default() }) }
    }

    /// Returns the current credentials, renewed if necessary; `None` for anonymous requests.
    pub(crate) async fn current(&self) -> Result<Option<Arc<Credentials>>, CredentialsError> {
        match &self.source {
            CredentialsSource::Anonymous => Ok(None),
            CredentialsSource::Fixed(credentials) => Ok(Some(credentials.clone())),
            CredentialsSource::Provider(provider) => self.get_or_renew(provider).await.map(Some),
        }
    }

    /// Reports that a server considers credentials expired. Returns whether [`Self::current`] may return other credentials.
    pub(crate) fn report_expired(&self, used: &Arc<Credentials>, certainty: ExpiryCertainty) -> bool {
        if !matches!(self.source, CredentialsSource::Provider(_)) {
            return false;
        }
        let now = self.inner.context.clock.now();
        let mut state = self.inner.lock();
        match &state.cached {
            Some(cached) if !Arc::ptr_eq(&cached.credentials, used) => true,
            Some(cached) if now.since(cached.since) < certainty.age_min() => false,
            _ => {
                state.cached = None;
                true
            }
        }
    }

    /// Returns the cached credentials, and renews them in the background when due; waits for new ones if they have
    /// ended.
    async fn get_or_renew(&self, provider: &Arc<Provider>) -> Result<Arc<Credentials>, CredentialsError> {
        let renewal = {
            let now = self.inner.context.clock.now();
            let mut state = self.inner.lock();
            match &state.cached {
                Some(cached) if cached.ends.is_none_or(|ends| now < ends) => {
                    let credentials = cached.credentials.clone();
                    if cached.renew_at.is_some_and(|at| at <= now) {
                        drop(self.inner.renew(provider, &mut state));
                    }
                    return Ok(credentials);
                }
                _ => {}
            }
            match &state.failed {
                Some((at, error)) if now.since(*at) < FAILURE_CACHED => return Err(error.clone()),
                _ => self.inner.renew(provider, &mut state),
            }
        };
        renewal.await
    }
}

impl CacheInner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the running renewal, or begins one.
    fn renew(self: &Arc<Self>, provider: &Arc<Provider>, state: &mut State) -> Renewal {
        if let Some(running) = state.renewal.as_ref().filter(|running| running.peek().is_none()) {
            return running.clone();
        }
        let (inner, provider) = (self.clone(), provider.clone());
        let task = tokio::spawn(async move { inner.run_renewal(&provider).await });
        let renewal = async move {
            let interrupted = |_| CredentialsError::malformed("credentials", "the renewal was interrupted");
            task.await.map_err(interrupted)?
        };
        state.renewal.insert(renewal.boxed().shared()).clone()
    }

    /// Asks the provider for credentials and caches them.
    async fn run_renewal(&self, provider: &Provider) -> Result<Arc<Credentials>, CredentialsError> {
        let received = provider.get_credentials(&self.context).await;
        let now = self.context.clock.now();
        let received = received.and_then(|found| self.check_expiry(found, provider, now));
        let mut state = self.lock();
        state.renewal = None;
        match received {
            Ok(cached) => {
                tracing::debug!(%provider, access_key = cached.credentials.access_key(), "received new credentials");
                let credentials = cached.credentials.clone();
                (state.cached, state.failed) = (Some(cached), None);
                Ok(credentials)
            }
            Err(error) => {
                if let Some(cached) = &mut state.cached {
                    let state = match cached.ends {
                        Some(ends) if ends <= now => {
                            "the old ones have expired, so requests fail until it succeeds"
                        }
                        _ => "the old ones are used until they expire",
                    };
                    tracing::warn!(%error, "could not renew the credentials; the renewal is tried again; {state}");
                    cached.renew_at = Some(now.after(RETRY_AFTER));
                }
                state.failed = Some((now, error.clone()));
                Err(error)
            }
        }
    }

    /// Checks that new credentials have not expired, and computes when to renew them.
    fn check_expiry(
        &self,
        found: ExpiringCredentials,
        provider: &Provider,
        now: Timestamp,
    ) -> Result<CachedCredentials, CredentialsError> {
        let renew_at = match found.ends {
            Some(ends) if ends <= now => {
                let reason = "its credentials have already expired: check this machine's clock".to_owned();
                return Err(CredentialsError::Failed {
                    provider: provider.to_string(),
                    reason,
                    may_pass: false,
                });
            }
            Some(ends) => Some(self.renew_at(now, ends)),
            None => None,
        };
        Ok(CachedCredentials {
            credentials: Arc::new(found.credentials),
            since: now,
            renew_at,
            ends: found.ends,
        })
    }

    /// Returns when credentials are renewed: some time before they end, at random so that clients do not do so
    /// together.
    fn renew_at(&self, now: Timestamp, ends: Timestamp) -> Timestamp {
        let left = ends.since(now);
        let ahead = RENEW_BEFORE.min(left / RENEW_BEFORE_SHARE);
        let jitter = Duration::from_nanos(self.entropy.below(ahead.as_nanos() as u64 / 2 + 1));
        now.after(left - ahead - jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::SystemClock;

    fn cache(seed: u64) -> CacheInner {
        let context = ProviderContext { ca_bundle: None, clock: Arc::new(SystemClock) };
        CacheInner { context, entropy: Arc::new(Entropy::new(seed)), state: Mutex::default() }
    }

    #[test]
    fn renewals_begin_before_the_expiry_with_jitter() {
        let now = Timestamp::from_secs(1_000_000, 0);
        for (left, earliest, latest) in [(3600, 3600 - 450, 3600 - 300), (60, 37, 45), (1, 0, 1)] {
            let times =
                (0..100).map(|seed| cache(seed).renew_at(now, Timestamp::from_secs(1_000_000 + left, 0)));
            let times: Vec<i64> = times.map(|at| at.secs() - 1_000_000).collect();
            assert!(times.iter().all(|at| (earliest..=latest).contains(at)), "{times:?}");
            assert!(left < 60 || times.iter().any(|at| *at != times[0]));
        }
    }
}
