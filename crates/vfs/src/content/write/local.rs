//! A file that is edited at random: a sparse local file over the bytes of objects.

use bytes::{Bytes, BytesMut};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use store::{Payload, StoreError};

use crate::content::pin::{Cut, Pin};
use crate::content::ranges::{RangeSet, push_zeros, total};

/// A sparse local file over the bytes of objects (the base). It has a byte exactly where `present` says so. Below
/// `base_len` the other bytes are those of the base, above it they are zeros.
///
/// Reads and writes go to the page cache of a local disk, so they are made in place, not on another thread. The
/// file has no name: nothing is left behind when the process dies.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    /// The content below the edits; `None` if there is none.
    base: Option<Arc<Pin>>,
    /// Number of bytes of the base that are still part of the file.
    base_len: u64,
    /// Bytes of the base that are not holes.
    base_data_bytes: u64,
    /// The local file, and the ranges of which it has the bytes.
    file: Arc<File>,
    present: RangeSet,
    /// The ranges that are in no object yet.
    dirty: RangeSet,
    /// Length of the file.
    size: u64,
    /// Whether the namespace has the same content as programs see.
    is_published: bool,
    /// Ranges of the deltas stored while the file stayed open, the newest last.
    deltas: Vec<Vec<Range<u64>>>,
}

/// Source of a range of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Bytes of the local file.
    Local(Range<u64>),
    /// Bytes of the content below the edits.
    Base(Range<u64>),
    /// A hole.
    Zeros(Range<u64>),
}

impl Source {
    /// Returns the length of the range in bytes.
    pub(crate) fn len(&self) -> u64 {
        let (Self::Local(range) | Self::Base(range) | Self::Zeros(range)) = self;
        range.end - range.start
    }
}

impl Local {
    /// Begins an edit of all bytes of `base`, or of an empty file.
    pub(crate) fn begin(cache_dir: &Path, base: Option<Arc<Pin>>) -> std::io::Result<Self> {
        let base_len = base.as_ref().map_or(0, |pin| pin.size_bytes);
        Ok(Self {
            base_data_bytes: data_bytes(base.as_ref()),
            base,
            base_len,
            file: Arc::new(tempfile::tempfile_in(cache_dir)?),
            present: RangeSet::default(),
            dirty: RangeSet::default(),
            size: base_len,
            is_published: true,
            deltas: Vec::new(),
        })
    }

    /// Begins an empty file that will replace `base`.
    pub(crate) fn begin_empty(cache_dir: &Path, base: Option<Arc<Pin>>) -> std::io::Result<Self> {
        let local = Self::begin(cache_dir, base)?;
        Ok(Self { base_len: 0, size: 0, is_published: false, ..local })
    }

    /// Returns the content below the edits.
    pub(crate) fn base(&self) -> Option<&Arc<Pin>> {
        self.base.as_ref()
    }

    /// Replaces the base by the same bytes at another place.
    pub(crate) fn rebase(&mut self, pin: Option<Arc<Pin>>) {
        self.base = pin;
    }

    /// Returns the file with zeros in place of the base's bytes, which are gone. The local bytes are shared.
    pub(crate) fn with_zeros_for_base(&self) -> Self {
        Self { base: None, base_len: 0, ..self.clone() }
    }

    /// Returns an upper bound of the bytes that are not holes, on the local disk and in the objects below; `None` if
    /// the local file cannot be examined.
    pub(crate) fn data_bytes(&self) -> Option<u64> {
        // Some file systems report the blocks of recent writes late; without any blocks the file would look like a hole.
        let least = if self.present == RangeSet::default() { 0 } else { 512 };
        let here = (self.file.metadata().ok()?.blocks() * 512).max(least);
        Some((here + self.base_data_bytes.min(self.base_len)).min(self.size))
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size
    }

    /// Returns whether the namespace has the same content as programs see.
    pub(crate) fn is_published(&self) -> bool {
        self.is_published
    }

