//! Events for one destination.

use crate::ObjectEvent;
use std::sync::Arc;

/// An event for one destination.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The event to post.
    pub event: Arc<ObjectEvent>,
    /// The id of the bucket notification configuration that selected the event.
    pub configuration: Arc<str>,
}
