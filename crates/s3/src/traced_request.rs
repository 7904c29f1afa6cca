//! A request of a client that has ended, as its observer gets it.

use store::StoreRequest;
use tokio::time::Instant;

use crate::access_log::AccessRecord;

/// A request that has ended.
#[derive(Debug, Clone)]
pub struct TracedRequest {
    /// Number of the request, also in its [`StoreRequest`]s. Requests that arrive later have larger numbers.
    pub id: u64,
    /// Arrival of its head.
    pub began: Instant,
    /// Its record in the access log.
    pub record: AccessRecord,
    /// Requests to the store that ended before it did.
    pub store_requests: Vec<StoreRequest>,
}
