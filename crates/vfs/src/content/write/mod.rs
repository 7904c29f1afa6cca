//! Writing: the states of a file between its first write and its commit.
//!
//! ```text
//! Clean ──write──► Memory ──sequential, beyond a part──► Stream ──commit──► Clean
//!   │                │  └──random or no memory──► Local ──commit──► Clean, or Local with nothing unpublished
//!   └─write to stored bytes───────────────────────► Local
//! ```
//!
//! `Memory` holds a new file whole; `Stream` has sent the beginning as parts and holds only the next one; `Local` is a sparse
//! file with the ranges that differ from the objects below. No writer waits for memory that an idle file holds: without free
//! memory a file goes to disk.

mod allocate;
pub(crate) mod assemble;
mod commit;
mod conflict;
mod content_object;
pub(crate) mod copy;
pub(crate) mod editor;
mod local;
mod memory;
mod plan;
mod preserve;
pub(crate) mod publisher;
mod splice;
mod stream;
pub(crate) mod uploader;

pub(crate) use local::{Local, Source};
pub(crate) use memory::Memory;
pub(crate) use plan::When;
pub(crate) use stream::{Stream, Upload, reserve as reserve_stream};

use std::sync::Arc;
use store::{ObjectKey, Precondition};

use crate::content::open_file::OpenFile;
use crate::content::pin::Pin;

/// Unpublished writes of one inode.
#[derive(Debug)]
pub(crate) enum WriteState {
    /// No unpublished writes: the content is that of the pin.
    Clean,
    /// The whole content in memory.
    Memory(Memory),
    /// A sequential write that exceeds memory.
    Stream(Box<Stream>),
    /// A local file over the bytes of objects.
    Local(Local),
}

impl WriteState {
    /// Returns the length of the file with these writes; `None` without any.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Clean => None,
            Self::Memory(memory) => Some(memory.size_bytes()),
            Self::Stream(stream) => Some(stream.size_bytes()),
            Self::Local(local) => Some(local.size_bytes()),
        }
    }

    /// Returns an upper bound of the bytes that are not holes.
    pub(crate) fn data_bytes(&self) -> Option<u64> {
        match self {
            Self::Local(local) => local.data_bytes(),
            _ => self.size_bytes(),
        }
    }

    /// Returns the published content that these writes replace or change; `None` if there is none.
    pub(crate) fn base(&self) -> Option<&Arc<Pin>> {
        match self {
            Self::Clean => None,
            Self::Memory(memory) => memory.base.as_ref(),
            Self::Stream(stream) => stream.base.as_ref(),
            Self::Local(local) => local.base(),
        }
    }

    /// Replaces the content below the writes by the same bytes at another place.
    pub(crate) fn rebase(&mut self, pin: Option<Arc<Pin>>) {
        match self {
            Self::Clean => {}
            Self::Memory(memory) => memory.base = pin,
            Self::Stream(stream) => stream.base = pin,
            Self::Local(local) => local.rebase(pin),
        }
    }

    /// Rebases the writes on the file's pin, which a rename may have moved.
    pub(crate) fn rebase_on_pin(&mut self, file: &OpenFile) {
        if let (Some(_), (Some(pin), _)) = (self.base(), file.pin()) {
            self.rebase(Some(pin));
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        matches!(self, Self::Clean)
    }

    /// Returns whether the content is published and in no deltas.
    pub(crate) fn is_assembled(&self) -> bool {
        match self {
            Self::Local(local) => local.is_published() && !local.has_deltas(),
            _ => self.is_clean(),
        }
    }

    /// Returns whether the namespace has the same content as programs see.
    pub(crate) fn is_published(&self) -> bool {
        match self {
            Self::Clean => true,
            Self::Local(local) => local.is_published(),
            Self::Memory(_) | Self::Stream(_) => false,
        }
    }
}

/// Returns the precondition under which the writes based on `base` replace no foreign object at `key`.
pub(crate) fn precondition(base: Option<&Arc<Pin>>, key: &ObjectKey) -> Precondition {
    let object = base.and_then(|pin| pin.object_at(key));
    object.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag))
}
