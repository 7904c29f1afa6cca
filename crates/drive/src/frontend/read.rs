//! Reading: returns the bytes that were stored, or an error.
//!
//! Inline data is read and cached as a whole, data in runs in ranges of whole checksums. Without the cache, inline data
//! is read in such ranges too.

use super::Frontend;
use super::read_cache::{CACHED_BYTES_MAX, CachedRange, ReadCache, copy_if_short};
use super::verified_reader::Source;
use crate::error::{Error, Result};
use crate::format::{Body, SUMMED_BYTES};
use crate::space::Pins;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _, poll};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use store::StoreError;

/// Length of one read, and the number of reads in flight for one reader.
const READ_BYTES: u64 = CACHED_BYTES_MAX;
/// Maximum number of reads of one stream at a time.
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
    /// Returns the bytes of an object with inline data, if they are cached. Returns `None` for an object in runs.
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

    /// Returns a stream of the bytes of a range, read from the cache or the device.
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
    /// Reads the bytes of one step.
    async fn step(self, step: ReadStep) -> Result<Bytes> {
        let range = step.range_to_read(self.cache.is_some());
        let (from, to) = (step.range.start - range.start, step.range.end - range.start);
        let bytes = match self.cache.clone() {
            Some((cache, write)) => self.read_through_cache(cache, write, step, range).await?,
            None => self.read_from_device(step, range).await?,
        };
        Ok(bytes.slice(from as usize..to as usize))
    }

    /// Reads a range from the device. On an array this may include a repair, which must not continue without the pins, because the blocks
    /// could then have another owner.
    async fn read_from_device(self, step: ReadStep, range: Range<u64>) -> Result<Bytes> {
        let Self { frontend, pins, .. } = self;
        run_to_end(async move {
            let bytes = frontend.reader.read(&step.source, range).await.into_result();
            drop(pins);
            bytes
        })
        .await
    }

    /// Reads a range from the cache, or from the device into the cache.
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
        let Self { frontend, pins, .. } = self;
        // Other readers may wait for the same range.
        run_to_end(async move {
            let read = async {
                let read = frontend.reader.read(&step.source, range).await;
                read.map(copy_if_short).into_result()
            };
            let bytes = cache.get_or_read(&cached_range, read).await;
            drop(pins);
            bytes
        })
        .await
    }
}

/// Runs a read to its end, even if the caller is cancelled or slow.
async fn run_to_end(read: impl Future<Output = Result<Bytes>> + Send + 'static) -> Result<Bytes> {
    let mut read = Box::pin(read);
    // Polled here first, so that the device gets the requests in the order of the bytes.
    if let Poll::Ready(bytes) = poll!(&mut read) {
        return bytes;
    }
    tokio::spawn(read).await.unwrap_or_else(|error| Err(Error::aborted(&error)))
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
        (Source::inline_data(inline), range)
    });
    let slices = slices.into_iter().map(|slice| {
        let range = slice.skip_bytes..slice.skip_bytes + slice.len_bytes;
        (Source::in_run(slice), range)
    });
    inline.into_iter().chain(slices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    /// Regression: without a read cache, a dropped read gave up its pins while an array still repaired the blocks that it had read.
    #[tokio::test]
    async fn a_read_keeps_its_pins_to_its_end_if_its_reader_is_dropped() {
        let (open, gate) = oneshot::channel::<()>();
        let pins = Arc::new(());
        let mut read = Box::pin(run_to_end({
            let pins = pins.clone();
            async move {
                gate.await.ok();
                drop(pins);
                Ok(Bytes::new())
            }
        }));
        assert!(poll!(&mut read).is_pending());
        drop(read);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&pins), 2, "the read goes on");
        open.send(()).unwrap();
        while Arc::strong_count(&pins) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
