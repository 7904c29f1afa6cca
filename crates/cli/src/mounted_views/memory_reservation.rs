//! Reserves the memory that the views hold in the file system that shows them, so that both together stay within `--memory-limit`.

use super::MountedViews;
use std::sync::{Arc, Weak};
use std::time::Duration;
use vfs::Filesystem;

/// Time between two reservations. Views that grow meanwhile use the slack of the limit.
const INTERVAL: Duration = Duration::from_secs(1);

impl MountedViews {
    /// Starts to reserve memory in a file system, until the views or the file system are dropped.
    pub(crate) fn start_memory_reservation(self: &Arc<Self>, fs: &Arc<Filesystem>) {
        let (views, fs) = (Arc::downgrade(self), Arc::downgrade(fs));
        tokio::spawn(async move {
            while reserve(&views, &fs).is_some() {
                tokio::time::sleep(INTERVAL).await;
            }
        });
    }
}

/// Reserves what the views hold now; `None` if one side is gone.
fn reserve(views: &Weak<MountedViews>, fs: &Weak<Filesystem>) -> Option<()> {
    let (views, fs) = (views.upgrade()?, fs.upgrade()?);
    if let Err(error) = fs.admin().reserve_memory(views.memory_bytes()) {
        tracing::warn!(%error, "cannot evict names to reserve the memory that views use");
    }
    Some(())
}
