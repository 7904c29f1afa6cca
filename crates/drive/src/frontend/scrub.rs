//! Scrub: reads everything on the drive and compares it with its checksums, to find damage before the data is needed.

use super::{Drive, Frontend};
use crate::device::Pace;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::{Body, IndexKey, Kind};
use crate::index::Losses;
use futures_util::TryStreamExt as _;
use std::ops::Bound;
use std::sync::Arc;

/// Entries fetched by one index lookup.
const ENTRIES_AT_ONCE: usize = 256;

/// The outcome of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Objects read, older versions and parts of uploads included.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Blocks of devices that were damaged and have been repaired since the last scrub or the opening.
    pub repaired: u64,
    /// Damage that could not be repaired, one line each.
    pub damaged: Vec<String>,
}

/// No limit.
struct Unlimited;

#[async_trait::async_trait]
impl Pace for Unlimited {
    async fn after(&self, _: u64) {}
}

impl Drive {
    /// Scrubs as fast as the devices allow: see [`scrub_at`](Self::scrub_at).
    pub async fn scrub(&self, progress: impl FnMut(&Scrubbed)) -> Result<Scrubbed> {
        self.scrub_at(&Unlimited, progress).await
    }

    /// Reads everything, at a limited pace. Reports damaged and unreadable data and continues. Rewrites what can be computed from other
    /// devices, unless the drive is open read-only. The drive may be used meanwhile: objects stored after the scrub has passed their place
    /// are not read. `progress` is called repeatedly with the outcome so far.
    pub async fn scrub_at(&self, pace: &dyn Pace, mut progress: impl FnMut(&Scrubbed)) -> Result<Scrubbed> {
        let frontend = &self.0;
        let mut repaired_before = frontend.scrub_lock.lock().await;
        let mut scrubbed = Scrubbed::default();
        for table in frontend.engine.tables() {
            let step = frontend.run_blocking(move |engine| Ok(engine.verify_table(&table))).await?;
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
        }
        for zone in frontend.engine.pack_zones() {
            let step = frontend.run_blocking(move |engine| Ok(engine.verify_frames(zone))).await?;
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
        }
        let losses = Losses::default();
        frontend.scrub_objects(&losses, pace, &mut scrubbed, &mut progress).await?;
        scrubbed.damaged.extend(losses.lines());
        // Parity is recomputed only if all data is intact. Unreadable sectors are rewritten in any case.
        let is_right = scrubbed.damaged.is_empty();
        if frontend.engine.device().has_redundancy() {
            frontend.scrub_rows(is_right, pace, &mut scrubbed).await?;
        }
        let repaired = frontend.engine.device().repaired_blocks();
        scrubbed.repaired = repaired - std::mem::replace(&mut *repaired_before, repaired);
        Ok(scrubbed)
    }
}

impl Frontend {
    /// Reads what each device holds of everything in use, parity included.
    async fn scrub_rows(
        self: &Arc<Self>,
        is_right: bool,
        pace: &dyn Pace,
        scrubbed: &mut Scrubbed,
    ) -> Result<()> {
        let root = self.run_blocking(move |engine| engine.scrub_root(is_right)).await?;
        scrubbed.damaged.extend(root.damaged);
        for table in self.engine.tables() {
            let step = self.run_blocking(move |engine| engine.scrub_table(&table, is_right)).await?;
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
        }
        let mut from = 0;
        while let Some((next, step)) =
            self.run_blocking(move |engine| engine.scrub_objects_from(from, is_right)).await?
        {
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
            from = next;
        }
        self.run_blocking(|engine| engine.flush_scrubbed()).await
    }

    async fn scrub_objects(
        self: &Arc<Self>,
        losses: &Losses,
        pace: &dyn Pace,
        scrubbed: &mut Scrubbed,
        progress: &mut impl FnMut(&Scrubbed),
    ) -> Result<()> {
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            let losses = losses.clone();
            let gather = move |engine: &Arc<Engine>| {
                let mut scan = engine.index.scan_readable(from.as_ref().map(Vec::as_slice), &losses);
                let mut found = Vec::new();
                while found.len() < ENTRIES_AT_ONCE
                    && let Some((key, _)) = scan.next()?
                {
                    found.push(IndexKey(key.to_vec()));
                }
                Ok(found)
            };
            let keys = self.run_blocking(gather).await?;
            let Some(last) = keys.last() else { return Ok(()) };
            from = Bound::Excluded(last.0.clone());
            for key in keys {
                let before = scrubbed.bytes;
                self.scrub_entry(key, scrubbed).await;
                if scrubbed.bytes > before {
                    pace.after(scrubbed.bytes - before).await;
                }
            }
            progress(scrubbed);
        }
    }

    async fn scrub_entry(self: &Arc<Self>, key: IndexKey, scrubbed: &mut Scrubbed) {
        let kinds = [Kind::Object, Kind::Version, Kind::Part].map(|kind| kind as u8);
        if !key.0.first().is_some_and(|kind| kinds.contains(kind)) {
            return;
        }
        if let Err(error) = self.scrub_object(&key, scrubbed).await {
            let whose = match key.bucket_and_key() {
                Some((_, object)) => format!("'{}'", String::from_utf8_lossy(&object)),
                None => "a part of an upload".to_owned(),
            };
            scrubbed.damaged.push(format!("{whose}: {error}"));
        }
    }

    async fn scrub_object(self: &Arc<Self>, key: &IndexKey, scrubbed: &mut Scrubbed) -> store::Result<()> {
        let Some((record, pins)) = self.pinned_record(key).await? else { return Ok(()) };
        if matches!(record.body, Body::DeleteMarker) {
            return Ok(());
        }
        scrubbed.objects += 1;
        let read = self.read_uncached(record.body, pins).try_for_each(|bytes| {
            scrubbed.bytes += bytes.len() as u64;
            std::future::ready(Ok(()))
        });
        read.await
    }
}
