//! Scrub: everything is read and compared with its checksums, before somebody needs it.

use super::{Drive, Shell};
use crate::error::{Error, Result};
use crate::format::{Body, IndexKey, Kind};
use futures_util::TryStreamExt as _;
use std::ops::Bound;
use std::sync::Arc;

/// How many entries are looked at by one look at the index.
const ENTRIES_AT_ONCE: usize = 256;

/// What a scrub found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// How many objects (versions and parts of uploads too) were read.
    pub objects: u64,
    /// How many bytes of them.
    pub bytes: u64,
    /// How many blocks of devices were damaged, and were written anew from others.
    pub mended: u64,
    /// What is damaged, and how, one line each.
    pub damaged: Vec<String>,
}

impl Drive {
    /// Reads everything. What is damaged, or cannot be read, is told, and what else there is goes on being read; what other devices have is written anew,
    /// if the drive was not opened to read only. Nobody writes meanwhile. `progress` hears how far it is.
    pub async fn scrub(&self, mut progress: impl FnMut(&Scrubbed)) -> Result<Scrubbed> {
        let mut scrubbed = Scrubbed::default();
        if let Err(error) = self.0.blocking(|machine| machine.verify_tables()).await {
            scrubbed.damaged.push(error.to_string());
        }
        match self.0.blocking(|machine| machine.verify_frames()).await {
            Ok(damaged) => scrubbed.damaged.extend(damaged),
            Err(error) => scrubbed.damaged.push(format!("frames of small objects: {error}")),
        }
        match self.0.scrub_objects(&mut scrubbed, &mut progress).await {
            // Told already, and what the index does not name cannot be read.
            Err(Error::DamagedIndex { .. }) if !scrubbed.damaged.is_empty() => {}
            outcome => outcome?,
        }
        if scrubbed.damaged.is_empty() {
            // What is not damaged is what parity is of.
            self.0.blocking(|machine| machine.mend_parity()).await?;
        }
        scrubbed.mended = self.0.machine.device.mended();
        Ok(scrubbed)
    }
}

impl Shell {
    async fn scrub_objects(
        self: &Arc<Self>,
        scrubbed: &mut Scrubbed,
        progress: &mut impl FnMut(&Scrubbed),
    ) -> Result<()> {
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            let entries = self.entries_from(from, IndexKey(Vec::new()), ENTRIES_AT_ONCE).await?;
            let Some((last, _)) = entries.last() else { return Ok(()) };
            from = Bound::Excluded(last.0.clone());
            for (key, _) in entries {
                self.scrub_entry(key, scrubbed).await?;
            }
            progress(scrubbed);
        }
    }

    async fn scrub_entry(self: &Arc<Self>, key: IndexKey, scrubbed: &mut Scrubbed) -> Result<()> {
        let kinds = [Kind::Object, Kind::Version, Kind::Part].map(|kind| kind as u8);
        if !key.0.first().is_some_and(|kind| kinds.contains(kind)) {
            return Ok(());
        }
        let Some((record, pins)) = self.held(&key).await? else { return Ok(()) };
        if matches!(record.body, Body::Mark) {
            return Ok(());
        }
        scrubbed.objects += 1;
        let read = self.read_past_cache(record.body, pins).try_for_each(|bytes| {
            scrubbed.bytes += bytes.len() as u64;
            std::future::ready(Ok(()))
        });
        match read.await {
            Err(error) => {
                let whose = match key.owner() {
                    Some((_, object)) => format!("'{}'", String::from_utf8_lossy(&object)),
                    None => "a part of an upload".to_owned(),
                };
                scrubbed.damaged.push(format!("{whose}: {error}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
