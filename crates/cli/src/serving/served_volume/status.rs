//! The status of a served volume.

use super::VolumeService;
use crate::bucket::disk_space::SpaceSource;
use crate::control::protocol::{Lister, Pending, Status};
use crate::endpoint::webhooks;
use crate::metadata;
use crate::process::VERSION;
use std::sync::atomic::Ordering;

impl VolumeService {
    /// Returns the changes that are not in the store yet.
    pub(super) fn pending(&self) -> Pending {
        let status = self.opened.fs.status();
        let log = self.opened.bucket.writeback.as_ref();
        let backlog = log.map(|log| log.backlog()).unwrap_or_default();
        let damage = log.map(|log| log.damage().clone()).unwrap_or_default();
        Pending {
            dirty_files: status.dirty_files as u64,
            write_bytes: status.write_bytes,
            exports: status.exports_waiting as u64,
            renames: status.moving.renames as u64,
            backlog_changes: backlog.changes as u64,
            backlog_bytes: backlog.bytes,
            refused_changes: backlog.refused as u64,
            damaged: (damage.ranges + damage.files) as u64,
        }
    }

    pub(super) fn status(&self) -> Status {
        self.status_of(&self.opened.fs.status())
    }

    /// Returns the status of the process, with that of its file system.
    pub(super) fn status_of(&self, status: &vfs::Status) -> Status {
        let mut mount_points = self.mount_points.mounted_text().into_iter();
        let room = self.space.as_ref().and_then(SpaceSource::measure);
        let views = self.opened.mounted_views.as_ref();
        Status {
            pid: std::process::id(),
            volume: self.opened.volume.url(),
            mount_point: mount_points.next().unwrap_or_default(),
            also: mount_points.collect(),
            endpoint: self.url(),
            version: VERSION.to_owned(),
            uptime_secs: self.since.elapsed().as_secs(),
            read_only: self.opened.read_only,
            ending: self.ending.load(Ordering::Relaxed),
            metrics: self.urls.metrics.get().cloned(),
            console: self.urls.console.get().cloned(),
            state_dir: self.state.display().to_string(),
            log_file: self.log.as_ref().map(|path| path.display().to_string()),
            names_only_here: self.opened.names_only_here,
            backup: self.opened.backup.as_ref().map(|backup| backup.report(metadata::now())),
            room_bytes: room.map(|space| (space.total_bytes, space.available_bytes)),
            shared: self.opened.shared,
            server: self.opened.server.clone(),
            is_buckets: false,
            open_handles: status.open_handles as u64,
            pending: self.pending(),
            objects_moved: status.moving.objects_moved,
            move_failure: status.moving.failure.clone(),
            read_bytes: status.read_bytes,
            disk_cache: status.disk_cache.map(Into::into),
            shared_cache: status.shared_cache.map(Into::into),
            metadata_bytes: status.metadata_bytes,
            metadata_failure: status.metadata_failure.clone(),
            views_bytes: views.map_or(0, |views| views.memory_bytes()),
            kernel_inodes: status.kernel_inodes as u64,
            memory_limit_bytes: status.memory_limit_bytes,
            conflict_policy: self.opened.fs.conflicts().policy().to_string(),
            conflicts: status.conflicts as u64,
            lister: Lister::of(&status.lister),
            store_requests: self.opened.bucket.requests(),
            fuse_requests: self.mount_points.requests(),
            webhooks: self.endpoint.endpoint().map(webhooks::reports).unwrap_or_default(),
            events_lost: self.endpoint.endpoint().map_or(0, |endpoint| endpoint.events_lost()),
            views: views.map(|views| views.status()).unwrap_or_default(),
            moves_refused: views.map(|views| views.moves_refused()).unwrap_or_default(),
            batches: self.batches.status(&self.opened),
            event_sources: self.opened.sources(),
        }
    }
}
