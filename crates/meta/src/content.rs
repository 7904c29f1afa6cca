//! Where a file's bytes are: a few extents in the inode itself, or a summary of many that have rows of their own.
//!
//! Invariants: [`Content::Inline`] has at most [`INLINE_EXTENTS_MAX`](crate::codec::INLINE_EXTENTS_MAX) extents and
//! [`Content::Rows`] has more; a summary says of its rows what [`Content::of`] computes from them.

use crate::codec::INLINE_EXTENTS_MAX;
use crate::{Extent, Stored};
use aws_lc_rs::digest::{Context, SHA256};
use std::fmt;
use std::ops::Range;
use store::{ObjectKey, hex};

/// The content of a file, so that an inode has the same size however many extents the file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// All extents, ascending and without overlap; holes read as zeros. Empty: nothing is stored yet. Under the Whole
    /// mapping one extent, of length 0 for an empty file and for a directory's marker; such an extent stands alone.
    Inline(Vec<Extent>),
    /// A summary; the extents themselves are read with [`Namespace::content`](crate::Namespace::content).
    Rows(Summary),
}

/// What an inode says of extents that have rows of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of extents.
    pub extents: u64,
    /// Sum of their lengths, in bytes.
    pub data_bytes: u64,
    /// Number of extents in the object that lies where naming says.
    pub at_path: u64,
    /// The object that [`Content::object`] returns.
    pub object: Stored,
    /// Tells the content from every other that the file has had.
    pub fingerprint: Fingerprint,
    /// Whether the uses of each object are counted in records of their own. Inode records of version 1 have no such counts: they are
    /// made when the content changes.
    pub has_counted_uses: bool,
}

/// Identifies content by its extents and length: 128 bits, enough to tell any two contents apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; Self::BYTES]);

impl Content {
    /// Nothing is stored.
    pub const EMPTY: Self = Self::Inline(Vec::new());

    /// Returns the content that consists of these extents, in a file of `size_bytes`.
    pub fn of(extents: Vec<Extent>, size_bytes: u64) -> Self {
        if extents.len() <= INLINE_EXTENTS_MAX {
            return Self::Inline(extents);
        }
        let Some(object) = object_of(&extents).cloned() else { return Self::EMPTY };
        Self::Rows(Summary {
            extents: extents.len() as u64,
            data_bytes: data_bytes(&extents),
            at_path: at_path(&extents),
            object,
            fingerprint: Fingerprint::of(&extents, size_bytes),
            has_counted_uses: true,
        })
    }

    /// Returns the object: the one that lies where naming says, else that of the first extent.
    pub fn object(&self) -> Option<&Stored> {
        match self {
            Self::Inline(extents) => object_of(extents),
            Self::Rows(summary) => Some(&summary.object),
        }
    }

    /// Returns the number of extents.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(extents) => extents.len() as u64,
            Self::Rows(summary) => summary.extents,
        }
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that are stored: the file's length without its holes.
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Inline(extents) => data_bytes(extents),
            Self::Rows(summary) => summary.data_bytes,
        }
    }

    /// Returns the only extent, if there is just one.
    pub fn only_extent(&self) -> Option<&Extent> {
        match self {
            Self::Inline(extents) => <&[Extent; 1]>::try_from(extents.as_slice()).ok().map(|[one]| one),
            Self::Rows(_) => None,
        }
    }

    /// Returns what identifies this content in a file of `size_bytes`.
    pub fn fingerprint(&self, size_bytes: u64) -> Fingerprint {
        match self {
            Self::Inline(extents) => Fingerprint::of(extents, size_bytes),
            Self::Rows(summary) => summary.fingerprint,
        }
    }

    /// Whether some of the content is in the object that lies where naming says, and some is not: it was stored elsewhere since.
    pub(crate) fn is_partly_at_path(&self) -> bool {
        let at_path = match self {
            Self::Inline(extents) => at_path(extents),
            Self::Rows(summary) => summary.at_path,
        };
        0 < at_path && at_path < self.len()
    }
}

/// Returns the object of the first extent that lies where naming says, else of the first extent.
fn object_of(extents: &[Extent]) -> Option<&Stored> {
    let mut objects = extents.iter().map(|extent| &extent.object);
    objects.clone().find(|object| object.key.is_none()).or_else(|| objects.next())
}

/// Returns the sum of the lengths; damaged extents may have any.
pub(crate) fn data_bytes(extents: &[Extent]) -> u64 {
    extents.iter().fold(0, |sum, extent| sum.saturating_add(extent.len))
}

/// Returns how many extents lie where naming says.
pub(crate) fn at_path(extents: &[Extent]) -> u64 {
    extents.iter().filter(|extent| extent.object.key.is_none()).count() as u64
}

impl Fingerprint {
    /// Length in bytes.
    pub const BYTES: usize = 16;

    /// Returns the fingerprint of content that is given as a whole.
    pub fn of(extents: &[Extent], size_bytes: u64) -> Self {
        let mut digest = Context::new(&SHA256);
        digest.update(&size_bytes.to_be_bytes());
        add_extents(&mut digest, extents);
        Self::finish(digest)
    }

    /// Returns the fingerprint of content that had this one before `extents` took the place of `ranges` in a file that is now of
    /// `size_bytes`. It costs what changed, not what there is.
    pub(crate) fn then(self, ranges: &[Range<u64>], extents: &[Extent], size_bytes: u64) -> Self {
        let mut digest = Context::new(&SHA256);
        digest.update(&self.0);
        digest.update(&size_bytes.to_be_bytes());
        digest.update(&(ranges.len() as u64).to_be_bytes());
        for range in ranges {
            digest.update(&range.start.to_be_bytes());
            digest.update(&range.end.to_be_bytes());
        }
        add_extents(&mut digest, extents);
        Self::finish(digest)
    }

    fn finish(digest: Context) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&digest.finish().as_ref()[..Self::BYTES]);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

fn add_extents(digest: &mut Context, extents: &[Extent]) {
    for extent in extents.iter().filter(|extent| extent.len > 0) {
        for number in [extent.offset, extent.len, extent.object_offset] {
            digest.update(&number.to_be_bytes());
        }
        add_text(digest, extent.object.key.as_ref().map_or(b"", ObjectKey::as_bytes));
        add_text(digest, extent.object.etag.as_str().as_bytes());
    }
}

fn add_text(digest: &mut Context, text: &[u8]) {
    digest.update(&(text.len() as u64).to_be_bytes());
    digest.update(text);
}
