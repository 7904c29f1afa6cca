//! The two interfaces of an open volume: files and objects.

use std::sync::Arc;
use store::ObjectStore;
use vfs::Filesystem;

/// The two interfaces of an open volume.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// The files.
    pub(crate) fs: Arc<Filesystem>,
    /// The objects, whose keys are paths.
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Whether there is a disk cache. Only reads of files use it.
    pub(crate) has_disk_cache: bool,
}
