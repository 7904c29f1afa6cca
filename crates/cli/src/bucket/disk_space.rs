//! The disk space for a volume's objects: that of its drives, or of its directory's disk. For a server it is unknown.

use crate::bucket::Bucket;
use crate::bucket::local_buckets::LocalBuckets;
use crate::volume::Volume;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::DiskSpace;

/// Source of the disk space for a volume's objects.
#[derive(Debug, Clone)]
pub(crate) enum SpaceSource {
    Drives(Arc<LocalBuckets>),
    DiskOf(PathBuf),
}

impl SpaceSource {
    /// Returns the source for a volume; `None` for a server, which does not report its disk space.
    pub(crate) fn of_volume(volume: &Volume, bucket: &Bucket) -> Option<Self> {
        if let Some(local) = bucket.local.as_ref().filter(|local| local.has_drives()) {
            return Some(Self::Drives(Arc::clone(local)));
        }
        match volume {
            Volume::Directory { root } | Volume::Embedded { root } | Volume::Directories { root } => {
                Some(Self::DiskOf(root.clone()))
            }
            Volume::S3 { .. } | Volume::Buckets { .. } | Volume::Drive { .. } => None,
        }
    }

    /// Measures the disk space now; `None` if the file system does not report it.
    pub(crate) fn measure(&self) -> Option<DiskSpace> {
        match self {
            Self::Drives(local) => Some(of_drives(local)),
            Self::DiskOf(root) => of_disk(root),
        }
    }
}

/// Returns the sum of the space on all drives.
pub(crate) fn of_drives(local: &LocalBuckets) -> DiskSpace {
    let infos = local.drives().map(|drive| drive.info());
    infos.fold(DiskSpace { total_bytes: 0, available_bytes: 0 }, |sum, info| DiskSpace {
        total_bytes: sum.total_bytes + info.len_bytes,
        available_bytes: sum.available_bytes + info.available_bytes,
    })
}

fn of_disk(root: &Path) -> Option<DiskSpace> {
    let found = rustix::fs::statvfs(root).ok()?;
    Some(DiskSpace {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    })
}
