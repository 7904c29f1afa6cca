//! The body of a PUT or a part: a list of buffers that can be sent again.

use bytes::Bytes;
use std::ops::Range;

/// Bytes to store: buffers ("pieces") in order. Clones are cheap and share the buffers, so that a retry sends the same
/// bytes.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    pieces: Vec<Bytes>,
    len: u64,
}

impl Payload {
    /// Appends a piece; empty ones are dropped.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len() as u64;
            self.pieces.push(piece);
        }
    }

    /// Returns the total length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pieces in order; none is empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Returns the bytes of a range without copying; the range is cut to the payload's length.
    pub fn slice(&self, range: Range<u64>) -> Self {
        let mut begins = 0;
        let cut = |piece: &Bytes| {
            let ends = begins + piece.len() as u64;
            let start = range.start.clamp(begins, ends) - begins;
            let end = range.end.clamp(begins, ends) - begins;
            begins = ends;
            piece.slice(start as usize..end as usize)
        };
        self.pieces.iter().map(cut).collect()
    }

    /// Returns one contiguous buffer; copies only if there are several pieces.
    pub fn to_bytes(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        let mut payload = Self::default();
        pieces.into_iter().for_each(|piece| payload.push(piece));
        payload
    }
}

impl<T: Into<Bytes>> From<T> for Payload {
    fn from(bytes: T) -> Self {
        std::iter::once(bytes.into()).collect()
    }
}
