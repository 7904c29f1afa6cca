//! Reading bytes: what is read is what was stored, or an error.

use super::Shell;
use crate::device::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::format::{Body, Extent, Piece, SUMMED_BYTES};
use crate::space::Pins;
use crate::wire::sum;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::ops::Range;
use std::sync::Arc;
use store::StoreError;
use tokio::sync::OnceCell;

/// How much is read at a time, and how many reads are under way for one reader.
const READ_BYTES: u64 = 1 << 20;
const READS_AT_ONCE: usize = 2;

/// One read of a body.
#[derive(Debug, Clone)]
struct Step {
    source: Source,
    /// Of the source's data, in bytes.
    range: Range<u64>,
}

/// Data with checksums of each [`SUMMED_BYTES`].
#[derive(Debug, Clone)]
enum Source {
    Piece(Arc<Piece>),
    Extent(Arc<(Extent, OnceCell<Vec<u32>>)>),
}

impl Source {
    /// Where the data begins, in bytes from the device's beginning.
    fn at(&self) -> u64 {
        match self {
            Self::Piece(piece) => piece.at,
            Self::Extent(extent) => extent.0.run.at(),
        }
    }

    fn len_bytes(&self) -> u64 {
        match self {
            Self::Piece(piece) => piece.len.into(),
            Self::Extent(extent) => extent.0.data_bytes,
        }
    }
}

impl Shell {
    /// A range of a body, which lies in it. The hold lasts as long as the stream.
    pub(crate) fn read(
        self: &Arc<Self>,
        body: Body,
        range: Range<u64>,
        pins: Pins,
    ) -> BoxStream<'static, store::Result<Bytes>> {
        let (shell, pins) = (self.clone(), Arc::new(pins));
        let read = move |step: Step| {
            let (shell, pins) = (shell.clone(), pins.clone());
            async move {
                let read = shell.step(step).await;
                drop(pins);
                read.map_err(StoreError::from)
            }
        };
        stream::iter(steps(body, range)).map(read).buffered(READS_AT_ONCE).boxed()
    }

    /// All of a body at once.
    pub(crate) async fn read_all(
        self: &Arc<Self>,
        body: Body,
        range: Range<u64>,
        pins: Pins,
    ) -> store::Result<Vec<Bytes>> {
        self.read(body, range, pins).try_collect().await
    }

    async fn step(&self, step: Step) -> Result<Bytes> {
        match &step.source {
            Source::Piece(piece) => self.read_summed(&step, &piece.sums).await,
            Source::Extent(extent) => {
                let sums = extent.1.get_or_try_init(|| self.read_sums(&extent.0)).await?;
                self.read_summed(&step, sums).await
            }
        }
    }

    /// The checksums of a run.
    async fn read_sums(&self, extent: &Extent) -> Result<Vec<u32>> {
        if extent.run.end() > self.core.geometry.blocks {
            return Err(Error::damaged(
                "an object's record, whose data lies beyond the device,",
                extent.run.at(),
            ));
        }
        let count = extent.data_bytes.div_ceil(SUMMED_BYTES);
        let buffer = self.read_blocks(extent.sums_at(), (count * 4).next_multiple_of(BLOCK_BYTES)).await?;
        let sums = buffer.as_chunks::<4>().0.iter().take(count as usize);
        Ok(sums.map(|sum| u32::from_le_bytes(*sum)).collect())
    }

    /// Bytes of an object, compared with their checksums.
    async fn read_summed(&self, step: &Step, sums: &[u32]) -> Result<Bytes> {
        let (at, len) = (step.source.at(), step.source.len_bytes());
        let from = step.range.start / SUMMED_BYTES * SUMMED_BYTES;
        let to = step.range.end.next_multiple_of(SUMMED_BYTES).min(len);
        let first = (at + from) / BLOCK_BYTES * BLOCK_BYTES;
        let buffer = self.read_blocks(first, (at + to).next_multiple_of(BLOCK_BYTES) - first).await?;
        let skip = (at + from - first) as usize;
        let data = &buffer[skip..skip + (to - from) as usize];
        let sums = &sums[(from / SUMMED_BYTES) as usize..];
        for (chunk, wanted) in data.chunks(SUMMED_BYTES as usize).zip(sums) {
            if sum(chunk) != *wanted {
                return Err(Error::damaged("an object's data", at + from));
            }
        }
        let start = skip + (step.range.start - from) as usize;
        let len = (step.range.end - step.range.start) as usize;
        Ok(Bytes::from(buffer).slice(start..start + len))
    }
}

/// The reads that a range of a body takes, none across a boundary of [`READ_BYTES`].
fn steps(body: Body, range: Range<u64>) -> impl Iterator<Item = Step> + Send {
    let mut begins = 0;
    sources(body).flat_map(move |(source, of_source)| {
        let len = of_source.end - of_source.start;
        let from = range.start.clamp(begins, begins + len) - begins + of_source.start;
        let to = range.end.clamp(begins, begins + len) - begins + of_source.start;
        begins += len;
        let firsts = std::iter::successors(Some(from), |at| Some((at / READ_BYTES + 1) * READ_BYTES));
        let firsts = firsts.take_while(move |&at| at < to);
        firsts.map(move |at| Step {
            source: source.clone(),
            range: at..to.min((at / READ_BYTES + 1) * READ_BYTES),
        })
    })
}

/// What a body lies in, and which of its data.
fn sources(body: Body) -> impl Iterator<Item = (Source, Range<u64>)> + Send {
    let (piece, extents) = match body {
        Body::Piece(piece) => (Some(piece), Vec::new()),
        Body::Extents(extents) => (None, extents),
        Body::Mark => (None, Vec::new()),
    };
    let piece = piece.map(|piece| {
        let range = 0..piece.len.into();
        (Source::Piece(Arc::new(piece)), range)
    });
    let extents = extents.into_iter().map(|extent| {
        let range = extent.skip_bytes..extent.skip_bytes + extent.len_bytes;
        (Source::Extent(Arc::new((extent, OnceCell::new()))), range)
    });
    piece.into_iter().chain(extents)
}
