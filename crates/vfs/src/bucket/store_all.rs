//! Storing of everything that waits: unpublished writes, attributes, deletions, and files that an earlier mount left in pieces.

use bytes::Bytes;
use futures_util::StreamExt as _;
use meta::{Ino, Name};
use std::sync::Arc;
use store::{ListEntry, ListRequest, ListedObject, Pages};

use crate::bucket::discovery::PAGE_ENTRIES;
use crate::bucket::exports::Exporter;
use crate::content::open_file::OpenFile;
use crate::content::write::When;
use crate::fail_fast::Unanswered as _;
use crate::outcomes::Outcomes;
use crate::{Error, Result};

/// Files stored at the same time by a sync: for many small files the store's latency dominates, and the parts of large files
/// are limited over all files.
const PUBLISHED_AT_ONCE: usize = 16;

impl Exporter {
    /// Publishes all unpublished writes, exports all pending attributes, records access times, deletes unused objects,
    /// and makes the store and the names durable. Tries everything unless the store does not answer; returns the first
    /// error.
    pub(crate) async fn sync(&self, when: When) -> Result<()> {
        let mut outcome = self.publish_all(when).await;
        outcome = outcome.and(self.names.flush_access_times());
        if !outcome.as_ref().is_err_and(Error::gave_no_usable_answer) {
            self.content.discards().wait_until_drained().await;
            outcome = outcome.and(self.mount.store.sync().await.map_err(Error::from));
        }
        outcome.and(self.names.sync_names().await)
    }

    /// Publishes all unpublished writes and exports all pending attributes.
    async fn publish_all(&self, when: When) -> Result<()> {
        let outcomes = Outcomes::default();
        let publish = |file: Arc<OpenFile>| {
            let outcomes = &outcomes;
            async move { outcomes.add(self.publisher.commit(&file, when)).await }
        };
        futures_util::stream::iter(self.content.files().all())
            .for_each_concurrent(PUBLISHED_AT_ONCE, publish)
            .await;
        let published = outcomes.into_result();
        if published.as_ref().is_err_and(Error::gave_no_usable_answer) {
            return published;
        }
        published.and(self.export_all().await)
    }

    /// Stores files at their paths that have objects under keys of their own, found by listing these keys. Files that
    /// belong there are not changed.
    pub(crate) async fn assemble_interrupted(&self) -> Result<()> {
        if !self.mount.layout.joins_buckets() {
            return self.assemble_interrupted_below(self.mount.layout.content_prefix(None)).await;
        }
        for bucket in self.visited_buckets()? {
            match self.assemble_interrupted_below(self.mount.layout.content_prefix(Some(&bucket))).await {
                Err(error) if error.is_of_one_bucket() => {
                    tracing::warn!(%bucket, %error, "files that were being written when the last mount ended cannot be completed in this bucket");
                }
                assembled => assembled?,
            }
        }
        Ok(())
    }

    /// Returns the buckets in which the metadata knows something. Only these can have content of an earlier mount.
    fn visited_buckets(&self) -> Result<Vec<Name>> {
        let (mut visited, mut after) = (Vec::new(), None);
        loop {
            let buckets = self.names.tables().entries(Ino::ROOT, after.as_ref(), PAGE_ENTRIES)?;
            let Some((last, _)) = buckets.last() else { return Ok(visited) };
            after = Some(last.clone());
            for (name, bucket) in buckets {
                if !self.names.tables().entries(bucket.ino, None, 1)?.is_empty() {
                    visited.push(name);
                }
            }
        }
    }

    async fn assemble_interrupted_below(&self, prefix: Bytes) -> Result<()> {
        let request = ListRequest { prefix, limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::new(self.mount.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                let ListEntry::Object(ListedObject { object, .. }) = entry else { continue };
                let Some(ino) = self.mount.layout.content_owner(&object.key) else { continue };
                if self.names.tables().inode(ino).is_ok_and(|inode| !inode.is_orphan()) {
                    let file = self.opener.open_file(ino)?;
                    let shown = self.publisher.show_at_path(&file, &mut *file.write_state.lock().await).await;
                    shown.and(file.close().await)?;
                }
            }
        }
        Ok(())
    }
}
