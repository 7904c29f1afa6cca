//! Objects of a drive as files of directories, each directory a bucket, as `dirs:///DIR` serves them.
//!
//! What is there already with the object's length, and was stored after it, is the object: who was interrupted goes on where that
//! was. What is damaged, cannot be read, or no file can be, is told and left out.

use anyhow::{Context, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::Arc;
use store::{
    Buckets, GetOptions, ListEntry, ListRequest, Object, ObjectKey, ObjectMeta, ObjectRef, ObjectStore,
    Pages, Payload, Precondition, PutOptions, StoreError, Tags,
};

/// Larger objects are written in parts of this length, so that none need be in memory as a whole; the largest in longer ones.
const PART_BYTES: u64 = 16 << 20;

/// No object has more.
const PARTS_MAX: u64 = 10_000;

/// So many objects are copied at the same time.
const COPIES_AT_ONCE: usize = 4;

const PAGE_ENTRIES: usize = 1000;

/// What an export has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exported {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// Were there already.
    pub(crate) kept: u64,
    /// Were left out.
    pub(crate) failed: u64,
}

/// What became of an object.
enum Outcome {
    Copied(u64),
    Kept,
    Failed(String),
}

/// Why an object was not copied.
enum Stopped {
    Reading(StoreError),
    Writing(StoreError),
}

/// Copies buckets, or one of them, beside what was exported before. Each object that is left out is told, and so is every page how far it is.
pub(crate) async fn export(
    from: &dyn Buckets,
    to: &dyn Buckets,
    only: Option<&str>,
    exported: &mut Exported,
    failed: impl Fn(&str),
    progress: impl Fn(&Exported),
) -> Result<()> {
    let names = match only {
        Some(name) => vec![name.to_owned()],
        None => from.list().await?,
    };
    for name in names {
        let source = from.open(&name).await?;
        let target = target(to, &name).await.with_context(|| format!("cannot make the directory {name}"))?;
        let mut pages = Pages::of(&*source, ListRequest { limit: PAGE_ENTRIES, ..ListRequest::default() });
        while let Some(entries) =
            pages.next().await.with_context(|| format!("cannot list the bucket {name}"))?
        {
            let copies = entries.into_iter().filter_map(|entry| match entry {
                ListEntry::Object { object, size_bytes } => Some(copy(&source, &target, object, size_bytes)),
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

async fn target(to: &dyn Buckets, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
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
        // What another object is read of may be well, but where one cannot be written none can.
        Err(
            Stopped::Reading(error)
            | Stopped::Writing(error @ (StoreError::InvalidKey { .. } | StoreError::Invalid(_))),
        ) => Ok(Outcome::Failed(format!("'{}': {error}", object.key))),
        Err(Stopped::Writing(error)) => Err(error).with_context(|| format!("cannot copy '{}'", object.key)),
    }
}

async fn copy_if_new(
    source: &Arc<dyn ObjectStore>,
    target: &Arc<dyn ObjectStore>,
    object: &ObjectRef,
    size_bytes: u64,
) -> Result<Outcome, Stopped> {
    let there = target.find(&object.key).await.map_err(Stopped::Writing)?;
    let is_there = |there: &ObjectMeta| {
        there.size_bytes == size_bytes && there.object.last_modified > object.last_modified
    };
    if there.as_ref().is_some_and(is_there) {
        return Ok(Outcome::Kept);
    }
    copy_bytes(source, target, &object.key).await?;
    Ok(Outcome::Copied(size_bytes))
}

async fn copy_bytes(
    source: &Arc<dyn ObjectStore>,
    target: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
) -> Result<(), Stopped> {
    let object = source.get(key, GetOptions::default()).await.map_err(Stopped::Reading)?;
    let tags = source.tags(key).await.map_err(Stopped::Reading)?;
    if object.meta.size_bytes > PART_BYTES {
        return copy_parts(object, tags, target, key).await;
    }
    let bytes: Vec<_> = object.body.try_collect().await.map_err(Stopped::Reading)?;
    let options = PutOptions { attributes: object.meta.attributes, tags, ..PutOptions::default() };
    target.put(key, bytes.into_iter().collect(), options).await.map(drop).map_err(Stopped::Writing)
}

/// Part by part; nothing of it is seen before the last.
async fn copy_parts(
    mut object: Object,
    tags: Tags,
    target: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
) -> Result<(), Stopped> {
    let part_bytes_min = PART_BYTES.max(object.meta.size_bytes.div_ceil(PARTS_MAX));
    let upload = target.multipart(key, object.meta.attributes, tags).await.map_err(Stopped::Writing)?;
    let copied = async {
        let (mut number, mut part) = (1, Vec::new());
        let mut part_bytes = 0;
        while let Some(piece) = object.body.try_next().await.map_err(Stopped::Reading)? {
            part_bytes += piece.len() as u64;
            part.push(piece);
            if part_bytes >= part_bytes_min {
                let whole: Payload = std::mem::take(&mut part).into_iter().collect();
                upload.put_part(number, whole).await.map_err(Stopped::Writing)?;
                (number, part_bytes) = (number + 1, 0);
            }
        }
        if !part.is_empty() {
            let last: Payload = part.into_iter().collect();
            upload.put_part(number, last).await.map_err(Stopped::Writing)?;
        }
        upload.complete(Precondition::None).await.map(drop).map_err(Stopped::Writing)
    };
    let outcome = copied.await;
    if outcome.is_err() {
        upload.abort().await.map_err(Stopped::Writing)?;
    }
    outcome
}
