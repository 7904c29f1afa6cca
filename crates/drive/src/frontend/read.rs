//! Reading: returns the bytes that were stored, or an error.
//!
//! Small objects are read and cached as a whole, larger ones in ranges of whole checksums.

use super::Frontend;
use super::read_cache::{CACHED_BYTES_MAX, CachedRange, ReadCache, copy_if_short};
use crate::codec::crc32c;
use crate::device::{BLOCK_BYTES, Buffer};
use crate::error::{Error, Result};
use crate::format::{Body, InlineData, RunSlice, SUMMED_BYTES, run_blocks_of, sum_blocks_of};
use crate::space::Pins;
use bytes::Bytes;
use futures_util::future::try_join;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _, poll};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use store::StoreError;
use tokio::sync::OnceCell;

/// Length of one read, and the number of reads in flight for one reader.
const READ_BYTES: u64 = CACHED_BYTES_MAX;
const READS_AT_ONCE: usize = 2;

/// Access to an object's bytes.
#[derive(Debug)]
pub(crate) enum Access {
    /// All bytes, from the cache.
    Cached(Bytes),
    /// Pins on the bytes, to read them from the device.
    Pinned(Pins),
}

/// The state shared by the reads of one body.
#[derive(Debug, Clone)]
struct Reader {
    frontend: Arc<Frontend>,
    /// The cache, and the write number of the body in it; `None` to read the device itself.
    cache: Option<(Arc<ReadCache>, u64)>,
    pins: Arc<Pins>,
}

/// One read of a body.
#[derive(Debug, Clone)]
struct ReadStep {
    source: Source,
    /// The index of the source in the body.
    number: u32,
    /// The range of the source's data, in bytes.
    range: Range<u64>,
}

/// Data with a checksum for each [`SUMMED_BYTES`].
#[derive(Debug, Clone)]
enum Source {
    Inline(Arc<InlineData>),
    Run(Arc<(RunSlice, OnceCell<Vec<u32>>)>),
}

impl Source {
    fn len_bytes(&self) -> u64 {
        match self {
            Self::Inline(inline) => inline.len.into(),
            Self::Run(slice) => slice.0.data_bytes,
        }
    }
}

impl ReadStep {
    /// Returns the range to read: whole checksums or, for small objects that are cached, all of the object.
    fn range_to_read(&self, is_cached: bool) -> Range<u64> {
        let len = self.source.len_bytes();
        match self.source {
            Source::Inline(_) if is_cached => 0..len,
            _ => {
                let from = self.range.start / SUMMED_BYTES * SUMMED_BYTES;
                from..self.range.end.next_multiple_of(SUMMED_BYTES).min(len)
            }
        }
    }
}

impl Frontend {
    /// Returns an object's bytes, if all are cached.
    pub(crate) fn cached(&self, write: u64, body: &Body) -> Option<Bytes> {
        let Body::Inline(inline) = body else { return None };
        self.cache.as_ref()?.get(&CachedRange::inline(write, inline.len))
    }

    /// Reads a range of a body. The range must lie in the body. Pins are held until the stream is dropped.
    pub(crate) fn read(
        self: &Arc<Self>,
        (write, body): (u64, Body),
        range: Range<u64>,
        access: Access,
    ) -> BoxStream<'static, store::Result<Bytes>> {
        match access {
            Access::Cached(bytes) => {
                let bytes = bytes.slice(range.start as usize..range.end as usize);
                stream::iter((!bytes.is_empty()).then_some(Ok(bytes))).boxed()
            }
            Access::Pinned(pins) => self.read_stream(Some(write), body, range, pins),
        }
    }

    /// Reads a whole body from the device, without the cache.
    pub(crate) fn read_uncached(
        self: &Arc<Self>,
        body: Body,
        pins: Pins,
    ) -> BoxStream<'static, store::Result<Bytes>> {
        let range = 0..body.len_bytes();
        self.read_stream(None, body, range, pins)
    }

    fn read_stream(
        self: &Arc<Self>,
        write: Option<u64>,
        body: Body,
        range: Range<u64>,
        pins: Pins,
    ) -> BoxStream<'static, store::Result<Bytes>> {
        let cache = self.cache.clone().zip(write);
        let reader = Reader { frontend: self.clone(), cache, pins: Arc::new(pins) };
        let read = move |step: ReadStep| {
            let reader = reader.clone();
            async move { reader.step(step).await.map_err(StoreError::from) }
        };
        stream::iter(steps(body, range)).map(read).buffered(READS_AT_ONCE).boxed()
    }

    /// Reads a range of a body into memory.
    pub(crate) async fn read_all(
        self: &Arc<Self>,
        body: (u64, Body),
        range: Range<u64>,
        pins: Pins,
    ) -> store::Result<Vec<Bytes>> {
        self.read(body, range, Access::Pinned(pins)).try_collect().await
    }
}

