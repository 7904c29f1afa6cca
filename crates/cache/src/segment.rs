//! The file of a segment: a table with an entry for each page, and the pages.
//!
//! ```text
//! offset      size           content
//! 0           256 × 8        entries: CRC-32C (u32), first byte (u16) and end (u16) of what the page holds; end 0: nothing
//! 4096        256 × 4096     pages
//! ```
//!
//! All numbers are little-endian. The checksum covers the identity of the segment, the number of the page, the two offsets and
//! the bytes. A writer writes the bytes before the entry. Several writers of one page write the same bytes, as they are those of
//! the same object, so that each entry that any of them leaves is right.

use crate::identity::SegmentId;
use log::Crc;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Length of a segment of an object, in bytes.
pub const SEGMENT_BYTES: u64 = 1 << 20;

/// Length of a page, the unit with a checksum.
pub(crate) const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 8;
/// Offset of the first page. The table takes half of the space before it.
const PAGES_AT: u64 = 4096;

/// Outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// All bytes.
    All,
    /// Not all bytes are cached.
    Missing,
    /// A page has another checksum than its entry.
    Damaged,
}

/// The bytes that a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Entry {
    crc: u32,
    from: u16,
    to: u16,
}

impl Entry {
    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [a, b, c, d, from_low, from_high, to_low, to_high] = *bytes;
        let entry = Self {
            crc: u32::from_le_bytes([a, b, c, d]),
            from: u16::from_le_bytes([from_low, from_high]),
            to: u16::from_le_bytes([to_low, to_high]),
        };
        let is_possible = entry.from < entry.to && usize::from(entry.to) <= PAGE_BYTES;
        if is_possible { entry } else { Self::default() }
    }

    fn encode(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.crc.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.from.to_le_bytes());
        bytes[6..].copy_from_slice(&self.to.to_le_bytes());
        bytes
    }

    fn range(self) -> Range<usize> {
        usize::from(self.from)..usize::from(self.to)
    }

    fn covers(self, part: &Range<usize>) -> bool {
        usize::from(self.from) <= part.start && part.end <= usize::from(self.to)
    }

    /// Returns whether the page holds bytes that overlap or adjoin a part.
    fn touches(self, part: &Range<usize>) -> bool {
        self.to > 0 && usize::from(self.from) <= part.end && part.start <= usize::from(self.to)
    }
}

/// The open file of a segment.
#[derive(Debug)]
pub(crate) struct Segment {
    id: SegmentId,
    file: File,
}

/// A page of a range, and the part of the page that the range needs.
#[derive(Debug, Clone)]
struct PagePart {
    number: usize,
    part: Range<usize>,
}

impl PagePart {
    /// Returns where the part is in the segment.
    fn start(&self) -> usize {
        self.number * PAGE_BYTES + self.part.start
    }
}

/// Returns the pages of a range that is not empty.
fn pages(range: &Range<usize>) -> impl Iterator<Item = PagePart> {
    let range = range.clone();
    (range.start / PAGE_BYTES..=(range.end - 1) / PAGE_BYTES).map(move |number| {
        let base = number * PAGE_BYTES;
        let part = range.start.max(base) - base..range.end.min(base + PAGE_BYTES) - base;
        PagePart { number, part }
    })
}

