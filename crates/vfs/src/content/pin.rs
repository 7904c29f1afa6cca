//! The immutable bytes of a file's content: ranges of objects, and zeros between them.

use meta::namespace::{last_rows, read_rows};
use meta::{Extent, FsError, Ino, Reader, Summary};
use staging::packs::is_pack;
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;
use store::{ETag, ObjectKey, ObjectRef, StoreError};

use crate::content::invariants::assert_can_be_read;

/// Snapshot of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pieces: Pieces,
    /// Length of the file.
    pub(crate) size_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pieces {
    /// Ascending and disjoint pieces.
    Loaded(Vec<Piece>),
    /// Too many pieces for memory: they are read from the tables as needed.
    Rows(Rows),
}

/// Pieces as rows of the tables.
#[derive(Clone)]
struct Rows {
    /// A snapshot of the tables that has these pieces.
    tables: Arc<dyn Reader>,
    ino: Ino,
    summary: Summary,
    /// The key of extents that have no key of their own.
    path: Option<ObjectKey>,
}

/// A range of a file and the object that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The range of the file.
    pub(crate) range: Range<u64>,
    pub(crate) object: Arc<ObjectRef>,
    /// Offset in the object at which the range begins.
    pub(crate) object_offset: u64,
    /// The tag that the object must have; `None` if its key alone identifies it.
    pub(crate) if_match: Option<ETag>,
}

/// Source of a range of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The range of the file, and the piece that holds it.
    Stored(Range<u64>, Piece),
    /// Zeros in this range of the file.
    Hole(Range<u64>),
}

impl Pin {
    #[cfg(test)]
    pub(crate) fn new(pieces: Vec<Piece>, size_bytes: u64) -> Self {
        Self { pieces: Pieces::Loaded(pieces), size_bytes }
    }

    /// Returns the snapshot of a file that is one whole object.
    pub(crate) fn whole(object: ObjectRef, size_bytes: u64) -> Self {
        let if_match = Some(object.etag.clone());
        let piece = Piece { range: 0..size_bytes, object: Arc::new(object), object_offset: 0, if_match };
        Self { pieces: Pieces::Loaded(vec![piece]), size_bytes }
    }

    /// Returns the snapshot of a file by its extents; those without a key are at `path`, or left out if there is none.
    pub(crate) fn of_extents(content: &[Extent], size_bytes: u64, path: Option<&ObjectKey>) -> Self {
        Self { pieces: Pieces::Loaded(pieces(content, path)), size_bytes }
    }

    /// Returns the snapshot of a file whose extents are rows of `tables`.
    pub(crate) fn of_rows(
        tables: Arc<dyn Reader>,
        ino: Ino,
        summary: Summary,
        size_bytes: u64,
        path: Option<ObjectKey>,
    ) -> Self {
        Self { pieces: Pieces::Rows(Rows { tables, ino, summary, path }), size_bytes }
    }