impl Reader {
    async fn step(self, step: ReadStep) -> Result<Bytes> {
        let range = step.range_to_read(self.cache.is_some());
        let (from, to) = (step.range.start - range.start, step.range.end - range.start);
        let bytes = match self.cache.clone() {
            Some((cache, write)) => self.read_through_cache(cache, write, step, range).await?,
            None => self.frontend.read_range(&step.source, range).await?,
        };
        Ok(bytes.slice(from as usize..to as usize))
    }

    async fn read_through_cache(
        self,
        cache: Arc<ReadCache>,
        write: u64,
        step: ReadStep,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let len = (range.end - range.start) as u32;
        let cached_range = CachedRange { write, source: step.number, len, from: range.start };
        if let Some(bytes) = cache.get(&cached_range) {
            return Ok(bytes);
        }
        let mut read = Box::pin(async move {
            let Self { frontend, pins, .. } = self;
            let read = async { frontend.read_range(&step.source, range).await.map(copy_if_short) };
            let bytes = cache.get_or_read(&cached_range, read).await;
            drop(pins);
            bytes
        });
        // Polled here first, so that the device gets the requests in the order of the bytes.
        if let Poll::Ready(bytes) = poll!(&mut read) {
            return bytes;
        }
        // Runs to its end even if this reader is cancelled or slow, because other readers may wait for the same range.
        tokio::spawn(read)
            .await
            .unwrap_or_else(|error| Err(Error::Failed(format!("a read was aborted: {error}"))))
    }
}

impl Frontend {
    /// Reads a range of a source's data. The range covers whole checksums, or ends with the data.
    async fn read_range(&self, source: &Source, range: Range<u64>) -> Result<Bytes> {
        match source {
            Source::Inline(inline) => {
                let blocks = self.blocks(inline.at, &range).await?;
                self.verify_or_reconstruct(blocks, sums_from(&inline.sums, &range)).await
            }
            Source::Run(slice) => {
                let (slice, sums) = &**slice;
                self.check_inside(slice)?;
                match self.read_slice(slice, sums, &range).await {
                    Err(error @ Error::Damaged { .. }) => self.reconstruct_slice(slice, range, error).await,
                    read => read,
                }
            }
        }
    }

    fn check_inside(&self, slice: &RunSlice) -> Result<()> {
        match slice.run.end() <= self.engine.geometry.blocks {
            true => Ok(()),
            false => {
                let what = "an object's record, whose data would lie beyond the device's end,";
                Err(Error::damaged(what, slice.run.at()))
            }
        }
    }

    /// Reads a range of a run, and concurrently its checksums unless they were read before. A short run takes a single read.
    async fn read_slice(
        &self,
        slice: &RunSlice,
        sums: &OnceCell<Vec<u32>>,
        range: &Range<u64>,
    ) -> Result<Bytes> {
        let at = slice.run.at();
        let run_bytes = run_blocks_of(slice.data_bytes) * BLOCK_BYTES;
        if run_bytes <= CACHED_BYTES_MAX && *range == (0..slice.data_bytes) && !sums.initialized() {
            let buffer = self.read_blocks(at, run_bytes).await?;
            let sums = sums_in(&buffer[(slice.sums_at() - at) as usize..], slice);
            return self
                .verify_or_reconstruct(Blocks { at, buffer, data: 0..slice.data_bytes as usize }, &sums)
                .await;
        }
        let sums = sums.get_or_try_init(|| self.read_sums(slice));
        let (sums, blocks) = try_join(sums, self.blocks(at, range)).await?;
        self.verify_or_reconstruct(blocks, sums_from(sums, range)).await
    }

    /// Reads the checksums of a run.
    async fn read_sums(&self, slice: &RunSlice) -> Result<Vec<u32>> {
        let blocks = sum_blocks_of(slice.data_bytes);
        Ok(sums_in(&self.read_blocks(slice.sums_at(), blocks * BLOCK_BYTES).await?, slice))
    }

