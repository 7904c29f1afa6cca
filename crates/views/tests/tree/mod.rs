//! The directories of one client.

mod faulty_bucket;
mod model;
mod new_files;
mod recency;
mod renames;

use crate::fake_handler::FakeHandler;
use faulty_bucket::FaultyBucket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::{Clock, ETag, ObjectKey, Timestamp};
use views::tree::{DIRECTORY_PROPERTY, Entry, Tree, TreeParts};
use views::{ObjectName, Shown};

/// A clock that tests set.
#[derive(Debug, Default)]
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    /// Advances the clock by the least amount.
    pub(crate) fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn move_by(&self, secs: i64) {
        self.0.fetch_add(secs * 1_000_000_000, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// A tree with a fake handler.
pub(crate) struct World {
    pub(crate) handler: Arc<FakeHandler>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) bucket: FaultyBucket,
    pub(crate) tree: Tree,
}

impl World {
    /// Creates a tree that asks the handler at every access.
    pub(crate) async fn new(rulesets: &str) -> Self {
        Self::with_recency(rulesets, Duration::ZERO).await
    }

    pub(crate) async fn with_recency(rulesets: &str, recency: Duration) -> Self {
        let (handler, clock) =
            (Arc::new(FakeHandler::default()), Arc::new(ManualClock(AtomicI64::new(1 << 60))));
        let bucket = FaultyBucket::new(clock.clone());
        let tree = tree(rulesets, recency, &handler, &clock, &bucket, None).await;
        Self { handler, clock, bucket, tree }
    }

    /// Returns the names in a directory; those of directories end with `/`.
    pub(crate) async fn names(&self, path: &str) -> Vec<String> {
        let entries = self.tree.list(&split(path), None, usize::MAX).await.unwrap();
        let shown = |(name, entry): (Arc<[u8]>, Entry)| {
            let slash = if entry == Entry::Directory { "/" } else { "" };
            format!("{}{slash}", String::from_utf8_lossy(&name))
        };
        entries.into_iter().map(shown).collect()
    }

    /// Returns the key of the file of a path, or `/` for a directory.
    pub(crate) async fn key(&self, path: &str) -> Option<String> {
        match self.tree.find(&split(path)).await.unwrap()? {
            Entry::Directory => Some("/".into()),
            Entry::File(shown) => Some(String::from_utf8_lossy(shown.key()).into_owned()),
        }
    }
}

pub(crate) async fn tree(
    rulesets: &str,
    recency: Duration,
    handler: &Arc<FakeHandler>,
    clock: &Arc<ManualClock>,
    bucket: &FaultyBucket,
    dir: Option<&Path>,
) -> Tree {
    let rulesets = views::read(rulesets).unwrap();
    let (views, clock, buckets) = (handler.clone(), clock.clone(), Arc::new(bucket.clone()));
    let dir = dir.map(Path::to_owned);
    let parts =
        TreeParts { views, rulesets, recency, clock, buckets, handler: None, dir, memory_max_bytes: None };
    Tree::start(parts).await.unwrap()
}

pub(crate) fn split(path: &str) -> Vec<&[u8]> {
    path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes).collect()
}

pub(crate) fn name(key: &str) -> ObjectName {
    ObjectName { container: "bucket".into(), key: ObjectKey::try_from(key).unwrap() }
}

/// Returns an object that names `directory` as its directory, unless that is empty.
pub(crate) fn object(key: &str, directory: &str) -> Shown {
    let said = (!directory.is_empty()).then(|| (DIRECTORY_PROPERTY.to_owned(), directory.to_owned()));
    Shown {
        name: name(key),
        size_bytes: 7,
        etag: ETag::new("e"),
        modified: Timestamp(0),
        content_type: None,
        properties: Some(said.into_iter().collect()),
        tags: None,
    }
}
