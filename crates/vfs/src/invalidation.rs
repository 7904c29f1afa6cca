//! News for the caches of a front end.
//!
//! A hint: the queue is bounded, and what does not fit is dropped, since every cached answer expires by itself.

use bytes::Bytes;
use meta::Ino;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// News queued for a front end that is busy.
const QUEUE_MAX: usize = 4096;

/// What changed behind a front end's back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// An inode's attributes and data.
    Inode(Ino),
    /// An inode's attributes alone; its data is what it was.
    Attributes(Ino),
    /// What a name stands for.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name in it.
        name: Bytes,
    },
}

#[derive(Debug)]
pub(crate) struct Invalidations {
    sender: mpsc::Sender<Invalidation>,
    receiver: Mutex<Option<mpsc::Receiver<Invalidation>>>,
}

impl Default for Invalidations {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Invalidations {
    pub(crate) fn take(&self) -> Option<mpsc::Receiver<Invalidation>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn inode(&self, ino: Ino) {
        self.sender.try_send(Invalidation::Inode(ino)).ok();
    }

    pub(crate) fn attributes(&self, ino: Ino) {
        self.sender.try_send(Invalidation::Attributes(ino)).ok();
    }

    /// Asks for an entry to be let go of, whose memory is wanted; only while there is room for news beside.
    pub(crate) fn let_go(&self, parent: Ino, name: &[u8]) {
        if !self.is_busy() {
            self.entry(parent, name);
        }
    }

    /// Whether half the queue is full.
    pub(crate) fn is_busy(&self) -> bool {
        self.sender.capacity() < QUEUE_MAX / 2
    }

    pub(crate) fn entry(&self, parent: Ino, name: &[u8]) {
        self.sender.try_send(Invalidation::Entry { parent, name: Bytes::copy_from_slice(name) }).ok();
    }
}
