//! The limit on failed attempts to sign in.
//!
//! Attempts are counted per address of clients (of IPv6, per network of 64 bits), so that a client cannot lock out the
//! users of other addresses. After some failures an address has to wait before its next attempt, and twice as long
//! after each further failure, up to a maximum.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Number of failures after which an address has to wait.
const FAILURES_BEFORE_WAIT: u32 = 5;
/// Wait after that failure. Each further failure doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Maximum wait. The failures of an address are forgotten when the last one is as old as this.
const WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Maximum number of addresses that are remembered. Further ones replace the address whose failure is the oldest.
const ADDRESSES_MAX: usize = 4096;

/// Failed attempts, by IPv4 address or IPv6 network.
#[derive(Debug, Default)]
pub(crate) struct SignInLimit(Mutex<BTreeMap<IpAddr, Failures>>);

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    /// Time of the last failure, on the monotonic clock.
    last: Duration,
}

impl Failures {
    /// Returns the wait after the last failure.
    fn wait(&self) -> Duration {
        match self.count.checked_sub(FAILURES_BEFORE_WAIT) {
            None => Duration::ZERO,
            Some(further) => FIRST_WAIT.saturating_mul(1 << further.min(20)).min(WAIT_MAX),
        }
    }
}

impl SignInLimit {
    /// Returns how long an address has to wait before its next attempt; `None` if it may try at once. An allowed
    /// attempt counts as failed until [`SignInLimit::note_success`], so that attempts at the same time are all counted.
    pub(crate) fn begin_attempt(&self, address: IpAddr, now: Duration) -> Option<Duration> {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, failures| now.saturating_sub(failures.last) < WAIT_MAX);
        let network = network(address);
        if let Some(found) = failures.get(&network) {
            let end = found.last.saturating_add(found.wait());
            if end > now {
                return Some(end - now);
            }
        } else if failures.len() >= ADDRESSES_MAX {
            let oldest = failures.iter().min_by_key(|(_, failures)| failures.last).map(|(key, _)| *key);
            oldest.and_then(|key| failures.remove(&key));
        }
        let entry = failures.entry(network).or_insert(Failures { count: 0, last: now });
        *entry = Failures { count: entry.count.saturating_add(1), last: now };
        None
    }

    /// Forgets the failures of an address from which a user signed in.
    pub(crate) fn note_success(&self, address: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&network(address));
    }
}

/// Returns an IPv4 address as it is, and the network of 64 bits of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s742_attempts_wait_longer_and_longer() {
        let (limit, at) = (SignInLimit::default(), |secs| Duration::from_secs(secs));
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        for _ in 0..FAILURES_BEFORE_WAIT {
            assert_eq!(limit.begin_attempt(one, at(100)), None);
        }
        assert_eq!(limit.begin_attempt(one, at(100)), Some(at(2)));
        assert_eq!(limit.begin_attempt(other, at(100)), None);
        assert_eq!(limit.begin_attempt(one, at(102)), None);
        assert_eq!(limit.begin_attempt(one, at(103)), Some(at(3)));
        limit.note_success(one);
        assert_eq!(limit.begin_attempt(one, at(103)), None);
        assert_eq!(limit.begin_attempt(other, at(100_000)), None);
    }

    #[test]
    fn addresses_are_bounded_and_a_network_counts_once() {
        let limit = SignInLimit::default();
        for number in 0..2 * ADDRESSES_MAX as u32 {
            limit.begin_attempt(IpAddr::from(number.to_be_bytes()), Duration::from_millis(number.into()));
        }
        assert_eq!(limit.0.lock().unwrap().len(), ADDRESSES_MAX);
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(network(one), network("2001:db8::ffff:1".parse().unwrap()));
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), IpAddr::from([192, 0, 2, 1]));
    }
}
