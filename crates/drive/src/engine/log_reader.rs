//! Log reader: reads frames, many by one read, and skips unreadable rows.
//!
//! An unreadable row counts as a row without a frame, like a torn row. The frames behind tell whether that is the log's end or damage.

use crate::device::{BLOCK_BYTES, BlockDevice, Buffer, read_reconstructed};
use crate::error::{Error, Result};
use crate::format::{DriveId, FRAME_HEADER_BYTES, Frame, FrameHeader, Geometry};
use std::sync::Arc;

/// Bytes of the log read at a time.
const WINDOW_BYTES: u64 = 4 << 20;

/// If this many consecutive bytes are unreadable, and none was readable before, the device is broken and not just a sector.
const BROKEN_BYTES_MIN: usize = 1 << 20;

/// An intact frame that was found behind the apparent end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaterFrame {
    pub(super) number: u64,
    /// Position in bytes from the device's beginning.
    pub(super) at: u64,
}

/// Reads frames, many by one read.
#[derive(Debug)]
pub(crate) struct LogReader {
    device: Arc<dyn BlockDevice>,
    drive: DriveId,
    geometry: Geometry,
    window: Buffer,
    window_at: u64,
    /// The number of bytes of a zone that may be read.
    readable_bytes: u64,
}

impl LogReader {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, drive: DriveId, geometry: Geometry) -> Self {
        let readable_bytes = geometry.zone_bytes();
        Self { device, drive, geometry, window: Buffer::zeroed(0), window_at: 0, readable_bytes }
    }

    /// Limits reads to the first `readable_bytes` of a zone. Frames may be written behind them meanwhile.
    pub(super) fn limit_to(self, readable_bytes: u64) -> Self {
        Self { readable_bytes, ..self }
    }

    /// Returns the intact frame at a position of a zone, if there is one. Tries to reconstruct a damaged frame.
    pub(crate) fn frame(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        match self.read_frame(zone, from)? {
            None if self.device.ways() > 0 => self.reconstruct_frame(zone, from),
            frame => Ok(frame),
        }
    }

    /// Reads a damaged frame by each alternative of the device. The frame's length is known only after its header was read intact.
    fn reconstruct_frame(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        let (at, left) = (self.geometry.zone_at(zone) + from, self.readable_bytes.saturating_sub(from));
        for way in 0..self.device.ways() {
            let mut first = Buffer::zeroed(left.min(BLOCK_BYTES) as usize);
            let is_read = self.device.read_without(way, at, &mut first).is_ok();
            let header = FrameHeader::decode(self.drive, &first).filter(|_| is_read);
            let Some(header) = header.filter(|header| self.geometry.frame_bytes(header) <= left) else {
                continue;
            };
            let mut buffer = Buffer::zeroed(header.len_bytes() as usize);
            let mut frame = None;
            let (device, drive) = (self.device.clone(), self.drive);
            let mut is_right = |bytes: &[u8]| {
                frame = Frame::decode(drive, bytes);
                frame.is_some()
            };
            if read_reconstructed(&*device, at, &mut buffer, &mut is_right) {
                tracing::warn!(
                    zone,
                    from,
                    "a frame was damaged and was reconstructed from the other devices"
                );
                (self.window, self.window_at) = (buffer, at);
                return Ok(frame);
            }
        }
        Ok(None)
    }

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
    pub(super) fn later_frame(&mut self, zone: u64, from: u64, number: u64) -> Result<Option<LaterFrame>> {
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
    pub(super) fn later_frame_at_start(&mut self, zone: u64, number: u64) -> Result<Option<LaterFrame>> {
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

    /// Returns bytes of a zone, as far as the zone goes. Unreadable rows are zeros.
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

    /// Reads bytes by one read or, if that fails, row by row.
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
            tracing::warn!(at, unreadable, "some rows of the log are unreadable");
        }
        Ok(window)
    }
}
