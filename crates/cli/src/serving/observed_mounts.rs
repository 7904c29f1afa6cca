//! The mounts of a volume whose requests a trace or a profile observes: its mount points, and the batches that are mounted when the
//! observation begins.

use fuse::Meter;
use std::sync::Arc;
use vfs::{Filesystem, Ino};

/// Mounts with one namespace.
pub(crate) struct ObservedMount {
    pub(crate) fs: Arc<Filesystem>,
    /// The directory that the kernel knows as the root of the mounts.
    pub(crate) root: Ino,
    /// The figures of the kernel's requests, one for each mount point.
    pub(crate) meters: Vec<Arc<Meter>>,
}
