//! Snapshots: reads that no later commit changes.
//!
//! While a snapshot exists, the database keeps replaced records. So snapshots are for short work and few.

use crate::database::{Database, Reads as _, ScanRange};
use crate::error::Failure;
use crate::link::Link;
use crate::session::SessionId;
use meta::{EngineError, KeyRange, Reader, Rows, Seqno, Versioned};
use std::future::Future;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The records at one moment. If the snapshot could not be begun, all reads fail with the reason.
pub(crate) struct Snapshot<D: Database> {
    link: Arc<Link<D>>,
    /// The snapshot in the database and the newest commit in it, or why it could not be begun.
    begun: Result<(Arc<D::Snapshot>, Seqno), EngineError>,
}

impl<D: Database> Snapshot<D> {
    /// Begins a snapshot, and waits until it has begun or failed.
    pub(crate) fn begin(link: &Arc<Link<D>>, session: SessionId) -> Self {
        let (opening, budget) = (link.clone(), link.budget());
        link.count_round_trip();
        let begun = link
            .wait_for(async move { within(budget, opening.database().snapshot(session)).await })
            .flatten();
        Self { link: link.clone(), begun: begun.map(|(snapshot, head)| (Arc::new(snapshot), head)) }
    }

    /// Returns the newest commit that the snapshot contains.
    pub(crate) fn head(&self) -> Result<Seqno, EngineError> {
        self.begun.as_ref().map(|(_, head)| *head).map_err(Clone::clone)
    }

    /// Runs a read. A snapshot that is lost is not replaced, because another one sees another state.
    fn read<T, F>(&self, ask: impl FnOnce(Arc<D::Snapshot>) -> F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (snapshot, _) = self.begun.clone()?;
        let (asked, budget) = (ask(snapshot), self.link.budget());
        self.link.count_round_trip();
        self.link.wait_for(async move { within(budget, asked).await })?
    }
}

/// Waits for an answer until the budget ends.
async fn within<T>(
    budget: Duration,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, EngineError> {
    match timeout(budget, answer).await {
        Ok(answered) => answered.map_err(Failure::into_engine_error),
        Err(_) => Err(EngineError::Unavailable("the database did not answer in time".into())),
    }
}

impl<D: Database> Reader for Snapshot<D> {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        let key = key.to_vec();
        self.read(|snapshot| async move { snapshot.get(&key).await })
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        let keys = keys.to_vec();
        self.read(|snapshot| async move { snapshot.multi_get(&keys).await })
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let range = ScanRange::new(from, to);
        self.read(|snapshot| async move { snapshot.scan(&range, limit).await })
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        let range = range.clone();
        self.read(|snapshot| async move { snapshot.last(&range).await })
    }
}
