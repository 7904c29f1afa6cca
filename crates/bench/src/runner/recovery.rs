//! Removal of buckets that an earlier run, or the user's actions, have left on endpoints.

use super::endpoint::{direct_buckets, remove_bucket};
use super::run_error::RunError;
use crate::journal::{Journal, JournaledBucket};
use crate::platform::{Environment, Platform, PlatformKind};
use tokio::runtime::Runtime;

/// Removes the journaled buckets that are chosen, with their objects. Buckets of servers that the testbed starts are only removed from the
/// journal: they go with the server's directory.
pub(crate) fn remove_journaled(
    journal: &mut Journal,
    environment: Environment<'_>,
    runtime: &Runtime,
    is_chosen: impl Fn(&JournaledBucket) -> bool,
) -> Result<(), RunError> {
    let chosen: Vec<JournaledBucket> =
        journal.buckets().iter().filter(|one| is_chosen(one)).cloned().collect();
    for JournaledBucket { platform: spec, bucket, .. } in chosen {
        let platform = Platform::parse(&spec, environment)?;
        if let PlatformKind::S3(endpoint) = &platform.kind {
            let _guard = runtime.enter();
            let buckets = direct_buckets(endpoint)?;
            let removed = runtime.block_on(remove_bucket(&buckets, &bucket));
            removed.map_err(|error| RunError::LeftBucket(bucket.clone(), error))?;
        }
        journal.record_removal(&spec, &bucket)?;
    }
    Ok(())
}