impl Segment {
    pub(crate) fn new(id: SegmentId, file: File) -> Self {
        Self { id, file }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether the entries say that a range is there. Reads no page.
    pub(crate) fn contains(&self, range: &Range<usize>) -> io::Result<bool> {
        let entries = self.entries(range)?;
        Ok(pages(range).zip(&entries).all(|(page, entry)| entry.covers(&page.part)))
    }

    /// Reads a range that is not empty, if all of it is there. `into` has its length; its content has no meaning unless all was found.
    pub(crate) fn read(&self, range: &Range<usize>, into: &mut [u8]) -> io::Result<Found> {
        let entries = self.entries(range)?;
        if !pages(range).zip(&entries).all(|(page, entry)| entry.covers(&page.part)) {
            return Ok(Found::Missing);
        }
        if !self.read_exact(into, range.start)? {
            return Ok(Found::Damaged);
        }
        for (page, entry) in pages(range).zip(&entries) {
            let at = page.start() - range.start;
            let bytes = &into[at..at + page.part.len()];
            let is_right = if entry.range() == page.part {
                self.checksum(page.number, *entry, bytes) == entry.crc
            } else {
                // A part of the page has no checksum of its own.
                matches!(self.page(page.number, *entry)?, Some(whole) if whole[page.part.clone()] == *bytes)
            };
            if !is_right {
                return Ok(Found::Damaged);
            }
        }
        Ok(Found::All)
    }

    /// Stores bytes that begin at an offset. Returns how many pages were not there before.
    pub(crate) fn write(&self, start: usize, data: &[u8]) -> io::Result<u64> {
        let range = start..start + data.len();
        let mut entries = self.entries(&range)?;
        let mut pages_new = 0;
        for (page, entry) in pages(&range).zip(&mut entries) {
            if entry.covers(&page.part) {
                continue;
            }
            let at = page.start() - start;
            let bytes = &data[at..at + page.part.len()];
            pages_new += u64::from(entry.to == 0);
            *entry = self.joined(&page, *entry, bytes)?;
            self.file.write_all_at(bytes, PAGES_AT + page.start() as u64)?;
        }
        let table: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
        self.file.write_all_at(&table, (start / PAGE_BYTES * ENTRY_BYTES) as u64)?;
        Ok(pages_new)
    }

    /// Returns the entry of a page after a part is written: for both ranges, if what the page holds adjoins the part and has a right
    /// checksum; otherwise for the part alone.
    fn joined(&self, page: &PagePart, before: Entry, bytes: &[u8]) -> io::Result<Entry> {
        let whole = match before.touches(&page.part) {
            true => self.page(page.number, before)?,
            false => None,
        };
        let entry_of = |range: &Range<usize>, bytes: &[u8]| {
            let entry = Entry { crc: 0, from: range.start as u16, to: range.end as u16 };
            Entry { crc: self.checksum(page.number, entry, bytes), ..entry }
        };
        let Some(mut whole) = whole else { return Ok(entry_of(&page.part, bytes)) };
        whole[page.part.clone()].copy_from_slice(bytes);
        let range = before.range().start.min(page.part.start)..before.range().end.max(page.part.end);
        Ok(entry_of(&range, &whole[range.clone()]))
    }

    /// Returns a page with the bytes that its entry names at their place; `None` if they have another checksum.
    fn page(&self, number: usize, entry: Entry) -> io::Result<Option<[u8; PAGE_BYTES]>> {
        let mut page = [0; PAGE_BYTES];
        let held = &mut page[entry.range()];
        let is_right = self.read_exact(held, number * PAGE_BYTES + usize::from(entry.from))?
            && self.checksum(number, entry, held) == entry.crc;
        Ok(is_right.then_some(page))
    }

    /// Reads the entries of the pages of a range. Those behind the end of the file are empty.
    fn entries(&self, range: &Range<usize>) -> io::Result<Vec<Entry>> {
        let first = range.start / PAGE_BYTES;
        let count = (range.end - 1) / PAGE_BYTES + 1 - first;
        let mut table = vec![0; count * ENTRY_BYTES];
        let mut filled = 0;
        while filled < table.len() {
            match self.file.read_at(&mut table[filled..], (first * ENTRY_BYTES + filled) as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(table.as_chunks().0.iter().map(Entry::decode).collect())
    }

    /// Reads bytes of the segment. Returns whether the file is long enough.
    fn read_exact(&self, into: &mut [u8], start: usize) -> io::Result<bool> {
        match self.file.read_exact_at(into, PAGES_AT + start as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    fn checksum(&self, number: usize, entry: Entry, bytes: &[u8]) -> u32 {
        let mut crc = Crc::default();
        crc.add(&self.id.to_bytes());
        crc.add(&(number as u32).to_le_bytes());
        crc.add(&entry.from.to_le_bytes());
        crc.add(&entry.to.to_le_bytes());
        crc.add(bytes);
        crc.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectId;
    use proptest::prelude::*;
    use store::{ETag, ObjectKey};

    fn id(key: &str) -> SegmentId {
        let key = ObjectKey::try_from(key.as_bytes()).unwrap();
        ObjectId::new("s3://bucket", &key, Some(&ETag::new("etag"))).segment(3)
    }

    fn segment() -> Segment {
        Segment::new(id("key"), tempfile::tempfile().unwrap())
    }

    fn object_bytes() -> Vec<u8> {
        (0..SEGMENT_BYTES).map(|at| (at * 31 / 7) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Writes overlap and come in any order: each range is found right after it was written, and reads return the bytes of the object or nothing.
        #[test]
        fn what_was_written_is_found(writes in prop::collection::vec((0usize..40_000, 1usize..9_000), 1..12)) {
            let (segment, object) = (segment(), object_bytes());
            for &(start, len) in &writes {
                segment.write(start, &object[start..start + len]).unwrap();
                let mut into = vec![0; len];
                prop_assert_eq!(segment.read(&(start..start + len), &mut into).unwrap(), Found::All);
                prop_assert!(into == object[start..start + len]);
            }
            for page in 0..12 {
                let range = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
                let mut into = vec![0; PAGE_BYTES];
                let found = segment.read(&range, &mut into).unwrap();
                prop_assert_eq!(found == Found::All, segment.contains(&range).unwrap());
                prop_assert!(found == Found::Missing || into == object[range]);
            }
        }
    }

    #[test]
    fn small_parts_of_a_page_become_one() {
        let (segment, object) = (segment(), object_bytes());
        for start in [1000, 3000, 2000] {
            segment.write(start, &object[start..start + 1000]).unwrap();
        }
        // The second part replaced the first, as there was a gap between them; the third adjoins the second.
        assert!(segment.contains(&(2000..4000)).unwrap() && !segment.contains(&(1000..2000)).unwrap());
        let mut into = vec![0; 1500];
        assert_eq!(segment.read(&(2250..3750), &mut into).unwrap(), Found::All);
        assert!(into == object[2250..3750]);
    }

    /// Every byte of a file is changed in turn: a read gives right bytes or none.
    #[test]
    fn damaged_bytes_are_never_returned() {
        let (segment, object) = (segment(), object_bytes());
        let range = 100..10_000;
        segment.write(range.start, &object[range.clone()]).unwrap();
        let mut not_found = 0;
        for at in (0..ENTRY_BYTES as u64 * 3).chain(PAGES_AT + 90..PAGES_AT + 10_010) {
            let mut byte = [0];
            segment.file.read_at(&mut byte, at).unwrap();
            segment.file.write_all_at(&[!byte[0]], at).unwrap();
            let mut into = vec![0; range.len()];
            let found = segment.read(&range, &mut into).unwrap();
            assert!(found != Found::All || into == object[range.clone()], "byte {at}");
            not_found += usize::from(found != Found::All);
            segment.file.write_all_at(&byte, at).unwrap();
        }
        assert_eq!(not_found, ENTRY_BYTES * 3 + range.len());
    }

    #[test]
    fn a_file_under_another_name_or_cut_off_has_nothing() {
        let (segment, object) = (segment(), object_bytes());
        segment.write(0, &object[..8192]).unwrap();
        let moved = Segment::new(id("other"), segment.file.try_clone().unwrap());
        let mut into = vec![0; 8192];
        assert_eq!(moved.read(&(0..8192), &mut into).unwrap(), Found::Damaged);
        segment.file.set_len(PAGES_AT + 5000).unwrap();
        assert_eq!(segment.read(&(0..8192), &mut into).unwrap(), Found::Damaged);
        segment.file.set_len(10).unwrap();
        assert_eq!(segment.read(&(4096..8192), &mut into[..4096]).unwrap(), Found::Missing);
    }
}