    /// Reads the blocks that contain a range of a source's data.
    async fn blocks(&self, source_at: u64, range: &Range<u64>) -> Result<Blocks> {
        let (from, to) = (source_at + range.start, source_at + range.end);
        let at = from / BLOCK_BYTES * BLOCK_BYTES;
        let buffer = self.read_blocks(at, to.next_multiple_of(BLOCK_BYTES) - at).await?;
        Ok(Blocks { at, buffer, data: (from - at) as usize..(to - at) as usize })
    }

    /// Returns the bytes of the range, verified. Those that do not match their checksums are reconstructed, checksum by checksum, as
    /// another device may be wrong for each.
    async fn verify_or_reconstruct(
        &self,
        Blocks { at, mut buffer, data }: Blocks,
        sums: &[u32],
    ) -> Result<Bytes> {
        let begins = data.clone().step_by(SUMMED_BYTES as usize).zip(sums);
        let wrong: Vec<_> = begins
            .map(|(from, sum)| (from..data.end.min(from + SUMMED_BYTES as usize), *sum))
            .filter(|(range, sum)| !sums_match(&buffer[range.clone()], &[*sum]))
            .collect();
        for (range, sum) in wrong {
            let first = range.start as u64 / BLOCK_BYTES * BLOCK_BYTES;
            let len_bytes = (range.end as u64).next_multiple_of(BLOCK_BYTES) - first;
            let of_blocks = range.start - first as usize..range.end - first as usize;
            let found = self.reconstruct_data(at + first, len_bytes, of_blocks.clone(), &[sum]).await?;
            buffer[range].copy_from_slice(&found[of_blocks]);
        }
        Ok(Bytes::from(buffer).slice(data))
    }
}

/// Blocks read from the device, and the range of bytes asked for.
struct Blocks {
    /// Position of the first block, in bytes from the device's beginning.
    at: u64,
    buffer: Buffer,
    data: Range<usize>,
}

/// Decodes the checksums of a run, which these blocks begin with.
pub(super) fn sums_in(blocks: &[u8], slice: &RunSlice) -> Vec<u32> {
    let count = slice.data_bytes.div_ceil(SUMMED_BYTES) as usize;
    blocks.as_chunks::<4>().0.iter().take(count).map(|sum| u32::from_le_bytes(*sum)).collect()
}

/// Returns the checksums from those of a range on.
pub(super) fn sums_from<'a>(sums: &'a [u32], range: &Range<u64>) -> &'a [u32] {
    &sums[(range.start / SUMMED_BYTES) as usize..]
}

/// Returns whether data matches its checksums.
pub(super) fn sums_match(data: &[u8], sums: &[u32]) -> bool {
    data.chunks(SUMMED_BYTES as usize).zip(sums).all(|(chunk, wanted)| crc32c(chunk) == *wanted)
}

/// Returns the reads for a range of a body. None of them crosses a multiple of [`READ_BYTES`].
fn steps(body: Body, range: Range<u64>) -> impl Iterator<Item = ReadStep> + Send {
    let mut begins = 0;
    sources(body).zip(0..).flat_map(move |((source, of_source), number)| {
        let len = of_source.end - of_source.start;
        let from = range.start.clamp(begins, begins + len) - begins + of_source.start;
        let to = range.end.clamp(begins, begins + len) - begins + of_source.start;
        begins += len;
        let firsts = std::iter::successors(Some(from), |at| Some((at / READ_BYTES + 1) * READ_BYTES));
        let firsts = firsts.take_while(move |&at| at < to);
        firsts.map(move |at| ReadStep {
            source: source.clone(),
            number,
            range: at..to.min((at / READ_BYTES + 1) * READ_BYTES),
        })
    })
}

/// Returns the sources of a body, and the range of each that belongs to the body.
fn sources(body: Body) -> impl Iterator<Item = (Source, Range<u64>)> + Send {
    let (inline, slices) = match body {
        Body::Inline(inline) => (Some(inline), Vec::new()),
        Body::Runs(slices) => (None, slices),
        Body::DeleteMarker => (None, Vec::new()),
    };
    let inline = inline.map(|inline| {
        let range = 0..inline.len.into();
        (Source::Inline(Arc::new(inline)), range)
    });
    let slices = slices.into_iter().map(|slice| {
        let range = slice.skip_bytes..slice.skip_bytes + slice.len_bytes;
        (Source::Run(Arc::new((slice, OnceCell::new()))), range)
    });
    inline.into_iter().chain(slices)
}
