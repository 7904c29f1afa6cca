//! Frame reader: reads frames, many by one read, and skips unreadable rows.
//!
//! An unreadable row counts as a row without a frame, like a torn row. The frames behind tell whether that is the log's end or damage.

use crate::device::{AlternateReader, BLOCK_BYTES, BlockDevice, Buffer, reconstruct};
use crate::error::{Error, Result};
use crate::format::{DriveId, FRAME_HEADER_BYTES, Frame, FrameHeader, Geometry};
use crate::verdict::Verdict;
use std::sync::Arc;

/// Bytes of the log read at a time.
const WINDOW_BYTES: u64 = 4 << 20;

/// If this many consecutive bytes are unreadable, and none was readable before, the device is broken and not just a sector.
const BROKEN_BYTES_MIN: usize = 1 << 20;

/// An intact frame that was found behind the apparent end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaterFrame {
    /// The number of the frame.
    pub(crate) number: u64,
    /// Position in bytes from the device's beginning.
    pub(crate) at: u64,
}

/// A reader of frames, which reads many by one read.
#[derive(Debug)]
pub(crate) struct FrameReader {
    device: Arc<dyn BlockDevice>,
    drive: DriveId,
    geometry: Geometry,
    /// The bytes that were read last.
    window: Buffer,
    /// Position of the window on the device.
    window_at: u64,
    /// The number of bytes of a zone that may be read.
    readable_bytes: u64,
}

