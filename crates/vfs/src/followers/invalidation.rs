//! Invalidations: the parts of its cache that a front end has to drop.

use bytes::Bytes;
use meta::Ino;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// A change that a front end has not made itself, so that its cache is stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The attributes and data of an inode.
    Inode(Ino),
    /// The attributes of an inode, but not its data.
    Attributes(Ino),
    /// A range of an inode's data, and its attributes.
    Bytes(Ino, Range<u64>),
    /// The inode under a name.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name in that directory.
        name: Bytes,
    },
    /// All names in a directory and the inodes under them, because more changed than the queue holds, see
    /// [`KernelCaches::held_in`](crate::KernelCaches::held_in).
    Directory(Ino),
    /// All cached state, because more changed than the queue holds, see
    /// [`KernelCaches::everything_held`](crate::KernelCaches::everything_held).
    Everything,
    /// No change: a marker that reports when all earlier invalidations have been processed.
    Reached(DeliveryMarker),
}

impl Invalidation {
    /// Returns the invalidation of a name in a directory.
    pub(crate) fn entry(parent: Ino, name: &[u8]) -> Self {
        Self::Entry { parent, name: Bytes::copy_from_slice(name) }
    }
}

/// A marker in the queue of a front end.
#[derive(Debug, Clone)]
pub struct DeliveryMarker(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl DeliveryMarker {
    /// Creates a marker, and the receiver of its report.
    pub(super) fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// Reports that all earlier invalidations have been processed.
    pub fn reached(&self) {
        if let Some(waiter) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waiter.send(()).ok();
        }
    }
}

impl PartialEq for DeliveryMarker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DeliveryMarker {}
