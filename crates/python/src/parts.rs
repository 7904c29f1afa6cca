//! The parts of an open volume.

use std::sync::Arc;
use store::ObjectStore;
use vfs::Filesystem;

/// The parts of an open volume that operations use.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// The files.
    pub(crate) fs: Arc<Filesystem>,
    /// The objects, whose keys are paths.
    pub(crate) objects: Arc<dyn ObjectStore>,
}
