//! The outcome of a request to a store, as metrics name it.

use crate::StoreError;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Outcome {
    /// Success.
    Ok,
    /// There is no such object or bucket.
    NotFound,
    /// The condition of the request does not hold.
    Precondition,
    /// No permission.
    Denied,
    /// The store asks for fewer requests.
    Throttled,
    /// No connection, no response in time, or an internal error of the store.
    Unavailable,
    /// Any other error.
    Other,
}

impl Outcome {
    /// Every outcome, in the order of its discriminant.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::NotFound,
        Self::Precondition,
        Self::Denied,
        Self::Throttled,
        Self::Unavailable,
        Self::Other,
    ];

    /// Returns the outcome for an error, or for success.
    pub fn of(error: Option<&StoreError>) -> Self {
        match error {
            None => Self::Ok,
            Some(StoreError::NotFound(_) | StoreError::NoSuchBucket(_)) => Self::NotFound,
            Some(StoreError::PreconditionFailed(_)) => Self::Precondition,
            Some(StoreError::Denied(_)) => Self::Denied,
            Some(StoreError::Throttled(_)) => Self::Throttled,
            Some(StoreError::Unavailable(_)) => Self::Unavailable,
            Some(_) => Self::Other,
        }
    }

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotFound => "not_found",
            Self::Precondition => "precondition",
            Self::Denied => "denied",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Other => "other",
        }
    }
}
