//! Exports objects of a drive to files: a directory for each bucket, as `dirs:///DIR` serves them.
//!
//! An object counts as exported if the target has one with its length that was stored after it, so that an
//! interrupted export can be resumed. Objects that are damaged, cannot be read, or cannot be stored as files are
//! reported and left out.

use anyhow::{Context, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::Arc;
use store::{
    Buckets, GetOptions, ListEntry, ListRequest, ListedObject, Object, ObjectKey, ObjectMeta, ObjectRef,
    ObjectStore, Pages, Payload, Precondition, PutOptions, StoreError, Tags,
};

/// Length of the parts of larger objects, so that none must be in memory as a whole. The parts of the largest objects
/// are longer.
const PART_BYTES: u64 = 16 << 20;

/// Maximum number of parts of an object.
const PARTS_MAX: u64 = 10_000;

/// Objects copied at the same time.
const COPIES_AT_ONCE: usize = 4;

const PAGE_ENTRIES: usize = 1000;

/// Totals of an export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ExportTotals {
    /// Objects copied.
    pub(crate) objects: u64,
    /// Bytes copied.
    pub(crate) bytes: u64,
    /// Objects that were exported already.
    pub(crate) kept: u64,
    /// Objects that were left out.
    pub(crate) failed: u64,
}

/// Outcome for one object.
enum Outcome {
    Copied(u64),
    Kept,
    Failed(String),
}

/// Why an object was not copied.
enum CopyError {
    Read(StoreError),
    Write(StoreError),
}

/// Copies all buckets, or only one, and adds to the totals. Calls `failed` for each object that is left out, and
/// `progress` after each page of a listing.
pub(crate) async fn export(
    from: &dyn Buckets,
    to: &dyn Buckets,
    only: Option<&str>,
    exported: &mut ExportTotals,
    failed: impl Fn(&str),
    progress: impl Fn(&ExportTotals),
) -> Result<()> {
    let names = match only {
        Some(name) => vec![name.to_owned()],
        None => from.list().await?,
    };
    for name in names {
        let source = from.open(&name).await?;
        let target = open_or_create(to, &name)
            .await
            .with_context(|| format!("cannot open or create the directory {name}"))?;
        let mut pages = Pages::new(&*source, ListRequest { limit: PAGE_ENTRIES, ..ListRequest::default() });
        while let Some(entries) =
            pages.next().await.with_context(|| format!("cannot list the bucket {name}"))?
        {
            let copies = entries.into_iter().filter_map(|entry| match entry {
                ListEntry::Object(ListedObject { object, size_bytes, .. }) => {
                    Some(copy(&source, &target, object, size_bytes))
                }
                ListEntry::Prefix(_) => None,
            });
            let mut copies = stream::iter(copies).buffered(COPIES_AT_ONCE);
            while let Some(outcome) = copies.try_next().await? {
                match outcome {
                    Outcome::Copied(size_bytes) => {
                        exported.objects += 1;
                        exported.bytes += size_bytes;
                    }
                    Outcome::Kept => exported.kept += 1,
                    Outcome::Failed(reason) => {
                        exported.failed += 1;
                        failed(&format!("{name}: {reason}"));
                    }
                }
            }
            progress(exported);
        }
    }
    Ok(())
}

async fn open_or_create(to: &dyn Buckets, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
    match to.open(name).await {
        Err(StoreError::NoSuchBucket(_)) => {
            to.create(name).await?;
            to.open(name).await
        }
        opened => opened,
    }
}

async fn copy(
    source: &Arc<dyn ObjectStore>,
    target: &Arc<dyn ObjectStore>,
    object: ObjectRef,
    size_bytes: u64,
) -> Result<Outcome> {
    match copy_if_new(source, target, &object, size_bytes).await {
        Ok(outcome) => Ok(outcome),
        // An error of reading, and a key that no file can have, concern this object only. After another error of writing no object can
        // be stored.
        Err(
            CopyError::Read(error)
            | CopyError::Write(error @ (StoreError::InvalidKey { .. } | StoreError::Invalid(_))),
        ) => Ok(Outcome::Failed(format!("'{}': {error}", object.key))),
        Err(CopyError::Write(error)) => Err(error).with_context(|| format!("cannot copy '{}'", object.key)),
    }
}

async fn copy_if_new(
    source: &Arc<dyn ObjectStore>,
    target: &Arc<dyn ObjectStore>,
    object: &ObjectRef,
    size_bytes: u64,
) -> Result<Outcome, CopyError> {
    let present = target.find(&object.key).await.map_err(CopyError::Write)?;
    let is_copy = |present: &ObjectMeta| {
        present.size_bytes == size_bytes && present.object.last_modified > object.last_modified
    };
    if present.as_ref().is_some_and(is_copy) {
        return Ok(Outcome::Kept);
    }
    copy_bytes(source, target, &object.key).await?;
    Ok(Outcome::Copied(size_bytes))
}

async fn copy_bytes(
    source: &Arc<dyn ObjectStore>,
    target: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
) -> Result<(), CopyError> {
    let object = source.get(key, GetOptions::default()).await.map_err(CopyError::Read)?;
    let tags = source.tags(key).await.map_err(CopyError::Read)?;
    if object.meta.size_bytes > PART_BYTES {
        return copy_parts(object, tags, target, key).await;
    }
    let bytes: Vec<_> = object.body.try_collect().await.map_err(CopyError::Read)?;
    let options = PutOptions { attributes: object.meta.attributes, tags, ..PutOptions::default() };
    target.put(key, bytes.into_iter().collect(), options).await.map(drop).map_err(CopyError::Write)
}

/// Copies an object part by part. The target shows nothing of it before the upload is completed.
async fn copy_parts(
    mut object: Object,
    tags: Tags,
    target: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
) -> Result<(), CopyError> {
    let part_bytes_min = PART_BYTES.max(object.meta.size_bytes.div_ceil(PARTS_MAX));
    let upload = target.multipart(key, object.meta.attributes, tags).await.map_err(CopyError::Write)?;
    let copied = async {
        let (mut number, mut part) = (1, Vec::new());
        let mut part_bytes = 0;
        while let Some(piece) = object.body.try_next().await.map_err(CopyError::Read)? {
            part_bytes += piece.len() as u64;
            part.push(piece);
            if part_bytes >= part_bytes_min {
                let whole: Payload = std::mem::take(&mut part).into_iter().collect();
                upload.put_part(number, whole).await.map_err(CopyError::Write)?;
                (number, part_bytes) = (number + 1, 0);
            }
        }
        if !part.is_empty() {
            let last: Payload = part.into_iter().collect();
            upload.put_part(number, last).await.map_err(CopyError::Write)?;
        }
        upload.complete(Precondition::None).await.map(drop).map_err(CopyError::Write)
    };
    let outcome = copied.await;
    if outcome.is_err() {
        upload.abort().await.map_err(CopyError::Write)?;
    }
    outcome
}
