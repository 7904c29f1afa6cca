//! The state of a bucket that its services share.

use std::sync::Arc;

use crate::bucket::conflicts::ConflictRecords;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::path_locks::ChangeLocks;

/// The state that follows a bucket: what is known of it, and what waits to be stored in it.
#[derive(Debug, Clone)]
pub(crate) struct BucketParts {
    pub(crate) known: Arc<KnownState>,
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) exports: Arc<ExportQueue>,
    pub(crate) locks: Arc<ChangeLocks>,
    pub(crate) conflicts: Arc<ConflictRecords>,
}
