//! The immutable bytes that a file consists of: ranges of objects, and zeros between them.

use meta::{Extent, Inode};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;
use store::{ETag, ObjectKey, ObjectRef};

/// What a file consisted of at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    /// Ascending, without overlap.
    pieces: Vec<Piece>,
    pub(crate) size_bytes: u64,
}

/// A range of a file and the object that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    pub(crate) object: Arc<ObjectRef>,
    /// Where in the object it begins.
    pub(crate) object_offset: u64,
    /// The tag to ask for.
    pub(crate) if_match: Option<ETag>,
}

/// Where a range of a file comes from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut<'p> {
    /// The range of the file, and its piece.
    Stored(Range<u64>, &'p Piece),
    /// Zeros in this range of the file.
    Hole(Range<u64>),
}

impl Pin {
    #[cfg(test)]
    pub(crate) fn new(pieces: Vec<Piece>, size_bytes: u64) -> Self {
        Self { pieces, size_bytes }
    }

    /// A file that is one whole object.
    pub(crate) fn whole(object: ObjectRef, size_bytes: u64) -> Self {
        let if_match = Some(object.etag.clone());
        let piece = Piece { range: 0..size_bytes, object: Arc::new(object), object_offset: 0, if_match };
        Self { pieces: vec![piece], size_bytes }
    }

    /// A file by its extents; those that do not say where they lie are at its path.
    pub(crate) fn spread(inode: &Inode, path: Option<&ObjectKey>) -> Self {
        let mut pieces: Vec<Piece> = Vec::with_capacity(inode.content.len());
        for extent in &inode.content {
            let Some(key) = extent.object.key.as_ref().or(path) else { continue };
            // Extents of one object mostly follow each other.
            let object = match pieces.last() {
                Some(last) if last.object.key == *key => last.object.clone(),
                _ => Arc::new(object_of(key, extent)),
            };
            // What was named while its object waited to go up has another tag in the bucket. A key of its own has no
            // other bytes.
            let is_used_once = extent.object.key.is_some();
            let if_match = Some(object.etag.clone()).filter(|etag| !is_used_once || !etag.is_provisional());
            let (range, object_offset) = (extent.offset..extent.end(), extent.object_offset);
            pieces.push(Piece { range, object, object_offset, if_match });
        }
        Self { pieces, size_bytes: inode.size_bytes }
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The object of a file that is one whole object.
    pub(crate) fn object(&self) -> Option<&ObjectRef> {
        match self.pieces.as_slice() {
            [one] if one.object_offset == 0 && one.range == (0..self.size_bytes) => Some(&one.object),
            _ => None,
        }
    }

    /// The object of a file that lies under this key, if any part of the file is in it.
    pub(crate) fn object_at(&self, key: &ObjectKey) -> Option<&ObjectRef> {
        self.pieces.iter().map(|piece| &*piece.object).find(|object| object.key == *key)
    }

    /// The object that the first of its stored bytes are in.
    pub(crate) fn first_object(&self) -> Option<&ObjectRef> {
        self.pieces.first().map(|piece| &*piece.object)
    }

    /// Tells these bytes from others of the same file: the object's etag where there is one, else a tag over all.
    pub(crate) fn identity(&self) -> ETag {
        if let Some(object) = self.object() {
            return object.etag.clone();
        }
        let mut hasher = DefaultHasher::new();
        self.size_bytes.hash(&mut hasher);
        for piece in &self.pieces {
            (&piece.range, piece.object_offset).hash(&mut hasher);
            piece.object.etag.as_str().hash(&mut hasher);
        }
        ETag::new(&format!("pieces-{:016x}", hasher.finish()))
    }

    /// A range of the file as another's, which begins there at `at` and has nothing before.
    pub(crate) fn moved(&self, range: &Range<u64>, at: u64) -> Self {
        let cuts = self.cut(range.clone()).into_iter();
        let pieces = cuts.filter_map(|cut| match cut {
            Cut::Hole(_) => None,
            Cut::Stored(within, piece) => Some(Piece {
                range: within.start - range.start + at..within.end - range.start + at,
                object_offset: piece.within(&within).start,
                ..piece.clone()
            }),
        });
        Self { pieces: pieces.collect(), size_bytes: at + (range.end - range.start) }
    }

    /// Cuts a range of the file, up to its end, by where its bytes are.
    pub(crate) fn cut(&self, range: Range<u64>) -> Vec<Cut<'_>> {
        let end = range.end.min(self.size_bytes);
        let mut cuts = Vec::new();
        let mut at = range.start;
        let first = self.pieces.partition_point(|piece| piece.range.end <= at);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.range.start < end) {
            if at < piece.range.start {
                cuts.push(Cut::Hole(at..piece.range.start));
            }
            let within = at.max(piece.range.start)..end.min(piece.range.end);
            at = within.end;
            cuts.push(Cut::Stored(within, piece));
        }
        if at < end {
            cuts.push(Cut::Hole(at..end));
        }
        cuts
    }
}

impl Piece {
    /// Where in the object a range of the file lies.
    pub(crate) fn within(&self, range: &Range<u64>) -> Range<u64> {
        let from = self.object_offset + (range.start - self.range.start);
        from..from + (range.end - range.start)
    }
}

fn object_of(key: &ObjectKey, extent: &Extent) -> ObjectRef {
    ObjectRef {
        key: key.clone(),
        etag: extent.object.etag.clone(),
        version: extent.object.version.clone(),
        last_modified: None,
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
        let pin = Pin { pieces: pieces.clone(), size_bytes: 70 };
        assert_eq!(
            pin.cut(12..u64::MAX),
            [
                Cut::Stored(12..20, &pieces[0]),
                Cut::Stored(20..30, &pieces[1]),
                Cut::Hole(30..50),
                Cut::Stored(50..60, &pieces[2]),
                Cut::Hole(60..70),
            ]
        );
        assert_eq!(pin.cut(0..5), [Cut::Hole(0..5)]);
        assert_eq!(pieces[0].within(&(12..20)), 7..15);
        assert!(pin.cut(70..80).is_empty() && pin.object().is_none());
    }

    #[test]
    fn identity_is_the_etag_of_a_whole_object_and_else_says_where_everything_lies() {
        let whole = Pin::whole(object("a"), 9);
        assert_eq!((whole.identity(), whole.object()), (ETag::new("a"), Some(&object("a"))));
        assert_eq!(Pin::whole(object("a"), 0).cut(0..9), []);
        let cut = Pin { size_bytes: 8, ..whole.clone() };
        assert!(cut.identity() != whole.identity() && cut.object().is_none());
    }
}
