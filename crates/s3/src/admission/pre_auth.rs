//! Bodies that precede authentication: browser-based uploads (POST Object) and STS forms.
//!
//! Anybody can send such a body, so that bodies already being read must not keep new ones out. When there are too many,
//! the oldest body of the busiest address is cut off. A body that arrives in one go has been read long before that.

use s3s::S3Result;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

use crate::error::timed_out;

/// The maximum number of bodies read at a time before their senders are known. Each buffers at most 64 KiB.
const BODIES_MAX: usize = 256;
/// The maximum time for such a body, however steadily it arrives.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// The bodies that are being read.
#[derive(Debug, Default)]
pub(super) struct PreAuthBodies(Mutex<State>);

/// The bodies that are being read before their sender is known.
#[derive(Debug, Default)]
struct State {
    /// The number of the next body.
    next: u64,
    /// The bodies in order of arrival, with the sender's address and the signal that cuts the body off.
    bodies: BTreeMap<u64, (Option<IpAddr>, Arc<Notify>)>,
}

/// One body that is being read. Dropping the entry removes it.
struct Entry<'a> {
    bodies: &'a PreAuthBodies,
    number: u64,
    /// Notified when the body gives way to another one.
    evicted: Arc<Notify>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.bodies.lock().bodies.remove(&self.number);
    }
}

impl PreAuthBodies {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a body. `RequestTimeout` if it takes too long, or if it is cut off to make room.
    pub(super) async fn read<T>(
        &self,
        peer: Option<IpAddr>,
        reading: impl Future<Output = S3Result<T>>,
    ) -> S3Result<T> {
        let entry = self.register(peer);
        tokio::select! {
            biased;
            read = reading => read,
            () = entry.evicted.notified() => Err(timed_out()),
            () = tokio::time::sleep(READ_WITHIN) => Err(timed_out()),
        }
    }

    /// Adds a body. Cuts off another one if there are too many.
    fn register(&self, peer: Option<IpAddr>) -> Entry<'_> {
        let mut state = self.lock();
        if state.bodies.len() >= BODIES_MAX {
            state.evict_one();
        }
        let (number, evicted) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.bodies.insert(number, (peer, evicted.clone()));
        Entry { bodies: self, number, evicted }
    }
}

impl State {
    /// Cuts off the oldest body of the address that has most of them.
    fn evict_one(&mut self) {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        self.bodies.values().for_each(|(peer, _)| *counts.entry(*peer).or_default() += 1);
        let most = counts.values().max().copied();
        let oldest = self.bodies.iter().find(|(_, (peer, _))| counts.get(peer).copied() == most);
        if let Some(number) = oldest.map(|(number, _)| *number)
            && let Some((_, evicted)) = self.bodies.remove(&number)
        {
            evicted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 256 forms that never ended locked out every other request.
    #[tokio::test]
    async fn stalled_bodies_make_room_and_the_busiest_address_first() {
        let bodies = Arc::new(PreAuthBodies::default());
        let peer = |last: u8| Some(IpAddr::from([127, 0, 0, last]));
        let stall = |peer| {
            let bodies = bodies.clone();
            tokio::spawn(async move { bodies.read(peer, std::future::pending::<S3Result<()>>()).await })
        };
        let lone = stall(peer(9));
        tokio::task::yield_now().await;
        let crowd: Vec<_> = (0..BODIES_MAX - 1).map(|_| stall(peer(1))).collect();
        while bodies.lock().bodies.len() < BODIES_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(bodies.read(peer(1), async { Ok(7) }).await.unwrap(), 7);
        let first = crowd.into_iter().next().unwrap().await.unwrap();
        assert_eq!(first.unwrap_err().code().as_str(), "RequestTimeout");
        assert!(!lone.is_finished());
        assert_eq!(bodies.lock().bodies.len(), BODIES_MAX - 1);
    }
}
