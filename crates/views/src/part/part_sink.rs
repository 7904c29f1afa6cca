//! A sink that passes on only the hints of objects of one part.

use super::Part;
use events::{Hint, Sink, SinkError};
use std::sync::Arc;

/// A sink for the hints of all objects. It acknowledges those of other parts without passing them on.
#[derive(Debug)]
pub(super) struct PartSink {
    pub(super) part: Part,
    pub(super) sink: Arc<dyn Sink>,
}

#[async_trait::async_trait]
impl Sink for PartSink {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let own = hints.iter().filter(|hint| self.part.has(&hint.bucket, &hint.key));
        let own: Vec<Hint<'_>> = own.cloned().collect();
        if own.is_empty() { Ok(()) } else { self.sink.take(&own).await }
    }

    async fn lost(&self, bucket: Option<&str>) -> Result<(), SinkError> {
        self.sink.lost(bucket).await
    }
}
