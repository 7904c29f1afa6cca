//! Frames of one body, in one file.
//!
//! A frame is: length of the body (4 bytes), CRC-32C of the body (4), body; numbers are little-endian. No body is empty,
//! so that zeros are no frame. A file may begin with a header, which its owner writes and skips.
//!
//! Invariants: a frame counts as a whole or not at all; a frame that could not be appended leaves the file as it was.

use crate::medium::read_leniently;
use crate::{Crc, medium};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Length of what precedes a body, in bytes.
const HEAD_BYTES: u64 = 8;
/// Maximum length of a body. A damaged length must not cause a huge allocation.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// Longest body that is written in one call with its head, in bytes.
const SINGLE_WRITE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a file to read at a time.
const WINDOW_BYTES: u64 = 1 << 20;
/// Bytes of bodies that a search behind damage checks before it gives up. Each damaged byte could be the start of a
/// frame of any length.
const SEARCH_BYTES_MAX: u64 = 1 << 30;
/// Extension of files that keep what was cut off a torn log: a copy of the cut file, or a whole later segment.
pub(crate) const LOST: &str = "lost";

/// Encodes a frame. `InvalidInput`: the body is longer than 1 GiB.
///
/// Panics if the body is empty: a reader would take the frame for damage.
pub fn encode_frame(body: &[u8]) -> io::Result<Vec<u8>> {
    Ok([&head_of(body)?[..], body].concat())
}

fn head_of(body: &[u8]) -> io::Result<[u8; HEAD_BYTES as usize]> {
    let length = body.len() as u64;
    assert!(length > 0, "an empty frame could not be told from zeros");
    if length > BODY_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a record is too long for the log"));
    }
    let mut head = [0; HEAD_BYTES as usize];
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4..].copy_from_slice(&Crc::of(body).to_le_bytes());
    Ok(head)
}

/// Appends frames to a file.
#[derive(Debug)]
pub struct FrameWriter {
    file: File,
    end: u64,
}

impl FrameWriter {
    /// Returns a writer that appends at `end`, where the file's frames end.
    pub fn new(file: File, end: u64) -> Self {
        Self { file, end }
    }

    /// Creates a file that begins with a header, or replaces the content of an existing one.
    pub fn create(path: &Path, header: &[u8]) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(header, 0)?;
        Ok(Self::new(file, header.len() as u64))
    }

    /// Appends a frame. Short frames are written in one call, so that a crash mostly leaves them whole or not at all.
    ///
    /// Panics if the body is empty.
    pub fn append(&mut self, body: &[u8]) -> io::Result<()> {
        let head = head_of(body)?;
        let written = match body.len() <= SINGLE_WRITE_BYTES_MAX {
            true => self.file.write_all_at(&[&head[..], body].concat(), self.end),
            false => self
                .file
                .write_all_at(&head, self.end)
                .and_then(|()| self.file.write_all_at(body, self.end + HEAD_BYTES)),
        };
        if let Err(error) = written {
            // An incomplete frame would hide the frames after it.
            self.file.set_len(self.end)?;
            return Err(error);
        }
        self.end += HEAD_BYTES + body.len() as u64;
        Ok(())
    }

    /// Removes the frames from an offset on.
    pub(crate) fn truncate_to(&mut self, end: u64) -> io::Result<()> {
        self.file.set_len(end)?;
        self.end = end;
        Ok(())
    }

    /// Returns the end of the last frame.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the file, to sync it without its writer.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Flushes the file to disk, so that its frames survive the loss of power.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Reads the frames of a file, in order.
#[derive(Debug)]
pub struct FrameReader {
    file: File,
    len: u64,
    at: u64,
    window: Window,
}

/// A part of the file in memory. Sectors that the disk cannot read are zeros.
#[derive(Debug, Default)]
struct Window {
    begin: u64,
    bytes: Vec<u8>,
}

/// Content of a file at the reader's position.
#[derive(Debug, PartialEq, Eq)]
pub enum NextFrame<'a> {
    /// The body of a whole frame, which the reader has passed.
    Frame(&'a [u8]),
    /// The file ends here.
    End,
    /// No whole frame begins here.
    Bad,
}

