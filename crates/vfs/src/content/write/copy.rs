//! A range of one file becomes a range of another, copied inside the store.
//!
//! Objects belong to one inode, so the target gets objects of its own. What is not worth it, or cannot be done so, is
//! refused with EOPNOTSUPP before anything has changed: the kernel then reads and writes.

use futures_util::StreamExt as _;
use meta::{Extent, Inode};
use std::ops::Range;
use std::sync::Arc;
use store::{Attributes, Precondition, StoreError, Tags};

use super::assemble::{Assembly, PART_BYTES_MIN};
use super::plan::objects_of;
use super::splice::{IN_FLIGHT_MAX, Spliced, extents};
use super::{Dirty, Local, When};
use crate::bucket::headers;
use crate::content::open_file::OpenFile;
use crate::content::pin::Pin;
use crate::names::handles::Handle;
use crate::{Error, Filesystem, Result};

/// What one call copies at most, so that it does not take forever.
const COPIED_MAX: u64 = 1 << 31;

impl Filesystem {
    /// Copies up to `len` bytes from one open file to another; returns how many.
    pub async fn copy_range(
        &self,
        (from, from_offset): (Handle, u64),
        (to, to_offset): (Handle, u64),
        len: u64,
    ) -> Result<u64> {
        let source = self.handles.file(from)?;
        let len = len.min(COPIED_MAX);
        let (reading, _) = source.begin_read().await?;
        let target = self.writable_file(to, to_offset, len)?;
        let mut work = target.work.lock().await;
        let before = self.names.inode(target.ino)?;
        let is_by_path = self.has_path_key(&before)?;
        if !is_by_path {
            self.commit_locked(&target, &mut work, When::Open).await?;
            if !work.is_published() {
                return Err(not_here("some of the target is in no object yet"));
            }
        }
        if source.file.pending().is_dirty {
            return Err(not_here("some of the source is in no object yet"));
        }
        let (pin, lineage) = source.file.pin();
        if lineage != source.version.lineage() {
            return Err(not_here("the source has changed"));
        }
        let Some(pin) = pin else { return Err(not_here("nothing is stored")) };
        let range = from_offset..from_offset.saturating_add(len).min(pin.size_bytes);
        if range.start >= range.end {
            return Ok(0);
        }
        let copied = range.end - range.start;
        if copied < PART_BYTES_MIN {
            return Err(not_here("it is as fast to read and write so little"));
        }
        self.check_quota(target.ino, to_offset + copied)?;
        self.must_be_storable(&target, to_offset + copied)?;
        if is_by_path && !self.may_lie_beside(&before, &work, to_offset..to_offset + copied)? {
            return Err(not_here("the target could not be known again by the object at its path"));
        }
        self.record_access(source.file.ino);
        self.copy_pin(&target, &mut work, pin.moved(&range, to_offset)?, to_offset..to_offset + copied)
            .await?;
        drop(work);
        reading.succeed();
        self.names_first().await?;
        Ok(copied)
    }

    /// Stores what `pin` has in `range`, and makes it the file's content there.
    async fn copy_pin(&self, file: &OpenFile, work: &mut Dirty, pin: Pin, range: Range<u64>) -> Result<()> {
        let inode = self.names.inode(file.ino)?;
        let attributes = headers::with_posix(Attributes::default(), &inode);
        let local = Local::begin(&self.config.cache_dir, Some(Arc::new(pin)))?;
        let objects = objects_of(self.layout.mapping(), &local, range.clone())?;
        let copies: Vec<_> = objects
            .iter()
            .map(|runs| self.copy_runs(file, Assembly { local: &local, runs }, &attributes))
            .collect();
        let stored = futures_util::stream::iter(copies).buffered(IN_FLIGHT_MAX).collect().await;
        let content = self.all_or_none(stored).await.map_err(refused)?.concat();
        let size_bytes = inode.size_bytes.max(range.end);
        let spliced = Spliced { ranges: vec![range.clone()], content, delta: None };
        let keys = spliced.keys();
        let named = self.name_content(file, spliced, size_bytes, Some(self.now())).await;
        self.discard_refused(&named, keys).await;
        let pin = Arc::new(named?);
        let mut local = Local::begin(&self.config.cache_dir, Some(pin.clone()))?;
        // A close assembles what is in several objects now, or beside its path.
        local.published(pin, Some(vec![range]));
        *work = Dirty::Local(local);
        self.note(file, work);
        file.untouch();
        Ok(())
    }

    async fn copy_runs(
        &self,
        file: &OpenFile,
        assembly: Assembly<'_>,
        attributes: &Attributes,
    ) -> Result<Vec<Extent>, StoreError> {
        let key = self.content_key(file.ino)?;
        let upload = self.store.multipart(&key, attributes.clone(), Tags::new()).await?;
        let object = self.send_and_complete(assembly, upload.as_ref(), Precondition::None).await?;
        Ok(extents(&object, assembly.runs))
    }

    /// Whether a range of a file that the bucket shows by its path can lie beside until it is closed. What is at the path stays
    /// as it is until then, and has to be known again: by its tag and a part of the file, or because nothing is there yet.
    fn may_lie_beside(&self, inode: &Inode, work: &Dirty, range: Range<u64>) -> Result<bool> {
        let is_left = |extent: &Extent| extent.offset < range.start || range.end < extent.end();
        let at_path = |extent: &&Extent| extent.object.key.is_none() && extent.len > 0;
        match inode.object() {
            None => Ok(!matches!(work, Dirty::Stream(_)) && work.size_bytes().unwrap_or(0) == 0),
            Some(object) if object.key.is_some() => Ok(work.is_published()),
            Some(object) => {
                let keeps_part = self.names.content_of(inode)?.iter().filter(at_path).any(is_left);
                Ok(keeps_part && work.is_published() && !object.etag.is_provisional())
            }
        }
    }
}

/// Somebody replaced the source meanwhile: reading finds what it is now.
fn refused(error: StoreError) -> Error {
    match error {
        StoreError::NotFound(_) | StoreError::PreconditionFailed(_) => not_here("the source has changed"),
        error => error.into(),
    }
}

fn not_here(why: &'static str) -> Error {
    Error::new(libc::EOPNOTSUPP, why)
}