impl FrameReader {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, drive: DriveId, geometry: Geometry) -> Self {
        let readable_bytes = geometry.zone_bytes();
        Self { device, drive, geometry, window: Buffer::zeroed(0), window_at: 0, readable_bytes }
    }

    /// Limits reads to the first `readable_bytes` of a zone. Frames may be written behind them meanwhile.
    pub(crate) fn limit_to(self, readable_bytes: u64) -> Self {
        Self { readable_bytes, ..self }
    }

    /// Reads the frame at a position of a zone. Tries to reconstruct a damaged frame. Where there is no frame, the
    /// verdict is `Wrong`.
    pub(crate) fn frame(&mut self, zone: u64, from: u64) -> Verdict<Frame> {
        match self.read_frame(zone, from) {
            Ok(Some(frame)) => Verdict::Right(frame),
            Ok(None) => match self.reconstruct_frame(zone, from) {
                Some(frame) => Verdict::Right(frame),
                None => {
                    let at = self.geometry.zone_at(zone) + from;
                    Verdict::Wrong(Error::damaged("a frame of small objects", at))
                }
            },
            Err(error) => Verdict::Unreadable(error),
        }
    }

    /// Returns the bytes of the frame that was read last, from its position on the device and its length.
    pub(crate) fn frame_bytes(&self, at: u64, len_bytes: u64) -> &[u8] {
        let start = (at - self.window_at) as usize;
        &self.window[start..start + len_bytes as usize]
    }

    /// Reads a damaged frame by each alternative of the device. The frame's length is known only after its header was read intact.
    fn reconstruct_frame(&mut self, zone: u64, from: u64) -> Option<Frame> {
        let (at, left) = (self.geometry.zone_at(zone) + from, self.readable_bytes.saturating_sub(from));
        let (drive, geometry) = (self.drive, self.geometry);
        let read = |reader: &mut AlternateReader<'_>| {
            let mut first = Buffer::zeroed(left.min(BLOCK_BYTES) as usize);
            reader.read_at(at, &mut first).ok()?;
            let header = FrameHeader::decode(drive, &first)?;
            if geometry.frame_bytes(&header) > left {
                return None;
            }
            let mut buffer = Buffer::zeroed(header.len_bytes() as usize);
            reader.read_at(at, &mut buffer).ok()?;
            Some((Frame::decode(drive, &buffer)?, buffer))
        };
        let (frame, buffer) = reconstruct(&*self.device, read)?;
        tracing::warn!(
            zone,
            from,
            "a frame of the log was damaged or could not be read, and was reconstructed from the other devices"
        );
        (self.window, self.window_at) = (buffer, at);
        Some(frame)
    }

    /// Returns the frame at an offset of a zone; `None` if no whole frame is there.
    fn read_frame(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        if from >= self.readable_bytes {
            return Ok(None);
        }
        let drive = self.drive;
        let Some(header) = FrameHeader::decode(drive, self.bytes(zone, from, FRAME_HEADER_BYTES as u64)?)
        else {
            return Ok(None);
        };
        if from + self.geometry.frame_bytes(&header) > self.readable_bytes {
            return Ok(None);
        }
        Ok(Frame::decode(drive, self.bytes(zone, from, header.len_bytes())?))
    }

    /// Returns the first intact frame of this number or a later one, from a position of a zone on.
    pub(crate) fn later_frame(&mut self, zone: u64, from: u64, number: u64) -> Result<Option<LaterFrame>> {
        let mut at = from;
        while at < self.geometry.zone_bytes() {
            let header = FrameHeader::decode(self.drive, self.bytes(zone, at, FRAME_HEADER_BYTES as u64)?);
            if let Some(header) = header.filter(|header| header.number >= number)
                && self.read_frame(zone, at)?.is_some()
            {
                return Ok(Some(LaterFrame { number: header.number, at: self.geometry.zone_at(zone) + at }));
            }
            at += self.geometry.row_bytes();
        }
        Ok(None)
    }

    /// Returns the intact frame at the beginning of a zone, if its number is greater than `number`.
    pub(crate) fn later_frame_at_start(&mut self, zone: u64, number: u64) -> Result<Option<LaterFrame>> {
        let mut block = Buffer::zeroed(BLOCK_BYTES as usize);
        let at = self.geometry.zone_at(zone);
        if self.device.read_at(at, &mut block).is_err() && self.device.read_at(at, &mut block).is_err() {
            return Ok(None);
        }
        let header = FrameHeader::decode(self.drive, &block).filter(|header| header.number > number);
        let Some(header) = header else { return Ok(None) };
        let is_whole = self.read_frame(zone, 0)?.is_some();
        Ok(is_whole.then_some(LaterFrame { number: header.number, at }))
    }

    /// Returns bytes of a zone: fewer than `len` at the end of what may be read of the zone. Unreadable rows are zeros.
    /// Fails if the device seems to be broken.
    pub(crate) fn bytes(&mut self, zone: u64, from: u64, len: u64) -> Result<&[u8]> {
        let at = self.geometry.zone_at(zone) + from;
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len > window_end {
            let left = self.readable_bytes.saturating_sub(from);
            let wanted = len.max(WINDOW_BYTES).min(left).next_multiple_of(BLOCK_BYTES);
            self.window = Buffer::zeroed(0);
            self.window = self.read_window(at, wanted as usize)?;
            self.window_at = at;
        }
        let start = (at - self.window_at) as usize;
        let end = (start + len as usize).min(self.window.len());
        Ok(&self.window[start..end])
    }

    /// Reads bytes by one read or, if that fails, row by row. Unreadable rows are zeros. Fails if none of the first
    /// rows can be read.
    fn read_window(&self, at: u64, len: usize) -> Result<Buffer> {
        let mut window = Buffer::zeroed(len);
        if self.device.read_at(at, &mut window).is_ok() {
            return Ok(window);
        }
        let row_bytes = self.geometry.row_bytes() as usize;
        let (mut unreadable, mut read) = (0, 0);
        for (number, row) in window.chunks_mut(row_bytes).enumerate() {
            let at = at + (number * row_bytes) as u64;
            match self.device.read_at(at, row) {
                Ok(()) => read += 1,
                Err(error) => {
                    row.fill(0);
                    unreadable += 1;
                    if read == 0 && unreadable * row_bytes >= BROKEN_BYTES_MIN {
                        return Err(Error::device(at)(error));
                    }
                }
            }
        }
        if unreadable > 0 {
            tracing::warn!(at, unreadable, "some rows of the log cannot be read and count as zeros");
        }
        Ok(window)
    }
}
