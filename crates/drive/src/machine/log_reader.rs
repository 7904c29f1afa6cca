//! Log reader: frames, many by one read, past what cannot be read.
//!
//! A row that cannot be read holds no frame, as one that was torn holds none. Whether that is the log's end or damage is known by
//! what follows.

use crate::device::{BLOCK_BYTES, BlockDevice, Buffer, read_otherwise};
use crate::error::{Error, Result};
use crate::format::{DriveId, FRAME_HEADER_BYTES, Frame, FrameHeader, Geometry};
use std::sync::Arc;

/// How much of the log is read at a time.
const WINDOW_BYTES: u64 = 4 << 20;

/// Where so many bytes in a row cannot be read, in any of their rows, the device is broken, not a sector.
const BROKEN_BYTES_MIN: usize = 1 << 20;

/// A whole frame that was found behind the place where the log seemed to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Later {
    pub(super) number: u64,
    /// In bytes from the device's beginning.
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
    /// The length of a zone, as far as it is read.
    readable_bytes: u64,
}

impl LogReader {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, drive: DriveId, geometry: Geometry) -> Self {
        let readable_bytes = geometry.zone_bytes();
        Self { device, drive, geometry, window: Buffer::zeroed(0), window_at: 0, readable_bytes }
    }

    /// Reads no zone beyond this place, in bytes: behind it a frame may be written meanwhile.
    pub(super) fn up_to(self, readable_bytes: u64) -> Self {
        Self { readable_bytes, ..self }
    }

    /// The frame at a place of a zone, if one begins there that is whole, in whichever way it is read.
    pub(crate) fn frame(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        match self.frame_as_it_is(zone, from)? {
            None if self.device.ways() > 0 => self.frame_otherwise(zone, from),
            frame => Ok(frame),
        }
    }

    /// A frame that is not what was written may be so if it is read otherwise. Its length is known only then.
    fn frame_otherwise(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
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
            if read_otherwise(&*device, at, &mut buffer, &mut is_right) {
                tracing::warn!(zone, from, "a frame was damaged, and could be read otherwise");
                (self.window, self.window_at) = (buffer, at);
                return Ok(frame);
            }
        }
        Ok(None)
    }

    fn frame_as_it_is(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
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

    /// The first whole frame of this number or a later one behind a place of a zone.
    pub(super) fn later_frame(&mut self, zone: u64, from: u64, number: u64) -> Result<Option<Later>> {
        let mut at = from;
        while at < self.geometry.zone_bytes() {
            let header = FrameHeader::decode(self.drive, self.bytes(zone, at, FRAME_HEADER_BYTES as u64)?);
            if let Some(header) = header.filter(|header| header.number >= number)
                && self.frame_as_it_is(zone, at)?.is_some()
            {
                return Ok(Some(Later { number: header.number, at: self.geometry.zone_at(zone) + at }));
            }
            at += self.geometry.row_bytes();
        }
        Ok(None)
    }

    /// The whole frame that a zone begins with, if it is later than this one.
    pub(super) fn opens_with_later(&mut self, zone: u64, number: u64) -> Result<Option<Later>> {
        let mut block = Buffer::zeroed(BLOCK_BYTES as usize);
        let at = self.geometry.zone_at(zone);
        if self.device.read_at(at, &mut block).is_err() && self.device.read_at(at, &mut block).is_err() {
            return Ok(None);
        }
        let header = FrameHeader::decode(self.drive, &block).filter(|header| header.number > number);
        let Some(header) = header else { return Ok(None) };
        let is_whole = self.frame_as_it_is(zone, 0)?.is_some();
        Ok(is_whole.then_some(Later { number: header.number, at }))
    }

    /// Bytes of a zone, as far as the zone goes; zeros where they cannot be read.
    pub(crate) fn bytes(&mut self, zone: u64, from: u64, len: u64) -> Result<&[u8]> {
        let at = self.geometry.zone_at(zone) + from;
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len > window_end {
            let left = self.readable_bytes.saturating_sub(from);
            let wanted = len.max(WINDOW_BYTES).min(left).next_multiple_of(BLOCK_BYTES);
            self.window = Buffer::zeroed(0);
            self.window = self.window_of(at, wanted as usize)?;
            self.window_at = at;
        }
        let start = (at - self.window_at) as usize;
        let end = (start + len as usize).min(self.window.len());
        Ok(&self.window[start..end])
    }

    /// Reads bytes at once or, where that fails, row by row.
    fn window_of(&self, at: u64, len: usize) -> Result<Buffer> {
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
            tracing::warn!(at, unreadable, "rows of the log cannot be read");
        }
        Ok(window)
    }
}
