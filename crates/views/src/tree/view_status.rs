//! The status of a client's view, and of the handler behind it.

use crate::Unlisted;
use store::Timestamp;

/// Status of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewStatus {
    /// Name of the view.
    pub name: String,
    /// Number of objects that it shows, as far as known.
    pub objects: usize,
    /// Time of the last successful request to the handler; `None` before the first.
    pub known: Option<Timestamp>,
    /// Set while requests for the view fail or are not answered in time.
    pub outage: Option<HandlerOutage>,
    /// Containers that the handler could not read at the last request.
    pub unlisted: Vec<Unlisted>,
}

/// A handler that does not answer. Its clients go on with what they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerOutage {
    /// Time at which the first of the requests that failed in a row was found to fail.
    pub since: Timestamp,
    /// Error of the last request that failed.
    pub why: String,
}
