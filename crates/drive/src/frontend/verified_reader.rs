//! Verified reader: reads data and compares it with its checksums. Wrong data is reconstructed from the redundancy of the device.

use super::read_cache::CACHED_BYTES_MAX;
use crate::codec::crc32c;
use crate::device::{AlternateReader, BLOCK_BYTES, Buffer, Buffers, Io};
use crate::error::{Error, Result};
use crate::format::{Geometry, InlineData, RunSlice, SUMMED_BYTES, run_blocks_of, sum_blocks_of};
use crate::verdict::Verdict;
use bytes::Bytes;
use futures_util::future::try_join;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Data with a checksum for each [`SUMMED_BYTES`].
#[derive(Debug, Clone)]
pub(super) enum Source {
    Inline(Arc<InlineData>),
    /// A run, and its checksums once they are read.
    Run(Arc<(RunSlice, OnceCell<Vec<u32>>)>),
}

impl Source {
    /// Returns data whose place and checksums are in its record.
    pub(super) fn inline_data(inline: InlineData) -> Self {
        Self::Inline(Arc::new(inline))
    }

    /// Returns the data in a slice of a run. Its checksums are read with the first read.
    pub(super) fn in_run(slice: RunSlice) -> Self {
        Self::Run(Arc::new((slice, OnceCell::new())))
    }

    pub(super) fn len_bytes(&self) -> u64 {
        match self {
            Self::Inline(inline) => inline.len.into(),
            Self::Run(slice) => slice.0.data_bytes,
        }
    }
}

/// A reader of sources.
#[derive(Debug)]
pub(super) struct VerifiedReader {
    io: Io,
    geometry: Geometry,
    buffers: Buffers,
}

impl VerifiedReader {
    pub(super) fn new(io: Io, geometry: Geometry, buffers: Buffers) -> Self {
        Self { io, geometry, buffers }
    }

    /// Reads a range of a source's data. The range covers whole checksums, or ends with the data.
    pub(super) async fn read(&self, source: &Source, range: Range<u64>) -> Verdict<Bytes> {
        match source {
            Source::Inline(inline) => match self.blocks(inline.at, &range).await {
                Ok(blocks) => self.verify(blocks, sums_from(&inline.sums, &range)).await,
                Err(error) => Verdict::Unreadable(error),
            },
            Source::Run(slice) => {
                let (slice, sums) = &**slice;
                if slice.run.end() > self.geometry.blocks {
                    let what = "an object's record, whose data would lie beyond the device's end,";
                    return Verdict::Wrong(Error::damaged(what, slice.run.at()));
                }
                match self.read_slice(slice, sums, &range).await {
                    Verdict::Wrong(error) => self.reconstruct_slice(slice, range, error).await,
                    verdict => verdict,
                }
            }
        }
    }

