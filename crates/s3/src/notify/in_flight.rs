//! Tracks the calls in flight that change objects, by key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::ObjectKey;

/// The keys that are being changed.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<HashMap<BucketKey, Calls>>);

type BucketKey = (String, ObjectKey);

/// The calls of one key in progress.
#[derive(Debug, Default)]
struct Calls {
    count: usize,
    /// Whether calls of the key have overlapped since it was last idle.
    has_overlapped: bool,
}

impl InFlight {
    fn calls(&self) -> MutexGuard<'_, HashMap<BucketKey, Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a call that is about to change an object.
    pub(super) fn begin(self: &Arc<Self>, bucket: &str, key: &ObjectKey) -> CallGuard {
        let bucket_key = (bucket.to_owned(), key.clone());
        let mut all = self.calls();
        let calls = all.entry(bucket_key.clone()).or_default();
        calls.count += 1;
        calls.has_overlapped |= calls.count > 1;
        drop(all);
        CallGuard { in_flight: Arc::clone(self), bucket_key }
    }
}

/// A registered call. It ends when the guard is dropped: after the change got its sequence, or when the call failed.
#[derive(Debug)]
pub(super) struct CallGuard {
    in_flight: Arc<InFlight>,
    bucket_key: BucketKey,
}

impl CallGuard {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.bucket_key.1
    }

    /// Returns whether calls of the key have overlapped since it was last idle; this call may not be among them.
    pub(super) fn is_concurrent(&self) -> bool {
        self.in_flight.calls().get(&self.bucket_key).is_some_and(|calls| calls.has_overlapped)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut all = self.in_flight.calls();
        if let Some(calls) = all.get_mut(&self.bucket_key) {
            calls.count -= 1;
            if calls.count == 0 {
                all.remove(&self.bucket_key);
            }
        }
    }
}
