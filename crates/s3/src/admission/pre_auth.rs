//! Requests whose body precedes their authentication: browsers' forms, and forms to STS.
//!
//! Anybody can send such a body, so that a newcomer is never kept out by those that are there: when too many bodies are
//! being read, the oldest one of the address with the most of them is cut off. A body that arrives in one go is read
//! long before its turn comes.

use s3s::S3Result;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

use crate::body::timed_out;

/// Bodies that are read at the same time before anything is known of their senders. Each holds at most 64 KiB.
const AT_ONCE: usize = 256;
/// The longest time for all of such a body, however steadily it comes.
const WITHIN: Duration = Duration::from_secs(20);

/// The bodies that are being read.
#[derive(Debug, Default)]
pub(super) struct Unproven(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// In the order in which they began.
    bodies: BTreeMap<u64, (Option<IpAddr>, Arc<Notify>)>,
}

/// One of them; dropping it ends its entry.
struct Entry<'a> {
    bodies: &'a Unproven,
    number: u64,
    cut_off: Arc<Notify>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.bodies.lock().bodies.remove(&self.number);
    }
}

impl Unproven {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a body. `RequestTimeout` if it takes too long, or if it has to make room.
    pub(super) async fn read<T>(
        &self,
        peer: Option<IpAddr>,
        reading: impl Future<Output = S3Result<T>>,
    ) -> S3Result<T> {
        let entry = self.enter(peer);
        tokio::select! {
            biased;
            read = reading => read,
            () = entry.cut_off.notified() => Err(timed_out()),
            () = tokio::time::sleep(WITHIN) => Err(timed_out()),
        }
    }

    fn enter(&self, peer: Option<IpAddr>) -> Entry<'_> {
        let mut state = self.lock();
        if state.bodies.len() >= AT_ONCE {
            state.cut_one_off();
        }
        let (number, cut_off) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.bodies.insert(number, (peer, cut_off.clone()));
        Entry { bodies: self, number, cut_off }
    }
}

impl State {
    fn cut_one_off(&mut self) {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        self.bodies.values().for_each(|(peer, _)| *counts.entry(*peer).or_default() += 1);
        let most = counts.values().max().copied();
        let oldest = self.bodies.iter().find(|(_, (peer, _))| counts.get(peer).copied() == most);
        if let Some(number) = oldest.map(|(number, _)| *number)
            && let Some((_, cut_off)) = self.bodies.remove(&number)
        {
            cut_off.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 256 forms that never ended kept every other request out.
    #[tokio::test]
    async fn stalled_bodies_make_room_and_the_busiest_address_first() {
        let bodies = Arc::new(Unproven::default());
        let peer = |last: u8| Some(IpAddr::from([127, 0, 0, last]));
        let stall = |peer| {
            let bodies = bodies.clone();
            tokio::spawn(async move { bodies.read(peer, std::future::pending::<S3Result<()>>()).await })
        };
        let lone = stall(peer(9));
        tokio::task::yield_now().await;
        let crowd: Vec<_> = (0..AT_ONCE - 1).map(|_| stall(peer(1))).collect();
        while bodies.lock().bodies.len() < AT_ONCE {
            tokio::task::yield_now().await;
        }
        assert_eq!(bodies.read(peer(1), async { Ok(7) }).await.unwrap(), 7);
        let first = crowd.into_iter().next().unwrap().await.unwrap();
        assert_eq!(first.unwrap_err().code().as_str(), "RequestTimeout");
        assert!(!lone.is_finished());
        assert_eq!(bodies.lock().bodies.len(), AT_ONCE - 1);
    }
}