    /// Reads a range of a run, and concurrently its checksums unless they were read before. A short run takes a single read.
    async fn read_slice(
        &self,
        slice: &RunSlice,
        sums: &OnceCell<Vec<u32>>,
        range: &Range<u64>,
    ) -> Verdict<Bytes> {
        let at = slice.run.at();
        let run_bytes = run_blocks_of(slice.data_bytes) * BLOCK_BYTES;
        if run_bytes <= CACHED_BYTES_MAX && *range == (0..slice.data_bytes) && !sums.initialized() {
            return match self.read_blocks(at, run_bytes).await {
                Ok(buffer) => {
                    let sums = sums_in(&buffer[(slice.sums_at() - at) as usize..], slice);
                    self.verify(Blocks { at, buffer, data: 0..slice.data_bytes as usize }, &sums).await
                }
                Err(error) => Verdict::Unreadable(error),
            };
        }
        let sums = sums.get_or_try_init(|| self.read_sums(slice));
        match try_join(sums, self.blocks(at, range)).await {
            Ok((sums, blocks)) => self.verify(blocks, sums_from(sums, range)).await,
            Err(error) => Verdict::Unreadable(error),
        }
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

    async fn read_blocks(&self, at: u64, len_bytes: u64) -> Result<Buffer> {
        let buffer = self.buffers.take(len_bytes as usize);
        self.io.read(at, buffer).await.map_err(Error::device(at))
    }

    /// Compares bytes with their checksums. Those that do not match are reconstructed, checksum by checksum, as another device may be
    /// wrong for each.
    async fn verify(&self, mut blocks: Blocks, sums: &[u32]) -> Verdict<Bytes> {
        for (range, sum) in blocks.wrong(sums) {
            let at = blocks.at + range.start as u64;
            match self.io.reconstruct(read_chunk(at, range.len(), sum)).await {
                Ok(Some(chunk)) => blocks.buffer[range].copy_from_slice(&chunk),
                Ok(None) => return Verdict::Wrong(Error::damaged("an object's data", at)),
                Err(error) => return Verdict::Unreadable(Error::device(at)(error)),
            }
        }
        Verdict::Right(Bytes::from(blocks.buffer).slice(blocks.data))
    }

    /// Reads data of a run and its checksums again, leaving out one device at a time, until they match. Both are read
    /// without the same device, as one device may have both wrong. The range covers whole checksums, or ends with the
    /// data.
    async fn reconstruct_slice(&self, slice: &RunSlice, range: Range<u64>, damaged: Error) -> Verdict<Bytes> {
        let (slice, len) = (*slice, (range.end - range.start) as usize);
        let read = move |reader: &mut AlternateReader<'_>| {
            let mut sums = Buffer::zeroed((sum_blocks_of(slice.data_bytes) * BLOCK_BYTES) as usize);
            reader.read_at(slice.sums_at(), &mut sums).ok()?;
            let mut data = Buffer::zeroed(len.next_multiple_of(BLOCK_BYTES as usize));
            reader.read_at(slice.run.at() + range.start, &mut data).ok()?;
            let sums = sums_in(&sums, &slice);
            sums_match(&data[..len], sums_from(&sums, &range)).then_some(data)
        };
        match self.io.reconstruct(read).await {
            Ok(Some(data)) => Verdict::Right(Bytes::from(data).slice(..len)),
            Ok(None) => Verdict::Wrong(damaged),
            Err(error) => Verdict::Unreadable(Error::device(slice.run.at())(error)),
        }
    }
}

/// Blocks read from the device, and the range of bytes asked for.
struct Blocks {
    /// Position of the first block, in bytes from the device's beginning.
    at: u64,
    buffer: Buffer,
    /// The bytes asked for, as a range of `buffer`.
    data: Range<usize>,
}

impl Blocks {
    /// Returns the ranges that do not match their checksums, with the checksums.
    fn wrong(&self, sums: &[u32]) -> Vec<(Range<usize>, u32)> {
        let begins = self.data.clone().step_by(SUMMED_BYTES as usize).zip(sums);
        begins
            .map(|(from, sum)| (from..self.data.end.min(from + SUMMED_BYTES as usize), *sum))
            .filter(|(range, sum)| crc32c(&self.buffer[range.clone()]) != *sum)
            .collect()
    }
}

/// Returns a function that reads `len` bytes from a position of the device on, and returns them if they match a checksum.
fn read_chunk(at: u64, len: usize, sum: u32) -> impl FnMut(&mut AlternateReader<'_>) -> Option<Bytes> {
    let first = at / BLOCK_BYTES * BLOCK_BYTES;
    let skip = (at - first) as usize;
    move |reader| {
        let mut buffer = Buffer::zeroed((skip + len).next_multiple_of(BLOCK_BYTES as usize));
        reader.read_at(first, &mut buffer).ok()?;
        let chunk = Bytes::from(buffer).slice(skip..skip + len);
        (crc32c(&chunk) == sum).then_some(chunk)
    }
}

/// Decodes the checksums of a run, which these blocks begin with.
fn sums_in(blocks: &[u8], slice: &RunSlice) -> Vec<u32> {
    let count = slice.data_bytes.div_ceil(SUMMED_BYTES) as usize;
    blocks.as_chunks::<4>().0.iter().take(count).map(|sum| u32::from_le_bytes(*sum)).collect()
}

/// Returns the checksums from those of a range on.
fn sums_from<'a>(sums: &'a [u32], range: &Range<u64>) -> &'a [u32] {
    &sums[(range.start / SUMMED_BYTES) as usize..]
}

/// Returns whether data matches its checksums.
fn sums_match(data: &[u8], sums: &[u32]) -> bool {
    data.chunks(SUMMED_BYTES as usize).zip(sums).all(|(chunk, wanted)| crc32c(chunk) == *wanted)
}
