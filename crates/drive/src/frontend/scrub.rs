//! Scrub: reads everything on the drive and compares it with its checksums, to find damage before the data is needed.

use super::{Drive, Frontend};
use crate::device::{BlockDevice, Pace};
use crate::engine::Engine;
use crate::error::Result;
use crate::format::{Body, IndexKey, Kind};
use crate::index::Losses;
use futures_util::TryStreamExt as _;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of times that all data is verified to determine whether parity is wrong.
const VERIFICATIONS_MAX: usize = 4;
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

/// Makes reads always ask the devices that have the bytes, until it is dropped.
struct DirectReads(Arc<dyn BlockDevice>);

impl DirectReads {
    fn begin(device: Arc<dyn BlockDevice>) -> Self {
        device.read_directly(true);
        Self(device)
    }
}

impl Drop for DirectReads {
    fn drop(&mut self) {
        self.0.read_directly(false);
    }
}

/// A pace without a limit.
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
        let _direct = DirectReads::begin(frontend.engine.device().clone());
        let mut scrubbed = Scrubbed::default();
        let is_verified = frontend.verify_all(pace, &mut scrubbed, &mut progress).await?;
        if frontend.engine.device().has_redundancy() {
            frontend.scrub_parity(is_verified, pace, &mut scrubbed).await?;
        }
        let repaired = frontend.engine.device().repaired_blocks();
        scrubbed.repaired = repaired - std::mem::replace(&mut *repaired_before, repaired);
        Ok(scrubbed)
    }
}

impl Frontend {
    /// Reads all data and compares it with its checksums. Returns whether it is right as the devices have it: nothing is damaged, and no
    /// device was left out of a read because it failed.
    async fn verify_all(
        self: &Arc<Self>,
        pace: &dyn Pace,
        scrubbed: &mut Scrubbed,
        progress: &mut impl FnMut(&Scrubbed),
    ) -> Result<bool> {
        let indirect_before = self.engine.device().indirect_reads();
        let root = self.run_blocking(|engine| Ok(engine.verify_root())).await?;
        scrubbed.damaged.extend(root.damaged);
        for table in self.engine.tables() {
            let step = self.run_blocking(move |engine| Ok(engine.verify_table(&table))).await?;
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
        }
        for zone in self.engine.pack_zones() {
            let step = self.run_blocking(move |engine| Ok(engine.verify_frames(zone))).await?;
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
        }
        let losses = Losses::default();
        self.scrub_objects(&losses, pace, scrubbed, progress).await?;
        scrubbed.damaged.extend(losses.lines());
        let is_direct = self.engine.device().indirect_reads() == indirect_before;
        Ok(is_direct && scrubbed.damaged.is_empty())
    }

    /// Rewrites unreadable blocks, and parity that differs from the data.
    ///
    /// If parity differs from the data, either may be wrong. Right bytes may have been computed from that parity while the device that
    /// has them could not be read. So parity is rewritten only after all data was verified as the devices have it.
    async fn scrub_parity(
        self: &Arc<Self>,
        mut is_verified: bool,
        pace: &dyn Pace,
        scrubbed: &mut Scrubbed,
    ) -> Result<()> {
        for _ in 0..VERIFICATIONS_MAX {
            let has_wrong_parity = self.scrub_rows(is_verified, pace, scrubbed).await?;
            if !has_wrong_parity || !scrubbed.damaged.is_empty() || self.engine.check_writable().is_err() {
                return Ok(());
            }
            // Blocks that could not be read have been rewritten.
            let mut again = Scrubbed::default();
            is_verified = self.verify_all(pace, &mut again, &mut |_| ()).await?;
            scrubbed.damaged.append(&mut again.damaged);
        }
        scrubbed.damaged.push(
            "parity differs from the data and was not rewritten, as devices failed to read: scrub again"
                .into(),
        );
        Ok(())
    }

    /// Reads what each device holds of everything in use, parity included. Returns whether parity differs from the data, and was not
    /// rewritten.
    async fn scrub_rows(
        self: &Arc<Self>,
        is_verified: bool,
        pace: &dyn Pace,
        scrubbed: &mut Scrubbed,
    ) -> Result<bool> {
        let root = self.run_blocking(move |engine| engine.scrub_root(is_verified)).await?;
        let mut has_wrong_parity = root.has_wrong_parity;
        scrubbed.damaged.extend(root.damaged);
        for table in self.engine.tables() {
            let step = self.run_blocking(move |engine| engine.scrub_table(&table, is_verified)).await?;
            has_wrong_parity |= step.has_wrong_parity;
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
        }
        let mut from = 0;
        while let Some((next, step)) =
            self.run_blocking(move |engine| engine.scrub_objects_from(from, is_verified)).await?
        {
            has_wrong_parity |= step.has_wrong_parity;
            scrubbed.damaged.extend(step.damaged);
            pace.after(step.bytes).await;
            from = next;
        }
        self.run_blocking(|engine| engine.flush_scrubbed()).await?;
        Ok(has_wrong_parity)
    }

    /// Reads all objects, versions and parts, and counts them in `scrubbed`.
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

    /// Reads the bytes of an index entry, if it has any, and notes them if they are damaged.
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

    /// Reads the bytes of an object, version or part. Fails if they are damaged.
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
