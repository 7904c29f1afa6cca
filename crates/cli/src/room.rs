//! The room where a volume has its objects: a drive's, or that of a directory's disk. A server does not say.

use crate::bucket::Bucket;
use crate::local::Local;
use crate::volume::Volume;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::Room;

/// A place whose room can be measured.
#[derive(Debug, Clone)]
pub(crate) enum RoomOf {
    Drives(Arc<Local>),
    DiskOf(PathBuf),
}

impl RoomOf {
    /// The place of a volume's objects; `None` for a server, which does not say.
    pub(crate) fn volume(volume: &Volume, bucket: &Bucket) -> Option<Self> {
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

    /// Measures the room now.
    pub(crate) fn now(&self) -> Option<Room> {
        match self {
            Self::Drives(local) => Some(of_drives(local)),
            Self::DiskOf(root) => of_disk(root),
        }
    }
}

/// Sums the room of all drives.
pub(crate) fn of_drives(local: &Local) -> Room {
    let infos = local.drives().map(|drive| drive.info());
    infos.fold(Room { total_bytes: 0, available_bytes: 0 }, |sum, info| Room {
        total_bytes: sum.total_bytes + info.len_bytes,
        available_bytes: sum.available_bytes + info.available_bytes,
    })
}

fn of_disk(root: &Path) -> Option<Room> {
    let found = rustix::fs::statvfs(root).ok()?;
    Some(Room {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    })
}
