//! The pace of background work on devices.

/// Limits the speed of a scrub or a rebuild, so that other work gets its share of the devices.
#[async_trait::async_trait]
pub trait Pace: Send + Sync {
    /// Waits until the next step may begin, after a step that read `bytes`.
    async fn after(&self, bytes: u64);
}
