//! A pool of slots or bytes that many clients share, with a fair limit per client.
//!
//! Limits are dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
//! switches", 1998): an account may hold at most [`FAIR_FACTOR`] times the amount that remains free for all others. A
//! single account gets 7/8 of a pool, a second one 7/8 of the rest, and so on, so that no account can take
//! everything. The addresses of an account share its part by the same rule. A client that holds nothing may take any
//! amount that is free.
//!
//! Invariant: `free` plus all held amounts equals `total`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The amount that one client may hold, as a multiple of the amount that remains free.
const FAIR_FACTOR: u64 = 7;

/// The account that a request is charged to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A user, by access key. Sessions are charged to their user.
    User(String),
    /// All unsigned requests together.
    Anonymous,
}

/// A client: an account at an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) holder: Holder,
    pub(crate) peer: Option<IpAddr>,
}

/// A pool of slots or bytes. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<PoolInner>);

/// The state of a pool, and the notification of its waiters.
#[derive(Debug)]
struct PoolInner {
    state: Mutex<State>,
    /// Wakes waiters when an amount is released.
    freed: Notify,
}

/// The amounts of a pool: in total, free, and held by each account and client.
#[derive(Debug)]
struct State {
    total: u64,
    free: u64,
    by_holder: HashMap<Holder, u64>,
    by_client: HashMap<Client, u64>,
}

/// An amount taken from a pool. Dropping the permit releases it.
#[derive(Debug)]
pub(crate) struct Permit {
    pool: Pool,
    /// The client to whom the amount is charged.
    client: Client,
    amount: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.lock().release(&self.client, self.amount);
        self.pool.0.freed.notify_waiters();
    }
}

