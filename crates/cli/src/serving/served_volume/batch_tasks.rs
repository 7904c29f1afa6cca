//! The work in the background on the batches of a volume.

use super::VolumeService;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Drops abandoned batches at intervals, until the process ends.
pub(super) fn expire_batches(service: &Arc<VolumeService>) {
    let Some(interval) = service.batches.expiry_interval() else { return };
    let service = Arc::downgrade(service);
    tokio::spawn(async move {
        let mut warned = BTreeSet::new();
        loop {
            tokio::time::sleep(interval).await;
            let Some(service) = service.upgrade() else { return };
            if service.ending.load(Ordering::Relaxed) {
                return;
            }
            if let Some(mount_point) = service.mount_points.mounted().first() {
                service.batches.expire(&service.opened, mount_point, &mut warned).await;
            }
        }
    });
}

/// Merges the batches that were submitted to be merged in the background, until the process ends.
pub(super) fn merge_submitted_batches(service: &Arc<VolumeService>) {
    let due = service.batches.lazy_merges();
    let service = Arc::downgrade(service);
    tokio::spawn(async move {
        loop {
            let id = due.next_due().await;
            let Some(service) = service.upgrade() else { return };
            if service.ending.load(Ordering::Relaxed) {
                return;
            }
            service.batches.merge_submitted(&service.opened, id).await;
        }
    });
}
