//! Where hints go.

use crate::Hint;

/// Who acts on hints.
#[async_trait::async_trait]
pub trait Sink: Send + Sync + std::fmt::Debug {
    /// Returns when what the hints say will not be lost.
    ///
    /// # Errors
    /// The batch is not acknowledged and comes again.
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError>;

    /// Hints were lost, of one bucket or of any: what is known has to be compared with the store.
    async fn lost(&self, _bucket: Option<&str>) {}
}

/// Why hints were not taken, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);
