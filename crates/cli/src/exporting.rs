//! Objects of a drive as files of directories, each directory a bucket, as `dirs:///DIR` serves them.
//!
//! What is there already with the object's length, and was stored after it, is the object: who was interrupted goes on where that
//! was. What is damaged, or no file can be, is told and left out.

use anyhow::{Context, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::Arc;
use store::{
    Buckets, GetOptions, ListEntry, ListRequest, Object, ObjectKey, ObjectRef, ObjectStore, Pages, Payload,
    Precondition, PutOptions, StoreError, Tags,
};

/// Larger objects are written in parts of this length, so that none need be in memory as a whole.
const PART_BYTES: u64 = 16 << 20;

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

/// Copies buckets, or one of them. Each object that is left out is told, and so is every page how far it is.
pub(crate) async fn export(
    from: &dyn Buckets,
    to: &dyn Buckets,
    only: Option<&str>,
    failed: impl Fn(&str),
    progress: impl Fn(&Exported),
) -> Result<Exported> {
    let names = match only {
        Some(name) => vec![name.to_owned()],
        None => from.list().await?,
    };
    let mut exported = Exported::default();
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
            progress(&exported);
        }
    }
    Ok(exported)
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
    let key = object.key;
    if let Some(there) = target.find(&key).await?
        && there.size_bytes == size_bytes
        && there.object.last_modified > object.last_modified
    {
        return Ok(Outcome::Kept);
    }
    match copy_bytes(source, target, &key).await {
        Ok(()) => Ok(Outcome::Copied(size_bytes)),
        Err(error @ (StoreError::Corrupt(_) | StoreError::InvalidKey { .. } | StoreError::Invalid(_))) => {
            Ok(Outcome::Failed(format!("'{key}': {error}")))
        }
        Err(error) => Err(error).with_context(|| format!("cannot copy '{key}'")),
    }
}

async fn copy_bytes(
    source: &Arc<dyn ObjectStore>,
    target: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
) -> store::Result<()> {
    let object = source.get(key, GetOptions::default()).await?;
    let tags = source.tags(key).await?;
    if object.meta.size_bytes > PART_BYTES {
        return copy_parts(object, tags, target, key).await;
    }
    let bytes: Vec<_> = object.body.try_collect().await?;
    let options = PutOptions { attributes: object.meta.attributes, tags, ..PutOptions::default() };
    target.put(key, bytes.into_iter().collect(), options).await.map(drop)
}

/// Part by part; nothing of it is seen before the last.
async fn copy_parts(
    mut object: Object,
    tags: Tags,
    target: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
) -> store::Result<()> {
    let upload = target.multipart(key, object.meta.attributes, tags).await?;
    let copied = async {
        let (mut number, mut part) = (1, Vec::new());
        let mut part_bytes = 0;
        while let Some(piece) = object.body.try_next().await? {
            part_bytes += piece.len() as u64;
            part.push(piece);
            if part_bytes >= PART_BYTES {
                upload.put_part(number, std::mem::take(&mut part).into_iter().collect()).await?;
                (number, part_bytes) = (number + 1, 0);
            }
        }
        if !part.is_empty() {
            let last: Payload = part.into_iter().collect();
            upload.put_part(number, last).await?;
        }
        upload.complete(Precondition::None).await.map(drop)
    };
    let outcome = copied.await;
    if outcome.is_err() {
        upload.abort().await?;
    }
    outcome
}
