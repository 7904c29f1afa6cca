//! `copy_file_range`: copies a range of one file to another inside the store.
//!
//! An object belongs to one inode, so the target gets objects of its own. Copies that are not possible or not worthwhile are
//! refused with EOPNOTSUPP before anything changes: the kernel then reads and writes.

use futures_util::StreamExt as _;
use meta::{Extent, Inode};
use std::ops::Range;
use std::sync::Arc;
use store::{Attributes, Precondition, StoreError, Tags};

use super::assemble::Assembly;
use super::plan::objects_of;
use super::splice::{IN_FLIGHT_MAX, Spliced, extents};
use super::{Local, WriteState};
use crate::bucket::headers;
use crate::content::open_file::OpenFile;
use crate::content::pin::Pin;
use crate::content::write::editor::FileEditor;
use crate::content::write::uploader::Uploader;
use crate::{Error, Result};

/// Maximum bytes copied by one call, so that it ends in reasonable time; a longer range is copied in part.
pub(crate) const COPIED_MAX: u64 = 1 << 31;

impl FileEditor {
    /// Copies the bytes of `pin` in `range` and makes them the file's content there.
    pub(crate) async fn copy_pin(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        pin: Pin,
        range: Range<u64>,
    ) -> Result<()> {
        let inode = self.names.tables().inode(file.ino)?;
        let attributes = headers::with_posix(Attributes::default(), &inode);
        let local = Local::begin(&self.mount.config.cache_dir, Some(Arc::new(pin)))?;
        let objects = objects_of(self.mount.layout.mapping(), &local, range.clone())?;
        let share = &self.uploader.file_share();
        let copies: Vec<_> = objects
            .iter()
            .map(|runs| self.uploader.copy_runs(file, Assembly { local: &local, runs, share }, &attributes))
            .collect();
        let stored = futures_util::stream::iter(copies).buffered(IN_FLIGHT_MAX).collect().await;
        let content = self.uploader.all_or_discard(stored).await.map_err(copy_error)?.concat();
        let size_bytes = inode.size_bytes.max(range.end);
        let spliced = Spliced { ranges: vec![range.clone()], content, ..Spliced::default() };
        let keys = spliced.keys();
        let named = self.uploader.name_content(file, spliced, size_bytes, Some(self.mount.now())).await;
        self.uploader.discard_refused(&named, keys).await;
        let pin = Arc::new(named?);
        let mut local = Local::begin(&self.mount.config.cache_dir, Some(pin.clone()))?;
        // The next close assembles content that is in several objects or not at its path.
        local.published(pin, Some(vec![range]));
        *state = WriteState::Local(local);
        self.content.update_pending(file, state);
        file.clear_touched();
        Ok(())
    }
}

impl Uploader {
    /// Copies the ranges of an assembly to a new object of the file. Returns the object's extents.
    async fn copy_runs(
        &self,
        file: &OpenFile,
        assembly: Assembly<'_>,
        attributes: &Attributes,
    ) -> Result<Vec<Extent>, StoreError> {
        let key = self.content.new_key(file.ino)?;
        let upload = self.mount.store.multipart(&key, attributes.clone(), Tags::new()).await?;
        let object = self.send_and_complete(assembly, upload.as_ref(), Precondition::None).await?;
        Ok(extents(&object, assembly.runs))
    }

    /// Returns whether a range of a file named by path can be in an object of its own until the file is closed. The object at
    /// the path stays unchanged until then and must still identify the file: by its tag and a part of the file, or because
    /// there is none yet.
    pub(crate) fn may_store_range_apart(
        &self,
        inode: &Inode,
        state: &WriteState,
        range: Range<u64>,
    ) -> Result<bool> {
        let is_left = |extent: &Extent| extent.offset < range.start || range.end < extent.end();
        let at_path = |extent: &&Extent| extent.object.key.is_none() && extent.len > 0;
        match inode.object() {
            None => Ok(!matches!(state, WriteState::Stream(_)) && state.size_bytes().unwrap_or(0) == 0),
            Some(object) if object.key.is_some() => Ok(state.is_published()),
            Some(object) => {
                let keeps_part = self.names.tables().content_of(inode)?.iter().filter(at_path).any(is_left);
                Ok(keeps_part && state.is_published() && !object.etag.is_provisional())
            }
        }
    }
}

/// Maps errors of a source that was replaced meanwhile to EOPNOTSUPP: reading finds its current bytes.
fn copy_error(error: StoreError) -> Error {
    match error {
        StoreError::NotFound(_) | StoreError::PreconditionFailed(_) => unsupported("the source has changed"),
        error => error.into(),
    }
}

/// Returns EOPNOTSUPP with a reason: the caller reads and writes instead.
pub(crate) fn unsupported(why: &'static str) -> Error {
    Error::new(libc::EOPNOTSUPP, why)
}
