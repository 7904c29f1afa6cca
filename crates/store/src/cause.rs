//! The operation that causes requests to a store, for traces.
//!
//! While operations are traced, each one has a [`Cause`], which collects the store's requests that are made for it: by the operation
//! itself, and by the tasks that it spawns with [`work_for`]. Requests after its end, those beyond a maximum, and those without an
//! operation go to the observers of the store's requests. Commits of the metadata are collected like requests ([`measure_commit`]).
//!
//! Invariant: without observers, a request costs one load, and an operation nothing.

use crate::Outcome;
use bytes::Bytes;
use futures_util::future::Either;
use metrics::Observers;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of requests that one operation collects. Further ones go to the observers.
const REQUESTS_MAX: usize = 10_000;

/// Kind under which commits of the metadata are collected.
pub const COMMIT: &str = "COMMIT";

/// Number of the next operation; 0 means none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

tokio::task_local! {
    static CURRENT: Arc<Cause>;
}

/// A request to a store, or a commit of the metadata, that has ended.
#[derive(Debug, Clone)]
pub struct StoreRequest {
    /// Number of the operation that caused the request; 0 for none.
    pub operation: u64,
    /// Kind of the request, as metrics name it, or [`COMMIT`].
    pub kind: &'static str,
    /// Key of the object; for a listing the prefix, for a commit empty.
    pub key: Bytes,
    /// Length of the body that was sent, in bytes.
    pub sent_bytes: u64,
    /// When the request began.
    pub began: Instant,
    /// Time until the head of the response.
    pub took: Duration,
    /// Outcome.
    pub outcome: Outcome,
}

/// An operation, with the requests that were made for it.
#[derive(Debug)]
pub struct Cause {
    id: u64,
    /// The requests so far; `None` after the end of the operation.
    requests: Mutex<Option<Vec<StoreRequest>>>,
}

impl Cause {
    /// Returns a unique number for an operation.
    pub fn reserve_id() -> u64 {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins an operation with a number of its own.
    pub fn begin() -> Arc<Self> {
        Self::begin_as(Self::reserve_id())
    }

    /// Begins the operation with a number from [`Cause::reserve_id`].
    pub fn begin_as(id: u64) -> Arc<Self> {
        Arc::new(Self { id, requests: Mutex::new(Some(Vec::new())) })
    }

    /// Returns the number of the operation. Later operations have larger numbers.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends the operation. Returns its requests, or none if it has ended before.
    pub fn end(&self) -> Vec<StoreRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Adds a request. Gives it back if the operation has ended or has [`REQUESTS_MAX`] requests.
    fn try_add(&self, request: StoreRequest) -> Result<(), StoreRequest> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        match requests.as_mut() {
            Some(requests) if requests.len() < REQUESTS_MAX => {
                requests.push(request);
                Ok(())
            }
            _ => Err(request),
        }
    }
}

/// Returns the operation that this task works for; `None` if operations are not traced, or for work in the background.
pub fn current_cause() -> Option<Arc<Cause>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Runs `work` so that its requests count as those of an operation. Without an operation, returns `work` unchanged.
pub fn work_for<F: Future>(cause: Option<Arc<Cause>>, work: F) -> impl Future<Output = F::Output> {
    match cause {
        Some(cause) => Either::Left(CURRENT.scope(cause, work)),
        None => Either::Right(work),
    }
}

/// Calls `step` so that its requests count as those of an operation, like a step of [`work_for`].
pub fn step_for<T>(cause: Option<&Arc<Cause>>, step: impl FnOnce() -> T) -> T {
    match cause {
        Some(cause) => CURRENT.sync_scope(Arc::clone(cause), step),
        None => step(),
    }
}

/// Reports a request that has ended: to the operation that caused it if that still collects requests, otherwise to the observers.
/// `request` is called only if there are observers.
pub fn report_request(observers: &Observers<StoreRequest>, request: impl FnOnce() -> StoreRequest) {
    if !observers.is_any() {
        return;
    }
    let mut request = request();
    let Some(cause) = current_cause() else { return observers.publish(&request) };
    request.operation = cause.id();
    if let Err(request) = cause.try_add(request) {
        observers.publish(&request);
    }
}

/// Runs a commit of the metadata, and adds its time to the operation that this task works for, if it is traced.
pub fn measure_commit<T, E>(commit: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let Some(cause) = current_cause() else { return commit() };
    let began = Instant::now();
    let result = commit();
    let outcome = if result.is_ok() { Outcome::Ok } else { Outcome::Other };
    let (operation, took, key) = (cause.id(), began.elapsed(), Bytes::new());
    // An operation that has ended or has too many requests does not show the commit.
    let _ = cause.try_add(StoreRequest { operation, kind: COMMIT, key, sent_bytes: 0, began, took, outcome });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: &'static str) -> StoreRequest {
        StoreRequest {
            operation: 0,
            kind,
            key: Bytes::from_static(b"key"),
            sent_bytes: 0,
            began: Instant::now(),
            took: Duration::ZERO,
            outcome: Outcome::Ok,
        }
    }

    #[tokio::test]
    async fn s720_requests_belong_to_the_operation_that_caused_them() {
        let (observers, seen) = (Observers::default(), Arc::new(Mutex::new(Vec::new())));
        let report = |kind| report_request(&observers, || request(kind));
        report_request(&observers, || panic!("without observers, no request is described"));
        let late = Arc::clone(&seen);
        let _observation = observers.observe(move |request: &StoreRequest| {
            late.lock().unwrap().push((request.operation, request.kind));
        });
        let cause = Cause::begin();
        report("BACKGROUND");
        let observers_again = {
            let observers = observers.clone();
            work_for(Some(Arc::clone(&cause)), async move {
                report("GET");
                // A task that the operation spawns.
                let work = work_for(current_cause(), async move {
                    report_request(&observers, || request("PART"));
                    tokio::task::yield_now().await;
                    observers
                });
                tokio::spawn(work).await.unwrap()
            })
            .await
        };
        let commit = async { measure_commit(|| Err::<(), &str>("refused")) };
        assert!(work_for(Some(Arc::clone(&cause)), commit).await.is_err());
        assert_eq!(measure_commit(|| Ok::<_, ()>(7)), Ok(7));
        let kinds: Vec<_> = cause.end().iter().map(|request| (request.operation, request.kind)).collect();
        assert_eq!(kinds, [(cause.id(), "GET"), (cause.id(), "PART"), (cause.id(), COMMIT)]);
        work_for(Some(Arc::clone(&cause)), async {
            report_request(&observers_again, || request("LATE"));
        })
        .await;
        assert_eq!(*seen.lock().unwrap(), [(0, "BACKGROUND"), (cause.id(), "LATE")]);
        assert!(Cause::begin().id() > cause.id() && cause.end().is_empty());
    }
}