/// Result of a search for a frame behind a bad place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A whole frame begins at this offset.
    Frame(u64),
    /// No whole frame follows the bad place.
    Nothing,
    /// The search was given up: frames may follow.
    Unknown,
}

impl FrameReader {
    /// Returns a reader that begins at offset `at` of a file. It does not read what is appended later.
    pub fn new(file: File, at: u64) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, len, at, window: Window::default() })
    }

    /// Opens a file that [`FrameWriter::create`] has made with a header. Returns `None` if it does not begin with the header.
    pub fn open(path: &Path, header: &[u8]) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let mut found = vec![0; header.len()];
        let has_header = file.read_exact_at(&mut found, 0).is_ok() && found == header;
        has_header.then(|| Self::new(file, header.len() as u64)).transpose()
    }

    /// Returns the offset at which the next frame begins.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Continues at an offset, where a search has found a frame.
    pub fn continue_at(&mut self, at: u64) {
        self.at = at;
    }

    /// Reads the next frame. At a bad place, the position does not move. Unreadable sectors count as zeros.
    #[expect(clippy::should_implement_trait, reason = "an item borrows the reader and may be an error")]
    pub fn next(&mut self) -> io::Result<NextFrame<'_>> {
        if self.at >= self.len {
            return Ok(NextFrame::End);
        }
        let Some((body, sum)) = self.head_at(self.at)? else { return Ok(NextFrame::Bad) };
        let bytes = self.window.read(&self.file, body.clone(), self.len)?;
        if Crc::of(bytes) != sum {
            return Ok(NextFrame::Bad);
        }
        self.at = body.end;
        Ok(NextFrame::Frame(bytes))
    }

    /// Reads the head of the frame that begins at an offset. Returns the range of its body and the checksum; `None` if
    /// the file cannot hold such a frame.
    fn head_at(&mut self, at: u64) -> io::Result<Option<(Range<u64>, u32)>> {
        if self.len.saturating_sub(at) < HEAD_BYTES {
            return Ok(None);
        }
        let head = self.window.read(&self.file, at..at + HEAD_BYTES, self.len)?;
        Ok(parse_head(head).and_then(|(length, sum)| Some((body_at(at, length, self.len)?, sum))))
    }

    /// Searches the first whole frame behind the bad place at the reader's position: at the end that its head claims,
    /// or else at any offset. `is_record` tells records from bytes that only look like a frame. The position does not
    /// move.
    pub fn search(&mut self, is_record: impl Fn(&[u8]) -> bool) -> io::Result<Found> {
        let bad = self.at;
        if let Some((body, _)) = self.head_at(bad)? {
            self.at = body.end;
            let is_frame = matches!(self.next()?, NextFrame::Frame(body) if is_record(body));
            self.at = bad;
            if is_frame {
                return Ok(Found::Frame(body.end));
            }
        }
        let mut budget = SEARCH_BYTES_MAX;
        let mut begin = bad + 1;
        while begin + HEAD_BYTES < self.len {
            let end = self.len.min(begin + WINDOW_BYTES);
            let chunk = read_leniently(begin..end, |bytes, at| self.file.read_exact_at(bytes, at))?;
            for (offset, head) in chunk.windows(HEAD_BYTES as usize).enumerate() {
                let at = begin + offset as u64;
                let Some((length, sum)) = parse_head(head) else { continue };
                let Some(body) = body_at(at, length, self.len) else { continue };
                let Some(left) = budget.checked_sub(length) else { return Ok(Found::Unknown) };
                budget = left;
                let bytes = self.window.read(&self.file, body, self.len)?;
                if Crc::of(bytes) == sum && is_record(bytes) {
                    return Ok(Found::Frame(at));
                }
            }
            begin = end - (HEAD_BYTES - 1);
        }
        Ok(Found::Nothing)
    }
}

impl Window {
    /// Returns a range of the file, which has `len` bytes.
    fn read(&mut self, file: &File, range: Range<u64>, len: u64) -> io::Result<&[u8]> {
        let is_here = range.start >= self.begin && range.end <= self.begin + self.bytes.len() as u64;
        if !is_here {
            let end = range.end.max(len.min(range.start + WINDOW_BYTES));
            self.bytes = read_leniently(range.start..end, |bytes, at| file.read_exact_at(bytes, at))?;
            self.begin = range.start;
        }
        let from = (range.start - self.begin) as usize;
        Ok(&self.bytes[from..from + (range.end - range.start) as usize])
    }
}