    /// Returns all pieces.
    pub(crate) fn all(&self) -> Result<Cow<'_, [Piece]>, StoreError> {
        self.within(&(0..u64::MAX))
    }

    /// Returns the number of pieces.
    pub(crate) fn len(&self) -> usize {
        match &self.pieces {
            Pieces::Loaded(pieces) => pieces.len(),
            Pieces::Rows(rows) => usize::try_from(rows.summary.extents).unwrap_or(usize::MAX),
        }
    }

    /// Returns how many bytes are not holes.
    pub(crate) fn data_bytes(&self) -> u64 {
        match &self.pieces {
            Pieces::Loaded(pieces) => pieces.iter().map(|piece| piece.range.end - piece.range.start).sum(),
            Pieces::Rows(rows) => rows.summary.data_bytes,
        }
    }

    /// Returns the last two pieces that begin before an offset, in order.
    pub(crate) fn last_two_before(&self, end: u64) -> Result<Vec<Piece>, StoreError> {
        match &self.pieces {
            Pieces::Loaded(pieces) => {
                let next = pieces.partition_point(|piece| piece.range.start < end);
                Ok(pieces[next.saturating_sub(2)..next].to_vec())
            }
            Pieces::Rows(rows) => {
                let mut extents = last_rows(&*rows.tables, rows.ino, end, 2).map_err(unreadable)?;
                // The tables return the last one first.
                extents.reverse();
                Ok(pieces_of(rows, extents))
            }
        }
    }

    /// Returns the object of a file that is one whole object; `None` for any other file. A file in a pack is a part of an object, wherever it
    /// begins.
    pub(crate) fn object(&self) -> Option<&ObjectRef> {
        match &self.pieces {
            Pieces::Loaded(pieces) => match pieces.as_slice() {
                [one] if one.object_offset == 0 && one.range == (0..self.size_bytes) => {
                    Some(&*one.object).filter(|object| !is_pack(&object.key))
                }
                _ => None,
            },
            Pieces::Rows(_) => None,
        }
    }

    /// Returns the object at the file's path `key`, if the file uses a part of that object.
    pub(crate) fn object_at(&self, key: &ObjectKey) -> Option<ObjectRef> {
        match &self.pieces {
            Pieces::Loaded(pieces) => {
                pieces.iter().map(|piece| &*piece.object).find(|object| object.key == *key).cloned()
            }
            Pieces::Rows(rows) => {
                let is_there = rows.summary.at_path > 0 && rows.path.as_ref() == Some(key);
                is_there.then(|| rows.object()).flatten()
            }
        }
    }

    /// Returns the object of the file's first stored bytes. If the pieces are in the tables, returns the object that
    /// the tables prefer: the one at the file's path, if any.
    pub(crate) fn first_object(&self) -> Option<ObjectRef> {
        match &self.pieces {
            Pieces::Loaded(pieces) => pieces.first().map(|piece| (*piece.object).clone()),
            Pieces::Rows(rows) => rows.object(),
        }
    }

    /// Returns a tag that distinguishes these bytes from other bytes of the file: the object's etag for a whole object,
    /// otherwise a hash of all pieces.
    pub(crate) fn identity(&self) -> ETag {
        let pieces = match &self.pieces {
            Pieces::Rows(rows) => return ETag::new(&format!("pieces-{}", rows.summary.fingerprint)),
            Pieces::Loaded(pieces) => pieces,
        };
        if let Some(object) = self.object() {
            return object.etag.clone();
        }
        let mut hasher = DefaultHasher::new();
        self.size_bytes.hash(&mut hasher);
        for piece in pieces {
            (&piece.range, piece.object_offset).hash(&mut hasher);
            piece.object.etag.as_str().hash(&mut hasher);
        }
        ETag::new(&format!("pieces-{:016x}", hasher.finish()))
    }

    /// Returns a range of the file as content of another file, in which the range begins at `at` and ends the file.
    /// Before it is a hole.
    pub(crate) fn slice_at(&self, range: &Range<u64>, at: u64) -> Result<Self, StoreError> {
        let cuts = self.cut(range.clone())?.into_iter();
        let pieces = cuts.filter_map(|cut| match cut {
            Cut::Hole(_) => None,
            Cut::Stored(within, piece) => Some(Piece {
                range: within.start - range.start + at..within.end - range.start + at,
                object_offset: piece.within(&within).start,
                ..piece
            }),
        });
        let pieces = Pieces::Loaded(pieces.collect());
        Ok(Self { pieces, size_bytes: at + (range.end - range.start) })
    }

    /// Splits a range of the file, up to its end, by the source of its bytes.
    ///
    /// # Errors
    /// Fails if the pieces are in the tables and cannot be read.
    pub(crate) fn cut(&self, range: Range<u64>) -> Result<Vec<Cut>, StoreError> {
        let end = range.end.min(self.size_bytes);
        let mut cuts = Vec::new();
        let mut at = range.start;
        if at >= end {
            return Ok(cuts);
        }
        for piece in self.within(&(at..end))?.iter() {
            if at < piece.range.start {
                cuts.push(Cut::Hole(at..piece.range.start));
            }
            let within = at.max(piece.range.start)..end.min(piece.range.end);
            at = within.end;
            cuts.push(Cut::Stored(within, piece.clone()));
        }
        if at < end {
            cuts.push(Cut::Hole(at..end));
        }
        Ok(cuts)
    }

    /// Returns the pieces that have a byte in a range.
    fn within(&self, range: &Range<u64>) -> Result<Cow<'_, [Piece]>, StoreError> {
        match &self.pieces {
            Pieces::Loaded(pieces) => {
                let first = pieces.partition_point(|piece| piece.range.end <= range.start);
                let next = pieces.partition_point(|piece| piece.range.start < range.end);
                Ok(Cow::Borrowed(pieces.get(first..next).unwrap_or_default()))
            }
            Pieces::Rows(rows) => {
                let extents = read_rows(&*rows.tables, rows.ino, range).map_err(unreadable)?;
                Ok(Cow::Owned(pieces_of(rows, extents)))
            }
        }
    }
}

