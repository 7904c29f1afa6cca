//! Scrub: everything is read and compared with its checksums, before somebody needs it.

use super::{Drive, Shell};
use crate::error::Result;
use crate::format::{Body, IndexKey, Kind};
use futures_util::TryStreamExt as _;
use std::ops::Bound;
use std::sync::Arc;
use store::StoreError;

/// How many entries are looked at by one look at the index.
const ENTRIES_AT_ONCE: usize = 256;

/// What a scrub found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// How many objects (versions and parts of uploads too) were read.
    pub objects: u64,
    /// How many bytes of them.
    pub bytes: u64,
    /// What is damaged, and how, one line each.
    pub damaged: Vec<String>,
}

impl Drive {
    /// Reads everything. What is damaged is told, and what else there is goes on being read. `progress` hears how far it is.
    pub async fn scrub(&self, mut progress: impl FnMut(&Scrubbed)) -> Result<Scrubbed> {
        let mut scrubbed = Scrubbed::default();
        if let Err(error) = self.0.blocking(|core| core.verify_tables()).await {
            scrubbed.damaged.push(error.to_string());
        }
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            let entries = self.0.entries_from(from, ENTRIES_AT_ONCE).await?;
            let Some(last) = entries.last() else { return Ok(scrubbed) };
            from = Bound::Excluded(last.0.clone());
            for key in entries {
                self.0.scrub_entry(key, &mut scrubbed).await?;
            }
            progress(&scrubbed);
        }
    }
}

impl Shell {
    /// The keys of the next entries that have bytes.
    async fn entries_from(&self, from: Bound<Vec<u8>>, limit: usize) -> Result<Vec<IndexKey>> {
        let gather = move |core: &Arc<crate::machine::Machine>| {
            let mut scan = core.index.scan(from.as_ref().map(Vec::as_slice), &[])?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some((key, _)) = scan.next()?
            {
                found.push(IndexKey(key.to_vec()));
            }
            Ok(found)
        };
        self.blocking(gather).await
    }

    async fn scrub_entry(self: &Arc<Self>, key: IndexKey, scrubbed: &mut Scrubbed) -> Result<()> {
        let kinds = [Kind::Object, Kind::Version].map(|kind| kind as u8);
        if !key.0.first().is_some_and(|kind| kinds.contains(kind)) {
            return Ok(());
        }
        let Some((record, pins)) = self.held(&key).await? else { return Ok(()) };
        let len = record.body.len_bytes();
        if matches!(record.body, Body::Mark) {
            return Ok(());
        }
        scrubbed.objects += 1;
        let read = self.read(record.body, 0..len, pins).try_for_each(|bytes| {
            scrubbed.bytes += bytes.len() as u64;
            std::future::ready(Ok(()))
        });
        match read.await {
            Err(error @ StoreError::Corrupt(_)) => {
                let (_, object) = key.owner().unwrap_or_default();
                scrubbed.damaged.push(format!("'{}': {error}", String::from_utf8_lossy(&object)));
                Ok(())
            }
            Err(error) => Err(crate::error::Error::Device { at: 0, reason: error.to_string() }),
            Ok(()) => Ok(()),
        }
    }
}
