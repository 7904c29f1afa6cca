//! Concurrent operations of one call.

use crate::failure::{Failure, Outcome, Result};
use futures_util::{StreamExt as _, stream};
use std::future::Future;

/// Maximum number of operations of one call that are in flight at the same time.
const IN_FLIGHT_MAX: usize = 64;

/// Carries out an operation for each item, many at a time. Returns the outcomes in the order of the items.
pub(crate) async fn each<I, T, F>(
    items: Vec<I>,
    operation: impl Fn(I) -> F + Send + 'static,
) -> Vec<Outcome<T>>
where
    F: Future<Output = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let started = items.into_iter().map(|item| tokio::spawn(operation(item)));
    let joined = stream::iter(started).buffered(IN_FLIGHT_MAX);
    let outcome = |joined: std::result::Result<Result<T>, tokio::task::JoinError>| {
        Outcome(joined.unwrap_or_else(|error| Err(Failure::new(libc::EIO, error.to_string()))))
    };
    joined.map(outcome).collect().await
}