impl Rows {
    /// Returns the object of the summary; `None` if its key is the file's path and the file has none.
    fn object(&self) -> Option<ObjectRef> {
        let key = self.summary.object.key.as_ref().or(self.path.as_ref())?;
        let meta::Stored { etag, version, .. } = self.summary.object.clone();
        Some(ObjectRef { key: key.clone(), etag, version, last_modified: None })
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        self.ino == other.ino
            && self.path == other.path
            && self.summary.fingerprint == other.summary.fingerprint
    }
}

impl Eq for Rows {}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("ino", &self.ino).field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Piece {
    /// Returns the range of the object that holds a range of the file.
    pub(crate) fn within(&self, range: &Range<u64>) -> Range<u64> {
        let from = self.object_offset + (range.start - self.range.start);
        from..from + (range.end - range.start)
    }
}

/// Returns the pieces for some extents of the rows.
fn pieces_of(rows: &Rows, extents: Vec<Extent>) -> Vec<Piece> {
    pieces(&extents, rows.path.as_ref())
}

/// Returns the pieces for extents; those without a key are at `path`, or left out if there is none.
fn pieces(content: &[Extent], path: Option<&ObjectKey>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(content.len());
    for extent in content {
        let Some(key) = extent.object.key.as_ref().or(path) else { continue };
        // Consecutive extents mostly share an object.
        let object = match pieces.last() {
            Some(last) if last.object.key == *key => last.object.clone(),
            _ => Arc::new(object_of(key, extent)),
        };
        // An object that was named while its upload waited in the write-back log has another tag in the bucket. A key that is
        // used once cannot have other bytes.
        let is_used_once = extent.object.key.is_some();
        let if_match = Some(object.etag.clone()).filter(|etag| !is_used_once || !etag.is_provisional());
        let (range, object_offset) = (extent.offset..extent.end(), extent.object_offset);
        pieces.push(Piece { range, object, object_offset, if_match });
    }
    assert_can_be_read(&pieces);
    pieces
}

/// Returns the object of an extent, at this key.
fn object_of(key: &ObjectKey, extent: &Extent) -> ObjectRef {
    ObjectRef {
        key: key.clone(),
        etag: extent.object.etag.clone(),
        version: extent.object.version.clone(),
        last_modified: None,
    }
}

/// Returns the error of reading extents as one of the store, so that readers handle it like any other.
fn unreadable(error: FsError) -> StoreError {
    match error {
        FsError::Engine(meta::EngineError::Unavailable(why)) => StoreError::Unavailable(why),
        error => StoreError::Corrupt(format!("the extents of a file cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectRef {
        let key = ObjectKey::try_from(name).unwrap();
        ObjectRef { key, etag: ETag::new(name), version: None, last_modified: None }
    }

    #[test]
    fn every_byte_is_in_one_piece_or_in_a_hole() {
        let piece = |range: Range<u64>, name: &str, object_offset| Piece {
            range,
            object: Arc::new(object(name)),
            object_offset,
            if_match: None,
        };
        let pieces = vec![piece(10..20, "a", 5), piece(20..30, "b", 0), piece(50..60, "a", 15)];
        let pin = Pin::new(pieces.clone(), 70);
        assert_eq!(
            pin.cut(12..u64::MAX).unwrap(),
            [
                Cut::Stored(12..20, pieces[0].clone()),
                Cut::Stored(20..30, pieces[1].clone()),
                Cut::Hole(30..50),
                Cut::Stored(50..60, pieces[2].clone()),
                Cut::Hole(60..70),
            ]
        );
        assert_eq!(pin.cut(0..5).unwrap(), [Cut::Hole(0..5)]);
        assert_eq!(pieces[0].within(&(12..20)), 7..15);
        assert!(pin.cut(70..80).unwrap().is_empty() && pin.object().is_none());
    }

    #[test]
    fn identity_is_the_etag_of_a_whole_object_or_a_hash_of_all_pieces() {
        let whole = Pin::whole(object("a"), 9);
        assert_eq!((whole.identity(), whole.object()), (ETag::new("a"), Some(&object("a"))));
        assert_eq!(Pin::whole(object("a"), 0).cut(0..9).unwrap(), []);
        let cut = Pin { size_bytes: 8, ..whole.clone() };
        assert!(cut.identity() != whole.identity() && cut.object().is_none());
    }
}