    /// Notes that all content is now in the objects of `pin`. `delta` has the ranges that went into a delta; `None` if
    /// the file was assembled.
    pub(crate) fn published(&mut self, pin: Arc<Pin>, delta: Option<Vec<Range<u64>>>) {
        self.base_len = self.size;
        self.base_data_bytes = data_bytes(Some(&pin));
        self.base = Some(pin);
        self.dirty = RangeSet::default();
        self.is_published = true;
        match delta {
            Some(delta) => {
                let newest = total(&delta);
                self.deltas.retain(|older| total(older) > newest);
                self.deltas.push(delta);
            }
            None => self.deltas.clear(),
        }
    }

    /// Returns whether deltas were stored while the file stayed open.
    pub(crate) fn has_deltas(&self) -> bool {
        !self.deltas.is_empty()
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(data, offset)?;
        let end = offset + data.len() as u64;
        self.changed(offset..end);
        self.size = self.size.max(end);
        Ok(())
    }

    /// Zeros a range, which must be inside the file.
    pub(crate) fn punch(&mut self, range: Range<u64>) -> std::io::Result<()> {
        let end = self.file.metadata()?.len();
        let known = range.start..range.end.min(end);
        if !known.is_empty() {
            punch_hole(&self.file, known)?;
        }
        // Reads need the local file to be at least this long.
        if range.end > end {
            self.file.set_len(range.end)?;
        }
        self.changed(range);
        Ok(())
    }

    /// Truncates the file, or extends it with a hole. Fails for a length that the local file system does not support.
    pub(crate) fn resize(&mut self, size: u64) -> std::io::Result<()> {
        if size > self.size {
            self.file.set_len(size)?;
        }
        if size < self.size {
            self.base_len = self.base_len.min(size);
            self.present.truncate(size);
            self.dirty.truncate(size);
            self.deltas.clear();
            if self.file.metadata()?.len() > size {
                self.file.set_len(size)?;
            }
        }
        self.is_published &= size == self.size;
        self.size = size;
        Ok(())
    }

    /// Notes that a range of the local file was written.
    fn changed(&mut self, range: Range<u64>) {
        self.present.insert(range.clone());
        self.dirty.insert(range);
        self.is_published = false;
    }

    /// Returns the ranges that differ from the base, up to the file's size.
    pub(crate) fn changes(&self) -> Vec<Range<u64>> {
        let base_bytes = self.base.as_ref().map_or(0, |pin| pin.size_bytes);
        let mut changes = self.dirty.clone();
        changes.insert(self.base_len..base_bytes.min(self.size));
        changes.iter().collect()
    }

    /// Returns the ranges that are in no object yet and are not holes.
    pub(crate) fn dirty_data(&self) -> Vec<Range<u64>> {
        self.dirty.iter().flat_map(|range| self.local_data(range)).collect()
    }

    /// Returns the parts of a range that are not holes.
    ///
    /// # Errors
    /// Fails if the holes of the base cannot be determined.
    pub(crate) fn data(&self, range: Range<u64>) -> Result<RangeSet, StoreError> {
        let mut data = RangeSet::default();
        for source in self.sources(range) {
            match (source, &self.base) {
                (Source::Local(range), _) => {
                    self.local_data(range).into_iter().for_each(|run| data.insert(run))
                }
                (Source::Base(range), Some(base)) => base.cut(range)?.into_iter().for_each(|cut| {
                    if let Cut::Stored(run, _) = cut {
                        data.insert(run);
                    }
                }),
                (Source::Base(_) | Source::Zeros(_), _) => {}
            }
        }
        Ok(data)
    }

    /// Returns the ranges of earlier deltas to store again together with `bytes` of new data: the newest deltas, as long as
    /// each is no longer than everything merged before it. This keeps the number of deltas logarithmic, and stores each byte
    /// again only as often as the delta that holds it doubles.
    pub(crate) fn deltas_to_merge(&self, bytes: u64) -> Vec<Range<u64>> {
        let (mut sum, mut merged) = (bytes, Vec::new());
        for delta in self.deltas.iter().rev() {
            if total(delta) > sum {
                break;
            }
            sum += total(delta);
            merged.extend(delta.iter().cloned());
        }
        merged
    }

