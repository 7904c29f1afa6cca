//! Copies inside the directory, done by the kernel, which shares blocks if the file system can.

use super::Shared;
use super::record::{OpenObject, Record, modified, size_bytes};
use super::staging::Staged;
use rustix::fd::AsFd;
use rustix::fs::fstat;
use std::ops::Range;
use store::{CopyOptions, ObjectKey, ObjectRef, Result, StoreError};

impl Shared {
    pub(super) fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let source = self.find_exactly(from)?;
        let attributes = match options.attributes {
            Some(attributes) => attributes,
            None if from.key == *to && options.tags.is_none() => {
                return Err(StoreError::Invalid(
                    "a copy of an object to its own key needs new metadata or tags".into(),
                ));
            }
            None => source.record.attributes.clone(),
        };
        let mut staged = self.staging()?.create(to)?;
        copy_from(&source, 0..source.size_bytes(), &staged, 0, &from.key)?;
        let tags = options.tags.unwrap_or(source.record.tags);
        let record = Record { attributes, tags, ..Record::default() };
        self.commit(to, &mut staged, record, 1, &options.precondition)
    }
}

/// Copies a range of an object's file. Fails with `PreconditionFailed` if the file was changed during the copy.
pub(super) fn copy_from(
    source: &OpenObject,
    range: Range<u64>,
    to: &Staged,
    at: u64,
    key: &ObjectKey,
) -> Result<()> {
    let copied = to.copy(at, source.file.as_fd(), range);
    let changed = fstat(&source.file)
        .is_ok_and(|now| size_bytes(&now) != source.size_bytes() || modified(&now) != modified(&source.stat));
    if changed { Err(StoreError::PreconditionFailed(key.clone())) } else { copied }
}