impl Pool {
    pub(crate) fn new(total: u64) -> Self {
        let state = State { total, free: total, by_holder: HashMap::new(), by_client: HashMap::new() };
        Self(Arc::new(PoolInner { state: Mutex::new(state), freed: Notify::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the total. Nothing may be taken yet.
    pub(crate) fn resize(&self, total: u64) {
        let mut state = self.lock();
        debug_assert!(state.by_client.is_empty(), "a pool must be resized before its first use");
        (state.total, state.free) = (total, total);
    }

    /// Takes an amount now; returns `None` if it is not free or exceeds what the client may hold. An amount greater
    /// than half of the pool is reduced to that half.
    pub(crate) fn try_take(&self, client: &Client, amount: u64) -> Option<Permit> {
        let mut state = self.lock();
        let amount = state.clamp_amount(amount);
        state.take(client, amount).then(|| Permit { pool: self.clone(), client: client.clone(), amount })
    }

    /// Does what [`Pool::try_take`] does, but waits until that succeeds; `None` after `patience`.
    pub(crate) async fn take(&self, client: &Client, amount: u64, patience: Duration) -> Option<Permit> {
        let taken = async {
            loop {
                let mut freed = std::pin::pin!(self.0.freed.notified());
                // Register as a waiter before trying, so that no release in between is missed.
                freed.as_mut().enable();
                if let Some(share) = self.try_take(client, amount) {
                    return share;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, taken).await.ok()
    }
}

impl State {
    fn clamp_amount(&self, amount: u64) -> u64 {
        if amount > self.total / 2 { amount.min((self.total / 2).max(1)) } else { amount }
    }

    /// Takes an amount for a client, if that is free and within the fair share. Returns whether it did.
    fn take(&mut self, client: &Client, amount: u64) -> bool {
        let held_by_holder = self.by_holder.get(&client.holder).copied().unwrap_or(0);
        let held_by_client = self.by_client.get(client).copied().unwrap_or(0);
        // The most that one holder can get if all others hold nothing.
        let holder_max = self.total - self.total / (FAIR_FACTOR + 1);
        let is_fair = |held: u64, left: u64| {
            held == 0 || left.checked_sub(amount).is_some_and(|left| held + amount <= FAIR_FACTOR * left)
        };
        let is_allowed = amount <= self.free
            && is_fair(held_by_holder, self.free)
            && is_fair(held_by_client, holder_max.saturating_sub(held_by_holder));
        if is_allowed {
            self.free -= amount;
            *self.by_holder.entry(client.holder.clone()).or_default() += amount;
            *self.by_client.entry(client.clone()).or_default() += amount;
        }
        is_allowed
    }

    fn release(&mut self, client: &Client, amount: u64) {
        self.free += amount;
        subtract(&mut self.by_holder, &client.holder, amount);
        subtract(&mut self.by_client, client, amount);
    }
}

fn subtract<K: std::hash::Hash + Eq>(held: &mut HashMap<K, u64>, key: &K, amount: u64) {
    if let Some(left) = held.get_mut(key) {
        *left = left.saturating_sub(amount);
        if *left == 0 {
            held.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(user: &str, peer: u8) -> Client {
        let holder = if user.is_empty() { Holder::Anonymous } else { Holder::User(user.to_owned()) };
        Client { holder, peer: Some(IpAddr::from([127, 0, 0, peer])) }
    }

    /// Takes single slots until the pool gives no more.
    fn take_all(pool: &Pool, clients: &[Client]) -> Vec<Permit> {
        let mut taken = Vec::new();
        loop {
            let before = taken.len();
            taken.extend(clients.iter().filter_map(|client| pool.try_take(client, 1)));
            if taken.len() == before {
                return taken;
            }
        }
    }

    /// The 256 slots were first come, first served: a client that held all of them locked out everybody else.
    #[test]
    fn no_user_and_no_address_takes_all_slots() {
        let pool = Pool::new(256);
        let crowd: Vec<Client> = (0..250).map(|peer| client("", peer)).collect();
        let anonymous = take_all(&pool, &crowd);
        assert_eq!(anonymous.len(), 224);
        let alice: Vec<Client> = (0..250).map(|peer| client("alice", peer)).collect();
        let alices = take_all(&pool, &alice);
        assert_eq!(alices.len(), 28);
        assert!(pool.try_take(&client("bob", 1), 1).is_some());
        drop((anonymous, alices));
        // A single address that uses alice's key leaves slots for her other addresses.
        let single_address = take_all(&pool, &[client("alice", 7)]);
        assert!((190..224).contains(&single_address.len()), "{}", single_address.len());
        assert!(pool.try_take(&client("alice", 8), 1).is_some());
        drop(single_address);
        assert_eq!(pool.lock().free, 256);
        assert!(pool.lock().by_client.is_empty() && pool.lock().by_holder.is_empty());
    }

    #[test]
    fn a_small_pool_still_serves() {
        for total in [1, 2, 3] {
            let pool = Pool::new(total);
            let first = pool.try_take(&client("a", 1), 1).unwrap();
            assert_eq!(pool.try_take(&client("b", 1), 1).is_some(), total > 1);
            drop(first);
        }
        // Four parts of 8 MiB: one user gets three of them.
        let pool = Pool::new(32 << 20);
        let parts: Vec<_> = (0..4).map(|_| pool.try_take(&client("a", 1), 8 << 20)).collect();
        assert_eq!(parts.iter().flatten().count(), 3);
        assert!(pool.try_take(&client("b", 1), 8 << 20).is_some());
        assert!(Pool::new(10).try_take(&client("a", 1), 1 << 40).is_some());
    }

    #[tokio::test]
    async fn a_waiter_gets_what_is_released() {
        let pool = Pool::new(1);
        let first = pool.try_take(&client("a", 1), 1).unwrap();
        assert!(pool.take(&client("b", 1), 1, Duration::from_millis(10)).await.is_none());
        let waiter = pool.clone();
        let waiting =
            tokio::spawn(async move { waiter.take(&client("b", 1), 1, Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.unwrap().is_some());
    }
}