    /// Returns the parts of a range of the local file that are not holes.
    fn local_data(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut data = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) if start < range.end => start,
                Ok(_) | Err(rustix::io::Errno::NXIO) => break,
                // The file system does not report holes.
                Err(_) => at,
            };
            let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(range.end).min(range.end);
            data.push(start..end);
            at = end;
        }
        data
    }

    /// Splits a range of the file by the source of its bytes.
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

    /// Appends a local range to `payload`. Holes in it take no memory.
    pub(crate) fn read_into(&self, range: Range<u64>, payload: &mut Payload) -> Result<(), StoreError> {
        let mut at = range.start;
        for run in self.local_data(range.clone()) {
            push_zeros(payload, &(at..run.start));
            at = run.end;
            payload.push(self.read(run)?);
        }
        push_zeros(payload, &(at..range.end));
        Ok(())
    }

    /// Reads a local range.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        let mut buffer = BytesMut::zeroed((range.end - range.start) as usize);
        self.file
            .read_exact_at(&mut buffer, range.start)
            .map_err(|error| StoreError::Corrupt(format!("the local cache file cannot be read: {error}")))?;
        Ok(buffer.freeze())
    }
}

/// Returns how many bytes of a pin are not holes.
fn data_bytes(pin: Option<&Arc<Pin>>) -> u64 {
    pin.map_or(0, |pin| pin.data_bytes())
}

/// Punches a hole, or writes zeros if the local file system does not support holes.
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
    use store::{ETag, ObjectKey, ObjectRef};

    fn pin(size_bytes: u64) -> Arc<Pin> {
        let key = ObjectKey::try_from("k").unwrap();
        let object = ObjectRef { key, etag: ETag::new("e"), version: None, last_modified: None };
        Arc::new(Pin::whole(object, size_bytes))
    }

    fn over(size_bytes: u64) -> Local {
        let dir = tempfile::tempdir().unwrap();
        Local::begin(dir.path(), Some(pin(size_bytes))).unwrap()
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
        assert_eq!(&local.read(10..13).unwrap()[..], b"abc");
    }

    #[test]
    fn truncated_bytes_do_not_come_back() {
        let mut local = over(100);
        local.write(50, b"x").unwrap();
        local.resize(20).unwrap();
        local.resize(60).unwrap();
        assert_eq!(local.sources(0..60), [Source::Base(0..20), Source::Zeros(20..60)]);
    }

    #[test]
    fn holes_are_no_data() {
        let mib = 1 << 20;
        let mut local = over(mib);
        local.write(4 * mib, b"x").unwrap();
        local.punch(0..mib / 2).unwrap();
        assert_eq!(local.changes(), [0..mib / 2, 4 * mib..4 * mib + 1]);
        let dirty = local.dirty_data();
        assert_eq!(dirty.last().unwrap().end, 4 * mib + 1);
        assert!(total(&dirty) <= 64 << 10, "{dirty:?}");
        let data = Vec::from_iter(local.data(0..u64::MAX).unwrap().iter());
        assert_eq!(data[0], mib / 2..mib);
    }

    #[test]
    fn a_cut_and_grown_file_differs_from_its_base_where_it_was_cut() {
        let mut local = over(100);
        local.resize(20).unwrap();
        assert_eq!(local.changes(), []);
        local.resize(60).unwrap();
        assert_eq!(local.changes(), [20..60]);
        local.published(pin(60), None);
        assert!(local.is_published() && local.changes().is_empty());
        assert_eq!(local.sources(0..60), [Source::Base(0..60)]);
    }

    #[test]
    fn deltas_are_merged_as_they_grow() {
        let mut local = over(1 << 20);
        let mut stored_again = 0;
        for at in 0..64 {
            local.write(at * 100, &[1; 100]).unwrap();
            let merged = local.deltas_to_merge(100);
            stored_again += total(&merged);
            let mut delta = local.dirty.clone();
            merged.into_iter().for_each(|range| delta.insert(range));
            local.published(pin(1 << 20), Some(delta.iter().collect()));
            assert!(local.deltas.len() <= 7, "{:?}", local.deltas);
        }
        assert!(stored_again <= 64 * 100 * 6);
    }
}