/// Returns the length and the checksum of the body that a head announces; `None` if no body has this length.
fn parse_head(head: &[u8]) -> Option<(u64, u32)> {
    let (length, sum) = head.split_first_chunk()?;
    let length = u64::from(u32::from_le_bytes(*length));
    let sum = u32::from_le_bytes(*sum.first_chunk()?);
    (1..=BODY_BYTES_MAX).contains(&length).then_some((length, sum))
}

/// Returns the range of the body of the frame at offset `frame`; `None` if the file, of `len` bytes, is too short for
/// it.
fn body_at(frame: u64, length: u64, len: u64) -> Option<Range<u64>> {
    let begin = frame + HEAD_BYTES;
    (begin + length <= len).then_some(begin..begin + length)
}

/// Cuts a file at `end`, where a power cut tore it. With `must_be_kept` the whole file is first copied to one with the
/// extension `lost`. Syncs neither.
pub fn cut_torn_tail(path: &Path, end: u64, must_be_kept: bool) -> io::Result<()> {
    if must_be_kept {
        fs::copy(path, medium::unused_path(path, LOST))?;
    }
    File::options().write(true).open(path)?.set_len(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies() -> Vec<Vec<u8>> {
        [1, 7, 100, 70_000, 3, 1 << 20].iter().map(|len| vec![*len as u8 | 1; *len]).collect()
    }

    fn read(path: &Path, header: u64) -> (Vec<Vec<u8>>, u64, bool) {
        let mut reader = FrameReader::new(File::open(path).unwrap(), header).unwrap();
        let mut found = Vec::new();
        loop {
            match reader.next().unwrap() {
                NextFrame::Frame(body) => found.push(body.to_vec()),
                end => {
                    let is_whole = end == NextFrame::End;
                    return (found, reader.position(), is_whole);
                }
            }
        }
    }

    #[test]
    fn frames_are_read_as_they_were_appended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut writer = FrameWriter::create(&path, b"header").unwrap();
        bodies().iter().for_each(|body| writer.append(body).unwrap());
        let end = fs::metadata(&path).unwrap().len();
        assert_eq!(read(&path, 6), (bodies(), end, true));
        cut_torn_tail(&path, end - 1, true).unwrap();
        assert_eq!(fs::metadata(path.with_extension("lost")).unwrap().len(), end);
        assert_eq!(read(&path, 6), (bodies()[..5].to_vec(), end - 8 - (1 << 20), false));
    }

    #[test]
    fn a_search_finds_the_frame_behind_any_damaged_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut writer = FrameWriter::create(&path, b"").unwrap();
        let frames: Vec<Vec<u8>> = (1..5).map(|n| vec![n; 20]).collect();
        frames.iter().for_each(|body| writer.append(body).unwrap());
        let whole = fs::read(&path).unwrap();
        let frame_bytes = whole.len() / frames.len();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, bytes).unwrap();
            let mut reader = FrameReader::new(File::open(&path).unwrap(), 0).unwrap();
            while let NextFrame::Frame(_) = reader.next().unwrap() {}
            let hit = at / frame_bytes;
            assert_eq!(reader.position(), (hit * frame_bytes) as u64);
            let next = match hit + 1 < frames.len() {
                true => Found::Frame(((hit + 1) * frame_bytes) as u64),
                false => Found::Nothing,
            };
            assert_eq!(reader.search(|_| true).unwrap(), next, "byte {at}");
        }
    }

    #[test]
    fn bytes_that_only_look_like_a_frame_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let inner = encode_frame(b"not a record").unwrap();
        fs::write(&path, [&[0; 9][..], &inner, &encode_frame(b"record").unwrap()].concat()).unwrap();
        let mut reader = FrameReader::new(File::open(&path).unwrap(), 0).unwrap();
        assert_eq!(reader.next().unwrap(), NextFrame::Bad);
        let found = reader.search(|body| body == b"record").unwrap();
        assert_eq!(found, Found::Frame(9 + inner.len() as u64));
        assert_eq!(reader.search(|_| false).unwrap(), Found::Nothing);
    }
}
