//! Storing: small objects go into the frame that commits them, others into runs.

use super::Frontend;
use crate::codec::crc32c;
use crate::error::Result;
use crate::format::{Body, InlineData, RunSlice, SUMMED_BYTES};
use crate::space::Hold;
use bytes::Bytes;
use std::sync::Arc;
use store::{ETag, Payload};

/// An object's bytes, stored except for the commit that names them.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) body: Body,
    /// The bytes, if they go into the frame.
    pub(crate) inline_bytes: Option<Bytes>,
    /// Guards on the runs, until a commit names them.
    pub(crate) holds: Vec<Hold>,
    /// The etag, if it is not derived from the write number.
    pub(crate) etag: Option<ETag>,
    /// The numbers under which the bytes of the runs are cached, each with the number of runs it applies to, in order; 0: not cached.
    pub(crate) cache_numbers: Vec<(u64, usize)>,
}

impl Stored {
    /// Sets the etag.
    pub(crate) fn with_etag(self, etag: Option<ETag>) -> Self {
        Self { etag, ..self }
    }

    /// Sets the number under which the bytes of all runs are cached.
    pub(crate) fn with_cache_number(self, write: u64) -> Self {
        let runs = self.cache_numbers.iter().map(|(_, runs)| runs).sum();
        Self { cache_numbers: vec![(write, runs)], ..self }
    }

    pub(crate) fn of_slices(slices: Vec<RunSlice>, holds: Vec<Hold>) -> Self {
        let cache_numbers = vec![(0, slices.len())];
        Self { body: Body::Runs(slices), inline_bytes: None, holds, etag: None, cache_numbers }
    }

    /// Returns stored bytes that the commit will write into its frame. They are copied to memory of their own, as they
    /// may be cached and receive buffers are longer.
    fn inline(bytes: &Payload) -> Self {
        let joined = Bytes::from(bytes.pieces().concat());
        let sums = joined.chunks(SUMMED_BYTES as usize).map(crc32c).collect();
        let body = Body::Inline(InlineData { at: 0, len: joined.len() as u32, sums });
        Self { body, inline_bytes: Some(joined), holds: Vec::new(), etag: None, cache_numbers: Vec::new() }
    }
}

impl Frontend {
    /// Stores an object's bytes, in a frame or in runs by their length.
    pub(crate) async fn store(self: &Arc<Self>, bytes: Payload) -> Result<Stored> {
        let inline_bytes_max = self.engine.policy.inline_bytes_max();
        self.store_as(bytes, inline_bytes_max).await
    }

    /// Stores bytes: prepares them for the frame of the commit if there are at most `inline_bytes_max`, else writes
    /// them to runs.
    pub(crate) async fn store_as(self: &Arc<Self>, bytes: Payload, inline_bytes_max: u64) -> Result<Stored> {
        self.engine.check_writable()?;
        match bytes.len() {
            0 => Ok(Stored::of_slices(Vec::new(), Vec::new())),
            len if len <= inline_bytes_max => {
                self.ensure_log_room(len).await?;
                Ok(Stored::inline(&bytes))
            }
            _ => self.store_in_runs(bytes).await,
        }
    }

    /// Stores bytes in runs.
    pub(crate) async fn store_in_runs(self: &Arc<Self>, bytes: Payload) -> Result<Stored> {
        let mut writer = self.run_writer(bytes.len())?;
        for piece in bytes.pieces() {
            writer.push(piece).await?;
        }
        writer.finish().await
    }
}
