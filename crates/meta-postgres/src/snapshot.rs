//! Snapshots: reads in a transaction of a connection of its own, which sees the state at its first statement.
//!
//! While a snapshot exists, the database keeps replaced records and cannot clean its tables up. So snapshots are for short work and few.

use crate::connection::Connection;
use crate::error::Failure;
use crate::link::Link;
use crate::reads::{self, ScanRange};
use meta::{EngineError, KeyRange, Reader, Rows, Seqno, Versioned};
use std::future::Future;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A view of the tables. If it could not be made, its reads fail with the reason.
pub(crate) struct Snapshot {
    link: Arc<Link>,
    connection: Result<Arc<Connection>, EngineError>,
}

impl Snapshot {
    pub(crate) fn begin(link: &Arc<Link>) -> Self {
        let (opening, budget) = (link.clone(), link.budget());
        let begun = link.wait_for(async move { within(budget, begin(&opening)).await });
        Self { link: link.clone(), connection: begun.flatten().map(Arc::new) }
    }

    /// Returns the newest commit that the snapshot contains.
    pub(crate) fn head(&self) -> Result<Seqno, EngineError> {
        self.read(|connection| async move { reads::head(&connection).await })
    }

    /// Runs a read. A connection that is lost is not replaced, because another one sees another state.
    fn read<T, F>(&self, ask: impl FnOnce(Arc<Connection>) -> F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (asked, budget) = (ask(self.connection.clone()?), self.link.budget());
        self.link.count_round_trip();
        self.link.wait_for(async move { within(budget, asked).await })?
    }
}

async fn begin(link: &Link) -> Result<Connection, Failure> {
    let connection = link.endpoint().connect().await.map_err(|error| Failure::Lost(error.to_string()))?;
    link.count_round_trip();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT head FROM head";
    connection.client.batch_execute(begin).await?;
    Ok(connection)
}

async fn within<T>(
    budget: Duration,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, EngineError> {
    match timeout(budget, answer).await {
        Ok(answered) => answered.map_err(Failure::into_engine_error),
        Err(_) => Err(EngineError::Unavailable("the database did not answer in time".into())),
    }
}

impl Reader for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        let key = key.to_vec();
        self.read(|connection| async move { reads::get(&connection, &key).await })
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        let keys = keys.to_vec();
        self.read(|connection| async move { reads::multi_get(&connection, &keys).await })
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let range = ScanRange::new(from, to);
        self.read(|connection| async move { reads::scan(&connection, &range, limit).await })
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        let range = range.clone();
        self.read(|connection| async move { reads::last(&connection, &range).await })
    }
}
