//! A file edited at random: a sparse local file over the bytes of an object.

use bytes::{Bytes, BytesMut};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::open_file::Pin;
use crate::ranges::RangeSet;

/// The local file has a byte exactly where `present` says so; below `base_len` the rest is the object's, above it
/// is zeros.
///
/// Reads and writes go to the page cache of a local disk, so they are made in place, not on another thread. The
/// file has no name: nothing is left behind when the process dies.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) base: Option<Arc<Pin>>,
    base_len: u64,
    file: Arc<File>,
    present: RangeSet,
    size: u64,
}

/// Where a range of the file comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Local(Range<u64>),
    Base(Range<u64>),
    Zeros(Range<u64>),
}

impl Local {
    /// Over an object's bytes (all of them), or over nothing.
    pub(crate) fn begin(cache_dir: &Path, base: Option<Arc<Pin>>) -> std::io::Result<Self> {
        let base_len = base.as_ref().map_or(0, |pin| pin.size_bytes);
        let file = Arc::new(tempfile::tempfile_in(cache_dir)?);
        Ok(Self { base, base_len, file, present: RangeSet::default(), size: base_len })
    }

    /// Over nothing of an object that it still replaces.
    pub(crate) fn begin_empty(cache_dir: &Path, base: Option<Arc<Pin>>) -> std::io::Result<Self> {
        let local = Self::begin(cache_dir, base)?;
        Ok(Self { base_len: 0, size: 0, ..local })
    }

    /// The object's bytes are gone: zeros stand for them.
    pub(crate) fn lose_base(&mut self) {
        (self.base, self.base_len) = (None, 0);
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(data, offset)?;
        let end = offset + data.len() as u64;
        self.present.insert(offset..end);
        self.size = self.size.max(end);
        Ok(())
    }

    /// Zeros a range, which must lie inside the file.
    pub(crate) fn punch(&mut self, range: Range<u64>) -> std::io::Result<()> {
        let end = self.file.metadata()?.len();
        let known = range.start..range.end.min(end);
        if !known.is_empty() {
            punch_hole(&self.file, known)?;
        }
        // Beyond its end the local file reads as nothing, so it is made as long.
        if range.end > end {
            self.file.set_len(range.end)?;
        }
        self.present.insert(range);
        Ok(())
    }

    pub(crate) fn resize(&mut self, size: u64) -> std::io::Result<()> {
        if size < self.size {
            self.base_len = self.base_len.min(size);
            self.present.truncate(size);
            self.file.set_len(size)?;
        }
        self.size = size;
        Ok(())
    }

    /// Cuts a range of the file by where its bytes are.
    pub(crate) fn sources(&self, range: Range<u64>) -> Vec<Source> {
        let range = range.start..range.end.min(self.size);
        let mut sources = Vec::new();
        for (piece, is_here) in self.present.cut(range) {
            if is_here {
                sources.push(Source::Local(piece));
                continue;
            }
            let middle = self.base_len.clamp(piece.start, piece.end);
            if piece.start < middle {
                sources.push(Source::Base(piece.start..middle));
            }
            if middle < piece.end {
                sources.push(Source::Zeros(middle..piece.end));
            }
        }
        sources
    }

    pub(crate) fn read_local(&self, range: Range<u64>) -> std::io::Result<Bytes> {
        let mut buffer = BytesMut::zeroed((range.end - range.start) as usize);
        self.file.read_exact_at(&mut buffer, range.start)?;
        Ok(buffer.freeze())
    }
}

/// A hole, or zeros where the local file system knows no holes.
fn punch_hole(file: &File, range: Range<u64>) -> std::io::Result<()> {
    use rustix::fs::FallocateFlags as Mode;
    let len = range.end - range.start;
    match rustix::fs::fallocate(file, Mode::PUNCH_HOLE | Mode::KEEP_SIZE, range.start, len) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let zeros = [0; 64 << 10];
            for start in range.clone().step_by(zeros.len()) {
                file.write_all_at(&zeros[..(range.end - start).min(zeros.len() as u64) as usize], start)?;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{ETag, ObjectKey};

    fn over(size_bytes: u64) -> Local {
        let dir = tempfile::tempdir().unwrap();
        let key = ObjectKey::try_from("k").unwrap();
        Local::begin(dir.path(), Some(Arc::new(Pin { key, etag: ETag::new("e"), version: None, size_bytes })))
            .unwrap()
    }

    #[test]
    fn every_byte_has_one_source() {
        let mut local = over(100);
        local.write(10, b"abc").unwrap();
        local.write(120, b"de").unwrap();
        assert_eq!(
            local.sources(0..1000),
            [
                Source::Base(0..10),
                Source::Local(10..13),
                Source::Base(13..100),
                Source::Zeros(100..120),
                Source::Local(120..122)
            ]
        );
        assert_eq!(&local.read_local(10..13).unwrap()[..], b"abc");
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut local = over(100);
        local.write(50, b"x").unwrap();
        local.resize(20).unwrap();
        local.resize(60).unwrap();
        assert_eq!(local.sources(0..60), [Source::Base(0..20), Source::Zeros(20..60)]);
    }
}
